"""Schedules as users write them."""

from typing import Any

import pytest

from processors.core.problem import InvalidSchedule
from processors.core.schedule import AtSchedule, CronSchedule, EverySchedule
from processors.core.schedule_input import (
    EVERY_MS_MIN_PRECISE,
    read_schedule,
    read_schedules,
    schedule_warnings,
)
from processors.core.schedule_validation import validate_schedules
from schemas.units import EPOCH_MS_MAX, format_instant, parse_instant

NOW_MS = parse_instant("2026-06-01T12:00:00Z")


def problems_of(*written: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidSchedule) as refused:
        read_schedules(written, accepted_ms=NOW_MS)
    return [(problem.field, problem.message) for problem in refused.value.problems]


def test_each_kind_of_schedule_is_read() -> None:
    read = read_schedules(
        [
            {"cron": "0 9 * * 1-5"},
            {"cron": "0 9 * * *", "timezone": "Asia/Tokyo", "dst": {"gap": "skip"}},
            {"every": "90s"},
            {"every": "PT1H", "anchor": "2026-01-01T00:00:00+01:00"},
            {"at": "2026-07-01T09:00:00+02:00"},
            {"in": "1h30m"},
            {"now": True},
        ],
        accepted_ms=NOW_MS,
        default_zone="Europe/Paris",
    )
    assert read == (
        CronSchedule(cron="0 9 * * 1-5", timezone="Europe/Paris"),
        CronSchedule(cron="0 9 * * *", timezone="Asia/Tokyo", gap="skip"),
        EverySchedule(every_ms=90_000, anchor_ms=NOW_MS),
        EverySchedule(every_ms=3_600_000, anchor_ms=parse_instant("2025-12-31T23:00:00Z")),
        AtSchedule(at_ms=parse_instant("2026-07-01T07:00:00Z")),
        AtSchedule(at_ms=NOW_MS + 5_400_000),
        AtSchedule(at_ms=NOW_MS),
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"at": "2027-03-28T02:30:00"}, "2027-03-28T01:00:00.000Z"),
        ({"at": "2027-03-28T02:30:00.250"}, "2027-03-28T01:00:00.000Z"),
        ({"at": "2027-03-28T02:30:00.250", "dst": {"gap": "shift"}}, "2027-03-28T01:30:00.250Z"),
        ({"at": "2026-10-25T02:30:00.250"}, "2026-10-25T00:30:00.250Z"),
        ({"at": "2026-10-25T02:30:00", "dst": {"repeat": "second"}}, "2026-10-25T01:30:00.000Z"),
        ({"at": "2026-10-25T02:30:00+01:00"}, "2026-10-25T01:30:00.000Z"),  # they agree
    ],
)
def test_a_one_off_in_local_time_follows_the_rules_for_clock_changes(
    written: dict[str, Any], expected: str
) -> None:
    schedule = read_schedule(written | {"timezone": "Europe/Berlin"}, accepted_ms=NOW_MS)
    assert isinstance(schedule, AtSchedule)
    assert format_instant(schedule.at_ms) == expected


@pytest.mark.parametrize(
    ("written", "field", "told"),
    [
        ({}, "schedules[0]", "names no kind"),
        ({"cron": "0 9 * * *", "every": "5m"}, "schedules[0]", "names cron and every"),
        ({"cron": 5}, "schedules[0].cron", "is int, not text"),
        ({"cron": "0 9 * * *", "timezone": None}, "schedules[0].timezone", "NoneType, not text"),
        ({"cron": "0 9 * * *", "tz": "UTC"}, "schedules[0].tz", "is no field"),
        ({"cron": "0 9 * * *", "dst": "next"}, "schedules[0].dst", "no mapping"),
        ({"cron": "0 9 * * *", "dst": {"gap": "no"}}, "schedules[0].dst.gap", "one of auto, next"),
        (
            {"cron": "0 9 * * *", "dst": {"gaps": "skip"}},
            "schedules[0].dst.gaps",
            "no field of dst",
        ),
        ({"every": "5m", "timezone": "UTC"}, "schedules[0].timezone", "is no field"),
        ({"every": "999ms"}, "schedules[0].every", "shorter than the minimum of 1s"),
        ({"every": 90}, "schedules[0].every", "is int, not text"),
        ({"every": "90"}, "schedules[0].every", "names no unit"),
        (
            {"every": "5m", "anchor": "2026-06-01T12:00:00"},
            "schedules[0].anchor",
            "neither an offset",
        ),
        ({"at": "2026-07-01T09:00:00"}, "schedules[0].at", "neither an offset nor a zone"),
        ({"at": "2026-06-01T11:58:59Z"}, "schedules[0].at", "has passed"),
        ({"at": "tomorrow"}, "schedules[0].at", "is no date and time"),
        ({"in": "-5m"}, "schedules[0].in", "is negative"),
        ({"in": "9000000w"}, "schedules[0].in", "longer than the calendar"),
        ({"in": "500000w"}, "schedules[0].in", "outside the years"),
        ({"now": False}, "schedules[0].now", "unless it is true"),
    ],
)
def test_what_cannot_be_understood_is_refused_at_its_place(
    written: dict[str, Any], field: str, told: str
) -> None:
    ((found_field, message),) = problems_of(written)
    assert found_field == field
    assert told in message


@pytest.mark.parametrize(
    ("extra", "field", "told"),
    [
        ({"at": "2027-03-28T02:30:00", "dst": {"gap": "skip"}}, "at", "does not exist"),
        ({"at": "2026-10-25T02:30:00", "dst": {"repeat": "both"}}, "dst.repeat", "single instant"),
        ({"at": "2026-10-25T02:30:00+05:00"}, "at", "disagrees with its zone"),
    ],
)
def test_a_one_off_that_its_zone_contradicts_is_refused(
    extra: dict[str, Any], field: str, told: str
) -> None:
    ((found_field, message),) = problems_of(extra | {"timezone": "Europe/Berlin"})
    assert found_field == f"schedules[0].{field}"
    assert told in message


def test_all_problems_of_all_schedules_are_told_at_once() -> None:
    found = problems_of(
        {"cron": "60 24 * * *", "timezone": "europe/paris", "dst": {"gap": "x", "repeat": "y"}},
        {"every": "5m"},
        {"every": "1ms", "anchor": "never"},
    )
    assert [field for field, _ in found] == [
        "schedules[0].cron",
        "schedules[0].cron",
        "schedules[0].timezone",
        "schedules[0].dst.gap",
        "schedules[0].dst.repeat",
        "schedules[2].every",
        "schedules[2].anchor",
    ]


def test_a_job_has_one_to_ten_schedules() -> None:
    one = {"every": "5m"}
    assert len(read_schedules([one] * 10, accepted_ms=NOW_MS)) == 10
    assert problems_of(*[one] * 11) == [("schedules", "a job has 1 to 10 schedules, not 11")]
    assert problems_of() == [("schedules", "a job has 1 to 10 schedules, not 0")]


def test_the_shortest_interval_depends_on_the_precision() -> None:
    written = {"every": "100ms"}
    schedule = read_schedule(written, accepted_ms=0, every_ms_min=EVERY_MS_MIN_PRECISE)
    assert schedule == EverySchedule(every_ms=100, anchor_ms=0)
    with pytest.raises(InvalidSchedule):
        read_schedule(written, accepted_ms=0)


def test_values_that_were_not_read_from_text_are_validated_in_the_same_way() -> None:
    good = (CronSchedule(cron="0 9 * * *"), EverySchedule(every_ms=1_000, anchor_ms=0))
    assert validate_schedules((*good, AtSchedule(at_ms=0))) == ()
    bad = (
        CronSchedule(cron="0 9 31 2 *", timezone="Nowhere", gap="a", repeat="b"),
        EverySchedule(every_ms=0, anchor_ms=EPOCH_MS_MAX + 1),
        AtSchedule(at_ms=EPOCH_MS_MAX + 1),
    )
    assert [problem.field for problem in validate_schedules(bad)] == [
        "schedules[0].cron",
        "schedules[0].timezone",
        "schedules[0].dst.gap",
        "schedules[0].dst.repeat",
        "schedules[1].every",
        "schedules[1].anchor",
        "schedules[2].at",
    ]
    assert [problem.field for problem in validate_schedules(())] == ["schedules"]


def test_an_end_that_leaves_no_tick_is_refused() -> None:
    daily = (CronSchedule(cron="0 9 * * *"),)
    assert validate_schedules(daily, start_ms=NOW_MS, end_ms=NOW_MS + 86_400_000) == ()
    for start_ms, end_ms in ((NOW_MS, NOW_MS - 1), (NOW_MS, NOW_MS + 3_600_000)):
        (problem,) = validate_schedules(daily, start_ms=start_ms, end_ms=end_ms)
        assert problem.field == "end"


def test_warnings_name_the_expression_they_are_about() -> None:
    schedules = (CronSchedule(cron="0 0 8 ? * 2"), CronSchedule(cron="0 8 * * *"))
    (warning,) = schedule_warnings(schedules)
    assert warning.startswith("'0 0 8 ? * 2': ")
