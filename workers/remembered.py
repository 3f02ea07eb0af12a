"""What became of leases that are closed, for as long as their items may come again."""

from collections import deque

from schemas.leases import Report


class Remembered:
    """Last reports by execution id. Forgets after `keep_ms`, and the oldest above `most`."""

    def __init__(self, keep_ms: int, most: int) -> None:
        self._keep_ms = keep_ms
        self._most = most
        self._reports: dict[str, tuple[Report, int, int]] = {}
        self._order: deque[tuple[int, str]] = deque()

    def add(self, report: Report, partition: int, now_ms: int) -> None:
        """Remember the last report about a lease, and the partition it belongs to."""
        self._reports[report.execution_id] = (report, partition, now_ms)
        self._order.append((now_ms, report.execution_id))
        if len(self._order) > self._most:
            self._forget_oldest()

    def get(self, execution_id: str) -> tuple[Report, int] | None:
        """The last report about the execution and its partition."""
        found = self._reports.get(execution_id)
        return None if found is None else found[:2]

    def forget_old(self, now_ms: int) -> None:
        """Drop what is older than needed."""
        while self._order and now_ms - self._order[0][0] > self._keep_ms:
            self._forget_oldest()

    def __len__(self) -> int:
        return len(self._reports)

    def _forget_oldest(self) -> None:
        at_ms, execution_id = self._order.popleft()
        found = self._reports.get(execution_id)
        # A later delivery of the same execution has its own place in the order.
        if found is not None and found[2] == at_ms:
            del self._reports[execution_id]
