"""Times, schedules and executions in the words of the pages."""

import re
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from processors.core.cron_text import describe_cron
from processors.core.problem import InvalidSchedule
from projections.executions import WAITING, Execution
from projections.jobs import JobView
from schemas.units import format_duration, parse_instant

from ..shown import schedule_form, schedule_text, target_form, target_text

HISTORY: Final = 12
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """An execution as a line of a list."""

    key: str
    job: str
    url: str
    state: str
    reason: str
    detail: str
    scheduled_at: int
    last_scheduled_at: int
    count: int
    exact: bool
    manual: bool
    attempt: int
    lost: int
    late: str
    late_until: str
    took: str
    where: str
    is_open: bool


class Words(msgspec.Struct, frozen=True):
    """A schedule: in words, its zone, and exactly as it counts."""

    words: str
    zone: str
    exact: str


def job_url(tenant: str, job: str) -> str:
    """Where the page of a job is."""
    return f"/t/{quote(tenant)}/jobs/{quote(job)}"


def run_url(execution: Execution) -> str:
    """Where the page of an execution is; empty for ticks that were missed, which have none."""
    _, _, run = execution.execution_id.partition(":")
    if not run:
        return ""
    return f"{job_url(execution.tenant, execution.job)}/executions/{quote(run, safe=':~')}"


def run_row(row: Execution) -> RunRow:
    """The execution for a list."""
    took = row.finished_at - row.started_at if row.started_at and row.finished_at else 0
    # Missed ticks were decided about late, not run late. A claim is not yet a start.
    began = row.started_at if row.delivery == 1 and row.attempt == 1 else 0
    late, until = (began - row.due_at, "start") if began else (row.claimed_at - row.due_at, "claim")
    key = row.execution_id or f"{row.tenant}/{row.job}:{row.scheduled_at}-{row.sequence}"
    return RunRow(
        key="".join(c if c.isalnum() else "-" for c in key.partition("/")[2]),
        job=row.job, url=run_url(row), state=row.state, reason=row.reason, detail=row.detail,
        scheduled_at=row.scheduled_at, last_scheduled_at=row.last_scheduled_at, count=row.count,
        exact=row.exact, manual="~m" in row.execution_id.partition(":")[2], attempt=row.attempt,
        lost=row.lost, late=duration(late) if row.execution_id and row.claimed_at else "",
        late_until=until,
        took=duration(took) if took > 0 or (row.started_at and row.finished_at) else "",
        where=row.worker or (f"topic {row.topic}" if row.topic else row.handler),
        is_open=row.state in WAITING,
    )  # fmt: skip


def schedules(view: JobView) -> list[Words]:
    """The job's schedules in words."""
    return [_schedule(schedule_form(one)) for one in view.definition.schedules]


def _schedule(form: dict[str, Any]) -> Words:
    exact = schedule_text(form)
    if "cron" in form:
        zone = form["timezone"]
        try:
            words = describe_cron(form["cron"], zone).removesuffix(f" ({zone})")
        except InvalidSchedule:
            words = form["cron"]
        return Words(words, zone, f"{form['cron']} {zone}")
    if "every" in form:
        spaced = re.sub(r"(\d+)([a-z]+)", r"\1 \2 ", form["every"]).strip()
        return Words(f"every {spaced}", "", f"{exact}, from {form['anchor']}")
    at_ms = int(parse_instant(form["instant"]))
    return Words(f"once, {clock(at_ms)}", form.get("timezone", "UTC"), exact)


def target(view: JobView) -> str:
    """The job's target in a few words."""
    return target_text(target_form(view.definition)) or ""


def clock(at_ms: int) -> str:
    """The instant in UTC as people write it."""
    return local_clock(at_ms, 0)


def local_clock(at_ms: int, offset_s: int, *, short: bool = False) -> str:
    """The instant on a clock: `Mon 30 Nov 01:30:00`, with year where it is not this one, with
    milliseconds where there are any. Short: no seconds where there are none, and never more."""
    at = datetime.fromtimestamp(at_ms // 1_000 + offset_s, UTC)
    ms = at_ms % 1_000
    year = f" {at.year}" if at.year != datetime.now(UTC).year else ""
    day = f"{at:%a} {at.day} {at:%b}{year}"
    if short:
        return f"{day} {at:%H:%M:%S}" if at.second else f"{day} {at:%H:%M}"
    return f"{day} {at:%H:%M:%S}" + (f".{ms:03d}" if ms else "")


def run_clock(run: dict[str, Any], *, short: bool = False) -> str:
    """A run to come on the clock of its zone; short: with the zone's name, to the second."""
    at_ms = int(parse_instant(run["at"]))
    local_ms = int(parse_instant(run["local"] + "Z"))
    shown = local_clock(at_ms, (local_ms - at_ms) // 1_000, short=short)
    if short:
        return f"{shown} {run['zone']}"
    return shown if run["zone"] == "UTC" else f"{shown} {run['offset']}"


def relative(at_ms: int, now_ms: int) -> str:
    """How far an instant is away: `in 3 min`, `2 h 5 min ago`."""
    seconds = round(abs(at_ms - now_ms) / 1_000)
    if seconds < 1:
        return "now"
    at = next(n for n, (_, size) in enumerate(_UNITS) if seconds >= size)
    unit, size = _UNITS[at]
    text = f"{seconds // size} {unit}"
    if at < 2:
        smaller, its_size = _UNITS[at + 1]
        rest = seconds % size // its_size
        text += f" {rest} {smaller}" if rest else ""
    return f"in {text}" if at_ms > now_ms else f"{text} ago"


def duration(duration_ms: int) -> str:
    """A duration with at most three digits that count."""
    if duration_ms < 1_000:
        return f"{max(duration_ms, 0)} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1_000:.1f} s"
    return format_duration(duration_ms // 1_000 * 1_000)


def spans(one: dict[str, Any]) -> dict[str, str]:
    """When an execution was claimed and began after its time, and how long it took, where that can
    be said."""
    due, claimed, started, finished = (
        int(parse_instant(one[name])) if one[name] else 0
        for name in ("due_at", "claimed_at", "started_at", "finished_at")
    )
    return {
        "claimed_after": duration(claimed - due) if due and claimed else "",
        "started_after": duration(started - due) if due and started else "",
        "took": duration(finished - started) if started and finished else "",
    }


def history_text(rows: list[Execution]) -> str:
    """What the little bars show, for who does not see them."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.state] = counts.get(row.state, 0) + 1
    told = ", ".join(f"{count} {state.lower()}" for state, count in counts.items())
    return f"the last {len(rows)}: {told}"
