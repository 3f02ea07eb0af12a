"""Jobs as they are shown to people and to programs."""

import json
from typing import Any

import pytest

from api.shown import job_document, job_lines, job_row, next_runs, schedule_text
from api.shown_executions import result_form
from processors.core.schedule import jitter_ms
from projections.jobs import JobView
from schemas.state import (
    Calendars,
    ExcludedTimes,
    Hold,
    HttpTarget,
    JobDefinition,
    JobState,
    OpenExecution,
    Schedule,
    TickPolicy,
    TopicTarget,
    WorkerTarget,
)
from schemas.units import format_duration, parse_instant

AT = 1_800_000_000_000  # 2027-01-15T08:00:00Z
HOURLY = Schedule(kind="every", every_ms=3_600_000, anchor_ms=AT, written='{"every":"1h"}')


def view(*schedules: Schedule, state: dict[str, Any] | None = None, **changes: Any) -> JobView:
    values: dict[str, Any] = {
        "txn": 1, "tenant": "t", "job": "j", "life": 1, "version": 3,
        "schedules": schedules or (HOURLY,), "topic": TopicTarget(name="x"),
    }  # fmt: skip
    stands: dict[str, Any] = {
        "txn": 1, "life": 1, "version": 3, "sequence": 1, "status": "ACTIVE",
        "next_ms": AT + 3_600_000, "due_ms": AT + 3_600_000,
    }  # fmt: skip
    return JobView(
        definition=JobDefinition(**(values | changes)), state=JobState(**(stands | (state or {})))
    )


def test_the_first_next_run_is_the_one_that_is_stored() -> None:
    runs = next_runs(view(), 3)
    assert [run["at"] for run in runs] == [
        "2027-01-15T09:00:00.000Z", "2027-01-15T10:00:00.000Z", "2027-01-15T11:00:00.000Z",
    ]  # fmt: skip


def test_the_jobs_own_delay_is_shown_with_each_run_and_by_itself() -> None:
    delay_ms = jitter_ms("t", "j", 30_000)
    found = view(policy=TickPolicy(jitter_ms=30_000))
    effective = [parse_instant(run["effective"]) for run in next_runs(found, 3)]
    assert effective == [AT + n * 3_600_000 + delay_ms for n in (1, 2, 3)]
    assert "with jitter" in job_lines(job_document(found))["next_runs"][0]
    document = job_document(found)
    assert (document["jitter"], document["jitter_of_this_job"]) == (
        "30s", format_duration(delay_ms),
    )  # fmt: skip


def test_what_bounds_the_ticks_is_shown_as_users_write_it() -> None:
    """Ticks that a calendar keeps out are listed with a note."""
    calendars = Calendars(exclude=(ExcludedTimes(weekly=("FRI 10:00-12:00",)),))
    policy = TickPolicy(
        start_ms=AT, end_ms=AT + 5 * 3_600_000, max_runs=4, start_deadline_ms=90_000,
        calendars=calendars,
    )  # fmt: skip
    found = view(policy=policy, missed="all", state={"runs": 1})
    document = job_document(found)
    assert {name: document[name] for name in (
        "start", "end", "max_runs", "start_deadline", "missed_limit", "jitter",
    )} == {
        "start": "2027-01-15T08:00:00.000Z", "end": "2027-01-15T13:00:00.000Z", "max_runs": 4,
        "start_deadline": "1m30s", "missed_limit": 100, "jitter": "0s",
    }  # fmt: skip
    assert document["calendars"]["exclude"] == [{"weekly": ("FRI 10:00-12:00",)}]
    runs = next_runs(found, 9)
    assert [run["at"][11:16] for run in runs] == ["09:00", "10:00", "11:00"], "three are left"
    assert [bool(run["notes"]) for run in runs] == [False, True, True]


@pytest.mark.parametrize("status", ["PAUSED", "FINISHED", "BROKEN"])
def test_a_job_that_is_not_active_has_no_next_runs(status: str) -> None:
    found = view(state={"status": status})
    assert next_runs(found) == []
    assert job_row(found)["next_run"] is None


def test_a_local_clock_is_shown_beside_utc() -> None:
    cron = Schedule(kind="cron", cron="0 12 * * *", timezone="Asia/Tokyo")
    found = view(cron, state={"next_ms": AT + 19 * 3_600_000, "due_ms": AT + 19 * 3_600_000})
    first = job_lines(job_document(found))["next_runs"][0]
    assert first == "2027-01-16T03:00:00.000Z  2027-01-16T12:00:00+09:00 Asia/Tokyo"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ({"in": "10s"}, "in 2027-01-15T08:00:00.000Z"),
        ({"now": True}, "now 2027-01-15T08:00:00.000Z"),
        ({"at": "2027-01-15T09:00:00+01:00"}, "at 2027-01-15T08:00:00.000Z"),
    ],
)
def test_a_one_off_is_shown_as_written_and_as_the_instant_it_became(
    written: dict[str, Any], text: str
) -> None:
    one_off = Schedule(kind="at", at_ms=AT, written=json.dumps(written))
    (form,) = job_document(view(one_off))["schedules"]
    assert form == written | {"instant": "2027-01-15T08:00:00.000Z"}
    assert schedule_text(form) == text


def test_why_a_job_has_no_ticks_is_one_line_for_people() -> None:
    hold = Hold(reason="paused", since_ms=AT, by="ann", note="rest")
    document = job_document(view(state={"status": "PAUSED", "hold": hold}))
    assert document["hold"] == {
        "reason": "paused", "since": "2027-01-15T08:00:00.000Z", "by": "ann", "note": "rest",
    }  # fmt: skip
    assert job_lines(document)["hold"] == "paused since 2027-01-15T08:00:00.000Z by ann: rest"


def test_a_payload_is_json_where_it_can_be_and_else_base64() -> None:
    assert job_document(view(payload=b'{"a":1}'))["payload"] == {"a": 1}
    assert job_document(view())["payload"] is None
    for changes in ({"content_type": "image/png"}, {}):
        document = job_document(view(payload=b"\xff", **changes))
        assert document["payload_base64"] == "/w=="
        assert "payload" not in document


def test_a_key_of_the_target_is_shown() -> None:
    document = job_document(view(topic=TopicTarget(name="x", key="ä".encode())))
    assert document["target"]["topic"]["key"] == "ä"
    assert job_lines(document)["target"] == ["topic x, key ä, outcome none"]


def test_every_kind_of_target_is_shown_with_its_defaults_and_in_a_line() -> None:
    http = HttpTarget(url="https://x.example/", headers={"X-Region": "eu"})
    found = view(topic=None, http=http)
    assert job_document(found)["target"] == {
        "http": {
            "method": "POST", "url": "https://x.example/", "headers": {"X-Region": "eu"},
            "timeout": "30s", "completion": "response", "pool": "http",
        }
    }  # fmt: skip
    assert job_lines(job_document(found))["target"] == [
        "http POST https://x.example/, within 30s, pool http", "X-Region: eu",
    ]  # fmt: skip
    assert job_row(found)["target"] == "http POST https://x.example/"
    found = view(topic=None, worker=WorkerTarget(handler="close-day"))
    assert job_document(found)["target"] == {"worker": {"handler": "close-day", "pool": "default"}}
    assert job_lines(job_document(found))["target"] == ["worker close-day, pool default"]


def open_execution(**changes: Any) -> OpenExecution:
    values: dict[str, Any] = {
        "ordinal": 0, "occurrence": "t/j:x", "attempt": 1, "delivery": 2, "lost": 1,
        "scheduled_at": AT, "due_at": AT, "claimed_at": AT, "version": 1, "state": "RUNNING",
        "pool": "default", "handler": "h", "worker": "w-1", "lease_until": AT + 60_000,
    }  # fmt: skip
    return OpenExecution(**(values | changes))


def test_what_is_open_is_shown_with_its_worker_and_the_end_of_its_lease() -> None:
    found = view(state={"open": (open_execution(),)})
    (form,) = job_document(found)["open"]
    assert (form["execution_id"], form["state"], form["worker"]) == ("t/j:x:1", "RUNNING", "w-1")
    assert (form["delivery"], form["lease_until"]) == (2, "2027-01-15T08:01:00.000Z")
    assert job_lines(job_document(found))["open"] == [
        "t/j:x:1  RUNNING, delivery 2 at w-1 until 2027-01-15T08:01:00.000Z, 1 leases lost"
    ]
    assert job_row(found)["open"] == 1


def test_what_was_decided_and_has_not_let_go_is_shown_as_decided() -> None:
    closing = open_execution(state="CLOSING", reason="CANCELLED", lost=0)
    (form,) = job_document(view(state={"open": (closing,)}))["open"]
    assert (form["state"], form["reason"], form["closing"]) == ("CANCELLED", "", True)
    (line,) = job_lines(job_document(view(state={"open": (closing,)})))["open"]
    assert line.endswith("CANCELLED, delivery 2 at w-1 until 2027-01-15T08:01:00.000Z, "
                         "which has not let go yet")  # fmt: skip


def test_what_waits_says_for_what() -> None:
    waits = open_execution(
        state="PENDING", reason="paused", worker="", lease_until=0, delivery=0, lost=0
    )
    (line,) = job_lines(job_document(view(state={"open": (waits,)})))["open"]
    assert line == "t/j:x:1  PENDING(paused)"


@pytest.mark.parametrize(
    ("result", "form"),
    [
        (b"", {"result": None}),
        (b'{"a":1}', {"result": {"a": 1}}),
        (b"plain", {"result_text": "plain"}),
        (b"\xff", {"result_base64": "/w=="}),
    ],
)
def test_a_result_is_shown_as_what_it_is(result: bytes, form: dict[str, Any]) -> None:
    assert result_form(result) == form
