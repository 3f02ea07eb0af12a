"""The gateway: writes that the scheduler has accepted, and reads, both over HTTP."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from horolog.installation import Installation

from .installed import installation
from .report import emit, percentile, say

WRITES: Final = 6_000
WRITERS: Final = 64
READS: Final = 12_000
READERS: Final = 16
JOBS: Final = 1_000
RUNS: Final = 3
TENANT: Final = "default"


def gateway_writes() -> None:
    """6,000 new jobs over 64 connections, each put answered once it is accepted: N / time."""
    with installation(gateway=True) as installed:
        _put(installed, "warmup", 1_000)
        values, details = [], []
        for run in range(RUNS):
            value, detail = _put(installed, f"run{run}", WRITES)
            say(f"gateway_writes {run + 1}/{RUNS}: {value:,.0f}/s {detail}")
            values.append(value)
            details.append(detail)
    emit("gateway_writes", "/s", values,
         {"writes": WRITES, "connections": WRITERS, "runs": details})  # fmt: skip


def gateway_reads() -> None:
    """12,000 reads over 16 connections of one gateway: nine of ten a job, one a list of 20."""
    with installation(gateway=True) as installed:
        _put(installed, "read", JOBS)
        requests = []
        for n in range(READS):
            path = f"/v1/tenants/{TENANT}/jobs"
            path += "?limit=20" if n % 10 == 0 else f"/read-{n % JOBS:06d}"
            requests.append(_request("GET", path))
        asyncio.run(_all(installed.page, requests[:2_000], READERS))
        values, details = [], []
        for run in range(RUNS):
            value, detail = _timed(installed.page, requests, READERS)
            say(f"gateway_reads {run + 1}/{RUNS}: {value:,.0f}/s {detail}")
            values.append(value)
            details.append(detail)
    emit("gateway_reads", "/s", values,
         {"reads": READS, "connections": READERS, "jobs": JOBS, "runs": details})  # fmt: skip


def _put(installed: Installation, name: str, count: int) -> tuple[float, dict[str, Any]]:
    definition = {
        "schedules": [{"cron": "30 2 * * *", "timezone": "Europe/Paris"}],
        "target": {"topic": {"name": "nowhere"}}, "payload": {"kind": "full"},
    }  # fmt: skip
    body = json.dumps(definition).encode()
    requests = [
        _request("PUT", f"/v1/tenants/{TENANT}/jobs/{name}-{n:06d}", body) for n in range(count)
    ]
    return _timed(installed.page, requests, WRITERS)


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


def _timed(page: str, requests: list[bytes], connections: int) -> tuple[float, dict[str, Any]]:
    began_s = time.perf_counter()
    took_ms = sorted(asyncio.run(_all(page, requests, connections)))
    value = len(requests) / (time.perf_counter() - began_s)
    return value, {
        "p50_ms": round(percentile(took_ms, 0.5), 2), "p99_ms": round(percentile(took_ms, 0.99), 2)
    }  # fmt: skip


async def _all(page: str, requests: list[bytes], connections: int) -> list[float]:
    """Each request's time in ms."""
    address = urlsplit(page)
    waiting, took_ms = iter(requests), list[float]()

    async def one_after_another() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        for request in waiting:
            began_s = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            took_ms.append((time.perf_counter() - began_s) * 1_000)
        writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(one_after_another())
    return took_ms


FIGURES: Final[dict[str, Callable[[], None]]] = {
    "gateway_writes": gateway_writes, "gateway_reads": gateway_reads,
}  # fmt: skip
