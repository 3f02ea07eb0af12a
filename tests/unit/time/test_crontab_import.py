"""Crontab files become entries and problems, as crontab(5) describes them."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from horolog.importers.crontab import Crontab, parse_crontab
from processors.core.cron import parse_cron
from processors.core.problem import InvalidSchedule

CASES = Path(__file__).parents[2] / "cases"
SAMPLES = CASES / "crontab_samples"
EXPECTED: dict[str, dict[str, Any]] = json.loads((SAMPLES / "expected.json").read_text("utf-8"))
# What a careful reading of the file calls a job, and what cannot be scheduled here.
NOT_SCHEDULED = {("03_macros.cron", 1): "@reboot", ("12_disabled_odd_and_wrong.cron", 3): "never"}


def sample(name: str) -> Crontab:
    text = (SAMPLES / name).read_bytes().decode()
    return parse_crontab(text, user_column=EXPECTED[name]["user_column"])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_sample_file_is_read_as_expected(name: str) -> None:
    expected, crontab = EXPECTED[name], sample(name)
    jobs = [job for job in expected["jobs"] if (name, job["line_no"]) not in NOT_SCHEDULED]
    assert [
        (e.line_no, e.expression, e.user, e.command, e.stdin, e.timezone, e.quiet)
        for e in crontab.entries
    ] == [
        (
            job["line_no"],
            job["expression"],
            job["user"],
            job["command"],
            job.get("stdin"),
            job.get("tz"),
            job.get("quiet", False),
        )
        for job in jobs
    ]
    assert [(v.line_no, v.name, v.value) for v in crontab.environment] == [
        (v["line_no"], v["name"], v["value"]) for v in expected["env"]
    ]
    refused = [line_no for sample_name, line_no in NOT_SCHEDULED if sample_name == name]
    assert sorted(problem.line_no for problem in crontab.problems) == sorted(
        [error["line_no"] for error in expected["errors"]] + refused
    )
    assert bool(crontab.warnings) is not expected["final_newline"]


def test_exactly_the_never_firing_line_and_reboot_differ_from_a_careful_reading() -> None:
    for (name, line_no), told in NOT_SCHEDULED.items():
        (problem,) = [p for p in sample(name).problems if p.line_no == line_no]
        assert told in problem.reason


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("0 24 * * * demo x", "hour: '24'"),
        ("0 5 * * demo x", "too few time fields"),
        ("0 5 * * * demo", "names no command"),
        ("0 5 * * * demo   ", "names no command"),
        ("@daily demo", "names no command"),
        ("@fortnightly demo x", "no known macro"),
        ("some words", "is no entry"),
        ("0 0 */2 * 1 demo x", "days that match both"),
        ("0 0 1 * */2 demo x", "days that match both"),
        ('A="b" c', "do not match"),
        ("A='b\"", "do not match"),
    ],
)
def test_a_line_that_cannot_be_scheduled_is_a_problem_with_its_reason(line: str, told: str) -> None:
    crontab = parse_crontab(f"# remark\n{line}\n", user_column=True)
    assert crontab.entries == ()
    (problem,) = crontab.problems
    assert (problem.line_no, problem.line) == (2, line)
    assert told in problem.reason


def test_an_entry_knows_the_variables_set_above_it_and_the_last_value_of_each() -> None:
    text = "A=1\nB=2\n0 1 * * * x\nA=3\n0 2 * * * y\n"
    first, second = parse_crontab(text, user_column=False).entries
    assert dict(first.environment) == {"A": "1", "B": "2"}
    assert dict(second.environment) == {"A": "3", "B": "2"}


def test_a_zone_that_does_not_exist_makes_a_problem_of_every_entry_under_it() -> None:
    text = "CRON_TZ=Mars/Olympus\n0 1 * * * x\nCRON_TZ=\n0 2 * * * y\n"
    crontab = parse_crontab(text, user_column=False)
    assert [entry.line_no for entry in crontab.entries] == [4]
    (problem,) = crontab.problems
    assert problem.line_no == 2
    assert "Mars/Olympus" in problem.reason


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("x", ("x", None)),
        ("x%", ("x", "")),
        ("x%a", ("x", "a\n")),
        ("x%a%", ("x", "a\n")),
        ("x%%a", ("x", "\na\n")),
        (r"x \% y%a\%b%c", ("x % y", "a%b\nc\n")),
    ],
)
def test_a_percent_sign_divides_command_and_input(
    command: str, expected: tuple[str, str | None]
) -> None:
    (entry,) = parse_crontab(f"0 1 * * * {command}\n", user_column=False).entries
    assert (entry.command, entry.stdin) == expected


def test_carriage_returns_are_taken_off_with_a_warning() -> None:
    crontab = parse_crontab("A=1\r\n0 1 * * * x\r\n\r\n", user_column=False)
    assert crontab.entries[0].command == "x"
    assert crontab.environment[0].value == "1"
    assert "carriage return" in crontab.warnings[0]


# Debian's checker accepts what fires at no date; we do not. It refuses these, which we document.
WIDER_THAN_DEBIAN = {"0 0/6 * * *", "5/15 * * * *", "0 0 ? * *", "0 0 L * *"}


def test_the_dialect_accepts_what_debians_checker_accepts_if_it_ever_fires() -> None:
    with (CASES / "importer_oracle.tsv").open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert len(rows) == 34
    for row in rows:
        expression = row["expression"]
        expected = row["debian_cron_3.0pl1_check"] == "ok" or expression in WIDER_THAN_DEBIAN
        try:
            parse_cron(expression)
            accepted = True
        except InvalidSchedule:
            accepted = False
        assert accepted is (expected and expression != "0 0 31 2 *"), expression
