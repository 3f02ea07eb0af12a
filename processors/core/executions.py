"""Executions that workers run: claimed, leased, reported, and at their end closed.

    QUEUED ──lease──▶ RUNNING ──outcome──▶ terminal, gone from the job's record
    QUEUED ──pause──▶ PENDING(paused) ──resume──▶ QUEUED
    QUEUED, PENDING ──late outcome of the newest delivery──▶ terminal, gone
    QUEUED, PENDING ──cancel | delete──▶ CANCELLED, gone
    QUEUED ──lease, behind its start_deadline──▶ MISSED(deadline), gone
    RUNNING ──returned | lease lost──▶ QUEUED, the same attempt; PENDING(paused) in a paused job;
                                       CANCELLED in a deleted one; lost too often: DEAD(deliveries)
    RUNNING ──cancel──▶ CLOSING(CANCELLED) ──outcome | stopped | abandoned | returned | expiry──▶
                                       gone, with an event that only says so (LEASE_CLOSED)

A job's lock is its open executions: it is free when the lease is closed, not when a terminal
state was decided. It goes with the job's name: a job that is created again waits for what runs
of its former life. Pure functions over frozen values; `Moved` is what became of one execution.
"""

from typing import Final, Literal, NamedTuple

import msgspec

from schemas.events import ExecutionMoved
from schemas.leases import Report
from schemas.limits import LEASE_MS, MAX_DELIVERIES, OPEN_EXECUTIONS_MAX
from schemas.state import JobDefinition, JobState, OpenExecution

_replace: Final = msgspec.structs.replace

TERMINAL: Final = frozenset({"SUCCEEDED", "FAILED", "DEAD", "CANCELLED", "MISSED"})
LEASE_CLOSED: Final = "lease_closed"
"""Reason of the event that closes the lease of an execution that is terminal already."""
FAILED_REASONS: Final = frozenset({
    "error", "status", "connection", "tls", "target", "arguments", "too_large", "no_handler",
    "timed_out",
})  # fmt: skip
RESULT_BYTES_MAX: Final = 4_096
DETAIL_CHARS_MAX: Final = 4_096


class Placed(NamedTuple):
    """A worker's place that an execution is leased to."""

    worker: str
    inbox: int


class Moved(msgspec.Struct, frozen=True, gc=False):
    """What became of one execution: the job's state, the event, and what follows.

    `freed` names the worker whose place is free again; `dead_letter` says that the event is also
    copied to the dead letters; `tell` asks for a cancel or revoke to be sent to the lease's
    worker.
    """

    state: JobState
    event: ExecutionMoved | None
    freed: str = ""
    dead_letter: bool = False
    tell: Literal["", "cancel", "revoke"] = ""


def free_ordinal(state: JobState) -> int | None:
    """Smallest ordinal that no open execution has; None when the record is full."""
    if not state.open:
        return 0
    taken = {execution.ordinal for execution in state.open}
    return next((n for n in range(OPEN_EXECUTIONS_MAX) if n not in taken), None)


def find(state: JobState, execution_id: str) -> OpenExecution | None:
    """The open execution with this id, or with this occurrence key."""
    return next((e for e in state.open if execution_id in (e.execution_id, e.occurrence)), None)


def at(state: JobState, ordinal: int) -> OpenExecution | None:
    """The open execution with this ordinal."""
    for execution in state.open:
        if execution.ordinal == ordinal:
            return execution
    return None


def lease(
    execution: OpenExecution, place: Placed, fence: int, now_ms: int, lease_ms: int = LEASE_MS
) -> OpenExecution:
    """The execution as leased to the place: one delivery more."""
    return _replace(
        execution, state="RUNNING", reason="", worker=place.worker, inbox=place.inbox,
        delivery=execution.delivery + 1, lease_until=now_ms + lease_ms, fence=fence, named=False,
        started_at=0,
    )  # fmt: skip


def leased(job_key: str, state: JobState, execution: OpenExecution, place: Placed, *,
           fence: int, now_ms: int, txn: int,
           lease_ms: int = LEASE_MS) -> tuple[Moved, OpenExecution]:  # fmt: skip
    """Lease a queued execution, with its event."""
    after = lease(execution, place, fence, now_ms, lease_ms)
    return _moved(job_key, state, after, "RUNNING", "", now_ms, txn), after


def with_open(state: JobState, execution: OpenExecution) -> JobState:
    """The state with this execution in place of the one with its ordinal, or added."""
    others = _others(state, execution)
    if not others:
        return _replace(state, open=(execution,))
    return _replace(state, open=tuple(sorted((*others, execution), key=lambda e: e.ordinal)))


def _others(state: JobState, execution: OpenExecution) -> tuple[OpenExecution, ...]:
    return tuple([e for e in state.open if e.ordinal != execution.ordinal])


# --- reports ----------------------------------------------------------------------------------


def report(
    job_key: str, state: JobState, report: Report, worker: str, now_ms: int, txn: int,
    lease_ms: int = LEASE_MS,
) -> Moved | None:  # fmt: skip
    """Follow a report of the latest delivery, whose genuine token says that it is `worker`'s. None:
    it is outdated and changes nothing."""
    execution = at(state, report.ordinal)
    if (
        execution is None
        or execution.delivery != report.delivery
        or execution.execution_id != report.execution_id
    ):
        return None
    if not execution.lease_until:  # lost, but nobody has a newer one: the work that was done counts
        if report.kind != "outcome":
            return None
        late = _replace(execution, worker=worker)
        return _replace(_outcome(job_key, state, late, report, now_ms, txn), freed="")
    if execution.worker != worker:
        return None
    match report.kind:
        case "started" | "already_started":
            return _named(job_key, state, execution, report, now_ms, txn, renewed_ms=0)
        case "heartbeat":
            return _named(job_key, state, execution, report, now_ms, txn, renewed_ms=lease_ms)
        case "outcome":
            return _outcome(job_key, state, execution, report, now_ms, txn)
        case "returned" | "revoked":
            return _returned(job_key, state, execution, report, now_ms, txn)
        case "stopped" | "abandoned":
            return _stopped(job_key, state, execution, report, now_ms, txn)


def _named(
    job_key: str, state: JobState, execution: OpenExecution, report: Report, now_ms: int,
    txn: int, *, renewed_ms: int,
) -> Moved:  # fmt: skip
    """The worker has it, and a heartbeat renews the lease. Where a terminal state was decided it
    renews nothing: the worker has not heard, so it is told again."""
    if execution.state == "CLOSING":
        return Moved(state, None, tell="cancel")
    until = execution.lease_until
    if renewed_ms:
        until = max(until, now_ms + renewed_ms)
    started_at = report.started_at or execution.started_at
    after = _replace(execution, named=True, lease_until=until, started_at=started_at)
    if after == execution:
        return Moved(state, None)
    return _moved(job_key, state, after, "RUNNING", "", now_ms, txn, detail=report.progress)


def _outcome(
    job_key: str, state: JobState, execution: OpenExecution, report: Report, now_ms: int, txn: int
) -> Moved:
    """The end. An outcome that comes after a cancel closes the lease; the decision stands."""
    if execution.state == "CLOSING":
        return _closed(job_key, state, execution, execution.reason, "", report, now_ms, txn)
    if report.state in ("SUCCEEDED", "CANCELLED"):
        return _closed(job_key, state, execution, report.state, "", report, now_ms, txn)
    reason = "timed_out" if report.state == "TIMED_OUT" else report.reason
    if reason not in FAILED_REASONS:
        reason = "error"
    return _closed(job_key, state, execution, "FAILED", reason, report, now_ms, txn)


def _returned(
    job_key: str, state: JobState, execution: OpenExecution, report: Report, now_ms: int, txn: int
) -> Moved:
    """Never begun, or handed back: the same attempt waits again, nothing is counted."""
    if execution.state == "CLOSING":
        return _closed(job_key, state, execution, execution.reason, "", report, now_ms, txn)
    if report.reason == "no_handler":
        return _closed(job_key, state, execution, "FAILED", "no_handler", report, now_ms, txn)
    return _again(job_key, state, execution, report.reason, report.detail, now_ms, txn)


def _stopped(
    job_key: str, state: JobState, execution: OpenExecution, report: Report, now_ms: int, txn: int
) -> Moved:
    """The worker ended it without an outcome: what was decided stands, else it is cancelled."""
    outcome = execution.reason if execution.state == "CLOSING" else "CANCELLED"
    return _closed(job_key, state, execution, outcome, "", report, now_ms, txn)


def _again(
    job_key: str, state: JobState, execution: OpenExecution, reason: str, detail: str,
    now_ms: int, txn: int, *, lost: int = 0,
) -> Moved:  # fmt: skip
    held = is_held(state, execution)
    waiting = "PENDING" if held else "QUEUED"
    after = _replace(
        execution, state=waiting, reason="paused" if held else "", worker="", lease_until=0,
        named=False, started_at=0, lost=execution.lost + lost,
    )  # fmt: skip
    if outlives_its_job(state, execution):
        moved = _closed(job_key, state, after, "CANCELLED", "", None, now_ms, txn,
                        detail="the job was deleted")  # fmt: skip
    else:
        told = detail or reason
        moved = _moved(job_key, state, after, waiting, after.reason, now_ms, txn, detail=told)
    return _replace(moved, freed=execution.worker)


def outlives_its_job(state: JobState, execution: OpenExecution) -> bool:
    """Whether the job that it was claimed for is deleted, be there a new one of its name or not:
    what runs may finish, but nothing is begun any more."""
    began_with = execution.definition
    return state.status == "DELETED" or (began_with is not None and began_with.life != state.life)


def is_held(state: JobState, execution: OpenExecution) -> bool:
    """Whether a pause holds it while it has no lease. What was triggered since then goes on: a
    trigger is due when it was appended, as the pause was."""
    if state.status != "PAUSED":
        return False
    triggered = execution.occurrence[_TRIGGER_AT] == "~m"
    since_ms = state.hold.since_ms if state.hold is not None else 0
    return not (triggered and execution.due_at >= since_ms)


_TRIGGER_AT: Final = slice(-10, -8)
"""Where the occurrence key of a trigger differs from that of a tick."""


def expired(
    job_key: str, state: JobState, execution: OpenExecution, now_ms: int, txn: int
) -> Moved:
    """No outcome, and the lease is over: deliver again, or give up after too many."""
    if execution.state == "CLOSING":
        return _closed(job_key, state, execution, execution.reason, "", None, now_ms, txn)
    if execution.lost + 1 >= MAX_DELIVERIES:
        after = _replace(execution, lost=execution.lost + 1)
        return _closed(
            job_key, state, after, "DEAD", "deliveries", None, now_ms, txn,
            detail=f"{after.lost} leases were lost without an outcome",
        )  # fmt: skip
    return _again(job_key, state, execution, "", "the lease was lost", now_ms, txn, lost=1)


# --- commands ---------------------------------------------------------------------------------


def cancel(
    job_key: str, state: JobState, execution: OpenExecution, now_ms: int, txn: int, note: str
) -> Moved:
    """End it: at once while it waits; a leased one is terminal now and closed when its worker
    says so, or when the lease runs out."""
    if execution.state == "CLOSING":
        return Moved(state, None, tell="cancel")
    if not execution.leased:
        return _closed(job_key, state, execution, "CANCELLED", "", None, now_ms, txn, detail=note)
    after = _replace(execution, state="CLOSING", reason="CANCELLED")
    moved = _moved(job_key, state, after, "CANCELLED", "", now_ms, txn, detail=note)
    return _replace(moved, tell="cancel")


def held_by_pause(
    job_key: str, state: JobState, execution: OpenExecution, now_ms: int, txn: int
) -> Moved:
    """A job was paused: what waits is held; what is leased but not begun is asked back."""
    if execution.state == "QUEUED":
        after = _replace(execution, state="PENDING", reason="paused")
        return _moved(job_key, state, after, "PENDING", "paused", now_ms, txn)
    return _asked_back(state, execution)


def _asked_back(state: JobState, execution: OpenExecution) -> Moved:
    begun = execution.state != "RUNNING" or execution.named
    return Moved(state, None, tell="" if begun else "revoke")


def released_by_resume(
    job_key: str, state: JobState, execution: OpenExecution, now_ms: int, txn: int
) -> Moved:
    """The job goes on, and so does what it held."""
    if execution.state != "PENDING":
        return Moved(state, None)
    after = _replace(execution, state="QUEUED", reason="")
    return _moved(job_key, state, after, "QUEUED", "", now_ms, txn)


def ended_by_delete(
    job_key: str, state: JobState, execution: OpenExecution, now_ms: int, txn: int
) -> Moved:
    """The job is gone: what waits is cancelled, what runs finishes and is recorded."""
    if execution.state in ("QUEUED", "PENDING"):
        return _closed(job_key, state, execution, "CANCELLED", "", None, now_ms, txn,
                       detail="the job was deleted")  # fmt: skip
    return _asked_back(state, execution)


def too_late(execution: OpenExecution, definition: JobDefinition | None, now_ms: int) -> bool:
    """Whether it would be leased for the first time after its job's `start_deadline`."""
    policy = definition.policy if definition is not None else None
    if policy is None or not policy.start_deadline_ms:
        return False
    first = execution.attempt == 1 and execution.delivery == 0
    return first and now_ms - execution.due_at > policy.start_deadline_ms


def missed_deadline(
    job_key: str, state: JobState, execution: OpenExecution, now_ms: int, txn: int
) -> Moved:
    """It waited past its job's `start_deadline`: it does not run any more."""
    return _closed(job_key, state, execution, "MISSED", "deadline", None, now_ms, txn)


def failed(
    job_key: str, state: JobState, execution: OpenExecution, now_ms: int, txn: int, detail: str
) -> Moved:
    """Deciding about it raised: it ends here, and so does what a worker may have begun."""
    moved = _closed(
        job_key, state, execution,
        execution.reason if execution.state == "CLOSING" else "FAILED", "error", None, now_ms, txn,
        detail=detail,
    )  # fmt: skip
    return _replace(moved, tell="cancel" if execution.leased else "")


# --- events -----------------------------------------------------------------------------------


def _moved(
    job_key: str, state: JobState, after: OpenExecution, shown: str, reason: str, now_ms: int,
    txn: int, *, detail: str = "",
) -> Moved:  # fmt: skip
    numbered = _replace(with_open(state, after), txn=txn, sequence=state.sequence + 1)
    return Moved(numbered, _event(job_key, numbered, after, shown, reason, now_ms, detail))


def _closed(
    job_key: str, state: JobState, execution: OpenExecution, outcome: str, reason: str,
    report: Report | None, now_ms: int, txn: int, *, detail: str = "",
) -> Moved:  # fmt: skip
    """Terminal, and the lease is closed: nothing of it stays in the job's record. Where the
    terminal state was decided before, the event only says that the lease is closed."""
    if execution.state == "CLOSING":
        reason = LEASE_CLOSED
    numbered = _replace(state, open=_others(state, execution), txn=txn, sequence=state.sequence + 1)
    if report is None:
        event = _event(job_key, numbered, execution, outcome, reason, now_ms, detail)
    else:
        event = _event(
            job_key, numbered, execution, outcome, reason, now_ms, detail or report.detail,
            report.started_at, report.finished_at, report.result,
        )  # fmt: skip
    failed = outcome in ("FAILED", "DEAD")
    return Moved(numbered, event, execution.worker, dead_letter=failed)


def _event(
    job_key: str, state: JobState, execution: OpenExecution, shown: str, reason: str,
    now_ms: int, detail: str, started_at: int = 0, finished_at: int = 0, result: bytes = b"",
) -> ExecutionMoved:  # fmt: skip
    tenant, _, job = job_key.partition("/")
    return ExecutionMoved(
        tenant=tenant, job=job, life=state.life, sequence=state.sequence,
        execution_id=execution.execution_id, scheduled_at=execution.scheduled_at,
        due_at=execution.due_at, claimed_at=execution.claimed_at, version=execution.version,
        attempt=execution.attempt, delivery=execution.delivery, lost=execution.lost,
        started_at=started_at or execution.started_at, finished_at=finished_at,
        result=result[:RESULT_BYTES_MAX], detail=detail[:DETAIL_CHARS_MAX], txn=state.txn,
        at=now_ms, state=shown, reason=reason, pool=execution.pool, handler=execution.handler,
        worker=execution.worker, lease_until=execution.lease_until,
    )  # fmt: skip


def definition_of(execution: OpenExecution, current: JobDefinition | None) -> JobDefinition | None:
    """The definition that the execution began with."""
    return execution.definition if execution.definition is not None else current


def pin(state: JobState, definition: JobDefinition) -> JobState:
    """Keep the definition with the executions that began with it, before the job gets another."""
    if not state.open:
        return state
    pinned = tuple(
        _replace(e, definition=definition) if e.definition is None else e for e in state.open
    )
    return _replace(state, open=pinned)
