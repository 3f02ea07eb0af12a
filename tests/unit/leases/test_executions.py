"""What becomes of one execution: every arrow of the diagram in `core.executions`, and no others."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from processors.core import executions as decide
from processors.core.executions import LEASE_CLOSED, Moved, Placed
from schemas.leases import Report, ReportKind
from schemas.limits import LEASE_MS, MAX_DELIVERIES, OPEN_EXECUTIONS_MAX
from schemas.state import Hold, JobDefinition, JobState, JobStatus, OpenExecution, WorkerTarget

NOW = 1_772_445_600_000
KEY = "t/j"
WORKER = "w-1"
OCCURRENCE = f"{KEY}:2026-03-02T10:00:00.000Z"
REPORTS: tuple[ReportKind, ...] = (
    "started", "heartbeat", "outcome", "returned", "stopped", "abandoned", "revoked",
    "already_started",
)  # fmt: skip

QUEUED = OpenExecution(
    ordinal=0, occurrence=OCCURRENCE, attempt=1, delivery=1, lost=0, scheduled_at=NOW - 5,
    due_at=NOW - 4, claimed_at=NOW - 3, version=2, state="QUEUED", pool="default", handler="h",
)  # fmt: skip
RUNNING = msgspec.structs.replace(
    QUEUED, state="RUNNING", worker=WORKER, inbox=3, lease_until=NOW + 10_000, fence=77
)
GIVEN: dict[str, OpenExecution] = {
    "QUEUED": QUEUED,
    "PENDING": msgspec.structs.replace(QUEUED, state="PENDING", reason="paused"),
    "RUNNING": RUNNING,
    "CLOSING": msgspec.structs.replace(RUNNING, state="CLOSING", reason="CANCELLED"),
}
DEFINITION = JobDefinition(
    txn=1, tenant="t", job="j", life=1, version=2, schedules=(), worker=WorkerTarget(handler="h")
)


def state_of(*executions: OpenExecution, status: JobStatus = "ACTIVE", life: int = 1) -> JobState:
    hold = Hold(reason="paused", since_ms=NOW - 2) if status == "PAUSED" else None
    return JobState(
        txn=9, life=life, version=2, sequence=40, status=status, hold=hold, open=executions
    )


def say(
    job: JobState, kind: ReportKind, *, worker: str = WORKER, now_ms: int = NOW, **fields: Any
) -> Moved | None:
    named: dict[str, Any] = {
        "tenant": "t", "job": "j", "execution_id": OCCURRENCE + ":1", "ordinal": 0, "delivery": 1,
        "token": b"",
    }  # fmt: skip
    return decide.report(KEY, job, Report(kind=kind, **(named | fields)), worker, now_ms, 10)


def expire(state: JobState) -> Moved:
    return decide.expired(KEY, state, state.open[0], NOW, 10)


def cancel(state: JobState) -> Moved:
    return decide.cancel(KEY, state, state.open[0], NOW, 10, "why")


def pause(state: JobState) -> Moved:
    return decide.held_by_pause(KEY, state, state.open[0], NOW, 10)


def resume(state: JobState) -> Moved:
    return decide.released_by_resume(KEY, state, state.open[0], NOW, 10)


def delete(state: JobState) -> Moved:
    return decide.ended_by_delete(KEY, state, state.open[0], NOW, 10)


def lease(state: JobState) -> Moved:
    return decide.leased(KEY, state, state.open[0], Placed("w-2", 5), fence=88, now_ms=NOW, txn=10)[
        0
    ]


def reporting(kind: ReportKind, **fields: Any) -> Callable[[JobState], Moved | None]:
    return lambda state: say(state, kind, **fields)


class Arrow(NamedTuple):
    """`after` "": it is no longer open. `event`: state(reason), "" for none."""

    given: str
    act: Callable[[JobState], Moved | None]
    after: str
    event: str
    status: JobStatus = "ACTIVE"
    tell: str = ""


SUCCEEDED = reporting("outcome", state="SUCCEEDED")
FAILED = reporting("outcome", state="FAILED", reason="connection")

ARROWS = {
    "lease": Arrow("QUEUED", lease, "RUNNING", "RUNNING"),
    "lease by trigger while paused": Arrow("QUEUED", lease, "RUNNING", "RUNNING", "PAUSED"),
    "pause what waits": Arrow("QUEUED", pause, "PENDING", "PENDING(paused)", "PAUSED"),
    "pause what is held": Arrow("PENDING", pause, "PENDING", "", "PAUSED"),
    "pause what runs": Arrow("RUNNING", pause, "RUNNING", "", "PAUSED", tell="revoke"),
    "pause what closes": Arrow("CLOSING", pause, "CLOSING", "", "PAUSED"),
    "resume what is held": Arrow("PENDING", resume, "QUEUED", "QUEUED"),
    "resume what runs": Arrow("RUNNING", resume, "RUNNING", ""),
    "resume what closes": Arrow("CLOSING", resume, "CLOSING", ""),
    "delete what waits": Arrow("QUEUED", delete, "", "CANCELLED", "DELETED"),
    "delete what is held": Arrow("PENDING", delete, "", "CANCELLED", "DELETED"),
    "delete what runs": Arrow("RUNNING", delete, "RUNNING", "", "DELETED", tell="revoke"),
    "delete what closes": Arrow("CLOSING", delete, "CLOSING", "", "DELETED"),
    "cancel what waits": Arrow("QUEUED", cancel, "", "CANCELLED"),
    "cancel what is held": Arrow("PENDING", cancel, "", "CANCELLED", "PAUSED"),
    "cancel what runs": Arrow("RUNNING", cancel, "CLOSING", "CANCELLED", tell="cancel"),
    "cancel what closes": Arrow("CLOSING", cancel, "CLOSING", "", tell="cancel"),
    "success": Arrow("RUNNING", SUCCEEDED, "", "SUCCEEDED"),
    "failure": Arrow("RUNNING", FAILED, "", "FAILED(connection)"),
    "time-out": Arrow("RUNNING", reporting("outcome", state="TIMED_OUT"), "", "FAILED(timed_out)"),
    "failure without a known reason": Arrow(
        "RUNNING", reporting("outcome", state="FAILED", reason="whim"), "", "FAILED(error)"
    ),
    "an outcome that says nothing": Arrow(
        "RUNNING", reporting("outcome", state="?"), "", "FAILED(error)"
    ),
    "cancelled by its worker": Arrow(
        "RUNNING", reporting("outcome", state="CANCELLED"), "", "CANCELLED"
    ),
    "success in a paused job": Arrow("RUNNING", SUCCEEDED, "", "SUCCEEDED", "PAUSED"),
    "success in a deleted job": Arrow("RUNNING", SUCCEEDED, "", "SUCCEEDED", "DELETED"),
    "late success": Arrow("QUEUED", SUCCEEDED, "", "SUCCEEDED"),
    "late failure": Arrow("PENDING", FAILED, "", "FAILED(connection)", "PAUSED"),
    "outcome after the cancel": Arrow("CLOSING", SUCCEEDED, "", "CANCELLED(lease_closed)"),
    "started": Arrow("RUNNING", reporting("started", started_at=NOW), "RUNNING", "RUNNING"),
    "heartbeat": Arrow("RUNNING", reporting("heartbeat"), "RUNNING", "RUNNING"),
    "already started": Arrow("RUNNING", reporting("already_started"), "RUNNING", "RUNNING"),
    "heartbeat after the cancel": Arrow(
        "CLOSING", reporting("heartbeat"), "CLOSING", "", tell="cancel"
    ),
    "started after the cancel": Arrow(
        "CLOSING", reporting("started"), "CLOSING", "", tell="cancel"
    ),
    "returned": Arrow("RUNNING", reporting("returned", reason="full"), "QUEUED", "QUEUED"),
    "revoked after resume": Arrow("RUNNING", reporting("revoked"), "QUEUED", "QUEUED"),
    "revoked by pause": Arrow(
        "RUNNING", reporting("revoked"), "PENDING", "PENDING(paused)", "PAUSED"
    ),
    "revoked by delete": Arrow("RUNNING", reporting("revoked"), "", "CANCELLED", "DELETED"),
    "returned after the cancel": Arrow(
        "CLOSING", reporting("returned"), "", "CANCELLED(lease_closed)"
    ),
    "returned for want of the handler": Arrow(
        "RUNNING", reporting("returned", reason="no_handler"), "", "FAILED(no_handler)"
    ),
    "stopped unasked": Arrow("RUNNING", reporting("stopped"), "", "CANCELLED"),
    "stopped": Arrow("CLOSING", reporting("stopped"), "", "CANCELLED(lease_closed)"),
    "abandoned": Arrow("CLOSING", reporting("abandoned"), "", "CANCELLED(lease_closed)"),
    "lost": Arrow("RUNNING", expire, "QUEUED", "QUEUED"),
    "lost in a paused job": Arrow("RUNNING", expire, "PENDING", "PENDING(paused)", "PAUSED"),
    "lost in a deleted job": Arrow("RUNNING", expire, "", "CANCELLED", "DELETED"),
    "lost after the cancel": Arrow("CLOSING", expire, "", "CANCELLED(lease_closed)"),
}


def shown(moved: Moved) -> str:
    event = moved.event
    if event is None:
        return ""
    return f"{event.state}({event.reason})" if event.reason else event.state


@pytest.mark.parametrize("name", ARROWS)
def test_every_arrow_leads_where_the_diagram_says(name: str) -> None:
    arrow = ARROWS[name]
    before = state_of(GIVEN[arrow.given], status=arrow.status)
    moved = arrow.act(before)
    assert moved is not None
    (after,) = moved.state.open or (None,)
    assert (after.state if after else "") == arrow.after
    assert (shown(moved), moved.tell) == (arrow.event, arrow.tell)
    if moved.event is None:
        assert moved.state is before
        return
    # One event is one sequence number, and says whose transaction it was.
    assert (moved.state.sequence, moved.state.txn) == (41, 10)
    assert (moved.event.sequence, moved.event.txn, moved.event.life) == (41, 10, 1)
    assert moved.event.execution_id == OCCURRENCE + ":1"
    # A place is given back when, and only when, a lease ends.
    ends = arrow.given in ("RUNNING", "CLOSING") and (after is None or not after.leased)
    assert moved.freed == (WORKER if ends else "")
    assert moved.dead_letter == (moved.event.state in ("FAILED", "DEAD"))


@pytest.mark.parametrize("kind", REPORTS)
@pytest.mark.parametrize(
    "wrong",
    [{"delivery": 0}, {"delivery": 2}, {"execution_id": "t/j:x:1"}, {"ordinal": 1},
     {"worker": "w-2"}],
    ids=str,
)  # fmt: skip
def test_a_report_of_another_delivery_changes_nothing(
    kind: ReportKind, wrong: dict[str, Any]
) -> None:
    for given in ("RUNNING", "CLOSING"):
        assert say(state_of(GIVEN[given]), kind, **({"state": "SUCCEEDED"} | wrong)) is None


@pytest.mark.parametrize("kind", [kind for kind in REPORTS if kind != "outcome"])
def test_of_a_lease_that_is_over_only_an_outcome_counts(kind: ReportKind) -> None:
    for given in ("QUEUED", "PENDING"):
        assert say(state_of(GIVEN[given]), kind) is None


@pytest.mark.parametrize("kind", REPORTS)
def test_nothing_is_said_about_what_is_closed(kind: ReportKind) -> None:
    done = say(state_of(RUNNING), "outcome", state="SUCCEEDED")
    assert done is not None
    assert say(done.state, kind, state="FAILED") is None


def test_a_late_outcome_names_the_worker_but_frees_no_place_twice() -> None:
    lost = expire(state_of(RUNNING))
    assert (lost.freed, lost.state.open[0].worker) == (WORKER, "")
    done = say(lost.state, "outcome", state="SUCCEEDED")
    assert done is not None
    assert done.event is not None
    assert (done.freed, done.event.worker, done.event.lost) == ("", WORKER, 1)


def test_an_outcome_is_outdated_once_a_newer_delivery_is_leased() -> None:
    lost = expire(state_of(RUNNING))
    again = lease(lost.state)
    assert again.state.open[0].delivery == 2
    assert say(again.state, "outcome", state="SUCCEEDED") is None


def test_a_lease_is_lost_three_times_then_the_execution_is_dead_once() -> None:
    state = state_of(msgspec.structs.replace(QUEUED, delivery=0))
    letters = []
    for n in range(1, MAX_DELIVERIES + 1):
        leased = lease(state)
        assert leased.state.open[0].delivery == n
        lost = expire(leased.state)
        state = lost.state
        letters.append(lost.dead_letter)
    assert letters == [False] * (MAX_DELIVERIES - 1) + [True]
    assert not state.open
    assert lost.event is not None
    assert (shown(lost), lost.event.lost) == ("DEAD(deliveries)", MAX_DELIVERIES)


def test_what_is_handed_back_is_not_counted_as_lost() -> None:
    state = state_of(msgspec.structs.replace(QUEUED, delivery=0))
    for n in range(1, 3 * MAX_DELIVERIES):
        leased = lease(state)
        returned = say(leased.state, "returned", worker="w-2", delivery=n, reason="drain")
        assert returned is not None
        state = returned.state
        assert (state.open[0].lost, shown(returned)) == (0, "QUEUED")


def test_a_lease_begins_anew_with_each_delivery() -> None:
    named = msgspec.structs.replace(QUEUED, named=True, started_at=NOW - 1, worker="old")
    after = decide.lease(named, Placed("w-2", 5), 88, NOW)
    assert (after.worker, after.inbox, after.fence) == ("w-2", 5, 88)
    assert (after.delivery, after.named, after.started_at) == (2, False, 0)
    assert after.lease_until == NOW + LEASE_MS


def test_a_heartbeat_renews_and_never_shortens() -> None:
    moved = say(state_of(RUNNING), "heartbeat", progress="7 of 9")
    assert moved is not None
    assert moved.event is not None
    assert moved.state.open[0].lease_until == moved.event.lease_until == NOW + LEASE_MS
    assert (moved.state.open[0].named, moved.event.detail) == (True, "7 of 9")
    # The clock of the next owner may be a little behind.
    earlier = say(moved.state, "heartbeat", now_ms=NOW - 1_500)
    assert earlier is not None
    assert earlier.state.open[0].lease_until == NOW + LEASE_MS


def test_what_has_started_is_named_but_not_renewed() -> None:
    moved = say(state_of(RUNNING), "started", started_at=NOW - 7)
    assert moved is not None
    after = moved.state.open[0]
    assert (after.named, after.started_at) == (True, NOW - 7)
    assert after.lease_until == RUNNING.lease_until
    # Said again, it changes nothing and is no event.
    again = say(moved.state, "started", started_at=NOW - 7)
    assert again == Moved(moved.state, None)


def test_nothing_is_asked_back_once_a_report_has_named_it() -> None:
    named = msgspec.structs.replace(RUNNING, named=True)
    for act, status in ((pause, "PAUSED"), (delete, "DELETED")):
        assert act(state_of(named, status=status)).tell == ""  # type: ignore[arg-type]


def test_what_is_recorded_of_an_outcome_is_bounded() -> None:
    moved = say(
        state_of(RUNNING), "outcome", state="SUCCEEDED", result=b"x" * 9_000, detail="y" * 9_000,
        started_at=NOW - 9, finished_at=NOW - 1,
    )  # fmt: skip
    assert moved is not None
    event = moved.event
    assert event is not None
    assert len(event.result) == decide.RESULT_BYTES_MAX
    assert len(event.detail) == decide.DETAIL_CHARS_MAX
    assert (event.started_at, event.finished_at) == (NOW - 9, NOW - 1)


@pytest.mark.parametrize("act", [expire, reporting("returned", reason="drain")], ids=str)
def test_what_outlives_its_job_is_not_delivered_again(
    act: Callable[[JobState], Moved | None],
) -> None:
    """Also when there is a new job of its name: nothing follows a delete."""
    former = decide.pin(state_of(RUNNING), DEFINITION).open[0]
    moved = act(state_of(former, life=8))
    assert moved is not None
    assert (shown(moved), moved.state.open, moved.freed) == ("CANCELLED", (), WORKER)
    # An edit within the life is another matter: it goes on with what it began with.
    edited = act(state_of(former, life=1))
    assert edited is not None
    assert edited.state.open[0].definition == DEFINITION
    assert shown(edited) == "QUEUED"


def test_an_outcome_counts_although_the_job_is_gone() -> None:
    former = decide.pin(state_of(RUNNING), DEFINITION).open[0]
    moved = say(state_of(former, life=8), "outcome", state="SUCCEEDED")
    assert moved is not None
    assert moved.event is not None
    # Numbered with the job's other events, which are those of its new life.
    assert (shown(moved), moved.event.life, moved.event.sequence) == ("SUCCEEDED", 8, 41)


@pytest.mark.parametrize("act", [expire, reporting("returned", reason="full")], ids=str)
def test_what_was_triggered_while_paused_does_not_wait_for_the_resume(
    act: Callable[[JobState], Moved | None],
) -> None:
    since = NOW - 2
    cases = [("~m0123abcd", since, "QUEUED"), ("~m0123abcd", since - 1, "PENDING"),
             ("", since, "PENDING")]  # fmt: skip
    for suffix, due_at, expected in cases:
        # When it was claimed says nothing: the pause may have been appended by then.
        execution = msgspec.structs.replace(
            RUNNING, occurrence=OCCURRENCE + suffix, due_at=due_at, claimed_at=NOW
        )
        state = state_of(execution, status="PAUSED")
        moved = (
            expire(state) if act is expire
            else say(state, "returned", execution_id=execution.execution_id, reason="full")
        )  # fmt: skip
        assert moved is not None
        assert moved.state.open[0].state == expected


def test_ordinals_are_the_smallest_free_ones_and_run_out() -> None:
    def nth(*ordinals: int) -> JobState:
        return state_of(*(msgspec.structs.replace(QUEUED, ordinal=n) for n in ordinals))

    assert decide.free_ordinal(nth()) == 0
    assert decide.free_ordinal(nth(0, 2)) == 1
    assert decide.free_ordinal(nth(*range(OPEN_EXECUTIONS_MAX))) is None


def test_other_executions_of_the_job_stay_as_they_are_and_in_order() -> None:
    others = tuple(msgspec.structs.replace(QUEUED, ordinal=n, occurrence=f"o{n}") for n in (1, 4))
    moved = lease(state_of(QUEUED, *others))
    assert [e.ordinal for e in moved.state.open] == [0, 1, 4]
    assert moved.state.open[1:] == others
    done = say(moved.state, "outcome", worker="w-2", delivery=2, state="SUCCEEDED")
    assert done is not None
    assert done.state.open == others


def test_an_execution_is_found_by_its_id_and_by_its_occurrence() -> None:
    state = state_of(RUNNING)
    assert decide.find(state, OCCURRENCE + ":1") == RUNNING
    assert decide.find(state, OCCURRENCE) == RUNNING
    assert decide.find(state, OCCURRENCE + ":2") is None


def test_an_edit_pins_what_is_open_to_what_it_began_with() -> None:
    older = msgspec.structs.replace(DEFINITION, version=1)
    state = decide.pin(
        state_of(RUNNING, msgspec.structs.replace(QUEUED, ordinal=1, definition=older)), DEFINITION
    )
    assert [decide.definition_of(e, None) for e in state.open] == [DEFINITION, older]


@pytest.mark.parametrize("given", GIVEN)
def test_what_cannot_be_decided_about_ends_visibly(given: str) -> None:
    execution = GIVEN[given]
    moved = decide.failed(KEY, state_of(execution), execution, NOW, 10, "ValueError('…')")
    assert moved.state.open == ()
    assert moved.event is not None
    assert moved.event.detail == "ValueError('…')"
    if given == "CLOSING":
        assert (shown(moved), moved.dead_letter) == (f"CANCELLED({LEASE_CLOSED})", False)
    else:
        assert (shown(moved), moved.dead_letter) == ("FAILED(error)", True)
    assert moved.tell == ("cancel" if execution.leased else "")
