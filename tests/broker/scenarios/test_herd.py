"""Ten thousand jobs are due at one second when their scheduler dies in the middle of them."""

import sys
import time

import pytest

from schemas.units import format_instant
from tests.broker.scenarios import checks
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import World, ids_of, put, until

JOBS = 10_000


@pytest.mark.parametrize("same_member", [True, False], ids=["comes back", "another takes over"])
@scenario(partitions=2)
def test_a_take_over_in_the_middle_of_a_herd_loses_and_doubles_nothing(
    world: World, same_member: bool
) -> None:
    scheduler = world.scheduler("a", patch="stop_after_some_fires").await_owner()
    orders = world.topic(partitions=2)
    start_ms = int(time.time() * 1000) // 1000 * 1000 + 5_000
    due = format_instant(start_ms)
    world.send(*(put(f"job-{n}", orders, tenant=f"t{n % 3}", at=due) for n in range(JOBS)))
    other = world.scheduler("b") if not same_member else None
    arrived = world.tail(orders)
    scheduler.await_end()
    first = len(arrived.refresh())
    assert 0 < first < JOBS
    owner = other or world.scheduler("a")
    until(lambda: len(arrived.refresh()) >= JOBS, "the rest", owner)
    last_ms = max(record.timestamp_ms for record in arrived.records)
    sys.stderr.write(f"{first} fires before the kill; all {last_ms - start_ms} ms after due\n")
    time.sleep(0.5)
    assert len(set(ids_of(arrived.refresh()))) == len(arrived.records) == JOBS
    assert len(checks.fired(world)) == JOBS
    assert min(record.timestamp_ms for record in arrived.records) >= start_ms
    assert owner.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, owner)
