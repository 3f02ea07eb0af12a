"""`horolog demo --check`: a run with a crash on the way, judged at its end."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from horolog.settings import Settings
from horolog.supervised import Owners

from .check import FIRES_MIN, Verdict, judge
from .evidence import read_evidence, spans_of
from .jobs import DemoFailed, DemoJob, demo_jobs
from .receipts import Lateness, lateness_of
from .stage import Stage

KILL_AFTER: Final = 0.4
"""Share of the wanted fires after which the scheduler is killed."""
AFTER_RESTART_S: Final = 6.0
MARGIN: Final = 1.1
"""Receipts wanted, in terms of fires that must be seen."""
RUN_S_MAX: Final = 60.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The line that `--check` writes."""

    ok: bool
    verdict: Verdict
    jobs: int
    kills: int
    restarts: int
    restart_s: float
    lateness_ms: Lateness | None
    seconds: float


def check(
    settings: Settings,
    data_dir: Path | None,
    say: Callable[[str], None],
    *,
    fires_min: int = FIRES_MIN,
) -> Report:
    """Run, kill the scheduler once with -9, judge. Raises `DemoFailed`, or what a part raises,
    when there is nothing to judge."""
    began_s = time.monotonic()
    jobs = demo_jobs()
    with Stage(settings, data_dir, say) as stage:
        stage.start()
        stage.register(jobs)
        say(f"registered {len(jobs)} jobs through the CLI and through Kafka (Avro, JSON)")
        _await_receipts(stage, int(fires_min * KILL_AFTER), began_s)
        restart_s = _crash(stage, say)
        say(f"the scheduler owns every partition again after {restart_s:.1f} s")
        again_s = time.monotonic()
        _await_receipts(stage, int(fires_min * MARGIN), began_s)
        while time.monotonic() - again_s < AFTER_RESTART_S:
            time.sleep(0.1)
        verdict = _judge(stage, jobs, say, fires_min)
        stage.kept |= not verdict.ok
        lateness = lateness_of(receipt.lateness_ms for receipt in stage.receipts.all)
    return Report(
        ok=verdict.ok, verdict=verdict, jobs=len(jobs), kills=1,
        restarts=stage.installation.scheduler.restarts, restart_s=round(restart_s, 2),
        lateness_ms=lateness, seconds=round(time.monotonic() - began_s, 1),
    )  # fmt: skip


def report_line(report: Report) -> str:
    """The report as one flat JSON object."""
    flat: dict[str, Any] = {"ok": report.ok, "jobs": report.jobs}
    flat |= {k: v for k, v in msgspec.structs.asdict(report.verdict).items() if k != "ok"}
    findings = flat.pop("findings")
    flat |= {"kills": report.kills, "restarts": report.restarts,
             "restart_s": report.restart_s,
             "lateness_ms": report.lateness_ms, "seconds": report.seconds,
             "findings": findings}  # fmt: skip
    return msgspec.json.encode(flat).decode()


def _await_receipts(stage: Stage, wanted: int, began_s: float) -> None:
    while len(stage.receipts) < wanted:
        stage.installation.scheduler.look()
        if time.monotonic() - began_s > RUN_S_MAX:
            seen = len(stage.receipts)
            raise DemoFailed(f"only {seen} of {wanted} receipts after {RUN_S_MAX:.0f} s")
        time.sleep(0.02)


def _crash(stage: Stage, say: Callable[[str], None]) -> float:
    """Kill the scheduler, start it again under the same name; seconds until it owns everything."""
    scheduler = stage.installation.scheduler
    time.sleep(random.random())  # noqa: S311 any instant will do
    say(f"killing the scheduler (process {scheduler.pid}) with -9")
    killed_s = time.monotonic()
    scheduler.kill()
    owners = Owners(stage.installation.log(), stage.settings)
    owners.wait(scheduler.member, scheduler.look)
    return time.monotonic() - killed_s


def _judge(
    stage: Stage, jobs: tuple[DemoJob, ...], say: Callable[[str], None], fires_min: int
) -> Verdict:
    """Let everything come to an end, then look at it."""
    end_ms = stage.pause(jobs)
    stage.finish_receipts()
    found = read_evidence(
        stage.installation.log(), stage.settings.namespace, stage.settings.partitions
    )
    say(f"judging {len(found.fired)} fires by {len(stage.receipts)} receipts")
    spans = spans_of(found.changes, end_ms)
    return judge(spans, found.fired, found.missed, stage.receipts.all, fires_min=fires_min)
