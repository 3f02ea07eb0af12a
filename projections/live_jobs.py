"""Jobs held in memory by whoever follows the log: found by id, listed in pages, bounded."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from schemas.bindings import JOB_STATE
from schemas.codec import Undecodable
from schemas.partition import job_key

from .jobs import JOB_STATE_TOPIC, SCHEDULES, JobsView, JobView

Seen = tuple[int, int]
"""Life and sequence: grows with everything that changes about a job."""

NOTHING: Final[Seen] = (0, 0)
SINGLY_MAX: Final = 64
"""Ids that are put in their place one by one; more are sorted in."""


class LiveJobs:
    """The fold of `schedules` and `job-state` with an index. One thread uses it.

    Holds at most about `bytes_max` of records; `full` says that jobs were left out since.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self._view = JobsView()
        self._bytes_max = bytes_max
        self._sizes: dict[tuple[str, bytes], int] = {}
        self._ids: dict[str, list[str]] = {}
        self._changed: dict[str, dict[str, bool]] = {}
        """Ids that came (True) or went since they were put in order."""
        self._counts: dict[str, int] = {}
        self._states: dict[bytes, bytes] = {}
        self.bytes = 0
        self.full = False

    def __len__(self) -> int:
        """How many jobs are held, deleted ones that are still remembered among them."""
        return sum(self._counts.values())

    @property
    def tenants(self) -> list[str]:
        """Who has jobs."""
        return sorted(self._counts)

    def fold(self, topic: str, key: bytes, value: bytes | None) -> bool:
        """Take one record of `schedules` or `job-state`; whether it is about a job."""
        if topic == JOB_STATE_TOPIC and (key.startswith(b"!") or b"#" in key):
            return False
        held = (topic, key)
        known = self._sizes.get(held)
        size = len(key) + len(value) if value is not None else 0
        if known is None and self.bytes + size > self._bytes_max:
            self.full = True
            return False
        self.bytes += size - (known or 0)
        if value is None:
            self._sizes.pop(held, None)
        else:
            self._sizes[held] = size
        self._view.fold(topic, key, value)
        if topic == SCHEDULES:
            self._index(key, known is not None, value is not None)
        elif value is None:
            self._states.pop(key, None)
        else:
            self._states[key] = value
        return True

    def job(self, tenant: str, job: str) -> JobView | None:
        """One job; None if there is none or it was deleted."""
        return self._view.job(tenant, job)

    def token(self, tenant: str, job: str) -> bytes:
        """Differs whenever the job's state does."""
        return self._states.get(job_key(tenant, job).encode(), b"")

    def seen(self, tenant: str, job: str) -> Seen:
        """How far the job is known, deleted or not."""
        value = self._states.get(job_key(tenant, job).encode())
        if value is None:
            return NOTHING
        try:
            state = JOB_STATE.decode(value)
        except Undecodable:
            return NOTHING
        return state.life, state.sequence

    def after(self, tenant: str, job: str) -> Iterator[tuple[str, JobView | None]]:
        """Ids behind `job` in their order, each with its job, None for one that is deleted."""
        ids = self._sorted(tenant)
        for at in range(bisect_right(ids, job), len(ids)):
            yield ids[at], self._view.job(tenant, ids[at])

    def count(self, tenant: str) -> int:
        """How many jobs of the tenant are held."""
        return self._counts.get(tenant, 0)

    def _index(self, key: bytes, known: bool, is_there: bool) -> None:
        if known == is_there:
            return
        tenant, _, job = key.decode("utf-8", "replace").partition("/")
        self._counts[tenant] = self._counts.get(tenant, 0) + (1 if is_there else -1)
        if not self._counts[tenant]:
            del self._counts[tenant]
        self._changed.setdefault(tenant, {})[job] = is_there

    def _sorted(self, tenant: str) -> list[str]:
        """The tenant's ids in order. Put in order when they are asked for: inserting a million one
        by one would move most of them a million times."""
        ids, changed = self._ids.get(tenant, []), self._changed.pop(tenant, {})
        if len(changed) > SINGLY_MAX:
            kept = [job for job in ids if job not in changed]
            ids = sorted([*kept, *(job for job, is_there in changed.items() if is_there)])
        else:
            for job, is_there in changed.items():
                at = bisect_left(ids, job)
                found = at < len(ids) and ids[at] == job
                if is_there and not found:
                    ids.insert(at, job)
                elif found and not is_there:
                    del ids[at]
        self._ids[tenant] = ids
        if not ids:
            del self._ids[tenant]
        return ids
