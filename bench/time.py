"""What the time core costs: ticks of herds, of expressions never seen, and after an outage.

Counted in time of the processor: nothing here waits for anything, and what else the machine does
is not meant.
"""

import gc
import random
import time
from collections.abc import Iterator
from typing import Final

from processors.core import job as plain
from processors.core import schedule as planned
from processors.core.cron import parse_cron
from processors.core.job import Job
from processors.core.late import decide_late_tick
from processors.core.schedule import CronSchedule, next_tick
from processors.core.spec import Admitted, admit
from processors.core.zones import PINNED
from schemas.commands import JobSpec, ScheduleSpec, TopicTargetSpec
from schemas.state import JobState
from schemas.units import parse_instant

from .report import emit, percentile, say

HERD_JOBS: Final = 1_000_000
HERD_KINDS: Final = 10_000
COLD: Final = 10_000
OUTAGE_JOBS: Final = 100_000
OUTAGE_MS: Final = 86_400_000
RUNS: Final = 3
T0: Final = int(parse_instant("2026-03-28T12:00:00Z"))
SEED: Final = 6


def cron_memo() -> None:
    """Next ticks of 1 M jobs over 10,000 distinct (expression, zone), in no order: µs each."""
    herd = _herd()
    values = []
    for run in range(RUNS):
        planned._next_cron.cache_clear()
        gc.collect()
        gc.disable()
        started_s = time.process_time()
        for plan in herd:
            next_tick(plan, T0)
        values.append((time.process_time() - started_s) / len(herd) * 1e6)
        gc.enable()
        say(f"cron_memo {run + 1}/{RUNS}: {values[-1]:.2f} µs a tick, first looks included")
    emit("cron_memo", "us", values, {"jobs": HERD_JOBS, "kinds": HERD_KINDS, "parsed": "before"})


def cron_cold() -> None:
    """The first tick of an expression and zone that were never asked for: parsing, search, local
    time; the zone's data is loaded. µs each."""
    rng = random.Random(SEED)
    zones = _zones()
    for zone in zones:
        next_tick((CronSchedule(cron="0 0 * * *", timezone=zone),), T0)
    values, worst = [], 0.0
    for run in range(RUNS):
        texts = [next(_expressions(rng)) for _ in range(COLD)]
        parse_cron.cache_clear()
        planned._next_cron.cache_clear()
        took = []
        for n, text in enumerate(texts):
            schedule = (CronSchedule(cron=text, timezone=zones[n % len(zones)]),)
            after_ms = T0 + n * 7_919_000
            started_s = time.process_time()
            next_tick(schedule, after_ms)
            took.append((time.process_time() - started_s) * 1e6)
        values.append(sum(took) / len(took))
        worst = max(worst, percentile(sorted(took), 0.99))
        say(f"cron_cold {run + 1}/{RUNS}: {values[-1]:.1f} µs on average")
    emit("cron_cold", "us", values, {"expressions": COLD, "p99": round(worst, 1)})


def outage() -> None:
    """Deciding per-minute jobs after a day without an owner, by policy: jobs a second. Each is one
    range record and at most one run."""
    for missed in ("latest", "skip", "all"):
        jobs = list(_late_jobs(missed))
        values, records = [], 0
        for run in range(RUNS):
            started_s = time.process_time()
            records = 0
            for key, job in jobs:
                decide = plain.decide_tick if missed == "latest" else decide_late_tick
                decision = decide(key, job, T0 + OUTAGE_MS + 30_000, 1, PINNED.version)
                records = max(records, len(decision.missed) + len(decision.fires))
            values.append(len(jobs) / (time.process_time() - started_s))
            say(f"outage {missed} {run + 1}/{RUNS}: {values[-1]:,.0f} jobs/s")
        emit(f"outage_{missed}", "/s", values,
             {"jobs": OUTAGE_JOBS, "hours": 24, "records_per_decision": records})  # fmt: skip


def _herd() -> list[tuple[CronSchedule, ...]]:
    rng = random.Random(SEED)
    zones = _zones()
    found: dict[tuple[str, str], tuple[CronSchedule, ...]] = {}
    expressions = _expressions(rng)
    while len(found) < HERD_KINDS:
        text, zone = next(expressions), rng.choice(zones)
        found[text, zone] = (CronSchedule(cron=text, timezone=zone),)
    kinds = list(found.values())
    for (schedule,) in kinds:
        parse_cron(schedule.cron)
    herd = [kinds[n % HERD_KINDS] for n in range(HERD_JOBS)]
    rng.shuffle(herd)
    return herd


def _zones() -> list[str]:
    return sorted(name for name in PINNED.names if "/" in name)[::9]


def _expressions(rng: random.Random) -> Iterator[str]:
    while True:
        minute = rng.choice([str(rng.randrange(60)), f"*/{rng.choice([2, 5, 10, 15])}", "*",
                             f"{rng.randrange(30)},{rng.randrange(30, 60)}"])  # fmt: skip
        hour = rng.choice(
            [str(rng.randrange(24)), "*", f"{rng.randrange(12)}-{rng.randrange(12, 24)}"]
        )
        day = rng.choice(["*", "*", "*", str(rng.randrange(1, 29)), "L", "15W"])
        weekday = rng.choice(["*", "*", "1-5", "MON#2", str(rng.randrange(7))])
        yield f"{minute} {hour} {day} * {weekday}"


def _late_jobs(missed: str) -> Iterator[tuple[str, Job]]:
    for n in range(OUTAGE_JOBS):
        zone = ("Europe/Berlin", "America/New_York", "UTC")[n % 3]
        spec = JobSpec(
            schedules=(ScheduleSpec(cron="* * * * *", timezone=zone),), missed=missed,
            topic=TopicTargetSpec(name="out"),
        )  # fmt: skip
        admitted = admit("t", f"j{n}", spec, accepted_ms=T0, namespace="h")
        assert isinstance(admitted, Admitted)
        state = JobState(txn=1, life=1, version=1, sequence=1, status="ACTIVE",
                         cursor_ms=T0, next_ms=T0 + 60_000, due_ms=T0 + 60_000)  # fmt: skip
        yield f"t/j{n}", Job(state, admitted.definition, admitted.plan)


FIGURES = {"cron_memo": cron_memo, "cron_cold": cron_cold, "outage": outage}
