"""`/v1/tenants/{tenant}/jobs`: everything about jobs."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from processors.exchange import JsonCommand, JsonPut, Sendable
from projections.executions import TERMINAL
from projections.jobs import JobView
from schemas import limits
from schemas.commands import DeleteJob, PauseJob, ResumeJob
from schemas.replies import Problem, Refused

from . import openapi as documented
from .gateway import (
    SEQUENCE,
    Gateway,
    answered,
    await_seen,
    check_ids,
    check_ready,
    json,
    json_of,
    no_body,
    told,
    unanswered_yet,
)
from .parameters import (
    BY,
    SEEN_S,
    WAIT_S,
    By,
    Cursor,
    IfMatch,
    IfNoneMatch,
    JobState,
    Key,
    Limit,
    MinSeq,
    Note,
    ReadWait,
    Sought,
    Wait,
    command_id_of,
    seen_of,
    version_of,
)
from .patch import BadPatch, patched
from .problems import Refusing
from .sending import Unanswered
from .shown import job_document, job_row
from .shown_executions import execution_row

SCANNED_MAX: Final = 5_000
"""Jobs looked at for one page of a filtered list."""
_ENVELOPE: Final = frozenset({
    "type", "tenant", "job", "command_id", "reply_to", "by", "note", "hops", "if_match",
})  # fmt: skip


def routes(gateway: Gateway) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1/tenants/{tenant}/jobs", tags=["jobs"])

    @router.put("/{job}", **documented.write("Create a job or replace its definition",
                                             body="Definition"))  # fmt: skip
    async def put_job(
        request: Request, tenant: str, job: str, note: Note = "", by: By = BY,
        idempotency_key: Key = None, if_match: IfMatch = None, if_none_match: IfNoneMatch = None,
        wait: Wait = WAIT_S,
    ) -> Response:  # fmt: skip
        if if_match is not None and if_none_match is not None:
            both = Problem("If-None-Match", "does not go with If-Match", "one of the two")
            raise Refusing("invalid", "the request is not valid", (both,))
        definition = await json_of(request)
        command = JsonPut(
            tenant=tenant, job=job, definition=definition, note=note, by=by,
            command_id=command_id_of(idempotency_key),
            if_match=version_of(if_match, if_none_match),
        )  # fmt: skip
        return await answered(gateway, command, wait)

    @router.patch("/{job}", **documented.write("Change a part of a job (JSON merge patch)",
                                               body="Patch"))  # fmt: skip
    async def patch_job(
        request: Request, tenant: str, job: str, note: Note = "", by: By = BY,
        idempotency_key: Key = None, if_match: IfMatch = None, wait: Wait = WAIT_S,
    ) -> Response:  # fmt: skip
        check_ids(tenant, job)
        check_ready(gateway)
        patch = await json_of(request)
        command = JsonPut(
            tenant=tenant, job=job, definition=None, note=note, by=by,
            command_id=command_id_of(idempotency_key),
        )  # fmt: skip
        return await patch_with(gateway, command, patch, version_of(if_match), wait)

    @router.get("/{job}", **documented.read("A job: definition, state, next runs", "Job"))
    async def get_job(
        tenant: str, job: str, min_seq: MinSeq = None, wait: ReadWait = SEEN_S
    ) -> Response:
        check_ids(tenant, job)
        check_ready(gateway)
        await await_seen(gateway, tenant, job, seen_of(min_seq), wait)
        view = found(gateway, tenant, job)
        state = view.state
        headers = {"ETag": f'"{state.version}"', SEQUENCE: f"{state.life}.{state.sequence}"}
        return json(job_whole(gateway, view), 200, headers)

    @router.get("", **documented.read("Jobs by id, in pages", "Jobs"))
    async def list_jobs(
        tenant: str,
        state: JobState = None,
        q: Sought = "",
        limit: Limit = limits.PAGE_ITEMS_DEFAULT,
        cursor: Cursor = None,
    ) -> Response:  # fmt: skip
        check_ids(tenant)
        check_ready(gateway)
        views, following = page(gateway, tenant, state=state, q=q, limit=limit, cursor=cursor)
        rows = [job_row(view) | {"last": last_of(gateway, view)} for view in views]
        return json({"jobs": rows, "next": following, "complete": not gateway.live.jobs.full})

    for name, method, path, kind, summary in STEERING:
        steer = _steering(gateway, kind)
        router.add_api_route(path, steer, methods=[method], name=name, **documented.write(summary))

    @router.post("/{job}:trigger", **documented.write("Run a job once, now", body="Trigger"))
    async def trigger_job(
        request: Request, tenant: str, job: str, note: Note = "", by: By = BY,
        idempotency_key: Key = None, wait: Wait = WAIT_S,
    ) -> Response:  # fmt: skip
        fields = await json_of(request, optional=True)
        foreign = sorted(_ENVELOPE & fields.keys())
        if foreign:
            raise Refusing("invalid", "the request is not valid", [
                Problem(name, "is no field of the body", "see the address, query and headers")
                for name in foreign
            ])  # fmt: skip
        command: Sendable = JsonCommand(
            kind="trigger", tenant=tenant, job=job, fields=fields, note=note, by=by,
            command_id=command_id_of(idempotency_key),
        )  # fmt: skip
        return await answered(gateway, command, wait)

    return router


STEERING: Final = (
    ("delete_job", "DELETE", "/{job}", DeleteJob, "End a job; its history stays"),
    ("pause_job", "POST", "/{job}:pause", PauseJob, "No ticks until resumed"),
    ("resume_job", "POST", "/{job}:resume", ResumeJob, "Ticks again, from now on"),
)
"""Commands that say nothing but which job: name, method, path, kind, summary."""


def _steering(
    gateway: Gateway, kind: type[DeleteJob | PauseJob | ResumeJob]
) -> Callable[..., Awaitable[Response]]:
    """What answers a request for such a command."""

    async def steer(
        request: Request, tenant: str, job: str, note: Note = "", by: By = BY,
        idempotency_key: Key = None, if_match: IfMatch = None, wait: Wait = WAIT_S,
    ) -> Response:  # fmt: skip
        await no_body(request)
        command = kind(
            tenant=tenant, job=job, note=note, by=by, command_id=command_id_of(idempotency_key),
            if_match=version_of(if_match),
        )  # fmt: skip
        return await answered(gateway, command, wait)

    return steer


async def patch_with(
    gateway: Gateway, command: JsonPut, patch: dict[str, Any], if_match: int | None, wait_s: float
) -> Response:
    """Patch a job: put what follows from the version that is known, and once more from a newer one
    if there is one by then. Raises `Refusing`."""
    tenant, job = command.tenant, command.job
    for tries_left in range(limits.PATCH_TRIES_MAX - 1, -1, -1):
        view = found(gateway, tenant, job)
        try:
            definition = patched(view, patch)
        except BadPatch as bad:
            raise Refusing("invalid", "the patch is not valid", (bad.problem,)) from None
        version = view.state.version if if_match is None else if_match
        asked = JsonPut(
            tenant=tenant, job=job, definition=definition, note=command.note, by=command.by,
            command_id=command.command_id, if_match=version,
        )  # fmt: skip
        try:
            answer = await gateway.send(asked, wait_s)
        except Unanswered as unanswered:
            return unanswered_yet(unanswered.command_id)
        if isinstance(answer, Refused) and answer.kind == "id_reused":
            if definition == patched(view, {}):
                return _patched_before(view, command.command_id)
        elif isinstance(answer, Refused) and answer.kind == "version_conflict":
            known = (view.state.life, view.state.sequence + 1)
            if if_match is None and tries_left:
                await gateway.live.job_seen(tenant, job, known, SEEN_S)
                continue
        return told(answer)
    raise AssertionError("the last try returns")


def _patched_before(view: JobView, command_id: str) -> Response:
    """The same patch came before under the same key: the job is as it asks."""
    state = view.state
    answer = {
        "command_id": command_id, "tenant": view.definition.tenant, "job": view.definition.job,
        "life": state.life, "version": state.version, "sequence": state.sequence,
        "execution_id": "", "repeated": True, "warnings": [],
    }  # fmt: skip
    headers = {"ETag": f'"{state.version}"', SEQUENCE: f"{state.life}.{state.sequence}"}
    return json(answer, 200, headers)


def found(gateway: Gateway, tenant: str, job: str) -> JobView:
    """The job. Raises `Refusing` if there is none."""
    view = gateway.live.jobs.job(tenant, job)
    if view is None:
        if gateway.live.jobs.full:
            raise Refusing("incomplete", f"{tenant}/{job} is not among the jobs that are held here")
        raise Refusing("not_found", f"there is no job {tenant}/{job}")
    return view


def job_whole(gateway: Gateway, view: JobView) -> dict[str, Any]:
    """The job's document with how it last went."""
    return job_document(view) | {"last": last_of(gateway, view)}


def last_of(gateway: Gateway, view: JobView) -> dict[str, Any] | None:
    """The newest execution of the job that has ended, as far as it is held here."""
    definition = view.definition
    row = gateway.live.executions.last(definition.tenant, definition.job, terminal=True)
    return execution_row(row) if row is not None and row.state in TERMINAL else None


def page(
    gateway: Gateway, tenant: str, *, state: str | None, q: str, limit: int, cursor: str | None
) -> tuple[list[JobView], str | None]:
    """Jobs in the order of their ids, and where the next page begins. Raises `Refusing`."""
    sought, views, last = q.casefold(), list[JobView](), ""
    for looked, (job, view) in enumerate(gateway.live.jobs.after(tenant, cursor or "")):
        if len(views) == limit or looked == SCANNED_MAX:
            return views, last
        last = job
        if view is None or (state is not None and view.state.status != state):
            continue
        if sought and not any(sought in text.casefold() for text in (job, view.definition.name)):
            continue
        views.append(view)
    return views, None
