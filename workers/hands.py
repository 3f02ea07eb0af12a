"""The worker's decisions: what to take, start, renew, give up, give back, and what to report.

No clock, thread or connection: every call is handed the moment, and effects go through ports.
One thread calls it.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from schemas import limits
from schemas.leases import Report, ReportKind, WorkItem

from .brokerclock import BrokerClock
from .lease import Ended, Lease, LeaseTimes, Stage, outcome_of, report_of
from .offering import Offering
from .outgoing import Outgoing
from .ports import Alarm, Executor, Moment, Why
from .remembered import Remembered

RECALL_MS = 250
"""What has not begun after so long is taken back, to go where a place is free."""


LATE_BUCKETS = 24


class Counts:
    """What happened so far, for metrics and logs."""

    __slots__ = (
        "closed", "given_up", "late", "late_ms", "outdated", "repeated", "returned", "started",
        "taken",
    )  # fmt: skip

    def __init__(self) -> None:
        self.late = [0] * LATE_BUCKETS
        """How many first deliveries began late by less than 1, 2, 4, 8 … ms."""
        self.late_ms = 0
        self.taken = self.started = self.closed = self.returned = 0
        self.repeated = self.outdated = self.given_up = 0

    def began(self, late_ms: int) -> None:
        """A first delivery began so long after its time."""
        late_ms = max(late_ms, 0)
        self.late[min(late_ms.bit_length(), LATE_BUCKETS - 1)] += 1
        self.late_ms += late_ms


class Hands:
    """The leases one worker holds."""

    def __init__(
        self, *, handlers: Iterable[str], times: LeaseTimes, offering: Offering,
        outgoing: Outgoing, executor: Executor, clock: BrokerClock, places: int, alarm: Alarm,
        cancel_grace_ms: int = limits.CANCEL_GRACE_MS,
    ) -> None:  # fmt: skip
        self._handlers = frozenset(handlers)
        self._times = times
        self._offering = offering
        self._outgoing = outgoing
        self._executor = executor
        self._clock = clock
        self._places = places
        self._alarm = alarm
        self._cancel_grace_ms = cancel_grace_ms
        self._leases: dict[int, Lease] = {}
        self._newest: dict[str, Lease] = {}
        """The newest delivery of each execution that is here."""
        self._held: list[tuple[int, int]] = []
        self._ready: deque[Lease] = deque()
        self._sent = 0
        self._number = 0
        self._remembered = Remembered(times.remember_ms, limits.REMEMBERED_MAX)
        self.draining = False
        self.counts = Counts()

    # --- what the scheduler says -----------------------------------------------------------------

    def take(self, items: Iterable[WorkItem], now: Moment) -> None:
        """Follow items in their order, then start what can be started."""
        room = self._offering.room(now.local_ms)
        ahead_ms = self._clock.ahead_ms(now.local_ms)
        for item in items:
            match item.kind:
                case "work":
                    self._work(item, now, room, ahead_ms)
                case "cancel":
                    self._cancel(item, now)
                case "revoke":
                    self._revoke(item, now)
        self.advance(now)

    def _work(self, item: WorkItem, now: Moment, room: int, ahead_ms: int | None) -> None:
        known = self._newest.get(item.execution_id)
        if known is not None:
            if item.delivery < known.item.delivery:
                self.counts.outdated += 1
                return
            if item.delivery == known.item.delivery:
                self.counts.repeated += 1
                self._heartbeat(known, now)
                return
            # The scheduler gave the older delivery up; its run ends as one whose lease is gone.
            self._give_up(known, now)
        elif self._repeat(item, now):
            return
        # The scheduler's end of the lease, as early as it can be on our clock.
        ends_ms = 0 if ahead_ms is None else item.lease_until - ahead_ms
        refusal = self._refusal(item, now, room, ends_ms)
        if refusal:
            self.counts.returned += 1
            report = report_of(item, "returned", refusal)
            self._remembered.add(report, item.partition, now.local_ms)
            self._outgoing.add(item.partition, report, now.local_ms)
            return
        self._number += 1
        lease = Lease(item, self._number, ends_ms, self._times)
        self._leases[self._number] = self._newest[item.execution_id] = lease
        self.counts.taken += 1
        if item.due_at > now.wall_ms:
            lease.stage = Stage.HELD
            heappush(self._held, (item.due_at, lease.number))
        else:
            self._ready.append(lease)

    def _refusal(self, item: WorkItem, now: Moment, room: int, ends_ms: int) -> str:
        """Why the item is not taken; empty when it is."""
        if self.draining:
            return "drain"
        if item.handler not in self._handlers:
            return "no_handler"
        if len(self._leases) >= room:
            return "full"
        if ends_ms - now.local_ms < self._times.to_start_ms:
            return "lease"
        if item.due_at - now.wall_ms > limits.HOLD_MS_MAX:
            self._alarm(
                "item_too_early", execution_id=item.execution_id, due_at=item.due_at,
                wall_ms=now.wall_ms, advice="compare the clocks of this machine and the broker's",
            )  # fmt: skip
            return "clock"
        return ""

    def _repeat(self, item: WorkItem, now: Moment) -> bool:
        """Answer an item that was closed before with the report that closed it."""
        known = self._remembered.get(item.execution_id)
        if known is None or item.delivery > known[0].delivery:
            return False
        if item.delivery < known[0].delivery:
            self.counts.outdated += 1
        else:
            self.counts.repeated += 1
            self._outgoing.add(known[1], known[0], now.local_ms)
        return True

    def _cancel(self, item: WorkItem, now: Moment) -> None:
        lease = self._addressed(item, now)
        if lease is None:
            return
        if lease.stage is Stage.SENT:
            self._tell(lease, "cancel", now)
        else:
            self._close(lease, report_of(item, "stopped"), now)

    def _revoke(self, item: WorkItem, now: Moment) -> None:
        lease = self._addressed(item, now)
        if lease is None:
            return
        if lease.stage is not Stage.SENT:
            self._close(lease, report_of(item, "revoked"), now)
        elif self._executor.began_at(lease):
            self._already_started(lease, now)
        else:
            lease.told = lease.told or "revoke"
            self._executor.stop(lease, "revoke")

    def _addressed(self, item: WorkItem, now: Moment) -> Lease | None:
        """The lease that is to be stopped or given back; None when it is dealt with."""
        lease = self._newest.get(item.execution_id)
        if lease is not None and lease.item.delivery == item.delivery:
            return lease
        if lease is not None and lease.item.delivery > item.delivery:
            self.counts.outdated += 1
        elif not self._repeat(item, now):
            # Nothing of it runs here, and nothing will.
            kind: ReportKind = "stopped" if item.kind == "cancel" else "revoked"
            report = report_of(item, kind)
            self._remembered.add(report, item.partition, now.local_ms)
            self._outgoing.add(item.partition, report, now.local_ms)
        return None

    # --- starting --------------------------------------------------------------------------------

    def advance(self, now: Moment) -> None:
        """Move on what has come to its time, and start what there is a place for."""
        held, leases = self._held, self._leases
        while held and held[0][0] <= now.wall_ms:
            lease = leases.get(heappop(held)[1])
            if lease is not None and lease.stage is Stage.HELD:
                lease.stage = Stage.READY
                self._ready.append(lease)
        if not self._ready or self._outgoing.silent(now.local_ms):
            return
        most = self._places + self._offering.ahead
        times = self._times
        while self._ready and self._sent < most:
            lease = self._ready.popleft()
            if lease.stage is not Stage.READY:
                continue
            before_ms = lease.start_before_ms(times)
            if now.local_ms > before_ms:
                self._close(lease, report_of(lease.item, "returned", "lease"), now)
                continue
            lease.stage = Stage.SENT
            lease.sent_ms = now.local_ms
            self._sent += 1
            self._executor.start(lease, before_ms=before_ms)

    def next_due_wall_ms(self) -> int | None:
        """Wall time at which the next held item comes to its time."""
        return self._held[0][0] if self._held else None

    # --- what becomes of runs --------------------------------------------------------------------

    def ended(self, number: int, ended: Ended, now: Moment) -> None:
        """Report how a run ended. A place is free; `advance` uses it."""
        lease = self._leases.get(number)
        if lease is None:
            return
        self._sent -= 1
        self.counts.started += 1
        self._offering.ran(max(0, ended.finished_at - ended.started_at))
        told, item = lease.told, lease.item
        if item.delivery == 1 and item.attempt == 1:
            self.counts.began(ended.started_at - item.due_at)
        if told == "cancel":
            report = outcome_of(item, "stopped", ended)
        elif ended.state == "CANCELLED":
            # Not its own wish, so no outcome: somebody else is to do it.
            report = report_of(item, "returned", "drain" if told == "drain" else "lease")
        else:
            report = outcome_of(item, "outcome", ended)
        self._close(lease, report, now)

    def dropped(self, number: int, now: Moment) -> None:
        """The run never began: it was taken back, or it was too late to begin."""
        lease = self._leases.get(number)
        if lease is None:
            return
        self._sent -= 1
        item = lease.item
        match lease.told:
            case "cancel":
                self._close(lease, report_of(item, "stopped"), now)
            case "revoke":
                self._close(lease, report_of(item, "revoked"), now)
            case "drain" | "lease":
                self._close(lease, report_of(item, "returned", lease.told), now)
            case _ if self.draining:
                self._close(lease, report_of(item, "returned", "drain"), now)
            case _:
                lease.stage = Stage.READY
                self._ready.appendleft(lease)

    def kept(self, number: int, now: Moment) -> None:
        """The run had begun when it was to be taken back."""
        lease = self._leases.get(number)
        if lease is not None and lease.told == "revoke":
            lease.told = ""
            self._already_started(lease, now)

    def progressed(self, number: int, progress: str, now: Moment) -> None:
        """The run said how far it is: told now, or with the next heartbeat if one was just sent."""
        lease = self._leases.get(number)
        if lease is None:
            return
        lease.progress = progress
        if now.local_ms - lease.named_ms >= limits.PROGRESS_MS_MIN:
            self._heartbeat(lease, now)

    def _already_started(self, lease: Lease, now: Moment) -> None:
        report = report_of(lease.item, "already_started")
        self._outgoing.add(lease.item.partition, report, now.local_ms)
        lease.named_ms = now.local_ms

    # --- the passing of time ---------------------------------------------------------------------

    def sweep(self, now: Moment) -> None:
        """Renew leases, say what has started, give up what has run out. To be called once in
        `sweep_ms`: a lease that will have run out by the next time is given up now."""
        times, local_ms = self._times, now.local_ms
        for lease in list(self._leases.values()):
            if lease.given_up_ms(times) <= local_ms + times.sweep_ms:
                self._give_up(lease, now)
            elif lease.renew_ms <= local_ms:
                self._heartbeat(lease, now)
            if lease.stage is Stage.SENT:
                self._look_at_run(lease, now)
        self._remembered.forget_old(local_ms)
        self.advance(now)

    def _look_at_run(self, lease: Lease, now: Moment) -> None:
        if lease.stop_until_ms and lease.stop_until_ms <= now.local_ms:
            self._abandon(lease, now)
            return
        if lease.started_said or now.local_ms - lease.sent_ms < RECALL_MS:
            return
        began_at = self._executor.began_at(lease)
        if not began_at:
            if not lease.told:
                self._executor.stop(lease, "recall")
        elif now.wall_ms - began_at >= limits.STARTED_MS:
            self._heartbeat(lease, now)

    def _heartbeat(self, lease: Lease, now: Moment) -> None:
        """Name the lease in the log: as held, and once as started if its run takes long."""
        item = lease.item
        began_at = self._executor.began_at(lease) if lease.stage is Stage.SENT else 0
        if began_at and not lease.started_said:
            lease.started_said = True
            started = Report(
                kind="started", tenant=item.tenant, job=item.job, execution_id=item.execution_id,
                ordinal=item.ordinal, delivery=item.delivery, token=item.token,
                started_at=began_at,
            )  # fmt: skip
            self._outgoing.add(item.partition, started, now.local_ms)
        if lease.told != "lease":
            beat = Report(
                kind="heartbeat", tenant=item.tenant, job=item.job, progress=lease.progress,
                execution_id=item.execution_id, ordinal=item.ordinal, delivery=item.delivery,
                token=item.token,
            )  # fmt: skip
            self._outgoing.add(item.partition, beat, now.local_ms, lease)
        lease.named_ms = now.local_ms
        lease.renew_ms = now.local_ms + self._times.renew_ms

    def _give_up(self, lease: Lease, now: Moment) -> None:
        """Count on this lease no more: start nothing on it, tell a run that it is over."""
        if lease.stage is not Stage.SENT:
            self.counts.given_up += 1
            self._close(lease, report_of(lease.item, "returned", "lease"), now)
        elif not lease.told:
            self.counts.given_up += 1
            self._alarm(
                "lease_given_up", execution_id=lease.item.execution_id,
                delivery=lease.item.delivery,
            )  # fmt: skip
            self._tell(lease, "lease", now)

    def _tell(self, lease: Lease, why: Why, now: Moment) -> None:
        if lease.told == why:
            return
        if why == "cancel":
            # A run that ignores a lost lease does no harm to others; a cancelled one is waited for.
            lease.stop_until_ms = now.local_ms + self._cancel_grace_ms
        lease.told = why
        self._executor.stop(lease, why)

    def _abandon(self, lease: Lease, now: Moment) -> None:
        self._sent -= 1
        self._executor.abandon(lease)
        self._alarm(
            "run_abandoned", execution_id=lease.item.execution_id, handler=lease.item.handler,
            advice="the handler ignores ctx.cancelled; its process is replaced",
        )  # fmt: skip
        self._close(lease, report_of(lease.item, "abandoned"), now)

    # --- the end ---------------------------------------------------------------------------------

    def drain(self, now: Moment) -> None:
        """Take nothing new, give back what has not begun, let runs finish."""
        self.draining = True
        for lease in list(self._leases.values()):
            if lease.stage is not Stage.SENT:
                self._close(lease, report_of(lease.item, "returned", "drain"), now)
            elif not self._executor.began_at(lease) and not lease.told:
                self._executor.stop(lease, "recall")

    def cancel_runs(self, now: Moment) -> None:
        """Tell every run to stop, since the time for draining is over."""
        for lease in list(self._leases.values()):
            if not lease.told:
                self._tell(lease, "drain", now)

    def hand_back(self, now: Moment) -> None:
        """Give back every lease: nothing of it runs any more."""
        for lease in list(self._leases.values()):
            kind: ReportKind = "stopped" if lease.told == "cancel" else "returned"
            reason = "" if kind == "stopped" else "drain"
            self._close(lease, report_of(lease.item, kind, reason), now)
        self._sent = 0

    @property
    def open(self) -> int:
        """How many leases are here."""
        return len(self._leases)

    # --- closing ---------------------------------------------------------------------------------

    def _close(self, lease: Lease, report: Report, now: Moment) -> None:
        """The last word about a lease."""
        lease.stage = Stage.CLOSED
        item = lease.item
        del self._leases[lease.number]
        if self._newest.get(item.execution_id) is lease:
            del self._newest[item.execution_id]
            self._remembered.add(report, item.partition, now.local_ms)
        self.counts.closed += 1
        self._outgoing.add(item.partition, report, now.local_ms)
