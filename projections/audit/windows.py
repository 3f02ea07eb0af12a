"""Which ticks schedules ask for, computed apart from the scheduler.

`every` and `at` by arithmetic, `cron` by the slow reading of `cron_by_hand`. A scheduler that
computes a tick wrongly is therefore found out by the log that it wrote.
"""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from schemas.state import Schedule
from schemas.units import EPOCH_MS_MAX, EPOCH_MS_MIN

from . import cron_by_hand


class Plan(NamedTuple):
    """Schedules, and between which instants the recurring ones have ticks, both inclusive."""

    schedules: tuple[Schedule, ...] = ()
    start_ms: int = EPOCH_MS_MIN
    end_ms: int = EPOCH_MS_MAX

    @property
    def one_offs(self) -> "Plan":
        """Only what happens once."""
        return Plan(tuple(one for one in self.schedules if one.kind == "at"))


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WALKS_MAX: Final = 4_096


class _Key(NamedTuple):
    """What makes two cron schedules the same."""

    cron: str
    timezone: str
    gap: str
    repeat: str


class Windows:
    """Answers for the ticks of plans. Remembers where it was in each cron schedule, since it is
    asked for one tick after the other."""

    def __init__(self) -> None:
        self._walks: dict[_Key, _Walk] = {}

    def next(self, plan: Plan, after_ms: int) -> int | None:
        """The first tick strictly after `after_ms`; None: no tick can follow."""
        found = (self._within(plan, schedule, after_ms) for schedule in plan.schedules)
        return min((at_ms for at_ms in found if at_ms is not None), default=None)

    def asks_for(self, plan: Plan, at_ms: int) -> bool:
        """Whether this instant is a tick."""
        return self.next(plan, at_ms - 1) == at_ms

    def count(self, plan: Plan, after_ms: int, until_ms: int, limit: int) -> int:
        """How many ticks lie in (after, until], at most `limit`."""
        schedules = plan.schedules
        if len(schedules) == 1 and schedules[0].kind == "every":
            every_ms, anchor_ms = schedules[0].every_ms, schedules[0].anchor_ms
            after_ms, until_ms = max(after_ms, plan.start_ms - 1), min(until_ms, plan.end_ms)
            first = max(0, (after_ms - anchor_ms) // every_ms + 1)
            return min(max(0, (until_ms - anchor_ms) // every_ms - first + 1), limit)
        count, at_ms = 0, self.next(plan, after_ms)
        while at_ms is not None and at_ms <= until_ms and count < limit:
            count += 1
            at_ms = self.next(plan, at_ms)
        return count

    def _within(self, plan: Plan, schedule: Schedule, after_ms: int) -> int | None:
        if schedule.kind == "at":
            return self._next(schedule, after_ms)
        at_ms = self._next(schedule, max(after_ms, plan.start_ms - 1))
        return at_ms if at_ms is not None and at_ms <= plan.end_ms else None

    def _next(self, schedule: Schedule, after_ms: int) -> int | None:
        match schedule.kind:
            case "at":
                return schedule.at_ms if schedule.at_ms > after_ms else None
            case "every":
                every_ms, anchor_ms = schedule.every_ms, schedule.anchor_ms
                n = max(0, (after_ms - anchor_ms) // every_ms + 1)
                at_ms = anchor_ms + n * every_ms
                return at_ms if at_ms <= EPOCH_MS_MAX else None
            case "cron":
                return self._next_cron(schedule, after_ms)

    def _next_cron(self, schedule: Schedule, after_ms: int) -> int | None:
        key = _Key(schedule.cron, schedule.timezone, schedule.gap, schedule.repeat)
        walk = self._walks.get(key)
        if walk is None or not walk.reaches(after_ms):
            if len(self._walks) >= _WALKS_MAX:
                self._walks.pop(next(iter(self._walks)))
            walk = self._walks[key] = _Walk(key, after_ms)
        return walk.next(after_ms)


class _Walk:
    """The ticks of one cron schedule from an instant on, as far as they were asked for."""

    KEPT: Final = 2_048

    def __init__(self, key: _Key, from_ms: int) -> None:
        after = _EPOCH + timedelta(milliseconds=from_ms)
        self._ticks: Iterator[datetime] = cron_by_hand.ticks(
            key.cron, key.timezone or "UTC", after, gap=key.gap, repeat=key.repeat
        )
        self._from_ms = from_ms
        self._seen: list[int] = []

    def reaches(self, after_ms: int) -> bool:
        """Whether what was walked over since then is still known."""
        return after_ms >= self._from_ms

    def next(self, after_ms: int) -> int | None:
        """The first tick after this instant, which must be reached."""
        while not self._seen or self._seen[-1] <= after_ms:
            tick = next(self._ticks, None)
            if tick is None:
                return None
            self._seen.append(round((tick - _EPOCH).total_seconds() * 1_000))
            if len(self._seen) > self.KEPT:
                half = self.KEPT // 2
                self._from_ms = self._seen[half - 1]
                del self._seen[:half]
        return self._seen[bisect_right(self._seen, after_ms)]
