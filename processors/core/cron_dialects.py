"""Cron expressions of Quartz and AWS, written anew in ours or refused with the reason."""

import re
from typing import Literal

import msgspec

from .cron import parse_cron
from .cron_fields import WEEKDAYS
from .problem import InvalidSchedule, Problem

Dialect = Literal["quartz", "aws"]
_TOLD = {"quartz": "Quartz", "aws": "AWS"}
_NUMBER = re.compile(r"(?<![A-Z\d#/])\d+", re.ASCII)
_WRAPPED = re.compile(r"(\w+)\((.*)\)\s*", re.ASCII | re.DOTALL)


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """Our spelling of a foreign expression, and what a reader should know about it."""

    expression: str
    notes: tuple[str, ...] = ()


def explain_dialect(expression: str, dialect: Dialect) -> Converted:
    """Our expression with the same local times. Raises `InvalidSchedule` where there is none.

    Quartz: second, minute, hour, day, month, weekday, optional year. AWS: `cron(…)`, from minute
    to year. In both 1 is Sunday and `?` fills the day field that is not used.
    """
    text = _unwrap(expression.strip(), dialect)
    fields = text.upper().replace("\t", " ").split()
    second, year = "0", "*"
    if dialect == "quartz" and len(fields) in (6, 7):
        second, minute, hour, day, month, weekday = fields[:6]
        year = fields[6] if len(fields) == 7 else "*"
    elif dialect == "aws" and len(fields) == 6:
        minute, hour, day, month, weekday, year = fields
    else:
        needed = (
            "6 or 7 fields (second, minute, hour, day of month, month, day of week, year)"
            if dialect == "quartz"
            else "6 fields (minute, hour, day of month, month, day of week, year)"
        )
        told = f"has {len(fields)} fields; {_TOLD[dialect]} has {needed}"
        raise _refuse("expression", expression, told)
    problems: list[Problem] = []
    if year not in ("*", "?"):
        told = "cannot be part of an expression here"
        problems.append(_problem("year", year, told, "bound it with 'start' and 'end'"))
    if day not in ("*", "?") and weekday not in ("*", "?"):
        told = f"stands beside day of month {day}, which {_TOLD[dialect]} does not allow"
        hint = "write ? for the one that does not count"
        problems.append(_problem("day of week", weekday, told, hint))
    notes: list[str] = []
    weekday = _convert_weekday(weekday, problems, notes)
    if problems:
        raise InvalidSchedule(*problems)
    day = "*" if day == "?" else day
    weekday = "*" if weekday == "?" else weekday
    converted = [re.sub(r"(^|,)/", r"\1*/", f) for f in (second, minute, hour, day, month, weekday)]
    if converted[0].strip("0") == "":
        converted.pop(0)
    cron = parse_cron(" ".join(converted))
    return Converted(expression=cron.text, notes=(*notes, *cron.warnings))


def _unwrap(text: str, dialect: Dialect) -> str:
    match = _WRAPPED.fullmatch(text)
    if match is None or dialect != "aws":
        return text
    kind, inner = match[1].lower(), match[2]
    if kind == "rate":
        raise _refuse("expression", text, "is no cron expression", "use a schedule of kind 'every'")
    if kind == "at":
        raise _refuse("expression", text, "is no cron expression", "use a schedule of kind 'at'")
    return inner if kind == "cron" else text


def _convert_weekday(weekday: str, problems: list[Problem], notes: list[str]) -> str:
    """The field with names for numbers, because 1 is Sunday there and Monday here."""
    if weekday in ("*", "?"):
        return weekday

    def name(match: re.Match[str]) -> str:
        number = int(match[0][:9])
        if not 1 <= number <= 7:
            problems.append(
                _problem("day of week", weekday, f"has {number}; allowed are 1 (SUN) to 7 (SAT)")
            )
            return "SUN"
        return WEEKDAYS[number - 1]

    items = ["7" if item == "L" else item for item in weekday.split(",")]
    converted = ",".join(_NUMBER.sub(name, item) for item in items)
    if converted != weekday:
        notes.append(f"day of week {weekday} counts from 1 = Sunday: {converted}")
    return converted


def _problem(field: str, value: str, message: str, hint: str = "") -> Problem:
    return Problem(field=field, value=value, message=message, hint=hint)


def _refuse(field: str, value: str, message: str, hint: str = "") -> InvalidSchedule:
    return InvalidSchedule(_problem(field, value, message, hint))
