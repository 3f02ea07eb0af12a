"""`/v1/tenants/{tenant}/schedules:preview`: what a schedule will do, before it is anybody's."""

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from processors.core.preview import preview
from processors.core.problem import InvalidSchedule
from processors.core.schedule_input import read_schedules, schedule_warnings
from schemas import limits
from schemas.replies import Problem
from schemas.units import Unreadable, parse_instant
from streams.ports import Clock

from . import openapi as documented
from .gateway import check_ids, json
from .problems import Refusing

COUNT: Final = 5


def routes(clock: Clock) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1/tenants/{tenant}", tags=["schedules"])

    @router.get("/schedules:preview", **documented.read("The next runs of a schedule", "Preview"))
    async def preview_schedule(
        tenant: str,
        cron: Annotated[str | None, Query(description="Five fields, or six.")] = None,
        timezone: Annotated[str | None, Query(description="Zone of cron and local at.")] = None,
        every: Annotated[str | None, Query(description="Elapsed time, as 10s.")] = None,
        anchor: Annotated[str | None, Query(description="Where `every` counts from.")] = None,
        at: Annotated[str | None, Query(description="Once.")] = None,
        in_: Annotated[str | None, Query(alias="in", description="Once, so long after.")] = None,
        gap: Annotated[str | None, Query(description="What a skipped local time does.")] = None,
        repeat: Annotated[str | None, Query(description="What a repeated one does.")] = None,
        after: Annotated[
            str | None, Query(description="As if accepted at this instant; now unless given.")
        ] = None,
        count: Annotated[int, Query(ge=1, le=limits.PREVIEWS_MAX)] = COUNT,
    ) -> Response:
        check_ids(tenant)
        form: dict[str, Any] = {
            "cron": cron, "timezone": timezone, "every": every, "anchor": anchor, "at": at,
            "in": in_,
        }  # fmt: skip
        form = {name: value for name, value in form.items() if value is not None}
        dst = {"gap": gap, "repeat": repeat}
        dst = {name: value for name, value in dst.items() if value is not None}
        if dst:
            form["dst"] = dst
        return json(runs_of(form, _after_ms(after, clock), count))

    return router


def runs_of(form: dict[str, Any], after_ms: int, count: int) -> dict[str, Any]:
    """The next runs of one schedule as written. Raises `Refusing`."""
    try:
        schedules = read_schedules([form], accepted_ms=after_ms)
    except InvalidSchedule as invalid:
        problems = [
            Problem(
                p.field.removeprefix("schedules[0]").removeprefix(".") or "schedule",
                f"{p.value!r} {p.message}" if p.value else p.message, p.hint,
            )
            for p in invalid.problems
        ]  # fmt: skip
        raise Refusing("invalid", "the schedule is not valid", problems) from None
    runs = preview(schedules, after_ms, count)
    return {
        "runs": [msgspec.structs.asdict(run) for run in runs],
        "warnings": list(schedule_warnings(schedules)),
    }


def _after_ms(after: str | None, clock: Clock) -> int:
    if after is None:
        return clock.wall_ms()
    try:
        return int(parse_instant(after))
    except Unreadable as error:
        problem = Problem("after", f"{error.value!r} {error.message}", error.hint)
        raise Refusing("invalid", "the request is not valid", (problem,)) from None
