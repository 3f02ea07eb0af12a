"""What the machinery needs from the world: small protocols with one contract suite each.

`streams.kafka` and `streams.rocks` meet them for real, `streams.memory` in memory: transactions,
epochs, read_committed and append time included. The contract suites (`tests/contracts`) hold the
twins to the same behaviour.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

Headers = Sequence[tuple[str, bytes]]
TopicPartition = tuple[str, int]
RawRecord = tuple[int, bytes | None, bytes | None]
"""Offset, key, value: a record for a restore, which reads one partition and copies bytes."""

NO_TIMESTAMP = -1


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record as read. `timestamp_ms` is the broker's append time where the topic says so."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Produced(msgspec.Struct, frozen=True, gc=False):
    """One record to be written. `tag` says, in a refusal, which record it was."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    tag: str = ""


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """Where the last record that a transaction wrote to a topic partition went."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class TransactionalProducer(Protocol):
    """A producer that holds one transactional id. Not thread-safe: one caller at a time."""

    def init(self, timeout_s: float) -> None:
        """Take the epoch and end the predecessor's open transaction. `OK` proves nothing about
        ownership, the first commit does. Raises `Unavailable`, `Fenced`, `Doubt`."""

    def write(
        self,
        records: Iterable[Produced],
        *,
        report: frozenset[TopicPartition],
        careful: frozenset[str],
    ) -> None:
        """Begin a transaction and hand over its records. The last record in each partition of
        `report` is reported by `commit`; every record to a topic in `careful` is followed
        singly, so that a refusal names it. Raises `Aborted`, `Fenced`, `Doubt`."""

    def commit(self, timeout_s: float) -> Mapping[TopicPartition, Delivered]:
        """Commit what was written. Raises `Aborted` (nothing is visible, the producer may be used
        again), `Fenced`, `Doubt` (it may be visible; the producer must be closed)."""

    def abort(self, timeout_s: float) -> None:
        """Abort what was written, for resolving a lost marker. Raises `Fenced`, `Doubt`."""

    def close(self) -> None:
        """Give up the client. The epoch stays taken."""


class Outbox(Protocol):
    """An idempotent producer without transactions, for what is sent after a commit."""

    dropped: int
    """Records that will never arrive: too large, too late, or the queue stayed full."""

    def send(self, records: Iterable[Produced]) -> None:
        """Queue the records. Bounded: blocks while the queue is full, at most its time limit,
        then drops them and counts it; everything in an outbox is repeatable."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything queued is acknowledged; False when time ran out."""

    def close(self) -> None: ...


class Reader(Protocol):
    """A consumer with a manual assignment. One thread uses it."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, beside those already assigned; a partition
        that is assigned already is started again from the given offset."""

    def unassign(self, partitions: Iterable[TopicPartition]) -> None: ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        """Records as soon as there are any, else an empty list after the time-out. Raises
        `OutOfRange` for a position outside the log, `Unavailable`."""

    def read_raw(self, records_max: int, timeout_s: float) -> list[RawRecord]:
        """As `read`, but bytes only, for restoring: exactly one partition is to be assigned. At
        its end it returns an empty list without waiting for the time-out."""

    def position(self, partition: TopicPartition) -> int:
        """The end that the reader has come to: the offset after everything it may read, control
        records and aborted ones included; where it was assigned from, before that."""

    def close(self) -> None: ...


class Offsets(Protocol):
    """Answers where partitions begin and end."""

    def start(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """First offset of each. Raises `Unavailable`."""

    def end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset after the last record, transactions under way included."""

    def stable_end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where a read_committed reader ends: before the first open transaction."""


class TopicProbe(Protocol):
    """Knows user topics."""

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 when it does not exist. Answers from memory when
        it was asked lately. Raises `Unavailable`."""

    def forget(self, topic: str) -> None:
        """Ask the log again next time."""


class Ownership(Protocol):
    """Membership in the group whose assignment says who owns which partition."""

    def poll(self, timeout_s: float) -> None:
        """Keep membership alive and run the callbacks handed over at the start."""

    def owned(self) -> frozenset[int]:
        """Partitions that the last poll left us with."""

    def members_beside_us(self) -> bool:
        """Whether somebody else could take our partitions."""

    def commit_positions(self, positions: Mapping[int, int]) -> None:
        """Tell lag tools how far we read. Nothing depends on it; errors are swallowed."""

    def leave(self) -> None:
        """Give everything up so that others get it at once."""


class Store(Protocol):
    """State of one partition: ordered bytes. Written in whole batches only."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, lower: bytes, upper: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Pairs with lower <= key < upper in order, at most `limit`."""

    def apply(self, writes: Mapping[bytes, bytes | None]) -> None:
        """Write all pairs at once; None deletes. Raises `Corrupt` when the store is damaged (so do
        the reads), `Refuse` when it cannot be written: the disk is full."""

    def close(self) -> None: ...


class Stores(Protocol):
    """Where the stores of partitions are kept."""

    def open(self, partition: int) -> Store:
        """The partition's store, empty if there was none. Raises `Corrupt`, and `Unavailable` while
        another process, or this one, has it open."""

    def wipe(self, partition: int) -> None:
        """Remove the partition's store, which must be closed."""


class Clock(Protocol):
    """Time. `wall_ms` is what ticks are compared with; the others measure distances."""

    def wall_ms(self) -> int: ...

    def boottime_ms(self) -> int:
        """Milliseconds since the machine started, suspension included."""

    def monotonic_s(self) -> float: ...


class Log(Protocol):
    """Makes the clients of one cluster under one namespace."""

    def transactional(self, transactional_id: str) -> TransactionalProducer: ...

    def outbox(self, client_id: str) -> Outbox: ...

    def reader(self, client_id: str, *, committed: bool) -> Reader: ...

    def offsets(self) -> Offsets: ...

    def topics(self) -> TopicProbe: ...

    def ownership(
        self,
        group: str,
        topic: str,
        member: str,
        *,
        on_assigned: Callable[[list[int]], None],
        on_revoked: Callable[[list[int], bool], None],
    ) -> Ownership:
        """Join. `on_revoked` gets True as second argument when the partitions are already lost."""
