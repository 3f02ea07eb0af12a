"""`horolog demo --check`: a run with crashes on the way, judged at its end."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from horolog.owners import Owners
from horolog.settings import Settings
from horolog.supervised import Supervised
from processors.topology import JOB_STATE

from .check import WANTED, Verdict
from .check_runs import runs_of
from .evidence import Evidence
from .jobs import FLEETS, DemoFailed, DemoJob, demo_jobs
from .receipts import Kind, Lateness, lateness_of
from .stage import LEASE_MS, Stage

SCHEDULER_DIES_AT: Final = 0.3
WORKERS_DIE_AT: Final = 0.6
"""Shares of the wanted receipts after which processes are killed."""
AFTER_CRASH_S: Final = LEASE_MS / 1_000 + 2.0
"""Until work whose lease was lost has been delivered again."""
AFTER_CRASH: Final = 2
"""Receipts of each job, on average, before workers that were killed count as back."""
MARGIN: Final = 1.1
"""Receipts wanted, in terms of executions that must be seen."""
RUN_S_MAX: Final = 120.0
END_S: Final = 20.0
JUDGE_S: Final = 30.0


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


def check(settings: Settings, data_dir: Path | None, say: Callable[[str], None]) -> Report:
    """Run, kill the scheduler and each worker once with -9, judge. Raises `DemoFailed`, or what a
    part raises, when there is nothing to judge."""
    began_s = time.monotonic()
    jobs = demo_jobs()
    with Stage(settings, data_dir, say) as stage:
        stage.start()
        restarts = stage.installation.restarts
        stage.register(jobs)
        say(f"registered {len(jobs)} jobs through the CLI and through Kafka (Avro, JSON)")
        _await_receipts(stage, _share(SCHEDULER_DIES_AT), began_s)
        restart_s = _crash_scheduler(stage, say)
        say(f"the scheduler owns every partition again after {restart_s:.1f} s")
        _await_receipts(stage, _share(WORKERS_DIE_AT), began_s)
        workers = (stage.installation.http_worker, stage.python_worker)
        for worker in workers:
            _crash(worker, say)
        crashed_s = time.monotonic()
        back = {k: stage.receipts.of_kind(k) + AFTER_CRASH * n for k, n in FLEETS.items()}
        _await_receipts(stage, back, began_s)
        _await_receipts(stage, _share(MARGIN), began_s)
        while time.monotonic() - crashed_s < AFTER_CRASH_S:
            stage.installation.look()
            time.sleep(0.1)
        verdict = _judge(stage, jobs, say)
        stage.kept |= not verdict.ok
        lateness = lateness_of(
            receipt.lateness_ms for receipt in stage.receipts.all if receipt.delivery == 1
        )
        restarts = stage.installation.restarts - restarts
    return Report(
        ok=verdict.ok, verdict=verdict, jobs=len(jobs), kills=1 + len(workers),
        restarts=restarts, restart_s=round(restart_s, 2), lateness_ms=lateness,
        seconds=round(time.monotonic() - began_s, 1),
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


def _share(share: float) -> dict[Kind, int]:
    """So much of what is wanted."""
    return {kind: int(least * share) for kind, least in WANTED.items()}


def _await_receipts(stage: Stage, wanted: Mapping[Kind, int], began_s: float) -> None:
    """Return once so many were received of every kind."""
    while True:
        missing = {
            kind: f"{seen} of {least}"
            for kind, least in wanted.items()
            if (seen := stage.receipts.of_kind(kind)) < least
        }
        if not missing:
            return
        stage.installation.look()
        if time.monotonic() - began_s > RUN_S_MAX:
            told = ", ".join(f"{kind} {seen}" for kind, seen in missing.items())
            raise DemoFailed(f"too few receipts after {RUN_S_MAX:.0f} s: {told}")
        time.sleep(0.02)


def _crash(service: Supervised, say: Callable[[str], None]) -> None:
    time.sleep(random.random())  # noqa: S311 any instant will do
    say(f"killing {service.name} (process {service.pid}) with -9")
    service.kill()


def _crash_scheduler(stage: Stage, say: Callable[[str], None]) -> float:
    """Kill a scheduler, start it again under the same name; seconds until all is owned."""
    installation = stage.installation
    _crash(installation.scheduler, say)
    killed_s = time.monotonic()
    owners = Owners(installation.log(), stage.settings, JOB_STATE)
    owners.wait(installation.members, installation.look)
    return time.monotonic() - killed_s


def _judge(stage: Stage, jobs: tuple[DemoJob, ...], say: Callable[[str], None]) -> Verdict:
    """Let everything come to an end, then have it looked at."""
    end_ms = stage.pause(jobs)
    _await_end(stage)
    receipts = stage.finish_receipts()
    say(f"judging by {len(stage.receipts)} receipts")
    done = subprocess.run(  # noqa: S603 our own program
        [sys.executable, "-m", "horolog.demo.judging", str(receipts), str(end_ms)],
        env=stage.environment, capture_output=True, timeout=JUDGE_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise DemoFailed(f"the checker failed: {done.stderr.decode().strip()}")
    return msgspec.json.decode(done.stdout, type=Verdict)


def _await_end(stage: Stage) -> None:
    """Return once nothing runs any more, or after a while: then it counts as not ended."""
    settings, until_s = stage.settings, time.monotonic() + END_S
    log = stage.installation.log()
    with closing(Evidence(log, settings.namespace, settings.partitions)) as evidence:
        while time.monotonic() < until_s:
            evidence.catch_up()
            if all(run.ended for run in runs_of(evidence.fired, evidence.moved, ())):
                return
            stage.installation.look()
            time.sleep(0.2)
