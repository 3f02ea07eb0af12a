"""What the cron dialect accepts, what it means, and how it refuses the rest."""

from datetime import UTC, date, datetime, timedelta

import pytest

from processors.core.cron import MACROS, parse_cron
from processors.core.cron_match import next_match
from processors.core.problem import InvalidSchedule, Problem

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def local_times(expression: str, after: str, count: int) -> list[str]:
    """The first local times at or after a date, `2026-01-31T00:00`."""
    cron = parse_cron(expression)
    at_s = (datetime.fromisoformat(after).replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
    found: list[str] = []
    while len(found) < count:
        match_s = next_match(cron, at_s)
        assert match_s is not None
        moment = EPOCH + timedelta(seconds=match_s)
        found.append(moment.isoformat()[: 16 if moment.second == 0 else 19])
        at_s = match_s + 1
    return found


def days(expression: str, after: str, count: int) -> list[str]:
    return [moment[5:10] for moment in local_times(f"0 0 {expression}", after, count)]


def problems(expression: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSchedule) as refused:
        parse_cron(expression)
    return refused.value.problems


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("L * *", ["01-31", "02-28", "03-31", "04-30"]),
        ("LW * *", ["01-30", "02-27", "03-31", "04-30"]),
        ("15W * *", ["01-15", "02-16", "03-16", "04-15"]),
        ("1W * *", ["01-01", "02-02", "03-02", "04-01"]),
        ("31W * *", ["01-30", "03-31", "05-29", "07-31"]),  # a month without a 31st has no 31W
        ("1,L * *", ["01-01", "01-31", "02-01", "02-28"]),
        ("* * 5L", ["01-30", "02-27", "03-27", "04-24"]),
        ("* * FRIL", ["01-30", "02-27", "03-27", "04-24"]),
        ("* * 0L", ["01-25", "02-22", "03-29", "04-26"]),
        ("* * 7L", ["01-25", "02-22", "03-29", "04-26"]),
        ("* * MON#2", ["01-12", "02-09", "03-09", "04-13"]),
        ("* * 1#2,5L", ["01-12", "01-30", "02-09", "02-27"]),
        ("* * FRI-MON", ["01-02", "01-03", "01-04", "01-05", "01-09"]),
        ("* * 6-7", ["01-03", "01-04", "01-10", "01-11"]),
        ("* * 0-7/2", ["01-01", "01-03", "01-04", "01-06"]),
        ("* * FRI-MON/2", ["01-02", "01-04", "01-09", "01-11"]),
        ("* * SAT/3", ["01-03", "01-10"]),
        ("30-2 * *", ["01-01", "01-02", "01-30", "01-31", "02-01"]),
        ("1 NOV-FEB *", ["01-01", "02-01", "11-01", "12-01"]),
        ("1 */5 *", ["01-01", "06-01", "11-01", "01-01"]),
        ("? * MON", ["01-05", "01-12"]),
        ("1 * ?", ["01-01", "02-01"]),
        ("? * ?", ["01-01", "01-02"]),
        ("13 * FRI", ["01-02", "01-09", "01-13", "01-16"]),  # either day field
        ("*/10 * MON", ["01-01", "01-05", "01-11", "01-12"]),  # a stepped star restricts
        ("*,1 * MON", ["01-01", "01-02", "01-03"]),  # so does a star in a list
        ("L * 0-6", ["01-01", "01-02", "01-03"]),
    ],
)
def test_a_day_is_named_as_documented(expression: str, expected: list[str]) -> None:
    assert days(expression, "2026-01-01T00:00", len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0/20 * * * *", ["00:00", "00:20", "00:40", "01:00"]),
        ("5-50/15 0 * * *", ["00:05", "00:20", "00:35", "00:50", "00:05"]),
        ("50-5/5 * * * *", ["00:00", "00:05", "00:50", "00:55", "01:00"]),
        ("0 22-2 * * *", ["00:00", "01:00", "02:00", "22:00", "23:00"]),
        ("17 23-23/24 * * *", ["23:17", "23:17"]),
        ("08 09 * * *", ["09:08"]),
        ("*/45 * * * *", ["00:00", "00:45", "01:00", "01:45"]),
        ("*/100 3 * * *", ["03:00", "03:00"]),
        ("15,45 30 12 * * *", ["12:30:15", "12:30:45", "12:30:15"]),
        ("59 59 23 * * *", ["23:59:59", "23:59:59"]),
        ("  0\t8 *  * * ", ["08:00"]),
    ],
)
def test_a_time_of_day_is_named_as_documented(expression: str, expected: list[str]) -> None:
    found = local_times(expression, "2026-01-01T00:00", len(expected))
    assert [moment[11:] for moment in found] == expected


@pytest.mark.parametrize(("macro", "written_out"), MACROS.items())
def test_a_macro_is_the_expression_it_stands_for(macro: str, written_out: str) -> None:
    for text in (macro, macro.upper()):
        assert parse_cron(text).fields == parse_cron(written_out).fields


def test_the_nearest_weekday_never_leaves_the_month() -> None:
    for year in range(2000, 2030):
        for month in range(1, 13):
            length = ((date(year, month, 28) + timedelta(days=4)).replace(day=1) - timedelta(1)).day
            for day in (1, 15, 28, length):
                start = date(year, month, 1).isoformat() + "T00:00"
                found = date.fromisoformat(local_times(f"0 0 {day}W * *", start, 1)[0][:10])
                assert (found.year, found.month) == (year, month)
                assert found.weekday() < 5
                assert abs(found.day - day) <= 2


@pytest.mark.parametrize(
    ("expression", "fields"),
    [
        ("60 24 0 13 8", ["minute", "hour", "day of month", "month", "day of week"]),
        ("60 * * * * *", ["second"]),
        ("x 5- 1,,2 */0 MON#6", ["minute", "hour", "day of month", "month", "day of week"]),
        ("* * * * * * *", ["expression"]),
        ("* * * *", ["expression"]),
        ("", ["expression"]),
        ("   ", ["expression"]),
        ("@reboot", ["expression"]),
        ("@daily 5", ["expression"]),
        ("* * * ? *", ["month"]),
        ("? * * * *", ["minute"]),
        ("* * ?,1 * *", ["day of month"]),
        ("* * L-3 * *", ["day of month"]),
        ("* * W * *", ["day of month"]),
        ("* * 5-15W * *", ["day of month"]),
        ("* * * * L", ["day of week"]),
        ("* * * * L5", ["day of week"]),
        ("* * * * 8L", ["day of week"]),
        ("* * * * MON#0", ["day of week"]),
        ("* * * * MONDAY", ["day of week"]),
        ("* * * MON *", ["month"]),
        ("*5 * * * *", ["minute"]),
        ("**/5 * * * *", ["minute"]),
        ("1-2-3 * * * *", ["minute"]),
        ("*/5/5 * * * *", ["minute"]),
        ("*/ * * * *", ["minute"]),
        ("1,2\n* * * *", ["expression"]),
        ("0 0 * * *\u00a0", ["expression"]),
        ("0 0 31 4 *", ["day of month"]),
        ("0 0 31W 2 *", ["day of month"]),
        ("9999999999999999999999 * * * *", ["minute"]),
        ("0 0 1 1 *" + " " * 2_000, ["expression"]),
    ],
)
def test_everything_else_is_refused_naming_every_bad_field(
    expression: str, fields: list[str]
) -> None:
    assert [problem.field for problem in problems(expression)] == fields


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("60 * * * *", "did you mean 0?"),
        ("0 24 * * *", "did you mean 0?"),
        ("0 0 32 * *", "did you mean 31?"),
        ("0 0 0 * *", "did you mean 1?"),
        ("0 0 * * MONDAY", "did you mean MON?"),
        ("0 0 * SEPT *", "did you mean SEP?"),
        ("0 0 * * TEU", "did you mean TUE?"),
        ("0 0 * * L5", "did you mean 5L?"),
        ("1,2, * * * *", "did you mean 1,2?"),
        ("0 5 * *", "did you mean '0 5 * * *'?"),
        ("@dayly", "did you mean @daily?"),
        ("H 2 * * *", "name a value, and use 'jitter'"),
        ("0 0 12 ? * MON 2030", "write '0 0 12 ? * MON' and bound it with 'start' and 'end'"),
    ],
)
def test_a_refusal_suggests_the_nearest_valid_form(expression: str, hint: str) -> None:
    assert problems(expression)[0].hint == hint


def test_an_aws_expression_is_recognised_and_refused_because_it_would_mean_something_else() -> None:
    told = problems("*/10 * * * ? *")
    assert "looks like AWS" in told[0].message


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("0 0 8 ? * 2-6", "means TUE, WED, THU, FRI, SAT"),
        ("0 8 ? * 1", "means MON"),
        ("0 8 ? * 6L", "means last SAT"),
        ("0 8 ? * 2#1", "means TUE#1"),
        ("*/90 8 * * *", "wider than its range"),
    ],
)
def test_what_may_not_mean_what_it_looks_like_is_accepted_with_a_warning(
    expression: str, told: str
) -> None:
    (warning,) = parse_cron(expression).warnings
    assert told in warning


@pytest.mark.parametrize("expression", ["0 8 ? * MON-FRI", "0 8 * * 1-5", "0 8 1 * ?", "0 8 ? * ?"])
def test_what_is_clear_brings_no_warning(expression: str) -> None:
    assert parse_cron(expression).warnings == ()


@pytest.mark.parametrize(
    ("expression", "starred"),
    [
        ("*/5 * * * *", True),
        ("5 * * * *", True),
        ("*/5 2 * * *", True),
        ("*,5 2 * * *", True),
        ("@hourly", True),
        ("* 5 2 * * *", False),  # the seconds field has no say
        ("0 2 * * *", False),
        ("0-59 0-23 * * *", False),
        ("@daily", False),
    ],
)
def test_minute_and_hour_decide_whether_an_expression_keeps_its_step(
    expression: str, starred: bool
) -> None:
    assert parse_cron(expression).starred is starred


def test_a_match_is_found_up_to_the_end_of_the_year_9999_and_not_beyond() -> None:
    cron = parse_cron("0 0 29 2 *")
    last_s = (datetime(9996, 2, 29, tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
    assert next_match(cron, last_s - 1) == last_s
    assert next_match(cron, last_s + 1) is None
