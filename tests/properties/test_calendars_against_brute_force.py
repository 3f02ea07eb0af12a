"""Excluded days and moved ticks, against a reading that walks local days one by one.

It asks the standard library for clocks and the holidays package for holidays, and shares nothing
else with the product.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import holidays
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from processors.core.policy_spec import bounded
from processors.core.schedule import (
    AtSchedule,
    CronSchedule,
    EverySchedule,
    Planned,
    count_ticks,
    is_excluded,
    next_tick,
)
from projections.audit import cron_by_hand
from schemas.state import Calendars, ExcludedTimes, TickPolicy

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NAMES = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe",
         "Asia/Tokyo", "America/Sao_Paulo")  # fmt: skip


@dataclass(frozen=True)
class Window:
    """Weekdays from Monday = 0, and minutes of the day; to ≤ from goes on to the next day."""

    days: tuple[int, ...]
    low: int = 0
    high: int = 1_440

    def text(self) -> str:
        days = ",".join(NAMES[day] for day in self.days)
        if (self.low, self.high) == (0, 1_440):
            return days
        return (f"{days} {self.low // 60:02d}:{self.low % 60:02d}-"
                f"{self.high // 60:02d}:{self.high % 60:02d}")  # fmt: skip

    def holds(self, local: datetime) -> bool:
        minute = local.hour * 60 + local.minute
        if self.low < self.high:
            return local.weekday() in self.days and self.low <= minute < self.high
        yesterday = (local - DAY).weekday()
        return (local.weekday() in self.days and minute >= self.low) or (
            yesterday in self.days and minute < self.high
        )


@dataclass(frozen=True)
class Kept:
    """What keeps a job out, as the reading here knows it."""

    windows: tuple[Window, ...]
    dates: tuple[date, ...]
    country: str
    part: str

    def holds(self, local: datetime) -> bool:
        if local.date() in self.dates or any(window.holds(local) for window in self.windows):
            return True
        if not self.country:
            return False
        return local.date() in holidays.country_holidays(
            self.country, subdiv=self.part or None, years=local.year
        )

    def calendars(self, then: str, timezone: str = "UTC") -> Calendars:
        return Calendars(
            exclude=(
                ExcludedTimes(weekly=tuple(window.text() for window in self.windows)),
                ExcludedTimes(dates=tuple(day.isoformat() for day in self.dates),
                              country=self.country, subdivision=self.part),
            ),
            then=then, timezone=timezone,
        )  # fmt: skip


WINDOWS = st.builds(
    Window,
    days=st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True).map(tuple),
    low=st.integers(0, 47).map(lambda n: n * 30),
    high=st.integers(1, 48).map(lambda n: n * 30),
).filter(lambda window: window.low != window.high)
KEPT = st.builds(
    Kept,
    windows=st.one_of(
        st.just((Window((5, 6)),)), st.lists(WINDOWS, max_size=2).map(tuple), st.just(())
    ),
    dates=st.lists(st.dates(date(2026, 3, 1), date(2026, 5, 30)), max_size=3).map(tuple),
    country=st.sampled_from(["", "DE", "US", "JP"]),
    part=st.just(""),
)
CRONS = st.sampled_from([
    "0 9 * * *", "30 2 * * *", "30 2 * * 0", "0 0 * * *", "15 23 * * 6", "0 8,20 * * 1,6",
    "0 12 1 * *", "45 6 L * *", "0 9 29 3 *", "0 */6 * * *", "10 1 * * 0", "0 7 3 4 *",
])  # fmt: skip


def ms(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)


def moved(at: datetime, kept: Kept, then: str, zone: str) -> datetime:
    """Where a tick goes: the same local time of the first day that has it free."""
    tz = cron_by_hand.zone_of(zone)
    local = at.astimezone(tz).replace(tzinfo=None)
    step = DAY if then == "next" else -DAY
    for n in range(367):
        candidate = local + n * step
        if not kept.holds(candidate):
            return at if n == 0 else cron_by_hand.instants(candidate, tz, "next", "first")[0]
    return at


def product(plan: tuple[Planned, ...], after: datetime, until: datetime) -> list[int]:
    found, at_ms = [], ms(after)
    while (tick := next_tick(plan, at_ms)) is not None and tick.at_ms <= ms(until):
        at_ms = tick.at_ms
        found.append(at_ms)
    return found


@given(CRONS, st.sampled_from(ZONES), KEPT, st.sampled_from(["next", "previous"]),
       st.integers(0, 60 * 24 * 40))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_ticks_move_to_the_business_day_that_walking_finds(
    cron: str, zone: str, kept: Kept, then: str, minutes: int
) -> None:
    after = datetime(2026, 3, 10, tzinfo=UTC) + timedelta(minutes=minutes)
    until = after + 40 * DAY
    assume(not all(any(w.days.count(d) for w in kept.windows) for d in range(7)))
    own = []
    for tick in cron_by_hand.ticks(cron, zone, after - 60 * DAY):
        if tick > until + 60 * DAY:
            break
        own.append(tick)
    expected = sorted({ms(moved(tick, kept, then, zone)) for tick in own})
    expected = [at for at in expected if ms(after) < at <= ms(until)]
    policy = TickPolicy(calendars=kept.calendars(then))
    plan = bounded((CronSchedule(cron=cron, timezone=zone),), policy)
    assert product(plan, after, until) == expected
    count, first, last = count_ticks(plan, ms(after), ms(until))
    ends = (expected[0], expected[-1]) if expected else (None, None)
    assert (count, first, last) == (len(expected), *ends)


@given(st.sampled_from(ZONES), KEPT, st.integers(0, 60 * 24 * 80))
@settings(max_examples=300, deadline=None)
def test_with_skip_a_tick_stays_and_is_excluded_exactly_where_walking_says(
    zone: str, kept: Kept, minutes: int
) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    calendars = kept.calendars("skip", "Asia/Tokyo")
    own = CronSchedule(cron="* * * * *", timezone=zone)
    plan = bounded((own,), TickPolicy(calendars=calendars))
    local = at.astimezone(cron_by_hand.zone_of(zone)).replace(tzinfo=None)
    assert is_excluded(plan, calendars, ms(at)) == kept.holds(local)
    # A schedule without a zone is judged by the clock that the calendars name.
    for bare in (AtSchedule(at_ms=ms(at)), EverySchedule(every_ms=60_000, anchor_ms=0)):
        plan = bounded((bare,), TickPolicy(calendars=calendars))
        there = at.astimezone(cron_by_hand.zone_of("Asia/Tokyo")).replace(tzinfo=None)
        assert is_excluded(plan, calendars, ms(at)) == kept.holds(there)


def test_the_same_local_time_is_kept_over_a_clock_change() -> None:
    calendars = Calendars(exclude=(ExcludedTimes(weekly=("SAT-SUN",)),), then="next")
    plan = bounded(
        (CronSchedule(cron="30 2 * * 6", timezone="Europe/Berlin"),),
        TickPolicy(calendars=calendars),
    )
    # Saturday 28 March 2026, 02:30 +01:00, moves to Monday, when the clock shows +02:00.
    tick = next_tick(plan, ms(datetime(2026, 3, 27, tzinfo=UTC)))
    assert tick is not None and tick.local == "2026-03-30T02:30:00"
    assert tick.at_ms == ms(datetime(2026, 3, 30, 0, 30, tzinfo=UTC))
