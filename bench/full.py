"""Executions in full: claimed, leased, run by a user's Python function, reported, closed."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from horolog.installation import Installation
from schemas.bindings import EXECUTION_MOVED, PUT_JOB
from schemas.commands import JobSpec, PutJob, ScheduleSpec, WorkerTargetSpec
from schemas.partition import job_key, partition_of
from schemas.units import format_instant
from streams.layout import topic_name

from .installed import installation, producer, reader
from .jobs import READER, TENANTS, Encoded, Replies, send
from .report import emit, percentile, say

FULL_JOBS: Final = 100_000
LATENESS_PER_S: Final = 250
LATENESS_S: Final = 20
WARM_UP_JOBS: Final = 30_000
"""A broker compiles its code for a while: its first 100,000 records cost twice as much."""
RUNS: Final = 3
REGISTER_PER_S_ASSUMED: Final = 7_000


def full() -> None:
    """100,000 executions of a no-op function: N / (last outcome seen - due instant)."""
    with installation() as installed, worker(installed, Path(tempfile.gettempdir())):
        _herd(installed, "warmup", WARM_UP_JOBS)
        values, details = [], []
        for run in range(RUNS):
            value, detail = _herd(installed, f"full{run}", FULL_JOBS)
            say(f"full {run + 1}/{RUNS}: {value:,.0f}/s {detail}")
            values.append(value)
            details.append(detail)
    emit("full", "/s", values, {"jobs": FULL_JOBS, "runs": details})


def lateness() -> None:
    """250 executions a second for 20 s, by the handlers' receipts: began - due."""
    p50, p99, details = [], [], []
    with tempfile.TemporaryDirectory(prefix="horolog-bench-") as name:
        folder = Path(name)
        with installation() as installed, worker(installed, folder):
            _herd(installed, "warmup", WARM_UP_JOBS)
            _spread(installed, "warmlate", folder)
            for run in range(RUNS):
                late = sorted(_spread(installed, f"late{run}", folder))
                p50.append(percentile(late, 0.50))
                p99.append(percentile(late, 0.99))
                early = sum(value < 0 for value in late)
                details.append({"runs": len(late), "early": early, "max_ms": round(late[-1], 1)})
                say(f"lateness {run + 1}/{RUNS}: p50 {p50[-1]:.1f} p99 {p99[-1]:.1f} {details[-1]}")
    emit("lateness_p50", "ms", p50, {"per_s": LATENESS_PER_S, "runs": details})
    emit("lateness_p99", "ms", p99, {"per_s": LATENESS_PER_S, "runs": details})


@contextmanager
def worker(installed: Installation, folder: Path) -> Iterator[None]:
    """`horolog worker bench.handlers:app` with default settings, ended by SIGTERM."""
    settings = installed.settings
    environment = os.environ | {
        "HOROLOG_NAMESPACE": settings.namespace,
        "KAFKA_BOOTSTRAP_SERVERS": installed.bootstrap,
        "BENCH_RECEIPTS": str(folder / "receipts"),
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    command = [sys.executable, "-m", "horolog", "worker", "bench.handlers:app", "--no-register"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def _puts(
    run: str, count: int, partitions: int, handler: str, at_ms: int, spread_ms: int = 0
) -> list[Encoded]:
    commands = []
    for n in range(count):
        tenant, job = TENANTS[n % len(TENANTS)], f"{run}-{n:07d}"
        key = job_key(tenant, job)
        command = PutJob(
            tenant=tenant, job=job, by="bench", reply_to=READER,
            spec=JobSpec(
                schedules=(ScheduleSpec(at=format_instant(at_ms + n * spread_ms // count)),),
                worker=WorkerTargetSpec(handler=handler), payload=b'{"n": %d}' % n,
            ),
        )  # fmt: skip
        commands.append((partition_of(key, partitions), key.encode(), PUT_JOB.encode(command)))
    return commands


def _register(installed: Installation, commands: list[Encoded]) -> None:
    consumer = reader(installed.bootstrap)
    replies = Replies(consumer, installed)
    send(producer(installed.bootstrap), installed, commands)
    replies.await_count(len(commands))
    consumer.close()


def _herd(installed: Installation, name: str, jobs: int) -> tuple[float, dict[str, Any]]:
    partitions = installed.settings.partitions
    due_ms = (int(time.time()) + 8 + jobs // REGISTER_PER_S_ASSUMED) * 1000
    _register(installed, _puts(name, jobs, partitions, "no-op", due_ms))
    if due_ms / 1000 - time.time() < 0.5:
        raise RuntimeError("registering took longer than was assumed")
    outcomes = Outcomes(installed)
    last_ms = outcomes.await_count(jobs, name, due_ms + 120_000)
    return jobs / ((last_ms - due_ms) / 1000), {"seconds": round((last_ms - due_ms) / 1000, 2)}


class Outcomes:
    """Counts terminal events on `executions` from where it ends now."""

    def __init__(self, installed: Installation) -> None:
        self._consumer: Consumer = reader(installed.bootstrap)
        topic = topic_name(installed.settings.namespace, "executions")
        places = []
        for partition in range(installed.settings.partitions):
            place = TopicPartition(topic, partition)
            place.offset = self._consumer.get_watermark_offsets(place, timeout=10)[1]
            places.append(place)
        self._consumer.assign(places)

    def await_count(self, jobs: int, name: str, until_ms: int) -> float:
        """Wall clock ms at which the last of the outcomes was seen."""
        prefix, seen, last_ms = EXECUTION_MOVED.prefix, 0, 0.0
        marker, done = f"/{name}-".encode(), b"\x12SUCCEEDED"
        while seen < jobs and time.time() * 1000 < until_ms:
            messages = self._consumer.consume(20_000, 0.02)
            found = 0
            for message in messages:
                value, key = message.value(), message.key()
                if value is not None and value[:5] == prefix and marker in (key or b""):
                    found += done in value
            if found:
                seen, last_ms = seen + found, time.time() * 1000
        self._consumer.close()
        if seen != jobs:
            raise RuntimeError(f"{jobs} jobs, {seen} outcomes")
        return last_ms


def _spread(installed: Installation, name: str, folder: Path) -> list[float]:
    jobs, partitions = LATENESS_PER_S * LATENESS_S, installed.settings.partitions
    for old in folder.glob("receipts.*"):
        old.write_text("")
    due_ms = int(time.time() * 1000) + 6_000
    _register(installed, _puts(name, jobs, partitions, "stamp", due_ms, LATENESS_S * 1000))
    outcomes = Outcomes(installed)
    outcomes.await_count(jobs, name, due_ms + LATENESS_S * 1000 + 60_000)
    return [
        float(line.split()[1])
        for file in folder.glob("receipts.*")
        for line in file.read_text().splitlines()
    ]


FIGURES: Final[dict[str, Callable[[], None]]] = {"full": full, "lateness": lateness}
