"""What was asked for once takes effect once, also when it is asked again after a restart."""

import shutil
import time

from processors import topology
from schemas import limits
from schemas.commands import (
    AnyCommand,
    DeleteJob,
    PauseJob,
    ResumeJob,
    TriggerJob,
)
from schemas.replies import Accepted, Refused
from schemas.units import format_instant
from tests.broker.scenarios import checks
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import SchedulerProcess, World, put, until


def restarted(world: World, scheduler: SchedulerProcess, *, lose_store: bool) -> SchedulerProcess:
    scheduler.kill()
    if lose_store:
        shutil.rmtree(scheduler.state_dir)
    return world.scheduler().await_owner()


def sequence(orders: str) -> list[AnyCommand]:
    """Each with an id: everything that can be done to a job, over two of its lives."""
    return [
        put("job", orders, command_id="put"),
        TriggerJob(tenant="acme", job="job", command_id="trigger"),
        PauseJob(tenant="acme", job="job", command_id="pause"),
        ResumeJob(tenant="acme", job="job", command_id="resume"),
        put("job", orders, command_id="put-again", payload=b"2"),
        DeleteJob(tenant="acme", job="job", command_id="delete"),
        put("job", orders, command_id="new-life", payload=b"3"),
        TriggerJob(tenant="acme", job="job", command_id="trigger-new"),
    ]


@scenario()
def test_a_repeated_command_gets_its_first_answer_after_a_restart(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    commands = sequence(orders)
    # One by one: each answer is the state after its own command.
    first = [world.accepted(command)[0] for command in commands]
    for lose_store in (False, True):
        scheduler = restarted(world, scheduler, lose_store=lose_store)
        again = [world.accepted(command)[0] for command in commands]
        assert all(answer.repeated for answer in again)
        for before, after in zip(first, again, strict=True):
            assert (after.version, after.sequence, after.execution_id) == (
                before.version, before.sequence, before.execution_id,
            )  # fmt: skip
    assert [c.change for c in checks.changes(world)] == [
        "put", "pause", "resume", "put", "delete", "put",
    ]  # fmt: skip
    assert len(checks.fired(world)) == 2
    state = checks.states(world)["job"]
    assert (state.status, state.version) == ("ACTIVE", 3)
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_an_id_that_comes_back_with_another_body_is_refused_after_a_restart(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    world.accepted(put("job", orders, command_id="one"))
    scheduler = restarted(world, scheduler, lose_store=False)
    before = checks.state_records(world)
    for command in (
        put("job", orders, command_id="one", payload=b"other"),
        TriggerJob(tenant="acme", job="job", command_id="one"),
        DeleteJob(tenant="acme", job="job", command_id="one"),
    ):
        [answer] = world.ask(command)
        assert isinstance(answer, Refused)
        assert (answer.kind, answer.problems[0].field) == ("id_reused", "command_id")
    assert checks.state_records(world) == before


@scenario()
def test_more_ids_than_fit_into_the_job_are_remembered_over_a_restart(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    world.accepted(put("job", orders, command_id="put"))
    triggers = [TriggerJob(tenant="acme", job="job", command_id=f"t{n}") for n in range(60)]
    first = world.accepted(*triggers)
    scheduler = restarted(world, scheduler, lose_store=True)
    again = world.accepted(*triggers)
    assert [a.execution_id for a in again] == [a.execution_id for a in first]
    assert all(answer.repeated for answer in again)
    assert len(checks.fired(world)) == 60
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_a_job_that_refuses_further_ids_says_so_and_keeps_its_ticks(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    world.accepted(put("job", orders, command_id="put"))
    answers = world.ask(
        *(TriggerJob(tenant="acme", job="job", command_id=f"t{n}") for n in range(1_050))
    )
    accepted = [answer for answer in answers if isinstance(answer, Accepted)]
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert {answer.kind for answer in refused} == {"too_many_commands"}
    most = limits.COMMAND_IDS_MAX
    assert most - 1 <= len(accepted) < most + limits.COMMAND_IDS_INLINE_MAX
    assert len(checks.fired(world)) == len(accepted)
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_a_tick_that_was_decided_is_not_decided_again_in_the_next_life(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    now_s = int(time.time())
    due = format_instant(now_s * 1000 + 2_000)
    again = put("second", orders, cron="* * * * * *")
    world.accepted(put("once", orders, at=due), again)
    until(lambda: "once" in {e.job for e in checks.fired(world)}, "the fire", scheduler)
    for n in range(8):
        # Within the second of the last tick: a job without a past would fire it once more.
        world.accepted(DeleteJob(tenant="acme", job="second"), again)
        if n in (2, 5):
            scheduler = restarted(world, scheduler, lose_store=n == 5)
        time.sleep(0.3)
    world.accepted(DeleteJob(tenant="acme", job="once"))
    [answer] = world.ask(put("once", orders, at=due))
    assert isinstance(answer, Refused)
    assert answer.problems[0].field == "schedules[0].at"
    # One without a past still runs it: it is less than a minute old.
    world.accepted(put("fresh", orders, at=due))
    until(lambda: "fresh" in {e.job for e in checks.fired(world)}, "the other", scheduler)
    assert len([e for e in checks.fired(world) if e.job == "once"]) == 1
    lives = {c.life for c in checks.changes(world) if c.job == "second"}
    assert len(lives) == 9
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_a_paused_job_stays_paused_over_a_restart_and_goes_on_when_resumed(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    world.accepted(put("job", orders, every="1s"))
    until(lambda: len(checks.fired(world)) >= 1, "a fire", scheduler)
    world.accepted(PauseJob(tenant="acme", job="job", by="someone", note="holidays"))
    before = len(checks.fired(world))
    scheduler = restarted(world, scheduler, lose_store=True)
    hold = checks.states(world)["job"].hold
    assert hold is not None
    assert (hold.by, hold.note) == ("someone", "holidays")
    time.sleep(2.2)
    assert len(checks.fired(world)) == before
    assert checks.missed(world) == []  # a paused job has no ticks
    world.accepted(TriggerJob(tenant="acme", job="job"))
    world.accepted(ResumeJob(tenant="acme", job="job"))
    until(lambda: len(checks.fired(world)) >= before + 3, "fires again", scheduler)
    at = [e.scheduled_at for e in checks.fired(world) if "~m" not in e.execution_id]
    assert {b - a for a, b in zip(at[before:], at[before + 1 :], strict=False)} == {1_000}
    assert (at[before] - at[0]) % 1_000 == 0  # the interval kept its anchor
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_the_same_content_makes_no_new_version_and_moves_no_tick(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    world.accepted(put("job", orders, every="1h"))
    before = checks.states(world)["job"]
    scheduler = restarted(world, scheduler, lose_store=False)
    [answer] = world.accepted(put("job", orders, every="1h", by="somebody else"))
    assert (answer.version, answer.sequence) == (1, 1)
    after = checks.states(world)["job"]
    assert (after.due_ms, after.version, after.sequence) == (before.due_ms, 1, 1)
    assert len(checks.changes(world)) == 1


@scenario()
def test_a_version_that_is_not_the_expected_one_is_refused_over_a_restart(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    world.accepted(put("job", orders, if_match=0))
    world.accepted(put("job", orders, if_match=1, payload=b"2"))
    scheduler = restarted(world, scheduler, lose_store=False)
    for stale in (
        put("job", orders, if_match=0, payload=b"3"),
        put("job", orders, if_match=1, payload=b"3"),
        PauseJob(tenant="acme", job="job", if_match=1),
        DeleteJob(tenant="acme", job="job", if_match=3),
    ):
        [answer] = world.ask(stale)
        assert isinstance(answer, Refused)
        assert (answer.kind, answer.problems[0].field) == ("version_conflict", "if_match")
    world.accepted(DeleteJob(tenant="acme", job="job", if_match=2))
    assert [c.change for c in checks.changes(world)] == ["put", "put", "delete"]
    assert scheduler.terminate() == 0
    checks.check_log(world)


@scenario()
def test_a_reply_says_where_its_job_stands_in_the_log(world: World) -> None:
    """Readers of views wait for (life, sequence): the answer names exactly what was written."""
    world.scheduler().await_owner()
    orders = world.topic()
    answers = world.accepted(*(put(f"job-{n}", orders, every="1s") for n in range(20)))
    found = {(c.job, c.life, c.sequence) for c in checks.changes(world)}
    assert {(a.job, a.life, a.sequence) for a in answers} == found
    assert {a.version for a in answers} == {1}
    assert world.records(topology.QUARANTINE) == []
