"""Reading partitions that were assigned by hand."""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from ..errors import OutOfRange, StreamError, Unavailable
from ..ports import NO_TIMESTAMP, RawRecord, Record
from ..ports import TopicPartition as TopicPartitionKey
from .failures import kafka_error, made

METADATA_S: Final = 1.0
_OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


class KafkaReader:
    """Meets `streams.ports.Reader`."""

    def __init__(self, config: dict[str, object]) -> None:
        self._consumer = made(Consumer, config)
        self._reached: dict[TopicPartitionKey, int] = {}
        """Of each assigned partition the last end seen, at first where it was assigned."""
        self._error: tuple[TopicPartitionKey, StreamError] | None = None
        self._topics: set[str] = set()
        """Topics whose leaders the client was made to ask for."""

    def assign(self, positions: Mapping[TopicPartitionKey, int]) -> None:
        self.unassign(self._reached.keys() & positions.keys())
        for topic in {topic for topic, _ in positions} - self._topics:
            self._learn(topic)
        partitions = [TopicPartition(*key, offset) for key, offset in positions.items()]
        self._consumer.incremental_assign(partitions)
        self._reached.update(positions)

    def _learn(self, topic: str) -> None:
        """Ask for the topic's leaders. Left to itself a client that is connected already asks for
        those of a new topic a second later, and a take-over would wait for it."""
        try:
            self._consumer.list_topics(topic, METADATA_S)
        except KafkaException:
            return
        self._topics.add(topic)

    def unassign(self, partitions: Iterable[TopicPartitionKey]) -> None:
        gone = self._reached.keys() & set(partitions)
        if not gone:
            return
        held = _partitions(gone)
        # A pause outlives the assignment; the next one is to begin without.
        self._consumer.resume(held)
        self._consumer.incremental_unassign(held)
        for key in gone:
            del self._reached[key]
        if self._error is not None and self._error[0] in gone:
            self._error = None

    def pause(self, partitions: Iterable[TopicPartitionKey]) -> None:
        self._consumer.pause(_partitions(partitions))

    def resume(self, partitions: Iterable[TopicPartitionKey]) -> None:
        self._consumer.resume(_partitions(partitions))

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        records: list[Record] = []
        add = records.append
        for message in self._messages(records_max, timeout_s, stop_at_end=False):
            kind, timestamp_ms = message.timestamp()
            headers = message.headers()
            add(
                Record(
                    message.topic(),  # type: ignore[arg-type]
                    message.partition(),  # type: ignore[arg-type]
                    message.offset(),  # type: ignore[arg-type]
                    timestamp_ms if kind != TIMESTAMP_NOT_AVAILABLE else NO_TIMESTAMP,
                    message.key(),
                    message.value(),
                    tuple(headers) if headers else (),  # type: ignore[arg-type]
                )
            )
        return records

    def read_raw(self, records_max: int, timeout_s: float) -> list[RawRecord]:
        return [
            (message.offset(), message.key(), message.value())  # type: ignore[misc]
            for message in self._messages(records_max, timeout_s, stop_at_end=True)
        ]

    def position(self, partition: TopicPartitionKey) -> int:
        (at,) = self._consumer.position([TopicPartition(*partition)])
        # The client counts what it gave out; only the end event counts control records.
        return max(self._reached[partition], at.offset)

    def close(self) -> None:
        self._consumer.close()

    def _messages(self, records_max: int, timeout_s: float, *, stop_at_end: bool) -> list[Message]:
        """Messages that are records. An error is raised once all before it were given out."""
        self._raise_pending()
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                first = self._consumer.poll(max(until_s - time.monotonic(), 0))
                if first is None:
                    return []
                messages = [first]
                if records_max > 1:
                    messages += self._consumer.consume(records_max - 1, 0)
            except KafkaException as exception:
                raise Unavailable(f"reading: {kafka_error(exception)}") from exception
            if any(message.error() is not None for message in messages):
                messages = [message for message in messages if self._is_record(message)]
            if messages:
                return messages
            self._raise_pending()
            if stop_at_end:
                return []

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        key = _key(message)
        if error.code() == KafkaError._PARTITION_EOF:
            if key in self._reached:
                self._reached[key] = message.offset() or 0
        elif self._error is None:
            self._error = (key, _read_failure(key, message, error))
        return False

    def _raise_pending(self) -> None:
        if self._error is not None:
            _, error = self._error
            self._error = None
            raise error


def _key(message: Message) -> TopicPartitionKey:
    return message.topic() or "", message.partition() or 0


def _read_failure(key: TopicPartitionKey, message: Message, error: KafkaError) -> StreamError:
    where = f"reading {key[0]}-{key[1]}"
    if error.code() in _OUT_OF_RANGE:
        return OutOfRange(f"{where} at {message.offset()}: outside the log", key)
    return Unavailable(f"{where}: {error.name()}: {error.str()}")


def _partitions(keys: Iterable[TopicPartitionKey]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, partition in keys]
