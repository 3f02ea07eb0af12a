"""Jobs to measure with: each has its own definition, spread over three tenants."""

import json
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from horolog.installation import Installation
from schemas.bindings import PUT_JOB
from schemas.commands import JobSpec, PutJob, ScheduleSpec, TopicTargetSpec
from schemas.partition import job_key, partition_of
from schemas.units import format_instant
from streams.layout import topic_name

TENANTS: Final = ("ada", "grace", "linus")
READER: Final = "bench"
REPLY_PARTITIONS: Final = 16

Encoded = tuple[int, bytes, bytes]
"""Partition, key and value of a command."""


def puts(
    run: str, count: int, partitions: int, topic: str, at_ms: int, spread_ms: int = 0
) -> list[Encoded]:
    """Commands that create one-off jobs due at `at_ms`, or spread over the time after it."""
    commands = []
    for n in range(count):
        tenant, job = TENANTS[n % len(TENANTS)], f"{run}-{n:07d}"
        key = job_key(tenant, job)
        due_ms = at_ms + n * spread_ms // count
        command = PutJob(
            tenant=tenant,
            job=job,
            by="bench",
            reply_to=READER,
            spec=JobSpec(
                schedules=(ScheduleSpec(at=format_instant(due_ms)),),
                topic=TopicTargetSpec(name=topic),
                payload=json.dumps({"n": n}).encode(),
            ),
        )
        commands.append((partition_of(key, partitions), key.encode(), PUT_JOB.encode(command)))
    return commands


def send(producer: Producer, installed: Installation, commands: list[Encoded]) -> None:
    """Write the commands to the log and wait until they are acknowledged."""
    topic = topic_name(installed.settings.namespace, "commands")
    for partition, key, value in commands:
        producer.produce(topic, value, key, partition)
    producer.flush()


class Replies:
    """Counts the answers to commands."""

    def __init__(self, consumer: Consumer, installed: Installation) -> None:
        self._consumer = consumer
        topic = topic_name(installed.settings.namespace, "replies")
        place = TopicPartition(topic, partition_of(READER, REPLY_PARTITIONS))
        place.offset = consumer.get_watermark_offsets(place, timeout=10)[1]
        consumer.assign([place])

    def await_count(self, count: int) -> None:
        """Return once so many more answers were seen."""
        seen = 0
        while seen < count:
            messages = self._consumer.consume(min(10_000, count - seen), 0.05)
            seen += sum(message.error() is None for message in messages)
