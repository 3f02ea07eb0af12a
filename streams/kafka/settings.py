"""Client settings. What promises rest on comes last and cannot be overridden by the user's."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import KafkaError

from schemas import limits

Settings = Mapping[str, str | int | float | bool]
ErrorCallback = Callable[[KafkaError], None]

FETCH_WAIT_MS: Final = 20
"""A fetch that finds nothing is answered after this time; end of a restore waits for it."""
PRODUCER_QUEUE_RECORDS: Final = 200_000
PRODUCER_QUEUE_KB: Final = 262_144
OUTBOX_QUEUE_RECORDS: Final = 100_000
OUTBOX_QUEUE_KB: Final = 65_536
OUTBOX_LINGER_MS: Final = 2
OUTBOX_MESSAGE_MS: Final = 30_000
READER_QUEUE_KB: Final = 65_536
READER_QUEUE_RECORDS: Final = 1_000_000

_COMMON: Final[Mapping[str, object]] = {
    # The client would print to stderr. Errors reach us through the callback; of its own lines
    # only those about fatal errors are of use.
    "logger": logging.getLogger("horolog.kafka.client"),
    "log_level": 2,
    "enable.metrics.push": False,
    "socket.keepalive.enable": True,
    # A broker restarts in seconds; each client asks for it a few times a second until then.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
}


class ClientSettings:
    """Settings of the clients of one cluster. Never shown: they may hold credentials."""

    def __init__(self, bootstrap: str, client_config: Settings) -> None:
        self._base: Mapping[str, object] = {
            **_COMMON,
            "bootstrap.servers": bootstrap,
            **client_config,
        }

    def transactional(self, transactional_id: str, on_error: ErrorCallback) -> dict[str, object]:
        return {
            "queue.buffering.max.messages": PRODUCER_QUEUE_RECORDS,
            "queue.buffering.max.kbytes": PRODUCER_QUEUE_KB,
            # A commit flushes at once whatever this says; while a large transaction is still being
            # handed over, fewer and fuller requests halve the broker's work.
            "linger.ms": 20,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 100,
            **self._base,
            "client.id": transactional_id,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": limits.TRANSACTION_MS_MAX,
            # A user's topic that was deleted after it was known must not hold the transaction for
            # its whole time.
            "message.timeout.ms": limits.TOPIC_ACK_MS,
            "topic.metadata.propagation.max.ms": 0,
            "error_cb": on_error,
        }

    def outbox(self, client_id: str, on_error: ErrorCallback) -> dict[str, object]:
        return {
            "queue.buffering.max.messages": OUTBOX_QUEUE_RECORDS,
            "queue.buffering.max.kbytes": OUTBOX_QUEUE_KB,
            "linger.ms": OUTBOX_LINGER_MS,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 500,
            "message.timeout.ms": OUTBOX_MESSAGE_MS,
            "topic.metadata.propagation.max.ms": 0,
            **self._base,
            "client.id": client_id,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "error_cb": on_error,
        }

    def reader(
        self, client_id: str, on_error: ErrorCallback, *, committed: bool
    ) -> dict[str, object]:
        return {
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "queued.max.messages.kbytes": READER_QUEUE_KB,
            # Bounded by size alone. With more than this many records at hand the client stops
            # fetching for a whole second, which makes a restore four times as long.
            "queued.min.messages": READER_QUEUE_RECORDS,
            "fetch.queue.backoff.ms": 2,
            "fetch.error.backoff.ms": 50,
            **self._base,
            "client.id": client_id,
            # Demanded by the client; nothing is ever committed under it.
            "group.id": client_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # Tells where the end is when the last offsets are control records.
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "error_cb": on_error,
        }

    def member(self, group: str, member: str, on_error: ErrorCallback) -> dict[str, object]:
        return {
            # Partitions are paused at once: should a fetch slip out, it stays small.
            "queued.max.messages.kbytes": 1,
            "fetch.max.bytes": 1_024,
            "message.max.bytes": 1_024,
            **self._base,
            "client.id": member,
            "group.id": group,
            "group.instance.id": member,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": limits.SESSION_MS,
            "heartbeat.interval.ms": limits.HEARTBEAT_MS,
            "max.poll.interval.ms": limits.POLL_INTERVAL_MS_MAX,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "error_cb": on_error,
        }

    def admin(self, on_error: ErrorCallback) -> dict[str, object]:
        return {**self._base, "client.id": "horolog-admin", "error_cb": on_error}
