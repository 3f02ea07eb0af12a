"""What schedules will do: their next ticks, with a remark wherever the clock changes."""

from collections.abc import Mapping
from typing import Final

import msgspec

from schemas.state import Calendars
from schemas.units import SECOND_MS, Unreadable, format_instant, parse_instant

from .cron import parse_cron
from .cron_match import matches, next_match
from .cron_ticks import Rules, resolve_rules
from .problem import InvalidSchedule, Problem
from .schedule import (
    CronSchedule,
    Planned,
    Schedule,
    Tick,
    first_tick,
    is_excluded,
    next_tick,
    written_schedule,
)
from .schedule_input import read_schedule, read_schedules
from .zones import PINNED, Stretch, ZoneData

COUNT_MAX: Final = 1_000
EXCLUDED: Final = "skipped: the job's calendars exclude this time"
_ENVELOPE: Final = ("after", "count", "start", "end", "schedules")


class PreviewTick(msgspec.Struct, frozen=True, kw_only=True):
    """One tick to come. Without jitter `effective` equals `at`."""

    at: str  # nominal, UTC
    effective: str  # nominal plus the job's own jitter, UTC
    local: str  # on the clock of `zone`: 2026-03-29T03:00:00
    offset: str  # +02:00
    zone: str
    notes: tuple[str, ...] = ()


def preview(
    schedules: tuple[Planned, ...],
    after_ms: int,
    count: int,
    *,
    jitter_offset_ms: int = 0,
    start_ms: int | None = None,
    end_ms: int | None = None,
    calendars: Calendars | None = None,
    display_zone: str = "UTC",
    zones: ZoneData = PINNED,
) -> list[PreviewTick]:
    """The next `count` ticks (at most 1,000) after `after_ms`; fewer if no more follow.

    As for a job accepted at `after_ms`: a one-off that is due at that very instant is the first.
    A tick that `calendars` exclude is listed, with a note that it is skipped.
    `display_zone` is the clock shown for schedules that have no zone of their own.
    """
    shown: list[PreviewTick] = []
    previous_ms = after_ms
    tick = first_tick(schedules, after_ms, start_ms=start_ms, end_ms=end_ms, zones=zones)
    while tick is not None and len(shown) < min(count, COUNT_MAX):
        zone = tick.zone or display_zone
        offset_s = zones.zone(zone).offset_s(tick.at_ms // SECOND_MS)
        local = format_instant(tick.at_ms + offset_s * SECOND_MS).rstrip("Z").removesuffix(".000")
        shown.append(
            PreviewTick(
                at=format_instant(tick.at_ms),
                effective=format_instant(tick.at_ms + jitter_offset_ms),
                local=local,
                offset=_offset_text(offset_s),
                zone=zone,
                notes=(
                    *clock_notes(schedules, tick, previous_ms, zones=zones),
                    *([EXCLUDED] if is_excluded(schedules, calendars, tick.at_ms, zones) else []),
                ),
            )
        )
        previous_ms = tick.at_ms
        tick = next_tick(schedules, previous_ms, start_ms=start_ms, end_ms=end_ms, zones=zones)
    return shown


def clock_notes(
    schedules: tuple[Planned, ...], tick: Tick, previous_ms: int, *, zones: ZoneData = PINNED
) -> tuple[str, ...]:
    """What clock changes have to do with this tick; `previous_ms` is the tick before it."""
    at_s = tick.at_ms // SECOND_MS
    notes: list[str] = []
    for schedule in map(written_schedule, schedules):
        if not isinstance(schedule, CronSchedule):
            continue
        own = next_tick((schedule,), tick.at_ms - 1, zones=zones)
        if own is None or own.at_ms != tick.at_ms:
            continue
        stretch = zones.zone(schedule.timezone).stretch(at_s)
        rules = resolve_rules(parse_cron(schedule.cron), schedule.gap, schedule.repeat)
        if stretch.offset_s > stretch.before_s:
            notes += _gap_notes(schedule, stretch, rules, at_s, previous_ms // SECOND_MS)
        notes += _repeat_notes(stretch, rules, at_s + stretch.offset_s)
    return tuple(dict.fromkeys(notes))


def _gap_notes(
    schedule: CronSchedule, stretch: Stretch, rules: Rules, at_s: int, previous_s: int
) -> list[str]:
    cron = parse_cron(schedule.cron)
    gap_low_s, gap_high_s = (
        stretch.start_s + stretch.before_s,
        stretch.start_s + stretch.offset_s,
    )
    skipped_s = next_match(cron, gap_low_s)
    if skipped_s is None or skipped_s >= gap_high_s:
        return []
    jump = f"the clock goes from {_clock(gap_low_s)} to {_clock(gap_high_s)}"
    if rules.gap == "next" and at_s == stretch.start_s:
        return [f"{_clock(skipped_s)} does not exist: {jump}; runs at the first instant after it"]
    made_up_s = at_s + stretch.before_s
    if rules.gap == "shift" and gap_low_s <= made_up_s < gap_high_s and matches(cron, made_up_s):
        return [f"{_clock(made_up_s)} does not exist: {jump}; runs later by the same length"]
    if rules.gap == "skip" and previous_s < stretch.start_s:
        return [f"{_clock(skipped_s)} was skipped just before: {jump}"]
    return []


def _repeat_notes(stretch: Stretch, rules: Rules, local_s: int) -> list[str]:
    start_s = stretch.start_s + stretch.offset_s
    end_s = stretch.end_s + stretch.offset_s
    if local_s < stretch.start_s + stretch.before_s:
        back, which = (
            f"from {_clock(stretch.start_s + stretch.before_s)} to {_clock(start_s)}",
            "second",
        )
    elif local_s >= stretch.end_s + stretch.after_s:
        back, which = f"from {_clock(end_s)} to {_clock(stretch.end_s + stretch.after_s)}", "first"
    else:
        return []
    told = f"{_clock(local_s)} occurs twice: the clock goes back {back}; "
    if rules.repeat == "both":
        return [f"{told}runs both times, this is the {which}"]
    return [f"{told}runs only the {which} time"]


def _clock(local_s: int) -> str:
    text = format_instant(local_s * SECOND_MS)
    return text[11:16] if text[17:19] == "00" else text[11:19]


def _offset_text(offset_s: int) -> str:
    sign, size_s = ("-", -offset_s) if offset_s < 0 else ("+", offset_s)
    text = f"{sign}{size_s // 3600:02d}:{size_s // 60 % 60:02d}"
    return f"{text}:{size_s % 60:02d}" if size_s % 60 else text


def cron_next_line(line: str, *, default_after_ms: int | None = None) -> str:
    """One JSON line of questions to one of answers: never raises, whatever the line is.

    `{"cron", "timezone"?, "dst"?, "after", "count"?, "start"?, "end"?}` or another kind of
    schedule, or `schedules` with a list, becomes `{"next": ["2026-03-29T01:30:00Z", …]}` or
    `{"error": {"message", "problems"}}`. What is relative counts from `after`.
    """
    try:
        answer: object = {"next": _answer(line, default_after_ms)}
    except InvalidSchedule as invalid:
        answer = {"error": {"message": str(invalid), "problems": invalid.problems}}
    return msgspec.json.encode(answer).decode()


def _answer(line: str, default_after_ms: int | None) -> list[str]:
    try:
        asked = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError) as error:
        shown = line[:80].encode("ascii", "backslashreplace").decode()
        raise _invalid("line", shown, f"is no JSON: {error}") from None
    if not isinstance(asked, dict):
        raise _invalid("line", line[:80], "is no JSON object", 'like {"cron": "0 2 * * *"}')
    after_ms = _instant(asked, "after", default_after_ms)
    if after_ms is None:
        raise _invalid("after", "", "is missing", "like 2026-03-29T00:00:00Z")
    count = asked.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= COUNT_MAX:
        raise _invalid("count", str(count), f"must be a whole number from 1 to {COUNT_MAX}")
    start_ms, end_ms = _instant(asked, "start", None), _instant(asked, "end", None)
    schedules = _schedules(asked, after_ms)
    found: list[str] = []
    tick = first_tick(schedules, after_ms, start_ms=start_ms, end_ms=end_ms)
    while tick is not None and len(found) < count:
        found.append(format_instant(tick.at_ms).replace(".000Z", "Z"))
        tick = next_tick(schedules, tick.at_ms, start_ms=start_ms, end_ms=end_ms)
    return found


def _schedules(asked: Mapping[str, object], after_ms: int) -> tuple[Schedule, ...]:
    if "schedules" not in asked:
        one = {key: value for key, value in asked.items() if key not in _ENVELOPE}
        return (read_schedule(one, accepted_ms=after_ms, field=""),)
    several = asked["schedules"]
    if not isinstance(several, list) or not all(isinstance(one, dict) for one in several):
        raise _invalid("schedules", str(several)[:80], "is no list of schedules")
    return read_schedules(several, accepted_ms=after_ms)


def _instant(asked: Mapping[str, object], key: str, default_ms: int | None) -> int | None:
    value = asked.get(key)
    if value is None:
        return default_ms
    try:
        return parse_instant(str(value))
    except Unreadable as unreadable:
        raise _invalid(key, str(value), unreadable.message, unreadable.hint) from None


def _invalid(field: str, value: str, message: str, hint: str = "") -> InvalidSchedule:
    return InvalidSchedule(Problem(field=field, value=value, message=message, hint=hint))
