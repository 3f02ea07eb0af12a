"""Executions as the log tells them: one row each, as it stands now, and the events behind it.

Every event repeats what its row needs, so a row can be had from any part of the log, and rows come
out the same in whichever order parts of it are read.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from schemas.bindings import EXECUTION_FIRED, EXECUTION_MOVED, TICKS_MISSED
from schemas.codec import Undecodable
from schemas.events import ExecutionFired, ExecutionMoved, TicksMissed

EXECUTIONS: Final = "executions"

WAITING: Final = ("QUEUED", "PENDING", "RUNNING")
TERMINAL: Final = (
    "SUCCEEDED", "FAILED", "DEAD", "CANCELLED", "REPLACED", "SKIPPED", "MISSED",
)  # fmt: skip
LEASE_CLOSED: Final = "lease_closed"
"""Reason of an event that only says that the lease of a terminal execution is closed."""
EXECUTIONS_MAX: Final = 10_000


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """What one event says of an execution, or of `count` consecutive ticks that do not run.

    Times are UTC ms, 0 means none. `at` is when the event was decided. For missed ticks
    `scheduled_at` is the first and `last_scheduled_at` the last of them, and there is no execution
    id.
    """

    tenant: str
    job: str
    life: int
    sequence: int
    state: str
    reason: str
    detail: str
    scheduled_at: int
    last_scheduled_at: int
    due_at: int
    claimed_at: int
    at: int
    version: int
    execution_id: str = ""
    attempt: int = 0
    topic: str = ""
    partition: int = -1
    pool: str = ""
    handler: str = ""
    delivery: int = 0
    lost: int = 0
    worker: str = ""
    lease_until: int = 0
    started_at: int = 0
    finished_at: int = 0
    result: bytes = b""
    count: int = 1
    exact: bool = True


def execution_of(value: bytes) -> Execution | None:
    """What the event says; None for an event about something else. Raises `Undecodable`."""
    match value[:5]:
        case EXECUTION_FIRED.prefix:
            return _fired(EXECUTION_FIRED.decode(value))
        case EXECUTION_MOVED.prefix:
            return _moved(EXECUTION_MOVED.decode(value))
        case TICKS_MISSED.prefix:
            return _missed(TICKS_MISSED.decode(value))
        case _:
            return None


class ExecutionsView:
    """The fold. Give it every record of a part of `executions`; ask it at any time.

    Of the executions at most twice the given number is kept, the newest. `undecodable` counts
    records that cannot be read.
    """

    def __init__(self, *, executions_max: int = EXECUTIONS_MAX) -> None:
        self._rows: dict[bytes, Execution] = {}
        self._executions_max = executions_max
        self.undecodable = 0

    def fold(self, key: bytes | None, value: bytes | None) -> Execution | None:
        """Take one record; what it says by itself, if it is about an execution."""
        if key is None or value is None:
            return None
        try:
            event = execution_of(value)
        except Undecodable:
            self.undecodable += 1
            return None
        if event is None:
            return None
        row_key = event.execution_id.encode() or key
        known = self._rows.get(row_key)
        if known is None or outranks(event, known):
            self._rows[row_key] = event
        if len(self._rows) >= 2 * self._executions_max:
            newest = sorted(self._rows.items(), key=lambda item: _age(item[1]))
            self._rows = dict(newest[: self._executions_max])
        return event

    def executions(
        self, tenant: str, job: str | None = None, *, state: str | None = None, limit: int = 100
    ) -> list[Execution]:
        """The newest first, at most `limit`."""
        found = [
            one
            for one in self._rows.values()
            if one.tenant == tenant
            and (job is None or one.job == job)
            and (state is None or one.state == state)
        ]
        found.sort(key=_age)
        return found[:limit]

    def __len__(self) -> int:
        """How many executions are held."""
        return len(self._rows)


class Timeline:
    """The fold for one execution: its events, oldest first. `wanted` is an execution id, or an
    occurrence key, which stands for all its attempts."""

    def __init__(self, wanted: str) -> None:
        self._prefixes = (f"{wanted}#".encode(), f"{wanted}:".encode())
        self._events: dict[bytes, Execution] = {}
        self.complete = False
        """Whether the beginning was read."""
        self.undecodable = 0

    def fold(self, key: bytes | None, value: bytes | None) -> None:
        """Take one record."""
        if key is None or value is None or not key.startswith(self._prefixes):
            return
        try:
            event = execution_of(value)
        except Undecodable:
            self.undecodable += 1
            return
        if event is not None:
            self._events[key] = event
            self.complete |= value[:5] == EXECUTION_FIRED.prefix and event.attempt == 1

    def take(self, events: Iterable[Execution]) -> None:
        """Take events that were read already, all of them of this execution."""
        for event in events:
            self._events[b"%d#%d" % (event.life, event.sequence)] = event

    @property
    def events(self) -> list[Execution]:
        """What happened, in the order in which it did."""
        return sorted(self._events.values(), key=lambda e: (e.life, e.sequence))

    @property
    def row(self) -> Execution | None:
        """The newest attempt as it stands now; None if nothing was read."""
        events = self.events
        if not events:
            return None
        last = max(event.attempt for event in events)
        return max((e for e in events if e.attempt == last), key=_rank)


def outranks(event: Execution, other: Execution) -> bool:
    """Whether, of two events of one execution, the first tells how it stands."""
    return _rank(event) > _rank(other)


def _rank(event: Execution) -> tuple[int, int, int]:
    """Of an execution's events, the highest tells its state. A terminal state never changes: what
    follows it only tells how its lease was closed."""
    if event.reason == LEASE_CLOSED:
        return 0, event.life, event.sequence
    if event.state in TERMINAL:
        return 2, -event.life, -event.sequence
    return 1, event.life, event.sequence


def _age(execution: Execution) -> tuple[int, int, int]:
    """Orders the newest first."""
    return -execution.claimed_at, -execution.scheduled_at, -execution.sequence


def _fired(event: ExecutionFired) -> Execution:
    return Execution(
        tenant=event.tenant, job=event.job, life=event.life, sequence=event.sequence,
        state=event.state, reason=event.reason, detail=event.detail,
        scheduled_at=event.scheduled_at, last_scheduled_at=event.scheduled_at,
        due_at=event.due_at, claimed_at=event.claimed_at, at=event.claimed_at,
        version=event.version, execution_id=event.execution_id, attempt=event.attempt,
        topic=event.topic, partition=event.partition, pool=event.pool, handler=event.handler,
        delivery=event.delivery, worker=event.worker, lease_until=event.lease_until,
    )  # fmt: skip


def _moved(event: ExecutionMoved) -> Execution:
    return Execution(
        tenant=event.tenant, job=event.job, life=event.life, sequence=event.sequence,
        state=event.state, reason=event.reason, detail=event.detail,
        scheduled_at=event.scheduled_at, last_scheduled_at=event.scheduled_at,
        due_at=event.due_at, claimed_at=event.claimed_at, at=event.at, version=event.version,
        execution_id=event.execution_id, attempt=event.attempt, pool=event.pool,
        handler=event.handler, delivery=event.delivery, lost=event.lost, worker=event.worker,
        lease_until=event.lease_until, started_at=event.started_at,
        finished_at=event.finished_at, result=event.result,
    )  # fmt: skip


def _missed(event: TicksMissed) -> Execution:
    return Execution(
        tenant=event.tenant, job=event.job, life=event.life, sequence=event.sequence,
        state=event.state, reason=event.reason, detail=event.detail, scheduled_at=event.first,
        last_scheduled_at=event.last, due_at=event.first, claimed_at=event.claimed_at,
        at=event.claimed_at, version=event.version, count=event.count, exact=event.exact,
    )  # fmt: skip
