"""The audit of a whole namespace, partition after partition."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from schemas.partition import partition_of
from streams.layout import topic_name
from streams.ports import Log

from .causes import Acknowledged
from .entries import REPLIES, SCHEDULES
from .finding import Report, Tally
from .partition import Evidence, audit_partition
from .receipts import Receipt
from .source import Source

T = TypeVar("T")
Progress = Callable[[int, int, int], None]
"""Told the partition under way, how many there are, and the records read so far."""


class NoLog(Exception):
    """There is nothing to audit under this namespace."""


def audit(
    log: Log,
    namespace: str,
    *,
    receipts: Iterable[Receipt] = (),
    acknowledged: Iterable[Acknowledged] = (),
    tz: str = "",
    progress: Progress | None = None,
) -> Report:
    """Check everything that the log of a namespace, receipts and client logs can show.

    Holds the receipts, the replies and what is open of one partition, not the log. May be run
    beside a live system. Raises `NoLog`, `streams.errors.Unavailable`.
    """
    topics = log.topics()
    partitions = topics.partitions(topic_name(namespace, SCHEDULES))
    if not partitions:
        raise NoLog(f"topic {topic_name(namespace, SCHEDULES)} does not exist")
    tally, records, count = Tally(), 0, 0
    current = 0

    def read(more: int) -> None:
        nonlocal records
        records += more
        if progress is not None:
            progress(current, partitions, records)

    seen = _by_partition(receipts, lambda receipt: receipt.job, partitions)
    source = Source(log, namespace, read)
    try:
        # Before the partitions: what was answered by now stands in them.
        replies = source.acknowledged(topics.partitions(topic_name(namespace, REPLIES)))
        answers = _by_partition([*replies, *acknowledged], lambda answer: answer.job, partitions)
        for current in range(partitions):
            part = source.partition(current)
            evidence = Evidence(
                partition=current, partitions=partitions, streams=part.streams(),
                commands=part.commands(), cut=part.cut, settled=part.settled,
                acknowledged=_by_job(answers[current]), receipts=seen[current],
            )  # fmt: skip
            count += audit_partition(evidence, tally, tz)
    finally:
        source.close()
    return tally.report(
        partitions=partitions, records=records, transactions=count,
        receipts=sum(map(len, seen.values())),
    )  # fmt: skip


def _by_partition(
    things: Iterable[T], job_of: Callable[[T], str], partitions: int
) -> dict[int, list[T]]:
    found: dict[int, list[T]] = {number: [] for number in range(partitions)}
    for thing in things:
        found[partition_of(job_of(thing), partitions)].append(thing)
    return found


def _by_job(answers: Iterable[Acknowledged]) -> dict[str, list[Acknowledged]]:
    found: defaultdict[str, list[Acknowledged]] = defaultdict(list)
    for answer in answers:
        found[answer.job].append(answer)
    return found
