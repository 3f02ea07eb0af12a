"""The fold from the log's records to jobs and executions."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from projections.jobs import EXECUTIONS, JOB_STATE_TOPIC, SCHEDULES, JobsView, execution_of
from schemas.bindings import (
    EXECUTION_FIRED,
    INPUT_LOST,
    JOB_DEFINITION,
    JOB_IDS,
    JOB_STATE,
    MARK,
    TICKS_MISSED,
)
from schemas.events import ExecutionFired, InputLost, TicksMissed
from schemas.state import JobDefinition, JobIds, JobState, Mark, Schedule, TopicTarget


def definition(job: str, tenant: str = "t", **changes: Any) -> JobDefinition:
    values: dict[str, Any] = {
        "txn": 1, "tenant": tenant, "job": job, "life": 1, "version": 1,
        "schedules": (Schedule(kind="every", every_ms=1_000),), "topic": TopicTarget(name="x"),
    }  # fmt: skip
    return JobDefinition(**(values | changes))


def state(**changes: Any) -> JobState:
    values: dict[str, Any] = {
        "txn": 1, "life": 1, "version": 1, "sequence": 1, "status": "ACTIVE",
    }  # fmt: skip
    return JobState(**(values | changes))


def fired(job: str, at_ms: int, tenant: str = "t", **changes: Any) -> ExecutionFired:
    values: dict[str, Any] = {
        "tenant": tenant, "job": job, "life": 1, "sequence": at_ms, "txn": 1,
        "execution_id": f"{tenant}/{job}:{at_ms}:1", "scheduled_at": at_ms, "due_at": at_ms,
        "claimed_at": at_ms, "version": 1, "attempt": 1, "state": "SUCCEEDED",
    }  # fmt: skip
    return ExecutionFired(**(values | changes))


def put(view: JobsView, job: str, tenant: str = "t", **changes: Any) -> None:
    key = f"{tenant}/{job}".encode()
    view.fold(SCHEDULES, key, JOB_DEFINITION.encode(definition(job, tenant)))
    view.fold(JOB_STATE_TOPIC, key, JOB_STATE.encode(state(**changes)))


def fold_fire(view: JobsView, event: ExecutionFired) -> None:
    key = f"{event.execution_id}#{event.sequence}".encode()
    view.fold(EXECUTIONS, key, EXECUTION_FIRED.encode(event))


def test_jobs_are_listed_by_id_for_their_tenant_alone() -> None:
    view = JobsView()
    put(view, "b")
    put(view, "a")
    put(view, "a", tenant="tt")
    assert [found.definition.job for found in view.jobs("t")] == ["a", "b"]
    assert [found.definition.tenant for found in view.jobs("tt")] == ["tt"]
    assert view.jobs("nobody") == []


def test_the_last_record_of_a_job_counts() -> None:
    view = JobsView()
    put(view, "a")
    view.fold(JOB_STATE_TOPIC, b"t/a", JOB_STATE.encode(state(version=2, status="PAUSED")))
    found = view.job("t", "a")
    assert found is not None
    assert (found.state.version, found.state.status) == (2, "PAUSED")


def test_a_deleted_job_is_gone_before_and_after_it_is_forgotten() -> None:
    view = JobsView()
    put(view, "a")
    view.fold(JOB_STATE_TOPIC, b"t/a", JOB_STATE.encode(state(status="DELETED")))
    assert view.job("t", "a") is None
    assert view.jobs("t") == []
    view.fold(SCHEDULES, b"t/a", None)
    view.fold(JOB_STATE_TOPIC, b"t/a", None)
    assert view.jobs("t") == []


def test_marks_and_command_ids_are_no_jobs() -> None:
    view = JobsView()
    put(view, "a", version=7)
    mark = Mark(txn=2, epoch=1, records=1, wall_ms=1, owner="m", positions=())
    view.fold(JOB_STATE_TOPIC, b"!mark", MARK.encode(mark))
    view.fold(JOB_STATE_TOPIC, b"t/a#ids", JOB_IDS.encode(JobIds(txn=2, ids=())))
    assert [found.state.version for found in view.jobs("t")] == [7]


def test_what_cannot_be_decoded_is_counted_and_hides_nothing_else() -> None:
    view = JobsView()
    put(view, "a")
    put(view, "b")
    view.fold(SCHEDULES, b"t/b", b"\x00garbage")
    view.fold(EXECUTIONS, b"x", EXECUTION_FIRED.prefix + b"\xff")
    assert [found.definition.job for found in view.jobs("t")] == ["a"]
    assert view.undecodable == 2


def test_executions_come_newest_first_and_are_chosen_by_job_and_state() -> None:
    view = JobsView()
    for at_ms, job, outcome in ((3, "a", "SUCCEEDED"), (1, "b", "FAILED"), (2, "a", "FAILED")):
        fold_fire(view, fired(job, at_ms, state=outcome))
    fold_fire(view, fired("a", 9, tenant="other"))
    assert [one.claimed_at for one in view.executions("t")] == [3, 2, 1]
    assert [one.claimed_at for one in view.executions("t", "a")] == [3, 2]
    assert [one.claimed_at for one in view.executions("t", state="FAILED")] == [2, 1]
    assert [one.claimed_at for one in view.executions("t", limit=1)] == [3]


def test_a_run_of_missed_ticks_is_one_row_with_first_last_and_count() -> None:
    view = JobsView()
    event = TicksMissed(
        tenant="t", job="a", life=1, sequence=4, txn=1, first=1_000, last=5_000, count=5,
        exact=True, reason="policy", claimed_at=9_000, version=2,
    )  # fmt: skip
    view.fold(EXECUTIONS, b"k", TICKS_MISSED.encode(event))
    (row,) = view.executions("t", "a", state="MISSED")
    assert (row.scheduled_at, row.last_scheduled_at, row.count) == (1_000, 5_000, 5)
    assert (row.reason, row.execution_id, row.version) == ("policy", "", 2)


def test_an_event_about_something_else_is_no_execution() -> None:
    lost = InputLost(topic="commands", partition=0, first=1, last=2, txn=1, at_ms=1)
    assert execution_of(INPUT_LOST.encode(lost)) is None


def test_an_event_that_is_read_again_is_the_same_execution() -> None:
    view = JobsView()
    fold_fire(view, fired("a", 1))
    fold_fire(view, fired("a", 1))
    assert len(view.executions("t")) == 1


@given(st.permutations(range(40)), st.integers(1, 10))
def test_however_they_come_the_newest_are_kept_and_never_more_than_twice_as_many(
    order: list[int], most: int
) -> None:
    view = JobsView(executions_max=most)
    for at_ms in order:
        fold_fire(view, fired("a", at_ms))
        assert len(view) < 2 * most
    kept = [one.claimed_at for one in view.executions("t", limit=most)]
    assert kept == list(range(39, 39 - most, -1))


def test_rows_carry_what_the_event_says() -> None:
    event = fired("a", 5, due_at=6, claimed_at=7, topic="x", partition=3, reason="r", detail="d")
    row = execution_of(EXECUTION_FIRED.encode(event))
    assert row is not None
    shared = msgspec.structs.asdict(event).items() & {
        (k, v) for k, v in msgspec.structs.asdict(row).items() if k != "exact"
    }
    assert dict(shared).keys() >= {
        "tenant", "job", "life", "sequence", "state", "reason", "detail", "scheduled_at", "due_at",
        "claimed_at", "version", "execution_id", "attempt", "topic", "partition",
    }  # fmt: skip
