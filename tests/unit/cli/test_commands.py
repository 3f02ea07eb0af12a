"""Commands as somebody types them, as far as no Kafka is needed."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from horolog.cli.app import app
from horolog.cli.frame import EXIT_CODES, UNAVAILABLE, USAGE, Failure, Format, tell
from horolog.cli.table import write_one, write_rows
from schemas.replies import Problem


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("HOROLOG_") or name == "KAFKA_BOOTSTRAP_SERVERS":
            monkeypatch.delenv(name)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=stdin)


def test_help_imports_nothing_that_takes_long() -> None:
    script = (
        "import sys; from horolog.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'confluent_kafka', 'rocksdict', 'rich.table', 'rich.markdown',\n"
        "         'fastavro', 'schemas.bindings', 'structlog', 'croniter', 'tzdata'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_command_and_every_option_has_a_help_text() -> None:
    from typer.main import get_command

    def look(command: object, path: str) -> Sequence[str]:
        found = [] if getattr(command, "help", None) else [path]
        found += [
            f"{path} {parameter.name}"
            for parameter in getattr(command, "params", [])
            if not getattr(parameter, "help", None) and not parameter.hidden
        ]
        for name, child in getattr(command, "commands", {}).items():
            found += look(child, f"{path} {name}")
        return found

    assert look(get_command(app), "horolog") == []


def test_version_and_exit_codes_are_told() -> None:
    assert run("version").stdout.startswith("horolog 0.")
    told = run("help", "exit-codes").stdout
    assert [int(line.split()[0]) for line in told.splitlines()] == list(EXIT_CODES)


def test_an_unknown_option_is_a_usage_error() -> None:
    done = run("job", "list", "--tennant", "x")
    assert (done.exit_code, done.stdout) == (USAGE, "")
    assert "--tennant" in done.stderr


def test_wrong_settings_are_a_usage_error_that_names_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOROLOG_PARTITIONS", "many")
    monkeypatch.setenv("HOROLOG_NAMSPACE", "x")
    done = run("job", "list")
    assert (done.exit_code, done.stdout) == (USAGE, "")
    assert done.stderr.startswith("error: the settings cannot be used\n")
    assert "  HOROLOG_NAMSPACE: is no setting\n    hint: did you mean HOROLOG_NAMESPACE?" in (
        done.stderr
    )
    assert "partitions" in done.stderr


def test_without_any_kafka_a_command_says_how_to_get_one() -> None:
    done = run("job", "get", "x")
    assert (done.exit_code, done.stdout) == (UNAVAILABLE, "")
    assert "hint: start one with `horolog up`" in done.stderr


def test_a_kafka_that_does_not_answer_is_unavailable() -> None:
    done = run("job", "list", "--bootstrap", "127.0.0.1:1", "-o", "json")
    assert (done.exit_code, done.stdout) == (UNAVAILABLE, "")
    assert json.loads(done.stderr)["kind"] == "unavailable"


def test_the_broker_of_an_empty_folder_is_stopped(tmp_path: Path) -> None:
    done = run("broker", "status", "--data", str(tmp_path), "-o", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["state"] == "stopped"
    assert run("broker", "stop", "--data", str(tmp_path)).exit_code == 0


def test_the_embedded_broker_is_not_started_beside_a_kafka_that_was_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka:9092")
    done = run("broker", "start")
    assert done.exit_code == 1
    assert "kafka:9092" in done.stderr


def test_job_put_takes_either_a_file_or_options() -> None:
    done = run("job", "put", "x", "-f", "job.json", "--every", "10s")
    assert done.exit_code == USAGE
    assert "leave out the options" in done.stderr
    assert run("job", "put", "x", "-f", "nowhere.json").exit_code == USAGE


def test_cron_next_shows_ticks_with_a_remark_where_the_clock_changes() -> None:
    done = run("cron", "next", "30 2 * * *", "--timezone", "Europe/Paris",
               "--after", "2026-03-28T12:00:00Z", "-n", "2", "-o", "jsonl")  # fmt: skip
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["at"], first["local"]) == ("2026-03-29T01:00:00.000Z", "2026-03-29T03:00:00")
    assert "02:30 does not exist" in first["notes"][0]
    assert second["at"] == "2026-03-30T00:30:00.000Z"
    table = run("cron", "next", "30 2 * * *", "--after", "2026-03-28T12:00:00Z").stdout
    assert table.splitlines()[0].split() == ["AT", "LOCAL", "OFFSET", "ZONE"]
    assert len(table.splitlines()) == 6


def test_cron_next_answers_json_lines_one_by_one() -> None:
    asked = '{"cron": "0 0 * * *", "after": "2026-01-01T00:00:00Z"}\n\n{"cron": "61 * * * *"}\nx\n'
    done = run("cron", "next", "--stdin", stdin=asked)
    assert done.exit_code == 0
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert first == {"next": ["2026-01-02T00:00:00Z"]}
    assert "61" in second["error"]["message"]
    assert "is no JSON" in third["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), USAGE, "one schedule is needed"),
        (("* * * * *", "--every", "1h"), USAGE, "one schedule is needed"),
        (("* * * * *", "--after", "yesterday"), USAGE, "--after 'yesterday'"),
        (("99 * * * *", "--timezone", "Europe/Lodnon"), 1, "Europe/London"),
    ],
)
def test_cron_next_says_what_is_wrong(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = run("cron", "next", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr


def test_cron_explain_says_in_words_when_an_expression_fires() -> None:
    done = run("cron", "explain", "*/5 9-17 * * 1-5", "--timezone", "Europe/Paris", "-o", "json")
    told = json.loads(done.stdout)
    assert told == {
        "cron": "*/5 9-17 * * 1-5", "notes": [],
        "fires": "every 5 minutes from 09:00 to 17:59 on Monday to Friday (Europe/Paris)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "foreign", "ours"),
    [("quartz", "0 0 9 ? * 2", "0 9 * * MON"), ("aws", "cron(0 9 ? * 2#1 *)", "0 9 * * MON#1")],
)
def test_cron_explain_reads_other_programs_expressions_and_writes_them_in_ours(
    dialect: str, foreign: str, ours: str
) -> None:
    done = run("cron", "explain", foreign, "--dialect", dialect, "-o", "json")
    told = json.loads(done.stdout)
    assert told["cron"] == ours
    assert "counts from 1 = Sunday" in told["notes"][0]


@pytest.mark.parametrize(
    "arguments",
    [
        ("99 * * * *",), ("* * * * *", "--timezone", "Europe/Lodnon"),
        ("0 0 9 1 * 2", "--dialect", "quartz"),
    ],
)  # fmt: skip
def test_cron_explain_says_what_is_wrong(arguments: tuple[str, ...]) -> None:
    done = run("cron", "explain", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "error: the expression cannot be read" in done.stderr


def test_config_show_says_what_counts_and_where_it_comes_from_but_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("horolog.toml").write_text('tenant = "t"\n[kafka.client]\n"sasl.password" = "s3cret"')
    monkeypatch.setenv("HOROLOG_LEASE_MS", "3000")
    arguments = ("config", "show", "--origin", "--namespace", "ns")
    done = run(*arguments, "-o", "json")
    told = {one["setting"]: (one["value"], one["origin"]) for one in json.loads(done.stdout)}
    assert told["namespace"] == ("ns", "flag")
    assert told["lease_ms"] == (3_000, "environment: HOROLOG_LEASE_MS")
    assert told["tenant"] == ("t", "file: horolog.toml")
    assert told["kafka.client.sasl.password"] == ("***", "file: horolog.toml")
    assert told["partitions"] == (12, "default")
    people = run(*arguments).stdout
    assert "s3cret" not in done.stdout + people
    assert people.splitlines()[0].split() == ["SETTING", "VALUE", "ORIGIN"]
    assert "ORIGIN" not in run("config", "show").stdout


def test_doctor_stops_where_there_is_nothing_more_to_look_at(tmp_path: Path) -> None:
    done = run("doctor", "--data", str(tmp_path), "-o", "json")
    assert done.exit_code == 1
    *tools, broker = json.loads(done.stdout)
    assert (broker["check"], broker["state"]) == ("broker", "wrong")
    assert broker["hint"].startswith("`horolog up`")
    assert {one["check"] for one in tools} <= {"java", "maven"}


def test_doctor_does_not_look_for_java_where_a_kafka_is_named() -> None:
    done = run("doctor", "--bootstrap", "127.0.0.1:1")
    assert done.exit_code == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith("wrong    broker: Kafka at 127.0.0.1:1 does not answer")


@pytest.mark.parametrize(
    "arguments",
    [
        ("execution", "get", "nonsense"), ("execution", "cancel", "default/job"),
        ("execution", "list", "--state", "asleep"),
    ],
)  # fmt: skip
def test_what_is_no_execution_id_or_state_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (USAGE, "")
    assert "hint:" in done.stderr


def test_a_failure_is_lines_for_people_or_one_json_object(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = (Problem("a", "is wrong", "right"), Problem("b", "too"))
    failure = Failure("no", hint="try", kind="invalid", problems=problems, details={"job": "j"})
    tell(failure)
    assert capsys.readouterr() == (
        "",
        "error: no\n  a: is wrong\n    hint: right\n  b: too\nhint: try\n",
    )
    tell(failure, Format.JSONL)
    told = json.loads(capsys.readouterr().err)
    assert told == {
        "kind": "invalid", "message": "no", "hint": "try", "job": "j",
        "problems": [{"field": "a", "message": "is wrong", "hint": "right"},
                     {"field": "b", "message": "too", "hint": ""}],
    }  # fmt: skip


def test_rows_are_a_table_a_document_or_lines(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"job": "[red]x", "next_run": None, "n": 1}, {"job": "日本", "next_run": "now", "n": 2}]
    write_rows(rows, ("job", "next_run"), Format.TABLE)
    assert capsys.readouterr().out == "JOB     NEXT RUN\n[red]x  -\n日本    now\n"
    write_rows(rows, ("job",), Format.JSON)
    assert json.loads(capsys.readouterr().out) == rows
    write_rows(rows, ("job",), Format.JSONL)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    write_rows([], ("job",), Format.JSONL)
    assert capsys.readouterr().out == ""


def test_one_thing_is_its_fields_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    write_one({"job": "x", "next_runs": ["a", "b"], "none": []}, Format.TABLE)
    assert capsys.readouterr().out == "job:       x\nnext runs: a\n           b\nnone:      -\n"
