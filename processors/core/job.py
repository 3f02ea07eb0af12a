"""The life of a job: every decision, as pure functions over frozen values.

    ACTIVE ──pause──▶ PAUSED ──resume──▶ ACTIVE        put keeps PAUSED
    ACTIVE ──no tick can follow──▶ FINISHED            put with ticks: ACTIVE again
    ACTIVE ──a decision raised──▶ BROKEN ──resume or put──▶ ACTIVE
    any ──delete──▶ DELETED ──put──▶ a new life        DELETED, FINISHED ──forget──▶ gone

Commands may be refused (`Refusal`); ticks may not. `now_ms` is the owner's clock, `at_ms` a
command's append time. Nothing here reads a clock, draws a number or does I/O.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from schemas.events import JobChanged, TicksMissed
from schemas.limits import (
    FORGET_DELETED_MS,
    KEEP_FINISHED_MS,
    KEEP_FINISHED_ONE_OFF_MS,
    MISSED_COUNT_MAX,
)
from schemas.replies import Problem
from schemas.state import Hold, JobDefinition, JobState, OpenExecution
from schemas.units import format_instant

from .executions import pin
from .keys import (
    Kind,
    due_key,
    occurrence_of_tick,
    occurrence_of_trigger,
    queue_key,
    split_job_key,
)
from .policy_spec import one_off_instant
from .schedule import (
    AtSchedule,
    EverySchedule,
    Planned,
    Tick,
    count_ticks,
    jitter_ms,
    next_tick,
    next_tick_from,
)
from .spec import plan_of

_replace: Final = msgspec.structs.replace


class Job(msgspec.Struct, frozen=True, gc=False):
    """A job as its owner holds it; `plan` is the definition's schedules, ready to be asked."""

    state: JobState
    definition: JobDefinition | None
    plan: tuple[Planned, ...]


class Fire(msgspec.Struct, frozen=True, gc=False):
    """An occurrence to be run now. `execution_id` is occurrence key and attempt, `sequence` that of
    its event."""

    occurrence: str
    execution_id: str
    scheduled_at: int
    due_at: int
    sequence: int
    payload: bytes | None = None


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What became of a job. `state` None: it is forgotten. `definition` None: as before, unless
    `undefined`, which takes it away."""

    state: JobState | None
    definition: JobDefinition | None = None
    undefined: bool = False
    changed: JobChanged | None = None
    missed: tuple[TicksMissed, ...] = ()
    fires: tuple[Fire, ...] = ()


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a command takes no effect; `kind` is one of the stable names."""

    kind: str
    message: str
    problems: tuple[Problem, ...] = ()


def index_entries(tenant: bytes, job: bytes, state: JobState) -> list[bytes]:
    """Index keys that follow from a state, due index and queue; the whole index is these."""
    entries = []
    if state.due_ms:
        entries.append(due_key(state.due_ms, tenant, job, Kind.TICK))
    if state.forget_ms:
        entries.append(due_key(state.forget_ms, tenant, job, Kind.FORGET))
    for execution in state.open:
        entry = _entry_of(execution, tenant, job)
        if entry is not None:
            entries.append(entry)
    return entries


def _entry_of(e: OpenExecution, tenant: bytes, job: bytes) -> bytes | None:
    if e.lease_until:
        return due_key(e.lease_until, tenant, job, Kind.LEASE, e.ordinal)
    if e.state == "QUEUED":
        return queue_key(e.pool, e.handler, tenant, e.due_at, job, e.ordinal)
    return None


def index_changes(
    tenant: bytes, job: bytes, before: JobState | None, after: JobState | None
) -> tuple[list[bytes], list[bytes]]:
    """Index keys that go and that come when one state follows another; None: there is none."""
    if before is None:
        return [], index_entries(tenant, job, after) if after is not None else []
    if after is None:
        return index_entries(tenant, job, before), []
    gone, new = [], []
    if before.due_ms != after.due_ms:
        if before.due_ms:
            gone.append(due_key(before.due_ms, tenant, job, Kind.TICK))
        if after.due_ms:
            new.append(due_key(after.due_ms, tenant, job, Kind.TICK))
    if before.forget_ms != after.forget_ms:
        if before.forget_ms:
            gone.append(due_key(before.forget_ms, tenant, job, Kind.FORGET))
        if after.forget_ms:
            new.append(due_key(after.forget_ms, tenant, job, Kind.FORGET))
    if before.open is not after.open:
        had = [_entry_of(e, tenant, job) for e in before.open]
        has = [_entry_of(e, tenant, job) for e in after.open]
        gone += [entry for entry in had if entry is not None and entry not in has]
        new += [entry for entry in has if entry is not None and entry not in had]
    return gone, new


# --- ticks ------------------------------------------------------------------------------------


def decide_tick(
    job_key: str, job: Job, now_ms: int, txn: int, tz: str, upto_ms: int | None = None
) -> Decision:
    """Decide the job's next tick, which is due, and with it every tick passed over with it: those
    up to now, or up to `upto_ms`, behind which a command acts.

    A tick within `late_tolerance` (never more than the distance to the next one) simply runs. Of
    those passed over only the newest runs (`missed: latest`), the others become one record.
    """
    state, definition = job.state, job.definition
    assert definition is not None and 0 < state.due_ms <= now_ms
    tick_ms, offset_ms, accepted_ms = state.next_ms, state.due_ms - state.next_ms, 0
    if state.status == "PAUSED":
        return missed_while_paused(job_key, job, tick_ms, now_ms, txn, tz)
    if offset_ms and any(one.at_ms == tick_ms for one in one_offs(job.plan)):
        offset_ms, accepted_ms = 0, state.due_ms  # accepted after its time: due at the acceptance
    following = following_tick(job, tick_ms, accepted_ms)
    tolerance_ms = definition.late_tolerance_ms
    if following is not None:
        from_ms = accepted_ms if tick_ms < accepted_ms < following.at_ms else tick_ms
        tolerance_ms = min(tolerance_ms, following.at_ms - from_ms)
    missed: tuple[TicksMissed, ...] = ()
    sequence = state.sequence
    if now_ms - state.due_ms > tolerance_ms:
        until_ms = (now_ms if upto_ms is None else upto_ms) - offset_ms
        count, last_ms = count_from(job, tick_ms, accepted_ms, until_ms)
        if last_ms > tick_ms:
            before, before_ms = count_from(job, tick_ms, accepted_ms, last_ms - 1)
            sequence += 1
            missed = (
                missed_record(job_key, state, definition, sequence, txn, now_ms, "policy",
                        tick_ms, before_ms, before, count <= MISSED_COUNT_MAX),
            )  # fmt: skip
            tick_ms, following = last_ms, following_tick(job, last_ms, accepted_ms)
    occurrence = occurrence_of_tick(job_key, tick_ms)
    due_ms = max(tick_ms + offset_ms, accepted_ms)
    fire = Fire(occurrence, occurrence + ":1", tick_ms, due_ms, sequence + 1)
    after = _moved(job, state, tick_ms, following, offset_ms, now_ms, txn, tz, sequence + 1)
    return Decision(after, missed=missed, fires=(fire,))


class FollowingRun(msgspec.Struct, frozen=True, gc=False):
    """What follows from a run on time, for every active job of the same schedules: the next tick
    (0: none), the local time of this one, and until when the job is remembered then."""

    next_ms: int
    local: str
    forget_ms: int


def following_run(plan: tuple[Planned, ...], tick_ms: int, now_ms: int) -> FollowingRun:
    """What `decide_tick` makes of a tick that is on time and due at its own time."""
    following = next_tick(plan, tick_ms)
    next_ms = following.at_ms if following is not None else 0
    forget_ms = now_ms + _keep_ms(plan) if following is None else 0
    return FollowingRun(next_ms, local_of(plan, tick_ms), forget_ms)


def _moved(
    job: Job,
    state: JobState,
    decided_ms: int,
    following: Tick | None,
    offset_ms: int,
    now_ms: int,
    txn: int,
    tz: str,
    sequence: int,
) -> JobState:
    """The state after a run: the cursor on `decided_ms`, the following tick planned."""
    local = local_of(job.plan, decided_ms)
    if decided_ms < state.cursor_ms:  # a late one-off: the cursor never moves back
        decided_ms, local = state.cursor_ms, state.cursor_local
    if following is not None:
        due_ms = following.at_ms + offset_ms
        return _replace(
            state, txn=txn, sequence=sequence, cursor_ms=decided_ms, cursor_local=local,
            next_ms=following.at_ms, due_ms=max(due_ms, state.due_ms), tz=tz,
            runs=state.runs + 1,
        )  # fmt: skip
    finished = state.status == "ACTIVE"
    return _replace(
        state, txn=txn, sequence=sequence, cursor_ms=decided_ms, cursor_local=local,
        next_ms=0, due_ms=0, tz=tz, runs=state.runs + 1,
        status="FINISHED" if finished else state.status,
        forget_ms=now_ms + _keep_ms(job.plan) if finished else 0,
    )  # fmt: skip


def keep_ms(job: Job) -> int:
    """How long a job that has ended is remembered."""
    return FORGET_DELETED_MS if job.state.status == "DELETED" else _keep_ms(job.plan)


def _keep_ms(plan: Iterable[Planned]) -> int:
    one_off = all(isinstance(schedule, AtSchedule) for schedule in plan)
    return KEEP_FINISHED_ONE_OFF_MS if one_off else KEEP_FINISHED_MS


def following_tick(job: Job, after_ms: int, accepted_ms: int) -> Tick | None:
    """The tick after `after_ms`. Those of recurring schedules also lie after the acceptance."""
    if accepted_ms <= after_ms:
        return next_tick(job.plan, after_ms)
    late = next_tick(one_offs(job.plan), after_ms)
    if late is not None and late.at_ms <= accepted_ms:
        return late
    return next_tick(job.plan, accepted_ms)


def count_from(job: Job, first_ms: int, accepted_ms: int, upto_ms: int) -> tuple[int, int]:
    """How many ticks lie from the tick `first_ms` to `upto_ms`, and the last of them."""
    limit = MISSED_COUNT_MAX + 1
    if accepted_ms < first_ms:
        count, _, last_ms = count_ticks(job.plan, first_ms - 1, upto_ms, limit=limit)
        return count, last_ms or first_ms
    late = {one.at_ms for one in one_offs(job.plan) if first_ms <= one.at_ms <= accepted_ms}
    late = {at_ms for at_ms in late if at_ms <= upto_ms} or {first_ms}
    count, _, last_ms = count_ticks(job.plan, accepted_ms, upto_ms, limit=limit)
    return count + len(late), last_ms or max(late)


def local_of(plan: tuple[Planned, ...], at_ms: int) -> str:
    """Local time, fold and zone of a tick; empty where it came from no zone's clock."""
    if len(plan) == 1 and isinstance(plan[0], EverySchedule | AtSchedule):
        return ""
    tick = next_tick(plan, at_ms - 1)
    if tick is None or tick.at_ms != at_ms or not tick.zone:
        return ""
    return f"{tick.local} {tick.fold} {tick.zone}"


def _cursor(state: JobState) -> Tick:
    parts = state.cursor_local.split(" ")
    if len(parts) != 3:
        return Tick(state.cursor_ms)
    return Tick(state.cursor_ms, parts[0], int(parts[1]), parts[2])


def missed_record(
    job_key: str, state: JobState, definition: JobDefinition, sequence: int, txn: int,
    now_ms: int, reason: str, first_ms: int, last_ms: int, count: int, exact: bool = True,
    detail: str = "",
) -> TicksMissed:  # fmt: skip
    tenant, _, job = job_key.partition("/")
    return TicksMissed(
        tenant=tenant, job=job, life=state.life, sequence=sequence, txn=txn, first=first_ms,
        last=last_ms, count=count, exact=exact, reason=reason, detail=detail, claimed_at=now_ms,
        version=definition.version,
    )  # fmt: skip


def missed_while_paused(
    job_key: str, job: Job, tick_ms: int, now_ms: int, txn: int, tz: str
) -> Decision:
    """Only one-offs are due while a job is paused: their time passes, which is recorded."""
    state, definition = job.state, job.definition
    assert definition is not None
    sequence = state.sequence + 1
    record = missed_record(
        job_key, state, definition, sequence, txn, now_ms, "paused", tick_ms, tick_ms, 1
    )
    following = next_tick(one_offs(job.plan), tick_ms)
    moved = tick_ms > state.cursor_ms
    after = _replace(
        state, txn=txn, sequence=sequence, cursor_ms=tick_ms if moved else state.cursor_ms,
        cursor_local="" if moved else state.cursor_local, tz=tz,
        next_ms=following.at_ms if following else 0,
        due_ms=max(following.at_ms, state.due_ms) if following else 0,
    )  # fmt: skip
    return Decision(after, missed=(record,))


def one_offs(plan: tuple[Planned, ...]) -> tuple[AtSchedule, ...]:
    return tuple(schedule for schedule in plan if isinstance(schedule, AtSchedule))


def break_job(job_key: str, job: Job, now_ms: int, txn: int, detail: str) -> Decision:
    """A decision about this job raised: take it out of service, visibly and resumably. The tick
    that was being decided is recorded as missed, without asking the schedule again."""
    state, definition = job.state, job.definition
    sequence = state.sequence + 1
    missed: tuple[TicksMissed, ...] = ()
    cursor_ms = state.cursor_ms
    if definition is not None and state.next_ms:
        cursor_ms = max(cursor_ms, state.next_ms)
        missed = (
            missed_record(job_key, state, definition, sequence, txn, now_ms, "error",
                    state.next_ms, state.next_ms, 1, True, detail[:500]),
        )  # fmt: skip
        sequence += 1
    hold = Hold(reason="decision", since_ms=now_ms, note=detail[:500])
    after = _replace(
        state, txn=txn, sequence=sequence, status="BROKEN", hold=hold, cursor_ms=cursor_ms,
        cursor_local="", next_ms=0, due_ms=0, forget_ms=0,
    )  # fmt: skip
    changed = _changed(job_key, after, "break", now_ms, reason="decision", note=detail[:500])
    return Decision(after, changed=changed, missed=missed)


def forget(job: Job) -> Decision | None:
    """The time to remember a deleted or finished job is over; None when it lives again."""
    if job.state.status not in ("DELETED", "FINISHED") or job.state.open:
        return None
    return Decision(None, undefined=True)


# --- commands ---------------------------------------------------------------------------------


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A command's circumstances, the same for every kind."""

    at_ms: int
    now_ms: int
    txn: int
    tz: str
    by: str = ""
    note: str = ""
    command_id: str = ""
    if_match: int | None = None


def put(
    job_key: str,
    job: Job | None,
    definition: JobDefinition,
    plan: tuple[Planned, ...],
    asked: Asked,
) -> Decision | Refusal:
    """Create or replace. `definition` comes admitted, with version and life still open; the same
    content as the present one changes nothing (a Decision without `changed`)."""
    state = job.state if job is not None else None
    alive = state is not None and state.status != "DELETED"
    refusal = _unmatched(state.version if state is not None and alive else 0, asked.if_match)
    if refusal is not None:
        return refusal
    old = job.definition if alive and job is not None else None
    if state is not None:
        refusal = _decided_already(definition, old, state.cursor_ms)
        if refusal is not None:
            return refusal
    if alive and job is not None and job.definition is not None:
        if job.definition.digest == definition.digest and job.state.status != "BROKEN":
            return Decision(job.state)
        if job.state.status != "FINISHED":  # whose `now` and `in` are asked for once more
            definition, plan = _keep_anchors(definition, job.definition)
        state = pin(job.state, job.definition)
    if state is None or not alive:
        state = _new_life(state, asked.txn)
    version = state.version + 1
    definition = _replace(definition, txn=asked.txn, life=state.life, version=version)
    status, hold = ("PAUSED", state.hold) if state.status == "PAUSED" else ("ACTIVE", None)
    ticking = state.status in ("ACTIVE", "PAUSED")
    same = job is not None and alive and ticking and plan == job.plan
    if same and (old is None or (old.policy is None) == (definition.policy is None)):
        after = _replace(
            state, txn=asked.txn, version=version, due_ms=_due_as_before(state, old, definition)
        )
    else:
        planned = plan if status == "ACTIVE" else one_offs(plan)
        tick = _first(planned, state, definition, asked)
        after = _planned(
            _replace(state, txn=asked.txn, version=version, status=status, hold=hold, tz=asked.tz,
                     forget_ms=0),
            definition, tick, max(asked.at_ms, state.cursor_ms),
        )  # fmt: skip
    if after.status == "ACTIVE" and (not after.next_ms or runs_out(after, definition)):
        after = finished(after, plan, asked.now_ms)
    after, missed = _left_behind(job_key, job, after, asked, "policy")
    after = _replace(after, sequence=after.sequence + 1)
    changed = _changed_by(job_key, after, "put", asked, definition)
    return Decision(after, definition=definition, changed=changed, missed=missed)


def offset_of(definition: JobDefinition) -> int:
    """The job's own delay behind its nominal times."""
    policy = definition.policy
    if policy is None or not policy.jitter_ms:
        return 0
    return jitter_ms(definition.tenant, definition.job, policy.jitter_ms)


def runs_out(state: JobState, definition: JobDefinition) -> bool:
    """Whether the job has claimed as many ticks as it may."""
    policy = definition.policy
    return policy is not None and 0 < policy.max_runs <= state.runs


def _planned(
    state: JobState, definition: JobDefinition, tick: Tick | None, accepted_ms: int
) -> JobState:
    """The state with `tick` as the next one: due at its time and the job's delay, or at the
    acceptance where that comes after its time."""
    if tick is None:
        return _replace(state, next_ms=0, due_ms=0, since_ms=0)
    late = tick.at_ms <= accepted_ms
    return _replace(
        state, next_ms=tick.at_ms,
        due_ms=accepted_ms if late else tick.at_ms + offset_of(definition),
        since_ms=accepted_ms if late and definition.policy is not None else 0,
    )  # fmt: skip


def _due_as_before(state: JobState, old: JobDefinition | None, new: JobDefinition) -> int:
    """Of the same next tick; only the job's delay may be another one."""
    if old is None or not state.due_ms or state.status == "PAUSED":
        return state.due_ms
    before_ms, now_ms = offset_of(old), offset_of(new)
    if before_ms == now_ms or state.next_ms <= state.since_ms:
        return state.due_ms
    return state.next_ms + now_ms


def finished(state: JobState, plan: tuple[Planned, ...], now_ms: int) -> JobState:
    return _replace(
        state, status="FINISHED", next_ms=0, due_ms=0, since_ms=0,
        forget_ms=now_ms + _keep_ms(plan),
    )  # fmt: skip


def _left_behind(
    job_key: str, job: Job | None, after: JobState, asked: Asked, reason: str
) -> tuple[JobState, tuple[TicksMissed, ...]]:
    """Ticks whose nominal time has passed and that are not decided yet, because of jitter or
    because they are being caught up, are given up where a command takes them from the plan."""
    if job is None or job.definition is None or job.definition.policy is None:
        return after, ()
    state = job.state
    first_ms, upto_ms = state.next_ms, asked.at_ms
    if state.status != "ACTIVE" or not 0 < first_ms <= upto_ms or first_ms == after.next_ms:
        return after, ()
    spans = [(first_ms, upto_ms)]
    if first_ms < after.next_ms <= upto_ms:  # a late one-off of the new plan runs all the same
        spans = [(first_ms, after.next_ms - 1), (after.next_ms + 1, upto_ms)]
    records: list[TicksMissed] = []
    for low_ms, high_ms in spans:
        if low_ms == first_ms:
            span_ms: int | None = first_ms
            count, last_ms = count_from(job, first_ms, state.since_ms, high_ms)
        else:
            count, span_ms, last = count_ticks(
                job.plan, max(low_ms - 1, state.since_ms), high_ms, limit=MISSED_COUNT_MAX + 1
            )
            last_ms = last or 0
        if count and span_ms is not None:
            after = _replace(
                after, sequence=after.sequence + 1, cursor_ms=max(after.cursor_ms, last_ms)
            )
            record = missed_record(
                job_key, after, job.definition, after.sequence, asked.txn, asked.now_ms, reason,
                span_ms, last_ms, count, count <= MISSED_COUNT_MAX,
                "not decided yet when the job was changed",
            )  # fmt: skip
            records.append(record)
    return _replace(after, cursor_local=""), tuple(records)


def _first(
    plan: tuple[Planned, ...], state: JobState, definition: JobDefinition, asked: Asked
) -> Tick | None:
    """The first tick of new schedules: after the acceptance, one-offs up to `late_tolerance`
    before it, and never one that was decided already or lies before the cursor."""
    oldest_ms = max(asked.at_ms - definition.late_tolerance_ms, state.cursor_ms + 1)
    late = (
        schedule.at_ms for schedule in one_offs(plan) if oldest_ms <= schedule.at_ms <= asked.at_ms
    )
    if (late_ms := min(late, default=None)) is not None:
        return Tick(late_ms)
    tick = next_tick(plan, asked.at_ms)
    if tick is not None and tick.at_ms <= state.cursor_ms:
        return next_tick_from(plan, _cursor(state))
    return tick


def _decided_already(
    new: JobDefinition, old: JobDefinition | None, cursor_ms: int
) -> Refusal | None:
    """Refuse a new one-off that cannot be told from one that ran: only the last decided tick is
    remembered, and no tick is decided twice."""
    known = {stored.written for stored in old.schedules} if old is not None else set()
    problems = tuple(
        Problem(
            f"schedules[{n}].at",
            f"{format_instant(stored.at_ms)} is not after the job's last decided tick, "
            f"{format_instant(cursor_ms)}",
            "now",
        )
        for n, stored in enumerate(new.schedules)
        if stored.kind == "at"
        and stored.written not in known
        and one_off_instant(stored.at_ms, new.policy) <= cursor_ms
    )
    if not problems:
        return None
    return Refusal("invalid", "the definition is not valid", problems)


def _new_life(stub: JobState | None, txn: int) -> JobState:
    """Version, sequence, cursor and command ids go on while the stub of a deleted job is there."""
    if stub is None:
        return JobState(txn=txn, life=txn, version=0, sequence=0, status="ACTIVE")
    return JobState(
        txn=txn, version=stub.version, sequence=stub.sequence, status="ACTIVE",
        life=max(txn, stub.life + 1),  # it may have been created and deleted in this transaction
        cursor_ms=stub.cursor_ms, cursor_local=stub.cursor_local, ids=stub.ids, open=stub.open,
    )  # fmt: skip


def _keep_anchors(
    new: JobDefinition, old: JobDefinition
) -> tuple[JobDefinition, tuple[Planned, ...]]:
    """A schedule that is written as before keeps what it was resolved to: an interval its anchor,
    a reminder in 40 days its day."""
    before = {stored.written: stored for stored in old.schedules}
    kept = tuple(before.get(stored.written, stored) for stored in new.schedules)
    definition = _replace(new, schedules=kept)
    return definition, plan_of(definition)


def pause(job_key: str, job: Job | None, asked: Asked) -> Decision | Refusal:
    """No ticks from now on. Pausing a paused job changes nothing."""
    if job is None or job.state.status == "DELETED":
        return _not_found(job_key)
    state = job.state
    refusal = _unmatched(state.version, asked.if_match)
    if refusal is not None:
        return refusal
    if state.status == "PAUSED":
        return Decision(state)
    if state.status == "FINISHED":
        return Refusal("finished", f"job {job_key} has finished: there is nothing to pause")
    seen_ms = min(asked.at_ms, asked.now_ms)
    tick = next_tick(one_offs(job.plan), max(state.cursor_ms, seen_ms))
    after = _replace(
        state, txn=asked.txn, status="PAUSED",
        hold=Hold(reason="paused", since_ms=asked.at_ms, by=asked.by, note=asked.note),
        next_ms=tick.at_ms if tick else 0, due_ms=tick.at_ms if tick else 0, since_ms=0,
    )  # fmt: skip
    after, missed = _left_behind(job_key, job, after, asked, "paused")
    after = _replace(after, sequence=after.sequence + 1)
    return Decision(after, changed=_changed_by(job_key, after, "pause", asked), missed=missed)


def resume(job_key: str, job: Job | None, asked: Asked) -> Decision | Refusal:
    """Ticks again, the first one after the acceptance. Resuming an active job changes nothing."""
    if job is None or job.state.status == "DELETED":
        return _not_found(job_key)
    state = job.state
    refusal = _unmatched(state.version, asked.if_match)
    if refusal is not None:
        return refusal
    if state.status in ("ACTIVE", "FINISHED"):
        return Decision(state)
    tick = next_tick(job.plan, max(asked.at_ms, state.cursor_ms))
    if 0 < state.next_ms <= asked.at_ms:  # a one-off that our clock has not come to
        tick = Tick(state.next_ms)
    after = _replace(
        state, txn=asked.txn, sequence=state.sequence + 1, status="ACTIVE", hold=None, tz=asked.tz
    )
    assert job.definition is not None
    after = _planned(after, job.definition, tick, asked.at_ms)
    if tick is None or runs_out(after, job.definition):
        after = finished(after, job.plan, asked.now_ms)
    return Decision(after, changed=_changed_by(job_key, after, "resume", asked))


def passed_while_paused(job: Job, at_ms: int) -> int:
    """How many ticks a job that is resumed at `at_ms` would have had since it was paused."""
    hold = job.state.hold
    if job.state.status != "PAUSED" or hold is None:
        return 0
    since_ms = max(hold.since_ms, job.state.cursor_ms)
    return count_ticks(job.plan, since_ms, at_ms, limit=MISSED_COUNT_MAX)[0]


def delete(job_key: str, job: Job | None, asked: Asked) -> Decision | Refusal:
    """End the job, leaving a stub that remembers what must not happen twice."""
    if job is None or job.state.status == "DELETED":
        return _not_found(job_key)
    state = job.state
    refusal = _unmatched(state.version, asked.if_match)
    if refusal is not None:
        return refusal
    after = JobState(
        txn=asked.txn, life=state.life, version=state.version, sequence=state.sequence,
        status="DELETED", cursor_ms=state.cursor_ms, cursor_local=state.cursor_local,
        runs=state.runs, forget_ms=asked.now_ms + FORGET_DELETED_MS, ids=state.ids,
        open=pin(state, job.definition).open if job.definition is not None else state.open,
    )  # fmt: skip
    after, missed = _left_behind(job_key, job, after, asked, "policy")
    after = _replace(after, sequence=after.sequence + 1)
    changed = _changed_by(job_key, after, "delete", asked)
    return Decision(after, undefined=True, changed=changed, missed=missed)


def trigger(
    job_key: str,
    job: Job | None,
    asked: Asked,
    id_hash: bytes,
    scheduled_at_ms: int | None,
    payload: bytes | None,
) -> Decision | Refusal:
    """One run beside the schedule, also of a paused or finished job."""
    if job is None or job.state.status == "DELETED" or job.definition is None:
        return _not_found(job_key)
    nominal_ms = asked.at_ms if scheduled_at_ms is None else scheduled_at_ms
    sequence = job.state.sequence + 1
    occurrence = occurrence_of_trigger(job_key, nominal_ms, id_hash)
    fire = Fire(occurrence, occurrence + ":1", nominal_ms, asked.at_ms, sequence, payload)
    after = _replace(job.state, txn=asked.txn, sequence=sequence)
    if after.status == "FINISHED":
        after = _replace(after, forget_ms=asked.now_ms + _keep_ms(job.plan))
    return Decision(after, fires=(fire,))


def _not_found(job_key: str) -> Refusal:
    return Refusal("not_found", f"there is no job {job_key}")


def _unmatched(version: int, if_match: int | None) -> Refusal | None:
    if if_match is None or if_match == version:
        return None
    now = f"is version {version}" if version else "does not exist"
    wanted = f"version {if_match}" if if_match else "no such job"
    return Refusal(
        "version_conflict",
        f"the job {now}, the command expects {wanted}",
        (Problem("if_match", f"{if_match} was expected, {version} is there",
                 "read the job again and repeat the change on what you find"),),
    )  # fmt: skip


def _changed_by(
    job_key: str,
    state: JobState,
    change: str,
    asked: Asked,
    definition: JobDefinition | None = None,
) -> JobChanged:
    return _changed(
        job_key, state, change, asked.at_ms, by=asked.by, note=asked.note,
        command_id=asked.command_id, definition=definition,
    )  # fmt: skip


def _changed(
    job_key: str,
    state: JobState,
    change: str,
    at_ms: int,
    *,
    by: str = "",
    note: str = "",
    command_id: str = "",
    reason: str = "",
    definition: JobDefinition | None = None,
) -> JobChanged:
    tenant, job = (part.decode() for part in split_job_key(job_key.encode()))
    return JobChanged(
        tenant=tenant, job=job, life=state.life, sequence=state.sequence, txn=state.txn,
        version=state.version, change=change, at_ms=at_ms, by=by, note=note,
        command_id=command_id, reason=reason, definition=definition,
    )  # fmt: skip
