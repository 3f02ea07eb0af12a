"""Reads a crontab file, as crontab(5) of Debian describes it, into entries and problems.

Nothing is scheduled here. What cannot run with the same meaning is a problem with its line and
reason, never an entry that runs at other times.
"""

import re
from collections.abc import Iterable

import msgspec

from processors.core.cron import parse_cron
from processors.core.problem import InvalidSchedule
from processors.core.zones import PINNED, UnknownZone


class CrontabEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One command with its schedule and all that cron would hand to it."""

    line_no: int
    expression: str
    command: str
    user: str | None = None  # None in a personal table
    stdin: str | None = None  # what follows the first unescaped %
    timezone: str | None = None  # CRON_TZ; None: that of the machine
    environment: tuple[tuple[str, str], ...] = ()  # set above this line, the last value of each
    quiet: bool = False  # a leading minus: do not log the start
    warnings: tuple[str, ...] = ()


class EnvironmentLine(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that is set for the entries below it."""

    line_no: int
    name: str
    value: str


class LineProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A line that cannot be scheduled."""

    line_no: int
    line: str
    reason: str


class Crontab(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file."""

    entries: tuple[CrontabEntry, ...]
    environment: tuple[EnvironmentLine, ...]
    problems: tuple[LineProblem, ...]
    warnings: tuple[str, ...] = ()


class _Unusable(Exception):
    """The line at hand is a problem; the text is its reason."""


_REMARK = re.compile(r"[ \t]*(#.*)?")
_VARIABLE = re.compile(
    r"""[ \t]*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s="']+))[ \t]*="""
    r"""[ \t]*(?P<value>.*?)[ \t]*"""
)
_QUOTED = re.compile(r"""(["'])(.*)\1""")


def parse_crontab(text: str, *, user_column: bool) -> Crontab:
    """The entries and problems of a crontab.

    `user_column`: whether a user stands before each command, as in /etc/crontab and /etc/cron.d;
    a personal table, as `crontab -l` prints it, has none.
    """
    entries: list[CrontabEntry] = []
    variables: list[EnvironmentLine] = []
    problems: list[LineProblem] = []
    warnings: list[str] = []
    lines = text.split("\n")
    for line_no, raw in enumerate(lines, start=1):
        line = raw.removesuffix("\r")
        if _REMARK.fullmatch(line):
            continue
        try:
            if match := _VARIABLE.fullmatch(line):
                variables.append(_variable(line_no, match))
            else:
                entries.append(_entry(line_no, line, user_column, variables))
        except _Unusable as unusable:
            problems.append(LineProblem(line_no=line_no, line=line, reason=str(unusable)))
    if "\r" in text:
        warnings.append("lines end with a carriage return, which cron would hand to the commands")
    if lines[-1].strip():
        warnings.append(
            f"line {len(lines)} ends without a newline: cron ignores it, or refuses the file"
        )
    return Crontab(
        entries=tuple(entries),
        environment=tuple(variables),
        problems=tuple(problems),
        warnings=tuple(warnings),
    )


def _variable(line_no: int, match: re.Match[str]) -> EnvironmentLine:
    name = next(part for part in match.group("double", "single", "bare") if part is not None)
    value = match["value"]
    if value[:1] in ("'", '"'):
        quoted = _QUOTED.fullmatch(value)
        if quoted is None or quoted[1] in quoted[2]:
            raise _Unusable(f"the quotes around the value of {name} do not match")
        value = quoted[2]
    return EnvironmentLine(line_no=line_no, name=name, value=value)


def _entry(
    line_no: int, line: str, user_column: bool, variables: Iterable[EnvironmentLine]
) -> CrontabEntry:
    rest = line.lstrip(" \t")
    quiet = rest.startswith("-")
    rest = rest.removeprefix("-").lstrip(" \t")
    expression, rest = _take(rest, 1 if rest.startswith("@") else 5)
    warnings = _check_expression(expression, user_column)
    user: str | None = None
    if user_column:
        user, rest = _take(rest, 1)
    if not rest.strip():
        raise _Unusable("names no command" + (" after the user" if user_column else ""))
    environment = {variable.name: variable.value for variable in variables}
    timezone = environment.get("CRON_TZ") or None
    if timezone is not None:
        try:
            PINNED.zone(timezone)
        except UnknownZone as unknown:
            raise _Unusable(f"stands under CRON_TZ={unknown}") from None
    command, stdin = _split_at_percent(rest)
    return CrontabEntry(
        line_no=line_no,
        expression=expression,
        command=command,
        user=user,
        stdin=stdin,
        timezone=timezone,
        environment=tuple(environment.items()),
        quiet=quiet,
        warnings=warnings,
    )


def _take(text: str, count: int) -> tuple[str, str]:
    """The first `count` words, joined by single blanks, and what follows them."""
    words = []
    for _ in range(count):
        match = re.match(r"[^ \t]+", text)
        if match is None:
            break
        words.append(match[0])
        text = text[match.end() :].lstrip(" \t")
    return " ".join(words), text


def _check_expression(expression: str, user_column: bool) -> tuple[str, ...]:
    fields = expression.split()
    if len(fields) not in (1, 5) or (len(fields) == 1 and not expression.startswith("@")):
        raise _Unusable("is no entry: five time fields and a command are needed, or a macro")
    try:
        cron = parse_cron(expression)
    except InvalidSchedule as invalid:
        if len(fields) == 5 and re.fullmatch(r"[A-Za-z/.][\w/.-]{3,}", fields[4], re.ASCII):
            raise _Unusable(
                f"has too few time fields: the fifth would be {fields[4]!r}, which looks like "
                + ("the user" if user_column else "the command")
            ) from None
        raise _Unusable("; ".join(map(str, invalid.problems))) from None
    if len(fields) == 5 and _means_both_days(fields[2], fields[4]):
        raise _Unusable(
            "has a day field that starts with * beside a restricted one: Debian's cron runs it on "
            "days that match both, here either would count; write the days as a list and let the "
            "command check the other"
        )
    return cron.warnings


def _means_both_days(day: str, weekday: str) -> bool:
    """Whether Debian's cron would require both day fields although neither is a bare star."""
    return "*" not in (day, weekday) and (day.startswith("*") or weekday.startswith("*"))


def _split_at_percent(text: str) -> tuple[str, str | None]:
    r"""Command and standard input: the first % divides them, further ones end lines, \% is a %."""
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", text)]
    if len(parts) == 1:
        return parts[0], None
    stdin = "\n".join(parts[1:])
    return parts[0], stdin if not stdin or stdin.endswith("\n") else stdin + "\n"
