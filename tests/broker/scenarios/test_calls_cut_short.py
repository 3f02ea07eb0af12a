"""An HTTP worker that is killed with -9 between a request and its outcome."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.broker.scenarios import checks
from tests.broker.scenarios.hands import Hands, deliveries
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import World

DIES_AT = 5
AFTERWARDS = 20

Call = dict[str, str]
"""Headers of a call that was received, by their names in lower case."""


@contextmanager
def receiver() -> Iterator[tuple[str, list[Call]]]:
    """A target on this machine that answers 200: its URL, and the calls it has received."""
    calls: list[Call] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            calls.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"done")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the name is theirs
            """The calls say it all."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", calls
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("point", ["CP10", "CP11"])
@scenario()
def test_a_call_without_an_outcome_is_made_again_and_says_so(world: World, point: str) -> None:
    hands = Hands(world)
    with receiver() as (url, calls):
        scheduler = world.scheduler().await_owner()
        hands.slots()
        dying = hands.http_worker("dying", crash=f"{point}:{DIES_AT}")
        jobs = hands.put("call", DIES_AT + AFTERWARDS, url=url)
        # One after the other, so that nothing else is under way when it dies.
        for job in jobs[: DIES_AT - 1]:
            ends = hands.await_ends(hands.trigger([job]), scheduler)
            assert deliveries(ends.values()) == {("SUCCEEDED", 1, 0)}
        [cut_short] = hands.trigger([jobs[DIES_AT - 1]])
        assert dying.await_end() == -signal.SIGKILL
        hands.http_worker("other")
        [end] = hands.await_ends([cut_short], scheduler).values()
        assert (end.state, end.lost) == ("SUCCEEDED", end.delivery - 1)
        rest = hands.await_ends(hands.trigger(jobs[DIES_AT:]), scheduler)
        assert deliveries(rest.values()) == {("SUCCEEDED", 1, 0)}
        assert scheduler.terminate() == 0
    by_id: dict[str, list[Call]] = {}
    for call in calls:
        by_id.setdefault(call["idempotency-key"], []).append(call)
    assert len(by_id) == len(jobs)
    first, second = by_id.pop(cut_short)
    assert {len(others) for others in by_id.values()} == {1}
    assert "x-horolog-previous-outcome" not in first
    assert second["x-horolog-previous-outcome"] == "unknown"
    assert first["x-horolog-delivery"] == "1"
    assert second["x-horolog-delivery"] == str(end.delivery)
    assert first["x-deduplication-key"] == second["x-deduplication-key"]
    assert int(second["x-horolog-fence"]) > int(first["x-horolog-fence"])
    for [call] in by_id.values():
        assert (call["x-horolog-delivery"], call.get("x-horolog-previous-outcome")) == ("1", None)
    checks.check_log(world)
    checks.check_stores(world, scheduler)
