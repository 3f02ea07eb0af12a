"""From the options of `job put` to a definition, or to what is wrong with the options."""

import base64
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from processors.core.problem import InvalidSchedule
from processors.core.schedule_input import read_schedules
from schemas.replies import Problem, Refused
from schemas.units import Unreadable, parse_local

from .frame import USAGE, Failure

JSON = "application/json"
BYTES = "application/octet-stream"
_AS_WRITTEN: Final = (
    "content_type", "name", "missed", "missed_limit", "late_tolerance", "start_deadline", "start",
    "end", "max_runs", "jitter",
)  # fmt: skip
"""Options that are fields of the definition under their own names."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What was given on the command line."""

    cron: list[str] = []
    timezone: list[str] = []
    every: list[str] = []
    at: list[str] = []
    in_: list[str] = []
    now: bool = False
    topic: str | None = None
    key: str | None = None
    http: str | None = None
    method: str | None = None
    timeout: str | None = None
    header: list[str] = []
    worker: str | None = None
    pool: str | None = None
    payload: str | None = None
    payload_file: Path | None = None
    content_type: str | None = None
    name: str | None = None
    missed: str | None = None
    missed_limit: int | None = None
    late_tolerance: str | None = None
    start_deadline: str | None = None
    start: str | None = None
    end: str | None = None
    max_runs: int | None = None
    jitter: str | None = None

    @property
    def nothing(self) -> bool:
        """Whether no option says anything about the definition."""
        return self == Written()


def from_options(written: Written) -> dict[str, Any]:
    """The definition as JSON would have it. Raises `Failure` for options that do not fit."""
    schedules = _schedules(written)
    if not schedules:
        raise _usage("no schedule is given", "--cron, --every, --at, --in or --now; or -f FILE")
    definition: dict[str, Any] = {"schedules": schedules, "target": _target(written)}
    definition |= _payload(written)
    for field in _AS_WRITTEN:
        value = getattr(written, field)
        if value is not None:
            definition[field] = value
    return definition


def from_file(file: str) -> dict[str, Any]:
    """The definition in a JSON file, or on standard input for `-`."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise _usage(f"{file} cannot be read: {error.strerror}") from error
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise _usage(f"{file} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise _usage(f"{file} holds no JSON object", 'like {"schedules": […], "target": {…}}')
    return found


def complete_refusal(refused: Refused, definition: dict[str, Any], now_ms: int) -> Refused:
    """The refusal with everything that is wrong with the schedules, in the words of `definition`.

    The scheduler does not look at schedules while there are fields that it does not know; whoever
    wrote the definition wants to hear of both at once.
    """
    told = [
        msgspec.structs.replace(problem, field=problem.field.removeprefix("definition."))
        for problem in refused.problems
    ]
    named = {problem.field for problem in told}
    told += [p for p in _schedule_problems(definition, now_ms) if p.field not in named]
    return msgspec.structs.replace(refused, problems=tuple(told))


def _schedule_problems(definition: dict[str, Any], now_ms: int) -> list[Problem]:
    schedules = definition.get("schedules")
    if not isinstance(schedules, list) or not all(isinstance(one, dict) for one in schedules):
        return []
    try:
        read_schedules(schedules, accepted_ms=now_ms)
    except InvalidSchedule as invalid:
        return [
            Problem(p.field, f"{p.value!r} {p.message}" if p.value else p.message, p.hint)
            for p in invalid.problems
        ]
    return []


def _schedules(written: Written) -> list[dict[str, Any]]:
    local = [text for text in written.at if _is_local(text)]
    zones = list(written.timezone)
    zoned = len(written.cron) + len(local)
    if len(zones) == 1:
        zones = zones * zoned
    if zones and len(zones) != zoned:
        raise _usage(
            f"{len(written.timezone)} time zones for {zoned} schedules that have one",
            "one --timezone for all, or one for each --cron and each local --at, in this order",
        )
    named = iter(zones)
    schedules: list[dict[str, Any]] = [
        {"cron": cron} | _zone(next(named, None)) for cron in written.cron
    ]
    schedules += [{"every": text} for text in written.every]
    for text in written.at:
        schedules.append({"at": text} | (_zone(next(named, None)) if text in local else {}))
    schedules += [{"in": text} for text in written.in_]
    return schedules + ([{"now": True}] if written.now else [])


_TARGETS: Final = {
    "topic": frozenset({"key", "header"}),
    "http": frozenset({"method", "timeout", "header", "pool"}),
    "worker": frozenset({"pool"}),
}
"""Options that say where to fire → options that belong to them."""


def _target(written: Written) -> dict[str, Any]:
    kinds = [kind for kind in _TARGETS if getattr(written, kind) is not None]
    if not kinds:
        raise _usage(
            "no target is given",
            "--topic NAME: the Kafka topic to fire into; --http URL: what to call; "
            "--worker HANDLER: the code to run",
        )
    if len(kinds) > 1:
        raise _usage(f"{' and '.join(f'--{kind}' for kind in kinds)} are both given", "one target")
    (kind,) = kinds
    given = {name for name in frozenset().union(*_TARGETS.values()) if getattr(written, name)}
    foreign = sorted(given - _TARGETS[kind])
    if foreign:
        raise _usage(
            f"--{foreign[0]} does not go with --{kind}",
            f"--{kind} goes with {', '.join(f'--{name}' for name in sorted(_TARGETS[kind]))}",
        )
    named = {"topic": "name", "http": "url", "worker": "handler"}[kind]
    target: dict[str, Any] = {named: getattr(written, kind)}
    for name in ("key", "method", "timeout", "pool"):
        value = getattr(written, name)
        if value is not None:
            target[name] = value
    if written.header:
        target["headers"] = dict(_header(text) for text in written.header)
    return {kind: target}


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise _usage(f"--header {text!r} has no name and value", "such as 'X-Region: eu'")
    return name.strip(), value.strip()


def _zone(name: str | None) -> dict[str, str]:
    return {} if name is None else {"timezone": name}


def _is_local(text: str) -> bool:
    try:
        return parse_local(text) is not None
    except Unreadable:
        return False


def _payload(written: Written) -> dict[str, Any]:
    if written.payload is not None and written.payload_file is not None:
        raise _usage("--payload and --payload-file are both given", "one of the two")
    if written.payload is not None:
        try:
            return {"payload": msgspec.json.decode(written.payload)}
        except msgspec.DecodeError as error:
            raise _usage(
                f"--payload is no JSON: {error}",
                "a text needs quotes: '\"hello\"'; --payload-file sends any bytes",
            ) from error
    if written.payload_file is None:
        return {}
    try:
        data = written.payload_file.read_bytes()
    except OSError as error:
        raise _usage(f"{written.payload_file} cannot be read: {error.strerror}") from error
    kind = JSON if written.payload_file.suffix == ".json" else BYTES
    return {"payload_base64": base64.b64encode(data).decode(), "content_type": kind}


def _usage(message: str, hint: str = "") -> Failure:
    return Failure(message, hint=hint, kind="usage", code=USAGE)
