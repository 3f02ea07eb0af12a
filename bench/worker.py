"""One worker process: how many no-op runs a second it takes from its inbox to the reports."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from horolog.broker import server

from .feeder import Feeder, batches
from .report import emit, say

ITEMS: Final = 200_000
BATCH: Final = 100
RUNS: Final = 3
HANDLERS: Final = """
from horolog import App

app = App()

@app.task("no-op")
def no_op(n: int) -> None:
    return None

@app.task("async-no-op")
async def async_no_op(n: int) -> None:
    return None
"""
_HERTZ: Final = os.sysconf("SC_CLK_TCK")


def worker_no_op() -> None:
    """200,000 runs of a no-op function in one worker: N / (last outcome - first item sent)."""
    values, details = [], []
    with broker() as bootstrap:
        for run in range(RUNS):
            name = f"bench{run}-{int(time.time())}"
            feeder = Feeder(bootstrap, name, "default")
            with worker(bootstrap, name) as process:
                feeder.await_worker()
                feed(feeder, "warm", 20_000, "no-op")
                value, detail = measured(feeder, f"run{run}", ITEMS, "no-op", process.pid)
            feeder.close()
            values.append(value)
            details.append(detail)
            say(f"worker {run + 1}/{RUNS}: {value:,.0f}/s {detail}")
    emit("worker_no_op", "/s", values, {"items": ITEMS, "runs": details})


def measured(
    feeder: Feeder, run: str, count: int, handler: str, pid: int
) -> tuple[float, dict[str, Any]]:
    """Rate, and CPU per run of the worker and of its children."""
    before = [cpu_s(pid), sum(map(cpu_s, children(pid)))]
    seconds = feed(feeder, run, count, handler)
    after = [cpu_s(pid), sum(map(cpu_s, children(pid)))]
    parent, child = (round((b - a) / count * 1e6, 1) for a, b in zip(before, after, strict=True))
    return count / seconds, {"parent_us": parent, "children_us": child}


def feed(feeder: Feeder, run: str, count: int, handler: str) -> float:
    """Run so many items, never more at once than the worker offers; seconds it took."""
    assert feeder.offer is not None
    ready = list(batches(feeder.offer.worker, run, count, BATCH, handler=handler))
    ready.reverse()
    out, done = 0, 0
    started_s = last_s = time.monotonic()
    while done < count:
        room = feeder.offer.places + feeder.offer.ahead
        # The first ones go out whole, so that the worker comes to know how short they are.
        while ready and (out + BATCH <= room or out == 0):
            feeder.send(ready.pop())
            out += BATCH
        for batch in feeder.read(0.05):
            ended = sum(report.kind == "outcome" for report in batch.reports)
            full = [report for report in batch.reports if report.kind == "returned"]
            done += ended + len(full)
            out -= ended + len(full)
            last_s = time.monotonic()
        if time.monotonic() - last_s > 20:
            raise RuntimeError(f"nothing came for 20 s, {done} of {count} are done")
    return last_s - started_s


@contextmanager
def worker(bootstrap: str, namespace: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`horolog worker` with the handlers above, as a process."""
    folder = Path(tempfile.mkdtemp(prefix="horolog-bench-"))
    (folder / "handlers.py").write_text(HANDLERS)
    try:
        with start_worker(bootstrap, namespace, folder) as process:
            yield process
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def start_worker(
    bootstrap: str, namespace: str, folder: Path, *options: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """`horolog worker handlers:app` in the folder, until the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "horolog.sdk_command", "worker", "handlers:app", *options],
        cwd=folder,
        env=os.environ | {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap, "HOROLOG_NAMESPACE": namespace,
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        },
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def broker() -> Iterator[str]:
    """A Kafka of one's own, warm."""
    folder = Path(tempfile.mkdtemp(prefix="horolog-bench-"))
    started = server.start(folder / "broker", log=say)
    try:
        yield started.bootstrap
    finally:
        server.stop(started.data_dir)
        shutil.rmtree(folder, ignore_errors=True)


def cpu_s(pid: int) -> float:
    """CPU time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _HERTZ


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


FIGURES: Final[dict[str, Callable[[], None]]] = {"worker_no_op": worker_no_op}
