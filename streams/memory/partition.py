"""One partition of the log in memory: records, markers, and which of them a reader may see."""

from bisect import bisect_left
from enum import Enum, auto

import msgspec

from ..ports import Produced


class Outcome(Enum):
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Fate:
    """What becomes of a producer's records in one partition. Shared by all records up to the next
    marker there: where a marker was lost, the next one decides for what stands before it, too."""

    __slots__ = ("first_offset", "outcome")

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.outcome = Outcome.OPEN


class Entry(msgspec.Struct, frozen=True):
    """A record as it stands in the log. One without fate was written outside transactions."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    fate: Fate | None
    marker: bool = False


class MemoryPartition:
    """Offsets only grow; compaction leaves gaps; markers take offsets of their own."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._entries: list[Entry] = []
        self._open: dict[int, Fate] = {}

    @property
    def stable_end(self) -> int:
        return min((fate.first_offset for fate in self._open.values()), default=self.end)

    def append(self, record: Produced, timestamp_ms: int, producer_id: int | None) -> int:
        fate = None
        if producer_id is not None:
            fate = self._open.setdefault(producer_id, Fate(self.end))
        self._entries.append(
            Entry(
                self.end,
                timestamp_ms,
                record.key,
                record.value,
                tuple(record.headers or ()),
                fate,
            )
        )
        self.end += 1
        return self.end - 1

    def end_transaction(self, producer_id: int, outcome: Outcome, timestamp_ms: int) -> None:
        fate = self._open.pop(producer_id, None)
        if fate is not None:
            fate.outcome = outcome
        marker = Entry(self.end, timestamp_ms, None, None, (), None, marker=True)
        self._entries.append(marker)
        self.end += 1

    def read(self, position: int, limit: int, *, committed: bool) -> tuple[list[Entry], int]:
        """At most `limit` records from `position`, and the position after them."""
        end = self.stable_end if committed else self.end
        found: list[Entry] = []
        for index in range(self._index(position), len(self._entries)):
            entry = self._entries[index]
            if entry.offset >= end or len(found) == limit:
                return found, min(entry.offset, end)
            if not entry.marker and (not committed or _is_committed(entry)):
                found.append(entry)
        return found, max(position, end)

    def trim(self, start: int) -> None:
        """Retention: what stands before `start` is gone."""
        self.start = max(self.start, min(start, self.end))
        del self._entries[: self._index(self.start)]

    def trim_older(self, than_ms: int) -> None:
        newer = (entry.offset for entry in self._entries if entry.timestamp_ms >= than_ms)
        self.trim(next(newer, self.end))

    def compact(self, *, drop_tombstones: bool) -> None:
        """Keep the newest committed record of each key, and what no reader may see yet."""
        end = self.stable_end
        newest = {
            entry.key: entry.offset
            for entry in self._entries
            if entry.offset < end and not entry.marker and _is_committed(entry)
        }

        def stays(entry: Entry) -> bool:
            if entry.offset >= end:
                return True
            if entry.marker:
                return not drop_tombstones
            if newest.get(entry.key) != entry.offset:
                return False
            return entry.value is not None or not drop_tombstones

        self._entries = [entry for entry in self._entries if stays(entry)]

    def _index(self, offset: int) -> int:
        return bisect_left(self._entries, offset, key=_offset)


def _offset(entry: Entry) -> int:
    return entry.offset


def _is_committed(entry: Entry) -> bool:
    return entry.fate is None or entry.fate.outcome is Outcome.COMMITTED
