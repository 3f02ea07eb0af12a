"""What receivers saw: one receipt per record, call or run, as a JSON line between two processes."""

import threading
from collections import Counter, deque
from collections.abc import Iterable
from typing import IO, Final, Literal

import msgspec

LATENESS_KEPT: Final = 500
"""The figure that is shown follows what happens now."""

Kind = Literal["topic", "http", "worker"]


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """One record, call or run as the receiver saw it. Times are UTC ms; `received_ms` is its own
    clock."""

    kind: Kind
    execution_id: str
    occurrence: str
    subject: str
    scheduled_ms: int
    received_ms: int
    delivery: int = 1
    fence: int = 0
    """Grows with every delivery of the job; 0: not noted."""

    @property
    def lateness_ms(self) -> int:
        """From the tick to the receiver's eyes."""
        return self.received_ms - self.scheduled_ms


class End(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver's last line: it saw everything that there was to see."""

    end: bool
    records: int


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds from tick to receipt."""

    p50: int
    p99: int
    max: int


class Receipts:
    """Collects receipts from the receivers' output; safe to ask from another thread."""

    def __init__(self) -> None:
        self.all: list[Receipt] = []
        self._lock = threading.Lock()
        self._by_job: Counter[str] = Counter()
        self._by_kind: Counter[str] = Counter()
        self._last: dict[str, Receipt] = {}
        self._lateness: deque[int] = deque(maxlen=LATENESS_KEPT)

    def follow(self, lines: IO[bytes]) -> End | None:
        """Take lines until their end; the receiver's last line, if it came to write it."""
        decoder = msgspec.json.Decoder(Receipt)
        ended = None
        for line in lines:
            if line.startswith(b'{"end"'):
                ended = msgspec.json.decode(line, type=End)
            else:
                self.add(decoder.decode(line))
        return ended

    def add(self, receipt: Receipt) -> None:
        """Take one receipt."""
        with self._lock:
            self.all.append(receipt)
            self._by_job[receipt.subject] += 1
            self._by_kind[receipt.kind] += 1
            self._last[receipt.subject] = receipt
            # The first delivery's: whoever waited for a lost lease says nothing about lateness.
            if receipt.delivery == 1:
                self._lateness.append(receipt.lateness_ms)

    def __len__(self) -> int:
        return len(self.all)

    def of(self, subject: str) -> tuple[int, Receipt | None]:
        """How many of this job there are, and the last one."""
        with self._lock:
            return self._by_job[subject], self._last.get(subject)

    def of_kind(self, kind: Kind) -> int:
        """How many of this kind there are."""
        with self._lock:
            return self._by_kind[kind]

    def lateness(self) -> Lateness | None:
        """Over the last receipts; None before the first."""
        with self._lock:
            found = list(self._lateness)
        return lateness_of(found)


def lateness_of(milliseconds: Iterable[int]) -> Lateness | None:
    """Percentiles by rank: the smallest value that so many percent do not exceed."""
    ordered = sorted(milliseconds)
    if not ordered:
        return None
    return Lateness(p50=_rank(ordered, 50), p99=_rank(ordered, 99), max=ordered[-1])


def _rank(ordered: list[int], percent: int) -> int:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
