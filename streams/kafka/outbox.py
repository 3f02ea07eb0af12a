"""What is sent after a commit: repeatable, so it may be dropped, and is counted then."""

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from schemas import limits

from ..ports import Produced
from .failures import kafka_error, made


class KafkaOutbox:
    """Meets `streams.ports.Outbox`. `dropped` counts records that will never arrive."""

    def __init__(self, config: dict[str, object]) -> None:
        self._config = config | {"on_delivery": self._failed}
        self._producer = made(Producer, self._config)
        self.dropped = 0

    def send(self, records: Iterable[Produced]) -> None:
        until_s = 0.0
        for record in records:
            while not self._produce(record):
                now_s = time.monotonic()
                until_s = until_s or now_s + limits.OUTBOX_FLUSH_S
                if now_s >= until_s:
                    self.dropped += 1
                    break
                self._poll(0.05)
        self._poll(0)

    def flush(self, timeout_s: float) -> bool:
        try:
            return self._producer.flush(timeout_s) == 0
        except (KafkaException, SystemError):
            return False

    def close(self) -> None:
        # What is still queued goes with the client; whoever wants it sent flushes first.
        del self._producer

    def _produce(self, record: Produced) -> bool:
        """Whether the record is dealt with; False while the queue is full."""
        try:
            if record.headers is None:
                self._producer.produce(record.topic, record.value, record.key, record.partition)
            else:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    headers=list(record.headers),
                )
        except BufferError:
            return False
        except KafkaException as exception:
            self.dropped += 1
            if kafka_error(exception).code() == KafkaError._FATAL:
                self._producer = made(Producer, self._config)
        return True

    def _poll(self, timeout_s: float) -> None:
        try:
            self._producer.poll(timeout_s)
        except (KafkaException, SystemError):
            # Fatal: the next produce says so, and the client is replaced.
            return

    def _failed(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.dropped += 1
