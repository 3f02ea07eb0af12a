"""A job's states follow from its events (I11); what they hold besides (I14, I15).

The scheduler is restored from states, and views are built from events: both must tell the same.
"""

from collections.abc import Iterator

from schemas import limits
from schemas.events import JobChanged
from schemas.state import JobDefinition, JobState

from .entries import IDS_SUFFIX, JOB_STATE_TOPIC, SCHEDULE_CHANGES, SCHEDULES, Entry
from .finding import Tally, Violation
from .history import HistoryChecks
from .runs import RunChecks
from .ticks import Due, TickChecks
from .transactions import Transaction


class StateChecks:
    """Compares the states of a transaction with what the events up to it have come to."""

    def __init__(
        self, tally: Tally, history: HistoryChecks, ticks: TickChecks, runs: RunChecks
    ) -> None:
        self._tally = tally
        self._history = history
        self._ticks = ticks
        self._runs = runs

    def see(self, txn: Transaction, touched: set[str]) -> Iterator[Violation]:
        """After the events of the transaction; `touched` are the jobs that had one."""
        last: dict[str, Entry] = {}
        for entry in txn.of(JOB_STATE_TOPIC):
            key = entry.key or b""
            if not key.endswith(IDS_SUFFIX) and not key.startswith(b"!"):
                last[key.decode(errors="replace")] = entry
        whole = txn.mark is not None and not txn.holes
        for job in sorted(touched):
            if job not in last and whole:
                told = f"{job} has events in transaction {txn.number}, but no state"
                yield Violation("I11", txn.where, told)
            if job not in last:
                self._runs.settle(job, None)
        for job, entry in last.items():
            self._tally.count("I11")
            state = entry.body if isinstance(entry.body, JobState) else None
            self._runs.settle(job, state)
            if state is not None:
                self._ticks.told(job, state)
            if state is not None and self._history.is_whole(job):
                yield from self._follows(job, entry, state)
            if state is not None:
                yield from self._holds(job, entry, state)
            elif entry.value is None:
                yield from self._forgotten(job, entry)
        yield from self._definitions(txn, whole=whole)

    def _follows(self, job: str, entry: Entry, state: JobState) -> Iterator[Violation]:
        line = self._history.lines[job]
        for what, found, told in (
            ("sequence", state.sequence, line.sequence), ("life", state.life, line.life),
        ):  # fmt: skip
            if found != told:
                yield Violation("I11", entry.where, f"{what} {found} of {job}, its events have "
                                f"come to {told}")  # fmt: skip
        yield from self._same_ticks(job, entry, state)
        yield from self._same_runs(job, entry, state)

    def _same_ticks(self, job: str, entry: Entry, state: JobState) -> Iterator[Violation]:
        due = self._ticks.jobs.get(job)
        if due is None or not due.known:
            return
        if due.definition is not None and state.version != due.definition.version:
            yield Violation("I11", entry.where, f"version {state.version} of {job}, its changes "
                            f"have come to {due.definition.version}")  # fmt: skip
        next_ms = self._ticks.next_of(due) or 0
        status = "FINISHED" if due.status == "ACTIVE" and not next_ms else due.status
        if state.status != status:
            told = f"{job} is {state.status}, by its events it is {status}"
            yield Violation("I11", entry.where, told)
        elif state.next_ms != next_ms and not _is_at_hand(due, state, next_ms):
            told = f"the next tick of {job} is {state.next_ms}, its schedules ask for {next_ms}"
            yield Violation("I11", entry.where, told)

    def _same_runs(self, job: str, entry: Entry, state: JobState) -> Iterator[Violation]:
        known = self._runs.jobs.get(job)
        if known is None or known.partial:
            return
        found = {(e.occurrence, e.attempt, e.delivery, e.worker, e.lease_until) for e in state.open}
        told = {
            (r.occurrence, r.attempt, r.delivery, r.worker, r.lease_until)
            for r in known.runs.values()
        }
        if found != told:
            odd = sorted(one[0] for one in found ^ told)
            yield Violation("I11", entry.where, f"the state of {job} and its events do not agree "
                            f"on {odd[0]}")  # fmt: skip

    def _holds(self, job: str, entry: Entry, state: JobState) -> Iterator[Violation]:
        """No command id is remembered twice within its hour."""
        self._tally.count("I15")
        seen: dict[bytes, int] = {}
        for one in state.ids:
            before_ms = seen.get(one.id)
            if before_ms is not None and one.at_ms - before_ms < limits.COMMAND_ID_MS:
                told = f"a command id of {job} took effect twice within an hour"
                yield Violation("I15", entry.where, told)
            seen[one.id] = one.at_ms

    def _forgotten(self, job: str, entry: Entry) -> Iterator[Violation]:
        known = self._runs.jobs.get(job)
        if known is not None and known.runs and not known.partial:
            yield Violation("I11", entry.where, f"{job} is forgotten with an open execution")
        self._history.forget(job)
        self._ticks.forget(job)
        self._runs.forget(job)

    def _definitions(self, txn: Transaction, *, whole: bool) -> Iterator[Violation]:
        """The current definition is that of the last change."""
        last: dict[bytes, Entry] = {entry.key or b"": entry for entry in txn.of(SCHEDULES)}
        wanted: dict[bytes, JobChanged] = {}
        for change in txn.of(SCHEDULE_CHANGES):
            body = change.body
            if isinstance(body, JobChanged) and body.change in ("put", "delete"):
                wanted[change.job_key.encode()] = body
        for key, body in wanted.items():
            self._tally.count("I11")
            entry = last.get(key)
            if entry is None:
                if whole and body.change == "put":
                    told = f"version {body.version} of {key.decode()} is not in the schedules"
                    yield Violation("I11", txn.where, told)
            elif entry.body != body.definition:
                told = f"the definition of {key.decode()} is not that of its last change"
                yield Violation("I11", entry.where, told)
        for key, entry in last.items():
            if isinstance(entry.body, JobDefinition) and key not in wanted and whole:
                told = f"a definition of {key.decode()} without a change"
                yield Violation("I11", entry.where, told)


def _is_at_hand(due: Due, state: JobState, next_ms: int) -> bool:
    """A one-off that the owner's clock had not come to when a change acted: it is still to be
    decided, though the change counts from after it."""
    one_off = any(one.kind == "at" and one.at_ms == state.next_ms for one in due.plan.schedules)
    return one_off and state.next_ms <= due.after_ms and (not next_ms or state.next_ms < next_ms)
