"""Instants and durations: whole milliseconds inside, readable text outside.

An instant is milliseconds since 1970-01-01T00:00:00Z without leap seconds, up to the end of the
year 9999. Text that names no offset is refused, because two readers would understand it
differently. Malformed text raises `Unreadable`, which says what would be right.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NewType

EpochMs = NewType("EpochMs", int)
DurationMs = NewType("DurationMs", int)

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
WEEK_MS: Final = 7 * DAY_MS

EPOCH_MS_MIN: Final = -62_135_596_800_000  # 0001-01-01T00:00:00.000Z
EPOCH_MS_MAX: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
DURATION_MS_MAX: Final = EPOCH_MS_MAX - EPOCH_MS_MIN

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_MS = timedelta(milliseconds=1)
_TEXT_LENGTH_MAX = 64


class Unreadable(ValueError):
    """Text that is no instant or duration. Ask the writer again, showing `message` and `hint`."""

    def __init__(self, value: str, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.value = value
        self.message = message
        self.hint = hint


@lru_cache(maxsize=4_096)
def _day_text(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).date().isoformat()


@lru_cache(maxsize=4_096)
def format_instant(at_ms: int) -> str:
    """The instant as RFC 3339 in UTC with milliseconds: `2026-03-29T01:30:00.000Z`."""
    day, rest_ms = divmod(at_ms, DAY_MS)
    minute_of_day, ms = divmod(rest_ms, MINUTE_MS)
    hour, minute = divmod(minute_of_day, 60)
    return f"{_day_text(day)}T{hour:02d}:{minute:02d}:{ms // 1000:02d}.{ms % 1000:03d}Z"


_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
    r"(?P<offset>[Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)


def parse_instant(text: str) -> EpochMs:
    """The instant that RFC 3339 text with an offset names.

    Digits beyond milliseconds are rounded up, so nothing is early. Raises `Unreadable`.
    """
    local_ms, offset = _parse_date_time(text)
    if offset is None:
        raise Unreadable(
            text,
            "names neither an offset nor a zone, so it is no instant",
            f"add Z for UTC, or an offset: {text}Z, {text}+02:00",
        )
    at_ms = local_ms
    if offset not in "Zz":
        hours, minutes = int(offset[1:3]), int(offset[4:6])
        if hours > 23 or minutes > 59:
            raise Unreadable(text, f"offset {offset} is out of range", "from -23:59 to +23:59")
        shift_ms = (hours * 60 + minutes) * MINUTE_MS
        at_ms = local_ms - shift_ms if offset[0] == "+" else local_ms + shift_ms
    if not EPOCH_MS_MIN <= at_ms <= EPOCH_MS_MAX:
        raise Unreadable(text, "lies outside the years 1 to 9999 in UTC")
    return EpochMs(at_ms)


def parse_local(text: str) -> int | None:
    """A local date and time without offset, as milliseconds of its own clock face.

    The result counts from 1970-01-01T00:00:00 on that clock and becomes an instant only together
    with a zone. None if the text carries an offset (then it is an instant). Raises `Unreadable`.
    """
    local_ms, offset = _parse_date_time(text)
    return local_ms if offset is None else None


@lru_cache(maxsize=4_096)
def _parse_date_time(text: str) -> tuple[int, str | None]:
    match = _INSTANT.fullmatch(text) if len(text) <= _TEXT_LENGTH_MAX else None
    if match is None:
        raise Unreadable(
            text[:_TEXT_LENGTH_MAX],
            "is no date and time",
            "write it like 2026-03-29T01:30:00Z or 2026-03-29T01:30:00+02:00",
        )
    year, month, day, hour, minute = (int(match[n]) for n in range(1, 6))
    second = int(match[6] or 0)
    if second == 60:
        raise Unreadable(text, "is a leap second, which has no instant of its own", "use second 59")
    try:
        whole = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise Unreadable(text, f"is no date and time: {error}") from None
    nanoseconds = int((match[7] or "0").ljust(9, "0"))
    return (whole - _EPOCH) // _ONE_MS - (-nanoseconds // 1_000_000), match["offset"]


_SHORT_UNITS = {"w": WEEK_MS, "d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "s": SECOND_MS, "ms": 1}
_SHORT = re.compile(
    r"(?:(?P<w>\d+)w)?(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?"
    r"(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+)ms)?",
    re.ASCII,
)
_ISO = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?"
    r"(?P<t>T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:[.,]\d+)?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
_ISO_WITH_MONTHS = re.compile(r"P(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T.*)?", re.ASCII | re.IGNORECASE)
_DURATION_HINT = "write it like 90s, 5m, 1h30m, 250ms, 2d or PT5M"


def parse_duration_ms(text: str) -> DurationMs:
    """Elapsed time from `90s`, `1h30m`, `250ms`, `2d`, `1w` or ISO 8601 (`PT5M`, `P1DT12H`).

    A day is 24 hours. Years and months are refused: they have no fixed length. Raises `Unreadable`.
    """
    if not text or len(text) > _TEXT_LENGTH_MAX:
        raise Unreadable(text[:_TEXT_LENGTH_MAX], "is no duration", _DURATION_HINT)
    match = _ISO.fullmatch(text) if text[0] in "Pp" else _SHORT.fullmatch(text)
    if match is None or not any(match.groupdict().values()) or (text[-1] in "Tt"):
        raise _no_duration(text)
    parts = match.groupdict()
    total_ms = 0
    for unit, unit_ms in _SHORT_UNITS.items():
        digits = parts.get(unit)
        if not digits:
            continue
        whole, _, fraction = digits.replace(",", ".").partition(".")
        total_ms += int(whole) * unit_ms
        if fraction.rstrip("0")[3:]:
            raise Unreadable(text, "is finer than a millisecond", "use whole milliseconds")
        total_ms += int(fraction.ljust(3, "0")[:3]) if fraction else 0
    if total_ms > DURATION_MS_MAX:
        raise Unreadable(text, "is longer than the calendar, which ends with the year 9999")
    return DurationMs(total_ms)


def _no_duration(text: str) -> Unreadable:
    if text.isascii() and text.isdigit():
        return Unreadable(text, "names no unit", f"{text}s or {text}ms?")
    if text.startswith("-"):
        return Unreadable(text, "is negative", _DURATION_HINT)
    if _ISO_WITH_MONTHS.fullmatch(text):
        return Unreadable(
            text, "counts years or months, which have no fixed length", "use days, or a cron"
        )
    return Unreadable(text, "is no duration", _DURATION_HINT)


def format_duration(duration_ms: int) -> str:
    """The shortest text that `parse_duration_ms` reads back: `1h30m`, `250ms`, `0s`."""
    text, rest_ms = "", duration_ms
    for unit, unit_ms in _SHORT_UNITS.items():
        if unit == "w":  # 10d says more than 1w3d
            continue
        count, rest_ms = divmod(rest_ms, unit_ms)
        text += f"{count}{unit}" if count else ""
    return text or "0s"
