"""The worker's producer on a real Kafka."""

import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)

from streams.kafka.failures import Link, kafka_error, made
from streams.kafka.settings import ClientSettings, Settings
from streams.ports import Clock

from .ports import Acknowledged

POLL_S: Final = 0.2

OnAcknowledged = Callable[[Acknowledged], None]


class KafkaReportLog:
    """Meets `ReportLog`. Reports of deliveries come from a thread of its own."""

    def __init__(
        self, bootstrap: str, client_config: Settings, *, client_id: str, clock: Clock,
        on_acknowledged: OnAcknowledged,
    ) -> None:  # fmt: skip
        link = Link(client_id)
        config = ClientSettings(bootstrap, client_config).outbox(client_id, link)
        # Batches are made before they come here; waiting for more would only make them late.
        self._config = config | {"delivery.report.only.error": False, "linger.ms": 0}
        self._link = link
        self._clock = clock
        self._on_acknowledged = on_acknowledged
        self._producer: Producer = made(Producer, self._config)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="reports", daemon=True)
        self._thread.start()

    def send(self, topic: str, partition: int, key: bytes, value: bytes, number: int) -> bool:
        def delivered(error: KafkaError | None, message: Message) -> None:
            heard_ms = self._clock.boottime_ms()
            if error is not None:
                self._on_acknowledged(Acknowledged(number, heard_ms, failed=error.str()))
                return
            kind, broker_ms = message.timestamp()
            appended_ms = broker_ms if kind == TIMESTAMP_LOG_APPEND_TIME else -1
            self._on_acknowledged(Acknowledged(number, heard_ms, appended_ms))

        try:
            self._producer.produce(topic, value, key, partition, on_delivery=delivered)
        except BufferError:
            return False
        except KafkaException as exception:
            error = kafka_error(exception)
            if error.code() == KafkaError._FATAL:
                self._replace()
                return False
            self._on_acknowledged(
                Acknowledged(number, self._clock.boottime_ms(), failed=error.str())
            )
        return True

    def flush(self, timeout_s: float) -> bool:
        until_s = time.monotonic() + timeout_s
        while len(self._producer):
            if time.monotonic() > until_s:
                return False
            time.sleep(0.005)
        return True

    def close(self) -> None:
        self._stop.set()
        self._thread.join(2 * POLL_S + 1)

    def _poll(self) -> None:
        while not self._stop.is_set():
            try:
                self._producer.poll(POLL_S)
            except (KafkaException, SystemError):
                self._stop.wait(POLL_S)

    def _replace(self) -> None:
        """A client that failed for good is given up; its records are reported as failed."""
        broken, self._producer = self._producer, made(Producer, self._config)
        try:
            broken.purge()
            broken.poll(0)
        except (KafkaException, SystemError):
            return
