"""A stand-in for the scheduler: feeds one worker from its offers, reads what it reports."""

import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.bindings import REPORT_BATCH, WORK_BATCH, WORKER_OFFER
from schemas.leases import HttpCall, ReportBatch, WorkBatch, WorkItem
from schemas.slots import WorkerOffer
from schemas.units import format_instant

from .installed import producer, reader

PARTITIONS: Final = 12
INBOX_PARTITIONS: Final = 16
LEASE_MS: Final = 60_000


class Feeder:
    """Topics, offers, items and reports of one worker under a namespace of its own."""

    def __init__(self, bootstrap: str, namespace: str, pool: str) -> None:
        self.namespace = namespace
        self._inbox = f"{namespace}.inbox.{pool}"
        self._reports = f"{namespace}.reports"
        self._requests = f"{namespace}.slot-requests"
        append = {"message.timestamp.type": "LogAppendTime"}
        topics = [
            NewTopic(self._inbox, INBOX_PARTITIONS, 1),
            NewTopic(self._reports, PARTITIONS, 1, config=append),
            NewTopic(self._requests, PARTITIONS, 1, config=append),
        ]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics(topics).values():
            made.result(10)
        self.producer: Producer = producer(bootstrap)
        self._consumer: Consumer = reader(bootstrap)
        self._consumer.assign(
            [TopicPartition(t, p, 0) for t in (self._reports, self._requests)
             for p in range(PARTITIONS)]
        )  # fmt: skip
        self.offer: WorkerOffer | None = None

    def close(self) -> None:
        """Give up the connections."""
        self._consumer.close()

    def await_worker(self, timeout_s: float = 60.0) -> WorkerOffer:
        """The worker's first offer."""
        until_s = time.monotonic() + timeout_s
        while self.offer is None:
            self.read(0.1)
            if time.monotonic() > until_s:
                raise RuntimeError("no worker offered itself")
        return self.offer

    def read(self, timeout_s: float) -> list[ReportBatch]:
        """Reports that came, or none after the time-out; offers are remembered."""
        batches = []
        for message in self._consumer.consume(2_000, timeout_s):
            value = message.value()
            if message.error() is not None or value is None:
                continue
            if message.topic() == self._requests:
                self.offer = WORKER_OFFER.decode(value)
            else:
                batches.append(REPORT_BATCH.decode(value))
        return batches

    def send(self, value: bytes) -> None:
        """Write an encoded batch to the worker's inbox."""
        assert self.offer is not None
        self.producer.produce(
            self._inbox, value, self.offer.worker.encode(), self.offer.inbox_partition
        )
        self.producer.poll(0)


def batches(
    worker: str, run: str, count: int, size: int, *, handler: str, http: HttpCall | None = None,
) -> Iterator[bytes]:  # fmt: skip
    """Encoded batches of items that are due now; each item's partition is its number's."""
    now_ms = int(time.time() * 1000)
    scheduled = format_instant(now_ms)
    for first in range(0, count, size):
        items = []
        for n in range(first, min(first + size, count)):
            job = f"{run}-{n:07d}"
            occurrence = f"ada/{job}:{scheduled}"
            items.append(
                WorkItem(
                    kind="work", tenant="ada", job=job, execution_id=f"{occurrence}:1",
                    occurrence=occurrence, ordinal=0, attempt=1, delivery=1, fence=n + 1,
                    partition=n % PARTITIONS, scheduled_at=now_ms, due_at=now_ms,
                    lease_until=now_ms + LEASE_MS, token=b"0123456789abcdef", handler=handler,
                    http=http, payload=b'{"n": 1}', max_duration_ms=6 * 3_600_000,
                )
            )  # fmt: skip
        yield WORK_BATCH.encode(WorkBatch(worker=worker, sent_ms=now_ms, items=tuple(items)))
