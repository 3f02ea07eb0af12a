"""The cron dialect: text in, a frozen value or a full list of problems out.

Five fields (minute, hour, day of month, month, day of week), six with seconds first, or a macro.
Nothing is guessed: what `docs/decisions/0003-cron-dialect.md` does not name is refused, and so is
an expression that can never fire. Sets of numbers are bit masks: bit n stands for the value n.
"""

from difflib import get_close_matches
from functools import lru_cache
from typing import Final

import msgspec

from .cron_days import DayRule, day_masks
from .cron_fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    BadField,
    Field,
    day_names,
    parse_days,
    parse_set,
    parse_weekdays,
)
from .problem import InvalidSchedule, Problem

MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
EXPRESSION_LENGTH_MAX: Final = 1_000
_FIELDS: Final = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_PARSED_MAX: Final = 16_384


class Cron(msgspec.Struct, frozen=True, kw_only=True):
    """A valid expression, ready to be matched. Made only by `parse_cron`."""

    text: str
    fields: tuple[str, ...]  # six texts, seconds first; macros written out
    second_mask: int
    minute_mask: int
    hour_mask: int
    month_mask: int
    days: DayRule
    day_masks: tuple[int, ...]  # one mask of days per kind of month, see `cron_days.day_masks`
    starred: bool  # minute or hour field starts with `*`: such a job keeps its step over DST shifts
    warnings: tuple[str, ...] = ()


@lru_cache(maxsize=_PARSED_MAX)
def parse_cron(text: str) -> Cron:
    """The value of an expression. Raises `InvalidSchedule` with a problem for every bad field."""
    fields = _split(text)
    problems: list[Problem] = []
    warnings: list[str] = []

    def attempt(field: Field, written: str) -> int:
        try:
            return parse_set(field, written, warnings)
        except BadField as bad:
            problems.append(bad.problem(field, written))
            return 0

    second, minute, hour, day, month, weekday = fields
    masks = [attempt(f, w) for f, w in zip(_FIELDS, (second, minute, hour), strict=False)]
    days = weekdays = None
    try:
        days = parse_days(day, warnings)
    except BadField as bad:
        problems.append(bad.problem(DAY, day))
    month_mask = attempt(MONTH, month)
    try:
        weekdays = parse_weekdays(weekday, warnings)
    except BadField as bad:
        problems.append(bad.problem(WEEKDAY, weekday))
    if problems or days is None or weekdays is None:
        raise InvalidSchedule(*_with_advice(text, fields, problems))
    rule = DayRule(
        day_mask=days.mask,
        last_day=days.last,
        last_workday=days.last_workday,
        near_mask=days.near,
        weekday_mask=weekdays.mask,
        last_weekday_mask=weekdays.last,
        nth_weekday_mask=weekdays.nth,
        days_restricted=day not in ("*", "?"),
        weekdays_restricted=weekday not in ("*", "?"),
    )
    if "?" in (day, weekday) and rule.weekdays_restricted and any(map(str.isdigit, weekday)):
        warnings.append(
            f"'?' looks like Quartz, where 1 is Sunday; here {weekday!r} means "
            f"{day_names(weekdays)} (0 and 7 are Sunday)"
        )
    cron = Cron(
        text=text,
        fields=fields,
        second_mask=masks[0],
        minute_mask=masks[1],
        hour_mask=masks[2],
        month_mask=month_mask,
        days=rule,
        day_masks=day_masks(rule),
        starred=minute.startswith("*") or hour.startswith("*"),
        warnings=tuple(warnings),
    )
    if not _ever_fires(cron):
        raise InvalidSchedule(_never_fires(cron))
    return cron


def _split(text: str) -> tuple[str, ...]:
    """The six field texts of an expression or macro, seconds first."""
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise _refuse(
            text[:40] + "…",
            f"is longer than {EXPRESSION_LENGTH_MAX} characters",
            "split it over several schedules of the job",
        )
    for character in text:
        if not (" " <= character <= "~" or character == "\t"):
            raise _refuse(
                text,
                f"contains {character!r}; only ASCII letters, digits, blanks and * ? , - / # @ "
                "are allowed",
                "type the expression anew" if character.isspace() else "",
            )
    fields = tuple(text.replace("\t", " ").split())
    if not fields:
        raise _refuse(text, "is empty", "five fields, for example '0 2 * * *' for 02:00 daily")
    if fields[0].startswith("@"):
        macro = MACROS.get(fields[0].lower())
        if macro is None or len(fields) > 1:
            raise _unknown_macro(text, fields[0].lower())
        fields = tuple(macro.split())
    if len(fields) == 5:
        return ("0", *fields)
    if len(fields) == 6:
        return fields
    raise _wrong_count(text, fields)


def _unknown_macro(text: str, macro: str) -> InvalidSchedule:
    allowed = "is no known macro; allowed are " + " ".join(MACROS)
    if macro == "@reboot":
        return _refuse(
            text,
            "names no time: there is no boot to wait for",
            "use a schedule of kind 'now' to run once, at once",
        )
    if macro == "@every":
        return _refuse(text, "is no cron expression", "use a schedule of kind 'every'")
    if macro == "@every_minute":
        return _refuse(text, allowed, "use '* * * * *'")
    nearest = _nearest(macro, tuple(MACROS))
    return _refuse(text, allowed, f"did you mean {nearest}?" if nearest else "")


def _wrong_count(text: str, fields: tuple[str, ...]) -> InvalidSchedule:
    message = (
        f"has {len(fields)} field{'s' if len(fields) > 1 else ''}; five are needed (minute, hour, "
        "day of month, month, day of week), or six with seconds first"
    )
    if fields[0].lower() == "every":
        return _refuse(text, "is no cron expression", "use a schedule of kind 'every'")
    if len(fields) < 5:
        filled = " ".join(fields + ("*",) * (5 - len(fields)))
        return _refuse(text, message, f"did you mean {filled!r}?")
    if len(fields) == 7:
        return _refuse(
            text,
            message + "; a year field is not supported",
            f"write {' '.join(fields[:6])!r} and bound it with 'start' and 'end'",
        )
    return _refuse(text, message)


def _with_advice(
    text: str, fields: tuple[str, ...], problems: list[Problem]
) -> tuple[Problem, ...]:
    """The problems, preceded by a remark if the whole looks like another program's dialect."""
    month, weekday = fields[4], fields[5]
    year_last = weekday[:4].isdigit() and len(weekday.split("-")[0]) == 4
    if len(text.split()) == 6 and (month == "?" or year_last):
        advice = Problem(
            field="expression",
            value=text,
            message="looks like AWS, which puts minutes first and the year last; here six fields "
            "begin with seconds and there is no year field",
            hint="convert it with: horolog cron explain --dialect aws",
        )
        return (advice, *problems)
    return tuple(problems)


def _refuse(text: str, message: str, hint: str = "") -> InvalidSchedule:
    return InvalidSchedule(Problem(field="expression", value=text, message=message, hint=hint))


def _nearest(word: str, allowed: tuple[str, ...]) -> str:
    return next(iter(get_close_matches(word, allowed, n=1, cutoff=0.75)), "")


_LONGEST: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _ever_fires(cron: Cron) -> bool:
    """Whether any month of any year has a matching day.

    Within the 400 years of the calendar each month begins on every weekday, and so does a
    February of 29 days. So looking at the kinds of months is a proof.
    """
    return any(
        any(cron.day_masks[(length - 28) * 7 : (length - 27) * 7])
        for month, longest in enumerate(_LONGEST, start=1)
        if cron.month_mask >> month & 1
        for length in ((28, 29) if month == 2 else (longest,))
    )


def _never_fires(cron: Cron) -> Problem:
    day, month, weekday = cron.fields[3:]
    return Problem(
        field=DAY.name if cron.days.days_restricted else WEEKDAY.name,
        value=day if cron.days.days_restricted else weekday,
        message=f"never fires: no month of {month!r} has such a day",
        hint="use L for the last day of the month; pause a job that shall not run",
    )
