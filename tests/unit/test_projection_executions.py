"""The fold from events to executions as they stand, whichever parts of the log are read when."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.core import executions as core
from projections.executions import (
    LEASE_CLOSED,
    TERMINAL,
    Execution,
    ExecutionsView,
    Timeline,
    execution_of,
)
from schemas.bindings import EXECUTION_FIRED, EXECUTION_MOVED, INPUT_LOST, TICKS_MISSED
from schemas.events import ExecutionFired, ExecutionMoved, InputLost, TicksMissed

Event = ExecutionFired | ExecutionMoved


def fired(job: str, at_ms: int, tenant: str = "t", **changes: Any) -> ExecutionFired:
    values: dict[str, Any] = {
        "tenant": tenant, "job": job, "life": 1, "sequence": at_ms, "txn": 1,
        "execution_id": f"{tenant}/{job}:{at_ms}:1", "scheduled_at": at_ms, "due_at": at_ms,
        "claimed_at": at_ms, "version": 1, "attempt": 1, "state": "SUCCEEDED",
    }  # fmt: skip
    return ExecutionFired(**(values | changes))


def moved(sequence: int, state: str, reason: str = "", **changes: Any) -> ExecutionMoved:
    values: dict[str, Any] = {
        "tenant": "t", "job": "a", "life": 1, "sequence": sequence, "txn": 1,
        "execution_id": "t/a:10:1", "scheduled_at": 10, "due_at": 10, "claimed_at": 10,
        "version": 1, "attempt": 1, "delivery": 1, "lost": 0, "at": 10 + sequence, "state": state,
        "reason": reason, "pool": "default", "handler": "h", "worker": "w", "lease_until": 99,
    }  # fmt: skip
    return ExecutionMoved(**(values | changes))


def record(event: Event) -> tuple[bytes, bytes]:
    key = f"{event.execution_id}#{event.sequence}".encode()
    codec = EXECUTION_FIRED if isinstance(event, ExecutionFired) else EXECUTION_MOVED
    return key, codec.encode(event)


def view_of(*events: Event) -> ExecutionsView:
    view = ExecutionsView()
    for event in events:
        view.fold(*record(event))
    return view


def row_of(*events: Event) -> Execution:
    (row,) = view_of(*events).executions("t")
    return row


CLAIMED = fired("a", 10, state="QUEUED", sequence=1, pool="default", handler="h")
LEASED = moved(2, "RUNNING")
LOST = moved(3, "QUEUED", worker="", lease_until=0, lost=1, detail="the lease was lost")
AGAIN = moved(4, "RUNNING", delivery=2, lost=1, worker="w2")
DONE = moved(
    5, "SUCCEEDED", delivery=2, lost=1, worker="w2", started_at=11, finished_at=12, result=b"7"
)


def test_a_row_is_the_execution_as_it_stands_now() -> None:
    assert row_of(CLAIMED).state == "QUEUED"
    assert (row_of(CLAIMED, LEASED).state, row_of(CLAIMED, LEASED).worker) == ("RUNNING", "w")
    lost = row_of(CLAIMED, LEASED, LOST)
    assert (lost.state, lost.lost, lost.detail) == ("QUEUED", 1, "the lease was lost")
    done = row_of(CLAIMED, LEASED, LOST, AGAIN, DONE)
    assert (done.state, done.delivery, done.lost, done.worker) == ("SUCCEEDED", 2, 1, "w2")
    assert (done.started_at, done.finished_at, done.result) == (11, 12, b"7")
    assert (done.claimed_at, done.at) == (10, 15)


@pytest.mark.parametrize(
    "after",
    [
        moved(4, "CANCELLED", detail="half done"),
        moved(4, "CANCELLED", LEASE_CLOSED, started_at=11, finished_at=12, result=b"late"),
    ],
    ids=["a heartbeat", "the closing of the lease"],
)
def test_a_terminal_row_stays_as_it_was_decided(after: ExecutionMoved) -> None:
    cancelled = moved(3, "CANCELLED", detail="no longer wanted")
    row = row_of(CLAIMED, LEASED, cancelled, after)
    assert (row.state, row.reason, row.detail) == ("CANCELLED", "", "no longer wanted")
    assert (row.sequence, row.result) == (3, b"")


def test_the_words_are_the_schedulers() -> None:
    assert set(TERMINAL) >= core.TERMINAL
    assert LEASE_CLOSED == core.LEASE_CLOSED


HISTORY = (CLAIMED, LEASED, LOST, AGAIN, moved(5, "CANCELLED"), moved(6, "CANCELLED", LEASE_CLOSED))


@given(st.permutations(HISTORY), st.integers(0, len(HISTORY)))
def test_the_order_of_reading_makes_no_difference(order: list[Event], again: int) -> None:
    assert row_of(*order, *order[:again]) == row_of(*HISTORY)
    timeline = Timeline("t/a:10:1")
    for event in order:
        timeline.fold(*record(event))
    assert [event.sequence for event in timeline.events] == [1, 2, 3, 4, 5, 6]
    assert timeline.row == row_of(*HISTORY)


def test_any_end_of_the_log_is_enough_for_the_state() -> None:
    for first in range(len(HISTORY) - 1):
        row = row_of(*HISTORY[first:])
        assert (row.state, row.scheduled_at, row.pool) == ("CANCELLED", 10, "default")


def test_executions_come_newest_first_and_are_chosen_by_job_and_state() -> None:
    view = view_of(
        fired("a", 3), fired("b", 1, state="FAILED"), fired("a", 2, state="FAILED"),
        fired("a", 9, tenant="other"),
    )  # fmt: skip
    assert [one.claimed_at for one in view.executions("t")] == [3, 2, 1]
    assert [one.claimed_at for one in view.executions("t", "a")] == [3, 2]
    assert [one.claimed_at for one in view.executions("t", state="FAILED")] == [2, 1]
    assert [one.claimed_at for one in view.executions("t", limit=1)] == [3]


def test_an_execution_is_found_by_the_state_it_has_now_and_by_no_earlier_one() -> None:
    view = view_of(CLAIMED, LEASED)
    assert len(view.executions("t", state="RUNNING")) == 1
    assert view.executions("t", state="QUEUED") == []


def test_a_run_of_missed_ticks_is_one_row_with_first_last_and_count() -> None:
    view = ExecutionsView()
    event = TicksMissed(
        tenant="t", job="a", life=1, sequence=4, txn=1, first=1_000, last=5_000, count=5,
        exact=True, reason="policy", claimed_at=9_000, version=2,
    )  # fmt: skip
    view.fold(b"k", TICKS_MISSED.encode(event))
    (row,) = view.executions("t", "a", state="MISSED")
    assert (row.scheduled_at, row.last_scheduled_at, row.count) == (1_000, 5_000, 5)
    assert (row.reason, row.execution_id, row.version) == ("policy", "", 2)


def test_an_event_about_something_else_is_no_execution() -> None:
    lost = InputLost(topic="commands", partition=0, first=1, last=2, txn=1, at_ms=1)
    assert execution_of(INPUT_LOST.encode(lost)) is None
    assert ExecutionsView().fold(b"k", INPUT_LOST.encode(lost)) is None


def test_what_cannot_be_decoded_is_counted_and_hides_nothing_else() -> None:
    view, timeline = view_of(CLAIMED), Timeline("t/a:10:1")
    garbage = b"t/a:10:1#9", EXECUTION_MOVED.prefix + b"\xff"
    view.fold(*garbage)
    timeline.fold(*garbage)
    assert (view.undecodable, timeline.undecodable) == (1, 1)
    assert len(view.executions("t")) == 1


@given(st.permutations(range(40)), st.integers(1, 10))
def test_however_they_come_the_newest_are_kept_and_never_more_than_twice_as_many(
    order: list[int], most: int
) -> None:
    view = ExecutionsView(executions_max=most)
    for at_ms in order:
        view.fold(*record(fired("a", at_ms)))
        assert len(view) < 2 * most
    kept = [one.claimed_at for one in view.executions("t", limit=most)]
    assert kept == list(range(39, 39 - most, -1))


@pytest.mark.parametrize("event", [fired("a", 5, topic="x", partition=3, detail="d"), DONE, LOST])
def test_rows_carry_what_the_event_says(event: Event) -> None:
    row = execution_of(record(event)[1])
    assert row is not None
    said = msgspec.structs.asdict(event)
    for name in ("txn", "tz", "previous_outcome"):
        said.pop(name, None)
    assert msgspec.structs.asdict(row).items() >= said.items()


def test_a_timeline_is_of_one_execution_or_of_all_attempts_of_an_occurrence() -> None:
    second = moved(9, "SUCCEEDED", execution_id="t/a:10:2", attempt=2)
    other = fired("a", 100)
    for wanted, sequences in (("t/a:10:1", [1, 2]), ("t/a:10", [1, 2, 9])):
        timeline = Timeline(wanted)
        for event in (CLAIMED, LEASED, second, other):
            timeline.fold(*record(event))
        assert [event.sequence for event in timeline.events] == sequences
    assert timeline.row is not None
    assert (timeline.row.attempt, timeline.row.state) == (2, "SUCCEEDED")


def test_a_timeline_knows_whether_it_has_seen_the_beginning() -> None:
    timeline = Timeline("t/a:10:1")
    assert (timeline.row, timeline.complete) == (None, False)
    timeline.fold(*record(DONE))
    assert not timeline.complete
    timeline.fold(*record(CLAIMED))
    assert timeline.complete
