"""Calls to HTTP targets: one request each, its time bounded, its answer told as an outcome."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from schemas import limits
from schemas.leases import HttpCall, WorkItem
from streams.crash import CrashPoint, unarmed

from .guard import Blocked, Guard
from .handlers import cut
from .http_headers import RESERVED, headers_of, may_retry
from .lease import Ended, Lease
from .ports import Moment, Runs, Why

KEEP_ALIVE_S: Final = 15.0
DNS_S: Final = 10
READ_CHUNK_BYTES: Final = 16_384


class HttpCaller:
    """Meets `Executor` with HTTP calls on the running event loop.

    Redirects are not followed, proxies and cookies of the environment not used. What the guard
    forbids fails as a target that will not get better by being tried again.
    """

    def __init__(
        self, guard: Guard, *, source: str, now: Callable[[], Moment],
        tls: ssl.SSLContext | None = None, crash: CrashPoint = unarmed,
    ) -> None:  # fmt: skip
        self._guard = guard
        self._crash = crash
        self._source = source
        self._now = now
        connector = aiohttp.TCPConnector(
            resolver=_GuardedResolver(guard), socket_factory=_guarded_sockets(guard), limit=0,
            keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=DNS_S, ssl=tls or True,
        )  # fmt: skip
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False,
            auto_decompress=False, raise_for_status=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        )  # fmt: skip
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._began: dict[int, int] = {}

    def listen(self, runs: Runs, settle: Callable[[], None]) -> None:
        """Tell `runs` what becomes of calls; `settle` follows each."""
        self._runs = runs
        self._settle = settle

    async def close(self) -> None:
        """Cancel what is under way, and give up every connection."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

    # --- Executor --------------------------------------------------------------------------------

    def start(self, lease: Lease, *, before_ms: int) -> None:
        del before_ms  # it begins now
        number = lease.number
        began_at = self._began[number] = self._now().wall_ms
        call = self._run(number, lease.item, began_at)
        self._tasks[number] = asyncio.get_running_loop().create_task(call)

    def stop(self, lease: Lease, why: Why) -> None:
        task = self._tasks.get(lease.number)
        # A call whose lease is lost has had its effect; its answer may still count.
        if task is not None and why in ("cancel", "drain"):
            asyncio.get_running_loop().call_soon(task.cancel)

    def began_at(self, lease: Lease) -> int:
        return self._began.get(lease.number, 0)

    def abandon(self, lease: Lease) -> None:
        self._tasks.pop(lease.number, None)
        self._began.pop(lease.number, None)

    def flush(self) -> None:
        return

    # --- one call --------------------------------------------------------------------------------

    async def _run(self, number: int, item: WorkItem, began_at: int) -> None:
        try:
            ended = await self.call(item, began_at)
        except asyncio.CancelledError:
            ended = self._ended(began_at, "CANCELLED")
        self._tasks.pop(number, None)
        self._began.pop(number, None)
        self._runs.ended(number, ended, self._now())
        self._settle()

    async def call(self, item: WorkItem, began_at: int) -> Ended:
        """Call the item's target once; what became of it."""
        http = item.http
        if http is None:
            return self._failed(began_at, "target", "the item names no URL", retry=False)
        try:
            url = self._checked(http)
            async with asyncio.timeout(http.timeout_ms / 1_000):
                async with self._session.request(
                    http.method, url, headers=headers_of(item, self._source, began_at),
                    data=item.payload or None, allow_redirects=False,
                ) as response:  # fmt: skip
                    self._crash("CP10")
                    body = await _beginning(response)
                    self._crash("CP11")
        except TimeoutError:
            detail = f"no complete answer within {http.timeout_ms / 1_000:g} s"
            return self._ended(began_at, "TIMED_OUT", detail=detail)
        except Exception as error:  # noqa: BLE001 every call has an outcome
            return self._no_answer(error, began_at)
        return self._answered(response, body, began_at)

    def _checked(self, http: HttpCall) -> URL:
        """The URL if it may be called. A host that is an address is not resolved, so it is looked
        at here; names are, when they are resolved."""
        reserved = sorted(RESERVED.intersection(name.lower() for name in http.headers))
        if reserved:
            raise Blocked(f"header {reserved[0]} belongs to the connection; leave it out")
        url = URL(http.url)
        self._guard.check_scheme(url.scheme)
        if not url.host:
            raise Blocked(f"the URL names no host: {http.url[:200]}")
        if url.user is not None or url.password is not None:
            raise Blocked("the URL holds a user name or password; use a header")
        if _is_address(url.host):
            self._guard.check_address(url.host, url.host)
        return url

    def _answered(self, response: aiohttp.ClientResponse, body: bytes, began_at: int) -> Ended:
        status = response.status
        if 200 <= status <= 299:
            detail = f"HTTP {status}"
            return self._ended(began_at, "SUCCEEDED", detail=detail, result=body)
        detail = f"HTTP {status} {response.reason or ''}".rstrip()
        if "Retry-After" in response.headers:
            detail += f"; Retry-After: {response.headers['Retry-After'][:100]}"
        if 300 <= status <= 399:
            detail += "; redirects are not followed: give the job the new address"
        return self._ended(
            began_at, "FAILED", reason="status", detail=cut(detail, limits.DETAIL_BYTES_MAX),
            retry=may_retry(status), result=body,
        )  # fmt: skip

    def _no_answer(self, error: Exception, began_at: int) -> Ended:
        blocked = _blocked_by(error)
        if blocked is not None:
            return self._failed(began_at, "target", str(blocked), retry=False)
        match error:
            case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
                return self._failed(began_at, "tls", str(error), retry=False)
            case aiohttp.ClientSSLError() | ssl.SSLError():
                return self._failed(began_at, "tls", str(error), retry=True)
            case aiohttp.InvalidURL() | ValueError() | TypeError():
                told = f"the request cannot be made: {error}"
                return self._failed(began_at, "target", told, retry=False)
            case aiohttp.ClientConnectorError():
                return self._failed(began_at, "connection", str(error), retry=True)
            case _:
                told = f"the connection broke: {error or type(error).__name__}"
                return self._failed(began_at, "connection", told, retry=True)

    def _failed(self, began_at: int, reason: str, detail: str, *, retry: bool) -> Ended:
        detail = cut(detail, limits.DETAIL_BYTES_MAX)
        return self._ended(began_at, "FAILED", reason=reason, detail=detail, retry=retry)

    def _ended(self, began_at: int, state: str, **values: Any) -> Ended:
        now_ms = self._now().wall_ms
        return Ended(state=state, started_at=began_at, finished_at=now_ms, **values)


class _GuardedResolver(AbstractResolver):
    """Looks names up, and refuses a name of which one address is forbidden."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for one in found:
            self._guard.check_address(host, one["host"])
        return found

    async def close(self) -> None:
        await self._inner.close()


def _guarded_sockets(guard: Guard) -> Callable[[Any], socket.socket]:
    """Makes sockets for the addresses that are connected to: the last look."""

    def make(address: Any) -> socket.socket:
        family, kind, protocol, _, where = address
        guard.check_address(where[0], where[0])
        return socket.socket(family=family, type=kind, proto=protocol)

    return make


def _blocked_by(error: BaseException) -> Blocked | None:
    """The guard's refusal behind an error of the client."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, Blocked):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except OSError:
            continue
        return True
    return False


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """The first 4 KiB of the answer. The rest is read up to a bound, so that the connection can be
    used again; beyond, the connection is given up."""
    kept = bytearray()
    read = 0
    async for chunk in response.content.iter_chunked(READ_CHUNK_BYTES):
        read += len(chunk)
        kept += chunk[: limits.RESULT_BYTES_MAX - len(kept)]
        if read > limits.RESPONSE_READ_BYTES_MAX:
            response.close()
            break
    return bytes(kept)
