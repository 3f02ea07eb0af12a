"""Time zones from the pinned `tzdata` package, never the host's, as lists of clock changes.

A `Stretch` is a span of time in which a zone's clock runs undisturbed. All daylight-saving rules
are written in terms of stretches and their borders: where the clock jumps ahead there is a gap of
local times that do not exist, where it is put back local times repeat.
"""

import struct
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import BytesIO
from itertools import pairwise
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from schemas.units import EPOCH_MS_MAX, EPOCH_MS_MIN

FOREVER_S: Final = 1 << 62
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_FIRST_S: Final = EPOCH_MS_MIN // 1000
_LAST_S: Final = EPOCH_MS_MAX // 1000
_YEAR_S: Final = 31_556_952
_WEEK_S: Final = 7 * 86_400
_ROUGH_S: Final = 26 * 3600  # no offset is larger, so no local time is further from its instant


class UnknownZone(ValueError):
    """No zone of that name. Ask the writer again, showing `hint`."""

    def __init__(self, name: str, data_version: str, hint: str) -> None:
        self.name = name
        self.message = f"is no time zone of the IANA database (tzdata {data_version})"
        self.hint = hint
        super().__init__(f"{name!r} {self.message}; {hint}")


class Stretch(NamedTuple):
    """A span [start_s, end_s) of UTC seconds with one offset, and the offsets on either side."""

    start_s: int
    end_s: int
    before_s: int  # offset until start_s
    offset_s: int
    after_s: int  # offset from end_s on


class Zone:
    """One zone's clock. Immutable; compared by identity."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self._info = ZoneInfo.from_file(BytesIO(data), key=name)
        listed = [at_s for at_s in _change_times(data) if _FIRST_S < at_s <= _LAST_S]
        self._changes_s, self._offsets_s = self._changes_of_offset(listed)
        # After the last listed time a rule holds: one offset for ever, or changes every year.
        self.listed_until_s = listed[-1] if listed else 0
        self._changes_for_ever = bool(
            _changes_between(self, self.listed_until_s, self.listed_until_s + 2 * _YEAR_S)
        )
        self._listed_end_s = self.listed_until_s if self._changes_for_ever else FOREVER_S

    def offset_s(self, at_s: int) -> int:
        """Seconds that the local clock is ahead of UTC at an instant."""
        try:
            offset = (_EPOCH + timedelta(seconds=at_s)).astimezone(self._info).utcoffset()
        except OverflowError:  # within a day of the year 1 or 9999
            inward = 2 * 86_400 if at_s < 0 else -2 * 86_400
            offset = (_EPOCH + timedelta(seconds=at_s + inward)).astimezone(self._info).utcoffset()
        return (offset or timedelta()) // _SECOND

    def stretch(self, at_s: int) -> Stretch:
        """The stretch that contains an instant.

        Where changes go on for ever a stretch also ends with each year, changing nothing.
        """
        if at_s < self.listed_until_s or not self._changes_for_ever:
            changes, offsets = self._changes_s, self._offsets_s
            i = bisect_right(changes, at_s)
            return Stretch(
                changes[i - 1] if i else -FOREVER_S,
                changes[i] if i < len(changes) else self._listed_end_s,
                offsets[i - 1] if i else offsets[0],
                offsets[i],
                offsets[min(i + 1, len(changes))],
            )
        year = (_EPOCH + timedelta(seconds=min(at_s, _LAST_S))).year
        stretches = _stretches_of_year(self, year)
        return stretches[bisect_right(stretches, at_s, key=_start_s) - 1]

    def _changes_of_offset(self, listed: list[int]) -> tuple[list[int], list[int]]:
        """The listed times at which the offset changes, and the offsets around them."""
        changes: list[int] = []
        offsets = [self.offset_s(listed[0] - 1 if listed else 0)]
        for at_s in listed:
            offset_s = self.offset_s(at_s)
            if offset_s != offsets[-1]:
                changes.append(at_s)
                offsets.append(offset_s)
        return changes, offsets


def _start_s(stretch: Stretch) -> int:
    return stretch.start_s


def _change_times(data: bytes) -> tuple[int, ...]:
    """The instants of a TZif file's 64-bit block (RFC 8536), in seconds."""
    head = struct.Struct(">4sc15x6I")
    magic, version, isut, isstd, leap, times, types, chars = head.unpack_from(data)
    if magic != b"TZif" or version < b"2":
        raise ValueError("no TZif file of version 2 or later")
    body = head.size + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    times = head.unpack_from(data, body)[5]
    return struct.unpack_from(f">{times}q", data, body + head.size)


def _changes_between(zone: Zone, low_s: int, high_s: int) -> list[int]:
    """Changes of offset in (low_s, high_s], found by halving; none may be closer than a week."""
    found = []
    for left in range(low_s, high_s, _WEEK_S):
        a, b = left, min(left + _WEEK_S, high_s)
        if zone.offset_s(a) == zone.offset_s(b):
            continue
        while b - a > 1:
            middle = (a + b) // 2
            a, b = (middle, b) if zone.offset_s(middle) == zone.offset_s(a) else (a, middle)
        found.append(b)
    return found


@lru_cache(maxsize=8_192)
def _stretches_of_year(zone: Zone, year: int) -> list[Stretch]:
    """The stretches of a year that follows the zone's last listed change."""
    year_s = (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // _SECOND
    next_s = year_s + (366 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 365) * 86_400
    low_s = max(year_s, zone.listed_until_s)
    inner = [at_s for at_s in _changes_between(zone, low_s, next_s) if at_s < next_s]
    borders = [low_s, *inner, next_s]
    return [
        Stretch(a, b, zone.offset_s(a - 1), zone.offset_s(a), zone.offset_s(b))
        for a, b in pairwise(borders)
    ]


class ZoneData:
    """One version of the zone data. Several may be in use side by side."""

    def __init__(self, data_version: str, root: Traversable) -> None:
        self.version = data_version
        self._root = root
        listed = root.joinpath("zones").read_bytes().decode().split("\n")
        self.names = frozenset(name for name in listed if name)
        self._zones: dict[str, Zone] = {}  # loaded so far; bounded by `names`

    def zone(self, name: str) -> Zone:
        """The zone with exactly this name; aliases count. Raises `UnknownZone`."""
        zone = self._zones.get(name)
        if zone is None:
            if name not in self.names:
                raise UnknownZone(name, self.version, self._nearest(name))
            data = self._root.joinpath("zoneinfo", *name.split("/")).read_bytes()
            zone = self._zones[name] = Zone(name, data)
        return zone

    def _nearest(self, name: str) -> str:
        by_case = {known.casefold(): known for known in self.names}
        trimmed = name.strip().casefold().replace(" ", "_")
        if right := by_case.get(trimmed):
            return f"the right spelling is {right!r}"
        if offset_hint := _offset_hint(trimmed):
            return offset_hint
        near = get_close_matches(trimmed[:64], by_case, n=1, cutoff=0.75)
        if near:
            return f"did you mean {by_case[near[0]]!r}?"
        return "use a name like 'Europe/Paris', 'America/New_York' or 'UTC'"


def _offset_hint(trimmed: str) -> str:
    """A hint for `UTC+3` and its like, whose names in the database have the opposite sign."""
    digits = trimmed.removeprefix("utc").removeprefix("gmt")
    if digits[:1] not in ("+", "-") or not digits[1:3].split(":")[0].isdigit():
        return ""
    hours, minutes = int(digits[1:3].split(":")[0]), digits[3:].strip(":")
    if hours > 12 or minutes.strip("0"):
        return "name a place, such as 'Asia/Kolkata', not an offset"
    if not hours:
        return "use 'UTC'"
    sign = "-" if digits[0] == "+" else "+"
    return f"name a place, or use 'Etc/GMT{sign}{hours}' (its sign is the opposite: UTC{digits})"


PINNED: Final = ZoneData(version("tzdata"), files("tzdata"))


def local_to_instant(
    zone: Zone,
    local_s: int,
    *,
    gap: Literal["next", "skip", "shift"] = "next",
    repeat: Literal["first", "second"] = "first",
) -> int | None:
    """The UTC second of a local time; None only for a time in a gap with `skip`.

    A time in a gap becomes the first instant after it (`next`), or moves by the gap's length
    (`shift`). Of a time that occurs twice, `repeat` says which one is meant.
    """
    found: list[int] = []
    moved: int | None = None
    stretch = zone.stretch(local_s - _ROUGH_S)
    while True:
        if stretch.start_s <= local_s - stretch.offset_s < stretch.end_s:
            found.append(local_s - stretch.offset_s)
        if stretch.start_s + stretch.before_s <= local_s < stretch.start_s + stretch.offset_s:
            moved = stretch.start_s if gap == "next" else local_s - stretch.before_s
        if stretch.end_s > local_s + _ROUGH_S:
            break
        stretch = zone.stretch(stretch.end_s)
    if found:
        return found[0] if repeat == "first" else found[-1]
    return None if gap == "skip" else moved
