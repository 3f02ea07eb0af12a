"""Who is to blame when a broker refuses records.

A broker refuses a batch as a whole, so innocent records fail with the guilty one; and a topic that
is gone fails the records of all other topics, too.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from confluent_kafka import KafkaError

from ..errors import Refusal, Unavailable
from ..ports import Produced, TopicPartition
from .admin import KafkaTopics

_TOO_LARGE: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
    }
)
_BAD_RECORD: Final = frozenset(
    {KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP, KafkaError._INVALID_ARG}
)
_GONE: Final = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})
# They say that something failed, not that this record did.
_CONSEQUENCES: Final = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._STATE,
        KafkaError._FATAL,
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
_BATCH_HEADER_BYTES: Final = 61
_RECORD_FIELDS_BYTES: Final = 3
"""Attributes, and the differences of time and offset of a batch of one."""


class Failure(NamedTuple):
    """A record that was followed singly, and what became of it."""

    record: Produced
    error: KafkaError


def find_refusals(
    failures: Iterable[Failure], careful: frozenset[str], topics: KafkaTopics
) -> tuple[Refusal, ...]:
    """The guilty among the failed records. May ask the cluster for a topic's limit.

    Only topics in `careful` are blamed as a whole: when one of ours does not answer, the fault is
    the cluster's, and then nobody is to blame for being late."""
    refusals: dict[str, Refusal] = {}
    batches: dict[TopicPartition, list[Failure]] = {}
    failures = [failure for failure in failures if failure.error.code() not in _CONSEQUENCES]
    all_late = any(_late(failure) and failure.record.topic not in careful for failure in failures)
    for failure in failures:
        record, error = failure
        if error.code() in _TOO_LARGE or error.code() in _BAD_RECORD:
            batches.setdefault((record.topic, record.partition), []).append(failure)
        elif record.topic in careful and not (all_late and _late(failure)):
            refusals[record.topic] = _refusal(record, error, whole_topic=True)
    single = [
        _refusal(record, error, whole_topic=False)
        for (topic, _), batch in batches.items()
        if topic not in refusals
        for record, error in _guilty(topic, batch, topics)
    ]
    return (*refusals.values(), *single)


def missing_topics(
    batch: Sequence[Produced], careful: frozenset[str], topics: KafkaTopics
) -> tuple[Refusal, ...]:
    """Refusals for those user topics of the batch that are not, or no longer, as it believes."""
    used: dict[str, int] = {}
    for record in batch:
        if record.topic in careful:
            used[record.topic] = max(record.partition, used.get(record.topic, 0))
    refusals = []
    for topic, highest in used.items():
        topics.forget(topic)
        try:
            count = topics.partitions(topic)
        except Unavailable:
            break
        if count <= highest:
            reason = f"has {count} partitions, not {highest + 1}" if count else "does not exist"
            refusals.append(Refusal(topic, "", reason, whole_topic=True))
    return tuple(refusals)


def batch_bytes(record: Produced) -> int:
    """Size of the record as a batch of one, uncompressed: what a topic's limit is compared with.
    The sum over records is an upper bound for a batch of them."""
    body = _RECORD_FIELDS_BYTES + _field_bytes(record.key) + _field_bytes(record.value)
    headers = record.headers or ()
    body += _varint_bytes(len(headers))
    for name, value in headers:
        body += _field_bytes(name.encode()) + _field_bytes(value)
    return _BATCH_HEADER_BYTES + _varint_bytes(body) + body


def _late(failure: Failure) -> bool:
    return failure.error.code() == KafkaError._MSG_TIMED_OUT


def _refusal(record: Produced, error: KafkaError, *, whole_topic: bool) -> Refusal:
    if error.code() in _GONE:
        reason = "does not exist"
    else:
        reason = error.str().removeprefix("Unable to produce message: ")
    return Refusal(record.topic, record.tag, reason, whole_topic=whole_topic)


def _guilty(topic: str, batch: list[Failure], topics: KafkaTopics) -> list[Failure]:
    if len(batch) == 1:
        return batch
    if batch[0].error.code() in _BAD_RECORD:
        # Compacted topics refuse records without a key.
        return [failure for failure in batch if failure.record.key is None] or batch
    try:
        limit = topics.batch_bytes_max(topic)
    except Unavailable:
        return batch
    guilty = [failure for failure in batch if batch_bytes(failure.record) > limit]
    if not guilty:
        # Each would do, together they are too many: from now on they go in smaller batches.
        topics.small[topic] = limit
    return guilty


def _field_bytes(value: bytes | None) -> int:
    if value is None:
        return 1
    return _varint_bytes(len(value)) + len(value)


def _varint_bytes(number: int) -> int:
    """Bytes of a zigzag-encoded number that is not negative."""
    return max(1, (number.bit_length() + 7) // 7)
