"""The views behind `get` and `list`: read from the log when they are asked for."""

import re
from typing import TYPE_CHECKING, Final

from .frame import USAGE, Failure, open_log

if TYPE_CHECKING:
    from horolog.settings import Settings
    from projections.executions import ExecutionsView, Timeline
    from projections.jobs import JobsView
    from streams.ports import Log, Record

TAIL_RECORDS: Final = 200
EXECUTION_ID: Final = re.compile(r"([^/:]+)/([^/:]+):\d{4}-\d\d-\d\dT[^:]+:[^:]+:[^:]+(?::\d+)?")


def read_jobs(settings: "Settings", tenant: str, job: str | None = None) -> "JobsView":
    """Jobs as they are committed now; of one job's partition only, where one is named."""
    from projections.jobs import JOB_STATE_TOPIC, SCHEDULES, JobsView
    from projections.reading import LogReading

    log = open_log(settings)
    partitions = _partitions(log, settings.namespace, tenant, job)
    view = JobsView()
    reading = LogReading(log, settings.namespace, "horolog-jobs")
    try:
        reading.catch_up((SCHEDULES, JOB_STATE_TOPIC), partitions, view.fold)
    finally:
        reading.close()
    return view


def read_executions(
    settings: "Settings", tenant: str, job: str | None, state: str | None, limit: int
) -> "ExecutionsView":
    """At least the newest `limit` executions that fit, if there are so many."""
    from projections.executions import EXECUTIONS, ExecutionsView
    from projections.reading import LogReading

    log = open_log(settings)
    partitions = _partitions(log, settings.namespace, tenant, job)
    view = ExecutionsView(executions_max=max(limit * len(partitions), 10_000))
    oldest_ms: dict[int, int] = {}
    """By partition: nothing that was claimed after this instant is still unread."""
    reading = LogReading(log, settings.namespace, "horolog-executions")

    def take(record: "Record") -> None:
        event = view.fold(record.key, record.value)
        if event is not None:
            known_ms = oldest_ms.get(record.partition, event.at)
            oldest_ms[record.partition] = min(known_ms, event.at)

    def enough(partition: int) -> bool:
        found = view.executions(tenant, job, state=state, limit=limit)
        if len(found) < limit or partition not in oldest_ms:
            return False
        return oldest_ms[partition] <= found[-1].claimed_at

    try:
        # Markers of transactions count as records, so the first look goes back further than asked.
        records = max(TAIL_RECORDS, 2 * limit)
        reading.tail(EXECUTIONS, partitions, take, records=records, enough=enough)
    finally:
        reading.close()
    return view


def read_timeline(settings: "Settings", execution_id: str) -> "Timeline":
    """Everything that happened to one execution, or to all attempts of an occurrence."""
    from projections.executions import EXECUTIONS, Timeline
    from projections.reading import LogReading

    tenant, job = job_of(execution_id)
    log = open_log(settings)
    partitions = _partitions(log, settings.namespace, tenant, job)
    timeline = Timeline(execution_id)
    reading = LogReading(log, settings.namespace, "horolog-execution")
    try:
        reading.tail(
            EXECUTIONS, partitions, lambda record: timeline.fold(record.key, record.value),
            records=TAIL_RECORDS, enough=lambda _: timeline.complete,
        )  # fmt: skip
    finally:
        reading.close()
    return timeline


def job_of(execution_id: str) -> tuple[str, str]:
    """Tenant and job of an execution id or occurrence key. Raises `Failure` if it is neither."""
    match = EXECUTION_ID.fullmatch(execution_id)
    if match is None:
        raise Failure(f"{execution_id!r} is no execution id", kind="usage", code=USAGE,
                      hint="such as default/job:2026-03-29T01:30:00.000Z:1; "
                      "`horolog execution list` shows them")  # fmt: skip
    return match[1], match[2]


def _partitions(log: "Log", namespace: str, tenant: str, job: str | None) -> list[int]:
    from horolog.client import NoTopics
    from processors.topology import SCHEDULES
    from schemas.partition import job_key, partition_of
    from streams.layout import topic_name

    name = topic_name(namespace, SCHEDULES)
    count = log.topics().partitions(name)
    if not count:
        raise NoTopics(f"topic {name} does not exist")
    return [partition_of(job_key(tenant, job), count)] if job is not None else list(range(count))
