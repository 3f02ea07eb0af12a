"""From a definition as written to one that can be run, or everything that is wrong with it.

Fields that the documentation names but that are not built yet are refused by name: nothing is
stored and ignored.
"""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final

import msgspec

from schemas import limits
from schemas.commands import JobSpec, ScheduleSpec
from schemas.replies import Problem
from schemas.state import JobDefinition, TickPolicy
from schemas.state import Schedule as StoredSchedule
from schemas.units import Unreadable, parse_duration_ms

from .policy_spec import bounded, policy_problems, policy_warnings, read_policy
from .problem import InvalidSchedule
from .schedule import AtSchedule, CronSchedule, EverySchedule, Planned, Schedule
from .schedule_input import read_schedule, schedule_warnings
from .target_spec import bound, check_target, choice

CONCURRENCY_BUILT: Final = ("forbid",)
CONCURRENCY_KNOWN: Final = ("forbid", "allow", "replace", "queue_one", "queue")
MISSED: Final = ("latest", "skip", "all")


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """A definition that can be run. Version, life and transaction are still open."""

    definition: JobDefinition
    plan: tuple[Planned, ...]
    warnings: tuple[str, ...]


def admit(
    tenant: str, job: str, spec: JobSpec, *, accepted_ms: int, namespace: str, decided_ms: int = 0
) -> Admitted | tuple[Problem, ...]:
    """Check the whole definition; every problem at once, or what can be run.

    Up to `decided_ms` the job's ticks are decided: `now` and `in` come after that, also where the
    command was appended before.
    """
    problems: list[Problem] = []
    tolerance_ms = _tolerance_ms(spec.late_tolerance, problems)
    stored, plan = _schedules(spec.schedules, accepted_ms, decided_ms, tolerance_ms, problems)
    targets = check_target(spec, namespace, problems)
    choice("concurrency", spec.concurrency, CONCURRENCY_BUILT, CONCURRENCY_KNOWN, problems)
    choice("missed", spec.missed, MISSED, MISSED, problems)
    policy = read_policy(spec, problems)
    if spec.max_attempts != 1:
        problems.append(
            Problem("max_attempts", f"{spec.max_attempts}: retries are not built yet", "1")
        )
    bound("name", len(spec.name), limits.NAME_CHARS_MAX, "characters", problems)
    bound("content_type", len(spec.content_type), 256, "characters", problems)
    if len(spec.payload) > limits.PAYLOAD_BYTES_MAX:
        problems.append(
            Problem(
                "payload",
                f"{len(spec.payload)} bytes are more than {limits.PAYLOAD_BYTES_MAX}",
                "send a reference to where the receiver can fetch the rest",
            )
        )
    if not problems:
        planned = plan_with(stored, policy)
        problems += policy_problems(planned, policy)
    if problems:
        return tuple(problems)
    definition = JobDefinition(
        txn=0, tenant=tenant, job=job, life=0, version=0, name=spec.name, schedules=stored,
        topic=targets.topic, http=targets.http, worker=targets.worker, payload=spec.payload,
        content_type=spec.content_type,
        concurrency=spec.concurrency, missed=spec.missed, late_tolerance_ms=tolerance_ms,
        max_attempts=spec.max_attempts, digest=digest(spec), policy=policy,
    )  # fmt: skip
    warnings = schedule_warnings(plan) + policy_warnings(policy, accepted_ms)
    return Admitted(definition, shared_plan(planned), warnings + targets.warnings)


def digest(spec: JobSpec) -> bytes:
    """Hash of the content as written: what was filled in takes no part."""
    return blake2b(canonical(spec), digest_size=16).digest()


def canonical(value: msgspec.Struct) -> bytes:
    """The same bytes for equal values, however they came about. What has its default is left out,
    so that a field that comes to be later changes nothing."""
    return _encode(_plain(value))


def _plain(value: Any) -> Any:
    """What is not as its default, by name; values of other kinds as they are."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if not isinstance(value, msgspec.Struct):
        return value
    names, parts_of, defaults = _fields(type(value))
    found = {}
    for name, part, default in zip(names, parts_of(value), defaults, strict=True):
        if part is not default and part != default:
            found[name] = part if type(part) in _SIMPLE else _plain(part)
    return found


_SIMPLE: Final = frozenset({str, bytes, int, bool, type(None)})


@cache
def _fields(
    kind: type[msgspec.Struct],
) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]:
    """Names of a struct's fields, what takes all their values, and their defaults."""
    fields = msgspec.structs.fields(kind)
    names = tuple(f.name for f in fields)
    assert len(names) > 1, "one name gives a value, not a tuple"
    defaults = tuple(
        f.default if f.default_factory is msgspec.NODEFAULT else f.default_factory() for f in fields
    )
    return names, attrgetter(*names), defaults


def plan_of(definition: JobDefinition) -> tuple[Planned, ...]:
    """The stored schedules as they are asked for ticks."""
    return shared_plan(plan_with(definition.schedules, definition.policy))


def plan_with(
    schedules: tuple[StoredSchedule, ...], policy: TickPolicy | None
) -> tuple[Planned, ...]:
    """The schedules within what `start`, `end` and calendars leave of them."""
    plan = tuple([_runnable(schedule) for schedule in schedules])
    return plan if policy is None else bounded(plan, policy)


@lru_cache(maxsize=16_384)
def shared_plan(plan: tuple[Planned, ...]) -> tuple[Planned, ...]:
    """One object for equal plans: many jobs have the same, and it takes room in memory once."""
    return plan


_encode: Final = msgspec.msgpack.Encoder(order="sorted").encode


def _runnable(stored: StoredSchedule) -> Schedule:
    match stored.kind:
        case "cron":
            return _cron(stored.cron, stored.timezone, stored.gap, stored.repeat)
        case "every":
            return EverySchedule(every_ms=stored.every_ms, anchor_ms=stored.anchor_ms)
        case "at":
            return AtSchedule(at_ms=stored.at_ms)


@lru_cache(maxsize=16_384)
def _cron(cron: str, timezone: str, gap: str, repeat: str) -> CronSchedule:
    """Shared by all jobs that are written alike."""
    return CronSchedule(cron=cron, timezone=timezone, gap=gap, repeat=repeat)


def _store(schedule: Schedule, written: str) -> StoredSchedule:
    match schedule:
        case CronSchedule():
            return StoredSchedule(
                kind="cron", cron=schedule.cron, timezone=schedule.timezone, gap=schedule.gap,
                repeat=schedule.repeat, written=written,
            )  # fmt: skip
        case EverySchedule():
            return StoredSchedule(
                kind="every", every_ms=schedule.every_ms, anchor_ms=schedule.anchor_ms,
                written=written,
            )  # fmt: skip
        case AtSchedule():
            return StoredSchedule(kind="at", at_ms=schedule.at_ms, written=written)


def _schedules(
    specs: tuple[ScheduleSpec, ...],
    accepted_ms: int,
    decided_ms: int,
    tolerance_ms: int,
    problems: list[Problem],
) -> tuple[tuple[StoredSchedule, ...], tuple[Schedule, ...]]:
    if not 1 <= len(specs) <= limits.SCHEDULES_MAX:
        problems.append(
            Problem("schedules", f"{len(specs)} schedules", f"one to {limits.SCHEDULES_MAX}")
        )
    stored, plan = [], []
    for n, spec in enumerate(specs[: limits.SCHEDULES_MAX]):
        try:
            schedule = _read_schedule(spec, accepted_ms, tolerance_ms, f"schedules[{n}]")
        except InvalidSchedule as invalid:
            problems += [_told(problem) for problem in invalid.problems]
            continue
        if isinstance(schedule, AtSchedule) and spec.at is None and schedule.at_ms <= decided_ms:
            schedule = AtSchedule(at_ms=decided_ms + 1)
        stored.append(_store(schedule, _written(spec)))
        plan.append(schedule)
    return tuple(stored), tuple(plan)


def _told(problem: Any) -> Problem:
    value = f"{problem.value!r} " if problem.value != "" else ""
    return Problem(problem.field, f"{value}{problem.message}", problem.hint)


def _read_schedule(spec: ScheduleSpec, accepted_ms: int, tolerance_ms: int, field: str) -> Schedule:
    if spec.cron is not None:  # the kind that herds share: read once
        return _read_cron_spec(spec, field)
    return read_schedule(
        written_form(spec), accepted_ms=accepted_ms, field=field, late_tolerance_ms=tolerance_ms
    )


@lru_cache(maxsize=16_384)
def _read_cron_spec(spec: ScheduleSpec, field: str) -> Schedule:
    return read_schedule(written_form(spec), accepted_ms=0, field=field)


@lru_cache(maxsize=16_384)
def _written(spec: ScheduleSpec) -> str:
    return msgspec.json.encode(written_form(spec)).decode()


def written_form(spec: ScheduleSpec) -> Mapping[str, object]:
    """A schedule as users write it in JSON: what is not set is not there."""
    form: dict[str, object] = {
        name: value
        for name, value in (
            ("cron", spec.cron), ("timezone", spec.timezone), ("every", spec.every),
            ("anchor", spec.anchor), ("at", spec.at), ("in", spec.in_), ("now", spec.now),
        )
        if value is not None
    }  # fmt: skip
    dst = {
        name: value
        for name, value in (("gap", spec.gap), ("repeat", spec.repeat))
        if value is not None
    }
    return form | {"dst": dst} if dst else form


def _tolerance_ms(text: str, problems: list[Problem]) -> int:
    if text == "60s":
        return limits.LATE_TOLERANCE_MS_DEFAULT
    try:
        tolerance_ms = int(parse_duration_ms(text))
    except Unreadable as error:
        problems.append(Problem("late_tolerance", f"{error.value!r} {error.message}", error.hint))
        return limits.LATE_TOLERANCE_MS_DEFAULT
    if tolerance_ms > limits.LATE_TOLERANCE_MS_MAX:
        problems.append(Problem("late_tolerance", f"{text} is longer than a day", "at most 24h"))
    return tolerance_ms
