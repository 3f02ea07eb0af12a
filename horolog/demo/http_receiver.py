"""Who is called: an HTTP server in a process of its own that knows nothing of Horolog.

Run as `python -m horolog.demo.http_receiver`. Writes where it listens, then a receipt for each call
to stdout, at once, before it answers: by the headers alone. `?hold_ms=…` makes it take its time to
answer. HTTP jobs call `/http`; the Python functions of the demonstration report to `/worker`. It
ends when its standard input does.
"""

import contextlib
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec

from horolog.demo.receipts import End, Receipt
from schemas.units import parse_instant

HOST = "127.0.0.1"


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: where to call."""

    url: str


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Call)
        self.records = 0
        self._lock = threading.Lock()

    def note(self, receipt: Receipt) -> None:
        """Write the receipt, whole lines only."""
        with self._lock:
            self.records += 1
            write(receipt)


class _Call(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        received_ms = time.time_ns() // 1_000_000
        self.rfile.read(int(self.headers.get("content-length", 0)))
        asked = urlsplit(self.path)
        if asked.path not in ("/http", "/worker"):
            self.send_error(404)
            return
        kind: Literal["http", "worker"] = "http" if asked.path == "/http" else "worker"
        self.server.note(
            Receipt(
                kind=kind,
                execution_id=self.headers["ce-id"],
                occurrence=self.headers["x-deduplication-key"],
                subject=self.headers["ce-subject"],
                scheduled_ms=parse_instant(self.headers["x-horolog-scheduled-at"]),
                received_ms=received_ms,
                delivery=int(self.headers["x-horolog-delivery"]),
                fence=int(self.headers["x-horolog-fence"] or 0),
            )
        )
        time.sleep(int(parse_qs(asked.query).get("hold_ms", ["0"])[0]) / 1_000)
        # Whoever called may have been killed meanwhile.
        with contextlib.suppress(ConnectionError):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    def handle(self) -> None:
        """Serve one connection, which may break at any time."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the name is theirs
        """Receipts say it all."""


def write(line: msgspec.Struct) -> None:
    """One line to stdout, at once."""
    sys.stdout.write(f"{msgspec.json.encode(line).decode()}\n")
    sys.stdout.flush()


def main() -> int:
    """Serve until standard input ends."""
    server = _Server()
    write(Listening(url=f"http://{HOST}:{server.server_address[1]}"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    server.shutdown()
    write(End(end=True, records=server.records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
