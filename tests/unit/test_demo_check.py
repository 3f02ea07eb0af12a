"""The check must be able to fail: forged evidence of everything that must not happen."""

from typing import Any

import pytest

from horolog.demo.check import Span, Verdict, judge, ticks_of
from horolog.demo.evidence import spans_of
from horolog.demo.receipts import Receipt
from processors.core.keys import occurrence_of_tick, occurrence_of_trigger
from processors.core.schedule import AtSchedule, CronSchedule, EverySchedule
from schemas.events import ExecutionFired, JobChanged, TicksMissed
from schemas.state import JobDefinition, Schedule

START = 1_800_000_000_000
KEY = "t/j"


def span(seconds: int = 10, **changes: Any) -> Span:
    plan = (EverySchedule(every_ms=1_000, anchor_ms=START),)
    until_ms = START + seconds * 1_000 + 1
    values = {
        "key": KEY, "plan": plan, "from_ms": START, "until_ms": until_ms, "decided_ms": until_ms,
    }  # fmt: skip
    return Span(**(values | changes))


def fired(n: int, **changes: Any) -> ExecutionFired:
    at_ms = START + n * 1_000
    occurrence = changes.pop("occurrence", occurrence_of_tick(KEY, at_ms))
    values: dict[str, Any] = {
        "tenant": "t", "job": "j", "life": 1, "sequence": n, "txn": n,
        "execution_id": f"{occurrence}:1", "scheduled_at": at_ms, "due_at": at_ms,
        "claimed_at": at_ms + 2, "version": 1, "attempt": 1, "state": "SUCCEEDED", "topic": "x",
        "partition": 0,
    }  # fmt: skip
    return ExecutionFired(**(values | changes))


def receipt(event: ExecutionFired, **changes: Any) -> Receipt:
    values: dict[str, Any] = {
        "kind": "topic", "execution_id": event.execution_id,
        "occurrence": event.execution_id.rpartition(":")[0], "subject": KEY,
        "scheduled_ms": event.scheduled_at, "received_ms": event.claimed_at + 3,
    }  # fmt: skip
    return Receipt(**(values | changes))


def missed(first: int, last: int, **changes: Any) -> TicksMissed:
    values: dict[str, Any] = {
        "tenant": "t", "job": "j", "life": 1, "sequence": first, "txn": first,
        "first": START + first * 1_000, "last": START + last * 1_000, "count": last - first + 1,
        "exact": True, "reason": "policy", "claimed_at": START + last * 1_000 + 500, "version": 1,
    }  # fmt: skip
    return TicksMissed(**(values | changes))


FIRES = [fired(n) for n in range(1, 11)]
RECEIPTS = [receipt(event) for event in FIRES]


def verdict(
    fires: list[ExecutionFired] = FIRES,
    receipts: list[Receipt] = RECEIPTS,
    gaps: tuple[TicksMissed, ...] = (),
    spans: tuple[Span, ...] = (span(),),
    fires_min: int = 1,
) -> Verdict:
    return judge(spans, fires, [], gaps, receipts, wanted={"topic": fires_min})


def kinds(found: Verdict) -> dict[str, int]:
    names = ("early", "lost", "doubled", "uncovered", "unexpected")
    return {name: count for name in names if (count := getattr(found, name))}


def test_a_run_that_kept_every_promise_is_ok() -> None:
    found = verdict()
    assert found.ok
    assert kinds(found) == {}
    assert (found.fires, found.receipts, found.ticks, found.findings) == (10, 10, 10, ())


def test_a_receipt_before_its_tick_is_early() -> None:
    early = receipt(FIRES[0], received_ms=FIRES[0].scheduled_at - 1)
    found = verdict(receipts=[early, *RECEIPTS[1:]])
    assert kinds(found) == {"early": 1}
    assert not found.ok
    assert "received 1 ms before its tick" in found.findings[0]


def test_a_claim_before_it_was_due_is_early() -> None:
    early = fired(1, claimed_at=START + 999)
    assert kinds(verdict(fires=[early, *FIRES[1:]])) == {"early": 1}


def test_a_fire_that_nobody_received_is_lost() -> None:
    assert kinds(verdict(receipts=RECEIPTS[1:])) == {"lost": 1}


def test_a_fire_that_was_received_twice_is_doubled() -> None:
    assert kinds(verdict(receipts=[*RECEIPTS, RECEIPTS[3]])) == {"doubled": 1}


def test_an_occurrence_under_two_execution_ids_is_doubled() -> None:
    again = fired(4, execution_id=f"{occurrence_of_tick(KEY, START + 4_000)}:2")
    found = verdict(fires=[*FIRES, again], receipts=[*RECEIPTS, receipt(again)])
    assert kinds(found) == {"doubled": 2}  # once as received, once as tick


def test_an_event_that_stands_in_the_log_twice_is_doubled() -> None:
    found = verdict(fires=[*FIRES, FIRES[0]])
    assert found.doubled == 2  # the event, and its tick
    assert not found.ok


def test_a_tick_of_which_nothing_tells_is_uncovered() -> None:
    found = verdict(fires=FIRES[:4] + FIRES[5:], receipts=RECEIPTS[:4] + RECEIPTS[5:])
    assert kinds(found) == {"uncovered": 1}
    assert "2027-01-15T08:00:05.000Z" in found.findings[0]


def test_ticks_that_are_recorded_as_missed_are_covered() -> None:
    found = verdict(FIRES[:3] + FIRES[6:], RECEIPTS[:3] + RECEIPTS[6:], (missed(4, 6),))
    assert found.ok
    assert found.missed_ticks == 3


def test_a_tick_that_fired_and_was_missed_is_doubled() -> None:
    assert kinds(verdict(gaps=(missed(4, 4),))) == {"doubled": 1}


def test_a_wrong_count_of_missed_ticks_is_unexpected() -> None:
    fires, receipts = FIRES[:3] + FIRES[6:], RECEIPTS[:3] + RECEIPTS[6:]
    assert kinds(verdict(fires, receipts, (missed(4, 6, count=2),))) == {"unexpected": 1}
    assert verdict(fires, receipts, (missed(4, 6, count=2, exact=False),)).ok


def test_a_receipt_without_an_event_is_unexpected() -> None:
    found = verdict(fires=FIRES[1:])
    assert kinds(found) == {"uncovered": 1, "unexpected": 1}


def test_a_fire_that_no_schedule_asks_for_is_unexpected() -> None:
    at_ms = START + 3_500
    stray = fired(4, scheduled_at=at_ms, due_at=at_ms, occurrence=occurrence_of_tick(KEY, at_ms))
    found = verdict(fires=[*FIRES, stray], receipts=[*RECEIPTS, receipt(stray)])
    assert kinds(found) == {"unexpected": 1}


def test_a_failed_fire_is_unexpected() -> None:
    failed = fired(1, state="FAILED", reason="target", detail="gone")
    found = verdict(fires=[failed, *FIRES[1:]], receipts=RECEIPTS[1:])
    assert kinds(found) == {"unexpected": 1}


def test_a_receipt_that_names_another_tick_than_its_event_is_unexpected() -> None:
    other = receipt(FIRES[0], scheduled_ms=START)
    assert kinds(verdict(receipts=[other, *RECEIPTS[1:]])) == {"unexpected": 1}


def test_a_job_that_nobody_registered_is_unexpected() -> None:
    assert verdict(spans=()).unexpected == 1


def test_a_manual_run_needs_its_receipt_but_is_no_tick() -> None:
    occurrence = occurrence_of_trigger(KEY, START + 2_300, b"\x12\x34\x56\x78")
    manual = fired(2, occurrence=occurrence, scheduled_at=START + 2_300, due_at=START + 2_300,
                   claimed_at=START + 2_310)  # fmt: skip
    assert verdict([*FIRES, manual], [*RECEIPTS, receipt(manual)]).ok
    assert kinds(verdict([*FIRES, manual], RECEIPTS)) == {"lost": 1}


def test_too_few_fires_say_nothing_so_the_check_fails() -> None:
    found = verdict(fires_min=11)
    assert not found.ok
    assert kinds(found) == {}
    assert found.findings == ("short: 10 of topic, at least 11 were wanted",)


def test_a_tick_after_the_pause_was_appended_may_have_been_decided_before_it_or_not() -> None:
    spans = (span(until_ms=START + 9_000, decided_ms=START + 10_000),)
    for last in (8, 9, 10):
        assert verdict(FIRES[:last], RECEIPTS[:last], spans=spans).ok
    assert kinds(verdict(FIRES[:7], RECEIPTS[:7], spans=spans)) == {"uncovered": 1}
    spans = (span(until_ms=START + 8_000, decided_ms=START + 9_000),)
    assert kinds(verdict(spans=spans)) == {"unexpected": 1}


def test_a_one_off_whose_time_comes_after_the_end_is_no_part_of_the_run() -> None:
    spans = (span(plan=(AtSchedule(at_ms=START + 60_000),)),)
    after = missed(60, 60, reason="paused")
    assert verdict([], [], (after,), spans, fires_min=0).ok
    assert not verdict([], [], (missed(60, 60),), spans, fires_min=0).ok


def test_a_one_off_that_is_due_at_its_acceptance_is_a_tick() -> None:
    assert list(ticks_of(span(plan=(AtSchedule(at_ms=START),)))) == [START]
    assert list(ticks_of(span(plan=(AtSchedule(at_ms=START + 20_000),)))) == []


def test_coinciding_instants_are_one_tick() -> None:
    plan = (
        EverySchedule(every_ms=2_000, anchor_ms=START),
        CronSchedule(cron="*/5 * * * * *", timezone="UTC", gap="auto", repeat="auto"),
    )
    offsets = [(tick - START) // 1_000 for tick in ticks_of(span(plan=plan))]
    assert offsets == [2, 4, 5, 6, 8, 10]


def changed(change: str, at_ms: int, definition: JobDefinition | None = None) -> JobChanged:
    return JobChanged(
        tenant="t", job="j", life=1, sequence=1, txn=1, version=1, change=change, at_ms=at_ms,
        definition=definition,
    )  # fmt: skip


def test_a_span_goes_from_acceptance_to_pause_or_to_the_end() -> None:
    schedule = Schedule(kind="every", every_ms=1_000, anchor_ms=START)
    made = JobDefinition(txn=1, tenant="t", job="j", life=1, version=1, schedules=(schedule,))
    changes = [changed("put", START, made)]
    (found,) = spans_of(changes, 99)
    assert (found.key, found.from_ms, found.until_ms, found.decided_ms) == (KEY, START, 99, 99)
    changes.append(changed("pause", START + 7))
    (found,) = spans_of(changes, START + 9)
    assert (found.until_ms, found.decided_ms) == (START + 7, START + 9)
    with pytest.raises(ValueError, match="nobody was to resume"):
        spans_of([*changes, changed("resume", START + 8)], 99)
