"""Schedules as users write them: plain values in, a schedule or all problems at once out.

Five kinds, told apart by their key: `cron` (with `timezone`, `dst`), `every` (with `anchor`),
`at` (with `timezone`, `dst` for a local time), `in`, `now`. What is relative is resolved against
`accepted_ms`, the instant at which the command was accepted.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, Literal

from schemas.units import (
    EPOCH_MS_MAX,
    EPOCH_MS_MIN,
    SECOND_MS,
    Unreadable,
    format_duration,
    format_instant,
    parse_duration_ms,
    parse_instant,
    parse_local,
)

from .cron import parse_cron
from .cron_ticks import GAPS, REPEATS
from .problem import InvalidSchedule, Problem
from .schedule import (
    SCHEDULES_MAX,
    AtSchedule,
    CronSchedule,
    EverySchedule,
    Planned,
    Schedule,
    written_schedule,
)
from .zones import PINNED, UnknownZone, Zone, ZoneData, local_to_instant

EVERY_MS_MIN: Final = 1_000
EVERY_MS_MIN_PRECISE: Final = 100  # of jobs with precision: millisecond
LATE_TOLERANCE_MS: Final = 60_000
_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "cron": ("timezone", "dst"),
    "every": ("anchor",),
    "at": ("timezone", "dst"),
    "in": (),
    "now": (),
}


def read_schedule(
    written: Mapping[str, object],
    *,
    accepted_ms: int,
    default_zone: str = "UTC",
    field: str = "schedule",
    every_ms_min: int = EVERY_MS_MIN,
    late_tolerance_ms: int = LATE_TOLERANCE_MS,
    zones: ZoneData = PINNED,
) -> Schedule:
    """The schedule that was written. Raises `InvalidSchedule` with every problem found.

    `field` is the path that problems name, such as `schedules[0]`.
    """
    read = Reading(written, field, zones)
    kind = read.kind()
    schedule: Schedule | None = None
    if kind == "cron":
        schedule = read_cron(read, default_zone)
    elif kind == "every":
        schedule = _read_every(read, accepted_ms, every_ms_min)
    elif kind == "at":
        schedule = _read_at(read, accepted_ms - late_tolerance_ms)
    elif kind == "in":
        schedule = _read_in(read, accepted_ms)
    elif kind == "now":
        if written["now"] is not True:
            read.problem("now", "says nothing unless it is true", "now: true")
        schedule = AtSchedule(at_ms=accepted_ms)
    if read.problems or schedule is None:
        raise InvalidSchedule(*read.problems)
    return schedule


def read_schedules(
    written: Iterable[Mapping[str, object]],
    *,
    accepted_ms: int,
    default_zone: str = "UTC",
    every_ms_min: int = EVERY_MS_MIN,
    zones: ZoneData = PINNED,
) -> tuple[Schedule, ...]:
    """A job's one to ten schedules. Raises `InvalidSchedule` with the problems of all of them."""
    schedules: list[Schedule] = []
    problems: list[Problem] = []
    for n, one in enumerate(written):
        try:
            schedule = read_schedule(
                one,
                accepted_ms=accepted_ms,
                default_zone=default_zone,
                field=f"schedules[{n}]",
                every_ms_min=every_ms_min,
                zones=zones,
            )
        except InvalidSchedule as invalid:
            problems += invalid.problems
        else:
            schedules.append(schedule)
    problems += count_problems(len(schedules) if not problems else 1)
    if problems:
        raise InvalidSchedule(*problems)
    return tuple(schedules)


def schedule_warnings(schedules: tuple[Planned, ...]) -> tuple[str, ...]:
    """What a writer should be told about valid schedules that may not mean what they look like."""
    return tuple(
        f"{schedule.cron!r}: {warning}"
        for schedule in map(written_schedule, schedules)
        if isinstance(schedule, CronSchedule)
        for warning in parse_cron(schedule.cron).warnings
    )


class Reading:
    """One written schedule and the problems found in it so far."""

    def __init__(self, written: Mapping[str, object], field: str, zones: ZoneData) -> None:
        self.written = written
        self.field = field
        self.zones = zones
        self.problems: list[Problem] = []

    def problem(self, key: str, message: str, hint: str = "", *, value: object = None) -> None:
        at = f"{self.field}.{key}" if self.field and key else self.field or key or "schedule"
        shown = self.written.get(key) if value is None else value
        self.problems.append(
            Problem(field=at, value="" if shown is None else str(shown), message=message, hint=hint)
        )

    def kind(self) -> str | None:
        kinds = [key for key in _KINDS if key in self.written]
        if len(kinds) != 1:
            told = f"names {' and '.join(kinds)}" if kinds else "names no kind of schedule"
            self.problem("", f"{told}; exactly one is needed of cron, every, at, in, now", value="")
            return None
        allowed = (kinds[0], *_KINDS[kinds[0]])
        for key in self.written:
            if key not in allowed:
                near = ["timezone"] if key == "tz" else get_close_matches(key, allowed, n=1)
                self.problem(
                    key,
                    f"is no field of a schedule of kind {kinds[0]!r}; allowed are "
                    + ", ".join(allowed),
                    f"did you mean {near[0]!r}?" if near else "",
                )
        return kinds[0]

    def text(self, key: str) -> str | None:
        value = self.written.get(key)
        if isinstance(value, str):
            return value
        if key in self.written:
            self.problem(key, f"is {type(value).__name__}, not text", f'like "{value}" in quotes')
        return None

    def zone(self, name: str) -> Zone | None:
        try:
            return self.zones.zone(name)
        except UnknownZone as unknown:
            self.problem("timezone", unknown.message, unknown.hint, value=name)
            return None

    def dst(self) -> tuple[str, str]:
        written = self.written.get("dst", {})
        if not isinstance(written, Mapping):
            self.problem("dst", "is no mapping", "like {gap: next, repeat: first}")
            return "auto", "auto"
        chosen = []
        for key, allowed in (("gap", GAPS), ("repeat", REPEATS)):
            value = written.get(key, "auto")
            if value not in allowed:
                self.problem(f"dst.{key}", f"must be one of {', '.join(allowed)}", value=value)
                value = "auto"
            chosen.append(str(value))
        for key in written:
            if key not in ("gap", "repeat"):
                self.problem(f"dst.{key}", "is no field of dst; allowed are gap, repeat")
        return chosen[0], chosen[1]


def count_problems(count: int) -> list[Problem]:
    if 1 <= count <= SCHEDULES_MAX:
        return []
    message = f"a job has 1 to {SCHEDULES_MAX} schedules, not {count}"
    return [Problem(field="schedules", value=str(count), message=message)]


def read_cron(read: Reading, default_zone: str) -> CronSchedule | None:
    text = read.text("cron")
    if text is not None:
        try:
            parse_cron(text)
        except InvalidSchedule as invalid:
            for bad in invalid.problems:
                where = "" if bad.field == "expression" else f"{bad.field} {bad.value!r} "
                read.problem("cron", where + bad.message, bad.hint)
    timezone = read.text("timezone") if "timezone" in read.written else default_zone
    if timezone is not None:
        read.zone(timezone)
    gap, repeat = read.dst()
    if text is None or timezone is None:
        return None
    return CronSchedule(cron=text, timezone=timezone, gap=gap, repeat=repeat)


def _read_every(read: Reading, accepted_ms: int, every_ms_min: int) -> EverySchedule | None:
    every_ms = _read_duration(read, "every")
    if every_ms is not None:
        check_every(read, every_ms, every_ms_min)
    anchor_ms: int | None = accepted_ms
    if "anchor" in read.written:
        anchor_ms = _read_instant(read, "anchor")
    if every_ms is None or anchor_ms is None:
        return None
    return EverySchedule(every_ms=every_ms, anchor_ms=anchor_ms)


def _read_at(read: Reading, oldest_ms: int) -> AtSchedule | None:
    text = read.text("at")
    zone_name = read.text("timezone")
    zone = read.zone(zone_name) if zone_name is not None else None
    gap, repeat = read.dst()
    if text is None or (zone_name is not None and zone is None):
        return None
    try:
        local_ms = parse_local(text)
        at_ms: int | None
        if local_ms is None or zone is None:
            at_ms = parse_instant(text)
            if zone is not None:
                _check_offset(read, text, at_ms, zone)
        else:
            at_ms = _resolve_local(read, local_ms, zone, gap, repeat)
    except Unreadable as unreadable:
        hint = unreadable.hint
        if "neither an offset nor a zone" in unreadable.message:
            hint += ", or name its zone in 'timezone'"
        read.problem("at", unreadable.message, hint)
        return None
    if at_ms is None:
        return None
    if at_ms < oldest_ms:
        read.problem("at", f"has passed: it is {format_instant(at_ms)}", "use 'now' to run at once")
    check_instant(read, "at", at_ms)
    return AtSchedule(at_ms=at_ms)


def _resolve_local(read: Reading, local_ms: int, zone: Zone, gap: str, repeat: str) -> int | None:
    if repeat == "both":
        read.problem(
            "dst.repeat", "cannot be both for a single instant", "first or second", value=repeat
        )
        return None
    local_s, ms = divmod(local_ms, SECOND_MS)
    chosen_gap: Literal["next", "skip", "shift"] = (
        "skip" if gap == "skip" else "shift" if gap == "shift" else "next"
    )
    chosen_repeat: Literal["first", "second"] = "second" if repeat == "second" else "first"
    at_s = local_to_instant(zone, local_s, gap=chosen_gap, repeat=chosen_repeat)
    if at_s is None:
        read.problem(
            "at", f"does not exist in {zone.name}: clocks skip it", "dst.gap: next, or shift"
        )
        return None
    exists = local_to_instant(zone, local_s, gap="skip") is not None
    # The first instant after a gap is a whole second; a time that exists keeps its milliseconds.
    return at_s * SECOND_MS + (ms if exists or chosen_gap == "shift" else 0)


def _check_offset(read: Reading, text: str, at_ms: int, zone: Zone) -> None:
    """An offset and a zone may both be given if they agree."""
    offset_ms = zone.offset_s(at_ms // SECOND_MS) * SECOND_MS
    shown = format_instant(at_ms + offset_ms)[:19]
    if shown[:16] != text[:16].upper().replace(" ", "T"):
        read.problem(
            "at",
            f"disagrees with its zone: at that instant the clock in {zone.name} shows {shown}",
            "leave out the offset or 'timezone'",
        )


def _read_in(read: Reading, accepted_ms: int) -> AtSchedule | None:
    delay_ms = _read_duration(read, "in")
    if delay_ms is None:
        return None
    check_instant(read, "in", accepted_ms + delay_ms)
    return AtSchedule(at_ms=accepted_ms + delay_ms)


def _read_duration(read: Reading, key: str) -> int | None:
    text = read.text(key)
    try:
        return parse_duration_ms(text) if text is not None else None
    except Unreadable as unreadable:
        read.problem(key, unreadable.message, unreadable.hint)
        return None


def _read_instant(read: Reading, key: str) -> int | None:
    text = read.text(key)
    try:
        return parse_instant(text) if text is not None else None
    except Unreadable as unreadable:
        read.problem(key, unreadable.message, unreadable.hint)
        return None


def check_every(read: Reading, every_ms: int, every_ms_min: int) -> None:
    if every_ms < every_ms_min:
        read.problem(
            "every",
            f"is shorter than the minimum of {format_duration(every_ms_min)}",
            f"{format_duration(every_ms_min)} or more",
            value=format_duration(max(every_ms, 0)),
        )


def check_instant(read: Reading, key: str, at_ms: int) -> None:
    if not EPOCH_MS_MIN <= at_ms <= EPOCH_MS_MAX:
        read.problem(key, "lies outside the years 1 to 9999", value=at_ms)
