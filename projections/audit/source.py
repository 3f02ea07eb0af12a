"""Reads what an audit needs from the log, in portions: committed records, and those aborted."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from schemas.bindings import ACCEPTED
from schemas.codec import Undecodable
from streams.errors import OutOfRange, Unavailable
from streams.layout import topic_name
from streams.ports import Log, Reader, Record, TopicPartition

from .causes import Acknowledged
from .entries import COMMANDS, JOB_STATE_TOPIC, OWN_TOPICS, REPLIES, Entry, command_of, entry_of

PORTION: Final = 20_000
"""Offsets of one topic that are held at a time."""
READ_S: Final = 0.25
SILENT_S: Final = 30.0
SETTLE_S: Final = 5.0
"""Markers of a transaction that was committed come to all its topics within this time."""


class Source:
    """The log of one namespace. Close it. Raises `Unavailable`."""

    def __init__(self, log: Log, namespace: str, read: Callable[[int], None]) -> None:
        self._namespace = namespace
        self._offsets = log.offsets()
        self._committed = log.reader("horolog-audit", committed=True)
        self._all = log.reader("horolog-audit-all", committed=False)
        self._read_so_far = read

    def close(self) -> None:
        """Give up the connections."""
        self._committed.close()
        self._all.close()

    def partition(self, number: int) -> "PartitionLog":
        """One partition as it stands now."""
        return PartitionLog(self, number)

    def acknowledged(self, partitions: int) -> list[Acknowledged]:
        """Every reply that says that a command took effect."""
        found: list[Acknowledged] = []
        for number in range(partitions):
            key = (topic_name(self._namespace, REPLIES), number)
            begin, end = self._offsets.start([key])[key], self._offsets.stable_end([key])[key]
            for record in self.records(key, begin, end):
                answer = _answer(record)
                if answer is not None:
                    found.append(answer)
        return found

    def key(self, topic: str, number: int) -> TopicPartition:
        """Full name and number."""
        return topic_name(self._namespace, topic), number

    def ends(self, number: int) -> tuple[dict[str, int], dict[str, int], bool]:
        """Start and end of each topic of a partition, and whether the end is settled.

        The topic of the marks comes first: what its last mark closes stands in the other topics,
        and is visible there as soon as its markers are.
        """
        marks = self.key(JOB_STATE_TOPIC, number)
        newest = self._offsets.stable_end([marks])[marks]
        others = [self.key(topic, number) for topic in (*OWN_TOPICS[1:], COMMANDS)]
        high = self._offsets.end(others)
        until_s = time.monotonic() + SETTLE_S
        while True:
            stable = self._offsets.stable_end(others)
            settled = all(stable[key] >= high[key] for key in others)
            if settled or time.monotonic() > until_s:
                break
            time.sleep(0.05)
        starts = self._offsets.start([marks, *others])
        skip = len(self._namespace) + 1
        ends = {marks: newest, **stable}
        return (
            {topic[skip:]: offset for (topic, _), offset in starts.items()},
            {topic[skip:]: offset for (topic, _), offset in ends.items()},
            settled,
        )

    def entries(self, topic: str, number: int, begin: int, end: int) -> Iterator[Entry]:
        """Records of an own topic, those of aborted transactions among them."""
        key = self.key(topic, number)
        for at in range(begin, end, PORTION):
            upto = min(at + PORTION, end)
            visible = {record.offset for record in self._portion(self._committed, key, at, upto)}
            for record in self._portion(self._all, key, at, upto):
                yield entry_of(record, topic, aborted=record.offset not in visible)

    def records(self, key: TopicPartition, begin: int, end: int) -> Iterator[Record]:
        """Committed records of any topic."""
        for at in range(begin, end, PORTION):
            yield from self._portion(self._committed, key, at, min(at + PORTION, end))

    def _portion(self, reader: Reader, key: TopicPartition, begin: int, end: int) -> list[Record]:
        """What the reader may see in [begin, end)."""
        found: list[Record] = []
        reader.assign({key: begin})
        moved_s = time.monotonic()
        try:
            while True:
                records = reader.read(PORTION, READ_S)
                found += [record for record in records if record.offset < end]
                if reader.position(key) >= end or (records and records[-1].offset >= end):
                    break
                if records:
                    moved_s = time.monotonic()
                elif time.monotonic() - moved_s > SILENT_S:
                    raise Unavailable(f"reading {key[0]}-{key[1]}: nothing came for {SILENT_S} s")
        except OutOfRange as error:
            raise Unavailable(f"the log was cut short while it was read: {error}") from error
        finally:
            reader.unassign([key])
        self._read_so_far(len(found))
        return found


class PartitionLog:
    """One partition's topics, as far as they had come when it was made."""

    def __init__(self, source: Source, number: int) -> None:
        self._source = source
        self._number = number
        self._starts, self._ends, self.settled = source.ends(number)
        self.cut = frozenset(topic for topic, offset in self._starts.items() if offset > 0)
        """Topics whose beginning is gone."""

    def streams(self) -> dict[str, Iterator[Entry]]:
        """The entries of each own topic."""
        return {topic: self._entries(topic) for topic in OWN_TOPICS}

    def commands(self) -> Iterator[Entry]:
        """The commands."""
        key = self._source.key(COMMANDS, self._number)
        begin, end = self._starts[COMMANDS], self._ends[COMMANDS]
        return (command_of(record) for record in self._source.records(key, begin, end))

    def _entries(self, topic: str) -> Iterator[Entry]:
        begin, end = self._starts[topic], self._ends[topic]
        return self._source.entries(topic, self._number, begin, end)


def _answer(record: Record) -> Acknowledged | None:
    value = record.value or b""
    if value[:5] != ACCEPTED.prefix:
        return None
    try:
        accepted = ACCEPTED.decode(value)
    except Undecodable:
        return None
    return Acknowledged(
        job=f"{accepted.tenant}/{accepted.job}", sequence=accepted.sequence,
        execution_id=accepted.execution_id,
        where=f"{REPLIES}-{record.partition}@{record.offset}",
    )  # fmt: skip
