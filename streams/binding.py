"""What a processor hands to the machinery: its topics, its index and its decisions.

The machinery knows nothing about jobs. It reads inputs, asks `Logic` to decide over a
`Transaction`, commits, and tells the logic what became of it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from .ports import Record, Store
from .transaction import Transaction

StoreKey = Callable[[bytes], bytes]
IndexOf = Callable[[bytes, bytes], Iterable[tuple[bytes, bytes]]]


class Changelog(msgspec.Struct, frozen=True):
    """A compacted topic whose latest records are the state. `store_key` maps a record key to its
    key in the store; it must be one-to-one."""

    topic: str
    store_key: StoreKey


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """One processor: names without the namespace, all with the same partition count.

    The first changelog carries the mark. `index` gives the entries that follow from one state
    record (store key, value): a pure function, so that restore can rebuild them.
    `transaction_of` reads the transaction sequence out of a state record's value.
    """

    name: str
    inputs: tuple[str, ...]
    """In the order of their priority; the last one's group decides who owns a partition."""
    urgent: frozenset[str] = frozenset()
    """Inputs that come before due entries."""
    from_end: frozenset[str] = frozenset()
    """Inputs whose past means nothing to a new owner: read from their end, never from the mark."""
    changelogs: tuple[Changelog, ...]
    events: tuple[str, ...]
    events_topic: str
    quarantine: str
    index_prefixes: tuple[bytes, ...]
    indexed_prefix: bytes
    index: IndexOf
    transaction_of: Callable[[bytes], int]
    targets_of: Callable[[bytes], Iterable[tuple[str, int]]]
    """Target partitions that an event names, for touching them after a repair."""

    @property
    def group_topic(self) -> str:
        """The input that the group is subscribed to."""
        return self.inputs[-1]

    @property
    def own_topics(self) -> tuple[str, ...]:
        """Every topic that only this processor's owner of a partition writes to."""
        logs = tuple(log.topic for log in self.changelogs)
        return (*logs, *self.events, self.quarantine)


class DueEntryCrashed(Exception):
    """Deciding a due entry raised; the entry's owner is to blame, not the record at hand."""

    def __init__(self, entry: bytes, reason: str) -> None:
        super().__init__(reason)
        self.entry = entry
        self.reason = reason


class Logic(Protocol):
    """The decisions of one partition. Changes its memory only in `resume` and `committed`; a step
    that is dropped leaves no trace but what `resume` clears."""

    def resume(self, store: Store, *, epoch: int, now_ms: int, gap_ms: int = 0) -> None:
        """Forget everything remembered and read what is needed from the store. `epoch` is the
        transaction sequence at the take-over, `gap_ms` how long nobody owned the partition."""

    def deadline_ms(self) -> int | None:
        """When `due` should be called next; None: nothing is planned."""

    def apply(self, txn: Transaction, record: Record, now_ms: int) -> None:
        """Decide one input record. Raises `PoisonRecord`, before anything is written, for one that
        can never be used; any other exception but `DueEntryCrashed` is found out to be its
        fault by deciding again in halves."""

    def due(self, txn: Transaction, now_ms: int, limit: int) -> int:
        """Decide up to `limit` due entries; how many were decided. Raises `DueEntryCrashed`."""

    def break_entry(self, txn: Transaction, crash: DueEntryCrashed, now_ms: int) -> bool:
        """Take the crashing entry's owner out of service, visibly. False where nothing committed
        has the entry: then nothing is decided."""

    def finish(self, txn: Transaction, now_ms: int) -> None:
        """A step is decided and about to be written: add what is told after the commit."""

    def wants_drained(self) -> bool:
        """Whether something waits until every urgent record of by now has been decided."""

    def drained(self, asked_ms: int) -> None:
        """Every urgent record that was in the log at `asked_ms` has been decided."""

    def committed(self, txn: Transaction) -> None:
        """The transaction is committed and in the store: let memory follow."""

    def suspend(self, topic: str, reason: str, now_ms: int) -> None:
        """A user's topic takes nothing: decide without it for a while."""

    def refuse(self, tag: str, reason: str) -> None:
        """A user's topic refused the record with this tag: decide it as failed."""

    def figures(self) -> Mapping[str, int]:
        """Sizes of what is held in memory, for metrics and bounds."""
