"""Commands: what somebody asks for, as written. Durations and instants are still text.

Avro and JSON records become the same values. JSON nests the target
(`{"target": {"topic": {...}}}`) and the payload is any JSON value; `processors.core.admission`
reads that form and says what is wrong with it.
"""

import msgspec


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One schedule as written; exactly one of cron, every, at, in and now is set."""

    cron: str | None = None
    timezone: str | None = None
    every: str | None = None
    anchor: str | None = None
    at: str | None = None
    in_: str | None = msgspec.field(default=None, name="in")
    now: bool | None = None
    gap: str | None = None
    repeat: str | None = None


class TopicTargetSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Fire into a Kafka topic of the same cluster, in the claim's transaction."""

    name: str
    key: str | None = None
    headers: dict[str, str] = {}
    outcome: str = "none"


class HttpTargetSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Call an HTTP endpoint; at least once."""

    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    timeout: str = "30s"
    completion: str = "response"
    pool: str = "http"


class WorkerTargetSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Run a handler of user code; at least once."""

    handler: str
    pool: str = "default"


class ExcludedSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Times of one kind that a job is kept out of: dates, a country's holidays, weekly windows."""

    dates: tuple[str, ...] = ()
    country: str = ""
    subdivision: str = ""
    weekly: tuple[str, ...] = ()


class CalendarsSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """When a job does not run, and what becomes of ticks that lie there."""

    exclude: tuple[ExcludedSpec, ...]
    then: str = "skip"
    timezone: str | None = None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is to run and when."""

    name: str = ""
    schedules: tuple[ScheduleSpec, ...]
    topic: TopicTargetSpec | None = None
    http: HttpTargetSpec | None = None
    worker: WorkerTargetSpec | None = None
    payload: bytes = b""
    content_type: str = "application/json"
    concurrency: str = "forbid"
    missed: str = "latest"
    late_tolerance: str = "60s"
    max_attempts: int = 1
    start: str | None = None
    end: str | None = None
    max_runs: int | None = None
    jitter: str | None = None
    start_deadline: str | None = None
    missed_limit: int | None = None
    calendars: CalendarsSpec | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What every command carries: whose job, who asks and why, where the answer goes."""

    tenant: str
    job: str
    command_id: str = ""
    reply_to: str = ""
    by: str = ""
    note: str = ""
    hops: int = 0


class PutJob(Command, frozen=True, kw_only=True, gc=False):
    """Create the job, or replace its definition. The same content makes no new version."""

    if_match: int | None = None
    spec: JobSpec


class PauseJob(Command, frozen=True, kw_only=True, gc=False):
    """No ticks until resumed; running executions finish."""

    if_match: int | None = None


class ResumeJob(Command, frozen=True, kw_only=True, gc=False):
    """Ticks again, from now on."""

    if_match: int | None = None


class DeleteJob(Command, frozen=True, kw_only=True, gc=False):
    """End the job; what runs finishes. A stub is kept for a week."""

    if_match: int | None = None


class TriggerJob(Command, frozen=True, kw_only=True, gc=False):
    """Run the job now, once, beside its schedule."""

    payload: bytes | None = None
    scheduled_at: str | None = None


class CancelExecution(Command, frozen=True, kw_only=True, gc=False):
    """End an execution: at once while it waits, else as soon as its worker has stopped it."""

    execution_id: str


AnyCommand = PutJob | PauseJob | ResumeJob | DeleteJob | TriggerJob | CancelExecution

COMMAND_TYPES: dict[str, type[AnyCommand]] = {
    "put": PutJob,
    "pause": PauseJob,
    "resume": ResumeJob,
    "delete": DeleteJob,
    "trigger": TriggerJob,
    "cancel": CancelExecution,
}
"""`type` of a JSON command → its class."""
