"""`/v1/tenants/{tenant}/executions`: what became of each tick."""

import asyncio
import base64
import binascii
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from processors.topology import SCHEDULES
from projections.executions import EXECUTIONS, Execution, Timeline
from projections.reading import LogReading
from projections.recent import Place
from schemas import limits
from schemas.commands import CancelExecution
from schemas.partition import job_key, partition_of
from schemas.replies import Problem
from schemas.units import format_instant
from streams.layout import topic_name

from . import openapi as documented
from .gateway import (
    Gateway,
    answered,
    await_seen,
    check_ids,
    check_ready,
    json,
    no_body,
)
from .parameters import (
    BY,
    SEEN_S,
    WAIT_S,
    By,
    Cursor,
    ExecutionState,
    Key,
    Limit,
    MinSeq,
    Note,
    ReadWait,
    Wait,
    command_id_of,
    seen_of,
)
from .problems import Refusing
from .shown_executions import execution_document, execution_row

SCANNED_MAX: Final = 20_000
"""Executions looked at for one page of a filtered list."""
TAIL_RECORDS: Final = 200


def routes(gateway: Gateway) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1/tenants/{tenant}", tags=["executions"])
    reading = asyncio.Semaphore(limits.TIMELINES_READ_MAX)

    @router.get("/executions", **documented.read("Executions, the newest first", "Executions"))
    async def list_executions(
        tenant: str,
        job: Annotated[str | None, Query(description="Only this job's.")] = None,
        state: ExecutionState = None,
        limit: Limit = limits.PAGE_ITEMS_DEFAULT,
        cursor: Cursor = None,
        min_seq: MinSeq = None,
        wait: ReadWait = SEEN_S,
    ) -> Response:
        check_ids(tenant, job)
        check_ready(gateway)
        wanted = seen_of(min_seq)
        if wanted is not None and job is None:
            problem = Problem("min_seq", "counts for one job", "name it with `job`")
            raise Refusing("invalid", "the request is not valid", (problem,))
        await await_seen(gateway, tenant, job or "", wanted, wait, executions=True)
        rows, following = page(gateway, tenant, job, state=state, limit=limit, cursor=cursor)
        told = {"executions": [execution_row(row) for row in rows], "next": following}
        return json(told | {"held_since": held_since(gateway)})

    @router.get("/jobs/{job}/executions/{run}",
                **documented.read("One execution, with everything that happened to it",
                                  "Execution"))  # fmt: skip
    async def get_execution(
        tenant: str, job: str, run: str, min_seq: MinSeq = None, wait: ReadWait = SEEN_S
    ) -> Response:
        check_ids(tenant, job)
        check_ready(gateway)
        await await_seen(gateway, tenant, job, seen_of(min_seq), wait, executions=True)
        return json(await execution_whole(gateway, f"{tenant}/{job}:{run}", reading))

    @router.post("/jobs/{job}/executions/{run}:cancel",
                 **documented.write("End an execution"))  # fmt: skip
    async def cancel_execution(
        request: Request, tenant: str, job: str, run: str, note: Note = "", by: By = BY,
        idempotency_key: Key = None, wait: Wait = WAIT_S,
    ) -> Response:  # fmt: skip
        await no_body(request)
        command = CancelExecution(
            tenant=tenant, job=job, execution_id=f"{tenant}/{job}:{run}", note=note, by=by,
            command_id=command_id_of(idempotency_key),
        )  # fmt: skip
        return await answered(gateway, command, wait)

    return router


async def execution_whole(
    gateway: Gateway, execution_id: str, reading: asyncio.Semaphore
) -> dict[str, Any]:
    """The execution's document: from memory where all of it is held, else from the log. Raises
    `Refusing`."""
    held = gateway.live.executions.events(execution_id)
    if held:
        timeline = Timeline(execution_id)
        timeline.take(held)
        return execution_document(timeline)
    if reading.locked():
        raise Refusing("busy", f"{limits.TIMELINES_READ_MAX} executions are being read already")
    async with reading:
        read = await asyncio.to_thread(read_timeline, gateway, execution_id)
    if read.row is None:
        raise Refusing("not_found", f"there is no execution {execution_id}")
    return execution_document(read)


def read_timeline(gateway: Gateway, execution_id: str) -> Timeline:
    """Everything that happened to an execution, or to all attempts of an occurrence. Blocks."""
    owner = execution_id.partition(":")[0]
    tenant, _, job = owner.partition("/")
    settings, log = gateway.settings, gateway.log
    count = log.topics().partitions(topic_name(settings.namespace, SCHEDULES))
    timeline = Timeline(execution_id)
    reading = LogReading(log, settings.namespace, "horolog-gateway-execution")
    try:
        reading.tail(
            EXECUTIONS, [partition_of(job_key(tenant, job), count)],
            lambda record: timeline.fold(record.key, record.value),
            records=TAIL_RECORDS, enough=lambda _: timeline.complete,
        )  # fmt: skip
    finally:
        reading.close()
    return timeline


def page(
    gateway: Gateway, tenant: str, job: str | None, *, state: str | None, limit: int,
    cursor: str | None,
) -> tuple[list[Execution], str | None]:  # fmt: skip
    """Executions, the newest first, and where the next page begins. Raises `Refusing`."""
    before = _place_of(cursor) if cursor is not None else None
    rows: list[Execution] = []
    last: Place | None = None
    newest = gateway.live.executions.newest(tenant, job, before=before)
    for looked, (place, row) in enumerate(newest):
        if (len(rows) == limit or looked == SCANNED_MAX) and last is not None:
            return rows, _cursor_of(last)
        last = place
        if state is None or row.state == state:
            rows.append(row)
    return rows, None


def held_since(gateway: Gateway) -> str | None:
    """The lists have everything that was claimed after this instant; None: they begin where the
    gateway began to read."""
    shed_ms = gateway.live.executions.shed_ms
    return format_instant(shed_ms) if shed_ms else None


def _cursor_of(place: Place) -> str:
    written = msgspec.msgpack.encode(place)
    return base64.urlsafe_b64encode(written).rstrip(b"=").decode()


def _place_of(cursor: str) -> Place:
    try:
        data = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        return msgspec.msgpack.decode(data, type=Place)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        problem = Problem("cursor", "is none of ours", "`next` of the page before")
        raise Refusing("invalid", "the request is not valid", (problem,)) from None
