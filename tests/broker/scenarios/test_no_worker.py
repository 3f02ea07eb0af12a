"""Work that waits for a worker."""

import sys
import time

import pytest

from tests.broker.scenarios import checks
from tests.broker.scenarios.hands import Hands, deliveries
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import World, until

COUNT = 200


def wait_for_a_worker(world: World, away_s: float) -> None:
    """Trigger work that nobody can do for a while, then start somebody who can."""
    hands = Hands(world)
    scheduler = world.scheduler().await_owner()
    slots = hands.slots()
    ids = hands.trigger(hands.put("job", COUNT, handler="note"))
    until_s = time.monotonic() + away_s
    while time.monotonic() < until_s:
        time.sleep(min(5.0, away_s / 4))
        assert scheduler.alive
        assert slots.alive
    assert {event.state for event in checks.fired(world)} == {"QUEUED"}
    assert checks.moved(world) == []
    worker = hands.worker("w", 20)
    until(lambda: any("has 20 places" in event for event in worker.events()), "a worker", worker)
    began_s = time.monotonic()
    ends = hands.await_ends(ids, scheduler)
    sys.stderr.write(
        f"{COUNT} executions waited {away_s:.0f} s for a worker and ended "
        f"{time.monotonic() - began_s:.1f} s after it came\n"
    )
    assert deliveries(ends.values()) == {("SUCCEEDED", 1, 0)}
    assert {len(receipts) for receipts in hands.receipts_of(ids).values()} == {1}
    assert slots.events() == ["slots_started"]
    assert scheduler.terminate() == 0
    assert scheduler.events() == ["scheduler_started", "scheduler_stopping", "scheduler_stopped"]
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_without_a_worker_nothing_dies_and_all_runs_when_one_comes(world: World) -> None:
    wait_for_a_worker(world, 10.0)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_without_a_worker_for_ten_minutes_nothing_dies_and_all_runs_when_one_comes(
    world: World,
) -> None:
    wait_for_a_worker(world, 600.0)


@scenario()
def test_a_worker_that_goes_by_other_leases_gets_nothing_and_the_operator_is_told(
    world: World,
) -> None:
    hands = Hands(world)
    scheduler = world.scheduler().await_owner()
    slots = hands.slots()
    hands.worker("other", 50, HOROLOG_LEASE_MS="5000")

    def refused() -> list[dict[str, object]]:
        return [line for line in slots.log_lines() if line["event"] == "worker_refused"]

    until(lambda: bool(refused()), "the refusal", slots)
    ids = hands.trigger(hands.put("job", 10, handler="note"))
    time.sleep(3.0)  # some offers and wants
    assert {event.state for event in checks.fired(world)} == {"QUEUED"}
    hands.worker("right", 2)
    hands.await_ends(ids, scheduler)
    assert {receipt.worker for receipt in hands.receipts()} == {"right"}
    [told] = refused()
    assert str(told["worker"]).startswith("other-")
    assert "5000 ms" in str(told["reason"])
    assert "3000 ms" in str(told["reason"])
