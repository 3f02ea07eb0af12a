"""Reading the log in memory, and asking it for offsets and topics."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ..errors import OutOfRange, Unavailable
from ..ports import RawRecord, Record, TopicPartition
from .broker import MemoryBroker
from .partition import Entry, MemoryPartition

TOPIC_KNOWN_S: Final = 30.0


class MemoryReader:
    """Meets `streams.ports.Reader`. Partitions take turns."""

    def __init__(self, broker: MemoryBroker, client_id: str, *, committed: bool) -> None:
        self._broker = broker
        self._client_id = client_id
        self._committed = committed
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._failed: set[TopicPartition] = set()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.unassign(self._positions.keys() & positions.keys())
        self._positions.update(positions)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for key in list(partitions):
            self._positions.pop(key, None)
            self._paused.discard(key)
            self._failed.discard(key)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        records = [_record(key, entry) for key, entry in self._read(records_max)]
        if not records:
            self._broker.wait(timeout_s)
        return records

    def read_raw(self, records_max: int, timeout_s: float) -> list[RawRecord]:
        del timeout_s
        return [(entry.offset, entry.key, entry.value) for _, entry in self._read(records_max)]

    def position(self, partition: TopicPartition) -> int:
        return self._positions[partition]

    def close(self) -> None:
        self._positions.clear()

    def _read(self, records_max: int) -> list[tuple[TopicPartition, Entry]]:
        with self._broker.lock, self._broker.faults.during("read", self._client_id):
            found: list[tuple[TopicPartition, Entry]] = []
            for key in list(self._positions):
                room = records_max - len(found)
                if room <= 0:
                    break
                if key in self._paused or key in self._failed:
                    continue
                if not self._is_inside(key):
                    if found:
                        break
                    self._failed.add(key)
                    at = f"{key[0]}-{key[1]} at {self._positions[key]}"
                    raise OutOfRange(f"reading {at}: outside the log", key)
                partition = self._broker.partition(*key)
                assert partition is not None
                entries, position = partition.read(
                    self._positions[key], room, committed=self._committed
                )
                # Behind the others, for the next read.
                del self._positions[key]
                self._positions[key] = position
                found += [(key, entry) for entry in entries]
            return found

    def _is_inside(self, key: TopicPartition) -> bool:
        partition = self._broker.partition(*key)
        if partition is None:
            raise Unavailable(f"reading {key[0]}-{key[1]}: there is no such partition")
        return partition.start <= self._positions[key] <= partition.end


class MemoryOffsets:
    """Meets `streams.ports.Offsets`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def start(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ask(partitions, lambda partition: partition.start)

    def end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ask(partitions, lambda partition: partition.end)

    def stable_end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ask(partitions, lambda partition: partition.stable_end)

    def _ask(
        self, partitions: Iterable[TopicPartition], answer: Callable[[MemoryPartition], int]
    ) -> dict[TopicPartition, int]:
        with self._broker.lock, self._broker.faults.during("offsets", ""):
            answers = {}
            for key in partitions:
                partition = self._broker.partition(*key)
                if partition is None:
                    raise Unavailable(f"asking for offsets: no partition {key[0]}-{key[1]}")
                answers[key] = answer(partition)
            return answers


class MemoryTopics:
    """Meets `streams.ports.TopicProbe`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._known: dict[str, tuple[float, int]] = {}

    def partitions(self, topic: str) -> int:
        known = self._known.get(topic)
        now_s = self._broker.monotonic_s()
        if known is not None and now_s - known[0] < TOPIC_KNOWN_S:
            return known[1]
        with self._broker.lock, self._broker.faults.during("topics", ""):
            count = self._broker.partition_count(topic)
        self._known[topic] = (now_s, count)
        return count

    def forget(self, topic: str) -> None:
        self._known.pop(topic, None)


def _record(key: TopicPartition, entry: Entry) -> Record:
    return Record(*key, entry.offset, entry.timestamp_ms, entry.key, entry.value, entry.headers)
