"""What the log says about a run: jobs and how long they lived, what became of every tick."""

from collections.abc import Iterable

import msgspec

from processors.core.spec import plan_of
from processors.topology import EXECUTIONS, SCHEDULE_CHANGES
from projections.reading import LogReading
from schemas.bindings import EXECUTION_FIRED, EXECUTION_MOVED, JOB_CHANGED, TICKS_MISSED
from schemas.events import ExecutionFired, ExecutionMoved, JobChanged, TicksMissed
from schemas.partition import job_key
from streams.ports import Log

from .check import Span


class Evidence:
    """Everything that was recorded, in the order of each partition. Close it."""

    def __init__(self, log: Log, namespace: str, partitions: int) -> None:
        self.changes: list[JobChanged] = []
        self.fired: list[ExecutionFired] = []
        self.moved: list[ExecutionMoved] = []
        self.missed: list[TicksMissed] = []
        self._partitions = partitions
        self._reading = LogReading(log, namespace, "horolog-demo-evidence")

    def close(self) -> None:
        """Give up the connection; what was read stays."""
        self._reading.close()

    def catch_up(self) -> None:
        """Read on to the committed end."""
        topics = (SCHEDULE_CHANGES, EXECUTIONS)
        self._reading.catch_up(topics, range(self._partitions), self._fold)

    def _fold(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        del topic, key
        match (value or b"")[:5]:
            case JOB_CHANGED.prefix:
                self.changes.append(JOB_CHANGED.decode(value or b""))
            case EXECUTION_FIRED.prefix:
                self.fired.append(EXECUTION_FIRED.decode(value or b""))
            case EXECUTION_MOVED.prefix:
                self.moved.append(EXECUTION_MOVED.decode(value or b""))
            case TICKS_MISSED.prefix:
                self.missed.append(TICKS_MISSED.decode(value or b""))
            case _:
                pass


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
