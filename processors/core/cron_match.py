"""Where a cron expression matches the local clock, without zones.

Local time is the number of seconds the clock's face would have counted since 1970-01-01T00:00:00
if it had never been moved. `zones` and `cron_ticks` turn it into instants.
"""

from calendar import isleap
from datetime import date
from typing import Final

from .cron import Cron
from .cron_days import kind_of_month

DAY_S: Final = 86_400
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
DAY_MIN: Final = date.min.toordinal() - _EPOCH_ORDINAL
DAY_MAX: Final = date.max.toordinal() - _EPOCH_ORDINAL
_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def next_match(cron: Cron, local_s: int) -> int | None:
    """The first matching local second at or after `local_s`; None beyond the year 9999."""
    day, second = divmod(local_s, DAY_S)
    if day < DAY_MIN:
        day, second = DAY_MIN, 0
    if day > DAY_MAX:
        return None
    today = date.fromordinal(day + _EPOCH_ORDINAL)
    year, month, first = today.year, today.month, day - today.day + 1
    mask = _days_of(cron, year, month, first) >> today.day
    if mask & 1 and (time := _time_at_or_after(cron, second)) is not None:
        return day * DAY_S + time
    mask >>= 1
    first = day + 1
    while not mask:
        month += 1
        if month > 12:
            year, month = year + 1, 1
            if year > 9999:
                return None
        if cron.month_mask >> month & 1:
            first = date(year, month, 1).toordinal() - _EPOCH_ORDINAL
            mask = _days_of(cron, year, month, first) >> 1
    return (first + _lowest(mask)) * DAY_S + first_time(cron)


def prev_match(cron: Cron, local_s: int) -> int | None:
    """The last matching local second at or before `local_s`; None before the year 1."""
    day, second = divmod(local_s, DAY_S)
    if day > DAY_MAX:
        day, second = DAY_MAX, DAY_S - 1
    if day < DAY_MIN:
        return None
    today = date.fromordinal(day + _EPOCH_ORDINAL)
    year, month, first = today.year, today.month, day - today.day + 1
    mask = _days_of(cron, year, month, first)
    if mask >> today.day & 1 and (time := _time_at_or_before(cron, second)) is not None:
        return day * DAY_S + time
    mask &= (1 << today.day) - 1
    while not mask:
        month -= 1
        if month < 1:
            year, month = year - 1, 12
            if year < 1:
                return None
        if cron.month_mask >> month & 1:
            first = date(year, month, 1).toordinal() - _EPOCH_ORDINAL
            mask = _days_of(cron, year, month, first)
    return (first + _highest(mask) - 1) * DAY_S + last_time(cron)


def matches(cron: Cron, local_s: int) -> bool:
    """Whether the expression names this very second."""
    return next_match(cron, local_s) == local_s


def count_matches(cron: Cron, low_s: int, high_s: int) -> int:
    """How many seconds of [low_s, high_s) match. Costs one step per month, however dense."""
    if high_s <= low_s:
        return 0
    low_day, low_second = divmod(low_s, DAY_S)
    high_day, high_second = divmod(high_s, DAY_S)
    per_day = (
        cron.hour_mask.bit_count() * cron.minute_mask.bit_count() * cron.second_mask.bit_count()
    )
    count = _count_days(cron, low_day, high_day) * per_day
    if low_second and _count_days(cron, low_day, low_day + 1):
        count -= _times_before(cron, low_second)
    if high_second and _count_days(cron, high_day, high_day + 1):
        count += _times_before(cron, high_second)
    return count


def first_time(cron: Cron) -> int:
    """The earliest second of a matching day."""
    hour, minute = _lowest(cron.hour_mask), _lowest(cron.minute_mask)
    return hour * 3600 + minute * 60 + _lowest(cron.second_mask)


def last_time(cron: Cron) -> int:
    """The latest second of a matching day."""
    hour, minute = _highest(cron.hour_mask), _highest(cron.minute_mask)
    return hour * 3600 + minute * 60 + _highest(cron.second_mask)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _highest(mask: int) -> int:
    return mask.bit_length() - 1


def _days_of(cron: Cron, year: int, month: int, first_day: int) -> int:
    """The matching days of a month; bit n is day n."""
    if not cron.month_mask >> month & 1:
        return 0
    length = 29 if month == 2 and isleap(year) else _LENGTHS[month]
    return cron.day_masks[kind_of_month(length, (first_day + 4) % 7)]  # 1970-01-01: a Thursday


def _time_at_or_after(cron: Cron, second_of_day: int) -> int | None:
    hour, rest = divmod(second_of_day, 3600)
    minute, second = divmod(rest, 60)
    if cron.hour_mask >> hour & 1:
        if cron.minute_mask >> minute & 1 and (later := cron.second_mask >> second):
            return hour * 3600 + minute * 60 + second + _lowest(later)
        if later := cron.minute_mask >> minute + 1:
            minute += 1 + _lowest(later)
            return hour * 3600 + minute * 60 + _lowest(cron.second_mask)
    if later := cron.hour_mask >> hour + 1:
        hour += 1 + _lowest(later)
        return hour * 3600 + _lowest(cron.minute_mask) * 60 + _lowest(cron.second_mask)
    return None


def _time_at_or_before(cron: Cron, second_of_day: int) -> int | None:
    hour, rest = divmod(second_of_day, 3600)
    minute, second = divmod(rest, 60)
    if cron.hour_mask >> hour & 1:
        if cron.minute_mask >> minute & 1 and (sooner := cron.second_mask & (2 << second) - 1):
            return hour * 3600 + minute * 60 + _highest(sooner)
        if sooner := cron.minute_mask & (1 << minute) - 1:
            return hour * 3600 + _highest(sooner) * 60 + _highest(cron.second_mask)
    if sooner := cron.hour_mask & (1 << hour) - 1:
        return (
            _highest(sooner) * 3600 + _highest(cron.minute_mask) * 60 + _highest(cron.second_mask)
        )
    return None


def _times_before(cron: Cron, second_of_day: int) -> int:
    """How many matching times of a matching day lie before this second of the day."""
    hour, rest = divmod(second_of_day, 3600)
    minute, second = divmod(rest, 60)
    seconds, minutes = cron.second_mask.bit_count(), cron.minute_mask.bit_count()
    count = (cron.hour_mask & (1 << hour) - 1).bit_count() * minutes * seconds
    if cron.hour_mask >> hour & 1:
        count += (cron.minute_mask & (1 << minute) - 1).bit_count() * seconds
        if cron.minute_mask >> minute & 1:
            count += (cron.second_mask & (1 << second) - 1).bit_count()
    return count


def _count_days(cron: Cron, low_day: int, high_day: int) -> int:
    """How many days of [low_day, high_day) match."""
    low_day, high_day = max(low_day, DAY_MIN), min(high_day, DAY_MAX + 1)
    count, day = 0, low_day
    while day < high_day:
        today = date.fromordinal(day + _EPOCH_ORDINAL)
        first = day - today.day + 1
        mask = _days_of(cron, today.year, today.month, first) >> today.day
        length = 29 if today.month == 2 and isleap(today.year) else _LENGTHS[today.month]
        span = min(high_day - day, length - today.day + 1)
        count += (mask & (1 << span) - 1).bit_count()
        day += span
    return count
