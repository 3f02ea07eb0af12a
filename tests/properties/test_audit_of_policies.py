"""Jobs with every kind of policy, outages and changes at any moment: the audit has nothing to say
against what the real scheduler makes of them, and judges the ticks all the same."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.commands import (
    CalendarsSpec,
    ExcludedSpec,
    JobSpec,
    PutJob,
    ScheduleSpec,
    TopicTargetSpec,
    WorkerTargetSpec,
)
from tests.unit.audit.scribe import Scribe, found

schedules = st.sampled_from((
    ScheduleSpec(every="7s"), ScheduleSpec(every="1m"), ScheduleSpec(cron="*/2 * * * *"),
    ScheduleSpec(cron="*/15 * * * * *", timezone="Europe/Paris"), ScheduleSpec(every="90s"),
))  # fmt: skip
policies: Any = st.fixed_dictionaries({}, optional={
    "missed": st.sampled_from(("skip", "all", "all, at most 3")),
    "late_tolerance": st.sampled_from(("1s", "20s", "1h")),
    "start": st.sampled_from(("2026-03-02T10:02:00Z", "2026-03-02T10:10:00Z")),
    "end": st.sampled_from(("2026-03-02T10:12:00Z", "2026-03-02T10:30:00Z")),
    "max_runs": st.integers(1, 6),
    "jitter": st.sampled_from(("5s", "40s")),
    "start_deadline": st.sampled_from(("2s", "1m")),
    "calendars": st.sampled_from((
        CalendarsSpec(exclude=(ExcludedSpec(weekly=("MON 10:03-10:09",)),)),
        CalendarsSpec(exclude=(ExcludedSpec(dates=("2026-03-03",)),), then="next"),
    )),
})  # fmt: skip


def _limited(policy: dict[str, Any]) -> dict[str, Any]:
    """`missed_limit` says something with `all` only."""
    if policy.get("missed") != "all, at most 3":
        return policy
    return policy | {"missed": "all", "missed_limit": 3}


specs = st.builds(
    lambda schedules, policy, works: JobSpec(
        schedules=tuple(schedules),
        topic=None if works else TopicTargetSpec(name="orders"),
        worker=WorkerTargetSpec(handler="h") if works else None, **_limited(policy),
    ),
    st.lists(schedules, min_size=1, max_size=2, unique=True), policies,
    st.sampled_from((True, False, False)),
)  # fmt: skip
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), specs),
        st.tuples(st.sampled_from(("pause", "resume", "delete", "work", "trigger")), st.none()),
        st.tuples(st.sampled_from(("advance", "outage")), st.integers(1_000, 400_000)),
        st.tuples(st.just("outage"), st.sampled_from((65_000, 300_000, 700_000))),
    ),
    min_size=4, max_size=14,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(specs, steps)
def test_whatever_the_policy_the_log_passes(first: JobSpec, steps: list[tuple[str, Any]]) -> None:
    scribe = Scribe()
    scribe.send(PutJob(tenant="t", job="j", spec=first))
    for step, value in steps:
        match step:
            case "put":
                scribe.send(PutJob(tenant="t", job="j", spec=value))
            case "advance":
                scribe.advance(value)
            case "outage":
                scribe.take_over(gap_ms=value)
            case "work":
                for item in scribe.taken():
                    scribe.succeed(scribe.receive(item))
            case _:
                getattr(scribe, step)()
    scribe.advance(5_000)
    scribe.receipts.clear()  # not every item was taken
    assert found(scribe.audit()) == []
