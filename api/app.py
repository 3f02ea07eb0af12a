"""The gateway as an ASGI application: every route, and what becomes of errors."""

import time
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response

from schemas import limits
from schemas.replies import Problem
from streams.clock import SystemClock
from streams.errors import Unavailable

from . import executions, health, jobs, openapi, schedules, watching
from .gateway import Gateway
from .guard import App, Guard, Message, Receive, Scope, Send
from .pages import routes as pages
from .problems import Refusing, problem
from .sending import Busy

TITLE: Final = "Horolog"
ABOUT: Final = """\
Jobs, what became of each of their ticks, and what schedules will do.

A write answers once the scheduler has accepted or refused it, with the job's life and sequence;
a read with `min_seq` waits until that is seen. What is refused is a problem document (RFC 9457)
with every wrong field.
"""


def application(gateway: Gateway) -> App:
    """The whole gateway."""
    app = FastAPI(
        title=TITLE, description=ABOUT, version=gateway.settings.version, docs_url=None,
        redoc_url=None, openapi_url="/openapi.json", redirect_slashes=False,
    )  # fmt: skip
    figures = health.Figures(gateway)
    for router in (
        jobs.routes(gateway), executions.routes(gateway), schedules.routes(SystemClock()),
        watching.routes(gateway), health.routes(gateway, figures),
    ):  # fmt: skip
        app.include_router(router)
    app.include_router(pages.routes(gateway), include_in_schema=False)
    app.mount("/static", pages.static())
    app.add_exception_handler(Refusing, _refusing)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(Unavailable, _unavailable)
    _document(app)
    return _measured(Guard(_safe(app, gateway), gateway.settings.hosts), figures)


def _document(app: FastAPI) -> None:
    """The OpenAPI document, with the schemas of what the scheduler checks."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title, version=app.version, description=app.description,
                routes=app.routes, openapi_version="3.1.0",
            )  # fmt: skip
            schemas = found.setdefault("components", {}).setdefault("schemas", {})
            # Its own words for a wrong parameter are not what we answer with.
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            schemas.update(openapi.SCHEMAS)
            for path in found["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _measured(app: App, figures: health.Figures) -> App:
    """Counts requests; nothing else may be outside of it."""

    async def measured(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        began_s = time.perf_counter()
        method = scope["method"] if scope["method"] in _METHODS else "other"

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                figures.requests.labels(method, message["status"]).inc()
                figures.seconds.labels(method).observe(time.perf_counter() - began_s)
            await send(message)

        await app(scope, receive, counted)

    return measured


_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE"})


def _safe(app: App, gateway: Gateway) -> App:
    """An error of ours ends one request, is logged, and tells the client nothing of its inside."""

    async def safe(scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await app(scope, receive, sent)
        except Exception as error:
            if scope["type"] != "http":
                raise
            gateway.alarm("request_failed", path=scope["path"], error=repr(error))
            if not begun:
                await problem("internal", "see the gateway's log")(scope, receive, send)

    return safe


async def _refusing(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, Refusing)
    return problem(error.kind, error.detail, error.problems)


async def _not_valid(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, RequestValidationError)
    problems = [
        Problem(
            ".".join(str(part) for part in one["loc"][1:]),
            _lowered(one["msg"].removeprefix("Value error, ")),
        )
        for one in error.errors()
    ]
    return problem("invalid", "the request is not valid", problems)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:200]
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        answer = problem("method_not_allowed", f"{path} takes {allowed}, not {request.method}")
        answer.headers["Allow"] = allowed
        return answer
    if error.status_code == 404:
        return problem("no_such_route", f"there is nothing at {path}; /openapi.json lists the rest")
    return problem("malformed", str(error.detail))


async def _busy(request: Request, error: Exception) -> Response:
    del request, error
    return problem("busy", f"{limits.WRITES_IN_FLIGHT_MAX} writes wait for their answers already")


async def _unavailable(request: Request, error: Exception) -> Response:
    del request
    return problem("unavailable", str(error))


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
