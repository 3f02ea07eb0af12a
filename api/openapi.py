"""What the routes say about themselves in the OpenAPI document.

Bodies are checked by the scheduler, the same way for every door, so their schemas are written here
rather than enforced by the framework.
"""

from typing import Any, Final

Json = dict[str, Any]

_TEXT: Final[Json] = {"type": "string"}
_NUMBER: Final[Json] = {"type": "integer"}
_OBJECT: Final[Json] = {"type": "object"}


def _object(properties: Json, required: tuple[str, ...] = (), *, closed: bool = False) -> Json:
    found: Json = {"type": "object", "properties": properties}
    if required:
        found["required"] = list(required)
    if closed:
        found["additionalProperties"] = False
    return found


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(name: str, of: Json) -> Json:
    return _object({name: {"type": "array", "items": of}, "next": {"type": ["string", "null"]}})


_DEFINITION: Final[Json] = {
    "name": _TEXT,
    "schedules": {"type": "array", "items": _ref("Schedule"), "minItems": 1, "maxItems": 10},
    "target": _object({
        "topic": _object({"name": _TEXT, "key": _TEXT, "headers": _OBJECT, "outcome": _TEXT},
                         ("name",), closed=True),
        "http": _object({"url": _TEXT, "method": _TEXT, "headers": _OBJECT, "timeout": _TEXT,
                         "completion": _TEXT, "pool": _TEXT}, ("url",), closed=True),
        "worker": _object({"handler": _TEXT, "pool": _TEXT}, ("handler",), closed=True),
    }) | {"minProperties": 1, "maxProperties": 1},
    "payload": {"description": "any JSON, at most 64 KiB"},
    "payload_base64": {"type": "string", "contentEncoding": "base64"},
    "content_type": _TEXT, "concurrency": _TEXT, "missed": _TEXT,
    "late_tolerance": {"type": "string", "examples": ["60s"]}, "max_attempts": _NUMBER,
}  # fmt: skip

_EXECUTION: Final[Json] = {
    "execution_id": _TEXT, "job": _TEXT, "state": _TEXT, "reason": _TEXT, "detail": _TEXT,
    "scheduled_at": _TEXT, "due_at": _TEXT, "claimed_at": _TEXT, "attempt": _NUMBER,
    "delivery": _NUMBER, "count": _NUMBER,
}  # fmt: skip

SCHEMAS: Final[Json] = {
    "Schedule": _object({
        "cron": {"type": "string", "examples": ["30 2 * * *"]},
        "timezone": {"type": "string", "examples": ["Europe/Paris"]},
        "dst": _object({"gap": _TEXT, "repeat": _TEXT}),
        "every": {"type": "string", "examples": ["10s"]}, "anchor": _TEXT, "at": _TEXT,
        "in": _TEXT, "now": {"type": "boolean"},
    }, closed=True),
    "Definition": _object(_DEFINITION, ("schedules", "target")),
    "Patch": _object(_DEFINITION) | {
        "description": "JSON merge patch (RFC 7396) over the definition; null removes"
    },
    "Trigger": _object({"payload": {}, "payload_base64": _TEXT, "scheduled_at": _TEXT},
                       closed=True),
    "Accepted": _object({
        "command_id": _TEXT, "tenant": _TEXT, "job": _TEXT, "life": _NUMBER, "version": _NUMBER,
        "sequence": _NUMBER, "execution_id": _TEXT, "repeated": {"type": "boolean"},
        "warnings": {"type": "array", "items": _TEXT},
    }),
    "Unanswered": _object({"command_id": _TEXT, "detail": _TEXT}),
    "Job": _object({
        **_DEFINITION, "tenant": _TEXT, "job": _TEXT, "state": _TEXT, "version": _NUMBER,
        "life": _NUMBER, "hold": {"type": ["object", "null"]},
        "next_runs": {"type": "array", "items": _ref("Run")},
        "open": {"type": "array", "items": _OBJECT}, "last": {"type": ["object", "null"]},
    }),
    "Jobs": _list("jobs", _OBJECT),
    "Execution": _object(_EXECUTION | {"events": {"type": "array", "items": _OBJECT},
                                       "result": {}}),
    "Executions": _list("executions", _object(_EXECUTION)),
    "Run": _object({"at": _TEXT, "effective": _TEXT, "local": _TEXT, "offset": _TEXT,
                    "zone": _TEXT, "notes": {"type": "array", "items": _TEXT}}),
    "Preview": _object({"runs": {"type": "array", "items": _ref("Run")},
                        "warnings": {"type": "array", "items": _TEXT}}),
    "Problem": _object({
        "type": {"type": "string", "examples": ["urn:horolog:problem:invalid"]},
        "title": _TEXT, "status": _NUMBER, "detail": _TEXT,
        "errors": {"type": "array", "items": _object(
            {"field": _TEXT, "message": _TEXT, "hint": _TEXT}, ("field", "message"))},
    }, ("type", "title", "status", "detail")),
}  # fmt: skip


def write(summary: str, *, body: str = "") -> Json:
    """A route that asks the scheduler for something."""
    told: Json = {
        "summary": summary,
        "responses": {
            200: _response("accepted", "Accepted"),
            202: _response("no answer in time: repeat it under the same key", "Unanswered"),
            **_PROBLEMS,
        },
    }
    if body:
        media = "application/merge-patch+json" if body == "Patch" else "application/json"
        content = {media: {"schema": _ref(body)}}
        required = body != "Trigger"
        told["openapi_extra"] = {"requestBody": {"required": required, "content": content}}
    return told


def read(summary: str, schema: str) -> Json:
    """A route that tells something."""
    return {"summary": summary, "responses": {200: _response("as asked", schema), **_PROBLEMS}}


def _response(description: str, schema: str, media: str = "application/json") -> Json:
    return {"description": description, "content": {media: {"schema": _ref(schema)}}}


_PROBLEMS: Final[Json] = {
    "4XX": _response("refused", "Problem", "application/problem+json"),
    "5XX": _response("not possible now", "Problem", "application/problem+json"),
}
