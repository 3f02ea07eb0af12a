"""The embedded broker on real Java: each test starts, breaks or attaches to a broker of its own."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from horolog.broker import folder, server
from horolog.broker.errors import BrokerError
from horolog.broker.process import is_running
from streams import admin
from streams.topics import TopicSet, TopicSpec

KEPT = TopicSet(
    namespace="kept",
    partitions=1,
    specs=(TopicSpec(suffix="records", partitions=1, cleanup="delete"),),
)


def start(data_dir: Path) -> server.BrokerHandle:
    return server.start(data_dir, log=print_line)


def print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def commit(bootstrap: str, value: bytes) -> None:
    """Write one record in a transaction; returning means that Kafka acknowledged the commit."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "kept-writer"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("kept.records", value)
    producer.commit_transaction(10)


def committed(bootstrap: str, count: int) -> list[bytes]:
    """The first records of the topic that a read_committed reader sees."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "kept-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        reader.assign([TopicPartition("kept.records", 0, 0)])
        return [message.value() or b"" for message in reader.consume(count, timeout=10)]
    finally:
        reader.close()


def test_a_started_broker_works_is_found_again_and_stops_cleanly(own_broker: Path) -> None:
    first = start(own_broker)
    assert first.started
    admin.apply({"bootstrap.servers": first.bootstrap}, KEPT)
    commit(first.bootstrap, b"one")

    again = start(own_broker)
    assert (again.pid, again.bootstrap, again.started) == (first.pid, first.bootstrap, False)
    status = server.status(own_broker)
    assert (status.running, status.ready, status.pid) == (True, True, first.pid)
    assert (status.bootstrap, status.cluster_id) == (first.bootstrap, first.cluster_id)

    assert server.stop(own_broker) is True
    assert server.stop(own_broker) is False
    status = server.status(own_broker)
    assert (status.running, status.ready, status.pid) == (False, False, None)
    assert status.cluster_id == first.cluster_id


def test_a_killed_broker_comes_back_with_its_records_and_its_address(own_broker: Path) -> None:
    first = start(own_broker)
    admin.apply({"bootstrap.servers": first.bootstrap}, KEPT)
    commit(first.bootstrap, b"before")
    os.kill(first.pid, signal.SIGKILL)
    while is_running(own_broker):
        time.sleep(0.01)

    second = start(own_broker)
    assert second.started
    assert second.pid != first.pid
    assert (second.bootstrap, second.cluster_id) == (first.bootstrap, first.cluster_id)
    commit(second.bootstrap, b"after")
    assert committed(second.bootstrap, 2) == [b"before", b"after"]


def test_two_starts_at_once_give_one_broker(own_broker: Path) -> None:
    script = (
        "import sys, pathlib; from horolog.broker import server\n"
        "h = server.start(pathlib.Path(sys.argv[1]), log=str, outlive_caller=True)\n"
        "print(h.pid, h.bootstrap)\n"
    )
    command = [sys.executable, "-c", script, str(own_broker)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    told = [starter.communicate(timeout=90)[0] for starter in starters]
    assert told[0] == told[1] != b""
    # Both starters have ended; a broker that was told to outlive them is still there.
    assert server.status(own_broker).ready


def test_a_broker_ends_with_the_process_that_started_it(own_broker: Path) -> None:
    script = (
        "import sys, pathlib, time; from horolog.broker import server\n"
        "server.start(pathlib.Path(sys.argv[1]), log=str)\n"
        "print('ready', flush=True); time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script, str(own_broker)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"ready\n"
        assert is_running(own_broker)
        starter.kill()
    deadline = time.monotonic() + 30
    while is_running(own_broker):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_foreign_broker_is_never_attached_to(own_broker: Path, tmp_path: Path) -> None:
    foreign_dir = tmp_path / "foreign"
    foreign = start(foreign_dir)
    try:
        # Our folder remembers the port on which somebody else's Kafka now answers.
        folder.prepare_folder(own_broker)
        shutil.copy(foreign_dir / "ports.json", own_broker / "ports.json")
        ours = start(own_broker)
        assert ours.started
        assert ours.bootstrap != foreign.bootstrap
        assert ours.cluster_id != foreign.cluster_id

        # Even while ours runs: what answers at the remembered address must be ours.
        shutil.copy(foreign_dir / "ports.json", own_broker / "ports.json")
        with pytest.raises(BrokerError, match="belongs to somebody else"):
            start(own_broker)
        assert not server.status(own_broker).ready
        assert server.status(foreign_dir).ready
    finally:
        server.stop(foreign_dir)


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(own_broker: Path) -> None:
    start(own_broker)
    server.stop(own_broker)
    meta = own_broker / "kafka" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    with pytest.raises(BrokerError, match=r"(?s)ended while starting.*node"):
        start(own_broker)
    assert not is_running(own_broker)
