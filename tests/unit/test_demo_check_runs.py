"""The check of HTTP calls and Python functions must be able to fail: forged evidence."""

from typing import Any

import pytest

from horolog.demo.check_runs import Runs, look_at_runs, runs_of
from horolog.demo.receipts import Kind, Receipt
from schemas.events import ExecutionFired, ExecutionMoved

AT = 1_800_000_000_000


def fired(n: int, sequence: int, state: str = "RUNNING", **changes: Any) -> ExecutionFired:
    """The claim of the n-th tick."""
    at_ms = AT + n * 1_000
    values: dict[str, Any] = {
        "tenant": "t", "job": "j", "life": 1, "sequence": sequence, "txn": n,
        "execution_id": f"t/j:{n}:1", "scheduled_at": at_ms, "due_at": at_ms, "claimed_at": at_ms,
        "version": 1, "attempt": 1, "state": state, "pool": "default", "handler": "h",
    }  # fmt: skip
    return ExecutionFired(**(values | changes))


def moved(n: int, sequence: int, state: str, **changes: Any) -> ExecutionMoved:
    """What became of it later."""
    values: dict[str, Any] = {
        "tenant": "t", "job": "j", "life": 1, "sequence": sequence, "txn": n,
        "execution_id": f"t/j:{n}:1", "scheduled_at": AT + n * 1_000, "due_at": AT + n * 1_000,
        "claimed_at": AT + n * 1_000, "version": 1, "attempt": 1, "delivery": 1, "lost": 0,
        "at": AT + n * 1_000 + sequence, "state": state, "pool": "default", "handler": "h",
    }  # fmt: skip
    return ExecutionMoved(**(values | changes))


def seen(n: int, delivery: int = 1, kind: Kind = "worker", **changes: Any) -> Receipt:
    values: dict[str, Any] = {
        "kind": kind, "execution_id": f"t/j:{n}:1", "occurrence": f"t/j:{n}", "subject": "t/j",
        "scheduled_ms": AT + n * 1_000, "received_ms": AT + n * 1_000 + 3, "delivery": delivery,
    }  # fmt: skip
    return Receipt(**(values | changes))


CLAIM, DONE = fired(1, 1), moved(1, 2, "SUCCEEDED")
LOST = moved(1, 2, "QUEUED", lost=1)
DONE_LATER = moved(1, 4, "SUCCEEDED", delivery=2, lost=1)
AGAIN = moved(1, 3, "RUNNING", delivery=2, lost=1)


def judged(
    claims: list[ExecutionFired], moves: list[ExecutionMoved], receipts: list[Receipt]
) -> Runs:
    return look_at_runs(claims, moves, receipts)


def kinds(found: Runs) -> list[str]:
    return [finding.kind for finding in found.findings]


def test_a_run_that_was_seen_once_is_as_promised() -> None:
    found = judged([CLAIM], [DONE], [seen(1)])
    assert kinds(found) == []
    assert found.succeeded == {"http": 0, "worker": 1}
    call = judged([fired(1, 1, pool="http")], [DONE], [seen(1, kind="http")])
    assert call.succeeded == {"http": 1, "worker": 0}


def test_a_success_that_nobody_saw_is_lost() -> None:
    assert kinds(judged([CLAIM], [DONE], [])) == ["lost"]


def test_a_repeat_after_a_lost_lease_is_flagged_and_fine() -> None:
    found = judged([CLAIM], [LOST, AGAIN, DONE_LATER], [seen(1), seen(1, 2)])
    assert kinds(found) == []
    assert found.redelivered == 1


def test_a_repeat_that_carries_the_same_delivery_is_doubled() -> None:
    assert kinds(judged([CLAIM], [LOST, AGAIN, DONE_LATER], [seen(1), seen(1)])) == ["doubled"]


def test_a_repeat_without_a_lost_lease_is_doubled() -> None:
    moves = [moved(1, 4, "SUCCEEDED", delivery=2)]
    assert kinds(judged([CLAIM], moves, [seen(1), seen(1, 2)])) == ["doubled"]


def test_more_repeats_than_lost_leases_are_doubled() -> None:
    receipts = [seen(1), seen(1, 2), seen(1, 3)]
    assert kinds(judged([CLAIM], [LOST, AGAIN, DONE_LATER], receipts)) == ["doubled"]


def test_work_that_was_lost_before_anybody_began_is_seen_once() -> None:
    found = judged([CLAIM], [LOST, AGAIN, DONE_LATER], [seen(1, 2)])
    assert kinds(found) == []
    assert found.redelivered == 0


@pytest.mark.parametrize(
    ("state", "reason"), [("DEAD", "deliveries"), ("FAILED", "error"), ("CANCELLED", "")]
)
def test_any_other_end_is_unexpected(state: str, reason: str) -> None:
    assert kinds(judged([CLAIM], [moved(1, 2, state, reason=reason)], [])) == ["unexpected"]


@pytest.mark.parametrize("moves", [[], [LOST], [LOST, AGAIN]])
def test_what_has_not_ended_is_uncovered(moves: list[ExecutionMoved]) -> None:
    assert kinds(judged([CLAIM], moves, [])) == ["uncovered"]
    (run,) = runs_of([CLAIM], moves, [])
    assert not run.ended


def test_what_the_pause_at_the_end_holds_has_neither_ended_nor_been_lost() -> None:
    held = moved(1, 2, "PENDING", reason="paused")
    found = judged([CLAIM], [held], [])
    assert (kinds(found), found.held) == ([], 1)
    assert kinds(judged([CLAIM], [held, moved(1, 3, "QUEUED")], [])) == ["uncovered"]


def test_the_closing_of_a_lease_does_not_change_the_end() -> None:
    moves = [DONE, moved(1, 3, "CANCELLED", reason="lease_closed")]
    assert kinds(judged([CLAIM], moves, [seen(1)])) == []


def test_a_tick_is_skipped_while_an_execution_is_open_and_only_then() -> None:
    skipped = fired(2, 3, "SKIPPED", reason="overlap")
    end = moved(1, 4, "SUCCEEDED")
    found = judged([CLAIM, skipped], [end], [seen(1)])
    assert (kinds(found), found.skipped) == ([], 1)
    assert kinds(judged([CLAIM, skipped], [DONE], [seen(1)])) == ["unexpected"]


def test_two_executions_of_a_job_at_once_are_unexpected() -> None:
    second = fired(2, 2)
    ends = [moved(1, 3, "SUCCEEDED"), moved(2, 4, "SUCCEEDED")]
    assert kinds(judged([CLAIM, second], ends, [seen(1), seen(2)])) == ["unexpected"]


def test_a_skipped_tick_that_was_received_is_unexpected() -> None:
    claims = [CLAIM, fired(2, 2, "SKIPPED", reason="overlap")]
    found = judged(claims, [moved(1, 3, "SUCCEEDED")], [seen(1), seen(2)])
    assert kinds(found) == ["unexpected"]


def test_a_receipt_that_nobody_fired_or_for_another_tick_is_unexpected() -> None:
    assert kinds(judged([CLAIM], [DONE], [seen(1), seen(7)])) == ["unexpected"]
    assert kinds(judged([CLAIM], [DONE], [seen(1, scheduled_ms=AT)])) == ["unexpected"]


def test_records_of_topics_are_not_its_business() -> None:
    assert judged([fired(1, 1, "SUCCEEDED", pool="", topic="x")], [], []).findings == ()
