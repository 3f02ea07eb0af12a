"""How late executions were, counted from what the log tells about them."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric

from projections.executions import LEASE_CLOSED, TERMINAL, Execution

BUCKETS: Final = 24


class Late:
    """Distances in powers of two: less than 1, 2, 4, 8 … ms."""

    def __init__(self, name: str, told: str) -> None:
        self._name = name
        self._told = told
        self._counts = [0] * BUCKETS
        self._sum_ms = 0

    def add(self, late_ms: int) -> None:
        """One more."""
        late_ms = max(late_ms, 0)
        self._counts[min(late_ms.bit_length(), BUCKETS - 1)] += 1
        self._sum_ms += late_ms

    def metric(self) -> Metric:
        """As a histogram of seconds."""
        total, buckets = 0, []
        for power, count in enumerate(self._counts):
            total += count
            buckets.append((str(((1 << power) - 1) / 1_000), total))
        return HistogramMetricFamily(
            self._name, self._told, buckets=[*buckets, ("+Inf", total)],
            sum_value=self._sum_ms / 1_000,
        )  # fmt: skip


class Lateness:
    """Counts every event once; give it those that are new only."""

    def __init__(self) -> None:
        self._began = Late(
            "horolog_lateness_seconds",
            "From the time of a run to its start at its worker, once it has ended; first "
            "deliveries of first attempts.",
        )
        self._claimed = Late(
            "horolog_claim_lateness_seconds",
            "From the time of a run to its claim: what a scheduler adds, not what a receiver sees.",
        )

    def take(self, event: Execution) -> None:
        """One event."""
        if event.count != 1 or not event.execution_id or event.attempt != 1:
            return
        if event.at == event.claimed_at and not event.lost and event.delivery <= 1:
            self._claimed.add(event.claimed_at - event.due_at)
        first = event.delivery == 1 and not event.lost
        if first and event.started_at and event.state in TERMINAL and event.reason != LEASE_CLOSED:
            self._began.add(event.started_at - event.due_at)

    def metrics(self) -> Iterator[Metric]:
        """Both, what matters first."""
        yield self._began.metric()
        yield self._claimed.metric()
