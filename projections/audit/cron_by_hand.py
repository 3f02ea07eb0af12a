"""A second, slow reading of the documented schedule semantics.

It shares no code with the scheduler: its own parser, its own zone look-up, and it walks every local
day and minute and asks the standard library what instant that is. The auditor judges ticks by it,
and property tests hold the scheduler's own reading against it.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MONTH_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAY_NAMES = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


@cache
def zone_of(name: str) -> ZoneInfo:
    with (files("tzdata.zoneinfo") / name).open("rb") as stream:
        return ZoneInfo.from_file(stream, key=name)


def ticks(
    expression: str, zone: str, after: datetime, *, gap: str = "auto", repeat: str = "auto"
) -> Iterator[datetime]:
    """The UTC instants strictly after `after`, in order, up to 45 years ahead."""
    fields = MACROS.get(expression.strip().lower(), expression).lower().split()
    if len(fields) == 5:
        fields = ["0", *fields]
    starred = fields[1][0] == "*" or fields[2][0] == "*"
    gap = {"auto": "skip" if starred else "next"}.get(gap, gap)
    repeat = {"auto": "both" if starred else "first"}.get(repeat, repeat)
    seconds = plain_values(fields[0], 0, 59, [])
    minutes = plain_values(fields[1], 0, 59, [])
    hours = plain_values(fields[2], 0, 23, [])
    tz = zone_of(zone)
    day = after.astimezone(tz).date() - 2 * DAY
    last_day = day + 45 * 366 * DAY
    waiting: set[datetime] = set()
    while day < last_day:
        if day_matches(day, fields[3], fields[4], fields[5]):
            for hour in range(24):
                for minute in range(60):
                    if hour not in hours or minute not in minutes:
                        continue
                    for second in sorted(seconds):
                        local = datetime.combine(day, time(hour, minute, second))
                        waiting.update(instants(local, tz, gap, repeat))
        day += DAY
        # A local day further on can only bring instants later than this.
        settled = datetime(day.year, day.month, day.day, tzinfo=UTC) - 2 * DAY
        for instant in sorted(waiting):
            if instant < settled:
                waiting.remove(instant)
                if instant > after:
                    yield instant


def instants(local: datetime, tz: ZoneInfo, gap: str, repeat: str) -> list[datetime]:
    """What a naive local time becomes."""
    first = local.replace(tzinfo=tz, fold=0).astimezone(UTC)
    second = local.replace(tzinfo=tz, fold=1).astimezone(UTC)
    exists = [i for i in (first, second) if i.astimezone(tz).replace(tzinfo=None) == local]
    if exists:
        chosen = {"first": exists[:1], "second": exists[-1:], "both": exists}
        return sorted(set(chosen[repeat]))
    if gap == "skip":
        return []
    if gap == "shift":
        return [first]
    return [end_of_gap(tz, min(first, second), max(first, second))]


@cache
def end_of_gap(tz: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The instant in (low, high] at which the clock jumps, found second by second."""
    before = low.astimezone(tz).utcoffset()
    while low < high:
        low += SECOND
        if low.astimezone(tz).utcoffset() != before:
            return low
    raise AssertionError("no jump here")


@lru_cache(maxsize=200_000)
def day_matches(day: date, days: str, months: str, weekdays: str) -> bool:
    if day.month not in plain_values(months, 1, 12, MONTH_NAMES):
        return False
    by_day = any(day_item_matches(day, item) for item in days.split(","))
    by_weekday = any(weekday_item_matches(day, item) for item in weekdays.split(","))
    if days in "*?":
        return weekdays in "*?" or by_weekday
    if weekdays in "*?":
        return by_day
    return by_day or by_weekday


def last_of_month(day: date) -> date:
    while (day + DAY).month == day.month:
        day += DAY
    return day


def day_item_matches(day: date, item: str) -> bool:
    if item == "?":
        return True
    if item == "l":
        return day == last_of_month(day)
    if item == "lw":
        end = last_of_month(day)
        while end.weekday() > 4:
            end -= DAY
        return day == end
    if item.endswith("w"):
        wanted = int(item[:-1])
        if wanted > last_of_month(day).day or day.weekday() > 4:
            return False
        target = day.replace(day=wanted)
        # The nearest of the month's workdays; of two equally near ones there are none.
        workdays = [day.replace(day=n) for n in range(1, last_of_month(day).day + 1)]
        workdays = [d for d in workdays if d.weekday() < 5]
        return day == min(workdays, key=lambda d: abs((d - target).days))
    return day.day in plain_values(item, 1, 31, [])


def weekday_item_matches(day: date, item: str) -> bool:
    if item == "?":
        return True
    sunday_based = (day.weekday() + 1) % 7
    if item.endswith("l"):
        same = word_value(item[:-1], 0, DAY_NAMES) % 7 == sunday_based
        return same and (day + 7 * DAY).month != day.month
    if "#" in item:
        name, n = item.split("#")
        return (
            word_value(name, 0, DAY_NAMES) % 7 == sunday_based and (day.day - 1) // 7 == int(n) - 1
        )
    return sunday_based in plain_values(item, 0, 6, DAY_NAMES)


def word_value(word: str, low: int, names: list[str]) -> int:
    return names.index(word) + low if word in names else int(word)


@cache
def _plain_values(field: str, low: int, high: int, names: tuple[str, ...]) -> frozenset[int]:
    found: set[int] = set()
    for item in field.split(","):
        step = int(item.split("/")[1]) if "/" in item else 1
        body = item.split("/")[0]
        if body in "*?":
            run = list(range(low, high + 1))
        elif "-" in body:
            first, last = (word_value(w, low, list(names)) for w in body.split("-"))
            if high == 6 and first == 7 and last < 7:
                first = 0
            run = [first]
            while run[-1] != last:
                run.append(run[-1] + 1)
                if run[-1] > (7 if high == 6 and last == 7 else high):
                    run[-1] = low
        elif "/" in item:
            first = word_value(body, low, list(names))
            run = list(range(first % 7 if high == 6 else first, high + 1))
        else:
            run = [word_value(body, low, list(names))]
        found.update(value % 7 if high == 6 else value for value in run[::step])
    return frozenset(found)


def plain_values(field: str, low: int, high: int, names: list[str]) -> frozenset[int]:
    return _plain_values(field, low, high, tuple(names))
