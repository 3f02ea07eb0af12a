"""The short way for what nearly every tick is: on time, of an active job, into a topic there is.

It decides and writes what `core.job.decide_tick` and `Firing` would, record for record (a test
holds them equal), with what the ticks of one step have in common worked out once, and identity in
bytes throughout. Whatever is not plain is left to them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from schemas.bindings import EXECUTION_FIRED, JOB_STATE
from schemas.encoder import compile_parts, encode_long
from schemas.registry import registered
from schemas.state import JobState
from schemas.units import format_instant
from streams.binding import DueEntryCrashed
from streams.ports import Produced
from streams.transaction import Transaction

from .core.job import Job, following_run
from .core.keys import DUE, KIND_AT, STATE, TENANT_AT, Kind, due_form, due_stamp
from .firing import ATTEMPT_SUFFIX, FIRST_ATTEMPT, FIRST_DELIVERY, SPECVERSION, TYPE, Firing, Header
from .jobs import Step
from .targets import TopicTargets

_event, _times, _version, _ = compile_parts(
    registered("ExecutionFired").schema, EXECUTION_FIRED.prefix,
    "scheduled_at", "version", "txn", encoded=True,
)  # fmt: skip
_state_txn, _state_own, _state_shared, _, _state_end = compile_parts(
    registered("JobState").schema, JOB_STATE.prefix, "life", "status", "runs", "forget_ms"
)
_NOTHING_ELSE: Final = (None, (), (), 0)
_TICK: Final = int(Kind.TICK)


class _Tick(NamedTuple):
    """What follows from the tick of one time, for all jobs with the same schedules."""

    plan: object
    """Kept so that its identity stays its own."""
    tolerance_ms: int
    status: str
    next_ms: int
    local: str
    forget_ms: int
    suffix: bytes
    scheduled: Header
    times: bytes
    state: bytes
    state_end: bytes
    stamp: bytes
    milliseconds: bytes
    due: bytes


class _Target(NamedTuple):
    partition: int
    tail: bytes


class PlainFires:
    """Fires plain ticks of one partition."""

    def __init__(
        self, *, executions: str, job_state: str, source: bytes, tz: str, targets: TopicTargets,
        firing: Firing,
    ) -> None:  # fmt: skip
        self._executions = executions
        self._job_state = job_state
        self._source: Header = ("ce_source", source)
        self._tz = tz
        self._targets = targets
        self._firing = firing
        self._ticks: dict[tuple[int, int], _Tick] = {}
        self._topics: dict[str, _Target | None] = {}
        self._step = (-1, -1)

    def fire(
        self,
        txn: Transaction,
        entries: Sequence[bytes],
        job_keys: Sequence[bytes],
        held: Mapping[bytes, Job],
        now_ms: int,
        decide: Callable[[bytes, bytes], None],
    ) -> None:
        """Fire what is plain among these due entries; let `decide` have the others in their turn.
        Raises `DueEntryCrashed`."""
        refused = self._targets.refused_any
        step, firing, seq, partition = Step.of(txn), self._firing, txn.seq, txn.partition
        if self._step != (seq, now_ms):
            self._step = (seq, now_ms)
            self._ticks.clear()
            self._topics.clear()
        new, index = step.jobs, step.index.append
        records, writes = txn.records.append, txn.writes
        ticks, topics, tz = self._ticks, self._topics, self._tz
        executions, job_state, source = self._executions, self._job_state, self._source
        began, fires, size = False, 0, 0
        head = _state_txn(seq)
        for entry, job_key in zip(entries, job_keys, strict=True):
            try:
                job = held.get(job_key)
                if job is None or entry[KIND_AT] != _TICK or job_key in new or refused:
                    decide(entry, job_key)
                    continue
                state, definition = job.state, job.definition
                tick_ms = state.due_ms
                if (
                    definition is None or (target := definition.topic) is None
                    or target.key is not None or state.open or state.status != "ACTIVE"
                    or state.hold is not None or state.next_ms != tick_ms
                    or state.cursor_ms >= tick_ms or definition.policy is not None
                ):  # fmt: skip
                    decide(entry, job_key)
                    continue
                tick = ticks.get((id(job.plan), tick_ms))
                if tick is None:
                    tick = ticks[id(job.plan), tick_ms] = self._tick(job, tick_ms, now_ms)
                tenant, _, own = job_key.partition(b"/")
                ms_at = TENANT_AT + len(tenant) + 1
                if entry[:TENANT_AT] != tick.stamp or entry[ms_at : ms_at + 2] != tick.milliseconds:
                    decide(entry, job_key)
                    continue
                if not began:
                    began = True
                    firing.begin(seq, now_ms)
                    time = firing.time
                name = target.name
                if name in topics:
                    place = topics[name]
                else:
                    place = topics[name] = self._place(name, seq, now_ms)
                late_ms = now_ms - tick_ms
                if (
                    place is None or late_ms < 0 or late_ms > tick.tolerance_ms
                    or late_ms > definition.late_tolerance_ms
                ):  # fmt: skip
                    decide(entry, job_key)
                    continue
                # The claim.
                sequence, runs = state.sequence + 1, state.runs + 1
                occurrence = job_key + tick.suffix
                identity = occurrence + ATTEMPT_SUFFIX
                event = b"%b%b%b%b" % (
                    _event(tenant, own, state.life, sequence, identity), tick.times,
                    _version(definition.version), place.tail,
                )  # fmt: skip
                records(Produced(executions, partition, b"%b#%d" % (identity, sequence), event))
                # The target's record.
                fires += 1
                firing.fence += 1
                content = firing.types.get(definition.content_type)
                if content is None:
                    content = firing.content_type(definition.content_type)
                headers = [
                    content, SPECVERSION, ("ce_id", identity), source, TYPE,
                    ("ce_subject", job_key), time, ("Idempotency-Key", identity),
                    ("X-Deduplication-Key", occurrence), FIRST_ATTEMPT, FIRST_DELIVERY,
                    tick.scheduled, ("X-Horolog-Fence", b"%d" % firing.fence),
                ]  # fmt: skip
                if target.headers:
                    headers += [(key, text.encode()) for key, text in target.headers.items()]
                payload = definition.payload
                records(Produced(name, place.partition, None, payload, headers, identity.decode()))
                txn.targets.add(name)
                # The state.
                after = JobState(
                    txn=seq, life=state.life, version=state.version, sequence=sequence,
                    status=tick.status, cursor_ms=tick_ms, cursor_local=tick.local,  # type: ignore[arg-type]
                    next_ms=tick.next_ms, due_ms=tick.next_ms, tz=tz, runs=runs,
                    forget_ms=tick.forget_ms, ids=state.ids,
                )  # fmt: skip
                value = JOB_STATE.encode(after) if state.ids else b"%b%b%b%b%b" % (
                    head, _state_own(state.life, state.version, sequence), tick.state,
                    encode_long(runs), tick.state_end,
                )  # fmt: skip
                records(Produced(job_state, partition, job_key, value))
                due = tick.due % (tenant, own)
                writes[STATE + job_key] = value
                writes[entry] = None
                writes[due] = b""
                index(due)
                new[job_key] = Job(after, definition, job.plan)
                size += len(event) + len(value) + len(payload) + 400
            except Exception as error:
                raise DueEntryCrashed(entry, repr(error)) from error
        step.fires += fires
        txn.bytes += size

    def _tick(self, job: Job, tick_ms: int, now_ms: int) -> _Tick:
        run = following_run(job.plan, tick_ms, now_ms)
        next_ms, forget_ms = run.next_ms, run.forget_ms
        text = format_instant(tick_ms).encode()
        kind, due_ms = (Kind.TICK, next_ms) if next_ms else (Kind.FORGET, forget_ms)
        stamp, milliseconds = due_stamp(tick_ms)
        status = "ACTIVE" if next_ms else "FINISHED"
        return _Tick(
            plan=job.plan, tolerance_ms=next_ms - tick_ms if next_ms else 1 << 62, status=status,
            next_ms=next_ms, local=run.local, forget_ms=forget_ms, suffix=b":" + text,
            scheduled=("X-Horolog-Scheduled-At", text), times=_times(tick_ms, tick_ms),
            state=_state_shared(status, tick_ms, run.local, next_ms, next_ms, self._tz),
            state_end=_state_end(forget_ms, *_NOTHING_ELSE), stamp=DUE + stamp,
            milliseconds=milliseconds, due=due_form(due_ms, kind),
        )  # fmt: skip

    def _place(self, topic: str, txn: int, now_ms: int) -> _Target | None:
        """Where records without key go in this step; None: the topic cannot take any."""
        partition, problem = self._targets.unkeyed(topic, now_ms)
        if problem:
            return None
        return _Target(partition, self._firing.tail(txn, now_ms, topic, partition, problem))
