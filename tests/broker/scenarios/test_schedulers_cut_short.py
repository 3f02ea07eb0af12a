"""Schedulers that die or stand still between deciding about a lease and telling its worker."""

import signal
import time

from schemas.commands import TriggerJob
from tests.broker.scenarios import checks
from tests.broker.scenarios.hands import TENANT, Hands, deliveries
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import World, until

COUNT = 30
LONG_LEASE_MS = 20_000
"""Longer than until the next owner is there."""


def executions_of(hands: Hands, jobs: list[str]) -> list[str]:
    """Ids of the executions of these jobs."""
    return [event.execution_id for event in checks.fired(hands.world) if event.job in jobs]


@scenario()
def test_what_a_killed_scheduler_leased_and_told_nobody_is_told_by_the_next_and_runs_once(
    world: World,
) -> None:
    hands = Hands(world, LONG_LEASE_MS)
    dying = world.scheduler(crash="CP18:3").await_owner()
    hands.slots()
    hands.worker("w", COUNT)
    jobs = hands.put("job", COUNT, handler="note")
    hands.await_ends(hands.trigger(jobs[:1]), dying)  # from here on there is a place
    for job in jobs[1:]:
        world.send(TriggerJob(tenant=TENANT, job=job))
        time.sleep(0.02)
    assert dying.await_end() == -signal.SIGKILL
    untold = [one for one in hands.leases() if not hands.receipts_of([one])[one]]
    assert untold
    scheduler = world.scheduler().await_owner()
    until(lambda: len(executions_of(hands, jobs)) == COUNT, "all to be claimed", scheduler)
    ids = executions_of(hands, jobs)
    ends = hands.await_ends(ids, scheduler)
    assert deliveries(ends.values()) == {("SUCCEEDED", 1, 0)}
    assert {len(receipts) for receipts in hands.receipts_of(ids).values()} == {1}
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_an_expiry_that_dies_with_its_scheduler_is_decided_once_by_the_next(world: World) -> None:
    hands = Hands(world)
    dying = world.scheduler(crash="CP19:3").await_owner()
    hands.slots()
    gone = hands.worker("gone", COUNT)
    ids = hands.trigger(hands.put("job", COUNT, handler="wait"))
    hands.await_receipts(ids)
    gone.kill()
    assert dying.await_end() == -signal.SIGKILL
    assert {len(leases) for leases in hands.leases().values()} == {1}
    hands.worker("other", COUNT)
    scheduler = world.scheduler().await_owner()
    hands.await_receipts(ids, delivery=2)
    hands.release()
    ends = hands.await_ends(ids, scheduler)
    assert deliveries(ends.values()) == {("SUCCEEDED", 2, 1)}
    assert {len(receipts) for receipts in hands.receipts_of(ids).values()} == {2}
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_a_scheduler_that_stood_still_before_telling_its_worker_is_replaced_and_repeats_nothing(
    world: World,
) -> None:
    hands = Hands(world, LONG_LEASE_MS)
    stopped = world.scheduler("stopped", patch="stop_before_workers_are_told").await_owner()
    hands.slots()
    hands.worker("w", COUNT)
    jobs = hands.put("job", COUNT, handler="note")
    world.send(*(TriggerJob(tenant=TENANT, job=job) for job in jobs))
    until(lambda: bool(hands.leases()), "the first lease", stopped)
    time.sleep(1.0)
    assert hands.receipts() == []
    other = world.scheduler("other").await_owner()
    until(lambda: len(executions_of(hands, jobs)) == COUNT, "all to be claimed", other)
    ids = executions_of(hands, jobs)
    ends = hands.await_ends(ids, other)
    assert deliveries(ends.values()) == {("SUCCEEDED", 1, 0)}
    stopped.go_on()  # and tells the worker what it was about to
    again = hands.trigger(jobs)
    hands.await_ends(again, other)
    time.sleep(1.0)
    assert {len(r) for r in hands.receipts_of([*ids, *again]).values()} == {1}
    assert hands.await_ends(ids) == ends
    assert other.terminate() == 0
    stopped.terminate()
    checks.check_log(world)
