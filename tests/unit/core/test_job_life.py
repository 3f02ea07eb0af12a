"""The whole life of a job, at random, against a model that lists its ticks one by one.

Commands are appended at one time and read at a later one, with or without timers in between;
processes come and go. After each step the events say what became of every tick.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schemas import limits
from schemas.commands import (
    DeleteJob,
    JobSpec,
    PauseJob,
    PutJob,
    ResumeJob,
    ScheduleSpec,
    TopicTargetSpec,
    TriggerJob,
)
from schemas.events import ExecutionFired, JobChanged, TicksMissed
from schemas.replies import Accepted, Refused
from schemas.units import format_instant, parse_instant
from tests.unit.core.owner import Owner
from tests.unit.core.tick_model import Model, Written

T0 = parse_instant("2026-03-02T10:00:00Z")
HALF = 500
KEY = "t/j"
HALVES = st.integers(-140, 240).map(lambda n: n * HALF)
RECURRING = st.one_of(
    st.sampled_from([1_000, 2_500, 7_000, 45_000, 60_000, 90_000]).map(
        lambda ms: ("every", ms, None)
    ),
    st.tuples(st.just("every"), st.sampled_from([1_000, 3_000, 60_000]), HALVES),
    st.just(("cron", 0, None)),
)
ONE_OFF = st.one_of(
    st.tuples(st.just("at"), HALVES, st.none()),
    st.tuples(st.just("at"), st.integers(-80, 0).map(lambda n: n * HALF), st.none()),
    st.integers(0, 100).map(lambda n: ("in", n * HALF, None)),
    st.just(("now", 0, None)),
)
SCHEDULES = st.one_of(
    st.lists(ONE_OFF, min_size=1, max_size=3, unique=True),
    st.lists(RECURRING, min_size=1, max_size=2, unique=True),
    st.tuples(
        st.lists(ONE_OFF, min_size=1, max_size=2, unique=True),
        st.lists(RECURRING, min_size=1, max_size=2, unique=True),
    ).map(lambda both: both[0] + both[1]),
)
LAGS = st.sampled_from([0, 0, 0, HALF, 2_000, 3_000, 61_000, 130_000])


class JobLife(RuleBasedStateMachine):
    """One job of one tenant and its owner, from before its first life to after its last."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = Owner()
        self.model = Model()
        self.now = T0
        self.appended = T0
        self.read = 0
        self.decided: set[str] = set()
        self.sequence = 0
        self.tolerance = 60_000
        self.content: Any = None
        self.ids = 0
        self.last: tuple[Any, int, Any] | None = None

    # --- rules -----------------------------------------------------------------------------------

    @precondition(lambda self: self.model.status != "")
    @rule(ms=st.integers(0, 400).map(lambda n: n * HALF))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        self._timers()

    @precondition(lambda self: self.model.status != "")
    @rule(ms=st.integers(1, 60).map(lambda n: n * HALF), steps=st.integers(1, 8))
    def time_passes_in_small_steps(self, ms: int, steps: int) -> None:
        for _ in range(steps):
            self.now += ms // steps
            self._timers()

    @precondition(lambda self: self.model.status in ("DELETED", "FINISHED", "PAUSED"))
    @rule(hours=st.sampled_from([1, 2, 25, 8 * 24]))
    def a_long_time_passes(self, hours: int) -> None:
        self.now += hours * 3_600_000
        self._timers()

    @rule()
    def another_process_takes_over(self) -> None:
        self.owner.restart(self.now)

    @initialize(schedules=SCHEDULES)
    def the_first_put(self, schedules: list[Any]) -> None:
        self.put(schedules, b"1", 0, True, "60s")

    @rule(schedules=SCHEDULES, payload=st.sampled_from([b"1", b"2"]), lag=LAGS,
          timers=st.booleans(), tolerance=st.sampled_from(["60s", "60s", "0s", "5s"]))  # fmt: skip
    def put(self, schedules: list[Any], payload: bytes, lag: int, timers: bool, tolerance: str) -> (
        None
    ):  # fmt: skip
        at = self._append(lag, timers)
        written = tuple(self._resolve(one, at) for one in schedules)
        content = (written, payload, tolerance)
        tolerance_ms = int(tolerance[:-1]) * 1_000
        spec = JobSpec(
            schedules=tuple(_spec(one) for one in written), payload=payload,
            late_tolerance=tolerance, topic=TopicTargetSpec(name="out"),
        )  # fmt: skip
        reply = self._send(PutJob(tenant="t", job="j", spec=spec), at)
        model = self.model
        if model.status not in ("", "DELETED", "BROKEN") and content == self.content:
            assert isinstance(reply, Accepted) and reply.version == model.version
        elif model.refuses(written, at, tolerance_ms):
            assert isinstance(reply, Refused), reply
        else:
            assert isinstance(reply, Accepted), reply
            model.put(written, at, tolerance_ms)
            self.content, self.tolerance = content, tolerance_ms
            assert reply.version == model.version
            assert reply.sequence == self.sequence

    @precondition(lambda self: self.content is not None)
    @rule(lag=LAGS, timers=st.booleans())
    def put_the_same(self, lag: int, timers: bool) -> None:
        at = self._append(lag, timers)
        written, payload, tolerance = self.content
        spec = JobSpec(
            schedules=tuple(_spec(one) for one in written), payload=payload,
            late_tolerance=tolerance, topic=TopicTargetSpec(name="out"),
        )  # fmt: skip
        reply = self._send(PutJob(tenant="t", job="j", spec=spec), at)
        model = self.model
        if model.status in ("", "DELETED"):
            if model.refuses(written, at, self.tolerance):
                assert isinstance(reply, Refused)
            else:
                model.put(written, at, self.tolerance)
        assert isinstance(reply, Refused) or reply.version == model.version

    @precondition(lambda self: self.model.status in ("ACTIVE", "PAUSED"))
    @rule(lag=LAGS, timers=st.booleans())
    def pause_or_resume(self, lag: int, timers: bool) -> None:
        kind = PauseJob if self.model.status == "ACTIVE" else ResumeJob
        self.pause_resume_or_delete(kind, lag, timers)

    @rule(kind=st.sampled_from([PauseJob, ResumeJob, DeleteJob]), lag=LAGS, timers=st.booleans())
    def pause_resume_or_delete(self, kind: Any, lag: int, timers: bool) -> None:
        at, model = self._append(lag, timers), self.model
        reply = self._send(kind(tenant="t", job="j"), at)
        if model.status in ("", "DELETED"):
            assert isinstance(reply, Refused) and reply.kind == "not_found"
        elif kind is DeleteJob:
            model.delete()
        elif kind is PauseJob:
            if model.status == "FINISHED":
                assert isinstance(reply, Refused) and reply.kind == "finished"
            else:
                model.pause()
        elif model.status == "PAUSED":
            model.resume(at)

    @precondition(lambda self: self.model.status in ("ACTIVE", "PAUSED", "FINISHED"))
    @rule(lag=LAGS, timers=st.booleans(), named=st.booleans())
    def trigger(self, lag: int, timers: bool, named: bool) -> None:
        at = self._append(lag, timers)
        nominal = format_instant(at // 60_000 * 60_000) if named else None
        self.ids += 1
        command = TriggerJob(tenant="t", job="j", command_id=f"c{self.ids}", scheduled_at=nominal)
        reply = self._send(command, at)
        if self.model.status in ("", "DELETED"):
            assert isinstance(reply, Refused)
        else:
            assert reply.execution_id in self.decided
            self.last = (command, at, reply)

    @precondition(lambda self: self.last is not None)
    @rule()
    def send_the_last_trigger_again(self) -> None:
        assert self.last is not None
        command, first, answer = self.last
        at = self._append(0, False)
        within = at - first < limits.COMMAND_ID_MS
        if not within or self.model.status == "":
            return
        fires = len(self.owner.fires())
        reply = self._send(command, at)
        assert reply.repeated and reply.execution_id == answer.execution_id
        manual = [fire for fire in self.owner.fires()[fires:] if "~m" in fire.execution_id]
        assert answer.execution_id not in {fire.execution_id for fire in manual}

    # --- doing it --------------------------------------------------------------------------------

    def _append(self, lag: int, timers: bool) -> int:
        """A command is appended now and read `lag` later, perhaps after timers ran."""
        at = max(self.now, self.appended)
        self.appended = at
        self.now = at + lag
        if timers:
            self._timers()
        return at

    def _send(self, command: Any, at: int) -> Any:
        expected = self.model.due(min(at, self.now))
        reply = self.owner.send(command, at, now_ms=self.now)
        self._follow(expected)
        return reply

    def _timers(self) -> None:
        expected = self.model.due(self.now)
        self.owner.pass_time(self.now)
        self._follow(expected)
        state = self.owner.state(KEY)
        if state is None and self.model.status in ("FINISHED", "DELETED"):
            self.model.forget()
            self.sequence, self.content, self.last = 0, None, None

    def _resolve(self, drawn: Any, at: int) -> Written:
        kind, ms, anchor = drawn
        if kind == "at":
            return Written("at", at // HALF * HALF + ms)
        if kind == "every" and anchor is not None:
            return Written("every", ms, at // HALF * HALF + anchor)
        return Written(kind, ms)

    def _follow(self, expected: list[int]) -> None:
        """Hold the events of a step against the ticks that were to be covered in it."""
        records = self.owner.records[self.read :]
        self.read = len(self.owner.records)
        left = list(expected)
        status = self.model.status
        accepted = self.model.accepted
        for event in _events(self.owner, records):
            assert event.sequence == self.sequence + 1, "sequences have no gap"
            self.sequence = event.sequence
            if isinstance(event, JobChanged):
                continue
            if isinstance(event, ExecutionFired):
                assert event.execution_id not in self.decided, "an occurrence is decided once"
                self.decided.add(event.execution_id)
                assert max(event.scheduled_at, event.due_at) <= event.claimed_at <= self.now
                if "~m" in event.execution_id:
                    continue
                assert status == "ACTIVE"
                assert left and event.scheduled_at == left[0], "the oldest comes first"
                assert event.due_at == max(left[0], accepted.get(left[0], 0))
                self._may_run(left, accepted)
                del left[0]
            elif event.reason == "paused":
                assert status == "PAUSED" and event.first == event.last == left[0]
                del left[0]
            else:
                assert status == "ACTIVE" and event.reason == "policy" and event.exact
                gone = [t for t in left if event.first <= t <= event.last]
                assert gone == left[: len(gone)] and len(gone) == event.count
                assert (gone[0], gone[-1]) == (event.first, event.last)
                assert len(left) == len(gone) + 1, "of those passed over only the newest runs"
                assert self._passed_over(left, accepted)
                left = left[len(gone) :]
        assert not left, "every tick is covered"
        self.model.covered(expected, self.now)

    def _tolerance(self, left: list[int], accepted: dict[int, int]) -> int:
        tick, following = left[0], left[1]
        if following <= accepted.get(tick, 0):
            return min(self.tolerance, following - tick)
        return min(self.tolerance, following - max(tick, accepted.get(tick, 0)))

    def _passed_over(self, left: list[int], accepted: dict[int, int]) -> bool:
        late = self.now - max(left[0], accepted.get(left[0], 0))
        return len(left) > 1 and late > self._tolerance(left, accepted)

    def _may_run(self, left: list[int], accepted: dict[int, int]) -> None:
        assert not self._passed_over(left, accepted), "a tick that was passed over does not run"

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def the_store_follows_from_the_changelogs(self) -> None:
        assert self.owner.stores.contents(0) == self.owner.fold()

    @invariant()
    def the_state_is_what_the_model_says(self) -> None:
        state = self.owner.state(KEY)
        assert (state.status if state is not None else "") == self.model.status
        assert (self.owner.definition(KEY) is not None) == (
            self.model.status in ("ACTIVE", "PAUSED", "FINISHED")
        )
        if state is not None:
            assert state.cursor_ms == self.model.cursor
            assert state.sequence == self.sequence
            assert len(state.ids) <= limits.COMMAND_IDS_INLINE_MAX


def _events(owner: Owner, records: list[Any]) -> list[Any]:
    from tests.unit.core.owner import decoded

    found = [
        decoded(record.value)
        for record in records
        if record.topic in ("h.executions", "h.schedule-changes")
    ]
    return sorted((e for e in found if isinstance(e, ExecutionFired | TicksMissed | JobChanged)),
                  key=lambda event: event.sequence)  # fmt: skip


def _spec(one: Written) -> ScheduleSpec:
    match one.kind:
        case "cron":
            return ScheduleSpec(cron="* * * * *")
        case "every":
            anchor = format_instant(one.anchor) if one.anchor is not None else None
            return ScheduleSpec(every=f"{one.ms}ms", anchor=anchor)
        case "at":
            return ScheduleSpec(at=format_instant(one.ms))
        case "in":
            return ScheduleSpec(in_=f"{one.ms}ms")
        case _:
            return ScheduleSpec(now=True)


TestJobLife = JobLife.TestCase
TestJobLife.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
