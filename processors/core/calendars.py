"""Business days: the times at which a job does not run, and where its ticks go instead.

Everything is judged on a local clock, in seconds since 1970-01-01T00:00:00 on that clock. Public
holidays are those of the `holidays` package.
"""

import re
from collections.abc import Callable
from datetime import date, timedelta
from functools import lru_cache
from importlib.metadata import version
from typing import Final, NamedTuple

from schemas.state import Calendars
from schemas.units import SECOND_MS

from .cron_match import DAY_S
from .cron_ticks import Rules
from .problem import Problem
from .zones import Zone, local_to_instant

DATA_VERSION: Final = f"holidays {version('holidays')}"
THEN: Final = ("skip", "next", "previous")
DAYS_MAX: Final = 366
"""A business day is looked for this far; a tick that finds none stays where it is, excluded."""
MOVED_PER_DAY_MAX: Final = 100
"""Ticks a day, on average over a week, of a schedule whose ticks may move."""

_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAY: Final = "|".join(_WEEKDAYS)
_WINDOW: Final = re.compile(
    rf"(?P<days>(?:{_DAY})(?:-(?:{_DAY}))?(?:,(?:{_DAY})(?:-(?:{_DAY}))?)*)"
    r"(?:[ ]+(?P<from>\d\d:\d\d)-(?P<to>\d\d:\d\d))?",
    re.ASCII | re.IGNORECASE,
)
_EPOCH: Final = date(1970, 1, 1)
_DAY_MIN: Final = (date.min - _EPOCH).days
_DAY_MAX: Final = (date.max - _EPOCH).days


class Excluded(NamedTuple):
    """A job's excluded times, ready to be asked."""

    days: frozenset[int]  # since 1970-01-01
    weekly: tuple[tuple[tuple[int, int], ...], ...]  # by weekday from Sunday: [from, to) seconds
    countries: tuple[tuple[str, str], ...]


@lru_cache(maxsize=4_096)
def excluded_times(calendars: Calendars) -> Excluded:
    """The compiled form; shared by all jobs whose calendars are written alike."""
    days: set[int] = set()
    weekly: list[list[tuple[int, int]]] = [[] for _ in _WEEKDAYS]
    countries: list[tuple[str, str]] = []
    for one in calendars.exclude:
        days |= {(date.fromisoformat(day) - _EPOCH).days for day in one.dates}
        for window in one.weekly:
            for weekday, low_s, high_s in _windows(window):
                weekly[weekday].append((low_s, high_s))
        if one.country:
            countries.append((one.country, one.subdivision))
    return Excluded(frozenset(days), tuple(tuple(sorted(w)) for w in weekly), tuple(countries))


def excludes(calendars: Calendars, local_s: int) -> bool:
    """Whether the job is kept out of this second of the local clock."""
    return _stretch_start(excluded_times(calendars), local_s) is not None


def excluded_since(calendars: Calendars, local_s: int) -> int:
    """The local second with which the day or window begins that excludes `local_s`."""
    start_s = _stretch_start(excluded_times(calendars), local_s)
    if start_s is None:
        raise AssertionError(f"{local_s} is not excluded")
    return start_s


def _stretch_start(excluded: Excluded, local_s: int) -> int | None:
    day, second = divmod(local_s, DAY_S)
    if day in excluded.days or _is_holiday(excluded.countries, day):
        return day * DAY_S
    for low_s, high_s in excluded.weekly[(day + 4) % 7]:
        if low_s <= second < high_s:
            return day * DAY_S + low_s
    return None


def _touched(excluded: Excluded, day: int) -> bool:
    """Whether any part of the day is excluded."""
    return (
        bool(excluded.weekly[(day + 4) % 7])
        or day in excluded.days
        or _is_holiday(excluded.countries, day)
    )


def business_time(calendars: Calendars, local_s: int) -> int | None:
    """The same time of the next or previous day on which it is not excluded, perhaps `local_s`
    itself; None if there is none within a year."""
    excluded = excluded_times(calendars)
    step_s = -DAY_S if calendars.then == "previous" else DAY_S
    for n in range(DAYS_MAX + 1):
        if _stretch_start(excluded, local_s + n * step_s) is None:
            return local_s + n * step_s
    return None


def moved_instant(calendars: Calendars, zone: Zone, rules: Rules, at_ms: int) -> int:
    """Where a tick at `at_ms` goes: itself if it is not excluded or finds no other day."""
    at_s, ms = divmod(at_ms, SECOND_MS)
    local_s = at_s + zone.offset_s(at_s)
    to_s = business_time(calendars, local_s)
    if to_s is None or to_s == local_s:
        return at_ms
    moved_s = local_to_instant(
        zone, to_s, gap="shift" if rules.gap == "shift" else "next",
        repeat="second" if rules.repeat == "second" else "first",
    )  # fmt: skip
    return at_ms if moved_s is None else moved_s * SECOND_MS + ms


def next_moved(
    calendars: Calendars,
    zone: Zone,
    rules: Rules,
    next_of: Callable[[int], int | None],
    after_ms: int,
) -> int | None:
    """The first instant strictly after `after_ms` among those that the schedule's ticks move to.

    `next_of` gives the schedule's own first tick after an instant. Ticks keep their time of day,
    so those of a later day never land on an earlier one than those of a day before; within a day
    their order may change, which is why the search goes on to the end of the day it found.
    """
    excluded = excluded_times(calendars)
    previous = calendars.then == "previous"
    day = _local_day(zone, after_ms)
    if not previous:  # what lies in the excluded days just before may land behind `after_ms`
        for _ in range(DAYS_MAX):
            day -= 1
            if not _touched(excluded, day):
                break
    best_ms, best_day = None, 0
    tick_ms = next_of((day - 2) * DAY_S * SECOND_MS)  # no offset exceeds a day
    while tick_ms is not None:
        tick_day = _local_day(zone, tick_ms)
        if best_ms is not None and tick_day > best_day:
            between = range(best_day + 1, tick_day + 1)
            if not previous or not all(_touched(excluded, one) for one in between):
                break
        moved_ms = moved_instant(calendars, zone, rules, tick_ms)
        if moved_ms > after_ms and (best_ms is None or moved_ms < best_ms):
            best_ms, best_day = moved_ms, _local_day(zone, moved_ms)
        tick_ms = next_of(tick_ms)
    return best_ms


def _local_day(zone: Zone, at_ms: int) -> int:
    at_s = at_ms // SECOND_MS
    return (at_s + zone.offset_s(at_s)) // DAY_S


def _is_holiday(countries: tuple[tuple[str, str], ...], day: int) -> bool:
    if not countries:
        return False
    year = _year_of(day)
    return any(day in _holidays_of(country, part, year) for country, part in countries)


@lru_cache(maxsize=8_192)
def _year_of(day: int) -> int:
    return (_EPOCH + timedelta(days=min(max(day, _DAY_MIN), _DAY_MAX))).year


@lru_cache(maxsize=4_096)
def _holidays_of(country: str, subdivision: str, year: int) -> frozenset[int]:
    import holidays  # takes a fifth of a second, which only those pay who name a country

    found = holidays.country_holidays(country, subdiv=subdivision or None, years=year)
    return frozenset((day - _EPOCH).days for day in found)


def _windows(text: str) -> list[tuple[int, int, int]]:
    """Weekday, first second and the second behind the last one; over midnight it is two.

    Raises `ValueError` saying what is wrong with the text.
    """
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise ValueError("is no window of the week")
    low_s, high_s = 0, DAY_S
    if match["from"]:
        low_s, high_s = _time_of_day(match["from"]), _time_of_day(match["to"])
        if low_s in (high_s, DAY_S):
            raise ValueError("is an empty window")
    found: list[tuple[int, int, int]] = []
    for part in match["days"].upper().split(","):
        first, _, last = part.partition("-")
        start, end = _WEEKDAYS.index(first), _WEEKDAYS.index(last or first)
        for n in range((end - start) % 7 + 1):
            weekday = (start + n) % 7
            if low_s < high_s:
                found.append((weekday, low_s, high_s))
                continue
            found.append((weekday, low_s, DAY_S))
            if high_s:
                found.append(((weekday + 1) % 7, 0, high_s))
    return found


def _time_of_day(text: str) -> int:
    hour, minute = int(text[:2]), int(text[3:])
    if hour > 24 or minute > 59 or (hour == 24 and minute):
        raise ValueError(f"has the time {text}, which no clock shows")
    return hour * 3_600 + minute * 60


def calendar_problems(calendars: Calendars, field: str) -> list[Problem]:
    """Everything that is wrong with calendars as written."""
    problems: list[Problem] = []

    def bad(at: str, value: str, message: str, hint: str = "") -> None:
        problems.append(_problem(f"{field}.{at}", value, message, hint))

    if calendars.then not in THEN:
        bad("then", calendars.then, f"must be one of {', '.join(THEN)}")
    if not calendars.exclude:
        bad("exclude", "", "names nothing", 'like [{"weekly": ["SAT-SUN"]}, {"country": "DE"}]')
    for n, one in enumerate(calendars.exclude):
        at = f"exclude[{n}]"
        if not (one.dates or one.country or one.weekly):
            bad(at, "", "names no dates, country or weekly window")
        for day in one.dates:
            if not _is_date(day):
                bad(f"{at}.dates", day, "is no date", "like 2026-12-24")
        for window in one.weekly:
            try:
                _windows(window)
            except ValueError as error:
                bad(f"{at}.weekly", window, str(error), "like SAT-SUN or FRI 18:00-24:00")
        problems += _country_problems(one.country, one.subdivision, f"{field}.{at}")
    if not problems and all(w and _covers_day(w) for w in excluded_times(calendars).weekly):
        bad("exclude", "", "leaves no time of the week at all")
    return problems


def _covers_day(windows: tuple[tuple[int, int], ...]) -> bool:
    reached_s = 0
    for low_s, high_s in windows:
        if low_s > reached_s:
            return False
        reached_s = max(reached_s, high_s)
    return reached_s >= DAY_S


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _country_problems(country: str, subdivision: str, at: str) -> list[Problem]:
    if not country:
        if not subdivision:
            return []
        return [_problem(f"{at}.subdivision", subdivision, "is given without a country")]
    import holidays

    known = holidays.list_supported_countries()
    if country not in known:
        hint = f"did you mean {country.upper()}?" if country.upper() in known else "like DE or FR"
        return [_problem(f"{at}.country", country, "is no country with known holidays", hint)]
    parts = known[country]
    if subdivision and subdivision not in parts:
        hint = f"one of {', '.join(parts)}" if parts else "leave it out"
        told = f"is no part of {country} with holidays of its own"
        return [_problem(f"{at}.subdivision", subdivision, told, hint)]
    return []


def _problem(field: str, value: str, message: str, hint: str = "") -> Problem:
    return Problem(field=field, value=value, message=message, hint=hint)
