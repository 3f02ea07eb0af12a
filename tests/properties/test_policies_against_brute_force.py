"""What becomes of every tick under every policy, against a model that lists the ticks one by one.

The model knows schedules and weekly windows as they are written here and shares nothing with the
product but the job's own delay, which is a hash. An owner sleeps for random times in between.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from processors.core.schedule import jitter_ms
from schemas.commands import (
    CalendarsSpec,
    ExcludedSpec,
    JobSpec,
    PutJob,
    ScheduleSpec,
    TopicTargetSpec,
)
from schemas.events import ExecutionFired, TicksMissed
from schemas.replies import Accepted
from schemas.units import format_instant, parse_instant
from tests.unit.core.owner import Owner

T0 = parse_instant("2026-03-02T10:00:00Z")  # a Monday
SECOND, MINUTE = 1_000, 60_000
SPAN = 6 * 60 * MINUTE
PACE = 100
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


@dataclass(frozen=True)
class Case:
    """A job as it is written, times relative to its acceptance."""

    every: tuple[int, ...] = ()  # steps, anchored at the acceptance
    cron: int = 0  # each so many minutes
    one_offs: tuple[int, ...] = ()
    missed: str = "latest"
    tolerance: int = 60 * SECOND
    deadline: int = 0
    limit: int = 100
    jitter: int = 0
    max_runs: int = 0
    start: int | None = None
    end: int | None = None
    windows: tuple[tuple[int, int], ...] = ()  # minutes of the first day from its midnight

    def ticks(self) -> list[int]:
        found: set[int] = set()
        for step in self.every:
            found |= set(range(step, SPAN + 1, step))
        if self.cron:
            found |= {t for t in range(MINUTE, SPAN + 1, MINUTE) if t // MINUTE % self.cron == 0}
        found |= set(self.one_offs)
        low = self.start if self.start is not None else -SPAN
        high = self.end if self.end is not None else SPAN
        return sorted(t for t in found if low <= t <= high)

    def excluded(self, tick: int) -> bool:
        at = EPOCH + timedelta(milliseconds=T0 + tick)
        minute = at.hour * 60 + at.minute
        return at.weekday() == 0 and any(low <= minute < high for low, high in self.windows)

    def command(self) -> PutJob:
        schedules = [ScheduleSpec(every=f"{step}ms") for step in self.every]
        if self.cron:
            schedules.append(ScheduleSpec(cron=f"*/{self.cron} * * * *"))
        schedules += [ScheduleSpec(at=format_instant(T0 + t)) for t in self.one_offs]
        weekly = tuple(
            f"MON {low // 60:02d}:{low % 60:02d}-{high // 60:02d}:{high % 60:02d}"
            for low, high in self.windows
        )
        calendars = CalendarsSpec(exclude=(ExcludedSpec(weekly=weekly),)) if weekly else None
        spec = JobSpec(
            schedules=tuple(schedules), topic=TopicTargetSpec(name="out"), missed=self.missed,
            late_tolerance=f"{self.tolerance}ms",
            start=format_instant(T0 + self.start) if self.start is not None else None,
            end=format_instant(T0 + self.end) if self.end is not None else None,
            max_runs=self.max_runs or None,
            jitter=f"{self.jitter}ms" if self.jitter else None,
            start_deadline=f"{self.deadline}ms" if self.deadline else None,
            missed_limit=self.limit if self.missed == "all" else None,
            calendars=calendars,
        )  # fmt: skip
        return PutJob(tenant="t", job="j", spec=spec, reply_to="me")


class Model:
    """What is to become of the ticks: tick → RUN, or state and reason."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.offset = jitter_ms("t", "j", case.jitter)
        self.left = case.ticks()
        self.became: dict[int, str] = {}
        self.runs = 0
        self.not_before = 0

    def due(self, tick: int) -> int:
        return max(tick, 0) + (self.offset if tick > 0 else 0)

    def on_time(self, tick: int, now: int) -> bool:
        later = [t for t in self.left if t > tick]
        tolerance = self.case.tolerance
        if later:
            tolerance = min(tolerance, later[0] - max(tick, 0 if later[0] > 0 else tick))
        return now - self.due(tick) <= max(tolerance, SECOND)

    def dead(self, tick: int, now: int) -> bool:
        return 0 < self.case.deadline < now - self.due(tick)

    def pass_time(self, now: int) -> None:
        while self.left and self.due(self.left[0]) <= now and now >= self.not_before:
            if self.case.max_runs and self.runs >= self.case.max_runs:
                return
            before = len(self.became)
            self.decide(now)
            assert len(self.became) > before

    def decide(self, now: int) -> None:
        tick = self.left[0]
        passed = [t for t in self.left if self.due(t) <= now]
        if self.on_time(tick, now):
            self.one(tick, now)
        elif self.case.missed == "latest":
            may = [t for t in passed if not self.case.excluded(t)]
            run = max(may, default=None)
            for t in passed:
                if run is None or t > run:
                    self.cover(t, "SKIPPED calendar")
                elif t < run:
                    self.cover(t, "MISSED policy")
                else:
                    self.one(t, now)
        elif self.case.missed == "skip":
            last = passed[-1]
            for t in passed[:-1]:
                self.cover(t, "MISSED policy")
            if last != tick and self.on_time(last, now):
                self.one(last, now)
            else:
                self.cover(last, "MISSED policy")
        else:
            self.catch_up(passed, now)

    def catch_up(self, passed: list[int], now: int) -> None:
        if dead := [t for t in passed if self.dead(t, now)]:
            for t in dead:
                self.cover(t, "MISSED deadline")
            return
        for t in passed[: -self.case.limit]:
            self.cover(t, "MISSED policy")
        kept = passed[-self.case.limit :]
        ran = not self.case.excluded(kept[0])
        self.one(kept[0], now)
        if ran and len(kept) > 1:
            self.not_before = now + PACE

    def one(self, tick: int, now: int) -> None:
        if self.case.excluded(tick):
            self.cover(tick, "SKIPPED calendar")
        elif self.dead(tick, now):
            self.cover(tick, "MISSED deadline")
        else:
            self.cover(tick, "RUN")
            self.runs += 1

    def cover(self, tick: int, outcome: str) -> None:
        self.left.remove(tick)
        self.became[tick] = outcome


STEPS = st.one_of(
    st.sampled_from([50, 100, 150, 500, 1_000, 59_000, 60_000, 61_000, 120_000]),
    st.integers(1, 40 * 60).map(lambda n: n * 500),
    st.integers(1, 90).map(lambda n: n * MINUTE),
)
WINDOWS = st.lists(
    st.tuples(st.integers(600, 900), st.integers(1, 90)).map(lambda w: (w[0], w[0] + w[1])),
    max_size=3,
)
CASES = st.builds(
    Case,
    every=st.lists(
        st.sampled_from([7, 15, 20, 60, 90, 240, 3_600]).map(lambda s: s * SECOND),
        min_size=0, max_size=2, unique=True,
    ).map(tuple),
    cron=st.sampled_from([1, 1, 5, 20]),
    one_offs=st.lists(
        st.integers(1, 600).map(lambda n: n * 30 * SECOND), max_size=2, unique=True
    ).map(tuple),
    missed=st.sampled_from(["latest", "skip", "all"]),
    tolerance=st.sampled_from([0, 500, 5_000, 30_000, 60_000, 3_600_000]),
    deadline=st.sampled_from([0, 0, 1_000, 10_000, 90_000, 20 * MINUTE]),
    limit=st.sampled_from([1, 2, 3, 10, 100]),
    jitter=st.sampled_from([0, 0, 2_000, 45_000, 200_000]),
    max_runs=st.sampled_from([0, 0, 0, 1, 3, 20]),
    start=st.one_of(st.none(), st.integers(-60, 240).map(lambda n: n * MINUTE)),
    end=st.one_of(st.none(), st.integers(60, 360).map(lambda n: n * MINUTE)),
    windows=WINDOWS.map(tuple),
)  # fmt: skip


@given(CASES, st.lists(STEPS, min_size=1, max_size=25))
@example(Case(cron=1, missed="skip", tolerance=0), [10 * MINUTE, 60_000])
@settings(max_examples=400, deadline=None)
def test_every_tick_becomes_what_the_policies_say(case: Case, steps: list[int]) -> None:
    if not case.ticks() or (case.start or 0) > (case.end or SPAN):
        return
    owner, model = Owner(), Model(case)
    reply = owner.send(case.command(), T0)
    assert isinstance(reply, Accepted), reply
    now = 0
    for step in steps:
        now += step
        if now > SPAN - 5 * MINUTE:  # the model's ticks end at the span
            break
        owner.pass_time(T0 + now)
        model.pass_time(now)
        became: dict[int, str] = {}
        for event in owner.executions():
            match event:
                case ExecutionFired():
                    covered, outcome = [event.scheduled_at - T0], "RUN"
                    assert event.claimed_at >= event.due_at >= event.scheduled_at
                    assert event.due_at == T0 + model.due(covered[0])
                case TicksMissed():
                    low, high = event.first - T0, event.last - T0
                    covered = [t for t in case.ticks() if low <= t <= high]
                    outcome = f"{event.state} {event.reason}"
                    assert event.exact and len(covered) == event.count
                    assert (covered[0], covered[-1]) == (low, high)
                case _:
                    raise AssertionError(event)
            for tick in covered:
                assert tick not in became, "no tick is covered twice"
                became[tick] = outcome
        assert became == model.became
    assert owner.stores.contents(0) == owner.fold()
    state = owner.state("t/j")
    assert state is not None
    assert state.runs == model.runs
    over = case.max_runs and model.runs >= case.max_runs
    assert (state.status == "FINISHED") == bool(over or (case.end is not None and not model.left))
