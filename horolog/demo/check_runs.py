"""Judges what workers ran: HTTP calls and Python functions, at least once each.

An execution that was received more than once must have lost a lease for each further time, and each
time have carried another delivery number: then a receiver can tell.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from projections.executions import LEASE_CLOSED, TERMINAL
from schemas.events import ExecutionFired, ExecutionMoved

from .finding import Finding
from .receipts import Kind, Receipt

HTTP_POOL: Final = "http"


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about the executions that workers run."""

    findings: tuple[Finding, ...]
    succeeded: Mapping[Kind, int]
    skipped: int
    held: int
    redelivered: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One execution: what was recorded of it, and what was seen of it."""

    fired: ExecutionFired
    moved: Sequence[ExecutionMoved]
    seen: Sequence[Receipt]

    @property
    def state(self) -> str:
        """What it came to: the first terminal state, else the last one."""
        states = [self.fired.state]
        states += [event.state for event in self.moved if event.reason != LEASE_CLOSED]
        return next((state for state in states if state in TERMINAL), states[-1])

    @property
    def held(self) -> bool:
        """Whether the pause at the end of the check holds it."""
        return self.state == "PENDING" and self.moved[-1].reason == "paused"

    @property
    def ended(self) -> bool:
        """Whether nothing more will become of it while its job is paused."""
        return self.state in TERMINAL or self.held

    @property
    def lost(self) -> int:
        """Leases that ran out without an outcome."""
        return max((event.lost for event in self.moved), default=0)

    @property
    def open_between(self) -> tuple[int, int]:
        """The job's sequence numbers between which it was open."""
        last = self.moved[-1].sequence if self.moved else self.fired.sequence
        return self.fired.sequence, last


def look_at_runs(
    fired: Sequence[ExecutionFired], moved: Sequence[ExecutionMoved], receipts: Sequence[Receipt]
) -> Runs:
    """Hold what workers ran to what was promised."""
    found = list(runs_of(fired, moved, receipts))
    findings = [finding for run in found for finding in _look_at(run)]
    findings += _overlaps(found)
    known = {run.fired.execution_id for run in found}
    findings += [
        Finding("unexpected", f"{receipt.execution_id} was received, but never fired")
        for receipt in receipts
        if receipt.execution_id not in known
    ]
    ended = [run for run in found if run.state == "SUCCEEDED"]
    calls = sum(run.fired.pool == HTTP_POOL for run in ended)
    return Runs(
        findings=tuple(findings), succeeded={"http": calls, "worker": len(ended) - calls},
        skipped=sum(run.state == "SKIPPED" for run in found),
        held=sum(run.held for run in found),
        redelivered=sum(max(len(run.seen) - 1, 0) for run in found),
    )  # fmt: skip


def runs_of(
    fired: Sequence[ExecutionFired], moved: Sequence[ExecutionMoved], receipts: Sequence[Receipt]
) -> Iterator[Run]:
    """Each execution of a worker with everything that is about it."""
    moves: defaultdict[str, list[ExecutionMoved]] = defaultdict(list)
    for event in moved:
        moves[event.execution_id].append(event)
    seen: defaultdict[str, list[Receipt]] = defaultdict(list)
    for receipt in receipts:
        seen[receipt.execution_id].append(receipt)
    for claim in fired:
        if claim.pool:
            name = claim.execution_id
            yield Run(
                fired=claim, moved=sorted(moves[name], key=lambda e: e.sequence), seen=seen[name]
            )


def _look_at(run: Run) -> Iterator[Finding]:
    name, state = run.fired.execution_id, run.state
    reason = run.moved[-1].reason if run.moved else run.fired.reason
    match state:
        case "SUCCEEDED":
            if not run.seen:
                yield Finding("lost", f"{name} succeeded, but nobody received it")
        case "SKIPPED":
            if run.seen:
                yield Finding("unexpected", f"{name} was skipped, and received all the same")
        case _ if state in TERMINAL:
            detail = run.moved[-1].detail if run.moved else run.fired.detail
            yield Finding("unexpected", f"{name}: {state}({reason}) {detail}")
        case _ if not run.held:
            yield Finding("uncovered", f"{name} has not ended: it is {state}({reason})")
        case _:
            pass
    for delivery, count in Counter(receipt.delivery for receipt in run.seen).items():
        if count > 1:
            yield Finding("doubled", f"delivery {delivery} of {name} was received {count} times")
    further = len({receipt.delivery for receipt in run.seen}) - 1
    if further > run.lost:
        told = f"{name} was received {further + 1} times, with {run.lost} lost leases"
        yield Finding("doubled", told)
    for receipt in run.seen:
        if receipt.scheduled_ms != run.fired.scheduled_at:
            yield Finding("unexpected", f"{name} was received for another tick than its event's")


def _overlaps(runs: Sequence[Run]) -> Iterator[Finding]:
    """A tick may be skipped only while an execution of the job is open, and must be then."""
    by_job: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_job[run.fired.job].append(run)
    for of_job in by_job.values():
        spans = [run.open_between for run in of_job if run.state != "SKIPPED"]
        for run in of_job:
            at = run.fired.sequence
            busy = any(first < at < last for first, last in spans)
            if run.state == "SKIPPED" and not busy:
                told = f"{run.fired.execution_id} was skipped({run.fired.reason}), nothing was open"
                yield Finding("unexpected", told)
            if run.state != "SKIPPED" and busy:
                told = f"{run.fired.execution_id} was claimed while another execution was open"
                yield Finding("unexpected", told)
