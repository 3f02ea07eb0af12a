"""Saying no over HTTP: RFC 9457 problem documents, one stable `type` per kind."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from schemas.replies import Problem, Refused

MEDIA_TYPE: Final = "application/problem+json"
TYPE: Final = "urn:horolog:problem:"

KINDS: Final[Mapping[str, tuple[int, str]]] = {
    "malformed": (400, "The request cannot be read"),
    "foreign_origin": (403, "The request comes from another site"),
    "foreign_host": (403, "The request names a host that this gateway is not"),
    "not_found": (404, "There is no such thing"),
    "no_such_route": (404, "There is no such address"),
    "method_not_allowed": (405, "The address does not take this method"),
    "id_reused": (409, "The idempotency key was used for another request"),
    "finished": (409, "The job has finished"),
    "version_conflict": (412, "The job is at another version"),
    "too_large": (413, "The request is too large"),
    "too_long": (414, "The address is too long"),
    "media_type": (415, "The body is of another type"),
    "invalid": (422, "The request is not valid"),
    "too_many_commands": (429, "Too many commands with ids within an hour"),
    "internal": (500, "The gateway failed"),
    "busy": (503, "The gateway has enough to do"),
    "starting": (503, "The gateway is still reading the log"),
    "incomplete": (503, "The gateway does not hold every job"),
    "unavailable": (503, "Kafka does not answer"),
    "not_seen_yet": (504, "What was written is not seen yet"),
}
"""Kind → status and title."""
OTHER: Final = (409, "The job is not in a state for this")
AGAIN_S: Final = 1


class Refusing(Exception):
    """The request is answered with this problem."""

    def __init__(self, kind: str, detail: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.problems = tuple(problems)


def problem(kind: str, detail: str, problems: Sequence[Problem] = (), **more: Any) -> Response:
    """The problem document: `errors` has every wrong field, `more` is beside it."""
    status, title = KINDS.get(kind, OTHER)
    told: dict[str, Any] = {
        "type": TYPE + kind, "title": title, "status": status, "detail": detail,
    }  # fmt: skip
    if problems:
        told["errors"] = [_entry(one) for one in problems]
    headers = {"Retry-After": str(AGAIN_S)} if status == 503 else {}
    content = msgspec.json.encode(told | more)
    return Response(content, status, headers, MEDIA_TYPE)


def refused(answer: Refused) -> Response:
    """A scheduler's no."""
    return problem(
        answer.kind, answer.message, answer.problems, tenant=answer.tenant, job=answer.job,
        command_id=answer.command_id,
    )  # fmt: skip


def _entry(one: Problem) -> dict[str, str]:
    entry = {"field": one.field, "message": one.message}
    return entry | {"hint": one.hint} if one.hint else entry
