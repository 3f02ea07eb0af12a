"""Jobs and executions as the log tells them: a fold in memory, rebuilt by reading again.

Nothing here is a source of truth. Jobs come from `schedules` and `job-state`, executions from
`executions`, of which at most a given number is kept, the newest.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from schemas.bindings import EXECUTION_FIRED, JOB_DEFINITION, JOB_STATE, TICKS_MISSED
from schemas.codec import Undecodable
from schemas.events import ExecutionFired, TicksMissed
from schemas.partition import job_key
from schemas.state import JobDefinition, JobState

SCHEDULES: Final = "schedules"
JOB_STATE_TOPIC: Final = "job-state"
EXECUTIONS: Final = "executions"

EXECUTIONS_MAX: Final = 10_000


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job: what was asked for, and where it stands."""

    definition: JobDefinition
    state: JobState


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One terminal record: of one occurrence, or of `count` consecutive ticks that do not run.

    Times are UTC ms. For missed ticks `scheduled_at` is the first and `last_scheduled_at` the last
    of them, and there is no execution id.
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
    version: int
    execution_id: str = ""
    attempt: int = 0
    topic: str = ""
    partition: int = -1
    count: int = 1
    exact: bool = True


def execution_of(value: bytes) -> Execution | None:
    """The record as a row; None for an event about something else. Raises `Undecodable`."""
    if value[:5] == EXECUTION_FIRED.prefix:
        return _fired(EXECUTION_FIRED.decode(value))
    if value[:5] == TICKS_MISSED.prefix:
        return _missed(TICKS_MISSED.decode(value))
    return None


class JobsView:
    """The fold. Give it every record in the order of its partition; ask it at any time.

    Values are decoded when they are asked for. `undecodable` counts records that cannot be.
    """

    def __init__(self, *, executions_max: int = EXECUTIONS_MAX) -> None:
        self._definitions: dict[bytes, bytes] = {}
        self._states: dict[bytes, bytes] = {}
        self._executions: dict[bytes, Execution] = {}
        self._executions_max = executions_max
        self.undecodable = 0
        self._folds: Mapping[str, Callable[[bytes, bytes | None], None]] = {
            SCHEDULES: self._fold_definition,
            JOB_STATE_TOPIC: self._fold_state,
            EXECUTIONS: self._fold_execution,
        }

    def fold(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Take one record of a topic, named without its namespace."""
        if key is not None:
            self._folds[topic](key, value)

    def jobs(self, tenant: str) -> list[JobView]:
        """The tenant's jobs by id, deleted ones left out."""
        prefix = f"{tenant}/".encode()
        keys = sorted(key for key in self._definitions if key.startswith(prefix))
        return [view for key in keys if (view := self._view(key)) is not None]

    def job(self, tenant: str, job: str) -> JobView | None:
        """One job; None if there is none or it was deleted."""
        return self._view(job_key(tenant, job).encode())

    def executions(
        self, tenant: str, job: str | None = None, *, state: str | None = None, limit: int = 100
    ) -> list[Execution]:
        """The newest first, at most `limit`."""
        found = [
            one
            for one in self._executions.values()
            if one.tenant == tenant
            and (job is None or one.job == job)
            and (state is None or one.state == state)
        ]
        found.sort(key=_age)
        return found[:limit]

    def __len__(self) -> int:
        """How many executions are held."""
        return len(self._executions)

    def _view(self, key: bytes) -> JobView | None:
        definition, state = self._definitions.get(key), self._states.get(key)
        if definition is None or state is None:
            return None
        try:
            view = JobView(
                definition=JOB_DEFINITION.decode(definition), state=JOB_STATE.decode(state)
            )
        except Undecodable:
            self.undecodable += 1
            return None
        return view if view.state.status != "DELETED" else None

    def _fold_definition(self, key: bytes, value: bytes | None) -> None:
        _put(self._definitions, key, value)

    def _fold_state(self, key: bytes, value: bytes | None) -> None:
        # Marks and further command ids are the scheduler's own.
        if not key.startswith(b"!") and b"#" not in key:
            _put(self._states, key, value)

    def _fold_execution(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            return
        try:
            execution = execution_of(value)
        except Undecodable:
            self.undecodable += 1
            return
        if execution is None:
            return
        self._executions[key] = execution
        if len(self._executions) >= 2 * self._executions_max:
            newest = sorted(self._executions.items(), key=lambda item: _age(item[1]))
            self._executions = dict(newest[: self._executions_max])


def _put(pairs: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    if value is None:
        pairs.pop(key, None)
    else:
        pairs[key] = value


def _age(execution: Execution) -> tuple[int, int, int]:
    """Orders the newest first."""
    return -execution.claimed_at, -execution.scheduled_at, -execution.sequence


def _fired(event: ExecutionFired) -> Execution:
    return Execution(
        tenant=event.tenant, job=event.job, life=event.life, sequence=event.sequence,
        state=event.state, reason=event.reason, detail=event.detail,
        scheduled_at=event.scheduled_at, last_scheduled_at=event.scheduled_at,
        due_at=event.due_at, claimed_at=event.claimed_at, version=event.version,
        execution_id=event.execution_id, attempt=event.attempt, topic=event.topic,
        partition=event.partition,
    )  # fmt: skip


def _missed(event: TicksMissed) -> Execution:
    return Execution(
        tenant=event.tenant, job=event.job, life=event.life, sequence=event.sequence,
        state="MISSED", reason=event.reason, detail=event.detail, scheduled_at=event.first,
        last_scheduled_at=event.last, due_at=event.first, claimed_at=event.claimed_at,
        version=event.version, count=event.count, exact=event.exact,
    )  # fmt: skip
