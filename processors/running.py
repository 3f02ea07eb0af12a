"""Executions that workers run: from the claim to the end, within a step of the scheduler."""

from collections.abc import Callable
from typing import Final

import msgspec

from schemas.bindings import EXECUTION_FIRED, EXECUTION_MOVED, REPORT_BATCH
from schemas.codec import Undecodable
from schemas.encoder import compile_parts
from schemas.events import ExecutionMoved
from schemas.leases import Report
from schemas.registry import registered
from schemas.state import JobDefinition, JobState, OpenExecution
from streams.binding import DueEntryCrashed
from streams.crash import CrashPoint, unarmed
from streams.errors import PoisonRecord
from streams.transaction import Transaction

from .core import executions as decide
from .core.executions import Moved, Placed
from .core.job import Fire, Job, keep_ms
from .core.keys import Kind, due_key, ordinal_of, parse_queue, split_job_key
from .jobs import Jobs, Step
from .leasing import Leasing

WriteState = Callable[[Transaction, bytes, Job, JobState], Job]
"""Writes a job's next state with its index and gives the job as it is then."""
Alarm = Callable[..., None]
LEASES_PER_STEP_MAX: Final = 2_000
SKIPPED: Final = ("SKIPPED", "overlap")
_claimed_own, _claimed_shared = compile_parts(
    registered("ExecutionFired").schema, EXECUTION_FIRED.prefix, "txn"
)
_moved_own, _moved_shared = compile_parts(
    registered("ExecutionMoved").schema, EXECUTION_MOVED.prefix, "txn"
)


class Running:
    """Claims, leases, follows reports and ends executions of one partition."""

    def __init__(
        self,
        *,
        executions: str,
        dead_letters: str,
        tz: str,
        jobs: Jobs,
        leasing: Leasing,
        write: WriteState,
        alarm: Alarm,
        lease_ms: int,
        crash: CrashPoint = unarmed,
    ) -> None:
        self._crash = crash
        self._executions = executions
        self._dead_letters = dead_letters
        self._tz = tz
        self._jobs = jobs
        self._leasing = leasing
        self._write = write
        self._alarm = alarm
        self._lease_ms = lease_ms
        self._fences = (-1, 0)
        self._step = (-1, -1)
        self._claimed_tails: dict[tuple[bool, str, str, str, int], bytes] = {}
        self._moved_tails: dict[tuple[str, str, str, str, str, int], bytes] = {}
        """What events of one step have in common is encoded once."""
        self.outdated = 0
        self.forged = 0
        """Reports that changed nothing: of an older delivery; without a genuine token."""

    # --- claiming --------------------------------------------------------------------------------

    def claim(
        self,
        txn: Transaction,
        job_key: bytes,
        definition: JobDefinition,
        state: JobState,
        fire: Fire,
        now_ms: int,
    ) -> JobState:
        """Claim an occurrence for a worker: leased at once if a place is free, else waiting. Under
        `forbid` it is skipped while an execution of the job is open, whatever its target is now."""
        pool, handler = where(definition)
        ordinal = decide.free_ordinal(state)
        if state.open or ordinal is None:
            self._claimed(txn, definition, state, fire, now_ms, (False, pool, handler, "", 0))
            return state
        execution = OpenExecution(
            ordinal=ordinal, occurrence=fire.occurrence, attempt=1, delivery=0, lost=0,
            scheduled_at=fire.scheduled_at, due_at=fire.due_at, claimed_at=now_ms,
            version=definition.version, state="QUEUED", pool=pool, handler=handler,
            payload=fire.payload,
        )  # fmt: skip
        place = self._leasing.take(pool, handler, now_ms)
        if place is not None:
            execution = decide.lease(execution, place, self._fence(txn), now_ms, self._lease_ms)
            self._leasing.give("work", job_key, definition, execution, now_ms)
        kind = (True, pool, handler, execution.worker, execution.lease_until)
        self._claimed(txn, definition, state, fire, now_ms, kind)
        Step.of(txn).fires += 1
        return decide.with_open(state, execution)

    def _claimed(
        self,
        txn: Transaction,
        definition: JobDefinition,
        state: JobState,
        fire: Fire,
        now_ms: int,
        kind: tuple[bool, str, str, str, int],
    ) -> None:
        """The event of a claim; `kind` is whether it is open, pool, handler, worker and lease."""
        if self._step != (txn.seq, now_ms):
            self._begin_step(txn.seq, now_ms)
        tail = self._claimed_tails.get(kind)
        if tail is None:
            claimed, pool, handler, worker, until_ms = kind
            shown = ("RUNNING" if worker else "QUEUED", "") if claimed else SKIPPED
            tail = self._claimed_tails[kind] = _claimed_shared(
                txn.seq, now_ms, 1, *shown, "", "", -1, self._tz, "", pool, handler,
                1 if worker else 0, worker, until_ms,
            )  # fmt: skip
        event = _claimed_own(
            definition.tenant, definition.job, state.life, fire.sequence, fire.execution_id,
            fire.scheduled_at, fire.due_at, definition.version,
        )  # fmt: skip
        key = f"{fire.execution_id}#{fire.sequence}".encode()
        txn.append(self._executions, key, event + tail)

    def _moved(self, txn: Transaction, e: ExecutionMoved, now_ms: int) -> bytes:
        """The encoded event."""
        if self._step != (txn.seq, now_ms):
            self._begin_step(txn.seq, now_ms)
        kind = (e.state, e.reason, e.pool, e.handler, e.worker, e.lease_until)
        tail = self._moved_tails.get(kind)
        if tail is None:
            tail = self._moved_tails[kind] = _moved_shared(e.txn, e.at, *kind)
        own = _moved_own(
            e.tenant, e.job, e.life, e.sequence, e.execution_id, e.scheduled_at, e.due_at,
            e.claimed_at, e.version, e.attempt, e.delivery, e.lost, e.started_at, e.finished_at,
            e.result, e.detail,
        )  # fmt: skip
        return own + tail

    def _begin_step(self, txn: int, now_ms: int) -> None:
        self._step = (txn, now_ms)
        self._claimed_tails.clear()
        self._moved_tails.clear()

    def _fence(self, txn: Transaction) -> int:
        """Grows with every lease: the transaction's sequence and the lease's place in it."""
        seq, count = self._fences
        count = count + 1 if seq == txn.seq else 1
        self._fences = (txn.seq, count)
        return (txn.seq << 16) + count

    # --- leasing what waits ----------------------------------------------------------------------

    def lease_waiting(self, txn: Transaction, now_ms: int, limit: int) -> int:
        """Lease what waits to the places that are free; how much was looked at."""
        looked = 0
        for key, place in self._leasing.drawn(now_ms, min(limit, LEASES_PER_STEP_MAX)):
            looked += 1
            pool, _, _, job_key = parse_queue(key)
            try:
                job = self._jobs.get(txn, job_key)
                execution = decide.at(job.state, ordinal_of(key)) if job is not None else None
                if job is None or execution is None or execution.state != "QUEUED":
                    self._leasing.free(pool, place.worker)  # nobody's by now
                    continue
                definition = decide.definition_of(execution, job.definition)
                if decide.too_late(execution, definition, now_ms):
                    self._leasing.free(pool, place.worker)
                    key_text = job_key.decode()
                    moved = decide.missed_deadline(key_text, job.state, execution, now_ms, txn.seq)
                    self.follow(txn, job_key, job, moved, now_ms)
                    continue
                self._lease(txn, job_key, job, execution, place, now_ms)
            except Exception as error:
                raise DueEntryCrashed(key, repr(error)) from error
        return looked

    def _lease(
        self,
        txn: Transaction,
        job_key: bytes,
        job: Job,
        execution: OpenExecution,
        place: Placed,
        now_ms: int,
    ) -> None:
        moved, after = decide.leased(
            job_key.decode(), job.state, execution, place,
            fence=self._fence(txn), now_ms=now_ms, txn=txn.seq, lease_ms=self._lease_ms,
        )  # fmt: skip
        self.follow(txn, job_key, job, moved, now_ms)
        definition = decide.definition_of(after, job.definition)
        self._leasing.give("work", job_key, definition, after, now_ms)

    # --- reports ---------------------------------------------------------------------------------

    def reported(self, txn: Transaction, value: bytes, now_ms: int) -> None:
        """Follow a batch of reports. Raises `PoisonRecord` for one that cannot be read."""
        try:
            batch = REPORT_BATCH.decode(value)
        except Undecodable as error:
            raise PoisonRecord(str(error)) from error
        worker, genuine = batch.worker, self._leasing.genuine
        reports = [r for r in batch.reports if genuine(r.execution_id, r.delivery, worker, r.token)]
        if forged := len(batch.reports) - len(reports):
            self.forged += forged
            self._alarm("reports_refused", worker=worker, count=forged)
        keys = [f"{r.tenant}/{r.job}" for r in reports]
        job_keys = [key.encode() for key in keys]
        self._jobs.load(txn, job_keys)
        for key, job_key, report in zip(keys, job_keys, reports, strict=True):
            self._report(txn, key, job_key, report, worker, now_ms)

    def _report(
        self, txn: Transaction, key: str, job_key: bytes, report: Report, worker: str, now_ms: int
    ) -> None:
        job = self._jobs.get(txn, job_key)
        moved = None
        if job is not None:
            moved = decide.report(key, job.state, report, worker, now_ms, txn.seq, self._lease_ms)
        if job is None or moved is None:
            self.outdated += 1
            return
        execution = decide.at(job.state, report.ordinal)
        assert execution is not None
        if report.kind == "returned":  # whatever it lacks, it lacks it for a while
            self._leasing.refused(execution.pool, worker, now_ms)
        self.follow(txn, job_key, job, moved, now_ms, execution)

    # --- lost leases -----------------------------------------------------------------------------

    def lapsed(
        self, txn: Transaction, entry: bytes, job_key: bytes, job: Job, due_ms: int, now_ms: int
    ) -> None:
        """A lease's time is over: give it up, unless it was renewed or must still be waited for."""
        execution = decide.at(job.state, ordinal_of(entry))
        if execution is None or execution.lease_until != due_ms:
            return
        if self._leasing.may_expire(entry, execution, now_ms):
            moved = decide.expired(job_key.decode(), job.state, execution, now_ms, txn.seq)
            self.follow(txn, job_key, job, moved, now_ms)
            self._crash("CP19")

    def send_again(self, txn: Transaction, now_ms: int) -> None:
        """Tell workers once more what they may not have heard: a lease that no report has named,
        the same delivery; that it is asked back, where its job is paused or gone; and that an
        execution is cancelled."""
        for job_key, ordinal, fence in self._leasing.unheard(now_ms):
            job = self._jobs.get(txn, job_key)
            execution = decide.at(job.state, ordinal) if job is not None else None
            if job is None or execution is None or execution.fence != fence:
                continue
            try:
                self._tell_again(job_key, job, execution, now_ms)
            except Exception as error:
                until_ms, owner = execution.lease_until, split_job_key(job_key)
                entry = due_key(until_ms, *owner, Kind.LEASE, ordinal)
                raise DueEntryCrashed(entry, repr(error)) from error

    def _tell_again(self, job_key: bytes, job: Job, execution: OpenExecution, now_ms: int) -> None:
        give, state = self._leasing.give, job.state
        if execution.state == "CLOSING":
            give("cancel", job_key, None, execution, now_ms)
        elif execution.state == "RUNNING" and not execution.named:
            if decide.outlives_its_job(state, execution) or decide.is_held(state, execution):
                give("revoke", job_key, None, execution, now_ms)
            else:
                definition = decide.definition_of(execution, job.definition)
                give("work", job_key, definition, execution, now_ms)

    # --- commands --------------------------------------------------------------------------------

    def cancel(
        self, txn: Transaction, job_key: bytes, job: Job, execution: OpenExecution, now_ms: int,
        note: str,
    ) -> Job:  # fmt: skip
        """End an execution."""
        key = job_key.decode()
        moved = decide.cancel(key, job.state, execution, now_ms, txn.seq, note)
        return self.follow(txn, job_key, job, moved, now_ms, execution)

    def paused(self, txn: Transaction, job_key: bytes, job: Job, now_ms: int) -> Job:
        """Hold what waits, and ask back what has not begun."""
        return self._each(txn, job_key, job, now_ms, decide.held_by_pause)

    def resumed(self, txn: Transaction, job_key: bytes, job: Job, now_ms: int) -> Job:
        """Let what was held wait for a place again."""
        return self._each(txn, job_key, job, now_ms, decide.released_by_resume)

    def deleted(self, txn: Transaction, job_key: bytes, job: Job, now_ms: int) -> Job:
        """Cancel what waits, and ask back what has not begun."""
        return self._each(txn, job_key, job, now_ms, decide.ended_by_delete)

    def _each(
        self,
        txn: Transaction,
        job_key: bytes,
        job: Job,
        now_ms: int,
        decision: Callable[[str, JobState, OpenExecution, int, int], Moved],
    ) -> Job:
        key = job_key.decode()
        for execution in job.state.open:
            moved = decision(key, job.state, execution, now_ms, txn.seq)
            job = self.follow(txn, job_key, job, moved, now_ms, execution)
        return job

    def failed(
        self, txn: Transaction, job_key: bytes, job: Job, execution: OpenExecution, now_ms: int,
        detail: str,
    ) -> None:  # fmt: skip
        """End an execution that cannot be decided about."""
        key = job_key.decode()
        moved = decide.failed(key, job.state, execution, now_ms, txn.seq, detail)
        self.follow(txn, job_key, job, moved, now_ms, execution)

    # --- following -------------------------------------------------------------------------------

    def follow(
        self,
        txn: Transaction,
        job_key: bytes,
        job: Job,
        moved: Moved,
        now_ms: int,
        told: OpenExecution | None = None,
    ) -> Job:
        """Write what became of an execution: state, event, dead letter; free its place."""
        event = moved.event
        if event is not None:
            state = moved.state
            if state.forget_ms and not state.open:
                # What is remembered is remembered from the end of the last execution.
                state = msgspec.structs.replace(state, forget_ms=now_ms + keep_ms(job))
            job = self._write(txn, job_key, job, state)
            value = self._moved(txn, event, now_ms)
            txn.append(self._executions, f"{event.execution_id}#{event.sequence}".encode(), value)
            if moved.dead_letter:
                txn.append(self._dead_letters, event.execution_id.encode(), value)
            if moved.freed:
                self._leasing.free(event.pool, moved.freed)
        if moved.tell and told is not None:
            self._leasing.give(moved.tell, job_key, None, told, now_ms)
        return job


def where(definition: JobDefinition) -> tuple[str, str]:
    """Pool and handler of a definition; empty for a topic, which no worker writes to."""
    if definition.worker is not None:
        return definition.worker.pool, definition.worker.handler
    if definition.http is not None:
        return definition.http.pool, HTTP_HANDLER
    return "", ""


HTTP_HANDLER: Final = "http"
