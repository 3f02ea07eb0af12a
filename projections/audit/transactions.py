"""Puts the records of one partition together again as the transactions that wrote them.

Every record names its transaction's sequence, and every topic has them in order, so a merge of the
topics gives one transaction after the other without holding more than one.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from schemas.state import Mark

from .entries import COMMANDS, JOB_STATE_TOPIC, REPAIR_TXN, Entry


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one transaction that can be seen.

    `entries` are its records without the mark, topic after topic; `aborted` those that stand
    between its records and those before, and no reader sees. `commands` are those that it read;
    None: nobody can tell, as the mark before is not there any more. `repairs` are the records of a
    repair that stand next to it.
    """

    partition: int
    number: int
    entries: tuple[Entry, ...]
    mark: Entry | None = None
    aborted: tuple[Entry, ...] = ()
    commands: tuple[Entry, ...] | None = None
    repairs: int = 0
    holes: bool = False
    """Whether records were removed before or in it: by compaction, or by retention."""

    @property
    def where(self) -> str:
        """Where to look for it."""
        first = self.mark or (self.entries[0] if self.entries else None)
        return first.where if first is not None else f"partition {self.partition}"

    @property
    def closed(self) -> Mark | None:
        """What its mark says."""
        return self.mark.body if self.mark is not None else None

    def of(self, topic: str) -> list[Entry]:
        """Its records on one topic, in order."""
        return [entry for entry in self.entries if entry.topic == topic]


class _Stream:
    """One topic's entries; remembers what was passed over."""

    def __init__(self, entries: Iterable[Entry], *, cut: bool) -> None:
        self._entries = iter(entries)
        self._last: Entry | None = None
        self._hole = cut
        self._aborted: list[Entry] = []
        self._repairs = 0
        self.head: Entry | None = None
        self._advance()

    def take(self, number: int) -> tuple[list[Entry], list[Entry], int, bool]:
        """The records of this transaction, those aborted before them, repairs, and holes."""
        taken: list[Entry] = []
        aborted: list[Entry] = []
        repairs, hole = 0, False
        while self.head is not None and self.head.txn == number:
            aborted += self._aborted
            repairs += self._repairs
            hole |= self._hole
            taken.append(self.head)
            self._aborted, self._repairs, self._hole = [], 0, False
            self._advance()
        if taken:  # a repair of this transaction stands right behind it
            repairs += self._repairs
        return taken, aborted, repairs, hole

    def _advance(self) -> None:
        self.head = None
        for entry in self._entries:
            self._hole |= self._is_behind_a_hole(entry)
            self._last = entry
            if entry.aborted:
                self._aborted.append(entry)
            elif entry.txn == REPAIR_TXN:
                self._repairs += 1
            else:
                self.head = entry
                return

    def _is_behind_a_hole(self, entry: Entry) -> bool:
        """Between two transactions there is one marker; more offsets than that held records."""
        last = self._last
        if last is None:
            return False
        same = last.txn == entry.txn and not (last.aborted or entry.aborted)
        return entry.offset - last.offset - 1 > (0 if same else 1)


def transactions(
    partition: int,
    streams: Mapping[str, Iterable[Entry]],
    commands: Iterable[Entry],
    *,
    cut: frozenset[str] = frozenset(),
) -> Iterator[Transaction]:
    """The transactions of a partition, in order, up to the newest mark.

    `streams` are the entries of each own topic, aborted ones included, by topic; `commands` those
    of the input. `cut` names the topics, `commands` among them, whose beginning is gone.
    """
    own = {topic: _Stream(entries, cut=topic in cut) for topic, entries in streams.items()}
    read = _Commands(commands, cut=COMMANDS in cut)
    newest = -1
    while True:
        heads = [stream.head.txn for stream in own.values() if stream.head is not None]
        if not heads:
            return
        number = min(heads)
        if own[JOB_STATE_TOPIC].head is None and number > newest:
            return  # of the next transaction, whose mark was not there yet when we began
        entries: list[Entry] = []
        aborted: list[Entry] = []
        repairs, holes, mark = 0, False, None
        for stream in own.values():
            taken, dropped, touched, hole = stream.take(number)
            for entry in taken:
                if entry.is_mark and mark is None:
                    mark = entry
                else:
                    entries.append(entry)
            aborted += dropped
            repairs += touched
            holes |= hole
        if mark is not None:
            newest = max(newest, number)
        yield Transaction(
            partition=partition, number=number, entries=tuple(entries), mark=mark,
            aborted=tuple(aborted), commands=read.up_to(mark), repairs=repairs, holes=holes,
        )  # fmt: skip


class _Commands:
    """Hands out what each transaction read, by the positions in the marks."""

    def __init__(self, commands: Iterable[Entry], *, cut: bool) -> None:
        self._commands = iter(commands)
        self._head = next(self._commands, None)
        self._known = False
        self._cut = cut

    def up_to(self, mark: Entry | None) -> tuple[Entry, ...] | None:
        if mark is None:
            self._known = False
            return None
        end = next((p.offset for p in mark.body.positions if p.topic == COMMANDS), 0)
        found: list[Entry] = []
        while self._head is not None and self._head.offset < end:
            found.append(self._head)
            self._head = next(self._commands, None)
        known, self._known = self._known, True
        if self._cut and not found:
            return () if known and self._head is None else None
        self._cut = False
        return tuple(found) if known else None
