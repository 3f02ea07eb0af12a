"""What a broker does to transactions when it dies, or loses a marker, and what is made of it.

Kafka 4.3 and 4.4 can lose a marker in a crash. The embedded 4.2.2 cannot be brought to it, so the
markers are cut off the ends of its log files while it is down: what it then finds at its start is
what a crash of those versions leaves behind.
"""

import os
import signal
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from horolog.broker import server
from horolog.broker.process import is_running
from processors import topology
from schemas.commands import TriggerJob
from tests.broker.scenarios import checks
from tests.broker.scenarios.world import World, ids_of, put, until

CONTROL_BIT = 0x20
# Base offset, length, leader epoch, magic byte, checksum, attributes.
BATCH_HEAD = struct.Struct(">qiibIh")
LENGTH_FROM = 12


class OwnBroker:
    """A broker that is stopped, cut and started again."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.bootstrap = self.start()

    def start(self) -> str:
        return server.start(self.data_dir, log=print).bootstrap

    def stop(self) -> None:
        server.stop(self.data_dir)

    def crash(self) -> None:
        pid = server.status(self.data_dir).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_running(self.data_dir), "the broker to be gone")

    def cut_marker(self, topic: str, partition: int) -> None:
        """Take the marker at the end of a partition away, as if it had never been written."""
        folder = self.data_dir / "kafka" / f"{topic}-{partition}"
        [segment] = folder.glob("*.log")
        data = segment.read_bytes()
        last = attributes = at = 0
        while at < len(data):
            last = at
            _, length, _, _, _, attributes = BATCH_HEAD.unpack_from(data, at)
            at += LENGTH_FROM + length
        assert attributes & CONTROL_BIT, f"{topic}-{partition} does not end with a marker"
        segment.write_bytes(data[:last])
        for known in (*folder.glob("*.snapshot"), *folder.glob("*index")):
            known.unlink()
        # Make it look at its files instead of believing that they are as it left them.
        for known in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            (self.data_dir / "kafka" / known).unlink(missing_ok=True)


@pytest.fixture
def own(own_broker: Path) -> OwnBroker:
    return OwnBroker(own_broker)


@pytest.fixture
def own_world(own: OwnBroker, namespace: str, tmp_path: Path) -> Iterator[World]:
    world = World(own.bootstrap, namespace, tmp_path / "data", partitions=1)
    yield world
    world.close()
    sys.stderr.write(world.newest_lines())


def hidden(world: World, *topics: str) -> set[str]:
    """Those of the topics whose committed end lies before their end."""
    keys = [(world.name(topic), 0) for topic in topics]
    offsets = world.log.offsets()
    stable, end = offsets.stable_end(keys), offsets.end(keys)
    return {topic for topic, key in zip(topics, keys, strict=True) if stable[key] < end[key]}


def take_epoch(world: World) -> None:
    """As the next owner would: it ends at once what the last one left open."""
    config = {"bootstrap.servers": world.bootstrap, "log_level": 0,
              "transactional.id": f"{world.namespace}-scheduler-0"}  # fmt: skip
    Producer(config).init_transactions(10)


TOUCHED = (topology.JOB_STATE, topology.EXECUTIONS)
"""What the transaction of a fire writes to, beside the target."""


@pytest.mark.parametrize("lost", [TOUCHED, TOUCHED[:1]], ids=["all", "of the mark"])
def test_an_acknowledged_commit_whose_marker_was_lost_is_kept(
    own: OwnBroker, own_world: World, lost: tuple[str, ...]
) -> None:
    world = own_world
    orders = world.topic()
    scheduler = world.scheduler(patch="stop_after_a_trigger").await_owner()
    world.accepted(put("job", orders, command_id="put"))
    world.send(TriggerJob(tenant="acme", job="job", command_id="trigger"))
    assert scheduler.await_end() == -signal.SIGKILL
    [event] = checks.fired(world)
    before = checks.state_records(world)

    own.stop()
    for topic in lost:
        own.cut_marker(world.name(topic), 0)
    own.cut_marker(orders, 0)
    own.start()
    world.look_again()
    assert hidden(world, *TOUCHED) == set(lost)
    if topology.EXECUTIONS in lost:
        assert checks.fired(world) == []
    assert world.records(orders) == []

    scheduler = world.scheduler().await_owner()
    [alarm] = [line for line in scheduler.log_lines() if line["event"] == "lost_marker"]
    assert alarm["committed"] is True
    world.look_again()
    until(lambda: hidden(world, *TOUCHED) == set(), "everything to be resolved", scheduler)
    assert checks.fired(world) == [event]
    [answer] = world.accepted(TriggerJob(tenant="acme", job="job", command_id="trigger"))
    assert (answer.repeated, answer.execution_id) == (True, event.execution_id)
    assert checks.state_records(world) == before
    assert event.execution_id in ids_of(r for r in world.records(orders) if r.value)
    assert scheduler.terminate() == 0
    checks.check_sequences(world)
    checks.check_ticks(world)
    checks.check_stores(world, scheduler)


def test_an_unfinished_transaction_whose_marker_was_lost_never_shows(
    own: OwnBroker, own_world: World
) -> None:
    world = own_world
    orders = world.topic()
    scheduler = world.scheduler(patch="stop_before_the_mark_of_a_trigger").await_owner()
    world.accepted(put("job", orders))
    before = checks.state_records(world)
    world.send(TriggerJob(tenant="acme", job="job", command_id="trigger"))
    assert scheduler.await_end() == -signal.SIGKILL
    take_epoch(world)
    until(lambda: hidden(world, *TOUCHED) == set(), "the broker to abort it")

    own.stop()
    for topic in TOUCHED:
        own.cut_marker(world.name(topic), 0)
    own.start()
    world.look_again()
    assert hidden(world, *TOUCHED) == set(TOUCHED)

    scheduler = world.scheduler().await_owner()
    [alarm] = [line for line in scheduler.log_lines() if line["event"] == "lost_marker"]
    assert alarm["committed"] is False
    world.look_again()
    # The command itself was never marked as read: now it takes effect, once.
    until(lambda: len(checks.fired(world)) == 1, "the trigger", scheduler)
    after = checks.state_records(world)
    assert {key for key in after if before.get(key) != after[key]} == {
        b"job-state:acme/job",
        b"executions:" + checks.fired(world)[0].execution_id.encode() + b"#2",
    }
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


def test_a_broker_that_dies_and_comes_back_is_gone_on_with(
    own: OwnBroker, own_world: World
) -> None:
    world = own_world
    orders = world.topic()
    scheduler = world.scheduler().await_owner()
    jobs = [f"every-{n}" for n in range(30)]
    for n in range(0, len(jobs), 3):
        world.accepted(*(put(job, orders, every="1s") for job in jobs[n : n + 3]))
    for _ in range(2):
        arrived = len(world.records(orders))
        until(lambda seen=arrived: len(world.records(orders)) >= seen + 40, "fires", scheduler)
        own.crash()
        own.start()
        world.look_again()
    started_s = time.monotonic()
    arrived = len(world.records(orders))
    until(lambda: len(world.records(orders)) >= arrived + 60, "fires again", scheduler)
    sys.stderr.write(f"fires again {time.monotonic() - started_s:.1f} s after the broker\n")
    world.accepted(*(put(f"new-{n}", orders) for n in range(10)))
    assert scheduler.terminate() == 0
    for job in jobs:
        checks.check_every_second(world, job)
    checks.check_log(world)
    checks.check_stores(world, scheduler)
