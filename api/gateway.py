"""What every route works with, and the steps that routes have in common."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from processors.core.admission import JOB_CHARS, TENANT_CHARS, check_id
from processors.exchange import Answer, Sendable
from projections.live_jobs import Seen
from schemas import limits
from schemas.replies import Accepted, Problem, Refused
from streams.ports import Log

from .live import Live
from .problems import Refusing, refused
from .sending import Sending, Unanswered

Json = dict[str, Any]
JSON_TYPES: Final = ("application/json", "application/merge-patch+json")
BODY_S: Final = 10.0
SEQUENCE: Final = "Horolog-Sequence"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway is: whose topics, how it may be called, what its page says."""

    namespace: str
    partitions: int
    tenant: str = "default"
    """Whose page is shown unless another's is asked for."""
    open: bool = False
    """Whether anybody who reaches it may do anything: it is bound beyond loopback, without
    authentication."""
    hosts: frozenset[str] | None = frozenset({"localhost", "127.0.0.1", "[::1]"})
    """Names it may be called by, without the port; None: any."""
    version: str = ""


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway at work."""

    settings: Settings
    live: Live
    sending: Sending
    log: Log
    ending: asyncio.Event
    alarm: Callable[..., None]

    async def send(self, command: Sendable, wait_s: float) -> Answer:
        """Send a command and wait for its answer. Raises `Busy`, `Unanswered`."""
        return await self.sending.send(command, wait_s)


def json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


async def answered(gateway: Gateway, command: Sendable, wait_s: float) -> Response:
    """Send a command; the scheduler's answer as a response, 202 if there is none in time."""
    try:
        answer = await gateway.send(command, wait_s)
    except Unanswered as unanswered:
        return unanswered_yet(unanswered.command_id)
    return told(answer)


def told(answer: Answer) -> Response:
    """The scheduler's answer as a response."""
    if isinstance(answer, Refused):
        return refused(answer)
    return json(msgspec.structs.asdict(answer), 200, headers_of(answer))


def headers_of(answer: Accepted) -> dict[str, str]:
    """What an accepted write says in its headers."""
    return {
        "ETag": f'"{answer.version}"', SEQUENCE: f"{answer.life}.{answer.sequence}",
        "Idempotency-Key": answer.command_id,
    }  # fmt: skip


def unanswered_yet(command_id: str) -> Response:
    """Nobody answered in time: the command may take effect."""
    detail = "the scheduler has not answered yet; the same request with this Idempotency-Key tells"
    return json(
        {"command_id": command_id, "detail": detail}, 202,
        {"Idempotency-Key": command_id, "Retry-After": "1"},
    )  # fmt: skip


async def body_of(request: Request) -> bytes:
    """The body, as long as it is not too large. Raises `Refusing`."""
    most = limits.REQUEST_BYTES_MAX
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > most:
        raise Refusing("too_large", f"a body of {declared} bytes; at most {most}")
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise Refusing("too_large", f"a body of more than {most} bytes")
                parts.append(part)
    except TimeoutError:
        raise Refusing("malformed", f"the body did not come within {BODY_S:.0f} s") from None
    except ClientDisconnect:
        raise Refusing("malformed", "the body ended before its end") from None
    return b"".join(parts)


async def json_of(request: Request, *, optional: bool = False) -> Json:
    """The JSON object in the body; an empty one for no body where it is optional. Raises
    `Refusing`."""
    body = await body_of(request)
    if not body and optional:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in JSON_TYPES:
        raise Refusing("media_type", f"the body is {kind or 'of no type'}; send application/json")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refusing("malformed", f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusing("malformed", "the body is no JSON object")
    return value


async def no_body(request: Request) -> None:
    """Refuse a body that says something, which would be ignored. Raises `Refusing`."""
    if await json_of(request, optional=True):
        told = Problem("body", "this command takes none", "a note is the query parameter `note`")
        raise Refusing("invalid", "the request is not valid", (told,))


def check_ids(tenant: str, job: str | None = None) -> None:
    """Refuse ids that nobody can have. Raises `Refusing`."""
    problems: list[Problem] = []
    check_id("tenant", tenant, TENANT_CHARS, limits.TENANT_CHARS_MAX, problems)
    if job is not None:
        check_id("job", job, JOB_CHARS, limits.JOB_CHARS_MAX, problems)
    if problems:
        raise Refusing("invalid", "the request is not valid", problems)


def check_ready(gateway: Gateway) -> None:
    """Refuse to read from what is not read yet. Raises `Refusing`."""
    if not gateway.live.ready:
        raise Refusing("starting", "jobs and executions are still being read")
    if gateway.live.waiting >= limits.READS_WAITING_MAX:
        raise Refusing("busy", f"{limits.READS_WAITING_MAX} reads wait already")


async def await_seen(
    gateway: Gateway, tenant: str, job: str, wanted: Seen | None, wait_s: float, *,
    executions: bool = False,
) -> None:  # fmt: skip
    """Wait until what was written is seen. Raises `Refusing`."""
    if wanted is None:
        return
    live = gateway.live
    wait = live.executions_seen if executions else live.job_seen
    if not await wait(tenant, job, wanted, wait_s):
        life, sequence = (live.executions if executions else live.jobs).seen(tenant, job)
        raise Refusing(
            "not_seen_yet",
            f"{tenant}/{job} is known up to {life}.{sequence} after {wait_s:g} s",
        )
