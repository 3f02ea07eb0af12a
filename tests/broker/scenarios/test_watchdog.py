"""A process that cannot go on ends, so that another can do better; one that can goes on."""

import time

from schemas import limits
from tests.broker.scenarios import checks, patches
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import WAIT_S, World, put, until

STUCK_EXIT = 70


@scenario()
def test_a_loop_that_is_stuck_ends_the_process_and_another_takes_its_partitions(
    world: World,
) -> None:
    stuck = world.scheduler("stuck", patch="get_stuck").await_owner()
    orders = world.topic()
    world.accepted(put("tick", orders, every="1s"))
    world.send(put("stuck", orders, command_id="stuck"))
    other = world.scheduler("other")
    assert stuck.await_end() == STUCK_EXIT
    assert stuck.events()[-1] == "stuck"
    other.await_owner()
    world.accepted(put("stuck", orders, command_id="stuck"))
    arrived = world.tail(orders, since_end=True)
    until(lambda: len(arrived.refresh()) >= 2, "fires", other)


@scenario()
def test_a_process_that_was_stopped_for_a_while_is_not_taken_for_a_stuck_one(world: World) -> None:
    scheduler = world.scheduler(patch="short_watchdog").await_owner()
    orders = world.topic()
    world.accepted(put("tick", orders, every="1s"))
    scheduler.pause()
    time.sleep(4.5)
    scheduler.go_on()
    arrived = world.tail(orders, since_end=True)
    until(lambda: len(arrived.refresh()) >= 2, "fires", scheduler)
    assert scheduler.terminate() == 0
    checks.check_every_second(world, "tick")
    checks.check_log(world)


@scenario()
def test_a_process_that_can_read_no_more_inputs_ends_with_the_reason(world: World) -> None:
    broken = world.scheduler(patch="stop_reading").await_owner()
    orders = world.topic()
    for n in range(5):
        world.send(put(f"job-{n}", orders))
        time.sleep(0.2)
    assert broken.await_end() not in (0, None)
    assert "a bug in reading" in broken.log_file.read_text()
    scheduler = world.scheduler().await_owner()
    until(lambda: len(checks.changes(world)) == 5, "all commands to be applied", scheduler)
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_nothing_is_decided_while_the_clocks_disagree_and_marks_go_on(world: World) -> None:
    orders = world.topic()
    scheduler = world.scheduler(patch="clock_ahead").await_owner()
    world.accepted(put("tick", orders, every="1s"))
    until(lambda: len(world.records(orders)) >= 2, "fires", scheduler)

    ahead = world.folder / patches.AHEAD
    ahead.touch()
    time.sleep(1.0)  # a step that began before may end after
    before, marks = checks.state_records(world), scheduler.marks()
    world.send(put("later", orders))
    time.sleep(3.0)
    assert checks.state_records(world) == before
    assert scheduler.marks() >= marks + 2
    ahead.unlink()
    # A clock that jumped is trusted again after it has agreed for a while.
    trusted_s = limits.CLOCK_ALONE_AGREEMENT_MS / 1_000
    until(
        lambda: "later" in checks.states(world), "the command", scheduler,
        timeout_s=trusted_s + WAIT_S,
    )  # fmt: skip
    fires = len(world.records(orders))
    until(lambda: len(world.records(orders)) >= fires + 2, "fires", scheduler)
    assert scheduler.terminate() == 0
    for event in checks.fired(world):
        assert event.claimed_at >= event.due_at
    checks.check_every_second(world, "tick")
    checks.check_log(world)
    checks.check_stores(world, scheduler)
