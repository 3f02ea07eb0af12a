"""Targets as written, checked: a Kafka topic, an HTTP endpoint, or a handler of user code."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from schemas import limits
from schemas.commands import HttpTargetSpec, JobSpec, TopicTargetSpec, WorkerTargetSpec
from schemas.replies import Problem
from schemas.state import HttpTarget, TopicTarget, WorkerTarget
from schemas.units import Unreadable, parse_duration_ms

OUTCOME_BUILT: Final = ("none",)
OUTCOME_KNOWN: Final = ("none", "report")
COMPLETION_BUILT: Final = ("response",)
COMPLETION_KNOWN: Final = ("response", "callback")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
HTTP_POOL: Final = "http"

_TOPIC_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_POOL_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_HANDLER_CHARS: Final = _TOPIC_CHARS | {":", "/"}
_HEADER_CHARS: Final = _TOPIC_CHARS | set("!#$%&'*+^`|~")
_OURS: Final = ("ce_", "ce-", "x-horolog-", "idempotency-key", "x-deduplication-key", "webhook-")
_OF_HTTP: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_CREDENTIALS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})

TARGET_EXAMPLE: Final = (
    '{"topic": {"name": "…"}}, {"http": {"url": "https://…"}} or {"worker": {"handler": "…"}}'
)


class Targets(NamedTuple):
    """The checked target: exactly one is set when there were no problems."""

    topic: TopicTarget | None
    http: HttpTarget | None
    worker: WorkerTarget | None
    warnings: tuple[str, ...]


def check_target(spec: JobSpec, namespace: str, problems: list[Problem]) -> Targets:
    """The target of a definition; what is wrong with it goes to `problems`."""
    given = [t for t in (spec.topic, spec.http, spec.worker) if t is not None]
    if len(given) != 1:
        what = "is missing" if not given else "names more than one kind"
        problems.append(Problem("target", what, TARGET_EXAMPLE))
    topic = _topic(spec.topic, namespace, problems) if spec.topic is not None else None
    http = _http(spec.http, problems) if spec.http is not None else None
    worker = _worker(spec.worker, problems) if spec.worker is not None else None
    warnings = () if topic is not None else (AT_LEAST_ONCE,)
    return Targets(topic, http, worker, warnings)


AT_LEAST_ONCE: Final = (
    "the target is called at least once: it should recognise a repeat by X-Deduplication-Key"
)


def _topic(spec: TopicTargetSpec, namespace: str, problems: list[Problem]) -> TopicTarget:
    name = spec.name
    foreign = set(name) - _TOPIC_CHARS
    if not name or len(name) > limits.TOPIC_CHARS_MAX or foreign or name in (".", ".."):
        shown = f", not {min(foreign)!r}" if foreign else ""
        problems.append(
            Problem("target.topic.name", f"{name!r} is no topic name",
                    f"1 to {limits.TOPIC_CHARS_MAX} of A-Z a-z 0-9 . _ -{shown}")
        )  # fmt: skip
    elif name.startswith((f"{namespace}.", "__")):
        problems.append(
            Problem("target.topic.name", f"{name!r} belongs to Horolog or to Kafka",
                    "a topic of your own")
        )  # fmt: skip
    choice("target.topic.outcome", spec.outcome, OUTCOME_BUILT, OUTCOME_KNOWN, problems)
    key = spec.key.encode() if spec.key is not None else None
    bound("target.topic.key", len(key or b""), limits.TARGET_KEY_BYTES_MAX, "bytes", problems)
    _headers("target.topic.headers", spec.headers, problems)
    if not spec.headers:
        return _without_headers(name, key)
    return TopicTarget(name=name, key=key, headers=dict(spec.headers), outcome="none")


@lru_cache(maxsize=4_096)
def _without_headers(name: str, key: bytes | None) -> TopicTarget:
    """One object for many jobs: it takes room in memory once."""
    return TopicTarget(name=name, key=key, outcome="none")


def _http(spec: HttpTargetSpec, problems: list[Problem]) -> HttpTarget:
    _url(spec.url, problems)
    if spec.method not in METHODS:
        problems.append(
            Problem("target.http.method", f"{spec.method!r} is no method", ", ".join(METHODS))
        )
    choice("target.http.completion", spec.completion, COMPLETION_BUILT, COMPLETION_KNOWN, problems)
    _headers("target.http.headers", spec.headers, problems)
    for name, value in spec.headers.items():
        where, lower = f"target.http.headers.{name}", name.lower()
        if lower in _CREDENTIALS:
            problems.append(
                Problem(where, "is a credential, and a job is no place for one",
                        "named secrets are not built yet: put a gateway that knows it in between")
            )  # fmt: skip
        elif lower in _OF_HTTP:
            problems.append(Problem(where, "is set by the call itself", "leave it out"))
        if set(name) - _HEADER_CHARS or any(ord(c) < 32 or ord(c) == 127 for c in value):
            problems.append(Problem(where, "has a character that no header has", "printable text"))
    timeout_ms = _timeout_ms(spec.timeout, problems)
    _pool("target.http.pool", spec.pool, problems)
    return HttpTarget(
        url=spec.url, method=spec.method, headers=dict(spec.headers), timeout_ms=timeout_ms,
        completion="response", pool=spec.pool,
    )  # fmt: skip


def _url(url: str, problems: list[Problem]) -> None:
    """Shape only: what an address may be is the worker's to judge, when it connects."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        problems.append(Problem("target.http.url", f"{url!r} is no URL: {error}"))
        return
    del port
    wrong = None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        wrong = "is no absolute URL of http or https"
    elif parts.username is not None or parts.password is not None:
        wrong = "carries credentials"
    elif parts.fragment:
        wrong = "has a fragment, which is never sent"
    elif not url.isascii() or any(ord(c) <= 32 or ord(c) == 127 or c == "\\" for c in url):
        wrong = "has a character that must be percent-encoded"
    elif len(url) > limits.URL_CHARS_MAX:
        wrong = f"is longer than {limits.URL_CHARS_MAX} characters"
    if wrong is not None:
        shown = url[:80] + ("…" if len(url) > 80 else "")
        problems.append(
            Problem("target.http.url", f"{shown!r} {wrong}", "such as https://example.org/hook")
        )


def _worker(spec: WorkerTargetSpec, problems: list[Problem]) -> WorkerTarget:
    handler = spec.handler
    foreign = set(handler) - _HANDLER_CHARS
    if not 1 <= len(handler) <= limits.HANDLER_CHARS_MAX or foreign:
        shown = f", not {min(foreign)!r}" if foreign else ""
        problems.append(
            Problem("target.worker.handler", f"{handler!r} is no handler name",
                    f"1 to {limits.HANDLER_CHARS_MAX} of A-Z a-z 0-9 . _ - : /{shown}")
        )  # fmt: skip
    _pool("target.worker.pool", spec.pool, problems)
    if spec.pool == HTTP_POOL:
        problems.append(
            Problem("target.worker.pool", "'http' is the pool of HTTP calls", "another pool")
        )
    return WorkerTarget(handler=handler, pool=spec.pool)


def _pool(field: str, pool: str, problems: list[Problem]) -> None:
    if pool not in limits.POOLS_BUILT:
        problems.append(
            Problem(field, f"{pool!r}: pools of your own are not built yet",
                    " or ".join(limits.POOLS_BUILT))
        )  # fmt: skip
    elif set(pool) - _POOL_CHARS or not 1 <= len(pool) <= limits.TENANT_CHARS_MAX:
        problems.append(Problem(field, f"{pool!r} is no pool name", "1 to 63 of a-z 0-9 -"))


@lru_cache(maxsize=256)
def _duration_ms(text: str) -> int | Unreadable:
    try:
        return int(parse_duration_ms(text))
    except Unreadable as error:
        return error


def _timeout_ms(text: str, problems: list[Problem]) -> int:
    found = _duration_ms(text)
    if isinstance(found, Unreadable):
        problems.append(
            Problem("target.http.timeout", f"{found.value!r} {found.message}", found.hint)
        )
    elif not 0 < found <= limits.HTTP_TIMEOUT_MS_MAX:
        problems.append(Problem("target.http.timeout", f"{text} is out of range", "up to 15m"))
    else:
        return found
    return limits.HTTP_TIMEOUT_MS_DEFAULT


def _headers(field: str, headers: Mapping[str, str], problems: list[Problem]) -> None:
    bound(field, len(headers), limits.HEADERS_MAX, "headers", problems)
    for header, value in headers.items():
        where = f"{field}.{header}"
        bound(where, len(header) + len(value.encode()), limits.HEADER_BYTES_MAX, "bytes", problems)
        lower = header.lower()
        if lower == "content-type":
            problems.append(Problem(where, "is set by Horolog", "content_type of the job"))
        elif lower.startswith(_OURS) or not header:
            problems.append(Problem(where, "is set by Horolog", "another header name"))


def choice(
    field: str, value: str, built: tuple[str, ...], known: tuple[str, ...], problems: list[Problem]
) -> None:
    """One of the built values; one that is only documented is refused as not built yet."""
    if value not in built:
        what = "is not built yet" if value in known else "is no choice"
        problems.append(Problem(field, f"{value!r} {what}", " or ".join(built)))


def bound(field: str, found: int, most: int, unit: str, problems: list[Problem]) -> None:
    """At most so many."""
    if found > most:
        problems.append(Problem(field, f"{found} {unit} are too many", f"at most {most}"))
