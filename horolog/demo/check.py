"""Judges a run: what the receiver saw against what the log says and what schedules ask for.

Pure: evidence in, verdict out. Schedules are asked in the same way as previews ask them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from processors.core.schedule import Planned, first_tick, next_tick
from schemas.events import ExecutionFired, ExecutionMoved, TicksMissed
from schemas.units import format_instant

from .check_runs import look_at_runs
from .finding import Finding
from .receipts import Kind, Receipt

E = TypeVar("E", ExecutionFired, TicksMissed)

FINDINGS_SHOWN: Final = 20
WANTED: Final[Mapping[Kind, int]] = {"topic": 400, "http": 200, "worker": 200}
"""How many of each kind must have been seen for a verdict to mean something."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A job's schedules and for how long they asked for ticks: from its acceptance until the
    command that paused it was appended. A tick after that, but before the command was read and
    decided, may have fired or not; `decided_ms` is an instant by which it was decided."""

    key: str
    plan: tuple[Planned, ...]
    from_ms: int
    until_ms: int
    decided_ms: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How many of what, and whether every promise was kept."""

    ok: bool
    fires: int
    calls: int
    runs: int
    receipts: int
    ticks: int
    missed_ticks: int
    skipped: int
    held: int
    redelivered: int
    """Receipts beyond the first of an execution, each of them owed to a lost lease and flagged."""
    early: int
    lost: int
    doubled: int
    uncovered: int
    unexpected: int
    findings: tuple[str, ...]
    audited: int = 0
    """Transactions that the auditor looked at."""
    violated: int = 0
    """Violations that it found; they are among the findings."""


def judge(
    spans: Iterable[Span],
    fired: Sequence[ExecutionFired],
    moved: Sequence[ExecutionMoved],
    missed: Sequence[TicksMissed],
    receipts: Sequence[Receipt],
    *,
    wanted: Mapping[Kind, int] = WANTED,
) -> Verdict:
    """Hold the evidence of a run to the promises: nothing early, lost, doubled, unexplained."""
    ticks = 0
    written = [event for event in fired if not event.pool]
    read = [receipt for receipt in receipts if receipt.kind == "topic"]
    findings = [*_early(fired, receipts), *_lost(written, read), *_doubled(written, read)]
    findings += _unexpected(written, read)
    runs = look_at_runs(fired, moved, [one for one in receipts if one.kind != "topic"])
    findings += runs.findings
    fired_of, missed_of = _by_job(fired), _by_job(missed)
    known = set()
    for span in spans:
        known.add(span.key)
        due = list(ticks_of(span))
        ticks += sum(tick < span.until_ms for tick in due)
        findings += _coverage(span, due, fired_of[span.key], missed_of[span.key])
    findings += [
        Finding("unexpected", f"{key} is no job that was registered")
        for key in sorted({*fired_of, *missed_of} - known)
    ]
    fires = sum(event.state == "SUCCEEDED" for event in written)
    succeeded: dict[Kind, int] = {"topic": fires, **runs.succeeded}
    findings += [
        Finding("short", f"{succeeded[kind]} of {kind}, at least {least} were wanted")
        for kind, least in wanted.items()
        if succeeded[kind] < least
    ]
    counts = Counter(finding.kind for finding in findings)
    return Verdict(
        ok=not findings, fires=fires, calls=succeeded["http"],
        runs=succeeded["worker"], receipts=len(receipts), ticks=ticks,
        missed_ticks=sum(event.count for event in missed), skipped=runs.skipped, held=runs.held,
        redelivered=runs.redelivered, early=counts["early"], lost=counts["lost"],
        doubled=counts["doubled"], uncovered=counts["uncovered"],
        unexpected=counts["unexpected"],
        findings=tuple(f"{one.kind}: {one.what}" for one in findings[:FINDINGS_SHOWN]),
    )  # fmt: skip


def ticks_of(span: Span) -> Iterator[int]:
    """Every tick that may have been decided within the span."""
    tick = first_tick(span.plan, span.from_ms)
    while tick is not None and tick.at_ms <= span.decided_ms:
        yield tick.at_ms
        tick = next_tick(span.plan, tick.at_ms)


def _early(fired: Sequence[ExecutionFired], receipts: Sequence[Receipt]) -> Iterator[Finding]:
    for event in fired:
        if event.claimed_at < event.due_at:
            told = f"claimed {event.due_at - event.claimed_at} ms before it was due"
            yield Finding("early", f"{event.execution_id}: {told}")
        if event.due_at < event.scheduled_at:
            yield Finding("early", f"{event.execution_id}: due before its tick")
    for receipt in receipts:
        if receipt.received_ms < receipt.scheduled_ms:
            yield Finding("early", f"{receipt.execution_id}: received {-receipt.lateness_ms} ms "
                          "before its tick")  # fmt: skip


def _lost(fired: Sequence[ExecutionFired], receipts: Sequence[Receipt]) -> Iterator[Finding]:
    seen = {receipt.execution_id for receipt in receipts}
    for event in fired:
        if event.state == "SUCCEEDED" and event.execution_id not in seen:
            yield Finding("lost", f"{event.execution_id} fired, but nobody received it")


def _doubled(fired: Sequence[ExecutionFired], receipts: Sequence[Receipt]) -> Iterator[Finding]:
    occurrence_of = {receipt.execution_id: receipt.occurrence for receipt in receipts}
    for what, names in (
        ("received", [receipt.execution_id for receipt in receipts]),
        ("received under different execution ids", list(occurrence_of.values())),
        ("recorded", [event.execution_id for event in fired]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                yield Finding("doubled", f"{name} was {what} {count} times")


def _unexpected(fired: Sequence[ExecutionFired], receipts: Sequence[Receipt]) -> Iterator[Finding]:
    events = {event.execution_id: event for event in fired if event.state == "SUCCEEDED"}
    for receipt in receipts:
        event = events.get(receipt.execution_id)
        if event is None:
            yield Finding("unexpected", f"{receipt.execution_id} was received, but never fired")
        elif event.scheduled_at != receipt.scheduled_ms:
            yield Finding("unexpected", f"{receipt.execution_id} names another tick than its event")
    for failed in fired:
        if failed.state != "SUCCEEDED":
            told = f"{failed.state}({failed.reason}) {failed.detail}"
            yield Finding("unexpected", f"{failed.execution_id}: {told}")


def _coverage(
    span: Span, wanted: list[int], fired: Sequence[ExecutionFired], missed: Sequence[TicksMissed]
) -> Iterator[Finding]:
    """Each tick must be covered by exactly one record, and each record must be about ticks."""
    covered: Counter[int] = Counter()
    for event in fired:
        if not _is_trigger(event):
            covered[event.scheduled_at] += 1
    for run in missed:
        if run.reason == "paused" and run.first >= span.until_ms:
            continue  # a one-off whose time came after the run's end
        within = [tick for tick in wanted if run.first <= tick <= run.last]
        covered.update(within)
        if run.exact and len(within) != run.count:
            told = f"{run.count} ticks from {format_instant(run.first)} are recorded as missed"
            yield Finding("unexpected", f"{span.key}: {told}, its schedule has {len(within)}")
    for tick in wanted:
        if covered[tick] == 0 and tick < span.until_ms:
            yield Finding("uncovered", f"{span.key}: nothing tells of {format_instant(tick)}")
        if covered[tick] > 1:
            told = f"{format_instant(tick)} is covered {covered[tick]} times"
            yield Finding("doubled", f"{span.key}: {told}")
    for tick in sorted(covered.keys() - set(wanted)):
        told = f"{format_instant(tick)} fired, which its schedule does not ask for"
        yield Finding("unexpected", f"{span.key}: {told}")


def _is_trigger(event: ExecutionFired) -> bool:
    """A manual run is beside the schedule: its occurrence carries a mark of its own."""
    return "~m" in event.execution_id.rpartition(":")[0].removeprefix(f"{event.tenant}/{event.job}")


def _by_job(events: Iterable[E]) -> defaultdict[str, list[E]]:
    found: defaultdict[str, list[E]] = defaultdict(list)
    for event in events:
        found[f"{event.tenant}/{event.job}"].append(event)
    return found
