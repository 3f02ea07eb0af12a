"""The grammar of one cron field: lists of numbers, names, ranges, steps and the day specials.

Each function returns masks or raises `BadField`, which says what is allowed and what would do.
"""

import re
from difflib import get_close_matches
from typing import Final

import msgspec

from .problem import Problem

MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class Field(msgspec.Struct, frozen=True):
    """One field's name and what may stand in it; `high` is the last value of `*` and `N/step`."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    top: int = 0  # highest number that may be written, where it differs: 7 is Sunday, too

    @property
    def allowed(self) -> str:
        named = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"{self.low}-{self.top or self.high}{named}"


SECOND: Final = Field("second", 0, 59)
MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
DAY: Final = Field("day of month", 1, 31)
MONTH: Final = Field("month", 1, 12, MONTHS)
WEEKDAY: Final = Field("day of week", 0, 6, WEEKDAYS, 7)


class BadField(Exception):
    """One field cannot be understood: a refusal on its way to a `Problem`."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def problem(self, field: Field, written: str) -> Problem:
        return Problem(field=field.name, value=written, message=self.message, hint=self.hint)


class Days(msgspec.Struct, frozen=True, kw_only=True):
    """What the day-of-month field names."""

    mask: int = 0
    last: bool = False
    last_workday: bool = False
    near: int = 0  # 15W: bit 15


class Weekdays(msgspec.Struct, frozen=True, kw_only=True):
    """What the day-of-week field names; Sunday is bit 0."""

    mask: int = 0
    last: int = 0  # 5L: bit 5
    nth: int = 0  # MON#2: bit (2 - 1) * 7 + 1


def parse_set(field: Field, written: str, warnings: list[str]) -> int:
    """The values of a field without specials, as a mask."""
    mask = 0
    for item in _items(field, written):
        mask |= _plain(field, item, warnings)
    return mask


_NEAR = re.compile(r"(\d+)W", re.ASCII)


def parse_days(written: str, warnings: list[str]) -> Days:
    """The day-of-month field: a set, and any of `L`, `LW`, `15W`."""
    if written == "?":
        return Days(mask=_every(DAY))
    mask, last, last_workday, near = 0, False, False, 0
    for item in _items(DAY, written):
        if item == "L":
            last = True
        elif item in ("LW", "WL"):
            last_workday = True
        elif match := _NEAR.fullmatch(item):
            near |= 1 << _number(DAY, match[1])
        elif item.startswith("L-"):
            raise BadField("counts back from the last day, which is not supported", "L, LW or 15W")
        elif item.endswith("W"):
            raise BadField("has W without a single day before it", "15W, or LW for the last one")
        else:
            mask |= _plain(DAY, item, warnings)
    return Days(mask=mask, last=last, last_workday=last_workday, near=near)


_LAST = re.compile(r"(\w+)L", re.ASCII)
_NTH = re.compile(r"(\w+)#(\d+)", re.ASCII)


def parse_weekdays(written: str, warnings: list[str]) -> Weekdays:
    """The day-of-week field: a set, and any of `5L` (the month's last Friday), `MON#2`."""
    if written == "?":
        return Weekdays(mask=_every(WEEKDAY))
    mask, last, nth = 0, 0, 0
    for item in _items(WEEKDAY, written):
        if item == "L":
            raise BadField(
                "has L without a day before it, which elsewhere means Saturday",
                "SAT, or 6L for the last Saturday of the month",
            )
        if item[0] == "L" and len(item) > 1:
            raise BadField("has L before the day", f"did you mean {item[1:]}L?")
        if match := _LAST.fullmatch(item):
            last |= 1 << _number(WEEKDAY, match[1]) % 7
        elif match := _NTH.fullmatch(item):
            weekday, n = _number(WEEKDAY, match[1]) % 7, int(match[2][:9])
            if not 1 <= n <= 5:
                raise BadField(
                    f"asks for number {n} of that weekday; a month has 1 to 5",
                    f"{match[1]}#5, or {match[1]}L for the last one",
                )
            nth |= 1 << (n - 1) * 7 + weekday
        else:
            mask |= _plain(WEEKDAY, item, warnings)
    return Weekdays(mask=mask, last=last, nth=nth)


def day_names(weekdays: Weekdays) -> str:
    """The weekdays of a field as text: `MON, WED, last FRI`."""
    told = [name for n, name in enumerate(WEEKDAYS) if weekdays.mask >> n & 1]
    told += [f"last {name}" for n, name in enumerate(WEEKDAYS) if weekdays.last >> n & 1]
    told += [f"{WEEKDAYS[n % 7]}#{n // 7 + 1}" for n in range(35) if weekdays.nth >> n & 1]
    return ", ".join(told)


def _items(field: Field, written: str) -> list[str]:
    items = written.upper().split(",")
    if "" in items:
        whole = ",".join(item for item in written.split(",") if item)
        raise BadField("has an empty list item", f"did you mean {whole or '*'}?")
    if "?" in items:
        where = "alone" if field in (DAY, WEEKDAY) else "only in the day fields"
        raise BadField(f"has '?', which may stand {where}", "*")
    return items


def _every(field: Field) -> int:
    return (2 << field.high) - (1 << field.low)


def _plain(field: Field, item: str, warnings: list[str]) -> int:
    """`*`, `N`, `N-M`, `*/S`, `N/S` or `N-M/S`, as a mask."""
    body, slash, step_text = item.partition("/")
    step = _step(item, step_text) if slash else 1
    low_text, dash, high_text = body.partition("-")
    if body == "*":
        low, high = field.low, field.high
    elif dash:
        low, high = _range(field, _number(field, low_text), _number(field, high_text))
    else:
        low = _number(field, low_text)
        if not slash:
            return 1 << (low % 7 if field is WEEKDAY else low)
        low, high = (low % 7 if field is WEEKDAY else low), field.high
    size = field.high - field.low + 1
    if slash and step > high - low:
        warnings.append(
            f"{field.name}: the step in {item!r} is wider than its range, so only the first value "
            "counts"
        )
    mask = 0
    for value in range(low, high + 1, step):
        mask |= 1 << field.low + (value - field.low) % size
    return mask


def _range(field: Field, low: int, high: int) -> tuple[int, int]:
    """Both ends, the second one beyond the field's last value if the range wraps round."""
    if low <= high:
        return low, high
    if low == 7 and field is WEEKDAY:
        return 0, high
    return low, high + field.high - field.low + 1


def _step(item: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadField(f"has {text!r} as a step; a step is a whole number", f"{item[0]}/5")
    step = int(text[:9])
    if step == 0:
        raise BadField("has the step 0, which would never move on", "*/1, which is *")
    return step


def _number(field: Field, text: str) -> int:
    """A number or name of the field; 7 stays 7, because ranges need it."""
    if text in field.names:
        return field.low + field.names.index(text)
    if not (text.isascii() and text.isdigit()):
        raise _not_understood(field, text)
    number, top = int(text[:9]), field.top or field.high
    if not field.low <= number <= top:
        if field in (SECOND, MINUTE, HOUR) and number == field.high + 1:
            nearest = field.low  # 24 o'clock, minute 60: the next one's zero
        else:
            nearest = field.low if number < field.low else top
        raise BadField(
            f"has {number}, which is out of range; allowed are {field.allowed}",
            f"did you mean {nearest}?",
        )
    return number


def _not_understood(field: Field, text: str) -> BadField:
    allowed = f"has {text!r}, which is not understood; allowed are {field.allowed}"
    if not text:
        return BadField("has a range with one end missing", f"like {field.low}-{field.high}")
    if text == "H" or text.startswith("H("):
        return BadField("has H, a hash of the job's name", "name a value, and use 'jitter'")
    if text == "R":
        return BadField("has R, a random value", "name a value, and use 'jitter'")
    if "*" in text:
        return BadField(f"has {text!r}: '*' stands alone or before a step", "*/5")
    near = [name for name in field.names if text.startswith(name)]
    near = near or get_close_matches(text, field.names, n=1)
    return BadField(allowed, f"did you mean {near[0]}?" if near else "")
