"""Jobs with a policy, by example: what commands do to ticks in between, and what waits."""

from typing import Any

import pytest

from processors.core.schedule import jitter_ms
from schemas.commands import (
    AnyCommand,
    CalendarsSpec,
    DeleteJob,
    ExcludedSpec,
    JobSpec,
    PauseJob,
    PutJob,
    ResumeJob,
    ScheduleSpec,
    WorkerTargetSpec,
)
from schemas.replies import Accepted, Refused
from tests.unit.core.owner import Owner
from tests.unit.core.test_job_examples import (
    DAY,
    HOUR,
    KEY,
    MINUTE,
    SECOND,
    T0,
    ask,
    at,
    fired,
    missed,
    put,
)
from tests.unit.leases.partition import Partition

OFFSET = jitter_ms("t", "j", 30 * SECOND)


@pytest.fixture
def owner() -> Owner:
    return Owner()


# --- jitter --------------------------------------------------------------------------------------


def test_a_tick_runs_at_its_time_and_the_jobs_own_delay(owner: Owner) -> None:
    assert OFFSET > 0
    owner.send(put({"cron": "* * * * *"}, jitter="30s"), T0)
    for n in range(1, 4):
        owner.pass_time(T0 + n * MINUTE + OFFSET - 1)
        assert len(fired(owner)) == n - 1
        owner.pass_time(T0 + n * MINUTE + OFFSET)
    assert fired(owner) == [MINUTE, 2 * MINUTE, 3 * MINUTE]
    assert [fire.due_at - fire.scheduled_at for fire in owner.fires()] == [OFFSET] * 3


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (put({"cron": "0 * * * *"}, jitter="30s"), "policy"),
        (ask(PauseJob), "paused"),
        (ask(DeleteJob), "policy"),
    ],
)
def test_a_tick_between_its_nominal_and_its_effective_time_is_never_lost_silently(
    owner: Owner, command: AnyCommand, reason: str
) -> None:
    owner.send(put({"cron": "* * * * *"}, jitter="30s"), T0)
    owner.send(command, T0 + MINUTE + OFFSET // 2)
    owner.pass_time(T0 + 30 * MINUTE)
    assert fired(owner) == []
    assert missed(owner) == [(MINUTE, MINUTE, 1, reason)]
    assert [e.sequence for e in (*owner.changes(), *owner.missed())] == [1, 3, 2]


def test_an_edit_that_keeps_the_schedules_keeps_a_tick_that_waits_for_its_delay(
    owner: Owner,
) -> None:
    owner.send(put({"cron": "* * * * *"}, jitter="30s"), T0)
    owner.send(put({"cron": "* * * * *"}, jitter="30s", payload=b"x"), T0 + MINUTE + 1)
    owner.pass_time(T0 + MINUTE + OFFSET - 1)
    assert fired(owner) == []
    owner.pass_time(T0 + MINUTE + OFFSET)
    assert fired(owner) == [MINUTE] and missed(owner) == []


def test_another_jitter_counts_for_the_tick_that_is_planned(owner: Owner) -> None:
    owner.send(put({"cron": "0 * * * *"}, jitter="20m"), T0)
    owner.send(put({"cron": "0 * * * *"}, jitter="30s"), T0 + MINUTE)
    owner.pass_time(T0 + HOUR + OFFSET - 1)
    assert fired(owner) == []
    owner.pass_time(T0 + HOUR + OFFSET)
    assert fired(owner) == [HOUR]


def test_a_late_one_off_runs_at_once_without_a_delay_and_brings_no_older_ticks(
    owner: Owner,
) -> None:
    owner.send(put(at(T0 - 10_000), {"every": "1s"}, jitter="30s"), T0)
    owner.pass_time(T0)
    assert fired(owner) == [-10_000]
    owner.pass_time(T0 + SECOND + OFFSET)
    assert fired(owner) == [-10_000, SECOND]


# --- start, end, max_runs ------------------------------------------------------------------------


def test_a_job_has_ticks_from_start_to_end_and_is_finished_after_the_last(owner: Owner) -> None:
    spec = {"start": "2026-03-02T10:05:00Z", "end": "2026-03-02T10:07:00Z"}
    owner.send(put({"cron": "* * * * *"}, **spec), T0)
    for n in range(20):
        owner.pass_time(T0 + n * MINUTE)
    assert fired(owner) == [5 * MINUTE, 6 * MINUTE, 7 * MINUTE]
    state = owner.state(KEY)
    assert state is not None and state.status == "FINISHED" and state.forget_ms


def test_an_end_that_has_passed_is_accepted_with_a_warning_and_ends_the_job(owner: Owner) -> None:
    reply = owner.send(put({"every": "1s", "anchor": "2026-01-01T00:00:00Z"},
                           end="2026-02-01T00:00:00Z"), T0)  # fmt: skip
    assert isinstance(reply, Accepted) and "no tick can follow" in reply.warnings[0]
    assert owner.state(KEY).status == "FINISHED"  # type: ignore[union-attr]


def test_max_runs_counts_runs_of_ticks_over_edits_and_pauses(owner: Owner) -> None:
    owner.send(put({"cron": "* * * * *"}, max_runs=3), T0)
    owner.pass_time(T0 + MINUTE)
    owner.send(put({"cron": "* * * * *"}, max_runs=3, payload=b"x"), T0 + MINUTE + 1)
    owner.send(ask(PauseJob), T0 + MINUTE + 2)
    owner.send(ask(ResumeJob), T0 + 2 * MINUTE + 1)
    for n in range(3, 9):
        owner.pass_time(T0 + n * MINUTE)
    assert fired(owner) == [MINUTE, 3 * MINUTE, 4 * MINUTE]
    assert owner.state(KEY).status == "FINISHED"  # type: ignore[union-attr]
    owner.send(put({"cron": "* * * * *"}, max_runs=4), T0 + 9 * MINUTE)
    owner.pass_time(T0 + 10 * MINUTE)
    owner.pass_time(T0 + 11 * MINUTE)
    assert fired(owner)[3:] == [10 * MINUTE]


def test_fewer_max_runs_than_there_were_end_the_job(owner: Owner) -> None:
    owner.send(put({"cron": "* * * * *"}, max_runs=3), T0)
    owner.pass_time(T0 + MINUTE)
    owner.send(put({"cron": "* * * * *"}, max_runs=1), T0 + MINUTE + 1)
    assert owner.state(KEY).status == "FINISHED"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"start": "2026-05-01T00:00:00Z", "end": "2026-04-01T00:00:00Z"}, "end"),
        ({"start": "2026-04-01T00:00:01Z", "end": "2026-04-01T00:00:02Z"}, "end"),
        ({"start": "2026-04-01T00:00:00"}, "start"),
        ({"end": "tomorrow"}, "end"),
        ({"max_runs": 0}, "max_runs"),
        ({"jitter": "25h"}, "jitter"),
        ({"jitter": "5"}, "jitter"),
        ({"start_deadline": "500ms"}, "start_deadline"),
        ({"missed_limit": 10}, "missed_limit"),
        ({"missed": "all", "missed_limit": 1_001}, "missed_limit"),
        ({"missed": "some"}, "missed"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    owner: Owner, spec: dict[str, Any], field: str
) -> None:
    reply = owner.send(put({"cron": "* * * * *"}, **spec), T0)
    assert isinstance(reply, Refused) and [p.field for p in reply.problems] == [field]


# --- calendars -----------------------------------------------------------------------------------


def kept_out(*sets: ExcludedSpec, then: str = "skip", timezone: str | None = None) -> CalendarsSpec:
    return CalendarsSpec(exclude=sets, then=then, timezone=timezone)


WEEKEND = ExcludedSpec(weekly=("SAT-SUN",))


def test_an_excluded_tick_is_skipped_visibly_at_its_time(owner: Owner) -> None:
    owner.send(put({"cron": "0 12 * * *"}, calendars=kept_out(WEEKEND)), T0)
    for n in range(0, 8 * 24, 6):
        owner.pass_time(T0 + n * HOUR)
    assert [round((ms - 2 * HOUR) / DAY) for ms in fired(owner)] == [0, 1, 2, 3, 4, 7]
    assert [(e.state, e.reason, e.count) for e in owner.missed()] == [
        ("SKIPPED", "calendar", 1)
    ] * 2


def test_a_tick_on_a_holiday_moves_to_the_next_business_day(owner: Owner) -> None:
    """Good Friday and Easter Monday of 2026 in Germany: 3 and 6 April."""
    calendars = kept_out(WEEKEND, ExcludedSpec(country="DE"), then="next")
    schedule = {"cron": "30 9 3 4 *", "timezone": "Europe/Berlin"}
    owner.send(put(schedule, calendars=calendars), T0)
    state, definition = owner.state(KEY), owner.definition(KEY)
    assert state is not None and definition is not None
    assert state.next_ms - T0 == (7 - 2 + 31) * DAY - 2 * HOUR - 30 * MINUTE  # 7 April, 07:30 UTC
    assert definition.policy is not None and definition.policy.calendars is not None
    assert definition.policy.calendars.data.startswith("holidays ")


def test_a_one_off_moves_by_the_clock_that_the_calendars_name(owner: Owner) -> None:
    calendars = kept_out(WEEKEND, then="previous", timezone="Asia/Tokyo")
    owner.send(put(at(T0 + 4 * DAY + 6 * HOUR), calendars=calendars), T0)  # Saturday in Tokyo
    assert owner.state(KEY).next_ms == T0 + 3 * DAY + 6 * HOUR  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("calendars", "field"),
    [
        (kept_out(), "calendars.exclude"),
        (kept_out(ExcludedSpec()), "calendars.exclude[0]"),
        (kept_out(ExcludedSpec(dates=("2026-02-30",))), "calendars.exclude[0].dates"),
        (kept_out(ExcludedSpec(weekly=("SAT-",))), "calendars.exclude[0].weekly"),
        (kept_out(ExcludedSpec(weekly=("MON 25:00-26:00",))), "calendars.exclude[0].weekly"),
        (kept_out(ExcludedSpec(weekly=("MON 09:00-09:00",))), "calendars.exclude[0].weekly"),
        (kept_out(ExcludedSpec(country="de")), "calendars.exclude[0].country"),
        (kept_out(ExcludedSpec(country="DE", subdivision="ZZ")),
         "calendars.exclude[0].subdivision"),
        (kept_out(ExcludedSpec(weekly=("SUN-SAT",))), "calendars.exclude"),
        (kept_out(WEEKEND, then="nearest"), "calendars.then"),
        (kept_out(WEEKEND, then="next"), "calendars.then"),  # too many ticks a day to move
        (kept_out(WEEKEND, timezone="Mars/Olympus"), "calendars.timezone"),
    ],
)  # fmt: skip
def test_calendars_that_cannot_be_meant_are_refused_by_name(
    owner: Owner, calendars: CalendarsSpec, field: str
) -> None:
    reply = owner.send(put({"cron": "* * * * *"}, calendars=calendars), T0)
    assert isinstance(reply, Refused) and [p.field for p in reply.problems] == [field]


def test_the_newest_tick_that_is_not_excluded_runs_after_an_outage(owner: Owner) -> None:
    owner.send(put({"cron": "* * * * *"}, calendars=kept_out(WEEKEND)), T0)
    monday = 7 * DAY - 10 * HOUR
    owner.pass_time(T0 + monday - HOUR)  # Sunday 23:00
    saturday = 5 * DAY - 10 * HOUR
    assert fired(owner) == [saturday - MINUTE]
    assert [(e.first - T0, e.last - T0, e.state, e.reason) for e in owner.missed()] == [
        (MINUTE, saturday - 2 * MINUTE, "MISSED", "policy"),
        (saturday, monday - HOUR, "SKIPPED", "calendar"),
    ]


# --- a day without an owner ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missed_policy", "runs", "records"), [("latest", 1, 1), ("skip", 1, 1), ("all", 100, 1)]
)
def test_a_day_of_missed_minutes_costs_each_job_one_record_and_starts_with_runs(
    owner: Owner, missed_policy: str, runs: int, records: int
) -> None:
    jobs = 300
    for n in range(jobs):
        owner.send(put({"cron": "* * * * *"}, job=f"j{n}", missed=missed_policy), T0)
    back = T0 + DAY + 10 * SECOND
    owner.restart(back)
    owner.pass_time(back)
    assert len(owner.fires()) == jobs, "each job's first decision lets it run"
    for n in range(1, 120):
        owner.pass_time(back + n * 100)
    for job in ("j0", f"j{jobs - 1}"):
        assert len(owner.fires(job)) == runs
        assert sum(record.job == job for record in owner.missed()) == records
    counts = {record.count for record in owner.missed()}
    assert counts == {1_440 - runs}
    assert len(owner.missed()) == jobs * records
    # The next minute is nobody's past any more.
    before = len(owner.fires())
    owner.pass_time(T0 + DAY + MINUTE)
    assert len(owner.fires()) == before + jobs


# --- catching up, with work that takes time ------------------------------------------------------


def worker_job(**spec: Any) -> PutJob:
    schedule = ScheduleSpec(cron="* * * * *")
    return PutJob(tenant="t", job="j", spec=JobSpec(
        schedules=(schedule,), worker=WorkerTargetSpec(handler="h"), **spec))  # fmt: skip


def asleep(partition: Partition, ms: int) -> None:
    """Nobody owns the partition for so long."""
    partition.now_ms += ms
    partition.settle()


def test_ticks_that_are_caught_up_wait_for_each_other_and_none_is_skipped() -> None:
    p = Partition()
    p.send(worker_job(missed="all"))
    asleep(p, 3 * MINUTE + 10 * SECOND)  # of 10:01, 10:02, 10:03 the last is on time by itself
    started: list[str] = []
    for _ in range(40):
        for item in p.taken():
            started.append(item.execution_id[15:20])
            p.advance(2 * SECOND)
            p.succeed(item)
        p.advance(SECOND)
    assert started[:3] == ["10:01", "10:02", "10:03"]
    assert not any("SKIPPED" in state for state in p.history())


def test_work_that_waited_past_its_start_deadline_is_missed_when_it_would_be_leased() -> None:
    p = Partition(places=0)
    p.send(worker_job(start_deadline="20s"))
    p.advance(MINUTE + 21 * SECOND)
    assert p.history() == ["QUEUED"]
    p.grant({"w-1": 1})
    assert p.history() == ["QUEUED", "MISSED(deadline)"] and p.taken() == []
    p.advance(39 * SECOND)  # the place is free for the next tick
    (item,) = p.taken()
    assert item.execution_id == "t/j:2026-03-02T10:02:00.000Z:1"


def test_a_lease_within_the_deadline_is_given_and_again_after_it_was_lost() -> None:
    p = Partition()
    p.send(worker_job(start_deadline="20s"))
    p.advance(MINUTE)
    assert [item.delivery for item in p.taken()] == [1]
    p.advance(p.lease_ms + SECOND)  # lost: started in time, so it is delivered again
    assert [item.delivery for item in p.taken() if item.kind == "work"][-1] == 2
