"""A worker's hands over a log in memory and a clock that is moved by hand."""

from typing import Any

from schemas.bindings import REPORT_BATCH
from schemas.leases import Report, WorkItem
from streams.memory import ManualClock, MemoryBroker, MemoryLog
from workers.brokerclock import BrokerClock
from workers.hands import Hands
from workers.lease import Ended, Lease, times_of
from workers.memory import MemoryExecutor, MemoryReportLog
from workers.offering import Offering
from workers.outgoing import Outgoing
from workers.ports import Acknowledged, Moment

REPORTS = "test.reports"
TTL_MS = 60_000


class Desk:
    """`broker_ahead_ms`: how far the broker's clock is ahead of this machine's."""

    def __init__(self, *, places: int = 2, ttl_ms: int = TTL_MS, broker_ahead_ms: int = 0) -> None:
        self.clock = ManualClock()
        self.broker_clock = ManualClock(self.clock.wall_ms() + broker_ahead_ms)
        self.broker = MemoryBroker(self.broker_clock)
        self.broker.create_topic(REPORTS, 4)
        self.times = times_of(ttl_ms)
        self.alarms: list[str] = []
        self.report_log = MemoryReportLog(self.broker, self.clock, self._heard)
        self.known_clock = BrokerClock()
        self.outgoing = Outgoing(
            self.report_log, worker="w-1", topic=REPORTS, times=self.times,
            on_sample=self.known_clock.sample,
        )  # fmt: skip
        self.offering = Offering(
            pool="default", worker="w-1", inbox_partition=0, handlers=("work",), places=places
        )
        self.executor = MemoryExecutor()
        self.hands = Hands(
            handlers=("work",), times=self.times, offering=self.offering, outgoing=self.outgoing,
            executor=self.executor, clock=self.known_clock, places=places, alarm=self._alarm,
        )  # fmt: skip
        self._reader = MemoryLog(self.broker).reader("test", committed=False)
        self._reader.assign({(REPORTS, p): 0 for p in range(4)})
        self.outgoing.probe(self.clock.boottime_ms())
        self.reports()

    def now(self) -> Moment:
        return Moment(self.clock.wall_ms(), self.clock.boottime_ms())

    def item(self, name: str = "a", **changes: Any) -> WorkItem:
        wall_ms = self.clock.wall_ms()
        attempt = changes.get("attempt", 1)
        values: dict[str, Any] = {
            "kind": "work", "tenant": "ada", "job": name, "occurrence": f"ada/{name}:t",
            "execution_id": f"ada/{name}:t:{attempt}", "ordinal": 0, "attempt": 1, "delivery": 1,
            "fence": 1, "partition": 1, "scheduled_at": wall_ms, "due_at": wall_ms,
            "lease_until": self.broker_clock.wall_ms() + self.times.length_ms,
            "token": b"t" + name.encode(), "handler": "work", "max_duration_ms": 1,
        }  # fmt: skip
        return WorkItem(**values | changes)

    def take(self, *items: WorkItem) -> None:
        self.hands.take(items, self.now())

    def advance(self, ms: int, *, sweeping: bool = True) -> None:
        """Let time pass; sweeps come as often as they are promised to."""
        left_ms = ms
        while left_ms > 0:
            step_ms = min(self.times.sweep_ms, left_ms) if sweeping else left_ms
            self.clock.advance(step_ms)
            self.broker_clock.advance(step_ms)
            left_ms -= step_ms
            if sweeping:
                self.hands.sweep(self.now())
                self.outgoing.flush(self.clock.boottime_ms())

    def lease(self, name: str = "a") -> Lease:
        return next(one for one in self.executor.started.values() if one.item.job == name)

    def begin(self, name: str = "a") -> Lease:
        lease = self.lease(name)
        self.executor.began[lease.number] = self.clock.wall_ms()
        return lease

    def end(self, name: str = "a", state: str = "SUCCEEDED", **values: Any) -> None:
        wall_ms = self.clock.wall_ms()
        values = {"started_at": wall_ms, "finished_at": wall_ms} | values
        ended = Ended(state=state, **values)
        self.hands.ended(self.lease(name).number, ended, self.now())
        self.hands.advance(self.now())

    def reports(self) -> list[Report]:
        """What was said since the last call, in the order of each partition."""
        return [report for _, report in self.appended()]

    def appended(self) -> list[tuple[int, Report]]:
        """As `reports`, with the times at which they came to stand in the log."""
        self.outgoing.flush(self.clock.boottime_ms())
        found: list[tuple[int, Report]] = []
        for record in self._reader.read(10_000, 0):
            assert record.value is not None
            reports = REPORT_BATCH.decode(record.value).reports
            found += [(record.timestamp_ms, report) for report in reports]
        return found

    def said(self) -> list[tuple[str, str, str]]:
        """Kind, job and state or reason of what was said since the last call."""
        return [(r.kind, r.job, r.state or r.reason) for r in self.reports()]

    def _heard(self, ack: Acknowledged) -> None:
        self.outgoing.acknowledged(ack)

    def _alarm(self, event: str, **values: object) -> None:
        self.alarms.append(event)
