"""The cluster in memory: topics, transaction coordinator, groups. Shared by all clients."""

import threading
from collections.abc import Callable, Iterable

import msgspec

from ..errors import Fenced
from ..ports import Clock, Produced, TopicPartition
from .faults import Fault, Faults, Operation
from .group import MemoryGroup
from .partition import MemoryPartition, Outcome

BATCH_BYTES_MAX = 1_048_588
CLIENT_BYTES_MAX = 1_000_000
_OVERHEAD_BYTES = 70


class MemoryTopic(msgspec.Struct):
    partitions: list[MemoryPartition]
    compacted: bool
    append_time: bool
    batch_bytes_max: int


class Refused(Exception):
    """A record was not taken. Becomes a `Refusal` if somebody follows the record."""

    def __init__(self, reason: str, *, whole_topic: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.whole_topic = whole_topic


class _Coordinated:
    """What the coordinator knows about one transactional id."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.partitions: set[TopicPartition] = set()
        self.decided: Outcome | None = None
        """Decided, but no marker is written yet."""
        self.losing: frozenset[TopicPartition] | None = None
        self.delaying: bool | None = None
        self.in_flight: tuple[int, Outcome] | None = None


class MemoryBroker:
    """`idle` is called with the seconds that a call would have waited."""

    def __init__(self, clock: Clock, idle: Callable[[float], None] | None = None) -> None:
        self._clock = clock
        self._idle = idle
        self._topics: dict[str, MemoryTopic] = {}
        self._ids: dict[str, _Coordinated] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self.lock = threading.RLock()
        self.faults = Faults()

    # --- for those who set it up ---------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        compacted: bool = False,
        append_time: bool = True,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        with self.lock:
            if name in self._topics:
                raise ValueError(f"topic {name} exists")
            made = [MemoryPartition() for _ in range(partitions)]
            self._topics[name] = MemoryTopic(made, compacted, append_time, batch_bytes_max)

    def delete_topic(self, name: str) -> None:
        with self.lock:
            del self._topics[name]

    def trim(self, topic: str, partition: int, start: int) -> None:
        """Retention: the partition begins at offset `start` now."""
        with self.lock:
            self._topics[topic].partitions[partition].trim(start)

    def retain(self, topic: str, ms: int) -> None:
        """Retention: what is older than this is gone."""
        with self.lock:
            for partition in self._topics[topic].partitions:
                partition.trim_older(self._clock.wall_ms() - ms)

    def compact(self, topic: str, *, drop_tombstones: bool = False) -> None:
        """Compaction of the whole topic. Tombstones and markers go once `delete.retention.ms` has
        passed: `drop_tombstones`."""
        with self.lock:
            for partition in self._topics[topic].partitions:
                partition.compact(drop_tombstones=drop_tombstones)

    # --- faults --------------------------------------------------------------------------------

    def fail_next(
        self,
        operation: Operation,
        error: Exception,
        *,
        client: str | None = None,
        done: bool = False,
    ) -> None:
        """The next such call (of this client) raises the error, after having been `done` or not."""
        self.faults.order(Fault(operation, client, error, done))

    def lose_marker(
        self, transactional_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """The next transaction of this id ends, but its marker is never written (to these
        partitions). As after a crash of a broker of Kafka 4.3."""
        with self.lock:
            coordinated = self._id(transactional_id)
            coordinated.losing = frozenset(self._all() if partitions is None else partitions)

    def delay_end_txn(self, transactional_id: str, *, arrived: bool) -> None:
        """The next end of a transaction of this id is not answered. If it `arrived` it is decided
        and the next owner finds it so; else it is under way, and the next owner's init overtakes
        it, unless `deliver_end_txn` comes first."""
        with self.lock:
            self._id(transactional_id).delaying = arrived

    def deliver_end_txn(self, transactional_id: str) -> None:
        with self.lock:
            coordinated = self._id(transactional_id)
            if coordinated.in_flight is not None:
                epoch, outcome = coordinated.in_flight
                coordinated.in_flight = None
                if epoch == coordinated.epoch:
                    coordinated.decided = outcome
            self._finish(coordinated)

    def time_out(self, transactional_id: str) -> None:
        """`transaction.timeout.ms` has passed: the transaction is aborted, its owner fenced."""
        with self.lock:
            self.take_epoch(transactional_id)

    # --- for the clients -----------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    def wait(self, seconds: float) -> None:
        if self._idle is not None and seconds > 0:
            self._idle(seconds)

    def partition(self, topic: str, partition: int) -> MemoryPartition | None:
        found = self._topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def partition_count(self, topic: str) -> int:
        found = self._topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def group(self, name: str, topic: str) -> MemoryGroup:
        if name not in self._groups:
            self._groups[name] = MemoryGroup(name, lambda: self.partition_count(topic))
        return self._groups[name]

    def take_epoch(self, transactional_id: str) -> int:
        """Take the next epoch; a transaction that is open is aborted, a decided one finished."""
        coordinated = self._id(transactional_id)
        coordinated.epoch += 1
        if coordinated.decided is None:
            coordinated.decided = Outcome.ABORTED
        self._finish(coordinated)
        return coordinated.epoch

    def append(
        self, record: Produced, transactional_id: str | None = None, epoch: int = -1
    ) -> tuple[int, int]:
        """Offset and time of the record. Raises `Refused`, `Fenced`."""
        producer_id = None
        coordinated = None
        if transactional_id is not None:
            coordinated = self._owned(transactional_id, epoch)
            producer_id = coordinated.producer_id
        topic = self._topics.get(record.topic)
        if topic is None:
            raise Refused("does not exist", whole_topic=True)
        if not 0 <= record.partition < len(topic.partitions):
            count = len(topic.partitions)
            raise Refused(f"has {count} partitions, not {record.partition + 1}", whole_topic=True)
        if coordinated is not None:
            coordinated.partitions.add((record.topic, record.partition))
        if _bytes(record) > min(topic.batch_bytes_max, CLIENT_BYTES_MAX):
            raise Refused("too large", whole_topic=False)
        if topic.compacted and record.key is None:
            raise Refused("a compacted topic needs keys", whole_topic=False)
        # Time of creation is the client's; here all clients share the broker's clock.
        now_ms = self._clock.wall_ms()
        return topic.partitions[record.partition].append(record, now_ms, producer_id), now_ms

    def end_transaction(self, transactional_id: str, epoch: int, outcome: Outcome) -> bool:
        """Whether the client hears about it. Raises `Fenced`."""
        coordinated = self._owned(transactional_id, epoch)
        arrived, coordinated.delaying = coordinated.delaying, None
        if arrived is False:
            coordinated.in_flight = (epoch, outcome)
            return False
        coordinated.decided = outcome
        if arrived is True:
            return False
        self._finish(coordinated)
        return True

    def _finish(self, coordinated: _Coordinated) -> None:
        if coordinated.decided is None:
            return
        losing = coordinated.losing or frozenset()
        if coordinated.partitions:
            coordinated.losing = None
        for key in sorted(coordinated.partitions - losing):
            partition = self.partition(*key)
            if partition is not None:
                partition.end_transaction(
                    coordinated.producer_id, coordinated.decided, self._clock.wall_ms()
                )
        coordinated.partitions = set()
        coordinated.decided = None

    def _owned(self, transactional_id: str, epoch: int) -> _Coordinated:
        coordinated = self._id(transactional_id)
        if epoch != coordinated.epoch:
            raise Fenced(f"{transactional_id}: epoch {epoch} of {coordinated.epoch}")
        return coordinated

    def _id(self, transactional_id: str) -> _Coordinated:
        return self._ids.setdefault(transactional_id, _Coordinated(len(self._ids)))

    def _all(self) -> Iterable[TopicPartition]:
        for name, topic in self._topics.items():
            for number in range(len(topic.partitions)):
                yield name, number


def _bytes(record: Produced) -> int:
    size = len(record.key or b"") + len(record.value or b"") + _OVERHEAD_BYTES
    return size + sum(len(name) + len(value) + 2 for name, value in record.headers or ())
