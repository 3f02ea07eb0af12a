"""Which days of a month a cron expression names.

What matters about a month is its length and the weekday it begins with: 28 kinds in all. So the
days are computed once per kind, and looking them up later needs no arithmetic.
"""

from functools import lru_cache

import msgspec


class DayRule(msgspec.Struct, frozen=True, kw_only=True):
    """Both day fields. If both are restricted, a day that either names counts."""

    day_mask: int
    last_day: bool
    last_workday: bool
    near_mask: int
    weekday_mask: int
    last_weekday_mask: int
    nth_weekday_mask: int
    days_restricted: bool
    weekdays_restricted: bool


def kind_of_month(length: int, first_weekday: int) -> int:
    """Index of a month into `day_masks`; `first_weekday` is that of day 1, Sunday = 0."""
    return (length - 28) * 7 + first_weekday


@lru_cache(maxsize=4_096)
def day_masks(rule: DayRule) -> tuple[int, ...]:
    """The matching days for each kind of month; bit n is day n."""
    return tuple(
        _days(rule, length, first_weekday)
        for length in (28, 29, 30, 31)
        for first_weekday in range(7)
    )


def _days(rule: DayRule, length: int, first_weekday: int) -> int:
    everything = (2 << length) - 2
    if not rule.days_restricted and not rule.weekdays_restricted:
        return everything
    mask = 0
    if rule.days_restricted:
        mask |= _by_day_of_month(rule, length, first_weekday)
    if rule.weekdays_restricted:
        mask |= _by_weekday(rule, length, first_weekday)
    return mask & everything


def _by_day_of_month(rule: DayRule, length: int, first_weekday: int) -> int:
    mask = rule.day_mask
    if rule.last_day:
        mask |= 1 << length
    if rule.last_workday:
        mask |= 1 << _nearest_workday(length, length, first_weekday)
    if rule.near_mask:
        for day in range(1, length + 1):
            if rule.near_mask >> day & 1:
                mask |= 1 << _nearest_workday(day, length, first_weekday)
    return mask


def _nearest_workday(day: int, length: int, first_weekday: int) -> int:
    """The Monday-to-Friday day nearest to `day` that lies in the same month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _by_weekday(rule: DayRule, length: int, first_weekday: int) -> int:
    mask = 0
    for weekday in range(7):
        first = 1 + (weekday - first_weekday) % 7
        if rule.weekday_mask >> weekday & 1:
            mask |= 0b1_0000001_0000001_0000001_0000001 << first
        if rule.last_weekday_mask >> weekday & 1:
            mask |= 1 << first + (length - first) // 7 * 7
        for n in range(5):
            if rule.nth_weekday_mask >> n * 7 + weekday & 1:
                mask |= 1 << first + n * 7
    return mask
