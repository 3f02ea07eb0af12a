"""Previews, the line evaluator, expressions in words, and other programs' dialects."""

import json
from typing import Any

import pytest

from processors.core.cron_dialects import Dialect, explain_dialect
from processors.core.cron_text import describe_cron
from processors.core.preview import COUNT_MAX, cron_next_line, preview
from processors.core.problem import InvalidSchedule
from processors.core.schedule import AtSchedule, CronSchedule, EverySchedule
from schemas.units import parse_instant


def berlin(cron: str, gap: str = "auto", repeat: str = "auto") -> tuple[CronSchedule, ...]:
    return (CronSchedule(cron=cron, timezone="Europe/Berlin", gap=gap, repeat=repeat),)


def test_a_preview_shows_nominal_effective_and_local_time() -> None:
    after_ms = parse_instant("2026-06-01T00:00:00Z")
    (tick,) = preview(berlin("0 9 * * *"), after_ms, 1, jitter_offset_ms=1_500)
    assert tick.at == "2026-06-01T07:00:00.000Z"
    assert tick.effective == "2026-06-01T07:00:01.500Z"
    assert (tick.local, tick.offset, tick.zone) == (
        "2026-06-01T09:00:00",
        "+02:00",
        "Europe/Berlin",
    )
    assert tick.notes == ()


def test_a_schedule_without_a_zone_is_shown_on_the_clock_asked_for() -> None:
    every = (EverySchedule(every_ms=60_500, anchor_ms=0),)
    tick = preview(every, 0, 1, display_zone="America/St_Johns")[0]
    assert (tick.local, tick.offset) == ("1969-12-31T20:31:00.500", "-03:30")


def test_a_preview_ends_with_the_last_tick_and_is_bounded() -> None:
    assert len(preview((AtSchedule(at_ms=5),), 5, 10)) == 1
    assert preview((AtSchedule(at_ms=5),), 6, 10) == []
    assert len(preview(berlin("* * * * *"), 0, 10**9)) == COUNT_MAX
    assert len(preview(berlin("* * * * *"), 0, 9, end_ms=120_000)) == 2


@pytest.mark.parametrize(
    ("schedules", "after", "told"),
    [
        (
            berlin("30 2 * * *"),
            "2026-03-28T12:00:00Z",
            ["02:30 does not exist: the clock goes from 02:00 to 03:00; runs at the first instant"],
        ),
        (
            berlin("30 2 * * *", gap="shift"),
            "2026-03-28T12:00:00Z",
            ["02:30 does not exist: the clock goes from 02:00 to 03:00; runs later by the same"],
        ),
        (
            berlin("*/30 * * * *"),
            "2026-03-29T00:40:00Z",
            ["02:00 was skipped just before: the clock goes from 02:00 to 03:00", ""],
        ),
        (
            berlin("30 2 * * *"),
            "2026-10-24T12:00:00Z",
            [
                "02:30 occurs twice: the clock goes back from 03:00 to 02:00; runs only the first",
                "",
            ],
        ),
        (
            berlin("30 2 * * *", repeat="second"),
            "2026-10-24T12:00:00Z",
            ["02:30 occurs twice: the clock goes back from 03:00 to 02:00; runs only the second"],
        ),
        (
            berlin("30 * * * *"),
            "2026-10-25T00:00:00Z",
            ["02:30 occurs twice: the clock goes back from 03:00 to 02:00; runs both times"] * 2
            + [""],
        ),
    ],
)
def test_a_preview_remarks_on_clock_changes(
    schedules: tuple[CronSchedule, ...], after: str, told: list[str]
) -> None:
    for tick, start in zip(preview(schedules, parse_instant(after), len(told)), told, strict=True):
        assert "".join(tick.notes).startswith(start)
        assert bool(tick.notes) is bool(start)


def ask(**asked: Any) -> Any:
    return json.loads(cron_next_line(json.dumps(asked)))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (
            {"cron": "30 2 * * *", "timezone": "America/New_York", "count": 2},
            ["03-08T07:00:00Z", "03-09T06:30:00Z"],
        ),
        (
            {"cron": "30 2 * * *", "timezone": "America/New_York", "dst": {"gap": "skip"}},
            ["03-09T06:30:00Z"],
        ),
        ({"every": "45m", "count": 2}, ["03-08T07:15:00Z", "03-08T08:00:00Z"]),
        ({"every": "1h", "anchor": "2026-01-01T00:00:00.5Z"}, ["03-08T07:00:00.500Z"]),
        (
            {"at": "2026-03-08T02:30:00", "timezone": "America/New_York", "count": 5},
            ["03-08T07:00:00Z"],
        ),
        ({"in": "1h", "count": 5}, ["03-08T07:30:00Z"]),
        ({"now": True, "count": 5}, ["03-08T06:30:00Z"]),
        (
            {"cron": "0 * * * *", "end": "2026-03-08T08:00:00Z", "count": 5},
            ["03-08T07:00:00Z", "03-08T08:00:00Z"],
        ),
        ({"cron": "0 * * * *", "start": "2026-03-08T09:00:00Z"}, ["03-08T09:00:00Z"]),
        (
            {"schedules": [{"every": "1h"}, {"in": "10m"}], "count": 2},
            ["03-08T06:40:00Z", "03-08T07:30:00Z"],
        ),
    ],
)
def test_a_line_is_answered_with_the_next_instants(
    asked: dict[str, Any], expected: list[str]
) -> None:
    answer = ask(after="2026-03-08T06:30:00Z", **asked)
    assert answer == {"next": [f"2026-{text}" for text in expected]}


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("", "line"),
        ("{", "line"),
        ("[]", "line"),
        ("\ud800", "line"),
        ('{"cron": "* * * * *"}', "after"),
        ('{"cron": "* * * * *", "after": "2026-03-08T06:30:00"}', "after"),
        ('{"cron": "* * * * *", "after": 5}', "after"),
        ('{"cron": "* * * * *", "after": "2026-03-08T06:30:00Z", "count": 0}', "count"),
        ('{"cron": "* * * * *", "after": "2026-03-08T06:30:00Z", "count": true}', "count"),
        ('{"cron": "61 * * * *", "after": "2026-03-08T06:30:00Z"}', "cron"),
        ('{"cron": "* * * * *", "timezone": "Local", "after": "2026-03-08T06:30:00Z"}', "timezone"),
        ('{"schedules": [5], "after": "2026-03-08T06:30:00Z"}', "schedules"),
        ('{"schedules": [{"every": "x"}], "after": "2026-03-08T06:30:00Z"}', "schedules[0].every"),
        ('{"after": "2026-03-08T06:30:00Z"}', "schedule"),
    ],
)
def test_a_line_that_cannot_be_answered_is_answered_with_its_problems(
    line: str, field: str
) -> None:
    answer = json.loads(cron_next_line(line))
    assert [problem["field"] for problem in answer["error"]["problems"]] == [field]
    assert answer["error"]["message"]


def test_a_line_without_an_instant_may_take_one_from_the_caller() -> None:
    answer = json.loads(cron_next_line('{"cron": "* * * * *"}', default_after_ms=0))
    assert answer == {"next": ["1970-01-01T00:01:00Z"]}


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/30 * * * * *", "every 30 seconds"),
        ("@hourly", "at minute 0 of every hour"),
        ("*/45 * * * *", "at minutes 0 and 45 of every hour"),
        ("30 2 * * *", "at 02:30 every day"),
        ("30 0 8 * * *", "at 08:00:30 every day"),
        ("30 2 * * 1-5", "at 02:30 on Monday to Friday"),
        ("0 0 * * FRI-MON", "at 00:00 on Friday to Monday"),
        ("0 0 * * 0,6", "at 00:00 on Saturday and Sunday"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:59 on Monday to Friday"),
        ("0 */2 * * *", "at minute 0 of every 2 hours from 00:00"),
        ("5 7-20/2 * * *", "at minute 5 of hours 7, 9, 11, 13, 15, 17 and 19"),
        ("0 0 1,15 * *", "at 00:00 on days 1 and 15 of the month"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month, and also on Friday"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        (
            "0 5 LW 11-2 *",
            "at 05:00 on the last weekday (Monday to Friday) of the month in November to February",
        ),
        (
            "0 0 15W * *",
            "at 00:00 on the weekday (Monday to Friday) nearest to day 15 of the month",
        ),
        ("0 0 * 2 MON#5", "at 00:00 on the fifth Monday of the month in February"),
        ("0 0 * 1,6 5L", "at 00:00 on the last Friday of the month in January and June"),
    ],
)
def test_an_expression_is_told_in_words(expression: str, told: str) -> None:
    assert describe_cron(expression, "Europe/Paris") == f"{told} (Europe/Paris)"


@pytest.mark.parametrize(
    ("expression", "dialect", "expected"),
    [
        ("0 0 8 * * ?", "quartz", "0 8 * * *"),
        ("0 0/10 * * * ? *", "quartz", "0/10 * * * *"),
        ("30 0 /2 ? * 2-6", "quartz", "30 0 */2 * * MON-FRI"),
        ("0 15 10 ? * 6L", "quartz", "15 10 * * FRIL"),
        ("0 15 10 ? * 6#3", "quartz", "15 10 * * FRI#3"),
        ("0 15 10 ? * L", "quartz", "15 10 * * SAT"),
        ("0 15 10 LW * ?", "quartz", "15 10 LW * *"),
        ("0 15 10 ? JAN mon,fri", "quartz", "15 10 * JAN MON,FRI"),
        ("*/10 * * * ? *", "aws", "*/10 * * * *"),
        ("cron(0 18 ? * MON-FRI *)", "aws", "0 18 * * MON-FRI"),
        ("cron(0 8 ? * 1 *)", "aws", "0 8 * * SUN"),
    ],
)
def test_another_programs_expression_is_written_anew(
    expression: str, dialect: Dialect, expected: str
) -> None:
    assert explain_dialect(expression, dialect).expression == expected


@pytest.mark.parametrize(
    ("expression", "dialect", "told"),
    [
        ("0 15 10 ? * 6L 2002-2005", "quartz", "year"),
        ("0 0 12 L-3 * ?", "quartz", "counts back"),
        ("0 0 12 1 * 2", "quartz", "does not allow"),
        ("0 8 ? * 0 *", "aws", "allowed are 1"),
        ("0 8 ? * 8 *", "aws", "allowed are 1"),
        ("0 8 * * *", "aws", "has 5 fields"),
        ("0 8 * * *", "quartz", "has 5 fields"),
        ("rate(5 minutes)", "aws", "kind 'every'"),
        ("at(2026-01-01T00:00:00)", "aws", "kind 'at'"),
        ("", "aws", "has 0 fields"),
    ],
)
def test_what_has_no_counterpart_is_refused(expression: str, dialect: Dialect, told: str) -> None:
    with pytest.raises(InvalidSchedule, match=told):
        explain_dialect(expression, dialect)


def test_renumbered_weekdays_are_remarked_on() -> None:
    (note,) = explain_dialect("0 0 8 ? * 2", "quartz").notes
    assert note == "day of week 2 counts from 1 = Sunday: MON"
