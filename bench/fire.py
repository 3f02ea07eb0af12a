"""Fires into a topic: how many a second at one instant, how late, and how fast jobs are taken."""

import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer

from horolog.installation import Installation
from schemas.units import parse_instant

from .installed import create_topic, installation, producer, reader, receiver
from .jobs import Replies, puts, send
from .report import emit, percentile, say

FIRE_JOBS: Final = 200_000
REGISTER_JOBS: Final = 100_000
LATENESS_PER_S: Final = 250
LATENESS_S: Final = 20
RUNS: Final = 3
REGISTER_PER_S_ASSUMED: Final = 6_000
"""Only decides how far ahead the herd is due; all of it is registered before."""


def fire() -> None:
    """200,000 jobs due at one instant: N / (last record seen - due instant)."""
    with installation() as installed:
        warm_up(installed)
        values, details = [], []
        for run in range(RUNS):
            value, detail = herd(installed, f"fire{run}", FIRE_JOBS)
            say(f"fire {run + 1}/{RUNS}: {value:,.0f}/s {detail}")
            values.append(value)
            details.append(detail)
    emit(
        "fire",
        "/s",
        values,
        {"jobs": FIRE_JOBS, "partitions": 12, "gateway": False, "runs": details},
    )


def register() -> None:
    """100,000 jobs through `commands`: N / (last answer seen - first command sent)."""
    with installation() as installed:
        warm_up(installed)
        values = []
        for run in range(RUNS):
            topic = f"register{run}"
            create_topic(installed.bootstrap, topic)
            far_ms = int(time.time() * 1000) + 86_400_000
            partitions = installed.settings.partitions
            commands = puts(topic, REGISTER_JOBS, partitions, topic, far_ms)
            consumer = reader(installed.bootstrap)
            replies = Replies(consumer, installed)
            started_s = time.monotonic()
            send(producer(installed.bootstrap), installed, commands)
            replies.await_count(REGISTER_JOBS)
            values.append(REGISTER_JOBS / (time.monotonic() - started_s))
            consumer.close()
            say(f"register {run + 1}/{RUNS}: {values[-1]:,.0f}/s accepted")
    emit("register", "/s", values, {"jobs": REGISTER_JOBS, "format": "avro", "answered": True})


def fire_lateness() -> None:
    """250 fires a second for 20 s, by receipts: instant seen by the reader - due instant."""
    with installation() as installed:
        warm_up(installed)
        p50, p99, details = [], [], []
        for run in range(RUNS):
            late = sorted(_spread(installed, f"late{run}"))
            p50.append(percentile(late, 0.50))
            p99.append(percentile(late, 0.99))
            early = sum(value < 0 for value in late)
            details.append({"fires": len(late), "early": early, "max_ms": round(late[-1], 1)})
            say(f"lateness {run + 1}/{RUNS}: p50 {p50[-1]:.1f} p99 {p99[-1]:.1f} {details[-1]}")
    emit("fire_lateness_p50", "ms", p50, {"per_s": LATENESS_PER_S, "runs": details})
    emit("fire_lateness_p99", "ms", p99, {"per_s": LATENESS_PER_S, "runs": details})


def herd(installed: Installation, name: str, jobs: int) -> tuple[float, dict[str, Any]]:
    """Register jobs for one instant, let them fire; the rate and how it came about."""
    create_topic(installed.bootstrap, name)
    due_ms = (int(time.time()) + 8 + jobs // REGISTER_PER_S_ASSUMED) * 1000
    consumer = reader(installed.bootstrap)
    replies = Replies(consumer, installed)
    commands = puts(name, jobs, installed.settings.partitions, name, due_ms)
    send(producer(installed.bootstrap), installed, commands)
    replies.await_count(jobs)
    ahead_s = due_ms / 1000 - time.time()
    consumer.close()
    if ahead_s < 0.5:
        raise RuntimeError(f"registering took {-ahead_s:.1f} s longer than was assumed")
    seen, last_ms = _count(receiver(installed.bootstrap, name), jobs, due_ms + 60_000)
    detail = {"seen": seen, "seconds": round((last_ms - due_ms) / 1000, 2)}
    if seen != jobs:
        raise RuntimeError(f"{jobs} jobs, {seen} records")
    return jobs / ((last_ms - due_ms) / 1000), detail


def warm_up(installed: Installation) -> None:
    """A broker that was just started is slow for its first seconds."""
    herd(installed, "warmup", 20_000)


def _count(consumer: Consumer, jobs: int, until_ms: int) -> tuple[int, float]:
    seen, last_ms = 0, 0.0
    while seen < jobs and time.time() * 1000 < until_ms:
        messages = consumer.consume(min(10_000, jobs - seen), 0.02)
        found = sum(message.error() is None for message in messages)
        if found:
            seen, last_ms = seen + found, time.time() * 1000
    consumer.close()
    return seen, last_ms


def _spread(installed: Installation, name: str) -> list[float]:
    jobs = LATENESS_PER_S * LATENESS_S
    create_topic(installed.bootstrap, name)
    due_ms = int(time.time() * 1000) + 6_000
    commands = puts(name, jobs, installed.settings.partitions, name, due_ms, LATENESS_S * 1000)
    send(producer(installed.bootstrap), installed, commands)
    consumer = receiver(installed.bootstrap, name)
    late: list[float] = []
    while len(late) < jobs and time.time() * 1000 < due_ms + LATENESS_S * 1000 + 30_000:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        now_ms = time.time() * 1000
        headers = dict(message.headers() or [])
        late.append(now_ms - parse_instant(headers["X-Horolog-Scheduled-At"].decode()))
    consumer.close()
    if len(late) != jobs:
        raise RuntimeError(f"{jobs} jobs, {len(late)} records")
    return late


FIGURES: Final[dict[str, Callable[[], None]]] = {
    "fire": fire,
    "fire_lateness": fire_lateness,
    "register": register,
}
