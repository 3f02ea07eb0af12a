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
from schemas.state import JobDefinition, Schedule
from schemas.units import format_instant

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
NO_DEFINITION: Final = "events of jobs whose definition is not retained"


class Due:
    """What a job's schedules ask for next."""

    __slots__ = (
        "after_ms", "born_ms", "cursor_known", "decided", "definition", "known", "late",
        "newest_ms", "plan", "status", "where",
    )  # fmt: skip

    def __init__(self) -> None:
        self.definition: JobDefinition | None = None
        self.plan: Plan = ()
        self.status = ""
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
            if due.known and next_ms is not None and next_ms <= wall_ms - OVERDUE_MS:
                told = f"nothing tells of {job} at {format_instant(next_ms)}, though its partition"
                told += f" had an owner until {format_instant(wall_ms)}"
                yield Violation("I3", due.where, told)

    def forget(self, job: str) -> None:
        """The job's state is gone."""
        self.jobs.pop(job, None)

    def next_of(self, due: Due) -> int | None:
        """The tick that the next record must be about; None: there is none."""
        if due.status not in ("ACTIVE", "PAUSED"):
            return None
        if due.late:
            return due.late[0]
        plan = due.plan if due.status == "ACTIVE" else _one_offs(due.plan)
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
        plan = definition.schedules
        ticking = due.status == "PAUSED" or self.next_of(due) is not None
        if not (due.known and ticking and _asks(due.plan) == _asks(plan)):
            yield from self._overdue(event, due, at_ms)
            oldest_ms = max(at_ms - definition.late_tolerance_ms, due.newest_ms + 1)
            times = {one.at_ms for one in _one_offs(plan)}
            due.late = sorted(one for one in times if oldest_ms <= one <= at_ms)
            due.after_ms = max(at_ms, due.newest_ms)
            due.known = due.cursor_known
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
        if not judged or not plan:
            return
        if missed.exact:
            tardy = sum(missed.first <= one <= missed.last for one in late)
            since_ms = before_ms if tardy else missed.first - 1
            asks = plan if due.status != "PAUSED" else _one_offs(plan)
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
        cron = any(schedule.kind == "cron" for schedule in due.plan)
        if cron and self._tz and tz and tz != self._tz:
            self._tally.leave_out(OTHER_ZONE_DATA)
            due.known = False
        next_ms = self.next_of(due)
        one_off = any(one.at_ms == first_ms for one in _one_offs(due.plan))
        if due.known and first_ms != next_ms and not (one_off and first_ms <= due.after_ms):
            yield Violation("I3", event.where, self._wrong(event, due, first_ms, next_ms))
        due.late = [one for one in due.late if one > last_ms]
        due.after_ms = max(due.after_ms, last_ms)
        due.known |= due.status in ("ACTIVE", "PAUSED")
        due.cursor_known = True

    def _wrong(self, event: Event, due: Due, at_ms: int, next_ms: int | None) -> str:
        shown = f"{event.job} at {format_instant(at_ms)}"
        if not self._windows.asks_for(due.plan, at_ms):
            return f"{shown} is no tick of its schedules"
        if next_ms is not None and next_ms < at_ms:
            return f"nothing tells of {event.job} at {format_instant(next_ms)}, before {shown}"
        return f"{shown} was covered before"


def _one_offs(plan: Plan) -> Plan:
    return tuple(schedule for schedule in plan if schedule.kind == "at")


def _asks(plan: Plan) -> list[tuple[object, ...]]:
    """What a plan asks for, however it was written."""
    return [_shape(schedule) for schedule in plan]


def _shape(s: Schedule) -> tuple[object, ...]:
    return s.kind, s.cron, s.timezone, s.gap, s.repeat, s.every_ms, s.anchor_ms, s.at_ms
