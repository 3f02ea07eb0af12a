"""Jobs as they are shown: names of fields as users write them, times as text.

Defaults that were filled in are shown like everything else.
"""

import base64
from typing import Any, Final

import msgspec

from processors.core.job import offset_of
from processors.core.preview import preview
from processors.core.spec import plan_of
from projections.jobs import JobView
from schemas.state import JobDefinition, Schedule, TickPolicy
from schemas.units import format_duration

from .shown_executions import instant, open_form, open_text

NEXT_RUNS: Final = 5


def job_row(view: JobView) -> dict[str, Any]:
    """A job as a line of a list."""
    definition, state = view.definition, view.state
    return {
        "tenant": definition.tenant,
        "job": definition.job,
        "state": state.status,
        "version": state.version,
        "next_run": instant(state.next_ms) if state.status == "ACTIVE" else None,
        "schedules": [schedule_form(schedule) for schedule in definition.schedules],
        "target": target_text(target_form(definition)),
        "topic": definition.topic.name if definition.topic else None,
        "open": len(state.open),
        "runs": state.runs,
        "name": definition.name,
    }


def job_document(view: JobView) -> dict[str, Any]:
    """Everything that is known of a job, with its next runs."""
    definition, state = view.definition, view.state
    hold = state.hold
    return {
        "tenant": definition.tenant,
        "job": definition.job,
        "name": definition.name,
        "state": state.status,
        "version": state.version,
        "life": state.life,
        "hold": None
        if hold is None
        else {
            "reason": hold.reason,
            "since": instant(hold.since_ms),
            "by": hold.by,
            "note": hold.note,
        },
        "schedules": [schedule_form(schedule) for schedule in definition.schedules],
        "next_runs": next_runs(view),
        "last_tick": instant(state.cursor_ms),
        "runs": state.runs,
        "open": [open_form(execution) for execution in state.open],
        "target": target_form(definition),
        **payload_form(definition),
        "content_type": definition.content_type,
        "concurrency": definition.concurrency,
        "missed": definition.missed,
        "late_tolerance": format_duration(definition.late_tolerance_ms),
        "max_attempts": definition.max_attempts,
        **policy_form(definition),
        "tzdata": state.tz,
    }


def policy_form(definition: JobDefinition) -> dict[str, Any]:
    """What bounds the ticks, as users write it, with every default but those that say nothing."""
    policy = definition.policy or TickPolicy()
    form: dict[str, Any] = {"jitter": format_duration(policy.jitter_ms)}
    if policy.jitter_ms:
        form["jitter_of_this_job"] = format_duration(offset_of(definition))
    if policy.start_ms:
        form["start"] = instant(policy.start_ms)
    if policy.end_ms:
        form["end"] = instant(policy.end_ms)
    if policy.max_runs:
        form["max_runs"] = policy.max_runs
    if policy.start_deadline_ms:
        form["start_deadline"] = format_duration(policy.start_deadline_ms)
    if definition.missed == "all":
        form["missed_limit"] = policy.missed_limit
    if policy.calendars is not None:
        form["calendars"] = {
            "exclude": [
                {k: v for k, v in msgspec.structs.asdict(one).items() if v}
                for one in policy.calendars.exclude
            ],
            "then": policy.calendars.then,
            "timezone": policy.calendars.timezone,
            "data": policy.calendars.data,
        }
    return form


def next_runs(view: JobView, count: int = NEXT_RUNS) -> list[dict[str, Any]]:
    """The stored next tick and those that follow it; none unless the job is active."""
    state = view.state
    if state.status != "ACTIVE" or not state.next_ms:
        return []
    policy = view.definition.policy
    if policy is not None and policy.max_runs:
        count = min(count, max(0, policy.max_runs - state.runs))
    ticks = preview(
        plan_of(view.definition), state.next_ms - 1, count,
        jitter_offset_ms=offset_of(view.definition),
        calendars=policy.calendars if policy is not None else None,
    )  # fmt: skip
    return [msgspec.structs.asdict(tick) for tick in ticks]


def schedule_form(schedule: Schedule) -> dict[str, Any]:
    """A schedule as written, completed by what it was resolved to."""
    written: dict[str, Any] = msgspec.json.decode(schedule.written) if schedule.written else {}
    resolved: dict[str, Any]
    match schedule.kind:
        case "cron":
            dst = {"gap": schedule.gap, "repeat": schedule.repeat}
            resolved = {"cron": schedule.cron, "timezone": schedule.timezone, "dst": dst}
        case "every":
            resolved = {
                "every": format_duration(schedule.every_ms),
                "anchor": instant(schedule.anchor_ms),
            }
        case "at":
            resolved = {"instant": instant(schedule.at_ms)}
    return written | resolved


def schedule_text(form: dict[str, Any]) -> str:
    """A schedule in a few words."""
    if "cron" in form:
        return f"cron {form['cron']} {form['timezone']}"
    if "every" in form:
        return f"every {form['every']}"
    kind = next((name for name in ("at", "in", "now") if name in form), "at")
    return f"{kind} {form['instant']}"


def target_form(definition: JobDefinition) -> dict[str, Any] | None:
    """The target as users write it, every default filled in."""
    topic, http, worker = definition.topic, definition.http, definition.worker
    if topic is not None:
        return {
            "topic": {
                "name": topic.name,
                "key": topic.key.decode() if topic.key is not None else None,
                "headers": dict(topic.headers),
                "outcome": topic.outcome,
            }
        }
    if http is not None:
        return {
            "http": {
                "method": http.method,
                "url": http.url,
                "headers": dict(http.headers),
                "timeout": format_duration(http.timeout_ms),
                "completion": http.completion,
                "pool": http.pool,
            }
        }
    return {"worker": msgspec.structs.asdict(worker)} if worker is not None else None


def target_text(form: dict[str, Any] | None) -> str | None:
    """A target in a few words."""
    match form:
        case {"topic": target}:
            return f"topic {target['name']}"
        case {"http": target}:
            return f"http {target['method']} {target['url']}"
        case {"worker": target}:
            return f"worker {target['handler']}"
        case _:
            return None


def payload_form(definition: JobDefinition) -> dict[str, Any]:
    """The payload as JSON where it is, else as base64."""
    if not definition.payload:
        return {"payload": None}
    if definition.content_type == "application/json":
        try:
            return {"payload": msgspec.json.decode(definition.payload)}
        except msgspec.DecodeError:
            pass
    return {"payload_base64": base64.b64encode(definition.payload).decode()}


def job_lines(document: dict[str, Any]) -> dict[str, Any]:
    """A job's document for people: a few lines per field at most."""
    lines = dict(document)
    lines["schedules"] = [schedule_text(form) for form in document["schedules"]]
    lines["next_runs"] = [_run_text(run) for run in document["next_runs"]]
    hold = document["hold"]
    if hold is not None:
        told = f"{hold['reason']} since {hold['since']}"
        told += f" by {hold['by']}" if hold["by"] else ""
        lines["hold"] = told + (f": {hold['note']}" if hold["note"] else "")
    lines["open"] = [open_text(form) for form in document["open"]]
    lines["target"] = _target_lines(document["target"])
    return lines


def _target_lines(form: dict[str, Any] | None) -> list[str]:
    match form:
        case {"topic": target}:
            key = f", key {target['key']}" if target["key"] is not None else ""
            first = f"{target_text(form)}{key}, outcome {target['outcome']}"
        case {"http": target}:
            first = f"{target_text(form)}, within {target['timeout']}, pool {target['pool']}"
        case {"worker": target}:
            return [f"{target_text(form)}, pool {target['pool']}"]
        case _:
            return []
    return [first, *(f"{name}: {value}" for name, value in target["headers"].items())]


def _run_text(run: dict[str, Any]) -> str:
    text: str = run["at"]
    if run["zone"] != "UTC":
        text += f"  {run['local']}{run['offset']} {run['zone']}"
    if run["effective"] != run["at"]:
        text += f"  with jitter {run['effective']}"
    return text + "".join(f"  ({note})" for note in run["notes"])
