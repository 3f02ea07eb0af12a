"""What the log says about a run: jobs and how long they lived, fires and missed ticks."""

from collections.abc import Iterable

import msgspec

from processors.core.spec import plan_of
from processors.topology import EXECUTIONS, SCHEDULE_CHANGES
from projections.reading import LogReading
from schemas.bindings import EXECUTION_FIRED, JOB_CHANGED, TICKS_MISSED
from schemas.events import ExecutionFired, JobChanged, TicksMissed
from schemas.partition import job_key
from streams.ports import Log

from .check import Span


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was recorded, in the order of each partition."""

    changes: tuple[JobChanged, ...]
    fired: tuple[ExecutionFired, ...]
    missed: tuple[TicksMissed, ...]


def read_evidence(log: Log, namespace: str, partitions: int) -> Evidence:
    """Read both topics from their start to the committed end."""
    changes: list[JobChanged] = []
    fired: list[ExecutionFired] = []
    missed: list[TicksMissed] = []

    def fold(topic: str, key: bytes | None, value: bytes | None) -> None:
        del topic, key
        if value is None:
            return
        if value[:5] == JOB_CHANGED.prefix:
            changes.append(JOB_CHANGED.decode(value))
        elif value[:5] == EXECUTION_FIRED.prefix:
            fired.append(EXECUTION_FIRED.decode(value))
        elif value[:5] == TICKS_MISSED.prefix:
            missed.append(TICKS_MISSED.decode(value))

    reading = LogReading(log, namespace, "horolog-demo-evidence")
    try:
        reading.catch_up((SCHEDULE_CHANGES, EXECUTIONS), range(partitions), fold)
    finally:
        reading.close()
    return Evidence(changes=tuple(changes), fired=tuple(fired), missed=tuple(missed))


def spans_of(changes: Iterable[JobChanged], end_ms: int) -> list[Span]:
    """For each job the span from its acceptance to its pause, or to `end_ms` if there is none;
    by `end_ms` every pause was answered.

    Raises `ValueError` if a job changed otherwise: then the span would not be the whole truth.
    """
    spans: dict[str, Span] = {}
    for change in changes:
        key = job_key(change.tenant, change.job)
        known = spans.get(key)
        if change.change == "put" and known is None and change.definition is not None:
            spans[key] = Span(
                key=key, plan=plan_of(change.definition), from_ms=change.at_ms, until_ms=end_ms,
                decided_ms=end_ms,
            )  # fmt: skip
        elif change.change == "pause" and known is not None:
            spans[key] = msgspec.structs.replace(known, until_ms=change.at_ms)
        else:
            raise ValueError(f"{key}: nobody was to {change.change} it")
    return list(spans.values())
