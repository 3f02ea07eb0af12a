"""What the simulated schedulers and workers see of the world around them: a log in memory."""

from random import Random
from typing import Any, Protocol

from processors import topology
from schemas import bindings
from schemas.codec import schema_name
from streams.layout import topic_name
from streams.memory import ManualClock, MemoryBroker, MemoryLog
from streams.memory.partition import MemoryPartition
from streams.ports import Record

NAMESPACE = "sim"
POOL = "default"
INBOX = topology.inbox_of(POOL)
INBOXES = 3


def name(topic: str) -> str:
    return topic_name(NAMESPACE, topic)


def decoded(value: bytes) -> Any:
    kind = schema_name(value)
    assert kind is not None
    return getattr(bindings, _BINDINGS[kind]).decode(value)


_BINDINGS = {
    codec.kind.__name__: key
    for key, codec in vars(bindings).items()
    if isinstance(codec, bindings.Codec)
}


class Around(Protocol):
    """The world, as those who live in it see it."""

    rng: Random
    clock: ManualClock
    broker: MemoryBroker
    partitions: int
    lease_ms: int
    faulty: bool

    @property
    def mono_ms(self) -> int: ...

    def partition(self, topic: str, partition: int) -> MemoryPartition: ...

    def produce(self, topic: str, partition: int, value: bytes, *, lossy: bool) -> None: ...

    def alarm(self, event: str, **values: Any) -> None: ...


class Topics:
    """Reads partitions of our topics to their ends. Asks the broker only when there is more."""

    def __init__(self, world: Around, keys: list[tuple[str, int]], *, from_end: bool) -> None:
        self._reader = MemoryLog(world.broker).reader("test", committed=True)
        self._logs = [world.partition(*key) for key in keys]
        self._ends = [log.end if from_end else 0 for log in self._logs]
        self._reader.assign({
            (name(topic), p): end for (topic, p), end in zip(keys, self._ends, strict=True)
        })  # fmt: skip

    def read(self) -> list[Record]:
        ends = [log.end for log in self._logs]
        if ends == self._ends:
            return []
        self._ends = ends
        return self._reader.read(10_000, 0)
