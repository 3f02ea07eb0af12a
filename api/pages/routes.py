"""The pages: jobs, one job, executions, one execution, and what can be done from them.

Every page is whole by itself; a page that is open asks for itself again when something changed.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import parse_qs, quote, urlencode

import msgspec
from fastapi import APIRouter, Query, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from processors.exchange import Sendable
from projections.executions import TERMINAL, WAITING, Execution
from projections.jobs import JobView
from schemas import limits
from schemas.commands import CancelExecution, PauseJob, ResumeJob, TriggerJob
from schemas.replies import Refused
from schemas.units import format_instant, parse_instant
from streams.errors import Unavailable

from .. import executions, jobs
from ..gateway import Gateway, body_of, check_ids
from ..parameters import EXECUTION_STATES, JOB_STATES
from ..problems import KINDS, OTHER, Refusing
from ..sending import Busy, Unanswered
from ..shown import job_document, job_lines, next_runs
from . import words

HERE: Final = Path(__file__).parent
JOBS_SHOWN: Final = 100
EXECUTIONS_SHOWN: Final = 100
OF_ONE_JOB: Final = 25
BY: Final = "page"
DONE: Final = {"pause": "paused", "resume": "resumed", "trigger": "triggered"}
_FACTS: Final = (
    "execution_id", "scheduled_at", "due_at", "claimed_at", "started_at", "finished_at", "attempt",
    "delivery", "worker", "handler", "pool", "topic", "lease_until", "version",
)  # fmt: skip

Text = Annotated[str, Query(max_length=limits.NAME_CHARS_MAX)]


class Static(StaticFiles):
    """Files that a browser asks about before it uses them again."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        """The file."""
        answer = super().file_response(*args, **options)
        answer.headers["cache-control"] = "no-cache"
        return answer


def static() -> StaticFiles:
    """Style and scripts."""
    return Static(directory=HERE / "static")


def routes(gateway: Gateway) -> APIRouter:
    """The routes."""
    router = APIRouter()
    pages = Pages(gateway)
    reading = asyncio.Semaphore(limits.TIMELINES_READ_MAX)

    @router.get("/")
    async def home() -> Response:
        return RedirectResponse(f"/t/{quote(gateway.settings.tenant)}/jobs", 307)

    @router.get("/t/{tenant}/jobs")
    async def list_jobs(tenant: str, q: Text = "", state: Text = "", cursor: Text = "") -> Response:
        check_ids(tenant)
        return pages.jobs(tenant, q, _known(state, JOB_STATES), cursor)

    @router.get("/t/{tenant}/jobs/{job}")
    async def get_job(tenant: str, job: str) -> Response:
        check_ids(tenant, job)
        return pages.job(tenant, job)

    @router.get("/t/{tenant}/executions")
    async def list_executions(
        tenant: str, job: Text = "", state: Text = "", cursor: Text = ""
    ) -> Response:
        check_ids(tenant)
        return pages.executions(tenant, job.strip(), _known(state, EXECUTION_STATES), cursor)

    @router.get("/t/{tenant}/jobs/{job}/executions/{run}")
    async def get_execution(tenant: str, job: str, run: str) -> Response:
        check_ids(tenant, job)
        try:
            one = await executions.execution_whole(gateway, f"{tenant}/{job}:{run}", reading)
        except Refusing as refusing:
            if refusing.kind != "not_found":
                raise
            return pages.execution(tenant, job, run, None)
        return pages.execution(tenant, job, run, one)

    @router.post("/t/{tenant}/jobs/{job}/{verb}")
    async def do(request: Request, tenant: str, job: str, verb: str) -> Response:
        note = await _note_of(request)
        command: Sendable
        match verb:
            case "pause":
                command = PauseJob(tenant=tenant, job=job, note=note, by=BY)
            case "resume":
                command = ResumeJob(tenant=tenant, job=job, note=note, by=BY)
            case "trigger":
                command = TriggerJob(tenant=tenant, job=job, note=note, by=BY)
            case _:
                raise Refusing("no_such_route", f"a page cannot {verb} a job")
        back = words.job_url(tenant, job)
        return await pages.act(request, command, f"{job} {DONE[verb]}", back)

    @router.post("/t/{tenant}/jobs/{job}/executions/{run}/cancel")
    async def cancel(request: Request, tenant: str, job: str, run: str) -> Response:
        command = CancelExecution(
            tenant=tenant, job=job, execution_id=f"{tenant}/{job}:{run}", by=BY,
            note=await _note_of(request),
        )  # fmt: skip
        back = f"{words.job_url(tenant, job)}/executions/{quote(run, safe=':~')}"
        return await pages.act(request, command, "cancelled", back)

    return router


class Pages:
    """Renders pages from what the gateway knows."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        env = self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, trim_blocks=True,
            lstrip_blocks=True, undefined=StrictUndefined,
        )  # fmt: skip
        env.filters |= {
            "instant": format_instant, "clock": words.clock, "history_text": words.history_text,
            "relative": lambda at_ms: words.relative(at_ms, _now_ms()),
        }  # fmt: skip

    def jobs(self, tenant: str, q: str, state: str | None, cursor: str) -> Response:
        """Jobs by id."""
        live = self._gateway.live
        views, following = jobs.page(
            self._gateway, tenant, state=state, q=q, limit=JOBS_SHOWN, cursor=cursor or None
        )
        more = {"q": q, "state": (state or "").lower(), "cursor": following}
        return self._page(
            "jobs.html", tenant, "jobs", rows=[self._job_row(view) for view in views], q=q,
            state=state, states=JOB_STATES, ready=live.ready, complete=not live.jobs.full,
            count=live.jobs.count(tenant), following=f"?{urlencode(more)}" if following else "",
        )  # fmt: skip

    def job(self, tenant: str, job: str) -> Response:
        """One job with its newest executions."""
        gateway = self._gateway
        view = gateway.live.jobs.job(tenant, job)
        found = [row for _, row in _first(gateway, tenant, job, OF_ONE_JOB)]
        values: dict[str, Any] = {"view": None}
        if view is not None:
            document = job_document(view)
            runs = [
                run | {"at_ms": int(parse_instant(run["at"])), "shown": words.run_clock(run)}
                for run in document["next_runs"]
            ]
            values = {
                "view": document, "schedules": words.schedules(view), "runs": runs,
                "target": job_lines(document)["target"], "payload": _payload(document),
                "last": gateway.live.executions.last(tenant, job, terminal=True),
                "history": self._history(tenant, job),
            }  # fmt: skip
        status = 200 if view is not None or not gateway.live.ready else 404
        return self._page(
            "job.html", tenant, "jobs", status, job=job, url=words.job_url(tenant, job),
            rows=[words.run_row(row) for row in found], **values,
        )  # fmt: skip

    def executions(self, tenant: str, job: str, state: str | None, cursor: str) -> Response:
        """Executions, the newest first."""
        found, following = executions.page(
            self._gateway, tenant, job or None, state=state, limit=EXECUTIONS_SHOWN,
            cursor=cursor or None,
        )  # fmt: skip
        more = {"job": job, "state": (state or "").lower(), "cursor": following}
        return self._page(
            "executions.html", tenant, "executions", rows=[words.run_row(row) for row in found],
            job=job, state=state, states=EXECUTION_STATES, ready=self._gateway.live.ready,
            following=f"?{urlencode(more)}" if following else "",
        )  # fmt: skip

    def execution(self, tenant: str, job: str, run: str, one: dict[str, Any] | None) -> Response:
        """One execution with its events."""
        values: dict[str, Any] = {"one": None}
        if one is not None:
            facts = [(name.replace("_", " "), one[name]) for name in _FACTS if one[name]]
            values = {
                "one": one | words.spans(one), "facts": facts, "events": _events(one),
                "result": _result(one),
                "is_open": one["state"] in WAITING,
            }  # fmt: skip
        url = f"{words.job_url(tenant, job)}/executions/{quote(run, safe=':~')}"
        return self._page(
            "execution.html", tenant, "executions", 200 if one is not None else 404, job=job,
            run=run, url=url, **values,
        )  # fmt: skip

    async def act(self, request: Request, command: Sendable, done: str, back: str) -> Response:
        """Send a command from a page and say what came of it: in place where the page asked for
        that, else on the page that it goes back to."""
        status, kind, text = await self._outcome(command, done)
        if request.headers.get("hx-request") == "true":
            said = json.dumps({"said": {"text": text, "kind": kind}})
            return Response(status_code=status, headers={"HX-Trigger": said})
        if kind == "done":
            return RedirectResponse(back, 303)
        return self._page(
            "said.html", command.tenant, "", status, title="Not done", text=text, back=back
        )

    async def _outcome(self, command: Sendable, done: str) -> tuple[int, str, str]:
        try:
            answer = await self._gateway.send(command, limits.ANSWER_WAIT_S_DEFAULT)
        except Unanswered:
            return 202, "wrong", "The scheduler has not answered yet. The command may take effect."
        except (Busy, Unavailable) as error:
            return 503, "wrong", f"Not possible now: {error or 'too much is under way'}"
        if isinstance(answer, Refused):
            told = "; ".join(f"{p.field}: {p.message}" for p in answer.problems)
            status = KINDS.get(answer.kind, OTHER)[0]
            return status, "wrong", f"Refused: {answer.message}{f' ({told})' if told else ''}"
        if any(warning.startswith("skipped") for warning in answer.warnings):
            return 200, "wrong", "; ".join(answer.warnings)
        return 200, "done", done

    def _job_row(self, view: JobView) -> dict[str, Any]:
        definition, state = view.definition, view.state
        last = self._gateway.live.executions.last(definition.tenant, definition.job, terminal=True)
        runs = next_runs(view, 1)
        return {
            "job": definition.job, "name": definition.name,
            "url": words.job_url(definition.tenant, definition.job), "state": state.status,
            "hold": state.hold.note if state.hold is not None and state.status != "ACTIVE" else "",
            "schedules": words.schedules(view), "target": words.target(view),
            "next_ms": state.next_ms if runs else 0,
            "next_local": words.run_clock(runs[0], short=True) if runs else "",
            "last": words.run_row(last) if last is not None else None, "open": len(state.open),
            "history": self._history(definition.tenant, definition.job),
        }  # fmt: skip

    def _history(self, tenant: str, job: str) -> list[Execution]:
        """The newest outcomes, the oldest of them first."""
        found = (row for _, row in _first(self._gateway, tenant, job, 2 * words.HISTORY))
        return [row for row in found if row.state in TERMINAL][: words.HISTORY][::-1]

    def _page(
        self, template: str, tenant: str, here: str, status: int = 200, **values: Any
    ) -> Response:
        settings, live = self._gateway.settings, self._gateway.live
        text = self._templates.get_template(template).render(
            tenant=tenant, here=here, open=settings.open, namespace=settings.namespace,
            version=settings.version, tenants=sorted({tenant, *live.jobs.tenants}), **values,
        )  # fmt: skip
        return HTMLResponse(text, status)


def _first(gateway: Gateway, tenant: str, job: str, count: int) -> list[tuple[Any, Execution]]:
    newest = gateway.live.executions.newest(tenant, job)
    return [found for found, _ in zip(newest, range(count), strict=False)]


def _events(one: dict[str, Any]) -> list[dict[str, Any]]:
    events, first_ms = [], 0
    for event in one["events"]:
        at_ms = int(parse_instant(event["at"]))
        first_ms = first_ms or at_ms
        after = f"+{words.duration(at_ms - first_ms)}" if at_ms > first_ms else ""
        events.append(event | {"clock": words.clock(at_ms), "after": after})
    return events


def _result(one: dict[str, Any]) -> str:
    if one.get("result") is not None:
        return msgspec.json.format(msgspec.json.encode(one["result"]), indent=2).decode()
    return str(one.get("result_text") or one.get("result_base64") or "")


def _payload(document: dict[str, Any]) -> str:
    if "payload_base64" in document:
        return str(document["payload_base64"])
    if document["payload"] is None:
        return ""
    return msgspec.json.format(msgspec.json.encode(document["payload"]), indent=2).decode()


async def _note_of(request: Request) -> str:
    body = await body_of(request)
    return parse_qs(body.decode("utf-8", "replace")).get("note", [""])[0].strip()


def _known(state: str, states: tuple[str, ...]) -> str | None:
    """A filter that is no state shows everything."""
    return state.upper() if state.upper() in states else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
