"""The jobs of the demonstration, and the three ways in which they are registered."""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

import msgspec

from horolog.client import KafkaClient
from processors.core.admission import read_definition
from processors.exchange import JsonPut, Sendable
from schemas.commands import PutJob
from schemas.replies import Refused

from .receipts import Kind

Way = Literal["CLI", "Avro", "JSON"]
TENANT: Final = "default"
FLEETS: Final[Mapping[Kind, int]] = {"topic": 24, "http": 12, "worker": 12}
"""Jobs of a fleet, each of which fires every second."""
HOLD_MS: Final = 600
"""How long a call or run of every second job of a fleet takes: some are always under way."""
CLI_S: Final = 60.0
HANDLER: Final = "report"


class DemoFailed(Exception):
    """A demonstration could not be given, for the reason that the message tells."""


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where jobs fire to: a topic, and the URL of the receiver of calls."""

    topic: str
    url: str


class DemoJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job: its id, its schedule as written in JSON, what it fires, how it is registered."""

    job: str
    schedule: Mapping[str, Any]
    way: Way
    kind: Kind = "topic"
    payload: Any = None
    hold_ms: int = 0
    fleet: bool = False

    def target(self, to: Addresses) -> dict[str, Any]:
        """The target as JSON has it."""
        match self.kind:
            case "topic":
                return {"topic": {"name": to.topic, "key": self.job}}
            case "http":
                return {"http": {"url": f"{to.url}/http?hold_ms={self.hold_ms}"}}
            case "worker":
                return {"worker": {"handler": HANDLER}}

    def sent(self, to: Addresses) -> Any:
        """The payload; of a Python function its arguments."""
        if self.kind == "worker":
            return {"url": f"{to.url}/worker", "hold_ms": self.hold_ms}
        return self.payload

    def definition(self, to: Addresses) -> dict[str, Any]:
        """The definition as JSON has it."""
        return {
            "schedules": [self.schedule], "target": self.target(to), "payload": self.sent(to)
        }  # fmt: skip


def demo_jobs() -> tuple[DemoJob, ...]:
    """Several kinds of schedule and of target, and fleets of alike jobs that make for traffic."""
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
        DemoJob(job="call-every-two-seconds", kind="http", schedule={"every": "2s"}, way="CLI",
                payload={"n": 1}),
        DemoJob(job="run-every-two-seconds", kind="worker", schedule={"every": "2s"}, way="CLI"),
        *_fleet("fleet", "topic", "Avro"),
        *_fleet("calls", "http", "JSON"),
        *_fleet("runs", "worker", "Avro"),
    )  # fmt: skip


def _fleet(name: str, kind: Kind, way: Way) -> Iterable[DemoJob]:
    """Alike jobs, spread over the second, so that at any instant something is under way."""
    count = FLEETS[kind]
    for n in range(count):
        anchor = f"2026-01-01T00:00:00.{n * 1_000 // count:03d}Z"
        yield DemoJob(
            job=f"{name}-{n:02d}", kind=kind, way=way, payload={"n": n},
            schedule={"every": "1s", "anchor": anchor}, hold_ms=HOLD_MS * (n % 2), fleet=True,
        )  # fmt: skip


def register_by_cli(jobs: Iterable[DemoJob], to: Addresses, environment: Mapping[str, str]) -> None:
    """Run `horolog job put` for each, all at once. Raises `DemoFailed` with what it wrote if one
    fails."""

    def put(one: DemoJob) -> None:
        command = [sys.executable, "-m", "horolog", *put_arguments(one, to)]
        done = subprocess.run(  # noqa: S603 our own program
            command, env=environment, capture_output=True, text=True, timeout=CLI_S, check=False
        )
        if done.returncode != 0:
            raise DemoFailed(f"`horolog job put {one.job}` failed: {done.stderr.strip()}")

    with ThreadPoolExecutor() as pool:
        list(pool.map(put, jobs))


def put_arguments(one: DemoJob, to: Addresses) -> list[str]:
    """The command line that registers the job."""
    arguments = ["job", "put", one.job, "--tenant", TENANT]
    for name, value in one.schedule.items():
        arguments += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    ((kind, target),) = one.target(to).items()
    arguments += [f"--{kind}", next(iter(target.values()))]
    if kind == "topic":
        arguments += ["--key", one.job]
    payload = one.sent(to)
    if payload is not None:
        arguments += ["--payload", msgspec.json.encode(payload).decode()]
    return arguments


def register_by_kafka(jobs: Iterable[DemoJob], to: Addresses, client: KafkaClient) -> None:
    """Write a command for each to `commands`, in Avro or JSON. Raises `DemoFailed` if the
    scheduler refuses one."""
    for answer in client.send_all([kafka_command(one, to) for one in jobs]):
        if isinstance(answer, Refused):
            raise DemoFailed(f"job {answer.job} was refused: {answer.message} {answer.problems}")


def kafka_command(one: DemoJob, to: Addresses) -> Sendable:
    """The command that registers the job; the same content whichever way it is written."""
    definition = one.definition(to)
    if one.way == "JSON":
        return JsonPut(tenant=TENANT, job=one.job, definition=definition)
    return PutJob(tenant=TENANT, job=one.job, spec=read_definition(definition))
