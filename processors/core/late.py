"""Ticks of jobs that have a policy: what runs, what is passed over, and why.

A job without one (`definition.policy` is None) is decided by `job.decide_tick`, which this agrees
with for the defaults. Here each decision is about the job's next tick and, where that one came too
late, about every tick passed over with it:

    on time, or the tick that `missed` lets run ─▶ excluded by a calendar? SKIPPED(calendar)
                                                ─▶ older than start_deadline? MISSED(deadline)
                                                ─▶ runs
    the others ─▶ one record: MISSED(policy), or MISSED(deadline) where only that keeps them back

A decision costs a few questions to the schedules, however many ticks were passed over.
"""

from functools import lru_cache
from typing import Final

import msgspec

from schemas.events import TicksMissed
from schemas.limits import (
    CATCH_UP_LOOK_MS_MAX,
    CATCH_UP_LOOK_MS_MIN,
    CATCH_UP_PACE_MS,
    MISSED_COUNT_MAX,
    ON_TIME_MS,
)
from schemas.state import JobDefinition, JobState, TickPolicy

from .job import (
    Decision,
    Fire,
    Job,
    count_from,
    finished,
    following_tick,
    local_of,
    missed_record,
    missed_while_paused,
    offset_of,
    one_offs,
    runs_out,
)
from .keys import occurrence_of_tick
from .schedule import AtSchedule, Planned, count_ticks, excluded_since_ms, is_excluded

_replace: Final = msgspec.structs.replace


def decide_late_tick(
    job_key: str, job: Job, now_ms: int, txn: int, tz: str, upto_ms: int | None = None
) -> Decision:
    """Decide the job's next tick, which is due; as `job.decide_tick`, for a job with a policy."""
    assert job.definition is not None and 0 < job.state.due_ms <= now_ms
    if job.state.status == "PAUSED":
        return missed_while_paused(job_key, job, job.state.next_ms, now_ms, txn, tz)
    deciding = _Deciding(job_key, job, now_ms, txn, tz)
    until_ms = (now_ms if upto_ms is None else min(upto_ms, now_ms)) - deciding.offset_ms
    tick_ms = job.state.next_ms
    on_time = now_ms - deciding.effective_ms(tick_ms) <= deciding.tolerance_ms(tick_ms)
    if on_time and not deciding.catching_up():
        return deciding.one(tick_ms)
    match job.definition.missed:
        case "skip":
            return deciding.newest_if_on_time(until_ms)
        case "all":
            return deciding.oldest(until_ms)
        case _:
            return deciding.newest(until_ms)


class _Deciding:
    """One decision under way: what was recorded so far, and the way to its end."""

    def __init__(self, job_key: str, job: Job, now_ms: int, txn: int, tz: str) -> None:
        assert job.definition is not None
        self.job_key, self.job, self.now_ms, self.txn, self.tz = job_key, job, now_ms, txn, tz
        self.state: JobState = job.state
        self.definition: JobDefinition = job.definition
        self.policy = job.definition.policy or TickPolicy()
        self.offset_ms = offset_of(job.definition)
        self.missed: list[TicksMissed] = []

    # --- what the policies say ---------------------------------------------------------------

    def one(self, tick_ms: int) -> Decision:
        """A tick that runs unless a calendar or its deadline keeps it back."""
        if self._excluded(tick_ms):
            self._record("calendar", tick_ms, tick_ms)
            return self._end(tick_ms)
        if self._past_deadline(tick_ms):
            self._record("deadline", tick_ms, tick_ms)
            return self._end(tick_ms)
        return self._run(tick_ms)

    def newest(self, until_ms: int) -> Decision:
        """`latest`: of all that were passed over the newest runs that no calendar excludes."""
        first_ms = self.state.next_ms
        _, last_ms = self._count(first_ms, until_ms)
        run_ms = self._newest_not_excluded(first_ms, last_ms)
        if run_ms is None:
            self._record("calendar", first_ms, last_ms)
            return self._end(last_ms)
        if run_ms > first_ms:
            self._record("policy", first_ms, run_ms - 1)
        if run_ms < last_ms:
            following = following_tick(self.job, run_ms, self.state.since_ms)
            assert following is not None
            self._record("calendar", following.at_ms, last_ms)
        if self._past_deadline(run_ms):
            self._record("deadline", run_ms, run_ms)
            return self._end(last_ms)
        return self._run(run_ms, last_ms)

    def newest_if_on_time(self, until_ms: int) -> Decision:
        """`skip`: each tick is judged by its own lateness, which only the newest can pass."""
        first_ms = self.state.next_ms
        _, last_ms = self._count(first_ms, until_ms)
        if last_ms > first_ms and self.now_ms - self.effective_ms(last_ms) <= self.tolerance_ms(
            last_ms
        ):
            self._record("policy", first_ms, last_ms - 1)
            return self.one(last_ms)
        self._record("policy", first_ms, last_ms)
        return self._end(last_ms)

    def oldest(self, until_ms: int) -> Decision:
        """`all`: the oldest of the newest `missed_limit` runs, as soon as the one before is over;
        the next follows after a pause."""
        tick_ms = self.state.next_ms
        if self.policy.start_deadline_ms:
            dead_ms = self.now_ms - self.policy.start_deadline_ms - self.offset_ms - 1
            if tick_ms <= min(dead_ms, until_ms):
                _, last_ms = self._count(tick_ms, min(dead_ms, until_ms))
                self._record("deadline", tick_ms, last_ms)
                return self._end(last_ms)
        count, _ = self._count(tick_ms, until_ms)
        if count > self.policy.missed_limit:
            kept_ms = self._last_kept(tick_ms, until_ms)
            if kept_ms > tick_ms:
                self._record("policy", tick_ms, kept_ms - 1)
                tick_ms = kept_ms
        if self._excluded(tick_ms):
            self._record("calendar", tick_ms, tick_ms)
            return self._end(tick_ms)
        if self.state.open:
            return self._wait(tick_ms)
        return self._run(tick_ms, pace_ms=CATCH_UP_PACE_MS)

    # --- questions ---------------------------------------------------------------------------

    def effective_ms(self, tick_ms: int) -> int:
        """When the tick is due: its time and the job's delay; the acceptance for a late one-off."""
        since_ms = self.state.since_ms
        return since_ms if tick_ms <= since_ms else tick_ms + self.offset_ms

    def tolerance_ms(self, tick_ms: int) -> int:
        """How late the tick may be and simply run: at most to the tick after it."""
        tolerance_ms = self.definition.late_tolerance_ms
        following = following_tick(self.job, tick_ms, self.state.since_ms)
        if following is not None:
            since_ms = self.state.since_ms
            from_ms = since_ms if tick_ms < since_ms < following.at_ms else tick_ms
            tolerance_ms = min(tolerance_ms, following.at_ms - from_ms)
        return max(tolerance_ms, ON_TIME_MS)

    def catching_up(self) -> bool:
        """Whether a tick that is being caught up is in the way: then `all` waits for it, also with
        a tick that is on time, which would be skipped only because others had been late."""
        return self.definition.missed == "all" and any(
            execution.claimed_at - execution.due_at > self.tolerance_ms(execution.scheduled_at)
            for execution in self.state.open
        )

    def _past_deadline(self, tick_ms: int) -> bool:
        deadline_ms = self.policy.start_deadline_ms
        return 0 < deadline_ms < self.now_ms - self.effective_ms(tick_ms)

    def _count(self, first_ms: int, upto_ms: int) -> tuple[int, int]:
        return count_from(self.job, first_ms, self.state.since_ms, upto_ms)

    def _excluded(self, tick_ms: int) -> bool:
        return is_excluded(self.job.plan, self.policy.calendars, tick_ms)

    def _newest_not_excluded(self, first_ms: int, last_ms: int) -> int | None:
        """The newest tick from `first_ms` to `last_ms` that may run. Whole days and windows are
        passed over at once."""
        if self.policy.calendars is None:
            return last_ms
        while self._excluded(last_ms):
            before_ms = max(self._passed(schedule, last_ms) for schedule in self.job.plan)
            if before_ms < first_ms:
                return None
            _, found_ms = self._count(first_ms, before_ms)
            last_ms = min(found_ms, before_ms)
        return last_ms

    def _passed(self, schedule: Planned, at_ms: int) -> int:
        """Up to where the schedule may have ticks before `at_ms` that are not excluded."""
        if isinstance(schedule, AtSchedule):
            return min(schedule.at_ms, at_ms - 1)
        assert self.policy.calendars is not None
        since_ms = excluded_since_ms(schedule, self.policy.calendars, at_ms)
        return (at_ms if since_ms is None else since_ms) - 1

    def _last_kept(self, first_ms: int, until_ms: int) -> int:
        """The first of the newest `missed_limit` ticks up to `until_ms`."""
        limit, since_ms = self.policy.missed_limit, self.state.since_ms
        after_ms = _after_which(self.job.plan, first_ms, until_ms, since_ms, limit)
        tick = following_tick(self.job, after_ms, since_ms)
        return tick.at_ms if tick is not None and tick.at_ms <= until_ms else first_ms

    # --- ends --------------------------------------------------------------------------------

    def _record(self, reason: str, first_ms: int, upto_ms: int) -> None:
        """One record for the ticks from the tick `first_ms` to `upto_ms`."""
        count, last_ms = self._count(first_ms, upto_ms)
        detail = ""
        if reason == "policy" and self.policy.calendars is not None and count > 1:
            detail = "some of them may be excluded by the job's calendars"
        sequence = self.state.sequence + len(self.missed) + 1
        record = missed_record(
            self.job_key, self.state, self.definition, sequence, self.txn, self.now_ms, reason,
            first_ms, last_ms, count, count <= MISSED_COUNT_MAX, detail,
        )  # fmt: skip
        if reason == "calendar":
            record = _replace(record, state="SKIPPED")
        self.missed.append(record)

    def _run(self, tick_ms: int, decided_ms: int | None = None, *, pace_ms: int = 0) -> Decision:
        """The tick runs; everything up to `decided_ms` is decided with it."""
        occurrence = occurrence_of_tick(self.job_key, tick_ms)
        sequence = self.state.sequence + len(self.missed) + 1
        fire = Fire(occurrence, occurrence + ":1", tick_ms, self.effective_ms(tick_ms), sequence)
        claimed = 0 if self.state.open else 1  # else it is skipped, and not a run
        after = self._after(
            tick_ms if decided_ms is None else decided_ms, sequence, claimed, pace_ms
        )
        return Decision(after, missed=tuple(self.missed), fires=(fire,))

    def _end(self, decided_ms: int) -> Decision:
        """Nothing runs; everything up to `decided_ms` is decided."""
        after = self._after(decided_ms, self.state.sequence + len(self.missed), 0, 0)
        return Decision(after, missed=tuple(self.missed))

    def _wait(self, tick_ms: int) -> Decision:
        """The tick is not decided yet: an execution before it is open. The longer that one runs,
        the less often it is looked at."""
        since_ms = max(execution.claimed_at for execution in self.state.open)
        wait_ms = min(max(self.now_ms - since_ms, CATCH_UP_LOOK_MS_MIN), CATCH_UP_LOOK_MS_MAX)
        after = _replace(
            self.state, txn=self.txn, sequence=self.state.sequence + len(self.missed),
            next_ms=tick_ms, due_ms=self.now_ms + wait_ms,
        )  # fmt: skip
        if self.missed:
            after = self._decided(after, self.missed[-1].last)
        return Decision(after, missed=tuple(self.missed))

    def _after(self, decided_ms: int, sequence: int, claimed: int, pace_ms: int) -> JobState:
        """The state behind a decision: the cursor, the following tick, or the job's end."""
        state = _replace(
            self.state, txn=self.txn, sequence=sequence, runs=self.state.runs + claimed
        )
        state = self._decided(state, decided_ms)
        following = following_tick(self.job, decided_ms, self.state.since_ms)
        if following is None or runs_out(state, self.definition):
            if state.status == "ACTIVE":
                return finished(state, self.job.plan, self.now_ms)
            return _replace(state, next_ms=0, due_ms=0, since_ms=0)
        due_ms = max(self.effective_ms(following.at_ms), self.state.due_ms)
        if due_ms <= self.now_ms:
            due_ms = max(due_ms, self.now_ms + pace_ms)
        since_ms = self.state.since_ms if following.at_ms <= self.state.since_ms else 0
        return _replace(state, next_ms=following.at_ms, due_ms=due_ms, since_ms=since_ms)

    def _decided(self, state: JobState, upto_ms: int) -> JobState:
        """The cursor, which never moves back."""
        if upto_ms <= state.cursor_ms:
            return _replace(state, tz=self.tz)
        return _replace(
            state, cursor_ms=upto_ms, cursor_local=local_of(self.job.plan, upto_ms), tz=self.tz
        )


@lru_cache(maxsize=4_096)
def _after_which(
    plan: tuple[Planned, ...], first_ms: int, until_ms: int, since_ms: int, limit: int
) -> int:
    """The instant after which `limit` ticks lie up to `until_ms`, by halving. Memoised: after an
    outage all jobs of a herd ask the same."""
    low_ms, high_ms = first_ms - 1, until_ms  # more than the limit behind low, not behind high
    while high_ms - low_ms > 1:
        middle_ms = (low_ms + high_ms) // 2
        if _behind(plan, middle_ms, until_ms, since_ms, limit + 1) > limit:
            low_ms = middle_ms
        else:
            high_ms = middle_ms
    return high_ms


def _behind(
    plan: tuple[Planned, ...], after_ms: int, until_ms: int, since_ms: int, limit: int
) -> int:
    """How many ticks lie in (after, until]; of recurring schedules only those after `since_ms`."""
    late = {one.at_ms for one in one_offs(plan) if after_ms < one.at_ms <= since_ms}
    return count_ticks(plan, max(after_ms, since_ms), until_ms, limit=limit)[0] + len(late)
