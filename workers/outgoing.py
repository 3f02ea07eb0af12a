"""What a worker says: reports gathered per partition, sent, followed until they are in the log."""

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from schemas import limits
from schemas.bindings import REPORT_BATCH
from schemas.leases import Report, ReportBatch

from .lease import Lease, LeaseTimes
from .ports import Acknowledged, ReportLog

SURELY_FIT: Final = limits.REPORT_BATCH_BYTES_MAX // (
    limits.RESULT_BYTES_MAX + limits.DETAIL_BYTES_MAX + limits.PROGRESS_BYTES_MAX + 1_024
)
_Line = tuple[Report, Lease | None, int]
"""A report, and either the lease that it renews and when it was made, or None and until when it
is worth being sent again."""


class _Sent:
    """A record whose fate is open."""

    __slots__ = ("lines", "partition", "sent_ms")

    def __init__(self, partition: int, lines: list[_Line], sent_ms: int) -> None:
        self.partition = partition
        self.lines = lines
        self.sent_ms = sent_ms


class Outgoing:
    """Sends reports in batches, and anything else as it is, through one `ReportLog`.

    A heartbeat that is in the log renews its lease, counted from when it was made. One that is
    lost is not repeated, the next one follows; every other report is sent again until it arrives
    or nobody can want it any more.
    """

    def __init__(
        self, log: ReportLog, *, worker: str, topic: str, times: LeaseTimes,
        on_sample: Callable[[int, int, int], object],
    ) -> None:  # fmt: skip
        self._log = log
        self._worker = worker
        self._key = worker.encode()
        self._topic = topic
        self._times = times
        self._on_sample = on_sample
        self._waiting: defaultdict[int, list[_Line]] = defaultdict(list)
        self._sent: dict[int, _Sent] = {}
        self._number = 0
        self.flushed_ms = 0
        """When reports were handed over last."""
        self.heard_ms = 0
        """When something was acknowledged last."""
        self.sampled_ms = -1
        self.failures = 0

    @property
    def waiting(self) -> bool:
        """Whether reports were made that are not handed over."""
        return bool(self._waiting)

    @property
    def settled(self) -> bool:
        """Whether everything that was said is in the log."""
        return not self._waiting and not self._sent

    def silent(self, now_ms: int) -> bool:
        """Whether the log has left something unanswered for too long."""
        oldest = next(iter(self._sent.values()), None)
        if oldest is None:
            return self.failures > 0
        # A record that was sent again is young, and the log silent all the same.
        since_ms = max(oldest.sent_ms, self.heard_ms) if self.failures == 0 else self.heard_ms
        return now_ms - since_ms > self._times.silent_ms

    def add(self, partition: int, report: Report, now_ms: int, lease: Lease | None = None) -> None:
        """Say it with the next batch of its partition. With `lease` it is a heartbeat for it."""
        until_ms = now_ms if lease is not None else now_ms + self._times.remember_ms
        self._waiting[partition].append((report, lease, until_ms))

    def flush(self, now_ms: int) -> None:
        """Hand over what was gathered."""
        self.flushed_ms = now_ms
        waiting, self._waiting = self._waiting, defaultdict(list)
        for partition, lines in waiting.items():
            for batch in _bounded(lines):
                reports = tuple([line[0] for line in batch])
                value = REPORT_BATCH.encode(ReportBatch(worker=self._worker, reports=reports))
                if not self._hand_over(self._topic, partition, self._key, value, batch, now_ms):
                    self._waiting[partition] += batch

    def send(self, topic: str, partition: int, key: bytes, value: bytes, now_ms: int) -> None:
        """Send something else, at once; nothing is repeated."""
        self._hand_over(topic, partition, key, value, [], now_ms)

    def probe(self, now_ms: int) -> None:
        """Send an empty batch, for its append time."""
        value = REPORT_BATCH.encode(ReportBatch(worker=self._worker, reports=()))
        self._hand_over(self._topic, 0, self._key, value, [], now_ms)

    def acknowledged(self, ack: Acknowledged) -> None:
        """Take in what became of a record."""
        sent = self._sent.pop(ack.number, None)
        if sent is None:
            return
        if not ack.failed:
            self.failures = 0
            self.heard_ms = ack.heard_ms
            if ack.broker_ms >= 0:
                self.sampled_ms = ack.heard_ms
                self._on_sample(sent.sent_ms, ack.heard_ms, ack.broker_ms)
            for _, lease, said_ms in sent.lines:
                if lease is not None:
                    lease.renewed(said_ms, ack.heard_ms, self._times)
            return
        self.failures += 1
        again = [line for line in sent.lines if line[1] is None and line[2] > ack.heard_ms]
        if again:
            self._waiting[sent.partition] = again + self._waiting[sent.partition]

    def _hand_over(
        self, topic: str, partition: int, key: bytes, value: bytes, lines: list[_Line], now_ms: int
    ) -> bool:
        self._number += 1
        # Before it is sent: what is in the log was sent after this instant.
        self._sent[self._number] = _Sent(partition, lines, now_ms)
        if self._log.send(topic, partition, key, value, self._number):
            return True
        del self._sent[self._number]
        return False


def _bounded(lines: list[_Line]) -> list[list[_Line]]:
    """Batches that fit into a record."""
    if len(lines) <= SURELY_FIT:
        return [lines]
    batches: list[list[_Line]] = [[]]
    size = 0
    for line in lines:
        report = line[0]
        bytes_max = len(report.result) + 4 * (len(report.detail) + len(report.progress)) + 1_024
        full = size + bytes_max > limits.REPORT_BATCH_BYTES_MAX
        if batches[-1] and (full or len(batches[-1]) >= limits.REPORTS_PER_BATCH_MAX):
            batches.append([])
            size = 0
        size += bytes_max
        batches[-1].append(line)
    return batches
