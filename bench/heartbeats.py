"""What it costs a worker to hold leases: 10,000 of them, all running, renewed every 20 s."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .feeder import Feeder, batches
from .report import emit, say
from .worker import broker, cpu_s, start_worker

LEASES: Final = 10_000
MEASURED_S: Final = 60.0
HANDLERS: Final = """
import asyncio
from horolog import App

app = App()

@app.task("wait")
async def wait(n: int) -> None:
    await asyncio.sleep(3600)
"""


def heartbeats() -> None:
    """CPU of the worker's own process over three rounds of renewals, in per cent of a core."""
    folder = Path(tempfile.mkdtemp(prefix="horolog-bench-"))
    (folder / "handlers.py").write_text(HANDLERS)
    options = ("--concurrency", str(LEASES), "--processes", "1", "--drain-timeout", "0")
    try:
        with broker() as bootstrap:
            feeder = Feeder(bootstrap, f"beats-{int(time.time())}", "default")
            with start_worker(bootstrap, feeder.namespace, folder, *options) as process:
                offer = feeder.await_worker()
                for value in batches(offer.worker, "beat", LEASES, 500, handler="wait"):
                    feeder.send(value)
                feeder.producer.flush()
                _await_started(feeder)
                say(f"{LEASES:,} leases are held")
                before_s, started_s = cpu_s(process.pid), time.monotonic()
                renewed = _renewals(feeder, started_s + MEASURED_S)
                spent_s = time.monotonic() - started_s
                share = (cpu_s(process.pid) - before_s) / spent_s * 100
                os.kill(process.pid, 9)
            feeder.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if renewed < 2 * LEASES:
        raise RuntimeError(f"only {renewed} renewals of {LEASES} leases in {spent_s:.0f} s")
    detail = {"leases": LEASES, "renewals": renewed, "seconds": round(spent_s, 1)}
    emit("heartbeats", "% of a core", [share], detail)


def _await_started(feeder: Feeder) -> None:
    """Every run has been reported as started: it takes longer than a second."""
    started: set[str] = set()
    until_s = time.monotonic() + 60
    while len(started) < LEASES:
        for batch in feeder.read(0.1):
            started |= {r.execution_id for r in batch.reports if r.kind == "started"}
        if time.monotonic() > until_s:
            raise RuntimeError(f"only {len(started)} runs have started")


def _renewals(feeder: Feeder, until_s: float) -> int:
    count = 0
    while time.monotonic() < until_s:
        for batch in feeder.read(0.5):
            count += sum(report.kind == "heartbeat" for report in batch.reports)
    return count


FIGURES: Final[dict[str, Callable[[], None]]] = {"heartbeats": heartbeats}
