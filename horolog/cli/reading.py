"""The view behind `get` and `list`: read from the log when it is asked for."""

from typing import TYPE_CHECKING

from .frame import open_log

if TYPE_CHECKING:
    from horolog.settings import Settings
    from projections.jobs import JobsView
    from streams.ports import Log

TAIL_RECORDS: int = 200


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
) -> "JobsView":
    """At least the newest `limit` executions that fit, if there are so many."""
    from projections.jobs import EXECUTIONS, JobsView
    from projections.reading import LogReading

    log = open_log(settings)
    partitions = _partitions(log, settings.namespace, tenant, job)
    view = JobsView(executions_max=max(limit * len(partitions), 10_000))
    reading = LogReading(log, settings.namespace, "horolog-executions")

    def enough() -> bool:
        return len(view.executions(tenant, job, state=state, limit=limit)) >= limit

    try:
        # Markers of transactions count as records, so the first look goes back further than asked.
        records = max(TAIL_RECORDS, 2 * limit)
        reading.tail(EXECUTIONS, partitions, view.fold, records=records, enough=enough)
    finally:
        reading.close()
    return view


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
