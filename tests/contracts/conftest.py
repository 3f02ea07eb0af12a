"""What the contract suites run against: the adapters for real, and their twins in memory."""

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streams.errors import StreamError, Unavailable
from streams.kafka import KafkaLog
from streams.memory import ManualClock, MemoryBroker, MemoryLog, MemoryStores
from streams.ports import Log, Stores
from streams.rocks import RocksStores

SETTLED_S = 20.0


class Cluster(Protocol):
    """A cluster under test. Names it gives are used by no other test."""

    kind: str
    log: Log

    def name(self, text: str) -> str: ...

    def topic(
        self,
        text: str,
        partitions: int = 1,
        *,
        compacted: bool = False,
        append_time: bool = True,
        batch_bytes_max: int | None = None,
    ) -> str:
        """A new topic; returns its name."""

    def create(self, name: str) -> None: ...

    def delete(self, topic: str) -> None: ...

    def trim(self, topic: str, partition: int, start: int) -> None:
        """Let the partition begin at `start`."""


class MemoryCluster:
    kind = "memory"

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock, lambda _: self.clock.advance(10))
        self.log: Log = MemoryLog(self.broker)

    def name(self, text: str) -> str:
        return text

    def topic(
        self,
        text: str,
        partitions: int = 1,
        *,
        compacted: bool = False,
        append_time: bool = True,
        batch_bytes_max: int | None = None,
    ) -> str:
        limit = {} if batch_bytes_max is None else {"batch_bytes_max": batch_bytes_max}
        self.broker.create_topic(
            text, partitions, compacted=compacted, append_time=append_time, **limit
        )
        return text

    def create(self, name: str) -> None:
        self.broker.create_topic(name)

    def delete(self, topic: str) -> None:
        self.broker.delete_topic(topic)

    def trim(self, topic: str, partition: int, start: int) -> None:
        self.broker.trim(topic, partition, start)


class KafkaCluster:
    kind = "kafka"

    def __init__(self, bootstrap: str, namespace: str) -> None:
        self.bootstrap = bootstrap
        self.namespace = namespace
        self.log: Log = KafkaLog(bootstrap)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def name(self, text: str) -> str:
        return f"{self.namespace}-{text}"

    def topic(
        self,
        text: str,
        partitions: int = 1,
        *,
        compacted: bool = False,
        append_time: bool = True,
        batch_bytes_max: int | None = None,
    ) -> str:
        config = {"message.timestamp.type": "LogAppendTime" if append_time else "CreateTime"}
        if compacted:
            config["cleanup.policy"] = "compact"
        if batch_bytes_max is not None:
            config["max.message.bytes"] = str(batch_bytes_max)
        name = self.name(text)
        self._create(name, partitions, config)
        return name

    def create(self, name: str) -> None:
        self._create(name, 1, {})

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(10)
        topics = self.log.topics()
        until(lambda: _is_gone(topics.forget, topics.partitions, topic), f"{topic} to be gone")

    def trim(self, topic: str, partition: int, start: int) -> None:
        at = TopicPartition(topic, partition, start)
        self._admin.delete_records([at])[at].result(10)

    def _create(self, name: str, partitions: int, config: dict[str, str]) -> None:
        self._admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(10)
        offsets = self.log.offsets()
        wanted = [(name, partition) for partition in range(partitions)]

        def is_there() -> bool:
            try:
                return len(offsets.end(wanted)) == partitions
            except Unavailable:
                return False

        until(is_there, f"topic {name} to have leaders")


def _is_gone(forget: Callable[[str], None], partitions: Callable[[str], int], topic: str) -> bool:
    forget(topic)
    return partitions(topic) == 0


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that a cluster does in its own time. The time-out is a failure, not a
    measurement."""
    give_up_s = time.monotonic() + SETTLED_S
    while not condition():
        assert time.monotonic() < give_up_s, f"waited {SETTLED_S} s for {what}"


@pytest.fixture(params=["memory", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if request.param == "memory":
        return MemoryCluster()
    return KafkaCluster(request.getfixturevalue("broker"), request.getfixturevalue("namespace"))


@pytest.fixture
def kafka(broker: str, namespace: str) -> KafkaCluster:
    return KafkaCluster(broker, namespace)


@pytest.fixture
def memory() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture(params=["memory", "rocks"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    if request.param == "memory":
        yield MemoryStores()
    else:
        yield RocksStores(tmp_path / uuid.uuid4().hex, cache_bytes=1_048_576)


def raised(action: Callable[[], object]) -> StreamError | None:
    """The error that the action ends with, if any."""
    try:
        action()
    except StreamError as error:
        return error
    return None
