"""Workers that die or stand still while they hold leases."""

import sys
import time

from tests.broker.scenarios import checks
from tests.broker.scenarios.hands import LEASE_MS, Hands, deliveries, result_of
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import World, until

COUNT = 100
SLACK_MS = 2_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_what_a_killed_worker_held_is_delivered_again_soon_after_its_leases_end(
    world: World,
) -> None:
    hands = Hands(world)
    scheduler = world.scheduler().await_owner()
    hands.slots()
    dying = hands.worker("dying", COUNT)
    ids = hands.trigger(hands.put("job", COUNT, handler="wait"))
    hands.await_receipts(ids)
    hands.worker("other", COUNT)
    dying.kill()
    killed_ms = now_ms()
    hands.await_receipts(ids, delivery=2)
    by_id = hands.receipts_of(ids)
    late_ms = [receipts[-1].at_ms - killed_ms for receipts in by_id.values()]
    sys.stderr.write(
        f"{COUNT} leases of {LEASE_MS} ms, delivered again {min(late_ms)} to {max(late_ms)} ms "
        "after the kill\n"
    )
    for receipts in by_id.values():
        assert [(r.delivery, r.worker) for r in receipts] == [(1, "dying"), (2, "other")]
        assert receipts[1].fence > receipts[0].fence
    assert max(late_ms) <= LEASE_MS + SLACK_MS
    hands.release()
    ends = hands.await_ends(ids, scheduler)
    assert deliveries(ends.values()) == {("SUCCEEDED", 2, 1)}
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_a_worker_that_stood_still_past_its_leases_starts_nothing_and_changes_nothing(
    world: World,
) -> None:
    hands = Hands(world)
    scheduler = world.scheduler().await_owner()
    hands.slots()
    stopped = hands.worker("stopped", COUNT)
    jobs = hands.put("job", COUNT, handler="wait")
    half = COUNT // 2
    begun = hands.trigger(jobs[:half])
    hands.await_receipts(begun)
    stopped.pause()
    # These are leased to it as well, and it has not read that they are.
    unread = hands.trigger(jobs[half:])
    until(lambda: set(unread) <= hands.leases().keys(), "the others to be leased", scheduler)
    assert {lease[0].worker.rpartition("-")[0] for lease in hands.leases().values()} == {"stopped"}
    # Its handlers come to their end meanwhile: outcomes that it will report too late.
    hands.release()
    hands.worker("other", COUNT)
    ends = hands.await_ends([*begun, *unread], scheduler)
    before, outdated = hands.receipts(), len(checks.moved(world))
    stopped.go_on()
    again = hands.trigger(jobs)
    hands.await_ends(again, scheduler)
    stopped.terminate()  # it has said everything there was to say
    time.sleep(1.0)
    assert len(checks.moved(world)) > outdated
    late = hands.receipts()[len(before) :]
    assert not {r.execution_id for r in late} & {*begun, *unread}
    assert hands.await_ends([*begun, *unread]) == ends
    for execution_id, receipts in hands.receipts_of(begun).items():
        assert [r.worker for r in receipts] == ["stopped", "other"]
        assert result_of(ends[execution_id]).fence == receipts[-1].fence > receipts[0].fence
    for execution_id, receipts in hands.receipts_of(unread).items():
        assert {r.worker for r in receipts} == {"other"}
        assert result_of(ends[execution_id]).delivery == ends[execution_id].delivery
    assert {event.state for event in ends.values()} == {"SUCCEEDED"}
    assert min(event.delivery for event in ends.values()) >= 2
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_a_handler_that_holds_the_interpreter_for_three_leases_keeps_its_lease(
    world: World,
) -> None:
    hands = Hands(world)
    scheduler = world.scheduler().await_owner()
    hands.slots()
    hands.worker("held", 1)
    hands.worker("idle", 1)
    seconds = 3 * LEASE_MS / 1_000
    jobs = hands.put("job", 1, handler="hold-the-interpreter", payload={"seconds": seconds})
    ids = hands.trigger(jobs)
    ends = hands.await_ends(ids, scheduler)
    assert deliveries(ends.values()) == {("SUCCEEDED", 1, 0)}
    assert [len(receipts) for receipts in hands.receipts_of(ids).values()] == [1]
    [event] = ends.values()
    assert event.finished_at - event.started_at >= 3 * LEASE_MS
