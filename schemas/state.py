"""State records: what restores a scheduler. One class per schema, field by field."""

from typing import Literal

import msgspec

JobStatus = Literal["ACTIVE", "PAUSED", "FINISHED", "BROKEN", "DELETED"]


class Schedule(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One accepted schedule; `kind` says which of the other fields count."""

    kind: Literal["cron", "every", "at"]
    cron: str = ""
    timezone: str = ""
    gap: str = "auto"
    repeat: str = "auto"
    every_ms: int = 0
    anchor_ms: int = 0
    at_ms: int = 0
    written: str = ""


class TopicTarget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Kafka topic of the same cluster, written in the claim's transaction."""

    name: str
    key: bytes | None = None
    headers: dict[str, str] = {}
    outcome: Literal["none"] = "none"


class HttpTarget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An HTTP endpoint; `timeout_ms` bounds the whole call."""

    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    timeout_ms: int = 30_000
    completion: str = "response"
    pool: str = "http"


class WorkerTarget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A handler of user code, by name, and the pool of workers that have it."""

    handler: str
    pool: str = "default"


class ExcludedTimes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Times of one kind that a job is kept out of."""

    dates: tuple[str, ...] = ()
    country: str = ""
    subdivision: str = ""
    weekly: tuple[str, ...] = ()


class Calendars(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When a job does not run; `then` says what becomes of ticks that lie there."""

    exclude: tuple[ExcludedTimes, ...]
    then: str = "skip"
    timezone: str = "UTC"
    data: str = ""


class TickPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is to be looked at before a tick runs, beyond the defaults; 0 means none."""

    start_ms: int = 0
    end_ms: int = 0
    max_runs: int = 0
    jitter_ms: int = 0
    start_deadline_ms: int = 0
    missed_limit: int = 100
    calendars: Calendars | None = None


class JobDefinition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is to run and when, durations and instants resolved."""

    txn: int
    tenant: str
    job: str
    life: int
    version: int
    name: str = ""
    schedules: tuple[Schedule, ...]
    topic: TopicTarget | None = None
    http: HttpTarget | None = None
    worker: WorkerTarget | None = None
    payload: bytes = b""
    content_type: str = "application/json"
    concurrency: str = "forbid"
    missed: str = "latest"
    late_tolerance_ms: int = 60_000
    max_attempts: int = 1
    digest: bytes = b""
    policy: TickPolicy | None = None


class CommandId(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A command that took effect, with what it was answered."""

    id: bytes
    body: bytes
    at_ms: int
    version: int
    sequence: int
    execution_id: str = ""


class Hold(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a job has no ticks: paused, or the reason why it is broken."""

    reason: str
    since_ms: int
    by: str = ""
    note: str = ""


class OpenExecution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution that has no outcome yet, or whose lease is not closed. Times are UTC ms."""

    ordinal: int
    occurrence: str
    attempt: int
    delivery: int
    lost: int
    scheduled_at: int
    due_at: int
    claimed_at: int
    version: int
    state: Literal["QUEUED", "PENDING", "RUNNING", "CLOSING"]
    reason: str = ""
    pool: str
    handler: str
    worker: str = ""
    inbox: int = 0
    lease_until: int = 0
    fence: int = 0
    named: bool = False
    started_at: int = 0
    payload: bytes | None = None
    definition: JobDefinition | None = None

    @property
    def execution_id(self) -> str:
        """Occurrence key and attempt: the same for every delivery of the attempt."""
        return f"{self.occurrence}:{self.attempt}"

    @property
    def leased(self) -> bool:
        """Whether a worker may hold it."""
        return self.lease_until > 0


class JobState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What changes about a job. Times are UTC ms, 0 means none."""

    txn: int
    life: int
    version: int
    sequence: int
    status: JobStatus
    cursor_ms: int = 0
    cursor_local: str = ""
    next_ms: int = 0
    due_ms: int = 0
    tz: str = ""
    runs: int = 0
    forget_ms: int = 0
    hold: Hold | None = None
    ids: tuple[CommandId, ...] = ()
    open: tuple[OpenExecution, ...] = ()
    since_ms: int = 0


class JobIds(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Commands of the last hour beyond those in the job's state, oldest first."""

    txn: int
    ids: tuple[CommandId, ...]


class Position(msgspec.Struct, frozen=True, gc=False):
    """Where a task goes on reading an input; the topic without its namespace."""

    topic: str
    offset: int


class Mark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Last record of every transaction: positions, sequence and count of records."""

    txn: int
    epoch: int
    records: int
    wall_ms: int
    owner: str
    positions: tuple[Position, ...]
