"""The command line against a real Kafka and a scheduler that runs as a process of its own."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from horolog.cli.app import app
from horolog.client import KafkaClient
from horolog.doctor import examine
from horolog.settings import load
from processors.topology import topic_set
from projections.jobs import JOB_STATE_TOPIC, SCHEDULES, JobsView
from projections.reading import LogReading
from schemas.commands import JobSpec, PutJob, ScheduleSpec, TopicTargetSpec
from schemas.replies import Accepted
from streams import admin
from streams.clock import SystemClock
from streams.kafka import KafkaLog
from streams.ports import Produced
from streams.topics import TopicSet, TopicSpec

PARTITIONS = 3
SETTLED_S = 30.0


class Here:
    """An installation under a namespace of its own, and the command line that means it."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        run = uuid.uuid4().hex[:8]
        self.bootstrap, self.folder = bootstrap, folder
        self.namespace, self.topic = f"cli-{run}", f"target-{run}.ticks"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HOROLOG_")}
        self.environment = clean | {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "HOROLOG_NAMESPACE": self.namespace,
            "HOROLOG_PARTITIONS": str(PARTITIONS),
            "HOROLOG_DATA_DIR": str(folder),
            "HOROLOG_GATEWAY__PORT": "1",  # where none answers
        }
        self.config: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "horolog", *arguments]

    def run(self, *arguments: str, stdin: str | None = None) -> Result:
        """The command in this process: starting one takes longer than what it does."""
        done = CliRunner().invoke(app, arguments, env=self.environment, input=stdin)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    def run_alone(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """The command as a process of its own."""
        return subprocess.run(
            self.command(*arguments), env=self.environment, text=True, capture_output=True,
            timeout=90, check=False,
        )  # fmt: skip

    def ask(self, *arguments: str) -> Any:
        """What a command writes under `-o json`; it must succeed."""
        done = self.run(*arguments, "-o", "json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, *arguments: str, stdin: str | None = None) -> tuple[int, Any]:
        """Exit code of a command that must fail, and what it says under `-o json`."""
        done = self.run(*arguments, "-o", "json", stdin=stdin)
        assert done.exit_code != 0
        assert done.stdout == ""
        return done.exit_code, json.loads(done.stderr)

    def start_scheduler(self, member: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.command("run", "scheduler", "--member", member), env=self.environment,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.fixture(scope="module")
def here(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    found = Here(broker, tmp_path_factory.mktemp("cli"))
    assert found.run_alone("topics", "apply").returncode == 0
    namespace = found.topic.rpartition(".")[0]
    spec = TopicSpec(suffix="ticks", partitions=2, cleanup="delete")
    admin.apply(found.config, TopicSet(namespace=namespace, partitions=2, specs=(spec,)))
    scheduler = found.start_scheduler("one")
    try:
        yield found
    finally:
        scheduler.terminate()
        assert scheduler.wait(15) == 0, "a scheduler answers SIGTERM with a clean end"
        assert scheduler.stderr is not None
        log = scheduler.stderr.read()
        scheduler.stderr.close()
        assert "Traceback" not in log


def executions(here: Here, job: str, count: int, *arguments: str) -> list[dict[str, Any]]:
    """The job's executions, once there are so many."""
    give_up_s = time.monotonic() + SETTLED_S
    while True:
        found: list[dict[str, Any]] = here.ask("execution", "list", "--job", job, *arguments)
        if len(found) >= count:
            return found
        assert time.monotonic() < give_up_s, f"only {len(found)} of {count} executions"


def test_a_job_is_put_shown_listed_and_fires(here: Here) -> None:
    put = here.run_alone("job", "put", "every", "--every", "1s", "--topic", here.topic,
                         "--key", "k", "--payload", '{"n": 1}', "--name", "Näme")  # fmt: skip
    assert (put.returncode, put.stderr) == (0, "")
    assert put.stdout == "default/every accepted, version 1\n"

    job = here.ask("job", "get", "every")
    # Defaults that nobody wrote are shown like everything else.
    expected = {
        "tenant": "default", "job": "every", "name": "Näme", "state": "ACTIVE", "version": 1,
        "hold": None, "payload": {"n": 1}, "content_type": "application/json",
        "concurrency": "forbid", "missed": "latest", "late_tolerance": "1m", "max_attempts": 1,
        "target": {"topic": {"name": here.topic, "key": "k", "headers": {}, "outcome": "none"}},
    }  # fmt: skip
    assert expected.items() <= job.items()
    assert job["schedules"][0].keys() == {"every", "anchor"}
    assert len(job["next_runs"]) == 5
    assert job["next_runs"][0]["zone"] == "UTC"

    (row,) = [row for row in here.ask("job", "list") if row["job"] == "every"]
    assert (row["state"], row["target"]) == ("ACTIVE", f"topic {here.topic}")
    assert "every 1s" in here.run("job", "list").stdout
    assert here.ask("job", "list", "--tenant", "nobody") == []

    newest, *_, oldest = executions(here, "every", 3, "--state", "succeeded")
    assert newest["scheduled_at"] > oldest["scheduled_at"]
    assert newest["execution_id"] == f"default/every:{newest['scheduled_at']}:1"
    assert newest["claimed_at"] >= newest["due_at"]
    assert len(here.ask("execution", "list", "--job", "every", "--limit", "2")) == 2


def test_times_are_shown_in_utc_and_on_the_clock_of_the_schedule(here: Here) -> None:
    here.ask("job", "put", "paris", "--cron", "30 1 * * *", "--timezone", "Europe/Paris",
             "--every", "1h", "--topic", here.topic)  # fmt: skip
    job = here.ask("job", "get", "paris")
    assert job["schedules"][0] == {
        "cron": "30 1 * * *", "timezone": "Europe/Paris", "dst": {"gap": "auto", "repeat": "auto"},
    }  # fmt: skip
    people = here.run("job", "get", "paris").stdout
    assert "cron 30 1 * * * Europe/Paris" in people
    assert "late tolerance: 1m" in people


def test_the_same_content_is_the_same_version_and_other_content_the_next(here: Here) -> None:
    put = ("job", "put", "versions", "--topic", here.topic, "--every")
    assert here.ask(*put, "1h")["version"] == 1
    assert here.ask(*put, "1h")["version"] == 1
    assert here.ask(*put, "2h", "--if-match", "1")["version"] == 2
    code, told = here.refused(*put, "3h", "--if-match", "1")
    assert (code, told["kind"]) == (4, "version_conflict")
    assert told["problems"][0]["field"] == "if_match"


def test_what_bounds_the_ticks_of_a_job_counts_on_a_real_log(here: Here) -> None:
    here.ask("job", "put", "bounded", "--every", "1s", "--topic", here.topic, "--jitter", "1s",
             "--max-runs", "2", "--missed", "all", "--start-deadline", "1h")  # fmt: skip
    job = here.ask("job", "get", "bounded")
    assert (job["max_runs"], job["jitter"], job["missed"]) == (2, "1s", "all")
    ran = executions(here, "bounded", 2)
    assert {one["state"] for one in ran} == {"SUCCEEDED"}
    assert here.ask("job", "get", "bounded")["state"] == "FINISHED"

    days = [(datetime.now(UTC) + timedelta(days=n)).date().isoformat() for n in range(2)]
    definition = {
        "schedules": [{"every": "1s"}], "target": {"topic": {"name": here.topic}},
        "calendars": {"exclude": [{"dates": days}]},
    }  # fmt: skip
    put = here.run("job", "put", "kept-out", "-f", "-", stdin=json.dumps(definition))
    assert put.exit_code == 0, put.stderr
    kept = executions(here, "kept-out", 2)
    assert {(one["state"], one["reason"]) for one in kept} == {("SKIPPED", "calendar")}


def test_a_command_id_takes_effect_once_and_is_not_for_another_body(here: Here) -> None:
    put = ("job", "put", "once", "--topic", here.topic, "--command-id", "id-1", "--every")
    first, again = here.ask(*put, "1h"), here.ask(*put, "1h")
    assert (first["repeated"], again["repeated"]) == (False, True)
    code, told = here.refused(*put, "2h")
    assert (code, told["kind"]) == (4, "id_reused")


def test_a_paused_job_says_since_when_by_whom_and_why_and_goes_on_when_resumed(here: Here) -> None:
    here.ask("job", "put", "rests", "--every", "1s", "--topic", here.topic)
    executions(here, "rests", 1)
    here.ask("job", "pause", "rests", "--note", "a rest")
    job = here.ask("job", "get", "rests")
    assert job["state"] == "PAUSED"
    assert (job["hold"]["reason"], job["hold"]["note"]) == ("paused", "a rest")
    assert job["hold"]["since"]
    assert job["next_runs"] == []
    assert "paused since" in here.run("job", "get", "rests").stdout
    before = len(here.ask("execution", "list", "--job", "rests"))

    triggered = here.ask("job", "trigger", "rests", "--payload", "7")
    assert "~m" in triggered["execution_id"]
    assert executions(here, "rests", before + 1)[0]["execution_id"] == triggered["execution_id"]

    here.ask("job", "resume", "rests")
    assert here.ask("job", "get", "rests")["hold"] is None
    executions(here, "rests", before + 3)


def test_a_deleted_job_is_gone_and_its_history_stays(here: Here) -> None:
    here.ask("job", "put", "brief", "--now", "--topic", here.topic)
    executions(here, "brief", 1)
    here.ask("job", "delete", "brief", "--note", "done")
    assert here.refused("job", "get", "brief")[0] == 3
    assert "brief" not in [row["job"] for row in here.ask("job", "list")]
    assert len(here.ask("execution", "list", "--job", "brief")) == 1
    assert here.refused("job", "delete", "brief")[0] == 3


@pytest.mark.parametrize("verb", ["get", "delete", "pause", "resume", "trigger"])
def test_an_unknown_job_is_not_found(here: Here, verb: str) -> None:
    code, told = here.refused("job", verb, "nobody")
    assert (code, told["kind"]) == (3, "not_found")
    assert "default/nobody" in told["message"]


def queued(here: Here, job: str, *target: str) -> dict[str, Any]:
    """A job whose runs nobody takes, and its execution that waits."""
    here.ask("job", "put", job, "--now", *target)
    (row,) = executions(here, job, 1, "--state", "queued")
    return row


def test_an_execution_that_waits_is_shown_and_can_be_cancelled(here: Here) -> None:
    row = queued(here, "waits", "--worker", "nobody")
    assert (row["pool"], row["handler"], row["delivery"]) == ("default", "nobody", 0)
    job = here.ask("job", "get", "waits")
    assert job["target"] == {"worker": {"handler": "nobody", "pool": "default"}}
    assert [one["execution_id"] for one in job["open"]] == [row["execution_id"]]
    assert (job["open"][0]["state"], job["open"][0]["lease_until"]) == ("QUEUED", None)

    told = here.run("execution", "cancel", row["execution_id"], "--note", "too late")
    assert told.stdout == f"{row['execution_id']} cancelled\n"
    found = here.ask("execution", "get", row["execution_id"])
    assert (found["state"], found["detail"], found["result"]) == ("CANCELLED", "too late", None)
    assert [event["state"] for event in found["events"]] == ["QUEUED", "CANCELLED"]
    assert here.ask("job", "get", "waits")["open"] == []
    people = here.run("execution", "get", row["execution_id"]).stdout
    assert "CANCELLED: too late" in people.splitlines()[-1]

    # The occurrence key is as good as the execution id.
    occurrence = row["execution_id"].rpartition(":")[0]
    assert here.ask("execution", "get", occurrence)["execution_id"] == row["execution_id"]
    code, refused = here.refused("execution", "cancel", row["execution_id"])
    assert (code, refused["kind"]) == (3, "not_found")


def test_an_http_target_is_shown_with_its_defaults(here: Here) -> None:
    url = "https://example.org/hook"
    put = here.run("job", "put", "calls", "--every", "1h", "--http", url, "--header", "X-A: b")
    assert "X-Deduplication-Key" in put.stderr, "who is called more than once must hear of it"
    assert here.ask("job", "get", "calls")["target"] == {
        "http": {
            "method": "POST", "url": url, "headers": {"X-A": "b"}, "timeout": "30s",
            "completion": "response", "pool": "http",
        }
    }  # fmt: skip
    assert f"http POST {url}" in here.run("job", "list").stdout


def test_an_unknown_execution_is_not_found(here: Here) -> None:
    for verb in ("get", "cancel"):
        code, told = here.refused("execution", verb, "default/no:2026-03-29T01:30:00.000Z:1")
        assert (code, told["kind"]) == (3, "not_found")


def test_doctor_names_what_is_missing_and_what_is_well(here: Here) -> None:
    queued(here, "ill", "--worker", "nobody")
    done = here.run("doctor", "-o", "json")
    assert done.exit_code == 1, "executions wait, and there is neither slots processor nor worker"
    found = {one["check"]: one for one in json.loads(done.stdout)}
    states = {name: one["state"] for name, one in found.items()}
    assert states == {
        "broker": "ok", "kafka release": "ok", "topics": "ok", "clock": "ok", "gateway": "warning",
        "scheduler": "ok",
        "slots": "wrong", "workers of default": "wrong", "workers of http": "warning",
        "quarantine": "ok",
    }  # fmt: skip
    assert found["scheduler"]["told"] == f"all {PARTITIONS} partitions are owned, by one"
    assert "`horolog run slots`" in found["slots"]["hint"]
    here.ask("job", "delete", "ill")


def test_doctor_tells_of_a_record_that_was_set_aside(here: Here) -> None:
    outbox = KafkaLog(here.bootstrap).outbox("test")
    outbox.send([Produced(f"{here.namespace}.commands", 0, b"x", b"\xffnonsense")])
    assert outbox.flush(10)
    outbox.close()
    give_up_s = time.monotonic() + SETTLED_S
    told = ""
    while "1 record could not be used" not in told:
        assert time.monotonic() < give_up_s, told
        told = here.run("doctor").stdout
    assert "warning  quarantine: " in told


class Shifted(SystemClock):
    """A machine whose clock is wrong."""

    def __init__(self, by_ms: int) -> None:
        self._by_ms = by_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._by_ms


@pytest.mark.parametrize(
    ("by_ms", "told"),
    [(30_000, r"(2[5-9]|30)\.\d s ahead of"), (-30_000, r"(2[5-9]|30)\.\d s behind")],
)
def test_doctor_tells_of_a_clock_that_is_wrong(here: Here, by_ms: int, told: str) -> None:
    settings = load(
        {"namespace": here.namespace, "partitions": PARTITIONS,
         "kafka": {"bootstrap": here.bootstrap}}
    )  # fmt: skip
    (clock,) = (one for one in examine(settings, Shifted(by_ms)) if one.check == "clock")
    assert clock.state == "wrong"
    assert re.search(told, clock.told)


def test_doctor_stops_at_topics_that_are_missing(broker: str, tmp_path: Path) -> None:
    done = Here(broker, tmp_path).run("doctor", "-o", "json")
    assert done.exit_code == 1
    last = json.loads(done.stdout)[-1]
    assert (last["check"], last["state"]) == ("topics", "wrong")


def test_a_refusal_names_every_wrong_field(here: Here) -> None:
    definition = {
        "schedules": [{"cron": "99 * * * *", "timezone": "Europe/Lodnon"}],
        "target": {"topic": {"name": here.topic}}, "colour": "red", "max_open": 5,
    }  # fmt: skip
    put = ("job", "put", "bad", "-f", "-")
    code, told = here.refused(*put, stdin=json.dumps(definition))
    assert (code, told["kind"]) == (1, "invalid")
    problems = {problem["field"]: problem for problem in told["problems"]}
    assert problems.keys() >= {"colour", "max_open", "schedules[0].cron", "schedules[0].timezone"}
    assert problems["schedules[0].timezone"]["hint"] == "did you mean 'Europe/London'?"
    assert problems["max_open"]["message"] == "is not built yet"

    people = here.run(*put, stdin=json.dumps(definition)).stderr
    assert people.startswith("error: ")
    assert all(field in people for field in problems)
    assert here.refused("job", "get", "bad")[0] == 3


def test_a_refusal_of_options_names_every_wrong_one(here: Here) -> None:
    code, told = here.refused("job", "put", "bad/id", "--cron", "99 * * * *", "--timezone",
                              "Nowhere", "--every", "1ms", "--topic", "__x")  # fmt: skip
    assert (code, told["kind"]) == (1, "invalid")
    fields = {problem["field"] for problem in told["problems"]}
    assert fields >= {"job", "schedules[0].cron", "schedules[0].timezone", "schedules[1].every"}


def test_without_a_scheduler_a_command_gives_up_and_says_how_to_know(
    broker: str, tmp_path: Path
) -> None:
    alone = Here(broker, tmp_path)
    alone.run("topics", "apply")
    done = alone.run("job", "put", "x", "--now", "--topic", "t", "--wait", "1")
    assert (done.exit_code, done.stdout) == (6, "")
    assert "it may have been accepted" in done.stderr
    assert "--command-id" in done.stderr
    assert alone.run("job", "list").stdout.startswith("JOB")


def test_topics_are_planned_made_and_verified(broker: str, tmp_path: Path) -> None:
    fresh = Here(broker, tmp_path)
    assert {row["action"] for row in fresh.ask("topics", "plan")} == {"create"}
    verified = fresh.run("topics", "verify", "-o", "json")
    assert (verified.exit_code, len(json.loads(verified.stdout))) == (
        1, len(topic_set("", 1).specs),
    )  # fmt: skip
    names = {row["topic"] for row in fresh.ask("topics", "apply")}
    assert f"{fresh.namespace}.commands" in names
    assert fresh.ask("topics", "apply") == []
    assert fresh.ask("topics", "verify") == []
    assert {row["action"] for row in fresh.ask("topics", "plan")} == {"keep"}

    fresh.environment["HOROLOG_PARTITIONS"] = str(PARTITIONS + 1)
    refused = fresh.run_alone("run", "scheduler")
    assert refused.returncode == 1
    assert "the number of partitions is 3, expected 4" in refused.stderr
    planned = fresh.run("topics", "plan", "-o", "json")
    assert planned.exit_code == 1
    rows = {row["topic"].rpartition(".")[2]: row for row in json.loads(planned.stdout)}
    assert (rows["commands"]["action"], rows["replies"]["action"]) == ("wrong", "keep")
    assert rows["commands"]["problems"][0]["what"] == "the number of partitions"


def test_a_topic_of_ones_own_is_created_once_and_never_under_our_names(here: Here) -> None:
    name = f"own-{uuid.uuid4().hex[:8]}"
    assert here.run("topics", "create", name, "--partitions", "2").exit_code == 0
    assert KafkaLog(here.bootstrap).topics().partitions(name) == 2
    again = here.run("topics", "create", name)
    assert (again.exit_code, "already exists" in again.stderr) == (4, True)
    assert here.run("topics", "create", f"{here.namespace}.commands").exit_code == 2


def test_the_tutorial_is_true(here: Here) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-job.md"
    topic = f"greetings-{uuid.uuid4().hex[:8]}"
    text = page.read_text("utf-8").replace("greetings", topic)
    seen = 0
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = step.partition("\n")
            words = shlex.split(line, comments=True)[1:]
            if words == ["up"]:
                continue
            done = here.run(*words)
            assert done.exit_code == (1 if "wrong" in words else 0), done.stderr
            assert done.stdout.startswith(shown)
            seen += 1
    assert seen >= 10


def test_commands_without_topics_say_so(broker: str, tmp_path: Path) -> None:
    code, told = Here(broker, tmp_path).refused("job", "list")
    assert code == 6
    assert "`horolog topics apply`" in told["hint"]


def test_a_second_scheduler_of_one_name_is_refused(here: Here) -> None:
    here.ask("job", "list")
    with here.start_scheduler("one") as second:
        _, told = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "--member" in told


def test_a_scheduler_ends_cleanly_when_it_is_interrupted(here: Here) -> None:
    with here.start_scheduler("two") as second:
        assert second.stderr is not None
        while "scheduler_started" not in second.stderr.readline():
            assert second.poll() is None
        second.send_signal(signal.SIGINT)
        _, rest = second.communicate(timeout=15)
    assert second.returncode == 0
    assert json.loads(rest.splitlines()[-1])["event"] == "scheduler_stopped"


def test_many_jobs_are_registered_in_one_go_and_the_view_has_them_all(here: Here) -> None:
    spec = JobSpec(
        schedules=(ScheduleSpec(every="1h"),), topic=TopicTargetSpec(name=here.topic), payload=b"1"
    )
    commands = [PutJob(tenant="herd", job=f"j-{n:04d}", spec=spec) for n in range(3_000)]
    log = KafkaLog(here.bootstrap)
    with KafkaClient(log, namespace=here.namespace) as client:
        answers = client.send_all(commands)
    assert [answer.job for answer in answers] == [command.job for command in commands]
    assert all(isinstance(answer, Accepted) for answer in answers)

    view, reading = JobsView(), LogReading(log, here.namespace, "test")
    reading.catch_up((SCHEDULES, JOB_STATE_TOPIC), range(PARTITIONS), view.fold)
    reading.close()
    assert [found.definition.job for found in view.jobs("herd")] == [c.job for c in commands]
