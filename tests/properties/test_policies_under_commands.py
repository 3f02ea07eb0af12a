"""Edits, pauses, deletions and restarts at any moment, under every policy: of the ticks that a job
had while it was active, each is covered by exactly one record, and nothing is early.

Which ticks those are is listed here, second by second, from the schedules as they were written.
"""

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from processors.core.schedule import jitter_ms
from schemas.commands import (
    CalendarsSpec,
    DeleteJob,
    ExcludedSpec,
    JobSpec,
    PauseJob,
    PutJob,
    ResumeJob,
    ScheduleSpec,
    TopicTargetSpec,
)
from schemas.events import ExecutionFired, JobChanged, TicksMissed
from schemas.replies import Accepted
from schemas.units import format_instant, parse_instant
from tests.unit.core.owner import Owner

T0 = parse_instant("2026-03-02T10:00:00Z")
SECOND, MINUTE = 1_000, 60_000
ANCHOR = format_instant(T0)


@dataclass(frozen=True)
class Put:
    """A definition: steps of its intervals in seconds, and its policy."""

    steps: tuple[int, ...]
    policy: tuple[tuple[str, Any], ...]
    payload: bytes

    def command(self) -> PutJob:
        spec = JobSpec(
            schedules=tuple(ScheduleSpec(every=f"{step}s", anchor=ANCHOR) for step in self.steps),
            topic=TopicTargetSpec(name="out"), payload=self.payload, **dict(self.policy),
        )  # fmt: skip
        return PutJob(tenant="t", job="j", spec=spec)

    def ticks(self, after: int, upto: int) -> set[int]:
        return {
            tick
            for step in self.steps
            for tick in range(step * SECOND, upto + 1, step * SECOND)
            if tick > after
        }

    @property
    def delay(self) -> int:
        text = str(dict(self.policy).get("jitter", "0s"))
        return jitter_ms("t", "j", int(text.removesuffix("s")) * SECOND)


KEPT_OUT = CalendarsSpec(exclude=(ExcludedSpec(weekly=("MON 10:03-10:06", "MON 10:20-10:40")),))
POLICIES = st.fixed_dictionaries({}, optional={
    "missed": st.sampled_from(["skip", "all"]), "late_tolerance": st.sampled_from(["0s", "20s"]),
    "jitter": st.sampled_from(["3s", "45s", "200s"]), "start_deadline": st.sampled_from(["5s"]),
    "calendars": st.just(KEPT_OUT),
}).map(lambda policy: tuple(sorted(policy.items())))  # fmt: skip
PUTS = st.builds(
    Put,
    steps=st.lists(st.sampled_from([7, 15, 60, 240]), min_size=1, max_size=2, unique=True).map(
        tuple
    ),
    policy=POLICIES,
    payload=st.sampled_from([b"a", b"b"]),
)
STEP = st.one_of(
    st.sampled_from([0, 1, 500, 7_000, 60_000]),
    st.integers(1, 600).map(lambda n: n * 500),
    st.integers(1, 30).map(lambda n: n * MINUTE),
)
WHAT = st.one_of(PUTS, st.sampled_from(["time", "time", "restart", "pause", "resume", "delete"]))


@given(PUTS, st.lists(st.tuples(STEP, WHAT), min_size=1, max_size=14))
@settings(max_examples=250, deadline=None)
def test_each_tick_of_an_active_job_has_one_record(
    first: Put, steps: list[tuple[int, Put | str]]
) -> None:
    owner = Owner()
    now, active_since, present, paused = 0, 0, first, False
    alive, expected = True, set()
    assert isinstance(owner.send(first.command(), T0), Accepted)
    delays = {first.delay}
    for step, what in steps:
        now += step
        before = present.ticks(active_since, now) if alive and not paused else set()
        match what:
            case "time":
                owner.pass_time(T0 + now)
                continue
            case "restart":
                owner.restart(T0 + now)
                continue
            case "pause" if alive:
                owner.send(PauseJob(tenant="t", job="j"), T0 + now)
                paused = True
            case "resume" if alive:
                owner.send(ResumeJob(tenant="t", job="j"), T0 + now)
                paused = False
            case "delete" if alive:
                owner.send(DeleteJob(tenant="t", job="j"), T0 + now)
                alive = paused = False
            case Put():
                assert isinstance(owner.send(what.command(), T0 + now), Accepted)
                present, alive = what, True
                delays.add(what.delay)
            case _:
                continue
        expected |= before
        active_since = now
    if alive and not paused:
        end = now + 10 * MINUTE
        for at in range(now, end, 20 * SECOND):  # caught up, with the longest delay behind it
            owner.pass_time(T0 + at)
        for n in range(150):
            owner.pass_time(T0 + end + n * 100)
        last = max(_covered(owner, present), default=0)
        expected |= present.ticks(active_since, max(last, end - 200 * SECOND))
    covered = _covered(owner, present)
    assert set(covered) == expected
    assert set(covered.values()) <= {1}
    for fire in owner.fires():
        assert fire.claimed_at >= fire.due_at
        assert fire.due_at - fire.scheduled_at in delays
    _check_order(owner)
    assert owner.stores.contents(0) == owner.fold()


def _covered(owner: Owner, present: Put) -> dict[int, int]:
    """How often each tick is covered. What a range covers is told by the version it names."""
    versions = {c.version: c.definition for c in owner.changes() if c.definition is not None}
    found: dict[int, int] = {}
    for event in owner.executions():
        if isinstance(event, ExecutionFired):
            ticks = {event.scheduled_at - T0}
        else:
            assert isinstance(event, TicksMissed)
            definition = versions[event.version]
            steps = tuple(one.every_ms // SECOND for one in definition.schedules)
            low, high = event.first - T0, event.last - T0
            ticks = Put(steps, (), b"").ticks(low - 1, high)
            assert {low, high} <= ticks
            assert len(ticks) == event.count
        for tick in ticks:
            found[tick] = found.get(tick, 0) + 1
    return found


def _check_order(owner: Owner) -> None:
    """Sequences have no gap within a life."""
    events = [e for e in (*owner.executions(), *owner.changes())
              if isinstance(e, ExecutionFired | TicksMissed | JobChanged)]  # fmt: skip
    assert sorted(e.sequence for e in events) == list(range(1, len(events) + 1))
