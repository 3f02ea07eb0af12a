"""Changing a part of a job: JSON merge patch (RFC 7396) over its definition as users write it."""

from typing import Any, Final

import msgspec

from api.shown import payload_form, target_form
from projections.jobs import JobView
from schemas import limits
from schemas.replies import Problem
from schemas.state import JobDefinition, JobState, Schedule
from schemas.units import format_duration, format_instant

Json = dict[str, Any]
_ONCE: Final = ("in", "now")


class BadPatch(Exception):
    """A patch that cannot be applied to anything."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.field}: {problem.message}")
        self.problem = problem


def patched(view: JobView, patch: Json) -> Json:
    """The job's definition with the patch applied. Raises `BadPatch`.

    Ticks of schedules that the patch does not name stay where they are: one-offs whose time has
    passed are left out, as long as another schedule remains.
    """
    written = definition_form(view.definition, view.state)
    if "schedules" not in patch:
        written["schedules"] = _schedules(view.definition, view.state, passed=False)
    for one, other in (("payload", "payload_base64"), ("payload_base64", "payload")):
        if patch.get(one) is not None:
            written.pop(other, None)
    found: Json = merge(written, patch)
    return found


def merge(target: Any, patch: Any, depth: int = 0) -> Any:
    """RFC 7396: objects are merged, null removes, everything else replaces. Raises `BadPatch`
    for a patch that is nested too deeply."""
    if depth > limits.PATCH_DEPTH_MAX:
        raise BadPatch(
            Problem("body", f"nested more than {limits.PATCH_DEPTH_MAX} deep", "a flatter patch")
        )
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value, depth + 1)
    return merged


def definition_form(definition: JobDefinition, state: JobState) -> Json:
    """The definition as a put would have it, with every default that counts."""
    form: Json = {
        "name": definition.name,
        "schedules": _schedules(definition, state, passed=True),
        "target": _target(definition),
        "content_type": definition.content_type,
        "concurrency": definition.concurrency,
        "missed": definition.missed,
        "late_tolerance": format_duration(definition.late_tolerance_ms),
        "max_attempts": definition.max_attempts,
    }
    payload = payload_form(definition)
    return form | {name: value for name, value in payload.items() if value is not None}


def _target(definition: JobDefinition) -> Json | None:
    form = target_form(definition)
    topic = form.get("topic") if form is not None else None
    if isinstance(topic, dict) and topic["key"] is None:
        del topic["key"]
    return form


def _schedules(definition: JobDefinition, state: JobState, *, passed: bool) -> list[Json]:
    stored = definition.schedules
    if not passed:
        ahead = tuple(one for one in stored if one.kind != "at" or one.at_ms > state.cursor_ms)
        stored = ahead or stored
    return [_schedule(one, state) for one in stored]


def _schedule(stored: Schedule, state: JobState) -> Json:
    written: Json = msgspec.json.decode(stored.written) if stored.written else {}
    # A finished job's `in` or `now` would count from now once more.
    if not written or (state.status == "FINISHED" and any(name in written for name in _ONCE)):
        return {"at": format_instant(stored.at_ms)}
    return written
