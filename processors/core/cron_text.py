"""A cron expression in words, for people who do not read cron."""

from .cron import Cron, parse_cron

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_TIMES_LISTED_MAX = 6


def describe_cron(expression: str, zone: str) -> str:
    """One line of English: `at 02:30 on Monday to Friday (Europe/Paris)`.

    Raises `InvalidSchedule` if the expression is none.
    """
    cron = parse_cron(expression)
    parts = (_time(cron), _days(cron), _months(cron))
    return f"{' '.join(part for part in parts if part)} ({zone})"


def _time(cron: Cron) -> str:
    seconds, minutes, hours = (
        _values(mask) for mask in (cron.second_mask, cron.minute_mask, cron.hour_mask)
    )
    if len(seconds) * len(minutes) * len(hours) <= _TIMES_LISTED_MAX:
        return "at " + _join(
            [
                f"{hour:02d}:{minute:02d}" + (f":{second:02d}" if second else "")
                for hour in hours
                for minute in minutes
                for second in seconds
            ]
        )
    parts = []
    if seconds != [0]:
        step = _step(seconds, 60)
        parts.append(_every(step, "second") if step else f"at {_numbered('second', seconds)}")
    step = _step(minutes, 60)
    if not (parts and step == 1):
        linked = "of " if parts else ""
        plain = f"{linked or 'at '}{_numbered('minute', minutes)}"
        parts.append(linked + _every(step, "minute") if step else plain)
    return " ".join(parts) + _within(hours, whole_hour=bool(step))


def _within(hours: list[int], *, whole_hour: bool) -> str:
    """The hours as a supplement; nothing if every minute rule already says `every …`."""
    if len(hours) == 24:
        return "" if whole_hour else " of every hour"
    if step := _step(hours, 24):
        return f" of every {step} hours from 00:00"
    low, high = hours[0], hours[-1]
    if whole_hour and len(hours) > 1 and high - low + 1 == len(hours):
        return f" from {low:02d}:00 to {high:02d}:59"
    return f" of {_numbered('hour', hours)}"


def _days(cron: Cron) -> str:
    days, weekdays = cron.days.days_restricted, cron.days.weekdays_restricted
    by_day = _by_day_of_month(cron) if days else ""
    by_weekday = _by_weekday(cron) if weekdays else ""
    if days and weekdays:
        return f"on {by_day} of the month, and also on {by_weekday}"
    if days:
        return f"on {by_day} of the month"
    if weekdays:
        return f"on {by_weekday}"
    return "every day" if ":" in _time(cron).partition(" of ")[0] else ""


def _by_day_of_month(cron: Cron) -> str:
    rule, told = cron.days, []
    if rule.day_mask:
        told.append(_numbered("day", _values(rule.day_mask)))
    if rule.last_day:
        told.append("the last day")
    if rule.last_workday:
        told.append("the last weekday (Monday to Friday)")
    told += [
        f"the weekday (Monday to Friday) nearest to day {day}" for day in _values(rule.near_mask)
    ]
    return _join(told)


def _by_weekday(cron: Cron) -> str:
    rule, told = cron.days, []
    if rule.weekday_mask:
        told.append(_named(_values(rule.weekday_mask), _WEEKDAYS, start=1))
    told += [f"the last {_WEEKDAYS[day]} of the month" for day in _values(rule.last_weekday_mask)]
    told += [
        f"the {_ORDINALS[bit // 7]} {_WEEKDAYS[bit % 7]} of the month"
        for bit in _values(rule.nth_weekday_mask)
    ]
    return _join(told)


def _months(cron: Cron) -> str:
    months = _values(cron.month_mask)
    return (
        ""
        if len(months) == 12
        else f"in {_named([month - 1 for month in months], _MONTHS, start=0)}"
    )


def _values(mask: int) -> list[int]:
    return [n for n in range(mask.bit_length()) if mask >> n & 1]


def _step(values: list[int], size: int) -> int:
    """The step if the values are 0, step, … through the whole range, else 0."""
    step = size // len(values)
    return step if size % step == 0 and values == list(range(0, size, step)) and step < size else 0


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _numbered(unit: str, values: list[int]) -> str:
    runs = _runs(values)
    told = [str(a) if a == b else f"{a} to {b}" for a, b in runs]
    return f"{unit}{'s' if len(values) > 1 else ''} {_join(told)}"


def _named(values: list[int], names: tuple[str, ...], start: int) -> str:
    """Names in the order of the circle from `start`, with runs of three or more as `a to b`."""
    size = len(names)
    while (start - 1) % size in values and start in values and len(values) < size - 1:
        start = (start + 1) % size
    turned = sorted((value - start) % size for value in values)
    told = [
        names[(a + start) % size]
        if a == b
        else f"{names[(a + start) % size]} to {names[(b + start) % size]}"
        for a, b in _runs(turned)
    ]
    return _join(told)


def _runs(values: list[int]) -> list[tuple[int, int]]:
    """Neighbouring values joined, three at least."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    joined: list[tuple[int, int]] = []
    for a, b in runs:
        joined += [(a, b)] if b - a != 1 else [(a, a), (b, b)]
    return joined


def _join(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
