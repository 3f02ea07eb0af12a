"""For every invariant a log that breaks it, forged out of an honest one: the audit refuses it, and
names the record and the invariant."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from processors import topology
from projections.audit.causes import Acknowledged
from projections.audit.finding import CHECKS
from projections.audit.receipts import Receipt
from schemas import limits
from schemas.bindings import EXECUTION_FIRED
from schemas.commands import TriggerJob
from schemas.events import ExecutionFired, ExecutionMoved, JobChanged, TicksMissed
from schemas.state import JobDefinition, JobState, Mark, Position
from schemas.units import format_instant
from tests.unit.audit.scribe import Scribe, found, violations

EXECUTIONS, CHANGES = topology.EXECUTIONS, topology.SCHEDULE_CHANGES
STATES, SCHEDULES, LETTERS = topology.JOB_STATE, topology.SCHEDULES, topology.DEAD_LETTERS
Which = Callable[[Any], bool]


def honest() -> Scribe:
    """A bit of everything: ticks of all kinds, an outage, runs that succeed, fail, get lost and are
    cancelled, a pause, a deletion and a new life."""
    scribe = Scribe()
    scribe.put_cron("cron", "*/2 10-11 * * *", "Europe/Paris")
    scribe.put_topic("every", every="20s")
    scribe.put_topic("once", at="2026-03-02T10:03:00Z")
    scribe.advance(130_000)
    scribe.take_over(gap_ms=400_000)
    scribe.put("work")
    item = scribe.receive(scribe.run("work"))
    scribe.report(item, "started", started_at=scribe.now_ms)
    scribe.advance(20_000)
    scribe.report(item, "heartbeat")
    scribe.succeed(item)
    failed = scribe.receive(scribe.run("work"))
    scribe.report(failed, "outcome", state="FAILED", reason="error", detail="no")
    lost = scribe.receive(scribe.run("work"))
    scribe.advance(limits.LEASE_MS + 1)
    (again,) = scribe.taken()[-1:]
    assert (again.execution_id, again.delivery) == (lost.execution_id, 2)
    scribe.succeed(scribe.receive(again))
    cancelled = scribe.receive(scribe.run("work"))
    scribe.cancel(cancelled.execution_id, "work")
    scribe.report(cancelled, "stopped")
    scribe.pause("every")
    scribe.advance(45_000)
    scribe.resume("every")
    scribe.advance(45_000)
    scribe.put("ticking", every="30s")
    scribe.advance(30_000)
    held = scribe.receive(scribe.taken()[-1])
    scribe.advance(30_000)  # skipped: the last one is open
    scribe.succeed(held)
    scribe.delete("every")
    scribe.put_topic("every", every="25s")
    scribe.advance(60_000)
    return scribe


def fired(**fields: Any) -> Which:
    return _is(ExecutionFired, fields)


def moved(**fields: Any) -> Which:
    return _is(ExecutionMoved, fields)


def changed(**fields: Any) -> Which:
    return _is(JobChanged, fields)


def _is(kind: type, fields: dict[str, Any]) -> Which:
    return lambda body: (
        isinstance(body, kind) and all(getattr(body, name) == v for name, v in fields.items())
    )


def is_mark(number: int) -> Which:
    return lambda body: isinstance(body, Mark) and body.txn == number


def test_an_honest_log_passes_every_check_and_every_check_looked_at_something() -> None:
    report = honest().audit()
    assert found(report) == []
    assert report.ok
    assert {result.check for result in report.results if not result.checked} == set()
    assert {result.state for result in report.results} == {"ok"}


# --- forged -----------------------------------------------------------------------------------


def claimed_early(scribe: Scribe) -> str:
    event = first(scribe, fired(job="cron"))
    return scribe.change(EXECUTIONS, fired(job="cron"), claimed_at=event.due_at - 1)


def started_early(scribe: Scribe) -> str:
    run = first(scribe, moved(job="ticking", state="SUCCEEDED"))
    which = moved(job="ticking", state="SUCCEEDED")
    return scribe.change(EXECUTIONS, which, started_at=run.scheduled_at - 1)


def received_early(scribe: Scribe) -> str:
    receipt = scribe.receipts[0]
    scribe.receipts[0] = msgspec.structs.replace(receipt, received_ms=receipt.received_ms - 60_000)
    return receipt.where


def claimed_twice(scribe: Scribe) -> str:
    last = line(scribe, "cron")
    return scribe.copy(EXECUTIONS, fired(job="cron"), sequence=last + 1)


def tick_left_out(scribe: Scribe) -> str:
    """The second fire tells of the third tick; the record that follows is the first to show it."""
    second = nth(scribe, fired(job="every"), 1)
    third_ms = second.scheduled_at + 20_000
    return retick(scribe, second, third_ms)


def tick_that_nobody_asked_for(scribe: Scribe) -> str:
    second = nth(scribe, fired(job="cron"), 1)
    return retick(scribe, second, second.scheduled_at - 1_000)


def missed_miscounted(scribe: Scribe) -> str:
    which = _is(TicksMissed, {"job": "every"})
    return scribe.change(EXECUTIONS, which, count=first(scribe, which).count - 1)


def never_fired(scribe: Scribe) -> str:
    """The owner goes on for a minute, and nothing tells of the ticks of `every`."""
    scribe.change(STATES, is_mark(scribe.seq), wall_ms=scribe.now_ms + 60_000)
    return scribe.place(EXECUTIONS, lambda b: b == newest(scribe, fired(job="every")))


def overlapping(scribe: Scribe) -> str:
    return scribe.change(EXECUTIONS, fired(job="ticking", state="SKIPPED"), state="QUEUED")


def skipped_for_nothing(scribe: Scribe) -> str:
    return scribe.change(EXECUTIONS, fired(job="every"), state="SKIPPED", reason="overlap")


def too_many_attempts(scribe: Scribe) -> str:
    return scribe.change(EXECUTIONS, fired(job="work"), attempt=2)


def too_many_lost_leases(scribe: Scribe) -> str:
    which = moved(job="work", state="SUCCEEDED", delivery=2)
    return scribe.change(EXECUTIONS, which, lost=limits.MAX_DELIVERIES + 1)


def no_dead_letter(scribe: Scribe) -> str:
    scribe.drop(LETTERS, moved(state="FAILED"))
    return scribe.place(EXECUTIONS, moved(state="FAILED"))


def other_dead_letter(scribe: Scribe) -> str:
    return scribe.change(LETTERS, moved(state="FAILED"), detail="something else")


def epoch_falls(scribe: Scribe) -> str:
    return scribe.change(STATES, is_mark(scribe.seq), epoch=1)


def position_falls(scribe: Scribe) -> str:
    return scribe.change(STATES, is_mark(scribe.seq), positions=(Position("commands", 1),))


def zombie_writes(scribe: Scribe) -> str:
    """A former owner's transaction stands behind the newest."""
    scribe.change(STATES, is_mark(scribe.seq - 1), txn=scribe.seq + 5)
    return scribe.place(STATES, is_mark(scribe.seq))


def fence_of_another_transaction(scribe: Scribe) -> str:
    receipt = scribe.receipts[0]
    scribe.receipts[0] = msgspec.structs.replace(receipt, fence=receipt.fence + (3 << 16))
    return receipt.where


def leased_twice(scribe: Scribe) -> str:
    """Another worker renews."""
    return scribe.change(EXECUTIONS, renewed, worker="w-2")


def delivery_jumps(scribe: Scribe) -> str:
    which = moved(job="work", state="RUNNING", delivery=2)
    return scribe.change(EXECUTIONS, which, delivery=3)


def ends_twice(scribe: Scribe) -> str:
    which = moved(job="work", state="SUCCEEDED")
    last = line(scribe, "work")
    return scribe.copy(EXECUTIONS, which, sequence=last + 1, state="FAILED")


def fires_while_paused(scribe: Scribe) -> str:
    pause = first(scribe, changed(job="every", change="pause"), CHANGES)
    resume = first(scribe, changed(job="every", change="resume"), CHANGES)
    assert resume.sequence == pause.sequence + 1
    following = next(e for e in events(scribe) if e.job == "every" and
                     e.sequence > resume.sequence)  # fmt: skip
    scribe.change(CHANGES, changed(job="every", change="resume"), change="trigger")
    return scribe.place(EXECUTIONS, lambda b: b == following)


def leased_after_the_delete(scribe: Scribe) -> str:
    """What was claimed in a former life is delivered again."""
    again = moved(job="work", state="RUNNING", delivery=2)
    claim = fired(execution_id=first(scribe, again).execution_id)
    scribe.change(EXECUTIONS, claim, life=0)
    return scribe.place(EXECUTIONS, again)


def torn(scribe: Scribe) -> str:
    """A record of a committed transaction is aborted."""
    scribe.drop(EXECUTIONS, fired(job="once"))
    return scribe.place(STATES, is_mark(first(scribe, fired(job="once")).txn))


def no_mark(scribe: Scribe) -> str:
    txn = first(scribe, fired(job="once")).txn
    scribe.drop(STATES, is_mark(txn))
    return scribe.place(STATES, lambda b: isinstance(b, JobState) and b.txn == txn)


def state_of_another_sequence(scribe: Scribe) -> str:
    which = last_state(scribe, "cron")
    return scribe.change(STATES, which, sequence=line(scribe, "cron") + 7)


def state_with_another_next_tick(scribe: Scribe) -> str:
    return scribe.change(STATES, last_state(scribe, "cron"), next_ms=scribe.now_ms + 1)


def state_without_an_open_execution(scribe: Scribe) -> str:
    return scribe.change(
        STATES, lambda b: isinstance(b, JobState) and bool(b.open) and b.open[0].worker != "",
        open=(),
    )  # fmt: skip


def definition_that_nobody_put(scribe: Scribe) -> str:
    which = _is(JobDefinition, {"job": "cron"})
    return scribe.change(SCHEDULES, which, payload=b"changed")


def event_lost(scribe: Scribe) -> str:
    """An event is missing; the next one of its job shows it."""
    second, third = nth(scribe, fired(job="every"), 1), nth(scribe, fired(job="every"), 2)
    scribe.drop(EXECUTIONS, lambda b: b == second)
    return scribe.place(EXECUTIONS, lambda b: b == third)


def key_of_another_tenant(scribe: Scribe) -> str:
    return scribe.change(EXECUTIONS, fired(job="cron"), tenant="other")


def change_that_nobody_asked_for(scribe: Scribe) -> str:
    which = changed(job="every", change="pause")
    return scribe.change(CHANGES, which, command_id="made-up")


def command_of_another_tenant(scribe: Scribe) -> str:
    """The command that asked is about a job of the same name of somebody else."""
    pause = first(scribe, changed(job="every", change="pause"), CHANGES)
    for n, record in enumerate(scribe.asked):
        if pause.command_id.encode() in (record.value or b""):
            value = (record.value or b"").replace(b"\x02t\nevery", b"\x02u\nevery")
            assert value != record.value
            scribe.asked[n] = msgspec.structs.replace(record, value=value)
    return scribe.place(CHANGES, changed(job="every", change="pause"))


def result_too_large(scribe: Scribe) -> str:
    which = moved(job="work", state="SUCCEEDED")
    return scribe.change(EXECUTIONS, which, result=b"x" * (limits.RESULT_BYTES_MAX + 1))


def command_twice(scribe: Scribe) -> str:
    pause = first(scribe, changed(job="every", change="pause"), CHANGES)
    which = changed(job="every", change="resume")
    return scribe.change(CHANGES, which, command_id=pause.command_id)


def trigger_twice(scribe: Scribe) -> str:
    one = scribe.send(TriggerJob(tenant="t", job="once", command_id="again"))
    claim = first(scribe, fired(execution_id=one.execution_id))
    later = claim.execution_id.replace(":0", ":1", 1)
    return scribe.write(
        EXECUTIONS,
        msgspec.structs.replace(claim, execution_id=later, sequence=claim.sequence + 1),
    )


def deleted_comes_back(scribe: Scribe) -> str:
    """The put of the second life says that it is of the first."""
    delete = first(scribe, changed(job="every", change="delete"), CHANGES)
    which = changed(job="every", change="put", sequence=delete.sequence + 1)
    return scribe.change(CHANGES, which, life=delete.life)


def decided_in_a_former_life(scribe: Scribe) -> str:
    newest_one, oldest = newest(scribe, fired(job="every")), first(scribe, fired(job="every"))
    return retick(scribe, newest_one, oldest.scheduled_at)


def acknowledged_and_lost(scribe: Scribe) -> str:
    scribe.acknowledged.append(Acknowledged(job="t/cron", sequence=900, where="log:9"))
    return "log:9"


def acknowledged_run_lost(scribe: Scribe) -> str:
    scribe.acknowledged.append(
        Acknowledged(job="t/cron", sequence=1, execution_id="t/cron:x~m00000000:1", where="log:9")
    )
    return "log:9"


def received_what_was_aborted(scribe: Scribe) -> str:
    event = newest(scribe, fired(job="cron"))
    scribe.drop(EXECUTIONS, lambda b: b == event)
    return next(r.where for r in scribe.receipts if r.execution_id == event.execution_id)


def received_of_an_aborted_lease(scribe: Scribe) -> str:
    """The transaction was aborted and done again; the receiver had it of the first one."""
    event = newest(scribe, fired(job="cron"))
    forged = msgspec.structs.replace(event, txn=event.txn - 1)
    n = scribe._find(EXECUTIONS, lambda b: b == event)
    record = scribe.log[EXECUTIONS][n]
    hidden = msgspec.structs.replace(
        record, offset=record.offset - 1, value=EXECUTION_FIRED.encode(forged)
    )
    scribe.log[EXECUTIONS].insert(n, hidden)
    scribe.aborted.add((EXECUTIONS, hidden.offset))
    at = next(n for n, r in enumerate(scribe.receipts) if r.execution_id == event.execution_id)
    receipt = scribe.receipts[at]
    scribe.receipts[at] = msgspec.structs.replace(receipt, fence=(event.txn - 1 << 16) + 1)
    return receipt.where


def never_received(scribe: Scribe) -> str:
    event = nth(scribe, fired(job="cron"), 1)
    scribe.receipts = [r for r in scribe.receipts if r.execution_id != event.execution_id]
    return scribe.place(EXECUTIONS, lambda b: b == event)


def received_twice(scribe: Scribe) -> str:
    scribe.receipts.append(msgspec.structs.replace(scribe.receipts[0], where="receipts:99"))
    return "receipts:99"


def received_and_never_claimed(scribe: Scribe) -> str:
    made_up = Receipt(execution_id="t/cron:x:1", received_ms=scribe.now_ms, where="receipts:99")
    scribe.receipts.append(made_up)
    return "receipts:99"


FORGERIES: dict[str, list[Callable[[Scribe], str]]] = {
    "I1": [claimed_early, started_early, received_early],
    "I2": [claimed_twice],
    "I3": [tick_left_out, tick_that_nobody_asked_for, missed_miscounted, never_fired],
    "I4": [overlapping, skipped_for_nothing],
    "I5": [too_many_attempts, too_many_lost_leases, no_dead_letter, other_dead_letter],
    "I6": [epoch_falls, position_falls, zombie_writes, fence_of_another_transaction],
    "I7": [leased_twice, delivery_jumps],
    "I8": [ends_twice],
    "I9": [fires_while_paused, leased_after_the_delete],
    "I10": [torn, no_mark],
    "I11": [state_of_another_sequence, state_with_another_next_tick,
            state_without_an_open_execution, definition_that_nobody_put],
    "I12": [event_lost],
    "I13": [key_of_another_tenant, change_that_nobody_asked_for, command_of_another_tenant],
    "I14": [result_too_large],
    "I15": [command_twice, trigger_twice],
    "I16": [deleted_comes_back, decided_in_a_former_life],
    "lost-write": [acknowledged_and_lost, acknowledged_run_lost],
    "aborted-read": [received_what_was_aborted, received_of_an_aborted_lease],
    "targets": [never_received, received_twice, received_and_never_claimed],
}  # fmt: skip


def test_every_check_has_a_forgery() -> None:
    assert FORGERIES.keys() == CHECKS.keys()


@pytest.mark.parametrize(
    ("check", "forge"),
    [pytest.param(c, f, id=f"{c}-{f.__name__}") for c, found in FORGERIES.items() for f in found],
)
def test_a_forged_log_is_refused_with_the_record_and_the_invariant(
    check: str, forge: Callable[[Scribe], str]
) -> None:
    scribe = honest()
    where = forge(scribe)
    report = scribe.audit()
    assert not report.ok
    assert where in [violation.where for violation in violations(report, check)], found(report)


# --- finding one's way in it --------------------------------------------------------------------


def events(scribe: Scribe, topic: str = EXECUTIONS) -> list[Any]:
    return scribe.events(topic)


def first(scribe: Scribe, which: Which, topic: str = EXECUTIONS) -> Any:
    return next(body for body in events(scribe, topic) if which(body))


def newest(scribe: Scribe, which: Which) -> Any:
    return [body for body in events(scribe) if which(body)][-1]


def nth(scribe: Scribe, which: Which, n: int) -> Any:
    return [body for body in events(scribe) if which(body)][n]


def line(scribe: Scribe, job: str) -> int:
    """The newest sequence number of a job."""
    return int(scribe.state(job).sequence)


def last_state(scribe: Scribe, job: str) -> Which:
    state = scribe.state(job)
    return lambda body: body == state


def retick(scribe: Scribe, event: ExecutionFired, at_ms: int) -> str:
    """Let a fire be of another tick."""
    execution_id = f"{event.tenant}/{event.job}:{format_instant(at_ms)}:1"
    n = scribe._find(EXECUTIONS, lambda b: b == event)
    record = scribe.log[EXECUTIONS][n]
    body = msgspec.structs.replace(
        event, execution_id=execution_id, scheduled_at=at_ms, due_at=at_ms,
        claimed_at=max(at_ms, event.claimed_at),
    )  # fmt: skip
    scribe.log[EXECUTIONS][n] = msgspec.structs.replace(
        record, key=f"{execution_id}#{event.sequence}".encode(),
        value=EXECUTION_FIRED.encode(body),
    )  # fmt: skip
    return scribe._place(record)


def renewed(body: Any) -> bool:
    return isinstance(body, ExecutionMoved) and body.state == "RUNNING" and body.started_at > 0
