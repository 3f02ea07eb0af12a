"""Jobs as the log tells them: a fold in memory, rebuilt by reading again.

Nothing here is a source of truth: jobs come from `schedules` and `job-state`.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from schemas.bindings import JOB_DEFINITION, JOB_STATE
from schemas.codec import Undecodable
from schemas.partition import job_key
from schemas.state import JobDefinition, JobState

SCHEDULES: Final = "schedules"
JOB_STATE_TOPIC: Final = "job-state"


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job: what was asked for, and where it stands."""

    definition: JobDefinition
    state: JobState


class JobsView:
    """The fold. Give it every record in the order of its partition; ask it at any time.

    Values are decoded when they are asked for. `undecodable` counts records that cannot be.
    """

    def __init__(self) -> None:
        self._definitions: dict[bytes, bytes] = {}
        self._states: dict[bytes, bytes] = {}
        self.undecodable = 0
        self._folds: Mapping[str, Callable[[bytes, bytes | None], None]] = {
            SCHEDULES: self._fold_definition,
            JOB_STATE_TOPIC: self._fold_state,
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


def _put(pairs: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    if value is None:
        pairs.pop(key, None)
    else:
        pairs[key] = value
