"""Events: what happened, in the past tense. Never edited, only followed. Times are UTC ms."""

from typing import Literal

import msgspec

from .state import JobDefinition


class ExecutionFired(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An occurrence was claimed and, for a topic target, written in the same transaction."""

    tenant: str
    job: str
    life: int
    sequence: int
    execution_id: str
    scheduled_at: int
    due_at: int
    version: int
    txn: int
    claimed_at: int
    attempt: int
    state: str
    reason: str = ""
    detail: str = ""
    topic: str = ""
    partition: int = -1
    tz: str = ""
    previous_outcome: str = ""
    pool: str = ""
    handler: str = ""
    delivery: int = 0
    worker: str = ""
    lease_until: int = 0


class ExecutionMoved(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution that was claimed went on: leased, renewed, waiting again, or at its end."""

    tenant: str
    job: str
    life: int
    sequence: int
    execution_id: str
    scheduled_at: int
    due_at: int
    claimed_at: int
    version: int
    attempt: int
    delivery: int
    lost: int
    started_at: int = 0
    finished_at: int = 0
    result: bytes = b""
    detail: str = ""
    txn: int
    at: int
    state: str
    reason: str = ""
    pool: str
    handler: str
    worker: str = ""
    lease_until: int = 0


class TicksMissed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Consecutive ticks that do not run, as one record; `exact` False: at least `count`."""

    tenant: str
    job: str
    life: int
    sequence: int
    txn: int
    first: int
    last: int
    count: int
    exact: bool
    reason: str
    detail: str = ""
    claimed_at: int
    version: int
    state: Literal["MISSED", "SKIPPED"] = "MISSED"


class InputLost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Records of an input were deleted before they were read."""

    topic: str
    partition: int
    first: int
    last: int
    txn: int
    at_ms: int


class JobChanged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A change of a job, with the whole definition where that changed."""

    tenant: str
    job: str
    life: int
    sequence: int
    txn: int
    version: int
    change: str
    at_ms: int
    by: str = ""
    note: str = ""
    command_id: str = ""
    reason: str = ""
    definition: JobDefinition | None = None


class Quarantined(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record that could not be decoded or crashed the step, with where it came from."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    error: str
    at_ms: int
    txn: int
