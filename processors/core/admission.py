"""From a record on `commands` to a command, or to what is wrong with it.

A first byte of 0x00 means Avro, `{` means JSON. What can be read far enough to be answered is
refused with all its problems (`BadCommand`); what cannot is set aside (`Undecodable`).
"""

import base64
import binascii
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import msgspec

from schemas import limits
from schemas.bindings import COMMANDS
from schemas.codec import Undecodable, describe, schema_name
from schemas.commands import (
    COMMAND_TYPES,
    AnyCommand,
    CalendarsSpec,
    ExcludedSpec,
    HttpTargetSpec,
    JobSpec,
    PutJob,
    ScheduleSpec,
    TriggerJob,
    WorkerTargetSpec,
)
from schemas.commands import TopicTargetSpec as TopicSpec
from schemas.replies import Problem

from .target_spec import TARGET_EXAMPLE

TENANT_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
JOB_CHARS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-")

_ENVELOPE: Final = ("type", "tenant", "job", "command_id", "reply_to", "by", "note", "hops")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "put": ("if_match", "definition"),
    "pause": ("if_match",),
    "resume": ("if_match",),
    "delete": ("if_match",),
    "trigger": ("payload", "payload_base64", "scheduled_at"),
    "cancel": ("execution_id",),
}
_DEFINITION: Final = (
    "name", "schedules", "target", "payload", "payload_base64", "content_type", "concurrency",
    "missed", "late_tolerance", "max_attempts", "start", "end", "max_runs", "jitter",
    "start_deadline", "missed_limit", "calendars",
)  # fmt: skip
_CALENDARS: Final = ("exclude", "then", "timezone")
_EXCLUDED: Final = ("dates", "country", "subdivision", "weekly")
_SCHEDULE: Final = ("cron", "timezone", "every", "anchor", "at", "in", "now", "dst")
_TOPIC: Final = ("name", "key", "headers", "outcome")
_HTTP: Final = ("url", "method", "headers", "timeout", "completion", "pool")
_WORKER: Final = ("handler", "pool")
_EXAMPLES: Final = {
    "topic": '{"name": "orders"}',
    "http": '{"url": "https://example.org/hook"}',
    "worker": '{"handler": "close-day"}',
}
NOT_BUILT: Final = frozenset({
    "task", "precision", "idempotency", "max_open", "cancel_grace", "queue_limit",
    "exclusion_group", "group_wait", "force", "backoff", "max_elapsed", "past_next_tick",
    "max_duration", "max_deliveries", "keep_finished", "payload_ref", "notify", "managed_by",
    "priority", "tags", "report_within",
    "heartbeat_timeout", "drain_timeout",
})  # fmt: skip
"""Names the documentation uses for what is not built yet."""


COMMANDS_NOT_BUILT: Final = frozenset({
    "patch", "rerun", "resolve", "redrive", "discard", "backfill", "freeze", "thaw",
})  # fmt: skip
"""Commands the documentation names that are not built yet, unless they are in `COMMAND_TYPES`."""
PROBLEMS_MAX: Final = 50
"""Problems that one answer tells."""


class _Targets(NamedTuple):
    """The target as written; more than one, or none, is for admission to refuse."""

    topic: TopicSpec | None = None
    http: HttpTargetSpec | None = None
    worker: WorkerTargetSpec | None = None


class BadCommand(Exception):
    """A command that can be answered but takes no effect. `spec` is what could be read of its
    definition, which may have further problems that only `admit` sees."""

    def __init__(
        self,
        envelope: Mapping[str, str],
        message: str,
        problems: tuple[Problem, ...],
        spec: JobSpec | None = None,
    ) -> None:
        super().__init__(message)
        self.spec = spec
        self.tenant = envelope.get("tenant", "")
        self.job = envelope.get("job", "")
        self.command_id = envelope.get("command_id", "")
        self.reply_to = envelope.get("reply_to", "")
        self.message = message
        self.problems = problems[:PROBLEMS_MAX]


def further(told: tuple[Problem, ...], more: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Problems together, without those that follow from what is told already: about the same
    field, a part of it or what it is part of."""

    def follows(problem: Problem) -> bool:
        return any(_within(problem.field, t.field) or _within(t.field, problem.field) for t in told)

    return (*told, *(problem for problem in more if not follows(problem)))[:PROBLEMS_MAX]


def _within(field: str, outer: str) -> bool:
    return field == outer or field.startswith((outer + ".", outer + "["))


def read_command(data: bytes) -> AnyCommand:
    """The command in a record. Raises `BadCommand` or `Undecodable`."""
    if len(data) > limits.COMMAND_BYTES_MAX:
        raise Undecodable(
            f"a command of {len(data)} bytes; at most {limits.COMMAND_BYTES_MAX} are read"
        )
    problems: tuple[Problem, ...] = ()
    if data[:1] == b"\x00":
        command = _from_avro(data)
    elif data[:1] == b"{":
        command, problems = _from_json(data)
    else:
        raise Undecodable(f"neither Avro nor a JSON object: {describe(data)}")
    problems = further(problems, tuple(_check(command)))
    if problems:
        envelope = {"tenant": command.tenant, "job": command.job,
                    "command_id": command.command_id, "reply_to": command.reply_to}  # fmt: skip
        spec = command.spec if isinstance(command, PutJob) else None
        if any(problem.field == "definition" for problem in problems):
            spec = None
        raise BadCommand(envelope, "the command is not valid", problems, spec)
    return command


def _from_avro(data: bytes) -> AnyCommand:
    name = schema_name(data)
    codec = COMMANDS.get(name) if name is not None else None
    if codec is None:
        raise Undecodable(f"no command: {describe(data)}")
    command: AnyCommand = codec.decode(data)
    return command


def _check(command: AnyCommand) -> list[Problem]:
    problems: list[Problem] = []
    check_id("tenant", command.tenant, TENANT_CHARS, limits.TENANT_CHARS_MAX, problems)
    check_id("job", command.job, JOB_CHARS, limits.JOB_CHARS_MAX, problems)
    if command.job[:1] in (".", "~"):
        problems.append(Problem("job", f"{command.job!r} starts with {command.job[0]!r}",
                                "start with a letter, a digit, _ or -"))  # fmt: skip
    for field, value, most in (
        ("command_id", command.command_id, limits.COMMAND_ID_CHARS_MAX),
        ("reply_to", command.reply_to, limits.COMMAND_ID_CHARS_MAX),
        ("by", command.by, limits.NAME_CHARS_MAX),
        ("note", command.note, limits.NOTE_CHARS_MAX),
    ):
        if len(value) > most:
            problems.append(Problem(field, f"{len(value)} characters", f"at most {most}"))
    if isinstance(command, TriggerJob) and command.payload is not None:
        size = len(command.payload)
        if size > limits.PAYLOAD_BYTES_MAX:
            most = limits.PAYLOAD_BYTES_MAX
            problems.append(Problem("payload", f"{size} bytes are more than {most}"))
    return problems


def check_id(
    field: str, value: str, chars: frozenset[str], most: int, problems: list[Problem]
) -> None:
    """Refuse an id with a character that is not allowed, naming it, or of the wrong length."""
    if not 1 <= len(value) <= most:
        problems.append(Problem(field, f"{len(value)} characters", f"1 to {most}"))
    if not chars.issuperset(value):
        foreign = next(c for c in value if c not in chars)
        allowed = "a-z 0-9 -" if chars is TENANT_CHARS else "A-Z a-z 0-9 . _ ~ -"
        shown = value if len(value) <= most else value[:most] + "…"
        problems.append(Problem(field, f"{shown!r} has the character {foreign!r}", allowed))


# --- JSON --------------------------------------------------------------------------------------


def _from_json(data: bytes) -> tuple[AnyCommand, tuple[Problem, ...]]:
    """The command, as far as it could be read, and what is wrong with how it is written."""
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Undecodable(f"not JSON: {error}") from error
    envelope = {name: raw[name] for name in _ENVELOPE if isinstance(raw.get(name), str)}
    read = _Read()
    kind = raw.get("type")
    if not isinstance(kind, str) or kind not in COMMAND_TYPES:
        built = isinstance(kind, str) and kind not in COMMANDS_NOT_BUILT
        told = _found(kind) if built or kind is None else f"{kind!r} is not built yet"
        problem = Problem("type", told, "one of " + ", ".join(COMMAND_TYPES))
        raise BadCommand(envelope, "no such command", (problem,))
    read.known("", raw, _ENVELOPE + _FIELDS[kind])
    values: dict[str, Any] = {
        name: read.text(name, raw, required=name in ("tenant", "job"))
        for name in ("tenant", "job", "command_id", "reply_to", "by", "note")
    }
    values["hops"] = read.whole("hops", raw, 0)
    if "if_match" in _FIELDS[kind]:
        values["if_match"] = read.whole("if_match", raw, None)
    if kind == "put":
        spec = _spec(raw.get("definition"), "definition", read)
        values["spec"] = spec if spec is not None else JobSpec(schedules=())
    elif kind == "trigger":
        values["payload"], _ = _payload(raw, read, None)
        values["scheduled_at"] = read.text("scheduled_at", raw, default=None)
    elif kind == "cancel":
        values["execution_id"] = read.text("execution_id", raw, required=True)
    return COMMAND_TYPES[kind](**values), tuple(read.problems)


def read_definition(raw: object) -> JobSpec:
    """A definition written as JSON. Raises `BadCommand` with all its problems."""
    read = _Read()
    spec = _spec(raw, "definition", read)
    if read.problems or spec is None:
        raise BadCommand({}, "the definition is not valid", tuple(read.problems))
    return spec


def _spec(raw: object, at: str, read: "_Read") -> JobSpec | None:
    """The definition. Paths of fields in it begin in it, as in every other form of a command."""
    if not isinstance(raw, dict):
        read.problem(at, _found(raw), "an object with schedules and a target")
        return None
    read.known("", raw, _DEFINITION)
    schedules = _schedules(raw.get("schedules"), "schedules", read)
    target = _target(raw.get("target"), "target", read)
    payload, content_type = _payload(raw, read, b"")
    return JobSpec(
        name=read.text("name", raw),
        schedules=tuple(schedules),
        topic=target.topic,
        http=target.http,
        worker=target.worker,
        payload=payload or b"",
        content_type=read.text("content_type", raw, default=content_type),
        concurrency=read.text("concurrency", raw, default="forbid"),
        missed=read.text("missed", raw, default="latest"),
        late_tolerance=read.text("late_tolerance", raw, default="60s"),
        max_attempts=read.whole("max_attempts", raw, 1),
        start=read.text("start", raw, default=None),
        end=read.text("end", raw, default=None),
        max_runs=read.whole("max_runs", raw, None),
        jitter=read.text("jitter", raw, default=None),
        start_deadline=read.text("start_deadline", raw, default=None),
        missed_limit=read.whole("missed_limit", raw, None),
        calendars=_calendars(raw.get("calendars"), "calendars", read),
    )


def _calendars(raw: object, at: str, read: "_Read") -> CalendarsSpec | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        read.problem(at, _found(raw), 'an object such as {"exclude": [{"weekly": ["SAT-SUN"]}]}')
        return None
    read.known(at, raw, _CALENDARS)
    sets = raw.get("exclude")
    if not isinstance(sets, list):
        read.problem(f"{at}.exclude", _found(sets), 'a list such as [{"country": "DE"}]')
        sets = []
    return CalendarsSpec(
        exclude=tuple(_excluded(one, f"{at}.exclude[{n}]", read) for n, one in enumerate(sets)),
        then=read.text(f"{at}.then", raw, default="skip"),
        timezone=read.text(f"{at}.timezone", raw, default=None),
    )


def _excluded(raw: object, at: str, read: "_Read") -> ExcludedSpec:
    if isinstance(raw, str):
        read.problem(at, f"{raw[:80]!r}: calendars with a name are not built yet",
                     'write it out, such as {"country": "DE"}')  # fmt: skip
        return ExcludedSpec()
    if not isinstance(raw, dict):
        read.problem(at, _found(raw), 'an object such as {"country": "DE"}')
        return ExcludedSpec()
    read.known(at, raw, _EXCLUDED)
    return ExcludedSpec(
        dates=read.texts(f"{at}.dates", raw),
        country=read.text(f"{at}.country", raw),
        subdivision=read.text(f"{at}.subdivision", raw),
        weekly=read.texts(f"{at}.weekly", raw),
    )


def _schedules(raw: object, at: str, read: "_Read") -> list[ScheduleSpec]:
    if not isinstance(raw, list):
        read.problem(at, _found(raw), 'a list such as [{"cron": "0 9 * * 1-5"}]')
        return []
    return [_schedule(one, f"{at}[{n}]", read) for n, one in enumerate(raw)]


def _schedule(raw: object, at: str, read: "_Read") -> ScheduleSpec:
    if not isinstance(raw, dict):
        read.problem(at, _found(raw), 'an object such as {"cron": "0 9 * * 1-5"}')
        return ScheduleSpec()
    read.known(at, raw, _SCHEDULE)
    dst = raw.get("dst", {})
    if not isinstance(dst, dict):
        read.problem(f"{at}.dst", _found(dst), 'an object such as {"gap": "next"}')
        dst = {}
    read.known(f"{at}.dst", dst, ("gap", "repeat"))
    now = raw.get("now")
    if now is not None and not isinstance(now, bool):
        read.problem(f"{at}.now", _found(now), "true")
        now = None
    text = {
        name: read.text(f"{at}.{name}", raw, default=None)
        for name in ("cron", "timezone", "every", "anchor", "at", "in")
    }
    return ScheduleSpec(
        cron=text["cron"], timezone=text["timezone"], every=text["every"], anchor=text["anchor"],
        at=text["at"], in_=text["in"], now=now,
        gap=read.text(f"{at}.dst.gap", dst, default=None),
        repeat=read.text(f"{at}.dst.repeat", dst, default=None),
    )  # fmt: skip


def _target(raw: object, at: str, read: "_Read") -> _Targets:
    if not isinstance(raw, dict) or not raw:
        read.problem(at, _found(raw), TARGET_EXAMPLE)
        return _Targets()
    read.known(at, raw, ("topic", "http", "worker"))
    topic = _part(raw, "topic", at, read, _TOPIC)
    http = _part(raw, "http", at, read, _HTTP)
    worker = _part(raw, "worker", at, read, _WORKER)
    return _Targets(
        topic=TopicSpec(
            name=read.text(f"{at}.topic.name", topic, required=True),
            key=read.text(f"{at}.topic.key", topic, default=None),
            headers=_headers(topic, f"{at}.topic.headers", read),
            outcome=read.text(f"{at}.topic.outcome", topic, default="none"),
        )
        if topic is not None
        else None,
        http=HttpTargetSpec(
            url=read.text(f"{at}.http.url", http, required=True),
            method=read.text(f"{at}.http.method", http, default="POST"),
            headers=_headers(http, f"{at}.http.headers", read),
            timeout=read.text(f"{at}.http.timeout", http, default="30s"),
            completion=read.text(f"{at}.http.completion", http, default="response"),
            pool=read.text(f"{at}.http.pool", http, default="http"),
        )
        if http is not None
        else None,
        worker=WorkerTargetSpec(
            handler=read.text(f"{at}.worker.handler", worker, required=True),
            pool=read.text(f"{at}.worker.pool", worker, default="default"),
        )
        if worker is not None
        else None,
    )


def _part(
    raw: Mapping[str, Any], name: str, at: str, read: "_Read", fields: tuple[str, ...]
) -> dict[str, Any] | None:
    part = raw.get(name)
    if part is None:
        return None
    if not isinstance(part, dict):
        read.problem(f"{at}.{name}", _found(part), "an object such as " + _EXAMPLES[name])
        return None
    read.known(f"{at}.{name}", part, fields)
    return part


def _headers(raw: Mapping[str, Any], field: str, read: "_Read") -> dict[str, str]:
    headers = raw.get("headers", {})
    if isinstance(headers, dict) and all(isinstance(v, str) for v in headers.values()):
        return headers
    read.problem(field, _found(headers), "an object of texts")
    return {}


def _payload(
    raw: Mapping[str, Any], read: "_Read", default: bytes | None
) -> tuple[bytes | None, str]:
    """Payload and the content type that goes with how it was written."""
    if "payload_base64" in raw:
        if "payload" in raw:
            read.problem("payload_base64", "is given beside payload", "one of the two")
        text = read.text("payload_base64", raw)
        try:
            return base64.b64decode(text, validate=True), "application/octet-stream"
        except (binascii.Error, ValueError) as error:
            read.problem("payload_base64", f"is no base64: {error}", "standard base64")
            return default, "application/octet-stream"
    if "payload" not in raw:
        return default, "application/json"
    return msgspec.json.encode(raw["payload"]), "application/json"


class _Read:
    """Reads fields out of JSON objects and collects what is wrong."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def problem(self, field: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(field, message, hint))

    def known(self, at: str, raw: Mapping[str, Any], names: tuple[str, ...]) -> None:
        """Refuse every field that is not among `names`, by name."""
        for name in raw:
            if name in names:
                continue
            field = f"{at}.{name}" if at else name
            if name in NOT_BUILT:
                self.problem(field, "is not built yet", "leave it out")
                continue
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}?" if close else "one of " + ", ".join(names)
            self.problem(field, "is no field", hint)

    def text(
        self,
        field: str,
        raw: Mapping[str, Any],
        *,
        default: str | None = "",
        required: bool = False,
    ) -> Any:
        name = field.rpartition(".")[2]
        value = raw.get(name)
        if value is None:
            if required:
                self.problem(field, "is missing", "a text")
                return ""
            return default
        if not isinstance(value, str):
            self.problem(field, _found(value), "a text")
            return default
        return value

    def texts(self, field: str, raw: Mapping[str, Any]) -> tuple[str, ...]:
        value = raw.get(field.rpartition(".")[2])
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.problem(field, _found(value), "a list of texts")
            return ()
        return tuple(value)

    def whole(self, field: str, raw: Mapping[str, Any], default: int | None) -> Any:
        value = raw.get(field.rpartition(".")[2])
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
            self.problem(field, _found(value), "a whole number, 0 or above")
            return default
        return value


def _found(value: object) -> str:
    if value is None:
        return "is missing"
    text = msgspec.json.encode(value).decode()
    return f"{text[:80]} is not of the right kind"


__all__ = ["BadCommand", "PutJob", "read_command", "read_definition"]
