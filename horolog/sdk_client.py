"""The SDK's client: put and steer jobs, and wait for what becomes of them."""

import builtins
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

import msgspec

from horolog.client import KafkaClient, NoTopics
from horolog.sdk_settings import ClientValue, find
from processors.exchange import JsonPut, Sendable
from processors.topology import JOB_STATE, SCHEDULES
from projections.executions import EXECUTIONS, TERMINAL, Execution, execution_of
from projections.jobs import JobsView, JobView
from projections.reading import LogReading
from schemas.codec import Undecodable
from schemas.commands import CancelExecution, DeleteJob, PauseJob, ResumeJob, TriggerJob
from schemas.partition import job_key, partition_of
from schemas.replies import Accepted, Problem
from schemas.units import format_instant
from streams.kafka import KafkaLog
from streams.layout import topic_name
from streams.ports import Record

WAIT_S: Final = 30.0
LOOK_BACK_RECORDS: Final = 1_000
LOOK_BACK_RECORDS_MAX: Final = 200_000
READ_S: Final = 0.25


class NotAccepted(Exception):
    """The scheduler refused the command, which took no effect. `problems` says what to change."""

    def __init__(self, kind: str, message: str, problems: Sequence[Problem]) -> None:
        told = "; ".join(f"{p.field}: {p.message}" for p in problems)
        super().__init__(f"{message}: {told}" if told else message)
        self.kind = kind
        self.problems = tuple(problems)


class StillRunning(TimeoutError):
    """The execution has not ended in time. Wait again, or look at it later."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an execution ended: `state` is SUCCEEDED, FAILED, DEAD, CANCELLED, REPLACED, SKIPPED or
    MISSED. `result` is what the handler returned, or the answer's bytes where they are no JSON."""

    execution_id: str
    state: str
    reason: str
    detail: str
    result: Any
    attempt: int
    delivery: int
    started_at: datetime | None
    finished_at: datetime | None


class Client:
    """Talks to one Horolog. Close it, or use `with`. Not thread-safe.

    What is not given comes from `KAFKA_BOOTSTRAP_SERVERS`, `HOROLOG_…` and `horolog.toml`. Every
    command waits for the scheduler's answer and raises `NotAccepted` when that is no,
    `horolog.client.NoReply` when there is none in `wait_s` seconds: it may have been accepted.
    """

    def __init__(
        self, bootstrap: str | None = None, *, namespace: str | None = None,
        tenant: str | None = None, kafka: Mapping[str, ClientValue] | None = None, by: str = "sdk",
        wait_s: float = WAIT_S,
    ) -> None:  # fmt: skip
        where = find(bootstrap=bootstrap, namespace=namespace, tenant=tenant, client=kafka)
        self.tenant: Final = where.tenant
        self._namespace = where.namespace
        self._wait_s = wait_s
        self._log = KafkaLog(where.bootstrap, where.client)
        self._commands = KafkaClient(self._log, namespace=where.namespace, by=by)
        self._partitions = self._log.topics().partitions(topic_name(where.namespace, SCHEDULES))
        if not self._partitions:
            raise NoTopics(f"topic {topic_name(where.namespace, SCHEDULES)} does not exist")

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the connections."""
        self._commands.close()

    # --- commands --------------------------------------------------------------------------------

    def put(
        self, job: str, *, task: str | None = None, url: str | None = None,
        topic: str | None = None, target: Mapping[str, Any] | None = None, pool: str | None = None,
        cron: str | None = None, every: str | None = None, at: str | datetime | None = None,
        in_: str | None = None, now: bool = False, timezone: str | None = None,
        payload: Any = None, note: str = "", if_match: int | None = None, command_id: str = "",
        **more: Any,
    ) -> Accepted:  # fmt: skip
        """Create the job or replace its definition; the same content changes nothing.

        What runs: `task`, the name of a handler; or `url`, called with POST; or a Kafka `topic`; or
        a whole `target`. When: one of `cron`, `every`, `at`, `in_`, `now`. `more` goes into the
        definition as it is, `schedules` for several of them.
        """
        definition: dict[str, Any] = dict(more)
        given = {
            "cron": cron, "every": every, "at": at.isoformat() if isinstance(at, datetime) else at,
            "in": in_, "now": now or None, "timezone": timezone,
        }  # fmt: skip
        schedule = {key: value for key, value in given.items() if value is not None}
        if schedule:
            definition["schedules"] = [*definition.get("schedules", ()), schedule]
        targets: dict[str, Any] = dict(target or {})
        if task is not None:
            targets["worker"] = {"handler": task} | ({"pool": pool} if pool else {})
        if url is not None:
            targets["http"] = {"url": url} | ({"pool": pool} if pool else {})
        if topic is not None:
            targets["topic"] = {"name": topic}
        definition["target"] = targets
        if payload is not None:
            definition["payload"] = payload
        return self._send(
            JsonPut(
                tenant=self.tenant, job=job, definition=definition, note=note, if_match=if_match,
                command_id=command_id,
            )
        )  # fmt: skip

    def trigger(
        self, job: str, *, payload: Any = None, scheduled_at: datetime | None = None,
        note: str = "", command_id: str = "",
    ) -> str:  # fmt: skip
        """Run the job once, now, beside its schedule; its execution id, for `wait`."""
        at = None
        if scheduled_at is not None:
            if scheduled_at.tzinfo is None:
                raise ValueError("scheduled_at: give the datetime a time zone")
            at = format_instant(round(scheduled_at.timestamp() * 1_000))
        body = None if payload is None else msgspec.json.encode(payload)
        accepted = self._send(
            TriggerJob(
                tenant=self.tenant, job=job, payload=body, scheduled_at=at, note=note,
                command_id=command_id,
            )
        )  # fmt: skip
        return accepted.execution_id

    def pause(self, job: str, *, note: str = "", if_match: int | None = None) -> Accepted:
        """No ticks until `resume`; what runs finishes."""
        command = PauseJob(tenant=self.tenant, job=job, note=note, if_match=if_match)
        return self._send(command)

    def resume(self, job: str, *, note: str = "", if_match: int | None = None) -> Accepted:
        """Ticks again, from now on."""
        command = ResumeJob(tenant=self.tenant, job=job, note=note, if_match=if_match)
        return self._send(command)

    def delete(self, job: str, *, note: str = "", if_match: int | None = None) -> Accepted:
        """End the job; what runs finishes."""
        command = DeleteJob(tenant=self.tenant, job=job, note=note, if_match=if_match)
        return self._send(command)

    def cancel(self, execution_id: str, *, note: str = "") -> Accepted:
        """End an execution: at once while it waits, else as soon as its worker has stopped it."""
        _, job = _owner(execution_id)
        command = CancelExecution(
            tenant=self.tenant, job=job, execution_id=execution_id, note=note
        )  # fmt: skip
        return self._send(command)

    def _send(self, command: Sendable) -> Accepted:
        answer = self._commands.send(command, wait_s=self._wait_s)
        if isinstance(answer, Accepted):
            return answer
        raise NotAccepted(answer.kind, answer.message, answer.problems)

    # --- looking ---------------------------------------------------------------------------------

    def get(self, job: str) -> JobView | None:
        """The job as it stands now; None if there is none."""
        return self._view([self._partition(job)]).job(self.tenant, job)

    def list(self) -> builtins.list[JobView]:
        """The tenant's jobs by id. Reads them all: for tools, not for every request."""
        return self._view(range(self._partitions)).jobs(self.tenant)

    def wait(self, execution_id: str, *, timeout_s: float = 60.0) -> Outcome:
        """What became of an execution, as soon as it has ended. Raises `StillRunning`."""
        _, job = _owner(execution_id)
        partition = self._partition(job)
        name = topic_name(self._namespace, EXECUTIONS)
        end = self._log.offsets().stable_end([(name, partition)])
        until_s = time.monotonic() + timeout_s
        found = self._looked_back(execution_id, partition)
        if found is not None:
            return _outcome(found)
        reader = self._log.reader("horolog-wait", committed=True)
        try:
            reader.assign(end)
            while (left_s := until_s - time.monotonic()) > 0:
                for record in reader.read(1_000, min(left_s, READ_S)):
                    event = _end_of(record, execution_id)
                    if event is not None:
                        return _outcome(event)
        finally:
            reader.close()
        raise StillRunning(f"{execution_id} has not ended within {timeout_s:g} s")

    def _looked_back(self, execution_id: str, partition: int) -> Execution | None:
        """The end of the execution, if it is among the newest events."""
        seen = 0
        found: builtins.list[Execution] = []

        def take(record: Record) -> None:
            nonlocal seen
            seen += 1
            event = _end_of(record, execution_id)
            if event is not None:
                found.append(event)

        reading = LogReading(self._log, self._namespace, "horolog-wait")
        try:
            reading.tail(
                EXECUTIONS, [partition], take, records=LOOK_BACK_RECORDS,
                enough=lambda _: bool(found) or seen >= LOOK_BACK_RECORDS_MAX,
            )  # fmt: skip
        finally:
            reading.close()
        return found[-1] if found else None

    def _view(self, partitions: Sequence[int]) -> JobsView:
        view = JobsView()
        reading = LogReading(self._log, self._namespace, "horolog-jobs")
        try:
            reading.catch_up((SCHEDULES, JOB_STATE), partitions, view.fold)
        finally:
            reading.close()
        return view

    def _partition(self, job: str) -> int:
        return partition_of(job_key(self.tenant, job), self._partitions)


def _end_of(record: Record, execution_id: str) -> Execution | None:
    """The terminal event of the execution, if the record is that."""
    # The key begins with the execution id, so most records need no decoding.
    if record.key is None or record.value is None:
        return None
    if record.key.partition(b"#")[0] != execution_id.encode():
        return None
    try:
        event = execution_of(record.value)
    except Undecodable:
        return None
    return event if event is not None and event.state in TERMINAL else None


def _owner(execution_id: str) -> tuple[str, str]:
    """Tenant and job of an execution id. Raises `ValueError`."""
    tenant, slash, rest = execution_id.partition("/")
    job, colon, _ = rest.partition(":")
    if not slash or not colon:
        raise ValueError(
            f"{execution_id!r} is no execution id, such as default/job:2026-03-29T01:30:00.000Z:1"
        )
    return tenant, job


def _outcome(event: Execution) -> Outcome:
    try:
        result = msgspec.json.decode(event.result) if event.result else None
    except msgspec.DecodeError:
        result = event.result
    return Outcome(
        execution_id=event.execution_id, state=event.state, reason=event.reason,
        detail=event.detail, result=result, attempt=event.attempt, delivery=event.delivery,
        started_at=_instant(event.started_at), finished_at=_instant(event.finished_at),
    )  # fmt: skip


def _instant(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1_000, UTC) if ms else None
