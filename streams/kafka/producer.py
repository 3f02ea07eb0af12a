"""The transactional producer: what is written, and who is to blame when it is refused.

How the client and the broker behave was measured; the surprising parts:

- After a refused batch the client's sequence numbers have a gap: the next transaction that writes
  to that partition is aborted for it, nobody's fault, and the one after succeeds.
- The client remembers for minutes that a topic was not there.
- When a topic is gone, the broker takes none of the transaction's partitions, and the abort of
  what never began is a fatal error.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message

from ..crash import CrashPoint, unarmed
from ..errors import Aborted, Doubt, StreamError, Unavailable
from ..ports import Delivered, Produced, TopicPartition
from .admin import KafkaTopics
from .failures import Link, kafka_error
from .refusals import Failure, batch_bytes, find_refusals, missing_topics
from .transactional import ABORT_S, TransactionalClient

METADATA_S: Final = 1.0
COMMIT_CRASH_S: Final = 0.001
TRIES: Final = 3

_UNKNOWN: Final = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

ClientHeaders = list[tuple[str, str | bytes | None]]
DeliveryCallback = Callable[[KafkaError | None, Message], None]


class KafkaTransactionalProducer:
    """Meets `streams.ports.TransactionalProducer`."""

    def __init__(
        self, config: dict[str, object], link: Link, topics: KafkaTopics, crash: CrashPoint
    ) -> None:
        self._client = TransactionalClient(config, link)
        self._topics = topics
        self._crash = crash
        self._tries = 0
        self._batch: Sequence[Produced] = ()
        self._report: frozenset[TopicPartition] = frozenset()
        self._careful: frozenset[str] = frozenset()
        self._awaited: set[TopicPartition] = set()
        self._delivered: dict[TopicPartition, Delivered] = {}
        self._failures: list[Failure] = []
        self._queued_bytes: dict[TopicPartition, int] = {}

    def init(self, timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        while not self._init_once():
            if time.monotonic() >= until_s:
                raise Unavailable("taking the epoch: no answer in time")

    def write(
        self,
        records: Iterable[Produced],
        *,
        report: frozenset[TopicPartition],
        careful: frozenset[str],
    ) -> None:
        self._client.check_epoch()
        self._batch = list(records)
        self._report = report
        self._careful = careful
        self._tries = 0
        self._write()

    def commit(self, timeout_s: float) -> Mapping[TopicPartition, Delivered]:
        self._client.check_epoch()
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                return self._commit(until_s)
            except Aborted as aborted:
                if aborted.refusals or self._tries >= TRIES or time.monotonic() >= until_s:
                    raise
            self._write()

    def abort(self, timeout_s: float) -> None:
        self._client.check_epoch()
        # Only a partition that a record has reached gets the marker.
        self._client.flush()
        self._crash("CP12")
        self._client.abort(time.monotonic() + timeout_s)

    def close(self) -> None:
        """Drop the client, without ending a transaction that is open: the next owner does."""
        del self._client

    def _init_once(self) -> bool:
        try:
            return self._client.init_once()
        finally:
            self._crash("CP13")

    def _write(self) -> None:
        """Try again what was aborted while nobody refused anything: nothing of it is visible."""
        while True:
            self._tries += 1
            try:
                self._write_once()
            except Aborted as aborted:
                if aborted.refusals or self._tries >= TRIES:
                    raise
            else:
                return

    def _write_once(self) -> None:
        self._client.begin()
        self._crash("CP02")
        self._awaited = set()
        self._delivered = {}
        self._failures = []
        self._queued_bytes = {}
        self._hand_over(self._batch[:1])
        self._crash("CP03")
        self._hand_over(self._batch[1:])
        self._crash("CP05")
        if self._crash is not unarmed:
            self._client.flush()
            self._crash("CP04")

    def _hand_over(self, batch: Sequence[Produced]) -> None:
        start = 0
        for index in _last_of_each(batch, self._report):
            self._produce(batch[start:index])
            record = batch[index]
            self._produce_followed(record)
            self._awaited.add((record.topic, record.partition))
            start = index + 1
        self._produce(batch[start:])

    def _produce(self, batch: Sequence[Produced]) -> None:
        produce = self._client.producer.produce
        careful = self._careful
        for record in batch:
            topic = record.topic
            if topic in careful:
                self._produce_followed(record)
                continue
            try:
                headers: Any = record.headers
                if headers is None:
                    produce(topic, record.value, record.key, record.partition)
                else:
                    if type(headers) is not list:
                        headers = list(headers)
                    produce(topic, record.value, record.key, record.partition, headers=headers)
            except (KafkaException, BufferError) as exception:
                self._not_taken(record, exception, None)

    def _produce_followed(self, record: Produced) -> None:
        topic = record.topic
        if topic in self._topics.small and topic in self._careful:
            self._keep_batches_small(record)
        callback = partial(self._followed, record)
        headers: ClientHeaders | None = list(record.headers) if record.headers else None
        try:
            self._client.producer.produce(
                topic, record.value, record.key, record.partition, callback, headers=headers
            )
        except (KafkaException, BufferError) as exception:
            self._not_taken(record, exception, callback)

    def _keep_batches_small(self, record: Produced) -> None:
        key = (record.topic, record.partition)
        size = batch_bytes(record)
        queued = self._queued_bytes.get(key, 0) + size
        if queued > self._topics.small[record.topic]:
            self._client.flush()
            self._queued_bytes.clear()
            queued = size
        self._queued_bytes[key] = queued

    def _followed(self, record: Produced, error: KafkaError | None, message: Message) -> None:
        # Called by the client: must not raise.
        if error is not None:
            self._failures.append(Failure(record, error))
            return
        key = (record.topic, record.partition)
        if key in self._report:
            self._delivered[key] = Delivered(*key, message.offset() or 0, message.timestamp()[1])

    def _not_taken(
        self,
        record: Produced,
        exception: KafkaException | BufferError,
        callback: DeliveryCallback | None,
    ) -> None:
        """The client itself does not take the record. Raises, unless it takes it after all."""
        if isinstance(exception, BufferError):
            error = KafkaError(KafkaError._QUEUE_FULL, "the client's queue is full")
            self._give_up(f"writing to {record.topic}", error, exception)
        error = kafka_error(exception)
        if error.code() in _UNKNOWN:
            # It remembers for minutes that a topic or partition was not there.
            try:
                self._client.producer.list_topics(record.topic, METADATA_S)
                self._client.producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    callback,
                    headers=list(record.headers or ()),
                )
            except KafkaException as again:
                error = kafka_error(again)
            else:
                return
        self._failures.append(Failure(record, error))
        # The broker may not know yet of the transaction that is to be aborted, which is fatal.
        self._client.flush()
        self._give_up(f"writing to {record.topic}", error, exception)

    def _commit(self, until_s: float) -> Mapping[TopicPartition, Delivered]:
        timer = None
        if self._crash is not unarmed:
            timer = threading.Timer(COMMIT_CRASH_S, self._crash, ("CP06",))
            timer.start()
        try:
            error = self._client.commit(until_s)
        finally:
            if timer is not None:
                timer.join()
        if error is not None:
            self._give_up("committing", error, None)
        self._check_reports()
        return self._delivered

    def _check_reports(self) -> None:
        for key in self._awaited:
            # A retried batch of which the broker knew already is acknowledged without offset.
            if key not in self._delivered or self._delivered[key].offset < 0:
                raise Doubt(f"committing: nothing tells where the last record of {key} went")

    def _give_up(self, doing: str, error: KafkaError, cause: Exception | None) -> NoReturn:
        """Abort, and raise what the caller is to do, with those named who are to blame."""
        failure: StreamError
        self._crash("CP12")
        try:
            self._client.abort(time.monotonic() + ABORT_S)
            failure = Aborted(f"{doing}: {error.name()}: {error.str()}")
        except StreamError as raised:
            failure = raised
        if isinstance(failure, Aborted | Doubt):
            failure.refusals = find_refusals(
                self._failures, self._careful, self._topics
            ) or missing_topics(self._batch, self._careful, self._topics)
        raise failure from cause


def _last_of_each(batch: Sequence[Produced], report: frozenset[TopicPartition]) -> list[int]:
    """Where in the batch the last record of each partition to report is, in order."""
    missing = set(report)
    topics = {topic for topic, _ in report}
    found = []
    for index in range(len(batch) - 1, -1, -1):
        if not missing:
            break
        record = batch[index]
        if record.topic in topics and (record.topic, record.partition) in missing:
            missing.discard((record.topic, record.partition))
            found.append(index)
    found.reverse()
    return found
