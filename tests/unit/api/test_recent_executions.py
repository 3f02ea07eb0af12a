"""The newest executions in memory: the same rows as the view over the log, in order, bounded."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from projections.executions import ExecutionsView
from projections.recent import RecentExecutions
from schemas.bindings import EXECUTION_FIRED, EXECUTION_MOVED, TICKS_MISSED
from schemas.events import ExecutionFired, ExecutionMoved, TicksMissed

Pair = tuple[bytes, bytes]


def recent(executions_max: int = 1_000, events_max: int = 5) -> RecentExecutions:
    return RecentExecutions(executions_max=executions_max, events_max=events_max, detail_max=20)


def fired(at_ms: int, job: str = "a", **changes: Any) -> Pair:
    values: dict[str, Any] = {
        "tenant": "t", "job": job, "life": 1, "sequence": at_ms, "txn": 1,
        "execution_id": f"t/{job}:{at_ms}:1", "scheduled_at": at_ms, "due_at": at_ms,
        "claimed_at": at_ms, "version": 1, "attempt": 1, "state": "QUEUED",
    }  # fmt: skip
    event = ExecutionFired(**(values | changes))
    return f"{event.execution_id}#{event.sequence}".encode(), EXECUTION_FIRED.encode(event)


def moved(at_ms: int, sequence: int, state: str, job: str = "a", **changes: Any) -> Pair:
    values: dict[str, Any] = {
        "tenant": "t", "job": job, "life": 1, "sequence": sequence, "txn": 1,
        "execution_id": f"t/{job}:{at_ms}:1", "scheduled_at": at_ms, "due_at": at_ms,
        "claimed_at": at_ms, "version": 1, "attempt": 1, "delivery": 1, "lost": 0,
        "at": at_ms + sequence, "state": state, "reason": "", "pool": "p", "handler": "h",
        "worker": "w", "lease_until": 99,
    }  # fmt: skip
    event = ExecutionMoved(**(values | changes))
    return f"{event.execution_id}#{event.sequence}".encode(), EXECUTION_MOVED.encode(event)


def missed(first: int, job: str = "a") -> Pair:
    event = TicksMissed(
        tenant="t", job=job, life=1, sequence=first, txn=1, first=first, last=first + 9, count=10,
        exact=True, reason="policy", claimed_at=first + 10, version=1,
    )  # fmt: skip
    return f"t/{job}:{first}#{first}".encode(), TICKS_MISSED.encode(event)


STEPS = st.lists(
    st.one_of(
        st.builds(fired, st.integers(1, 30), st.sampled_from("ab")),
        st.builds(
            moved, st.integers(1, 30), st.integers(31, 40),
            st.sampled_from(["RUNNING", "SUCCEEDED", "FAILED"]), st.sampled_from("ab"),
        ),
        st.builds(missed, st.integers(1, 30), st.sampled_from("ab")),
    ),
    max_size=40,
)  # fmt: skip


@given(STEPS)
def test_rows_come_out_as_from_the_log(steps: list[Pair]) -> None:
    live, view = recent(), ExecutionsView()
    # An event is written once: the same key never has another content.
    for key, value in dict(steps).items():
        live.fold(key, value)
        view.fold(key, value)
    for job in (None, "a", "b"):
        rows = [row for _, row in live.newest("t", job)]
        others = view.executions("t", job, limit=1_000)
        assert sorted((r.execution_id, r.state, r.scheduled_at) for r in rows) == sorted(
            (r.execution_id, r.state, r.scheduled_at) for r in others
        )
        ages = [(row.claimed_at, row.scheduled_at) for row in rows]
        assert ages == sorted(ages, reverse=True)


def test_a_place_stays_where_it_is_while_others_come() -> None:
    live = recent()
    for at_ms in (10, 20, 30):
        live.fold(*fired(at_ms))
    (place, _), *_ = live.newest("t")
    live.fold(*fired(40))
    live.fold(*moved(20, 50, "SUCCEEDED"))
    assert [row.scheduled_at for _, row in live.newest("t", before=place)] == [20, 10]


def test_the_oldest_go_when_there_are_too_many_and_it_is_said_up_to_when() -> None:
    live = recent(executions_max=50)
    for at_ms in range(1, 201):
        live.fold(*fired(at_ms, "ab"[at_ms % 2]))
    rows = [row.scheduled_at for _, row in live.newest("t")]
    assert len(rows) == len(live) <= 50
    assert rows == list(range(200, 200 - len(rows), -1))
    assert live.shed_ms == 200 - len(rows)
    assert [row.scheduled_at for _, row in live.newest("t", "a")] == [r for r in rows if r % 2 == 0]
    assert live.row("t/a:2:1") is None


def test_all_events_of_an_execution_are_told_or_none() -> None:
    live = recent()
    live.fold(*moved(10, 12, "SUCCEEDED"))
    assert live.events("t/a:10:1") is None, "its beginning was not read"
    live.fold(*fired(10))
    found = live.events("t/a:10:1")
    assert found is not None
    assert [event.state for event in found] == ["QUEUED", "SUCCEEDED"]
    for sequence in range(20, 30):
        live.fold(*moved(10, sequence, "RUNNING"))
    assert live.events("t/a:10:1") is None, "more than are held"


def test_long_details_and_results_are_left_to_the_log() -> None:
    live = recent()
    for at_ms, change in ((10, {"detail": "x" * 30}), (20, {"result": b"x" * 30})):
        live.fold(*fired(at_ms))
        live.fold(*moved(at_ms, at_ms + 1, "FAILED", **change))
        assert live.events(f"t/a:{at_ms}:1") is None
        row = live.row(f"t/a:{at_ms}:1")
        assert row is not None
        assert (len(row.detail) <= 21, row.result) == (True, b"")


def test_how_far_a_job_is_known_only_grows() -> None:
    live = recent()
    assert live.seen("t", "a") == (0, 0)
    live.fold(*fired(20))
    live.fold(*fired(10))
    assert live.seen("t", "a") == (1, 20)
