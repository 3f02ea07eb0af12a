"""Every change has a command that asked for it, once, and what was accepted is there (I13, I15,
lost writes)."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec

from schemas import limits
from schemas.events import ExecutionFired, JobChanged

from .entries import Asked, is_tick, occurrence_of
from .finding import Tally, Violation
from .history import Event, Line
from .transactions import Transaction

NO_COMMANDS: Final = "changes whose commands are not retained"
NO_EFFECT_LEFT: Final = "acknowledgements of what is not retained any more"
_MARK_AT: Final = slice(-8, None)
"""Where the occurrence key of a triggered run has the mark of its command."""


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that said that a command took effect: a reply, or a line of a client's log."""

    job: str
    sequence: int
    where: str
    execution_id: str = ""


class CauseChecks:
    """Folds the transactions of one partition. `acknowledged` are the answers about its jobs."""

    def __init__(
        self, tally: Tally, acknowledged: dict[str, list[Acknowledged]], *, cut: bool
    ) -> None:
        self._tally = tally
        self._cut = cut
        self._acknowledged = acknowledged
        self._wanted = {
            answer.execution_id
            for answers in acknowledged.values()
            for answer in answers
            if answer.execution_id
        }
        self._claimed: set[str] = set()
        self._reached: dict[str, tuple[int, int]] = {}
        """By job: the first and the last sequence number that was there."""
        self._recent: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._asked: dict[str, list[Asked]] | None = None

    def begin(self, txn: Transaction) -> None:
        """The commands of the transaction whose events follow."""
        self._asked = None
        if txn.commands is not None:
            self._asked = {}
            for command in txn.commands:
                if isinstance(command.body, Asked):
                    key = f"{command.body.tenant}/{command.body.job}"
                    self._asked.setdefault(key, []).append(command.body)

    def see(self, event: Event) -> Iterator[Violation]:
        """What is wrong with how this event came about."""
        body = event.entry.body
        if event.job in self._acknowledged:
            first, last = self._reached.get(event.job, (body.sequence, body.sequence))
            self._reached[event.job] = min(first, body.sequence), max(last, body.sequence)
        match body:
            case JobChanged() if body.change in ("put", "pause", "resume", "delete"):
                yield from self._changed(event, body)
            case ExecutionFired():
                if body.execution_id in self._wanted:
                    self._claimed.add(body.execution_id)
                occurrence = occurrence_of(body.execution_id)
                if not is_tick(occurrence) and "~m" in occurrence:
                    yield from self._triggered(event, body, occurrence[_MARK_AT])
            case _:
                pass

    def end(self, lines: dict[str, Line], *, settled: bool) -> Iterator[Violation]:
        """Answers whose effect is not there, in a log whose end may not be `settled`."""
        for job, answers in self._acknowledged.items():
            first, last = self._reached.get(job, (0, 0))
            line = lines.get(job)
            first = max(first, line.first) if line is not None else first
            for answer in answers:
                if answer.sequence < first or (answer.sequence > last and not settled):
                    self._tally.leave_out(NO_EFFECT_LEFT)
                    continue
                self._tally.count("lost-write")
                if answer.sequence > last:
                    told = f"{job} was acknowledged at sequence {answer.sequence}, its events end"
                    yield Violation("lost-write", answer.where, f"{told} at {last}")
                elif not answer.execution_id or answer.execution_id in self._claimed:
                    continue
                elif self._cut:  # of a cancel the claim is older than what it was answered
                    self._tally.leave_out(NO_EFFECT_LEFT)
                else:
                    told = f"{answer.execution_id} was acknowledged, but never claimed"
                    yield Violation("lost-write", answer.where, told)

    def _changed(self, event: Event, body: JobChanged) -> Iterator[Violation]:
        if body.command_id:
            yield from self._once(event, f"c:{body.command_id}", body.at_ms)
        if self._asked is None:
            self._tally.leave_out(NO_COMMANDS)
            return
        self._tally.count("I13")
        own = self._asked.get(event.job, [])
        if not any((a.kind, a.command_id) == (body.change, body.command_id) for a in own):
            told = f"no command that its transaction read asks to {body.change} {event.job}"
            foreign = [job for job, asked in self._asked.items()
                       if body.command_id and any(a.command_id == body.command_id for a in asked)
                       and job != event.job]  # fmt: skip
            if foreign:
                told += f"; {body.command_id} is about {foreign[0]}"
            yield Violation("I13", event.where, told)

    def _triggered(self, event: Event, body: ExecutionFired, mark: str) -> Iterator[Violation]:
        yield from self._once(event, f"m:{mark}", body.due_at)
        if self._asked is None:
            self._tally.leave_out(NO_COMMANDS)
            return
        self._tally.count("I13")
        own = self._asked.get(event.job, [])
        if not any(a.kind == "trigger" and a.run_mark == mark for a in own):
            told = f"no command that its transaction read asks for {body.execution_id}"
            yield Violation("I13", event.where, told)

    def _once(self, event: Event, command: str, at_ms: int) -> Iterator[Violation]:
        self._tally.count("I15")
        recent = self._recent[event.job]
        before_ms = recent.get(command)
        if before_ms is not None and at_ms - before_ms < limits.COMMAND_ID_MS:
            told = f"the same command about {event.job} took effect {at_ms - before_ms} ms before"
            yield Violation("I15", event.where, told)
        recent[command] = at_ms
        if len(recent) > limits.COMMAND_IDS_MAX:
            for old in [c for c, t in recent.items() if at_ms - t >= limits.COMMAND_ID_MS]:
                del recent[old]
