"""What a service says of itself over HTTP: is it alive, started, ready, and how does it do.

Nothing is measured for it: what is there anyway is read when somebody asks. The gateway answers the
same questions on its own port.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from horolog.settings import MonitorSettings
from schemas import limits
from streams.binding import Logic
from streams.errors import Refuse
from streams.ports import Clock
from streams.runner import Runner
from workers.runtime import Worker

COUNTED: Final = frozenset({"fired", "outdated_reports", "forged_reports"})
"""Figures that only grow; the others are sizes."""


class Watched(Protocol):
    """A service that can be asked."""

    def alive(self) -> str:
        """Why it is not; empty if it is."""

    def started(self) -> str:
        """Why its start is not over; empty if it is."""

    def ready(self) -> str:
        """Why it cannot do its work; empty if it can."""

    def collect(self) -> Iterable[Metric]:
        """How it does, what matters most first."""


class WatchedProcessor:
    """A scheduler or slots processor. `logics` has the logic of each partition it ever owned."""

    def __init__(
        self, kind: str, runner: Runner, logics: Mapping[int, Logic], clock: Clock
    ) -> None:
        self._kind = kind
        self._runner = runner
        self._logics = logics
        self._clock = clock
        self._was_ready = False

    def alive(self) -> str:
        """Its loop turns."""
        still_s = self._clock.monotonic_s() - self._runner.last_tick_s
        return f"its loop has stood still for {still_s:.0f} s" if still_s > STILL_S else ""

    def started(self) -> str:
        """It has been ready once."""
        return "" if self._was_ready else self.ready()

    def ready(self) -> str:
        """Everything it owns is restored and decided in time. Owning nothing is no fault: others
        do."""
        behind = [str(task.partition) for task in self._tasks() if not task.ready]
        why = f"taking over partition {', '.join(behind)}" if behind else self.alive()
        self._was_ready |= not why
        return why

    def collect(self) -> Iterator[Metric]:
        """How far behind, what is owned, and what the logic of each partition counts."""
        tasks, now_ms = self._tasks(), self._clock.wall_ms()
        logics = [self._logics[t.partition] for t in tasks if t.partition in self._logics]
        deadlines = [at for logic in logics if (at := logic.deadline_ms()) is not None]
        overdue_ms = max((now_ms - at for at in deadlines), default=0)
        yield GaugeMetricFamily(
            f"horolog_{self._kind}_overdue_seconds",
            "How late the oldest thing is that is due and not decided.",
            value=max(overdue_ms, 0) / 1_000,
        )
        owned = GaugeMetricFamily(
            f"horolog_{self._kind}_partitions", "Partitions owned, by what the owner is doing.",
            labels=("ready",),
        )  # fmt: skip
        for is_ready in (True, False):
            count = sum(task.ready == is_ready for task in tasks)
            owned.add_metric((str(is_ready).lower(),), count)
        yield owned
        records = sum(task.records_committed for task in tasks)
        yield GaugeMetricFamily(
            f"horolog_{self._kind}_records_committed",
            "Records committed since the take-over of the partitions owned now.", value=records,
        )  # fmt: skip
        figures: dict[str, int] = {}
        for logic in logics:
            for name, value in logic.figures().items():
                figures[name] = figures.get(name, 0) + value
        for name, value in figures.items():
            kind = CounterMetricFamily if name in COUNTED else GaugeMetricFamily
            told = f"`{name}` of the partitions owned now."
            yield kind(f"horolog_{self._kind}_{name}", told, value=float(value))

    def _tasks(self) -> list[Any]:
        return list(self._runner.tasks.values())


class WatchedWorker:
    """A worker at work."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def alive(self) -> str:
        """It answers."""
        return ""

    def started(self) -> str:
        """It has come to offer itself."""
        return "" if self._worker.offers or self._worker.draining else "it has not offered itself"

    def ready(self) -> str:
        """It takes work."""
        return "it drains" if self._worker.draining else self.started()

    def collect(self) -> Iterator[Metric]:
        """How late handlers saw their work, then how much there was of it."""
        hands = self._worker.hands
        counts = hands.counts
        total, buckets = 0, []
        for power, count in enumerate(counts.late):
            total += count
            buckets.append((str(((1 << power) - 1) / 1_000), total))
        yield HistogramMetricFamily(
            "horolog_worker_lateness_seconds",
            "From the time of a run to its start here; first deliveries of first attempts.",
            buckets=[*buckets, ("+Inf", total)], sum_value=counts.late_ms / 1_000,
        )  # fmt: skip
        yield GaugeMetricFamily("horolog_worker_open", "Leases held now.", value=hands.open)
        for name in ("taken", "started", "closed", "returned", "repeated", "outdated", "given_up"):
            value = getattr(counts, name)
            yield CounterMetricFamily(f"horolog_worker_{name}", f"Items {name}.", value=value)


STILL_S: Final = limits.WATCHDOG_MS / 1_000


class _Collected:
    """What prometheus_client asks of a registered thing."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering asks nothing."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The figures as they are now."""
        return self._watched.collect()


@contextmanager
def monitored(at: MonitorSettings, watched: Watched) -> Iterator[None]:
    """Answer for as long as the context lasts; not at all at port 0. Raises `Refuse` where the port
    is taken."""
    if not at.port:
        yield
        return
    registry = CollectorRegistry()
    registry.register(_Collected(watched))

    class Answers(BaseHTTPRequestHandler):
        """One request."""

        timeout = limits.PROBE_REQUEST_S

        def do_GET(self) -> None:
            """A probe, or a scrape."""
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry))
                return
            asked = {
                "/livez": ("alive", watched.alive), "/startupz": ("started", watched.started),
                "/readyz": ("ready", watched.ready),
            }.get(path)  # fmt: skip
            if asked is None:
                self._answer(HTTPStatus.NOT_FOUND, "application/json", b'{"status":404}')
                return
            name, ask = asked
            why = ask()
            status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
            content = msgspec.json.encode({name: not why, "why": why})
            self._answer(status, "application/json", content)

        def log_message(self, *_: object) -> None:
            """A probe is no news."""

        def _answer(self, status: HTTPStatus, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    try:
        server = ThreadingHTTPServer((at.host, at.port), Answers)
    except OSError as error:
        raise Refuse(
            f"nothing can be answered at {at.host}:{at.port}: {error.strerror}; "
            "HOROLOG_MONITOR__PORT names another port, 0 none"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="monitor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


Watch = Callable[[Worker], Any]


def watch_worker(at: MonitorSettings) -> Watch:
    """What a worker is handed to while it works."""
    return lambda worker: monitored(at, WatchedWorker(worker))
