"""HTTP targets against a receiver for real: what is sent, and what an answer means."""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from schemas.leases import HttpCall, WorkItem
from streams.clock import SystemClock
from workers.guard import Guard
from workers.http import HttpCaller
from workers.lease import Ended, Lease, times_of
from workers.ports import Moment

CLOCK = SystemClock()
OPEN = Guard(("127.0.0.0/8", "::1/128"), allow_plain_http=True)
EXECUTION = "ada/close-day:2026-03-29T01:30:00.000Z:2"


class Receiver:
    """Remembers the requests it got; answers what its path asks for."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.port = 0

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append((request.method, dict(request.headers), body))
        match request.path.split("/")[1:]:
            case ["status", status]:
                headers = {"Retry-After": "120"} if status in ("429", "503") else {}
                headers |= {"Location": "http://127.0.0.1/other"} if status[0] == "3" else {}
                return web.Response(status=int(status), body=b"why", headers=headers)
            case ["large", size]:
                return web.Response(body=b"x" * int(size))
            case ["slow"]:
                await asyncio.sleep(30)
            case ["slow-body"]:
                response = web.StreamResponse()
                await response.prepare(request)
                await response.write(b"begin")
                await asyncio.sleep(30)
            case ["break"]:
                assert request.transport is not None
                request.transport.close()
            case _:
                pass
        return web.Response(body=b"ok")


def item(url: str, **changes: Any) -> WorkItem:
    call: dict[str, Any] = {"method": "POST", "url": url, "timeout_ms": 5_000}
    call |= {
        name: changes.pop(name) for name in ("method", "headers", "timeout_ms") if name in changes
    }
    values: dict[str, Any] = {
        "kind": "work", "tenant": "ada", "job": "close-day", "execution_id": EXECUTION,
        "occurrence": EXECUTION[:-2], "ordinal": 0, "attempt": 2, "delivery": 3, "fence": 77,
        "partition": 0, "scheduled_at": 1_774_747_800_000, "due_at": 0, "lease_until": 0,
        "token": b"", "handler": "http", "payload": b'{"a": 1}', "max_duration_ms": 1,
        "http": HttpCall(**call),
    }  # fmt: skip
    return WorkItem(**values | changes)


def now() -> Moment:
    return Moment(CLOCK.wall_ms(), CLOCK.boottime_ms())


Test = Callable[[HttpCaller, Receiver], Awaitable[None]]


def run(test: Test, guard: Guard = OPEN, tls: ssl.SSLContext | None = None) -> None:
    async def around() -> None:
        receiver = Receiver()
        await receiver.start(tls)
        caller = HttpCaller(guard, source="/horolog/test", now=now)
        try:
            await test(caller, receiver)
        finally:
            await caller.close()
            await receiver.stop()

    asyncio.run(around())


def call(path: str, guard: Guard = OPEN, **changes: Any) -> tuple[Ended, Receiver]:
    """One call to the receiver's path, and what became of it."""
    got: list[tuple[Ended, Receiver]] = []

    async def test(caller: HttpCaller, receiver: Receiver) -> None:
        url = f"http://127.0.0.1:{receiver.port}/{path}"
        got.append((await caller.call(item(url, **changes), 1), receiver))

    run(test, guard)
    return got[0]


def test_the_receiver_is_told_which_run_it_is() -> None:
    ended, receiver = call("hook", previous_outcome="unknown")
    assert (ended.state, ended.result, ended.detail) == ("SUCCEEDED", b"ok", "HTTP 200")
    ((method, headers, body),) = receiver.requests
    assert (method, body) == ("POST", b'{"a": 1}')
    expected = {
        "Content-Type": "application/json", "Idempotency-Key": EXECUTION,
        "X-Deduplication-Key": EXECUTION[:-2], "X-Horolog-Attempt": "2",
        "X-Horolog-Delivery": "3", "X-Horolog-Fence": "77",
        "X-Horolog-Scheduled-At": "2026-03-29T01:30:00.000Z",
        "X-Horolog-Previous-Outcome": "unknown", "ce-specversion": "1.0", "ce-id": EXECUTION,
        "ce-source": "/horolog/test", "ce-subject": "ada/close-day",
    }  # fmt: skip
    assert headers.items() >= expected.items()


def test_the_users_headers_are_sent_but_cannot_take_the_identity() -> None:
    mine = {"Authorization": "Bearer x", "idempotency-key": "mine", "CE-ID": "mine"}
    _, receiver = call("hook", headers=mine)
    (_, headers, _) = receiver.requests[0]
    assert headers["Authorization"] == "Bearer x"
    assert headers["Idempotency-Key"] == headers["ce-id"] == EXECUTION
    assert "mine" not in headers.values()


def test_method_and_empty_body_are_sent_as_they_are() -> None:
    _, receiver = call("hook", method="GET", payload=b"")
    (method, headers, body) = receiver.requests[0]
    assert (method, body) == ("GET", b"")
    assert "Content-Type" not in headers


@pytest.mark.parametrize(
    ("status", "retry"),
    [(400, False), (401, False), (404, False), (410, False), (408, True), (425, True), (429, True),
     (500, True), (502, True), (503, True), (501, False), (301, False), (307, False)],
)  # fmt: skip
def test_only_what_may_change_is_tried_again(status: int, retry: bool) -> None:
    ended, receiver = call(f"status/{status}")
    assert (ended.state, ended.reason, ended.retry) == ("FAILED", "status", retry)
    assert ended.detail.startswith(f"HTTP {status} ")
    assert ended.result == b"why"
    assert ("Retry-After: 120" in ended.detail) == (status in (429, 503))
    assert len(receiver.requests) == 1, "redirects are not followed"


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_every_2xx_is_success(status: int) -> None:
    assert call(f"status/{status}")[0].state == "SUCCEEDED"


@pytest.mark.parametrize("size", [0, 4_096, 4_097, 60_000, 10_000_000])
def test_the_answer_is_kept_up_to_4_kib(size: int) -> None:
    ended, _ = call(f"large/{size}")
    assert ended.state == "SUCCEEDED"
    assert ended.result == b"x" * min(size, 4_096)


@pytest.mark.parametrize("path", ["slow", "slow-body"])
def test_the_time_limit_bounds_the_whole_call(path: str) -> None:
    ended, _ = call(path, timeout_ms=150)
    assert (ended.state, ended.retry) == ("TIMED_OUT", True)
    assert ended.detail == "no complete answer within 0.15 s"


def test_a_broken_connection_and_a_refused_one_are_tried_again() -> None:
    broken, _ = call("break")
    assert (broken.state, broken.reason, broken.retry) == ("FAILED", "connection", True)
    assert broken.detail.startswith("the connection broke")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def test(caller: HttpCaller, _: Receiver) -> None:
        ended = await caller.call(item(f"http://127.0.0.1:{port}/"), 1)
        assert (ended.state, ended.reason, ended.retry) == ("FAILED", "connection", True)

    run(test)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"]
)
def test_a_private_address_is_not_called_however_it_is_written(host: str) -> None:
    async def test(caller: HttpCaller, receiver: Receiver) -> None:
        ended = await caller.call(item(f"http://{host}:{receiver.port}/hook"), 1)
        assert (ended.state, ended.reason, ended.retry) == ("FAILED", "target", False)
        # Odd ways to write an address may be refused as such.
        assert "HOROLOG_HTTP__ALLOWED_CIDRS" in ended.detail or "canonical" in ended.detail
        assert receiver.requests == []

    run(test, Guard(allow_plain_http=True))


def test_metadata_addresses_are_not_called_even_if_everything_is_allowed() -> None:
    async def test(caller: HttpCaller, _: Receiver) -> None:
        for host in ("169.254.169.254", "[fe80::1]", "[fd00:ec2::254]"):
            ended = await caller.call(item(f"http://{host}/latest/meta-data"), 1)
            assert (ended.reason, ended.retry) == ("target", False)
            assert "never called" in ended.detail

    run(test, Guard(("0.0.0.0/0", "::/0"), allow_plain_http=True))


def test_plain_http_is_refused_unless_it_is_allowed() -> None:
    ended, receiver = call("hook", Guard(("127.0.0.0/8",)))
    assert (ended.reason, receiver.requests) == ("target", [])
    assert "HOROLOG_HTTP__ALLOW_PLAIN_HTTP" in ended.detail


@pytest.mark.parametrize(
    "url", ["http://", "ftp://127.0.0.1/", "http://me:secret@127.0.0.1/", "nonsense", ""]
)
def test_a_url_that_cannot_be_called_fails_as_a_target(url: str) -> None:
    async def test(caller: HttpCaller, _: Receiver) -> None:
        ended = await caller.call(item(url), 1)
        assert (ended.state, ended.reason, ended.retry) == ("FAILED", "target", False)
        assert "secret" not in ended.detail

    run(test)


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "Connection"])
def test_headers_of_the_connection_are_refused(name: str) -> None:
    ended, receiver = call("hook", headers={name: "1"})
    assert (ended.reason, receiver.requests) == ("target", [])
    assert name.lower() in ended.detail


def test_a_header_that_breaks_the_request_is_refused() -> None:
    ended, receiver = call("hook", headers={"X-Mine": "a\r\nX-Other: b"})
    assert (ended.reason, ended.retry, receiver.requests) == ("target", False, [])


def test_a_certificate_nobody_vouches_for_fails_without_retry(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    async def test(caller: HttpCaller, receiver: Receiver) -> None:
        ended = await caller.call(item(f"https://localhost:{receiver.port}/hook"), 1)
        assert (ended.state, ended.reason, ended.retry) == ("FAILED", "tls", False)
        assert receiver.requests == []

    run(test, tls=tls)


def test_the_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert call("hook")[0].state == "SUCCEEDED"


def test_a_cancelled_call_ends_as_cancelled_and_a_lost_lease_lets_it_answer() -> None:
    class Heard:
        def __init__(self) -> None:
            self.ends: dict[int, str] = {}

        def ended(self, number: int, ended: Ended, _: Moment) -> None:
            self.ends[number] = ended.state

    async def test(caller: HttpCaller, receiver: Receiver) -> None:
        heard = Heard()
        caller.listen(heard, lambda: None)  # type: ignore[arg-type]
        base = f"http://127.0.0.1:{receiver.port}"
        leases = [
            Lease(item(f"{base}/{path}"), number, 0, times_of(60_000))
            for number, path in enumerate(("slow", "hook"))
        ]
        for lease in leases:
            caller.start(lease, before_ms=0)
            assert caller.began_at(lease) > 0
        caller.stop(leases[1], "lease")
        await asyncio.sleep(0.2)
        caller.stop(leases[0], "cancel")
        for _ in range(500):
            if len(heard.ends) == 2:
                break
            await asyncio.sleep(0.01)
        assert heard.ends == {0: "CANCELLED", 1: "SUCCEEDED"}

    run(test)
