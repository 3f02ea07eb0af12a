"""When a job is due: its schedules, and the ticks that follow from them.

Everything here is a pure function of its arguments and the pinned zone data. Instants are UTC
milliseconds. A job has one to ten schedules; instants on which they coincide are one tick.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeAlias, assert_never

import msgspec

from schemas.state import Calendars
from schemas.units import EPOCH_MS_MAX, EPOCH_MS_MIN, SECOND_MS, format_instant, parse_local

from .calendars import excluded_since, excludes, next_moved
from .cron import parse_cron
from .cron_match import DAY_S
from .cron_ticks import (
    Rules,
    count_instants,
    next_instant,
    prev_instant,
    resolve_rules,
)
from .zones import PINNED, Zone, ZoneData, local_to_instant

SCHEDULES_MAX: Final = 10
_TICKS_MEMO_MAX: Final = 65_536
_COUNTS_MEMO_MAX: Final = 16_384
_MOVED_MEMO_MAX: Final = 16_384


class CronSchedule(msgspec.Struct, frozen=True, kw_only=True, tag="cron"):
    """A cron expression on the clock of a zone; `gap` and `repeat` say what clock changes do."""

    cron: str
    timezone: str = "UTC"
    gap: str = "auto"
    repeat: str = "auto"


class EverySchedule(msgspec.Struct, frozen=True, kw_only=True, tag="every"):
    """Fixed elapsed time: the anchor and every `every_ms` from there on."""

    every_ms: int
    anchor_ms: int


class AtSchedule(msgspec.Struct, frozen=True, kw_only=True, tag="at"):
    """One instant. `in` and `now` become one when they are accepted."""

    at_ms: int


Schedule: TypeAlias = CronSchedule | EverySchedule | AtSchedule


class BoundedSchedule(msgspec.Struct, frozen=True, kw_only=True, tag="bounded"):
    """A recurring schedule of a job that has `start`, `end` or calendars.

    `start_ms` and `end_ms` bound the nominal instants, both inclusive. Where the calendars say
    `next` or `previous`, excluded ticks move; with `skip` they stay ticks, and whoever decides
    them asks `is_excluded`.
    """

    inner: CronSchedule | EverySchedule
    start_ms: int = EPOCH_MS_MIN
    end_ms: int = EPOCH_MS_MAX
    calendars: Calendars | None = None

    @property
    def moves(self) -> bool:
        """Whether ticks may move to another day."""
        return self.calendars is not None and self.calendars.then != "skip"

    def clock(self) -> tuple[str, Rules]:
        """Zone and rules of the clock by which days are told apart."""
        if isinstance(self.inner, CronSchedule):
            rules = resolve_rules(parse_cron(self.inner.cron), self.inner.gap, self.inner.repeat)
            return self.inner.timezone, rules
        assert self.calendars is not None
        return self.calendars.timezone, Rules("next", "first")


Planned: TypeAlias = Schedule | BoundedSchedule
"""A schedule as a job's plan holds it."""


def written_schedule(planned: Planned) -> Schedule:
    """The schedule itself, without what bounds it."""
    return planned.inner if isinstance(planned, BoundedSchedule) else planned


class Tick(msgspec.Struct, frozen=True):
    """A nominal instant. Of a cron tick also what the zone's clock shows then."""

    at_ms: int
    local: str = ""  # 2026-03-29T01:30:00
    fold: int = 0  # 1: the second of two equal local times
    zone: str = ""


def next_tick(
    schedules: tuple[Planned, ...],
    after_ms: int,
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    zones: ZoneData = PINNED,
) -> Tick | None:
    """The first tick strictly after `after_ms`, or None if no tick can follow.

    `start_ms` and `end_ms` bound the nominal instants, both inclusive.
    """
    if start_ms is not None and start_ms > after_ms:
        after_ms = start_ms - 1
    if len(schedules) == 1:
        best = _next_of_one(schedules[0], after_ms, zones)
    else:
        ticks = [_next_of_one(schedule, after_ms, zones) for schedule in schedules]
        # Of coinciding instants the one of a cron schedule is told, as it knows a local time.
        best = min((t for t in ticks if t), key=lambda t: (t.at_ms, not t.zone), default=None)
    if best is None or (end_ms is not None and best.at_ms > end_ms):
        return None
    return best


def first_tick(
    schedules: tuple[Planned, ...],
    accepted_ms: int,
    *,
    late_tolerance_ms: int = 0,
    start_ms: int | None = None,
    end_ms: int | None = None,
    zones: ZoneData = PINNED,
) -> Tick | None:
    """The first tick of schedules accepted at `accepted_ms`.

    Recurring ticks lie strictly after the acceptance; a one-off counts if it was due at the
    acceptance or up to `late_tolerance_ms` before, so `now` is a tick.
    """
    ticks = [next_tick(schedules, accepted_ms, start_ms=start_ms, end_ms=end_ms, zones=zones)]
    oldest_ms = max(accepted_ms - late_tolerance_ms, start_ms if start_ms is not None else 0)
    newest_ms = accepted_ms if end_ms is None else min(accepted_ms, end_ms)
    ticks += [
        Tick(schedule.at_ms)
        for schedule in schedules
        if isinstance(schedule, AtSchedule) and oldest_ms <= schedule.at_ms <= newest_ms
    ]
    return min((tick for tick in ticks if tick), key=lambda tick: tick.at_ms, default=None)


def next_tick_from(
    schedules: tuple[Planned, ...],
    last: Tick,
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    zones: ZoneData = PINNED,
) -> Tick | None:
    """The tick that follows `last`, which an earlier version of the zone data may have computed.

    A local time that has fired does not fire again because its instant moved to a later one.
    Schedules that fire on both of two repeated local times go by elapsed time here, too.
    """
    moved_ms = _instant_now(last, zones)
    covered = tuple(s for s in schedules if moved_ms > last.at_ms and _once_a_day(s, last.zone))
    others = tuple(s for s in schedules if s not in covered)
    ticks = (
        next_tick(covered, moved_ms, start_ms=start_ms, end_ms=end_ms, zones=zones),
        next_tick(others, last.at_ms, start_ms=start_ms, end_ms=end_ms, zones=zones),
    )
    return min((tick for tick in ticks if tick), key=lambda tick: tick.at_ms, default=None)


def _once_a_day(schedule: Planned, timezone: str) -> bool:
    """Whether the schedule goes by the zone's clock and never fires twice at one local time."""
    if isinstance(schedule, BoundedSchedule):
        return _once_a_day(schedule.inner, timezone)
    if not isinstance(schedule, CronSchedule) or schedule.timezone != timezone:
        return False
    rules = resolve_rules(parse_cron(schedule.cron), schedule.gap, schedule.repeat)
    return rules.repeat != "both"


def _instant_now(tick: Tick, zones: ZoneData) -> int:
    """Where the tick's local time lies under this version of the zone data."""
    if not tick.zone:
        return tick.at_ms
    local_s = _local_seconds(tick.local)
    repeat: Final = "second" if tick.fold else "first"
    at_s = local_to_instant(zones.zone(tick.zone), local_s, repeat=repeat)
    return tick.at_ms if at_s is None else at_s * SECOND_MS


def count_ticks(
    schedules: tuple[Planned, ...],
    from_ms_exclusive: int,
    to_ms_inclusive: int,
    *,
    limit: int = 100_000,
    start_ms: int | None = None,
    end_ms: int | None = None,
    zones: ZoneData = PINNED,
) -> tuple[int, int | None, int | None]:
    """How many ticks lie in (from, to], at most `limit`; and the first and the last of them.

    Both instants are exact even if the count stops at `limit`. The densest schedule is
    counted by arithmetic; of further ones each tick costs a step.
    """
    if start_ms is not None:
        from_ms_exclusive = max(from_ms_exclusive, start_ms - 1)
    if end_ms is not None:
        to_ms_inclusive = min(to_ms_inclusive, end_ms)
    if to_ms_inclusive <= from_ms_exclusive:
        return 0, None, None
    spans = [
        (_span_of_one(schedule, from_ms_exclusive, to_ms_inclusive, zones), schedule)
        for schedule in schedules
    ]
    spans = sorted((s for s in spans if s[0][0]), key=lambda s: s[0][0], reverse=True)
    if not spans:
        return 0, None, None
    first_ms = min(span[1] for span, _ in spans)
    last_ms = max(span[2] for span, _ in spans)
    count = spans[0][0][0]
    # The densest is counted by arithmetic; of the others only what no denser one has counts.
    for n, (_, schedule) in enumerate(spans[1:], start=1):
        denser = [other for _, other in spans[:n]]
        tick = _next_of_one(schedule, from_ms_exclusive, zones)
        while tick is not None and tick.at_ms <= to_ms_inclusive and count < limit:
            count += not any(_hits(other, tick.at_ms, zones) for other in denser)
            tick = _next_of_one(schedule, tick.at_ms, zones)
    return min(count, limit), first_ms, last_ms


def _hits(schedule: Planned, at_ms: int, zones: ZoneData) -> bool:
    """Whether an instant is a tick of the schedule."""
    tick = _next_of_one(schedule, at_ms - 1, zones)
    return tick is not None and tick.at_ms == at_ms


def jitter_ms(tenant: str, job: str, jitter_ms: int) -> int:
    """The job's own delay, 0 ≤ delay < `jitter_ms`: the same after restarts, edits and moves."""
    if jitter_ms <= 0:
        return 0
    digest = blake2b(f"{tenant}/{job}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % jitter_ms


def _next_of_one(schedule: Planned, after_ms: int, zones: ZoneData) -> Tick | None:
    if isinstance(schedule, CronSchedule):  # the hot path: a herd's look-ups end in the memo
        return _next_cron(
            schedule.cron, schedule.timezone, schedule.gap, schedule.repeat, after_ms, zones
        )
    if isinstance(schedule, EverySchedule):
        return _next_every(schedule, after_ms)
    if isinstance(schedule, BoundedSchedule):
        return _next_bounded(schedule, after_ms, zones)
    return Tick(schedule.at_ms) if schedule.at_ms > after_ms else None


def excluded_since_ms(
    schedule: Planned, calendars: Calendars, at_ms: int, zones: ZoneData = PINNED
) -> int | None:
    """The instant since which calendars keep the schedule out of `at_ms`; None: they do not. A
    schedule without a zone is judged by the clock of the calendars."""
    name = schedule.clock()[0] if isinstance(schedule, BoundedSchedule) else calendars.timezone
    zone = zones.zone(name)
    at_s = at_ms // SECOND_MS
    local_s = at_s + zone.offset_s(at_s)
    if not excludes(calendars, local_s):
        return None
    start_s = local_to_instant(zone, excluded_since(calendars, local_s))
    assert start_s is not None
    return min(start_s * SECOND_MS, at_ms)


def is_excluded(
    schedules: tuple[Planned, ...], calendars: Calendars | None, at_ms: int,
    zones: ZoneData = PINNED,
) -> bool:  # fmt: skip
    """Whether every schedule that has a tick at `at_ms` is kept out of it."""
    if calendars is None:
        return False
    return all(
        excluded_since_ms(schedule, calendars, at_ms, zones) is not None
        for schedule in schedules
        if _hits(schedule, at_ms, zones)
    )


def _next_bounded(schedule: BoundedSchedule, after_ms: int, zones: ZoneData) -> Tick | None:
    after_ms = max(after_ms, schedule.start_ms - 1)
    if schedule.moves:
        tick = _next_moved(schedule, after_ms, zones)
    else:
        tick = _next_of_one(schedule.inner, after_ms, zones)
    return tick if tick is not None and tick.at_ms <= schedule.end_ms else None


@lru_cache(maxsize=_MOVED_MEMO_MAX)
def _next_moved(schedule: BoundedSchedule, after_ms: int, zones: ZoneData) -> Tick | None:
    """Memoised: jobs that share a schedule and its calendars share their ticks."""
    assert schedule.calendars is not None
    timezone, rules = schedule.clock()
    zone = zones.zone(timezone)

    def next_of(instant_ms: int) -> int | None:
        tick = _next_of_one(schedule.inner, instant_ms, zones)
        return tick.at_ms if tick is not None else None

    at_ms = next_moved(schedule.calendars, zone, rules, next_of, after_ms)
    if at_ms is None or isinstance(schedule.inner, EverySchedule):
        return Tick(at_ms) if at_ms is not None else None
    return _cron_tick(at_ms // SECOND_MS, zone, timezone)


def _next_every(schedule: EverySchedule, after_ms: int) -> Tick | None:
    # The anchor itself is the first tick: nothing happens before the instant a user named.
    n = max(0, (after_ms - schedule.anchor_ms) // schedule.every_ms + 1)
    at_ms = schedule.anchor_ms + n * schedule.every_ms
    return Tick(at_ms) if at_ms <= EPOCH_MS_MAX else None


@lru_cache(maxsize=_TICKS_MEMO_MAX)
def _next_cron(
    text: str, timezone: str, gap: str, repeat: str, after_ms: int, zones: ZoneData
) -> Tick | None:
    """Memoised: jobs that share expression and zone share their ticks, and herds are the rule."""
    cron, zone = parse_cron(text), zones.zone(timezone)
    at_s = next_instant(cron, zone, resolve_rules(cron, gap, repeat), after_ms // SECOND_MS)
    return _cron_tick(at_s, zone, timezone) if at_s is not None else None


def _cron_tick(at_s: int, zone: Zone, timezone: str) -> Tick:
    stretch = zone.stretch(at_s)
    local_s = at_s + stretch.offset_s
    second = local_s < stretch.start_s + stretch.before_s  # also seen before the clock was put back
    return Tick(at_s * SECOND_MS, _local_text(local_s), int(second), timezone)


def _span_of_one(
    schedule: Planned, after_ms: int, until_ms: int, zones: ZoneData
) -> tuple[int, int, int]:
    """Count, first and last of one schedule's ticks in (after, until]; (0, 0, 0) if none."""
    match schedule:
        case CronSchedule():
            return _span_of_cron(
                schedule.cron,
                schedule.timezone,
                schedule.gap,
                schedule.repeat,
                after_ms // SECOND_MS,
                until_ms // SECOND_MS,
                zones,
            )
        case EverySchedule():
            every_ms, anchor_ms = schedule.every_ms, schedule.anchor_ms
            first = max(0, (after_ms - anchor_ms) // every_ms + 1)
            last = (min(until_ms, EPOCH_MS_MAX) - anchor_ms) // every_ms
            if last < first:
                return 0, 0, 0
            return last - first + 1, anchor_ms + first * every_ms, anchor_ms + last * every_ms
        case AtSchedule():
            inside = after_ms < schedule.at_ms <= until_ms
            return (1, schedule.at_ms, schedule.at_ms) if inside else (0, 0, 0)
        case BoundedSchedule():
            after_ms = max(after_ms, schedule.start_ms - 1)
            until_ms = min(until_ms, schedule.end_ms)
            if after_ms >= until_ms:
                return 0, 0, 0
            if not schedule.moves:
                return _span_of_one(schedule.inner, after_ms, until_ms, zones)
            return _span_by_steps(schedule, after_ms, until_ms, zones)
        case _:
            assert_never(schedule)


def _span_by_steps(
    schedule: BoundedSchedule, after_ms: int, until_ms: int, zones: ZoneData
) -> tuple[int, int, int]:
    count, first_ms, last_ms = 0, 0, 0
    tick = _next_bounded(schedule, after_ms, zones)
    while tick is not None and tick.at_ms <= until_ms:
        count, first_ms, last_ms = count + 1, first_ms or tick.at_ms, tick.at_ms
        tick = _next_bounded(schedule, tick.at_ms, zones)
    return count, first_ms, last_ms


@lru_cache(maxsize=_COUNTS_MEMO_MAX)
def _span_of_cron(
    text: str, timezone: str, gap: str, repeat: str, after_s: int, until_s: int, zones: ZoneData
) -> tuple[int, int, int]:
    cron, zone = parse_cron(text), zones.zone(timezone)
    rules = resolve_rules(cron, gap, repeat)
    first_s = next_instant(cron, zone, rules, after_s)
    if first_s is None or first_s > until_s:
        return 0, 0, 0
    last_s = prev_instant(cron, zone, rules, until_s, after_s)
    if last_s is None:
        raise AssertionError(f"{text!r}: a first tick at {first_s} but no last one")
    count = count_instants(cron, zone, rules, after_s, until_s)
    return count, first_s * SECOND_MS, last_s * SECOND_MS


@lru_cache(maxsize=4_096)
def _day_text(day: int) -> str:
    return format_instant(day * DAY_S * SECOND_MS)[:11]


def _local_text(local_s: int) -> str:
    day, second = divmod(local_s, DAY_S)
    return f"{_day_text(day)}{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def _local_seconds(local: str) -> int:
    local_ms = parse_local(local)
    if local_ms is None:
        raise AssertionError(f"{local!r} carries an offset")
    return local_ms // SECOND_MS
