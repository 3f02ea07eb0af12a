"""The jobs of the demonstration, and the three ways in which they are registered."""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from horolog.client import JsonPut, KafkaClient, Sendable
from processors.core.admission import read_definition
from schemas.commands import PutJob
from schemas.replies import Refused

Way = Literal["CLI", "Avro", "JSON"]
TENANT: Final = "default"
FLEET: Final = 24
CLI_S: Final = 60.0


class DemoFailed(Exception):
    """A demonstration could not be given, for the reason that the message tells."""


class DemoJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job: its id, its schedule as written in JSON, and how it is registered."""

    job: str
    schedule: Mapping[str, Any]
    way: Way
    payload: Any = None

    def definition(self, topic: str) -> dict[str, Any]:
        """The definition as JSON has it."""
        target = {"topic": {"name": topic, "key": self.job}}
        return {"schedules": [self.schedule], "target": target, "payload": self.payload}


def demo_jobs(fleet: int = FLEET) -> tuple[DemoJob, ...]:
    """Eight kinds of job, and a fleet of alike ones that makes for some traffic."""
    return (
        DemoJob(job="heartbeat", schedule={"every": "1s"}, way="CLI", payload={"beat": True}),
        DemoJob(job="every-third-second-in-tokyo", way="CLI",
                schedule={"cron": "*/3 * * * * *", "timezone": "Asia/Tokyo"}),
        DemoJob(job="at-once", schedule={"now": True}, way="CLI", payload="hello"),
        DemoJob(job="in-ten-seconds", schedule={"in": "10s"}, way="CLI"),
        DemoJob(job="every-two-seconds", schedule={"every": "2s"}, way="Avro"),
        DemoJob(job="each-minute", schedule={"cron": "* * * * *"}, way="JSON"),
        DemoJob(job="every-five-seconds-in-new-york", way="JSON",
                schedule={"cron": "*/5 * * * * *", "timezone": "America/New_York"}),
        DemoJob(job="daily-in-paris", way="JSON",
                schedule={"cron": "30 1 * * *", "timezone": "Europe/Paris"}),
        *(
            DemoJob(job=f"fleet-{n:02d}", schedule={"every": "1s", "anchor": _anchor(n, fleet)},
                    way="Avro", payload={"n": n})
            for n in range(fleet)
        ),
    )  # fmt: skip


def _anchor(n: int, fleet: int) -> str:
    """Spread over the second, so that at any instant some fire is under way."""
    return f"2026-01-01T00:00:00.{n * 1_000 // fleet:03d}Z"


def register_by_cli(jobs: Iterable[DemoJob], topic: str, environment: Mapping[str, str]) -> None:
    """Run `horolog job put` for each. Raises `DemoFailed` with what it wrote if it fails."""
    for one in jobs:
        command = [sys.executable, "-m", "horolog", *put_arguments(one, topic)]
        done = subprocess.run(  # noqa: S603 our own program
            command, env=environment, capture_output=True, text=True, timeout=CLI_S, check=False
        )
        if done.returncode != 0:
            raise DemoFailed(f"`horolog job put {one.job}` failed: {done.stderr.strip()}")


def put_arguments(one: DemoJob, topic: str) -> list[str]:
    """The command line that registers the job."""
    arguments = ["job", "put", one.job, "--tenant", TENANT]
    for name, value in one.schedule.items():
        arguments += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    arguments += ["--topic", topic, "--key", one.job]
    if one.payload is not None:
        arguments += ["--payload", msgspec.json.encode(one.payload).decode()]
    return arguments


def register_by_kafka(jobs: Iterable[DemoJob], topic: str, client: KafkaClient) -> None:
    """Write a command for each to `commands`, in Avro or JSON. Raises `DemoFailed` if the
    scheduler refuses one."""
    for answer in client.send_all([kafka_command(one, topic) for one in jobs]):
        if isinstance(answer, Refused):
            raise DemoFailed(f"job {answer.job} was refused: {answer.message} {answer.problems}")


def kafka_command(one: DemoJob, topic: str) -> Sendable:
    """The command that registers the job; the same content whichever way it is written."""
    definition = one.definition(topic)
    if one.way == "JSON":
        return JsonPut(tenant=TENANT, job=one.job, definition=definition)
    return PutJob(tenant=TENANT, job=one.job, spec=read_definition(definition))
