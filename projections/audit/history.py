"""A job's events in their order, without gaps, life after life (I12, I16)."""

from collections.abc import Iterator
from typing import Final

import msgspec

from schemas.events import ExecutionFired, ExecutionMoved, JobChanged, TicksMissed

from .entries import EXECUTIONS, SCHEDULE_CHANGES, Entry
from .finding import Tally, Violation
from .transactions import Transaction

NO_BEGINNING: Final = "jobs whose events are not all retained"


class Event(msgspec.Struct, frozen=True):
    """One event of a job. `anchored` False: what came before it may be missing, so nothing can be
    concluded from that; what follows is judged again."""

    entry: Entry
    job: str
    anchored: bool

    @property
    def where(self) -> str:
        """Where to look for it."""
        return self.entry.where


class Line:
    """How far a job's events have come."""

    __slots__ = ("deleted", "first", "life", "sequence", "txn")

    def __init__(self, life: int, sequence: int, txn: int) -> None:
        self.life = life
        self.sequence = sequence
        self.txn = txn
        self.first = sequence
        """The first of them that is retained."""
        self.deleted = False


class HistoryChecks:
    """Folds the transactions of one partition; gives the events of each, job by job, in order."""

    def __init__(self, tally: Tally, *, cut: bool) -> None:
        self._tally = tally
        self._cut = cut
        self._retained_from: int | None = None if cut else -1
        """The first transaction from which on executions are retained."""
        self.lines: dict[str, Line] = {}
        self.found: list[Violation] = []

    def see(self, txn: Transaction) -> Iterator[Event]:
        """The events; what is wrong with their order is put into `found`."""
        events = [e for e in txn.entries if e.topic in (SCHEDULE_CHANGES, EXECUTIONS)]
        if self._retained_from is None and any(e.topic == EXECUTIONS for e in events):
            self._retained_from = txn.number
        numbered = [
            entry
            for entry in events
            if isinstance(entry.body, ExecutionFired | ExecutionMoved | TicksMissed | JobChanged)
        ]
        numbered.sort(key=lambda entry: (entry.job_key, entry.body.sequence))
        for entry in numbered:
            yield self._next(entry, txn.number)

    def is_whole(self, job: str) -> bool:
        """Whether the newest of the job's events is retained."""
        line = self.lines.get(job)
        return line is not None and self._reaches(line)

    def _reaches(self, line: Line) -> bool:
        return self._retained_from is not None and line.txn > self._retained_from

    def forget(self, job: str) -> None:
        """The job's state is gone: a job of its name begins anew."""
        self.lines.pop(job, None)

    def _next(self, entry: Entry, number: int) -> Event:
        job, body = entry.job_key, entry.body
        line = self.lines.get(job)
        self._tally.count("I12")
        begins = isinstance(body, JobChanged) and body.change == "put"
        if line is None:
            line = self.lines[job] = Line(body.life, body.sequence, number)
            anchored = body.sequence == 1 and begins
            if not anchored:
                if self._cut:
                    self._tally.leave_out(NO_BEGINNING)
                else:
                    told = f"the first event of {job} has sequence {body.sequence}"
                    self.found.append(Violation("I12", entry.where, told))
            return Event(entry, job, anchored)
        anchored = True
        if body.sequence != line.sequence + 1:
            anchored = body.sequence <= line.sequence
            if self._reaches(line):
                told = f"sequence {body.sequence} of {job} follows {line.sequence}"
                self.found.append(Violation("I12", entry.where, told))
            else:
                line.first = body.sequence
                self._tally.leave_out(NO_BEGINNING)
        self._tally.count("I16")
        if body.life < line.life:
            told = f"an event of life {body.life} of {job} behind life {line.life}"
            self.found.append(Violation("I16", entry.where, told))
        elif body.life > line.life and not (begins and line.deleted) and anchored:
            told = f"life {body.life} of {job} begins without a delete and a put"
            self.found.append(Violation("I16", entry.where, told))
        elif line.deleted and body.life == line.life and isinstance(body, JobChanged):
            told = f"{body.change} of {job} behind its delete, in the same life"
            self.found.append(Violation("I16", entry.where, told))
        line.life, line.txn = max(line.life, body.life), number
        line.sequence = max(line.sequence, body.sequence)
        if isinstance(body, JobChanged):
            line.deleted = body.change == "delete"
        return Event(entry, job, anchored)
