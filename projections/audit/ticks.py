"""Every tick that schedules ask for is covered by one record, and nothing else fires (I1, I2, I3,
I9, I16).

The schedules are asked apart from the scheduler (`windows`). A job's records come in its order, so
the next record must be about the next tick; nothing but the ticks that were decided is kept.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from schemas import limits
from schemas.events import ExecutionFired, JobChanged, TicksMissed
from schemas.state import JobDefinition, JobState, Schedule
from schemas.units import EPOCH_MS_MAX, EPOCH_MS_MIN, format_instant

from .entries import is_tick, occurrence_of
from .finding import Tally, Violation
from .history import Event
from .windows import Plan, Windows

GRACE_MS: Final = limits.CLOCK_SKEW_MS_MAX
"""A command acts at its append time, which is the broker's; ticks are decided by the owner's clock.
Within so much of a change nobody can tell which was first."""
OVERDUE_MS: Final = limits.UNOWNED_AFTER_MS
"""A tick that nothing tells of so long after its time, while there is an owner, is lost."""
OTHER_ZONE_DATA: Final = "ticks computed with other zone data than is installed here"
MOVED_TICKS: Final = "definitions whose calendars move ticks, or with one-offs among bounded ticks"
NO_DEFINITION: Final = "events of jobs whose definition is not retained"


class Due:
    """What a job's schedules ask for next."""

    __slots__ = (
        "after_ms", "born_ms", "cursor_known", "decided", "definition", "due_ms", "known",
        "late", "newest_ms", "plan", "status", "where",
    )  # fmt: skip

    def __init__(self) -> None:
        self.definition: JobDefinition | None = None
        self.plan = Plan()
        self.status = ""
        self.due_ms = 0
        """When its state says that the next tick is due."""
        self.after_ms = 0
        """Up to here everything is covered."""
        self.late: list[int] = []
        """One-offs of before the acceptance that run all the same."""
        self.decided = array("q")
        """Every tick that was claimed, in order."""
        self.newest_ms = 0
        """The last decided tick: the cursor."""
        self.cursor_known = True
        """Whether nothing was decided that is not retained."""
        self.born_ms = 0
        """What was decided in former lives."""
        self.known = False
        """Whether it is known what comes next."""
        self.where = ""

    def decide(self, at_ms: int) -> bool:
        """Note a claim; False: it was there before."""
        at = bisect_left(self.decided, at_ms)
        if at < len(self.decided) and self.decided[at] == at_ms:
            return False
        self.decided.insert(at, at_ms)
        return True


class TickChecks:
    """Folds the events of one partition's jobs. `tz` is the version of the installed zone data;
    empty: it is not compared."""

    def __init__(self, tally: Tally, tz: str) -> None:
        self._tally = tally
        self._tz = tz
        self._windows = Windows()
        self.jobs: dict[str, Due] = {}

    def see(self, event: Event) -> Iterator[Violation]:
        """What is wrong with this event in view of those before it."""
        due = self.jobs.get(event.job)
        if due is None:
            due = self.jobs[event.job] = Due()
        due.where = event.where
        if not event.anchored:
            due.known = due.cursor_known = False
        match event.entry.body:
            case JobChanged() as changed:
                yield from self._changed(event, due, changed)
            case ExecutionFired() as fired:
                yield from self._fired(event, due, fired)
            case TicksMissed() as missed:
                yield from self._missed(event, due, missed)
            case _:
                pass

    def end(self, wall_ms: int) -> Iterator[Violation]:
        """What is overdue, at an instant at which there was an owner."""
        for job, due in self.jobs.items():
            next_ms = self.next_of(due)
            if next_ms is not None and _has_policy(due):  # delayed, or caught up one by one
                next_ms = max(next_ms, due.due_ms)
            if due.known and next_ms is not None and next_ms <= wall_ms - OVERDUE_MS:
                told = f"nothing tells of {job} at {format_instant(next_ms)}, though its partition"
                told += f" had an owner until {format_instant(wall_ms)}"
                yield Violation("I3", due.where, told)

    def told(self, job: str, state: JobState) -> None:
        """What a state says that is not in the events: until when a policy lets the next tick wait,
        and that a job has run as often as it may."""
        due = self.jobs.get(job)
        if due is None:
            return
        due.due_ms = state.due_ms
        policy = due.definition.policy if due.definition is not None else None
        if policy is not None and policy.max_runs and state.status == "FINISHED":
            due.status, due.late = "FINISHED", []

    def forget(self, job: str) -> None:
        """The job's state is gone."""
        self.jobs.pop(job, None)

    def next_of(self, due: Due) -> int | None:
        """The tick that the next record must be about; None: there is none."""
        if due.status not in ("ACTIVE", "PAUSED"):
            return None
        if due.late:
            return due.late[0]
        plan = due.plan if due.status == "ACTIVE" else due.plan.one_offs
        return self._windows.next(plan, due.after_ms)

    # --- changes ---------------------------------------------------------------------------------

    def _changed(self, event: Event, due: Due, changed: JobChanged) -> Iterator[Violation]:
        at_ms = changed.at_ms
        match changed.change:
            case "put" if changed.definition is not None:
                yield from self._put(event, due, changed.definition, at_ms)
            case "pause":
                yield from self._overdue(event, due, at_ms)
                due.status, due.late = "PAUSED", []
                due.after_ms = max(due.newest_ms, at_ms)
            case "resume":
                yield from self._overdue(event, due, at_ms)
                due.status, due.late = "ACTIVE", []
                due.after_ms = max(due.newest_ms, at_ms)
            case "delete":
                yield from self._overdue(event, due, at_ms)
                due.status, due.late, due.born_ms = "DELETED", [], due.newest_ms
            case "break":
                due.status, due.late = "BROKEN", []
            case _:
                pass

    def _put(
        self, event: Event, due: Due, definition: JobDefinition, at_ms: int
    ) -> Iterator[Violation]:
        plan = _plan_of(definition)
        ticking = due.status == "PAUSED" or self.next_of(due) is not None
        if not (due.known and ticking and _asks(due.definition) == _asks(definition)):
            yield from self._overdue(event, due, at_ms)
            oldest_ms = max(at_ms - definition.late_tolerance_ms, due.newest_ms + 1)
            times = {one.at_ms for one in plan.one_offs.schedules}
            due.late = sorted(one for one in times if oldest_ms <= one <= at_ms)
            due.after_ms = max(at_ms, due.newest_ms)
            due.known = due.cursor_known and _is_judged(definition)
            if not _is_judged(definition):
                self._tally.leave_out(MOVED_TICKS)
        due.plan, due.definition = plan, definition
        if due.status != "PAUSED":
            due.status = "ACTIVE"

    def _overdue(self, event: Event, due: Due, at_ms: int) -> Iterator[Violation]:
        """Ticks that should have been decided before a change acted."""
        next_ms = self.next_of(due)
        if due.known and next_ms is not None and next_ms <= at_ms - GRACE_MS:
            told = f"nothing tells of {event.job} at {format_instant(next_ms)}, before this change"
            yield Violation("I3", event.where, told)

    # --- decisions -------------------------------------------------------------------------------

    def _fired(self, event: Event, due: Due, fired: ExecutionFired) -> Iterator[Violation]:
        self._tally.count("I1")
        self._tally.count("I2")
        tick, at_ms = is_tick(occurrence_of(fired.execution_id)), fired.scheduled_at
        early_ms = fired.due_at - fired.claimed_at
        if early_ms > (0 if tick else GRACE_MS):
            yield Violation("I1", event.where, f"claimed {early_ms} ms before it was due")
        if not tick:
            return
        if fired.due_at < at_ms:
            yield Violation("I1", event.where, f"due {at_ms - fired.due_at} ms before its tick")
        shown = f"{event.job} at {format_instant(at_ms)}"
        if not due.decide(at_ms):
            former = at_ms <= due.born_ms
            told = f"{shown} was claimed before" + (", in a former life" if former else "")
            yield Violation("I16" if former else "I2", event.where, told)
            return
        self._tally.count("I9")
        if due.status in ("PAUSED", "BROKEN"):
            told = f"{shown} was claimed while the job was {due.status}"
            yield Violation("I9", event.where, told)
        elif due.status == "DELETED":
            yield Violation("I16", event.where, f"{shown} was claimed after the delete")
        else:
            yield from self._covers(event, due, at_ms, at_ms, fired.tz)
        due.newest_ms = max(due.newest_ms, at_ms)

    def _missed(self, event: Event, due: Due, missed: TicksMissed) -> Iterator[Violation]:
        before_ms, late = due.after_ms, due.late
        plan, judged = due.plan, due.known
        yield from self._covers(event, due, missed.first, missed.last, "")
        due.newest_ms = max(due.newest_ms, missed.last)
        if not judged or not plan.schedules:
            return
        if missed.exact:
            tardy = sum(missed.first <= one <= missed.last for one in late)
            since_ms = before_ms if tardy else missed.first - 1
            asks = plan if due.status != "PAUSED" else plan.one_offs
            count = tardy + self._windows.count(asks, since_ms, missed.last, missed.count + 1)
            if count != missed.count:
                told = f"{missed.count} ticks of {event.job} are told as missed from "
                told += f"{format_instant(missed.first)} on, its schedules have "
                told += f"{count if count <= missed.count else 'more'}"
                yield Violation("I3", event.where, told)
        if missed.claimed_at < missed.first:
            yield Violation("I1", event.where, "told as missed before its time")

    def _covers(
        self, event: Event, due: Due, first_ms: int, last_ms: int, tz: str
    ) -> Iterator[Violation]:
        """A record about the ticks from `first_ms` to `last_ms` must be about the next one."""
        if due.definition is None:
            self._tally.leave_out(NO_DEFINITION)
            return
        self._tally.count("I3")
        cron = any(schedule.kind == "cron" for schedule in due.plan.schedules)
        if cron and self._tz and tz and tz != self._tz:
            self._tally.leave_out(OTHER_ZONE_DATA)
            due.known = False
        next_ms = self.next_of(due)
        one_off = any(one.at_ms == first_ms for one in due.plan.one_offs.schedules)
        if due.known and next_ms is not None and self._is_owed(event, due, next_ms, first_ms):
            # What a calendar excludes is told before the tick that runs instead, which is older.
            due.late, due.after_ms = [next_ms], max(due.after_ms, last_ms)
            return
        if due.known and first_ms != next_ms and not (one_off and first_ms <= due.after_ms):
            yield Violation("I3", event.where, self._wrong(event, due, first_ms, next_ms))
        due.late = [one for one in due.late if one > last_ms]
        due.after_ms = max(due.after_ms, last_ms)
        due.known |= due.status in ("ACTIVE", "PAUSED") and _is_judged(due.definition)
        due.cursor_known = True

    def _is_owed(self, event: Event, due: Due, next_ms: int, first_ms: int) -> bool:
        """Whether a record is about ticks that a calendar excludes, behind one that runs."""
        body, definition = event.entry.body, due.definition
        policy = definition.policy if definition is not None else None
        return (
            isinstance(body, TicksMissed)
            and body.reason == "calendar"
            and policy is not None
            and policy.calendars is not None
            and self._windows.next(due.plan, next_ms) == first_ms
        )

    def _wrong(self, event: Event, due: Due, at_ms: int, next_ms: int | None) -> str:
        shown = f"{event.job} at {format_instant(at_ms)}"
        if not self._windows.asks_for(due.plan, at_ms):
            return f"{shown} is no tick of its schedules"
        if next_ms is not None and next_ms < at_ms:
            return f"nothing tells of {event.job} at {format_instant(next_ms)}, before {shown}"
        return f"{shown} was covered before"


def _has_policy(due: Due) -> bool:
    return due.definition is not None and due.definition.policy is not None


def _plan_of(definition: JobDefinition) -> Plan:
    policy = definition.policy
    if policy is None:
        return Plan(definition.schedules)
    return Plan(
        definition.schedules, policy.start_ms or EPOCH_MS_MIN, policy.end_ms or EPOCH_MS_MAX
    )


def _is_judged(definition: JobDefinition) -> bool:
    """Whether the auditor can say when the job has ticks."""
    policy = definition.policy
    if policy is None:
        return True
    if policy.calendars is not None and policy.calendars.then != "skip":
        return False
    # Of one-offs among other ticks, those left behind at a change are told out of their order.
    kinds = [schedule.kind for schedule in definition.schedules]
    return "at" not in kinds or kinds == ["at"]


def _asks(definition: JobDefinition | None) -> list[object]:
    """What a definition asks for, however it was written."""
    if definition is None:
        return []
    policy = definition.policy
    moved = None
    if policy is not None and policy.calendars is not None and policy.calendars.then != "skip":
        moved = policy.calendars
    bounds = (policy.start_ms, policy.end_ms, moved) if policy is not None else None
    return [bounds, *(_shape(schedule) for schedule in definition.schedules)]


def _shape(s: Schedule) -> tuple[object, ...]:
    return s.kind, s.cron, s.timezone, s.gap, s.repeat, s.every_ms, s.anchor_ms, s.at_ms
