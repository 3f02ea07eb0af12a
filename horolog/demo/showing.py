"""`horolog demo`: jobs firing before your eyes, until Ctrl-C."""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from horolog.settings import Settings
from schemas.partition import job_key
from schemas.units import format_instant

from .jobs import FLEETS, TENANT, DemoJob, demo_jobs
from .receipts import LATENESS_KEPT, Kind
from .stage import Stage, cli_hint

if TYPE_CHECKING:
    from rich.console import RenderableType

WHAT: Final[Mapping[Kind, str]] = {
    "topic": "Kafka topic", "http": "HTTP call", "worker": "Python function"
}  # fmt: skip
RECEIVED: Final[Mapping[Kind, str]] = {"topic": "record", "http": "call", "worker": "run"}
LIVE_EVERY_S: Final = 0.5
LINE_EVERY_S: Final = 2.0


def show(
    settings: Settings, data_dir: Path | None, say: Callable[[str], None], ended: threading.Event
) -> None:
    """Run until `ended`, showing what happens on stderr: a live view on a terminal, else lines."""
    jobs = demo_jobs()
    with Stage(settings, data_dir, say) as stage:
        stage.start()
        for line in _addresses(stage):
            say(line)
        stage.register(jobs)
        say(f"registered {len(jobs)} jobs through the CLI and through Kafka (Avro, JSON)")
        if sys.stderr.isatty():
            _live(stage, jobs, ended)
        else:
            _lines(stage, say, ended)
        say("ending …")
    say(f"{len(stage.receipts)} receipts. `horolog up` is the same, to stay.")


def _live(stage: Stage, jobs: tuple[DemoJob, ...], ended: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    with Live(console=console, auto_refresh=False, redirect_stdout=False) as live:
        while not ended.is_set():
            stage.installation.look()
            live.update(_picture(stage, jobs), refresh=True)
            ended.wait(LIVE_EVERY_S)


def _lines(stage: Stage, say: Callable[[str], None], ended: threading.Event) -> None:
    while not ended.wait(LINE_EVERY_S):
        stage.installation.look()
        say(_summary(stage))


def _picture(stage: Stage, jobs: tuple[DemoJob, ...]) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("JOB", "SCHEDULE", "FIRES", "REGISTERED BY", "RECEIVED", "LAST TICK", "LATE BY"):
        table.add_column(column, justify="right" if column in ("RECEIVED", "LATE BY") else "left")
    for one in jobs:
        if one.fleet:
            continue
        count, last = stage.receipts.of(job_key(TENANT, one.job))
        tick = format_instant(last.scheduled_ms)[11:23] if last is not None else "-"
        late = f"{last.lateness_ms} ms" if last is not None else "-"
        table.add_row(one.job, _schedule(one), WHAT[one.kind], one.way, str(count), tick, late)
    for kind, count in FLEETS.items():
        alike = [one for one in jobs if one.fleet and one.kind == kind]
        received = sum(stage.receipts.of(job_key(TENANT, one.job))[0] for one in alike)
        table.add_row(
            f"fleet of {count}", "every 1s", WHAT[kind], alike[0].way, str(received), "", ""
        )
    head = "\n".join([time.strftime("%H:%M:%S UTC", time.gmtime()), *_addresses(stage)])
    return Group(Text(head), Text(), table, Text(), Text(_summary(stage)))


def _summary(stage: Stage) -> str:
    installation, receipts = stage.installation, stage.receipts
    scheduler = installation.scheduler
    state = f"scheduler {scheduler.pid}" if scheduler.pid is not None else "no scheduler"
    restarts = installation.restarts
    again = f", {restarts} services were started again" if restarts else ""
    lateness = receipts.lateness()
    late = ""
    if lateness is not None:
        late = f", the last {LATENESS_KEPT} late by p50 {lateness.p50} ms, p99 {lateness.p99} ms"
    counts = ", ".join(f"{receipts.of_kind(kind)} {what}s" for kind, what in RECEIVED.items())
    return f"{counts}{late}; {state}{again}"


def _addresses(stage: Stage) -> list[str]:
    installation = stage.installation
    return [
        f"  page    {installation.page}",
        f"  Kafka   {installation.kafka}",
        f"  topic   {stage.topic}, into which jobs fire",
        f"  data    {stage.data_dir}",
        f"  try     {cli_hint(stage)}",
        f"  or      kill -9 {installation.scheduler.pid}  (a scheduler; it comes back)",
        f"  or      kill -9 {stage.python_worker.pid}  (the Python worker; its runs are repeated)",
        "  Ctrl-C  ends everything",
    ]


def _schedule(one: DemoJob) -> str:
    kind, value = next(iter(one.schedule.items()))
    zone = one.schedule.get("timezone", "")
    return " ".join(str(part) for part in (kind, value if value is not True else "", zone) if part)
