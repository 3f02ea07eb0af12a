"""One lease as its worker sees it, and how its time runs.

All times here are local milliseconds since the machine started, unless named otherwise. The
scheduler lets a lease expire `lease_until` on the broker's clock, or one length after it read a
heartbeat. The worker counts from before it sent that heartbeat, gives the lease up a margin
earlier, and so never believes in a lease that the scheduler has given to somebody else.
"""

from enum import IntEnum, auto

import msgspec

from schemas import limits
from schemas.leases import Report, ReportKind, WorkItem


class Stage(IntEnum):
    """Where a lease stands."""

    HELD = auto()
    """Before its time."""
    READY = auto()
    """Waits for a place."""
    SENT = auto()
    """With whoever runs it, begun or about to."""
    CLOSED = auto()


class LeaseTimes(msgspec.Struct, frozen=True, gc=False):
    """Every distance that follows from the length of a lease, in ms."""

    length_ms: int
    margin_ms: int
    to_start_ms: int
    renew_ms: int
    sweep_ms: int
    remember_ms: int
    silent_ms: int
    offer_ms: int


def times_of(length_ms: int) -> LeaseTimes:
    """The distances for leases of this length."""
    if length_ms < limits.LEASE_MS_MIN:
        raise ValueError(f"a lease of {length_ms} ms; at least {limits.LEASE_MS_MIN}")
    return LeaseTimes(
        length_ms=length_ms,
        margin_ms=min(limits.LEASE_MARGIN_MS_MAX, length_ms // limits.LEASE_MARGIN_SHARE),
        to_start_ms=length_ms // limits.LEASE_TO_START_SHARE,
        renew_ms=length_ms // limits.RENEWALS_PER_LEASE,
        sweep_ms=min(limits.SWEEP_MS_MAX, length_ms // limits.SWEEPS_PER_LEASE),
        remember_ms=2 * length_ms,
        silent_ms=min(limits.LOG_SILENT_MS, length_ms // limits.RENEWALS_PER_LEASE),
        # Who has not offered for the length of a lease gets nothing new.
        offer_ms=min(limits.OFFER_EVERY_MS, length_ms // limits.OFFERS_PER_LEASE),
    )


class Lease:
    """One lease this worker holds, from its item to its last report."""

    __slots__ = (
        "ends_ms", "home", "item", "named_ms", "number", "progress", "renew_ms", "sent_ms", "slot",
        "stage", "started_said", "stop_until_ms", "told",
    )  # fmt: skip

    def __init__(self, item: WorkItem, number: int, ends_ms: int, times: LeaseTimes) -> None:
        self.item = item
        self.number = number
        """Names the lease between the worker and whoever runs it."""
        self.ends_ms = ends_ms
        """When the scheduler may see its end at the earliest."""
        self.renew_ms = ends_ms - times.length_ms + times.renew_ms
        """When to send the next heartbeat."""
        self.stage = Stage.READY
        self.sent_ms = 0
        self.told = ""
        """Why the run was told to stop: cancel, drain or lease."""
        self.stop_until_ms = 0
        """When patience with a run that was told to stop ends; 0: never."""
        self.progress = ""
        self.named_ms = 0
        """When a report about it was made last."""
        self.started_said = False
        self.home: object = None
        self.slot = 0
        """These two are whatever an executor notes about it."""

    def renewed(self, said_ms: int, heard_ms: int, times: LeaseTimes) -> None:
        """A heartbeat that was made at `said_ms` is in the log, as was heard at `heard_ms`. Heard
        after the lease was to be given up, it renews nothing: a worker that was stopped meanwhile
        may have sent it after the scheduler gave the lease to somebody else."""
        if heard_ms < self.given_up_ms(times):
            self.ends_ms = max(self.ends_ms, said_ms + times.length_ms)

    def given_up_ms(self, times: LeaseTimes) -> int:
        """From here on the worker does not count on the lease."""
        return self.ends_ms - times.margin_ms

    def start_before_ms(self, times: LeaseTimes) -> int:
        """From here on it is too late to start."""
        return self.ends_ms - times.to_start_ms


class Ended(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a run ended: SUCCEEDED, FAILED, TIMED_OUT, or CANCELLED if it stopped as it was told."""

    state: str
    reason: str = ""
    detail: str = ""
    retry: bool = True
    result: bytes = b""
    started_at: int = 0
    finished_at: int = 0


def report_of(item: WorkItem, kind: ReportKind, reason: str = "", detail: str = "") -> Report:
    """A report about an item that has no outcome to tell."""
    return Report(
        kind=kind, tenant=item.tenant, job=item.job, execution_id=item.execution_id,
        ordinal=item.ordinal, delivery=item.delivery, token=item.token, reason=reason,
        detail=detail,
    )  # fmt: skip


def outcome_of(item: WorkItem, kind: ReportKind, ended: Ended) -> Report:
    """A report about a run that ended."""
    return Report(
        kind=kind, tenant=item.tenant, job=item.job, execution_id=item.execution_id,
        ordinal=item.ordinal, delivery=item.delivery, token=item.token, state=ended.state,
        reason=ended.reason, detail=ended.detail, retry=ended.retry, result=ended.result,
        started_at=ended.started_at, finished_at=ended.finished_at,
    )  # fmt: skip
