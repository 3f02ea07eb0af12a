"""The HTTP worker as a process: calls the targets of `http` jobs."""

import asyncio
import os
from typing import Final

import msgspec

from horolog.sdk_settings import Where
from horolog.worker_process import Watch, WorkerOptions, moment, name_of, serve
from streams.crash import from_environment
from workers.guard import Guard
from workers.http import HttpCaller

HANDLER: Final = "http"


class HttpAllowed(msgspec.Struct, frozen=True, kw_only=True):
    """What may be called beside https to public addresses."""

    cidrs: tuple[str, ...] = ()
    plain_http: bool = False


PERMISSIVE: Final = HttpAllowed(cidrs=("0.0.0.0/0", "::/0"), plain_http=True)
"""What `horolog up` allows on one machine; link-local and metadata addresses stay refused."""


def run_http(
    where: Where,
    options: WorkerOptions,
    allowed: HttpAllowed,
    *,
    source: str,
    watch: Watch | None = None,
) -> None:
    """Call HTTP targets until SIGTERM or SIGINT; a second one does not wait. `source` is what the
    CloudEvents headers name as such. Raises `ValueError` for what is no network, and what
    `run_application` raises."""
    guard = Guard(allowed.cidrs, allow_plain_http=allowed.plain_http)
    asyncio.run(_run(where, options, guard, source, watch))


async def _run(
    where: Where, options: WorkerOptions, guard: Guard, source: str, watch: Watch | None
) -> None:
    caller = HttpCaller(guard, source=source, now=moment, crash=from_environment(os.environ))
    try:
        await serve(where, (HANDLER,), caller, name_of(options), options, watch)
    finally:
        await caller.close()
