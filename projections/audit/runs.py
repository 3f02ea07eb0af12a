"""What becomes of executions once they are claimed (I1, I4, I5, I7, I8, I9)."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from schemas import limits
from schemas.events import ExecutionFired, ExecutionMoved, JobChanged
from schemas.state import JobState

from .entries import DEAD_LETTERS, EXECUTIONS, is_tick, occurrence_of
from .finding import Tally, Violation
from .history import Event
from .transactions import Transaction

TERMINAL: Final = frozenset(
    {"SUCCEEDED", "FAILED", "DEAD", "CANCELLED", "REPLACED", "SKIPPED", "MISSED"}
)
LETTERED: Final = frozenset({"FAILED", "DEAD"})
LEASE_CLOSED: Final = "lease_closed"
UNKNOWN_CLAIM: Final = "events of executions whose claim is not retained"


class Run:
    """An execution that is open: claimed, and not at its end or its lease not closed."""

    __slots__ = (
        "attempt", "claimed_life", "delivery", "ended", "holder", "lease_until", "lost",
        "occurrence", "state", "sure", "worker",
    )  # fmt: skip

    def __init__(self, fired: ExecutionFired) -> None:
        self.occurrence = occurrence_of(fired.execution_id)
        self.attempt = fired.attempt
        self.delivery = fired.delivery
        self.worker = fired.worker
        self.holder = fired.worker
        """Who held the newest lease, be it lost or not."""
        self.lease_until = fired.lease_until
        self.state = fired.state
        self.claimed_life = fired.life
        self.lost = 0
        self.ended = False
        """A terminal state was decided; its lease is still to be closed."""
        self.sure = True
        """False: it was cancelled, and only the job's state can tell whether its lease is open."""


class Open:
    """The open executions of one job."""

    __slots__ = ("attempts_max", "concurrency", "deleted", "life", "partial", "paused_ms", "runs")

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.attempts_max = 0
        self.concurrency = "forbid"
        self.life = 0
        self.paused_ms = -1
        """Since when it is paused; -1: it is not."""
        self.deleted = False
        self.partial = False
        """Whether there may be executions whose claim is not retained."""


class RunChecks:
    """Folds the events of one partition's jobs."""

    def __init__(self, tally: Tally, *, letters_cut: bool) -> None:
        self._tally = tally
        self._letters_cut = letters_cut
        """Until the first of those retained, dead letters may be missing."""
        self.jobs: dict[str, Open] = {}

    def see(self, event: Event) -> Iterator[Violation]:
        """What is wrong with this event in view of those before it."""
        job = self.jobs.get(event.job)
        if job is None:
            job = self.jobs[event.job] = Open()
        if not event.anchored:
            job.partial = True
            job.runs.clear()
        match event.entry.body:
            case JobChanged() as changed:
                self._changed(job, changed)
            case ExecutionFired() as fired:
                yield from self._claimed(event, job, fired)
            case ExecutionMoved() as moved:
                yield from self._moved(event, job, moved)
            case _:
                pass

    def settle(self, job_key: str, state: JobState | None) -> None:
        """Of executions that were cancelled, the job's state says whose lease is closed."""
        job = self.jobs.get(job_key)
        if job is None:
            return
        kept = {execution.occurrence for execution in state.open} if state is not None else set()
        for run in [run for run in job.runs.values() if not run.sure]:
            run.sure = run.ended = True
            if run.occurrence not in kept:
                del job.runs[run.occurrence]

    def letters(self, txn: Transaction) -> Iterator[Violation]:
        """Each execution that failed for good has one dead letter, in the same transaction."""
        ends = {
            entry.body.execution_id: entry
            for entry in txn.of(EXECUTIONS)
            if isinstance(entry.body, ExecutionFired | ExecutionMoved)
            and entry.body.state in LETTERED
            and entry.body.reason != LEASE_CLOSED
        }
        found: Counter[str] = Counter()
        letters = txn.of(DEAD_LETTERS)
        self._letters_cut &= not letters
        for letter in letters:
            execution_id = getattr(letter.body, "execution_id", "")
            found[execution_id] += 1
            end = ends.get(execution_id)
            if end is None:
                told = f"a dead letter of {execution_id}, which did not fail in its transaction"
                yield Violation("I5", letter.where, told)
            elif end.value != letter.value:
                told = f"the dead letter of {execution_id} is no copy of its event"
                yield Violation("I5", letter.where, told)
        self._tally.count("I5", len(ends))
        for execution_id, end in ends.items():
            retained = not (txn.holes or self._letters_cut)
            if found[execution_id] > 1 or (retained and not found[execution_id]):
                told = f"{execution_id} failed and has {found[execution_id]} dead letters"
                yield Violation("I5", end.where, told)

    def forget(self, job: str) -> None:
        """The job's state is gone."""
        self.jobs.pop(job, None)

    # --- one event -------------------------------------------------------------------------------

    @staticmethod
    def _changed(job: Open, changed: JobChanged) -> None:
        job.life = changed.life
        match changed.change:
            case "put" if changed.definition is not None:
                job.attempts_max = changed.definition.max_attempts
                job.concurrency = changed.definition.concurrency
                job.deleted = False
            case "pause":
                job.paused_ms = changed.at_ms
            case "resume" | "break":
                job.paused_ms = -1
            case "delete":
                job.paused_ms, job.deleted = -1, True
            case _:
                pass

    def _claimed(self, event: Event, job: Open, fired: ExecutionFired) -> Iterator[Violation]:
        yield from self._attempt(event, job, fired.attempt)
        self._tally.count("I4")
        held = [run for run in job.runs.values() if run.sure]
        doubtful = len(held) != len(job.runs) or job.partial
        if job.concurrency == "forbid":
            if held and fired.state != "SKIPPED":
                told = f"{fired.execution_id} is {fired.state} while {held[0].occurrence} is open"
                yield Violation("I4", event.where, told)
            elif not job.runs and not doubtful and fired.state == "SKIPPED":
                told = f"{fired.execution_id} is SKIPPED({fired.reason}), but nothing is open"
                yield Violation("I4", event.where, told)
        if fired.state in TERMINAL:
            return
        run = job.runs[occurrence_of(fired.execution_id)] = Run(fired)
        if run.worker and run.delivery != 1:
            told = f"the first lease of {fired.execution_id} is delivery {run.delivery}"
            yield Violation("I7", event.where, told)

    def _moved(self, event: Event, job: Open, moved: ExecutionMoved) -> Iterator[Violation]:
        occurrence = occurrence_of(moved.execution_id)
        self._tally.count("I8")
        self._tally.count("I1")
        if is_tick(occurrence) and 0 < moved.started_at < moved.scheduled_at:
            early_ms = moved.scheduled_at - moved.started_at
            yield Violation("I1", event.where, f"started {early_ms} ms before its tick")
        run = job.runs.get(occurrence)
        if run is None:
            if job.partial:
                self._tally.leave_out(UNKNOWN_CLAIM)
            else:
                told = f"{moved.execution_id} is {moved.state}: it was at its end before, or never"
                yield Violation("I8", event.where, f"{told} claimed")
            return
        if moved.reason == LEASE_CLOSED:
            if not run.ended and run.sure:
                told = f"the lease of {moved.execution_id} is closed before its end was decided"
                yield Violation("I8", event.where, told)
            del job.runs[occurrence]
            return
        if run.ended:
            told = f"{moved.execution_id} is {moved.state} after its end was decided"
            yield Violation("I8", event.where, told)
        if moved.attempt not in (run.attempt, run.attempt + 1):
            told = f"attempt {moved.attempt} of {occurrence} follows attempt {run.attempt}"
            yield Violation("I5", event.where, told)
        yield from self._attempt(event, job, moved.attempt)
        if moved.lost > limits.MAX_DELIVERIES or not run.lost <= moved.lost <= run.lost + 1:
            told = f"{moved.lost} lost leases of {moved.execution_id}, after {run.lost};"
            yield Violation("I5", event.where, f"{told} at most {limits.MAX_DELIVERIES}")
        run.attempt, run.lost = moved.attempt, moved.lost
        if moved.state == "RUNNING":
            yield from self._leased(event, job, run, moved)
        elif moved.state in TERMINAL:
            yield from self._ended(event, job, run, moved)
        else:
            if moved.delivery != run.delivery:
                told = f"{moved.execution_id} waits with delivery {moved.delivery}"
                yield Violation("I7", event.where, f"{told}, its last was {run.delivery}")
            run.worker, run.lease_until, run.state = "", 0, moved.state

    def _attempt(self, event: Event, job: Open, attempt: int) -> Iterator[Violation]:
        self._tally.count("I5")
        if attempt < 1 or (job.attempts_max and attempt > job.attempts_max):
            told = f"attempt {attempt} of a job that allows {job.attempts_max}"
            yield Violation("I5", event.where, told)

    def _leased(
        self, event: Event, job: Open, run: Run, moved: ExecutionMoved
    ) -> Iterator[Violation]:
        self._tally.count("I7")
        if run.worker:  # a renewal, or news of it
            if (moved.delivery, moved.worker) != (run.delivery, run.worker):
                told = f"delivery {moved.delivery} at {moved.worker} while {run.worker} holds "
                told += f"delivery {run.delivery} of {moved.execution_id}"
                yield Violation("I7", event.where, told)
            if moved.lease_until < run.lease_until:
                told = f"the lease of {moved.execution_id} ends earlier than before"
                yield Violation("I7", event.where, told)
        else:
            if moved.delivery != run.delivery + 1:
                told = f"delivery {moved.delivery} of {moved.execution_id} follows {run.delivery}"
                yield Violation("I7", event.where, told)
            yield from self._may_begin(event, job, run, moved)
        run.delivery, run.worker, run.holder = moved.delivery, moved.worker, moved.worker
        run.lease_until, run.state = max(run.lease_until, moved.lease_until), "RUNNING"

    def _may_begin(
        self, event: Event, job: Open, run: Run, moved: ExecutionMoved
    ) -> Iterator[Violation]:
        self._tally.count("I9")
        if job.deleted or (job.life and run.claimed_life < job.life):
            yield Violation("I9", event.where, f"{moved.execution_id} is leased after the delete")
        triggered = not is_tick(run.occurrence) and moved.due_at >= job.paused_ms
        if job.paused_ms >= 0 and not triggered and moved.due_at != job.paused_ms:
            yield Violation("I9", event.where, f"{moved.execution_id} is leased while paused")

    def _ended(
        self, event: Event, job: Open, run: Run, moved: ExecutionMoved
    ) -> Iterator[Violation]:
        if moved.worker and moved.worker != run.holder:
            told = f"{moved.execution_id} ended at {moved.worker}"
            yield Violation(
                "I7", event.where, f"{told}, but {run.holder or 'nobody'} held its lease"
            )
        if moved.delivery != run.delivery:
            told = f"{moved.execution_id} ended with delivery {moved.delivery}"
            yield Violation("I7", event.where, f"{told}, its last was {run.delivery}")
        if moved.state == "CANCELLED" and run.worker and moved.lease_until:
            run.sure, run.state = False, "CLOSING"
        else:
            del job.runs[run.occurrence]
