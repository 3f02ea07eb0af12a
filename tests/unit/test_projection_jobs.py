"""The fold from the log's records to jobs."""

from typing import Any

from projections.jobs import JOB_STATE_TOPIC, SCHEDULES, JobsView
from schemas.bindings import JOB_DEFINITION, JOB_IDS, JOB_STATE, MARK
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


def put(view: JobsView, job: str, tenant: str = "t", **changes: Any) -> None:
    key = f"{tenant}/{job}".encode()
    view.fold(SCHEDULES, key, JOB_DEFINITION.encode(definition(job, tenant)))
    view.fold(JOB_STATE_TOPIC, key, JOB_STATE.encode(state(**changes)))


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
    assert [found.definition.job for found in view.jobs("t")] == ["a"]
    assert view.undecodable == 1
