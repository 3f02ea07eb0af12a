"""The newest executions, held in memory by whoever follows the log: in order, by job, bounded."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from schemas.bindings import EXECUTION_FIRED
from schemas.codec import Undecodable

from .executions import TERMINAL, Execution, execution_of, outranks
from .live_jobs import NOTHING, Seen

Place = tuple[int, int, int, bytes]
"""Where an execution stands among the others; the same for all its events."""

SHED_SHARE: Final = 10
"""When too many are held, this share of them goes at once: the oldest."""


class RecentExecutions:
    """The fold of `executions`. One thread uses it.

    Of the executions about `executions_max` are kept, the newest by claim; of each at most
    `events_max` events, and of details and results only those of at most `detail_max`: the log has
    the rest. `undecodable` counts records that cannot be read.
    """

    def __init__(self, *, executions_max: int, events_max: int, detail_max: int) -> None:
        self._executions_max = executions_max
        self._events_max = events_max
        self._detail_max = detail_max
        self._rows: dict[bytes, Execution] = {}
        self._events: dict[bytes, list[Execution]] = {}
        self._whole: set[bytes] = set()
        """Executions of which every event is held."""
        self._of_tenant: dict[str, list[Place]] = {}
        self._of_job: dict[tuple[str, str], list[Place]] = {}
        self._seen: dict[tuple[str, str], Seen] = {}
        self.shed_ms = 0
        """Of what was claimed up to this instant, only a part is held."""
        self.undecodable = 0

    def __len__(self) -> int:
        """How many executions are held."""
        return len(self._rows)

    def fold(self, key: bytes, value: bytes | None) -> Execution | None:
        """Take one record; what it says, if it is about an execution."""
        if value is None:
            return None
        try:
            event = execution_of(value)
        except Undecodable:
            self.undecodable += 1
            return None
        if event is None:
            return None
        row_key = event.execution_id.encode() or key
        if value[:5] == EXECUTION_FIRED.prefix:
            self._whole.add(row_key)
        self._take(row_key, event)
        return event

    def _take(self, row_key: bytes, event: Execution) -> None:
        kept = self._events.get(row_key)
        if kept is None:
            kept = self._events[row_key] = []
        if any((e.life, e.sequence) == (event.life, event.sequence) for e in kept):
            return  # read again
        short = self._shortened(event)
        if short is not event or len(kept) >= self._events_max:
            self._whole.discard(row_key)
        if len(kept) < self._events_max:
            kept.append(short)
        owner = (event.tenant, event.job)
        self._seen[owner] = max(self._seen.get(owner, NOTHING), (event.life, event.sequence))
        known = self._rows.get(row_key)
        if known is None:
            self._rows[row_key] = short
            place = _place(row_key, event)
            insort(self._of_tenant.setdefault(event.tenant, []), place)
            insort(self._of_job.setdefault(owner, []), place)
            if len(self._rows) > self._executions_max:
                self._shed()
        elif outranks(short, known):
            self._rows[row_key] = short

    def newest(
        self, tenant: str, job: str | None = None, *, before: Place | None = None
    ) -> Iterator[tuple[Place, Execution]]:
        """Executions of a tenant or of one job, the newest first, from before a place on."""
        found = (
            self._of_tenant.get(tenant, []) if job is None else self._of_job.get((tenant, job), [])
        )
        end = len(found) if before is None else bisect_left(found, before)
        for at in range(end - 1, -1, -1):
            yield found[at], self._rows[found[at][3]]

    def last(self, tenant: str, job: str, *, terminal: bool = False) -> Execution | None:
        """The job's newest execution, or the newest that has ended; None if none is held."""
        for _, row in self.newest(tenant, job):
            if not terminal or row.state in TERMINAL:
                return row
        return None

    def row(self, execution_id: str) -> Execution | None:
        """One execution as it stands."""
        return self._rows.get(execution_id.encode())

    def events(self, execution_id: str) -> list[Execution] | None:
        """Everything that happened to it, oldest first; None unless all of that is held."""
        key = execution_id.encode()
        if key not in self._whole or key not in self._events:
            return None
        return sorted(self._events[key], key=lambda e: (e.life, e.sequence))

    def seen(self, tenant: str, job: str) -> Seen:
        """The newest event of the job that is known."""
        return self._seen.get((tenant, job), NOTHING)

    def _shortened(self, event: Execution) -> Execution:
        most = self._detail_max
        if len(event.detail) > most:
            event = msgspec.structs.replace(event, detail=event.detail[:most] + "…")
        return msgspec.structs.replace(event, result=b"") if len(event.result) > most else event

    def _shed(self) -> None:
        places = sorted(place for found in self._of_tenant.values() for place in found)
        gone = places[: max(len(places) // SHED_SHARE, 1)]
        self.shed_ms = max(self.shed_ms, gone[-1][0])
        owners = set()
        for place in gone:
            row = self._rows.pop(place[3])
            self._events.pop(place[3], None)
            self._whole.discard(place[3])
            owners.add((row.tenant, row.job))
        last = gone[-1]
        for tenant in {tenant for tenant, _ in owners}:
            _cut(self._of_tenant, tenant, last)
        for owner in owners:
            _cut(self._of_job, owner, last)
            if owner not in self._of_job:
                self._seen.pop(owner, None)


def _place(row_key: bytes, execution: Execution) -> Place:
    return execution.claimed_at, execution.scheduled_at, execution.sequence, row_key


def _cut(index: "dict[Any, list[Place]]", key: Any, last: Place) -> None:
    """Let go of what comes up to and with `last`."""
    places = index[key]
    del places[: bisect_left(places, (*last[:3], last[3] + b"\x00"))]
    if not places:
        del index[key]
