"""An installation for measuring: embedded broker, topics and one scheduler, default settings."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from horolog.installation import GATEWAY, Installation
from horolog.settings import Settings, load

from .report import say

TARGET_PARTITIONS = 4


@contextmanager
def installation(partitions: int = 12, *, gateway: bool = False) -> Iterator[Installation]:
    """What `horolog up` runs, in a folder that is removed afterwards. Without a gateway, unless it
    is what is measured: it reads everything that happens."""
    folder = Path(tempfile.mkdtemp(prefix="horolog-bench-"))
    name = f"bench{int(time.time())}"
    settings = load({"data_dir": folder, "namespace": name, "partitions": partitions})
    try:
        with Installation(settings, say) as installed:
            installed.start()
            if not gateway:
                installed.end(GATEWAY)
            yield installed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settings_in(folder: Path, namespace: str, partitions: int) -> Settings:
    """Settings for parts that are started one by one."""
    return load({"data_dir": folder, "namespace": namespace, "partitions": partitions})


def create_topic(bootstrap: str, name: str, partitions: int = TARGET_PARTITIONS) -> None:
    """A user's topic to fire into."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def receiver(bootstrap: str, topic: str, partitions: int = TARGET_PARTITIONS) -> Consumer:
    """A read_committed reader from the topic's start."""
    consumer = reader(bootstrap)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    return consumer


def reader(bootstrap: str) -> Consumer:
    """A read_committed reader without an assignment."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 5,
            "enable.auto.commit": False,
        }
    )


def producer(bootstrap: str) -> Producer:
    """A producer for many records."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_097_151,
        }
    )
