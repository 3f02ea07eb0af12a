"""What schedulers and workers tell each other about leases. Times are UTC ms."""

from typing import Literal

import msgspec

WorkKind = Literal["work", "cancel", "revoke"]
ReportKind = Literal[
    "started",
    "heartbeat",
    "outcome",
    "returned",
    "stopped",
    "abandoned",
    "revoked",
    "already_started",
]


class HttpCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An HTTP request to make; `timeout_ms` bounds the whole call."""

    method: str
    url: str
    headers: dict[str, str] = {}
    timeout_ms: int


class WorkItem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing a worker is told: run it, stop it, or give it back unless it has begun."""

    kind: WorkKind
    tenant: str
    job: str
    execution_id: str
    occurrence: str
    ordinal: int
    attempt: int
    delivery: int
    fence: int
    partition: int
    scheduled_at: int
    due_at: int
    lease_until: int
    token: bytes
    handler: str = ""
    http: HttpCall | None = None
    payload: bytes = b""
    content_type: str = "application/json"
    previous_outcome: str = ""
    max_duration_ms: int


class WorkBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the scheduler tells one worker, in the order to take it."""

    worker: str
    sent_ms: int
    items: tuple[WorkItem, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a worker says about one lease; a token that does not fit is refused and counted."""

    kind: ReportKind
    tenant: str
    job: str
    execution_id: str
    ordinal: int
    delivery: int
    token: bytes
    state: str = ""
    reason: str = ""
    detail: str = ""
    retry: bool = True
    result: bytes = b""
    progress: str = ""
    started_at: int = 0
    finished_at: int = 0


class ReportBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one worker says about leases of one partition, in the order it happened."""

    worker: str
    reports: tuple[Report, ...]
