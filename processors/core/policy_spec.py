"""Reads what bounds a job's ticks: start, end, max_runs, jitter, deadlines, calendars."""

from typing import Final

from schemas import limits
from schemas.commands import CalendarsSpec, JobSpec
from schemas.replies import Problem
from schemas.state import Calendars, ExcludedTimes, TickPolicy
from schemas.units import (
    DAY_MS,
    EPOCH_MS_MAX,
    EPOCH_MS_MIN,
    Unreadable,
    format_instant,
    parse_duration_ms,
    parse_instant,
)

from .calendars import DATA_VERSION, MOVED_PER_DAY_MAX, calendar_problems, moved_instant
from .cron_ticks import Rules
from .schedule import (
    AtSchedule,
    BoundedSchedule,
    EverySchedule,
    Planned,
    Schedule,
    count_ticks,
    next_tick,
    written_schedule,
)
from .zones import PINNED, UnknownZone

WEEK_MS: Final = 7 * DAY_MS


def read_policy(spec: JobSpec, problems: list[Problem]) -> TickPolicy | None:
    """What differs from the defaults; None if nothing does. Adds what is wrong to `problems`."""
    calendars = _calendars(spec.calendars, problems) if spec.calendars is not None else None
    policy = TickPolicy(
        start_ms=_instant("start", spec.start, problems),
        end_ms=_instant("end", spec.end, problems),
        max_runs=_whole("max_runs", spec.max_runs, 0, limits.MAX_RUNS_MAX, problems),
        jitter_ms=_duration("jitter", spec.jitter, 0, limits.JITTER_MS_MAX, problems),
        start_deadline_ms=_duration(
            "start_deadline", spec.start_deadline, limits.START_DEADLINE_MS_MIN,
            limits.START_DEADLINE_MS_MAX, problems,
        ),
        missed_limit=_whole(
            "missed_limit", spec.missed_limit, limits.MISSED_LIMIT_DEFAULT,
            limits.MISSED_LIMIT_MAX, problems,
        ),
        calendars=calendars,
    )  # fmt: skip
    if spec.missed_limit is not None and spec.missed != "all":
        problems.append(Problem("missed_limit", f"says nothing with missed: {spec.missed}",
                                "missed: all, or leave it out"))  # fmt: skip
    return None if policy == TickPolicy() and spec.missed == "latest" else policy


def bounded(plan: tuple[Schedule, ...], policy: TickPolicy) -> tuple[Planned, ...]:
    """The schedules within `start` and `end`, with their calendars. A one-off that lies outside is
    gone, and one that moves is where it moves to."""
    start_ms, end_ms = policy.start_ms or EPOCH_MS_MIN, policy.end_ms or EPOCH_MS_MAX
    if not (policy.start_ms or policy.end_ms or policy.calendars):
        return plan
    found: list[Planned] = []
    for schedule in plan:
        if isinstance(schedule, AtSchedule):
            at_ms = one_off_instant(schedule.at_ms, policy)
            if start_ms <= at_ms <= end_ms:
                found.append(AtSchedule(at_ms=at_ms))
        else:
            found.append(
                BoundedSchedule(
                    inner=schedule, start_ms=start_ms, end_ms=end_ms, calendars=policy.calendars
                )
            )
    return tuple(found)


def one_off_instant(at_ms: int, policy: TickPolicy | None) -> int:
    """Where the calendars move a one-off to."""
    calendars = policy.calendars if policy is not None else None
    if calendars is None or calendars.then == "skip":
        return at_ms
    return moved_instant(calendars, PINNED.zone(calendars.timezone), Rules("next", "first"), at_ms)


def policy_problems(plan: tuple[Planned, ...], policy: TickPolicy | None) -> list[Problem]:
    """What is wrong with a policy beside these schedules."""
    if policy is None:
        return []
    start_ms, end_ms = policy.start_ms, policy.end_ms
    if start_ms and end_ms and end_ms < start_ms:
        return [Problem("end", f"{format_instant(end_ms)} lies before start, "
                        f"{format_instant(start_ms)}")]  # fmt: skip
    if next_tick(plan, max(start_ms - 1, 0)) is None:
        field = "end" if end_ms else "start"
        return [Problem(field, "leaves no tick at all between start and end")]
    calendars = policy.calendars
    if calendars is None or calendars.then == "skip":
        return []
    most = 7 * MOVED_PER_DAY_MAX
    return [
        Problem("calendars.then", f"schedules[{n}] has more than {MOVED_PER_DAY_MAX} ticks a day, "
                "too many to move to other days", "skip")
        for n, schedule in enumerate(map(written_schedule, plan))
        if _ticks_in_a_week(schedule) > most
    ]  # fmt: skip


def _ticks_in_a_week(schedule: Schedule) -> int:
    first = next_tick((schedule,), EPOCH_MS_MIN if not isinstance(schedule, EverySchedule) else 0)
    if first is None:
        return 0
    return count_ticks((schedule,), first.at_ms - 1, first.at_ms + WEEK_MS)[0]


def policy_warnings(policy: TickPolicy | None, accepted_ms: int) -> tuple[str, ...]:
    """What a writer should hear about a policy that can be accepted."""
    if policy is None or not policy.end_ms or policy.end_ms >= accepted_ms:
        return ()
    return (f"end, {format_instant(policy.end_ms)}, has passed: no tick can follow",)


def _calendars(spec: CalendarsSpec, problems: list[Problem]) -> Calendars | None:
    found: list[Problem] = []
    if len(spec.exclude) > limits.EXCLUDED_SETS_MAX:
        found.append(Problem("calendars.exclude", f"{len(spec.exclude)} sets",
                             f"at most {limits.EXCLUDED_SETS_MAX}"))  # fmt: skip
    for n, one in enumerate(spec.exclude):
        size = len(one.dates) + len(one.weekly)
        if size > limits.EXCLUDED_DATES_MAX:
            found.append(Problem(f"calendars.exclude[{n}]", f"{size} dates and windows",
                                 f"at most {limits.EXCLUDED_DATES_MAX}"))  # fmt: skip
    timezone = spec.timezone if spec.timezone is not None else "UTC"
    try:
        PINNED.zone(timezone)
    except UnknownZone as unknown:
        found.append(Problem("calendars.timezone", f"{timezone!r} {unknown.message}", unknown.hint))
    calendars = Calendars(
        exclude=tuple(
            ExcludedTimes(dates=one.dates, country=one.country, subdivision=one.subdivision,
                          weekly=one.weekly)
            for one in spec.exclude
        ),
        then=spec.then, timezone=timezone,
        data=DATA_VERSION if any(one.country for one in spec.exclude) else "",
    )  # fmt: skip
    if not found:
        found += [
            Problem(p.field, f"{p.value!r} {p.message}" if p.value else p.message, p.hint)
            for p in calendar_problems(calendars, "calendars")
        ]
    problems += found
    return None if found else calendars


def _instant(field: str, text: str | None, problems: list[Problem]) -> int:
    if text is None:
        return 0
    try:
        at_ms = int(parse_instant(text))
    except Unreadable as error:
        problems.append(Problem(field, f"{error.value!r} {error.message}", error.hint))
        return 0
    if at_ms <= 0:
        problems.append(Problem(field, f"{text!r} lies before 1970", "a later instant"))
    return at_ms


def _duration(field: str, text: str | None, least: int, most: int, problems: list[Problem]) -> int:
    if text is None:
        return 0
    try:
        duration_ms = int(parse_duration_ms(text))
    except Unreadable as error:
        problems.append(Problem(field, f"{error.value!r} {error.message}", error.hint))
        return 0
    if not least <= duration_ms <= most:
        allowed = f"{least} ms to {most // 1_000} s" if least else f"at most {most // 1_000} s"
        problems.append(Problem(field, f"{text!r} is out of range", allowed))
    return duration_ms


def _whole(
    field: str, value: int | None, default: int, most: int, problems: list[Problem]
) -> int:  # fmt: skip
    if value is None:
        return default
    if not 1 <= value <= most:
        problems.append(Problem(field, f"{value} is out of range", f"1 to {most}"))
    return value
