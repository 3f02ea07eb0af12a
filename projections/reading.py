"""Brings records of the log into a fold: up to the committed end, or only the newest."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from streams.errors import OutOfRange, Unavailable
from streams.layout import topic_name
from streams.ports import Log, Reader, Record, TopicPartition

Fold = Callable[[str, bytes | None, bytes | None], None]
"""Topic without its namespace, key, value."""
Take = Callable[[Record], None]

READ_MAX: Final = 10_000
READ_S: Final = 0.25
SILENT_S: Final = 30.0
"""A reader that gets no further for so long gives up."""
TAIL_FACTOR: Final = 4


class LogReading:
    """Reads topics of one namespace, read_committed, from where it stopped the last time.

    Close it. Raises `Unavailable` when the log does not answer or gets no further.
    """

    def __init__(self, log: Log, namespace: str, client_id: str) -> None:
        self._log = log
        self._namespace = namespace
        self._offsets = log.offsets()
        self._client_id = client_id
        self._reader: Reader | None = None
        self._next: dict[TopicPartition, int] = {}

    def close(self) -> None:
        """Give up the connection; what was folded stays."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def catch_up(self, topics: Iterable[str], partitions: Iterable[int], fold: Fold) -> None:
        """Fold every record that is committed now and was not folded yet."""
        wanted = self._names(topics, partitions)
        ends = self._offsets.stable_end(wanted)
        new = [key for key in wanted if key not in self._next]
        if new:
            self._next |= self._offsets.start(new)
        skip = len(self._namespace) + 1

        def take(record: Record) -> None:
            fold(record.topic[skip:], record.key, record.value)

        self._read({key: (self._next[key], ends[key]) for key in wanted}, take)
        # A log that was cut short behind our back ends before where we are.
        self._next |= {key: max(ends[key], self._next[key]) for key in wanted}

    def tail(
        self,
        topic: str,
        partitions: Iterable[int],
        take: Take,
        *,
        records: int,
        enough: Callable[[int], bool],
    ) -> None:
        """Take the newest records of each partition, going back in it until `enough` of it or its
        start.

        Begins with about `records` a partition and goes back in growing steps; within a step
        records come in their order, steps from newer to older.
        """
        upto = self._offsets.stable_end(self._names((topic,), partitions))
        starts = self._offsets.start(upto)
        size = max(records, 1)
        while upto:
            since = {key: max(starts[key], end - size) for key, end in upto.items()}
            self._read({key: (since[key], end) for key, end in upto.items()}, take)
            upto = {
                key: begin
                for key, begin in since.items()
                if begin > starts[key] and not enough(key[1])
            }
            size *= TAIL_FACTOR

    def _names(self, topics: Iterable[str], partitions: Iterable[int]) -> list[TopicPartition]:
        numbers = list(partitions)
        return [(topic_name(self._namespace, topic), p) for topic in topics for p in numbers]

    def _read(self, ranges: dict[TopicPartition, tuple[int, int]], take: Take) -> None:
        """Take what lies in the half-open ranges. A range behind the end never gives an event, so
        empty ones are not even assigned."""
        open_ends = {key: end for key, (start, end) in ranges.items() if start < end}
        if not open_ends:
            return
        reader = self._reader
        if reader is None:
            reader = self._reader = self._log.reader(self._client_id, committed=True)
        reader.assign({key: ranges[key][0] for key in open_ends})
        moved_s = time.monotonic()
        try:
            while open_ends:
                records = reader.read(READ_MAX, READ_S)
                for record in records:
                    end = open_ends.get((record.topic, record.partition))
                    if end is not None and record.offset < end:
                        take(record)
                done = [key for key, end in open_ends.items() if reader.position(key) >= end]
                for key in done:
                    del open_ends[key]
                reader.unassign(done)
                if records or done:
                    moved_s = time.monotonic()
                elif time.monotonic() - moved_s > SILENT_S:
                    behind = ", ".join(f"{topic}-{p}" for topic, p in open_ends)
                    raise Unavailable(f"reading {behind}: nothing came for {SILENT_S:.0f} s")
        except OutOfRange as error:
            raise Unavailable(f"the log was cut short while it was read: {error}") from error
        finally:
            reader.unassign(list(open_ends))
