"""Who may ask for what: judged by the request alone."""

import asyncio
from typing import Any

import pytest

from api.guard import Guard, Message, Receive, Scope, Send

HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def asked(
    method: str, hosts: frozenset[str] | None = HOSTS, path: str = "/", **headers: str
) -> int:
    scope: dict[str, Any] = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()],
    }  # fmt: skip
    statuses: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    asyncio.run(Guard(inner, hosts)(scope, receive, send))
    return statuses[0]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:8765", "[::1]:8765", "[::1]"]
)
def test_this_machine_may_be_called_by_its_names(host: str) -> None:
    assert asked("GET", host=host) == 200


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil", "::1"]
)
def test_a_name_of_somebody_else_is_refused_even_for_reading(host: str) -> None:
    assert asked("GET", host=host) == 403
    assert asked("GET", hosts=None, host=host) == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:8765"}, 200),
        ({"origin": "http://localhost"}, 403),
        ({"origin": "http://127.0.0.1:8765"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"sec_fetch_site": "same-origin", "origin": "http://localhost:8765"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
    ],
    ids=str,
)
def test_only_pages_of_the_gateway_itself_may_change_something(
    headers: dict[str, str], status: int
) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert asked(method, host="localhost:8765", **headers) == status
        assert asked(method, hosts=None, host="localhost:8765", **headers) == status
    assert asked("GET", host="localhost:8765", **headers) == 200


def test_an_address_that_is_too_long_is_refused() -> None:
    assert asked("GET", host="localhost", path="/" + "x" * 9_000) == 414
