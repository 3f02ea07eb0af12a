"""Whatever happens to schedulers and workers, the audit has nothing to say against their log; nor
once compaction and retention have taken parts of it. `HOROLOG_LONG=1` plays many more."""

import os
from collections.abc import Iterator

import pytest

from processors import topology
from projections.audit.audit import audit
from projections.audit.finding import Report, Violation
from projections.audit.receipts import Receipt
from streams.memory import MemoryLog
from tests.properties.leases_log import NAMESPACE, name
from tests.properties.leases_world import World

SEEDS = 1_000 if os.environ.get("HOROLOG_LONG") == "1" else 24
ROUNDS = 300


def played(seed: int) -> World:
    world = World(seed, real_slots=seed % 6 == 0)
    world.play(ROUNDS)
    world.heal()
    return world


def receipts_of(world: World) -> list[Receipt]:
    """Every run that a worker began, on a clock that is late where clocks jump; and every record on
    the target topic."""
    late_ms = 10_000 if world.jumps else 0
    return [*_written(world), *_begun(world, late_ms)]


def _written(world: World) -> Iterator[Receipt]:
    reader = MemoryLog(world.broker).reader("orders", committed=True)
    reader.assign({("orders", 0): 0, ("orders", 1): 0})
    while records := reader.read(1_000, 0):
        for record in records:
            headers = {name: value.decode() for name, value in record.headers}
            yield Receipt(
                execution_id=headers["ce_id"], received_ms=record.timestamp_ms,
                fence=int(headers["X-Horolog-Fence"]), where=f"orders:{record.offset}",
            )  # fmt: skip


def _begun(world: World, late_ms: int) -> list[Receipt]:
    return [
        Receipt(
            execution_id=run.item.execution_id, delivery=run.item.delivery, fence=run.item.fence,
            received_ms=run.begun_at + late_ms, where=f"receipts:{n}",
        )
        for n, run in enumerate(world.runs, 1)
    ]  # fmt: skip


def found(report: Report) -> list[Violation]:
    return [one for result in report.results for one in result.shown]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_log_of_the_real_scheduler_passes(seed: int) -> None:
    world = played(seed)
    report = audit(MemoryLog(world.broker), NAMESPACE, receipts=receipts_of(world))
    assert found(report) == []
    assert report.transactions > 50
    assert report.unjudged == {}


@pytest.mark.parametrize("seed", range(SEEDS // 4))
def test_what_compaction_and_retention_took_is_not_held_against_the_log(seed: int) -> None:
    world = played(seed)
    receipts = receipts_of(world)
    for topic in (topology.JOB_STATE, topology.SCHEDULES):
        world.broker.compact(name(topic), drop_tombstones=seed % 2 == 0)
    for topic in (topology.EXECUTIONS, topology.COMMANDS, topology.DEAD_LETTERS):
        for partition in range(world.partitions):
            end = world.partition(topic, partition).end
            world.broker.trim(name(topic), partition, end // 2)
    world.settle(world.lease_ms)
    report = audit(MemoryLog(world.broker), NAMESPACE, receipts=receipts)
    assert found(report) == []
    assert report.unjudged
