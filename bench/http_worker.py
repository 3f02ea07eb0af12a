"""HTTP targets: how many calls a second one worker process makes against a receiver here."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from schemas.leases import HttpCall

from .feeder import Feeder, batches
from .report import emit, say
from .worker import broker, cpu_s

CALLS: Final = 20_000
BATCH: Final = 50
RUNS: Final = 3
ROOT: Final = str(Path(__file__).resolve().parents[1])
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_WORKER: Final = """
import sys
from horolog.http_worker_process import PERMISSIVE, run_http
from horolog.sdk_settings import Where
from horolog.worker_process import WorkerOptions
where = Where(bootstrap=sys.argv[1], namespace=sys.argv[2])
run_http(where, WorkerOptions(pool="http", places=200), PERMISSIVE, source="/horolog/bench")
"""


def http_worker() -> None:
    """20,000 calls through one HTTP worker: N / (last outcome - first item sent)."""
    values, details = [], []
    with broker() as bootstrap, receiver() as port:
        url = f"http://127.0.0.1:{port}/hook"
        for run in range(RUNS):
            feeder = Feeder(bootstrap, f"bench{run}-{int(time.time())}", "http")
            with _worker(bootstrap, feeder.namespace) as process:
                feeder.await_worker()
                _feed(feeder, "warm", 2_000, url)
                before_s = cpu_s(process.pid)
                seconds = _feed(feeder, f"run{run}", CALLS, url)
                cpu_us = round((cpu_s(process.pid) - before_s) / CALLS * 1e6, 1)
            feeder.close()
            values.append(CALLS / seconds)
            details.append({"cpu_us": cpu_us})
            say(f"http {run + 1}/{RUNS}: {values[-1]:,.0f}/s {details[-1]}")
    emit("http_worker", "/s", values, {"calls": CALLS, "places": 200, "runs": details})


def _feed(feeder: Feeder, run: str, count: int, url: str) -> float:
    assert feeder.offer is not None
    call = HttpCall(method="POST", url=url, timeout_ms=30_000)
    items = batches(feeder.offer.worker, run, count, BATCH, handler="http", http=call)
    out, done, left = 0, 0, count
    started_s = last_s = time.monotonic()
    while done < count:
        while left and out + BATCH <= feeder.offer.places + feeder.offer.ahead:
            feeder.send(next(items))
            out, left = out + BATCH, left - BATCH
        for batch in feeder.read(0.05):
            ended = [report for report in batch.reports if report.kind == "outcome"]
            failed = [report for report in ended if report.state != "SUCCEEDED"]
            if failed:
                raise RuntimeError(f"{failed[0].reason}: {failed[0].detail}")
            done, out = done + len(ended), out - len(ended)
            last_s = time.monotonic()
        if time.monotonic() - last_s > 20:
            raise RuntimeError(f"nothing came for 20 s, {done} of {count} are done")
    return last_s - started_s


@contextmanager
def _worker(bootstrap: str, namespace: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, bootstrap, namespace], env=os.environ | {"PYTHONPATH": ROOT}
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def receiver() -> Iterator[int]:
    """A process that answers every request; its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.http_worker"], env=os.environ | {"PYTHONPATH": ROOT},
        stdout=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(10)


class _Answering(asyncio.Protocol):
    """Knows just enough HTTP to see where a request ends."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            size = head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]
            whole = end + 4 + int(size or 0)
            if len(self._data) < whole:
                return
            self._data = self._data[whole:]
            self._transport.write(_ANSWER)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


FIGURES: Final[dict[str, Callable[[], None]]] = {"http_worker": http_worker}

if __name__ == "__main__":
    asyncio.run(_serve())
