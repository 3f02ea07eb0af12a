"""What every request passes first: who it says it comes from, how long it is, what it may do.

Nobody proves who he is yet, so a gateway answers this machine only, and does nothing for pages of
other sites that a browser here has open: neither by a form of theirs, nor by a name of theirs that
leads to this machine.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

from schemas import limits

from .problems import problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NOT_STORED: Final = (b"cache-control", b"no-store")


class Guard:
    """Wraps the application. `hosts` are the names it may be called by; None: any."""

    def __init__(self, app: App, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                if not any(name == NOT_STORED[0] for name, _ in headers):
                    headers.append(NOT_STORED)
                message["headers"] = [*headers, *HEADERS]
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            await problem(*refused)(scope, receive, answer)
            return
        await self._app(scope, receive, answer)

    def _refused(self, scope: Scope) -> tuple[str, str] | None:
        size = len(scope["raw_path"]) + len(scope["query_string"])
        if size > limits.URL_BYTES_MAX:
            return "too_long", f"an address of {size} bytes; at most {limits.URL_BYTES_MAX}"
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts is not None and _without_port(host) not in self._hosts:
            return "foreign_host", f"this gateway is not called {host[:100]!r}"
        if scope["method"] in SAFE:
            return None
        site = headers.get(b"sec-fetch-site", b"none")
        origin = headers.get(b"origin")
        foreign = origin is not None and urlsplit(origin.decode("latin-1")).netloc.lower() != host
        if site not in (b"same-origin", b"none") or foreign:
            return "foreign_origin", "only pages of this gateway itself may change something"
        return None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and (port.isdigit() or not port) else host
