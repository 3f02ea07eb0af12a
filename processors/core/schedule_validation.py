"""Whether schedules that were not read from text can be run: decoded records, the SDK's values."""

from schemas.units import EPOCH_MS_MIN, format_instant

from .problem import Problem
from .schedule import AtSchedule, CronSchedule, EverySchedule, Schedule, next_tick
from .schedule_input import (
    EVERY_MS_MIN,
    Reading,
    check_every,
    check_instant,
    count_problems,
    read_cron,
)
from .zones import PINNED, ZoneData


def validate_schedules(
    schedules: tuple[Schedule, ...],
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    every_ms_min: int = EVERY_MS_MIN,
    zones: ZoneData = PINNED,
) -> tuple[Problem, ...]:
    """Everything that is wrong with a job's schedules; empty if they can be run."""
    problems = list(count_problems(len(schedules)))
    for n, schedule in enumerate(schedules):
        problems += validate_schedule(
            schedule, field=f"schedules[{n}]", every_ms_min=every_ms_min, zones=zones
        )
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        problems.append(
            Problem(
                field="end",
                value=format_instant(end_ms),
                message=f"lies before start, {format_instant(start_ms)}",
            )
        )
    elif not problems and end_ms is not None:
        first = next_tick(schedules, EPOCH_MS_MIN, start_ms=start_ms, end_ms=end_ms, zones=zones)
        if first is None:
            problems.append(
                Problem(
                    field="end",
                    value=format_instant(end_ms),
                    message="leaves no tick at all between start and end",
                )
            )
    return tuple(problems)


def validate_schedule(
    schedule: Schedule,
    *,
    field: str = "schedule",
    every_ms_min: int = EVERY_MS_MIN,
    zones: ZoneData = PINNED,
) -> tuple[Problem, ...]:
    """Everything that is wrong with one schedule."""
    match schedule:
        case CronSchedule():
            read = Reading(
                {
                    "cron": schedule.cron,
                    "timezone": schedule.timezone,
                    "dst": {"gap": schedule.gap, "repeat": schedule.repeat},
                },
                field,
                zones,
            )
            read_cron(read, schedule.timezone)
            return tuple(read.problems)
        case EverySchedule(every_ms=every_ms, anchor_ms=anchor_ms):
            read = Reading({}, field, zones)
            check_every(read, every_ms, every_ms_min)
            check_instant(read, "anchor", anchor_ms)
            return tuple(read.problems)
        case AtSchedule(at_ms=at_ms):
            read = Reading({}, field, zones)
            check_instant(read, "at", at_ms)
            return tuple(read.problems)
