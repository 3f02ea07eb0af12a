"""`horolog import crontab`: what is printed, what is told, and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from horolog.cli.app import app
from horolog.cli.frame import FAILURE, OK, USAGE
from horolog.importers.yaml_text import to_yaml
from processors.core.admission import read_definition
from processors.core.spec import admit

SAMPLES = Path(__file__).parents[2] / "cases" / "crontab_samples"
EXPECTED: dict[str, dict[str, Any]] = json.loads((SAMPLES / "expected.json").read_text("utf-8"))
NOT_SCHEDULED = {("03_macros.cron", 1), ("12_disabled_odd_and_wrong.cron", 3)}


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["import", "crontab", *arguments], input=stdin)


def sample(name: str, *arguments: str) -> Result:
    column = "--user-column" if EXPECTED[name]["user_column"] else "--no-user-column"
    return run(str(SAMPLES / name), column, *arguments)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_sample_becomes_the_expected_jobs_in_yaml(name: str) -> None:
    done = sample(name, "--worker", "shell", "--timezone", "Europe/Paris")
    documents = [one for one in yaml.safe_load_all(done.stdout) if one is not None]
    jobs = [job for job in EXPECTED[name]["jobs"] if (name, job["line_no"]) not in NOT_SCHEDULED]
    found = [
        (
            one["definition"]["schedules"],
            one["definition"]["payload"]["command"],
            one["definition"]["payload"].get("user"),
            one["definition"]["payload"].get("stdin"),
        )
        for one in documents
    ]
    assert found == [
        (
            [{"cron": job["expression"], "timezone": job.get("tz") or "Europe/Paris"}],
            job["command"], job["user"], job.get("stdin"),
        )
        for job in jobs
    ]  # fmt: skip
    assert len({one["job"] for one in documents}) == len(documents)
    refused = {line_no for sample_name, line_no in NOT_SCHEDULED if sample_name == name}
    wrong = {error["line_no"] for error in EXPECTED[name]["errors"]} | refused
    assert done.exit_code == (FAILURE if wrong else OK)
    assert all(f"  line {line_no}: " in done.stderr for line_no in wrong)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_printed_can_be_put(name: str) -> None:
    done = sample(name, "--http", "https://example.org/run")
    for one in filter(None, yaml.safe_load_all(done.stdout)):
        spec = read_definition(one["definition"])
        admitted = admit("default", one["job"], spec, accepted_ms=0, namespace="h")
        assert not isinstance(admitted, tuple), admitted


def test_without_a_target_what_was_found_is_listed() -> None:
    done = run("-", "--no-user-column", stdin="A=1\n0 5 * * * sweep --all%input\n")
    assert done.exit_code == OK
    assert "kind: job" not in done.stdout
    header, row = done.stdout.splitlines()
    assert header.split() == ["LINE", "CRON", "TIMEZONE", "COMMAND", "STDIN"]
    assert "sweep --all" in row
    (listed,) = json.loads(run("-", "--no-user-column", "-o", "json",
                               stdin="A=1\n0 5 * * * sweep%in\n").stdout)  # fmt: skip
    assert listed["environment"] == {"A": "1"} and listed["stdin"] == "in\n"


def test_a_bad_line_is_told_with_its_text_and_the_others_are_printed() -> None:
    done = run("-", "--no-user-column", "--worker", "shell",
               stdin="@reboot x\n0 5 * * * sweep\n")  # fmt: skip
    assert done.exit_code == FAILURE
    assert yaml.safe_load(done.stdout)["job"] == "sweep"
    assert "line 1: '@reboot x' " in done.stderr


def test_ids_follow_from_the_commands_and_not_from_times_or_places() -> None:
    def ids(text: str) -> list[str]:
        done = run("-", "--no-user-column", "--worker", "w", "--prefix", "web1.", stdin=text)
        return [one["job"] for one in yaml.safe_load_all(done.stdout)]

    first = ids("0 5 * * * /usr/bin/sweep --all\n0 6 * * * ☃\n0 7 * * * ☃\n")
    assert first == ["web1.usr-bin-sweep-all", "web1.command", "web1.command-2"]
    assert ids("# moved\n\n1 2 * * * /usr/bin/sweep --all\n") == first[:1]


def test_the_zone_and_the_user_column_are_told_where_they_are_guessed(tmp_path: Path) -> None:
    table = tmp_path / "cron.d" / "site"
    table.parent.mkdir()
    table.write_text("0 5 * * * demo sweep\n")
    done = run(str(table), "-o", "jsonl")
    assert json.loads(done.stdout)["user"] == "demo"
    assert "--timezone" in done.stderr and "--user-column" in done.stderr
    assert run(str(table), "--user-column", "--timezone", "UTC").stderr == ""


@pytest.mark.parametrize(
    "options",
    [
        ["--worker", "w", "--http", "https://example.org"],
        ["--pool", "p"],
        ["--timezone", "Mars/Olympus"],
        ["--prefix", "a/b"],
        ["--prefix", ".a"],
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_printed(options: list[str]) -> None:
    done = run("-", *options, stdin="0 5 * * * x\n")
    assert (done.exit_code, done.stdout) == (USAGE, "")


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    assert run(str(tmp_path / "none")).exit_code == USAGE
    (tmp_path / "latin").write_bytes(b"# ok\n0 5 * * * caf\xe9\n")
    done = run(str(tmp_path / "latin"))
    assert done.exit_code == FAILURE and "line 2" in done.stderr


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["yes", "NO", "null", "~", "1e3", "0x1f", "2026-01-01", "a: b", "- a", "é"]),
    lambda part: st.lists(part, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), part, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_a_stranger_reads_back_what_is_written_as_yaml(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value
