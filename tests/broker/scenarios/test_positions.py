"""Where a scheduler goes on reading after a long absence: at its mark, whatever else was lost."""

import shutil

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import OffsetSpec

from processors import topology
from schemas.bindings import INPUT_LOST, MARK
from schemas.commands import AnyCommand, DeleteJob, PauseJob, TriggerJob
from schemas.events import InputLost
from streams.layout import STORE_MARK
from streams.restore import ABSENT_MS_MAX
from streams.rocks import RocksStores
from tests.broker.scenarios import checks
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import World, mark_of, put, until

JOBS = ("reports", "invoices", "cleaning")


def register(world: World, orders: str) -> None:
    """Three jobs, one of them triggered, one paused, one deleted: none of it may happen again."""
    world.accepted(*(put(job, orders) for job in JOBS))
    world.accepted(
        TriggerJob(tenant="acme", job="reports"),
        PauseJob(tenant="acme", job="invoices"),
        DeleteJob(tenant="acme", job="cleaning"),
    )


def trigger(job: str) -> AnyCommand:
    return TriggerJob(tenant="acme", job=job)


def position(world: World) -> int:
    positions = mark_of(world.records(topology.JOB_STATE)[-1]).positions
    return next(p.offset for p in positions if p.topic == topology.COMMANDS)


def delete_group(world: World) -> None:
    """As the broker does by itself with a group that was empty for a week."""
    group = world.name("scheduler")

    def deleted() -> bool:
        futures = world.admin.delete_consumer_groups([group])
        return futures[group].exception() is None

    until(deleted, f"group {group} to be empty and deleted")


def end_of_commands(world: World) -> int:
    at = At(world.name(topology.COMMANDS), 0)
    future = world.admin.list_offsets({at: OffsetSpec.latest()})[at]
    return int(future.result().offset)


@pytest.mark.parametrize("kept", [True, False], ids=["store kept", "store lost"])
@scenario()
def test_after_two_weeks_off_no_command_is_applied_twice_and_none_is_lost(
    world: World, kept: bool
) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    register(world, orders)
    assert scheduler.terminate() == 0
    changed = checks.changes(world)
    delete_group(world)
    if not kept:
        shutil.rmtree(scheduler.state_dir)
    meanwhile = [trigger("reports"), trigger("reports"), put("new", orders)]
    world.send(*meanwhile)

    scheduler = world.scheduler().await_owner()
    until(lambda: "new" in checks.states(world), "what was sent meanwhile", scheduler)
    assert checks.changes(world)[:-1] == changed
    assert [event.job for event in checks.fired(world)] == ["reports"] * 3
    states = checks.states(world)
    assert states["invoices"].status == "PAUSED"
    assert states["cleaning"].status == "DELETED"
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_commands_that_were_read_may_be_deleted_by_retention(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    register(world, orders)
    assert scheduler.terminate() == 0
    read_to = position(world)
    assert read_to == end_of_commands(world)
    trim_commands(world, read_to)
    world.send(trigger("reports"))

    scheduler = world.scheduler().await_owner()
    until(lambda: len(checks.fired(world)) == 2, "the new command", scheduler)
    assert lost_inputs(world) == []
    assert "input_lost" not in scheduler.events()


@scenario()
def test_commands_that_retention_took_unread_are_told_and_the_rest_is_applied(
    world: World,
) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    register(world, orders)
    assert scheduler.terminate() == 0
    first = position(world)
    world.send(*(put(f"gone-{n}", orders) for n in range(3)))
    trim_commands(world, first + 2)
    world.send(trigger("reports"))

    scheduler = world.scheduler().await_owner()
    until(lambda: len(checks.fired(world)) == 2, "the new command", scheduler)
    [lost] = lost_inputs(world)
    assert (lost.topic, lost.partition, lost.first, lost.last) == ("commands", 0, first, first + 1)
    assert "input_lost" in scheduler.events()
    assert {"gone-2"} == {job for job in checks.states(world) if job.startswith("gone")}
    assert scheduler.terminate() == 0
    assert len(lost_inputs(world)) == 1
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_a_store_that_was_away_for_too_long_is_rebuilt_from_the_log(world: World) -> None:
    """Tombstones that it has not seen may be gone from the log."""
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    register(world, orders)
    assert scheduler.terminate() == 0
    store = RocksStores(scheduler.state_dir).open(0)
    mark = MARK.decode(store.get(STORE_MARK) or b"")
    old = msgspec.structs.replace(mark, wall_ms=mark.wall_ms - ABSENT_MS_MAX - 60_000)
    store.apply({STORE_MARK: MARK.encode(old), b"s/acme/ghost": b"of a job that was deleted"})
    store.close()

    scheduler = world.scheduler().await_owner()
    assert "store_wiped" in scheduler.events()
    world.accepted(trigger("reports"))
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_a_damaged_store_is_rebuilt_from_the_log(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    register(world, orders)
    assert scheduler.terminate() == 0
    for table in (scheduler.state_dir / "0").glob("*.sst"):
        table.write_bytes(b"garbage" * 100)
    (scheduler.state_dir / "0" / "CURRENT").write_text("nothing")

    scheduler = world.scheduler().await_owner()
    assert "store_wiped" in scheduler.events()
    world.accepted(trigger("reports"))
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_commands_that_were_created_again_are_refused_with_the_reason(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    register(world, orders)
    assert scheduler.terminate() == 0
    commands = world.name(topology.COMMANDS)
    world.admin.delete_topics([commands])[commands].result(10)
    world.apply_topics()

    scheduler = world.scheduler()
    assert scheduler.await_end() not in (0, None)
    assert "the topic was created again" in scheduler.log_file.read_text()
    assert checks.states(world)["reports"].status == "ACTIVE"


@scenario()
def test_state_without_a_mark_is_refused_with_the_reason(world: World) -> None:
    write_state(world, b"acme/theirs", b"whatever it is")
    scheduler = world.scheduler()
    assert scheduler.await_end() not in (0, None)
    assert "has state but no mark" in scheduler.log_file.read_text()


@pytest.mark.parametrize("kept", [True, False], ids=["store kept", "store lost"])
@scenario()
def test_a_state_record_that_cannot_be_read_is_refused_by_name(world: World, kept: bool) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    register(world, orders)
    assert scheduler.terminate() == 0
    write_state(world, b"acme/theirs", b"\x00\x00\x00\x00\x7fof a later version")
    if not kept:
        shutil.rmtree(scheduler.state_dir)
    scheduler = world.scheduler()
    assert scheduler.await_end() not in (0, None)
    told = scheduler.log_file.read_text()
    assert "acme/theirs" in told
    assert "schema id 127" in told
    assert "Traceback" not in told


def write_state(world: World, key: bytes, value: bytes) -> None:
    """As somebody would who does not belong there."""
    producer = Producer({"bootstrap.servers": world.bootstrap})
    producer.produce(world.name(topology.JOB_STATE), value, key, 0)
    assert producer.flush(10) == 0


def trim_commands(world: World, start: int) -> None:
    at = At(world.name(topology.COMMANDS), 0, start)
    world.admin.delete_records([at])[at].result(10)


def lost_inputs(world: World) -> list[InputLost]:
    return [
        INPUT_LOST.decode(record.value)
        for record in world.records(topology.EXECUTIONS)
        if (record.value or b"")[:5] == INPUT_LOST.prefix
    ]
