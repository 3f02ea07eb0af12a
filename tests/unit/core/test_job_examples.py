"""The life of a job by example: what fires, what is recorded, what stays as it was."""

from typing import Any

import pytest

from schemas import limits
from schemas.commands import (
    AnyCommand,
    DeleteJob,
    JobSpec,
    PauseJob,
    PutJob,
    ResumeJob,
    ScheduleSpec,
    TopicTargetSpec,
    TriggerJob,
)
from schemas.replies import Accepted, Refused
from schemas.units import format_instant, parse_instant
from tests.unit.core.owner import Owner

T0 = parse_instant("2026-03-02T10:00:00Z")
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
KEY = "t/j"


@pytest.fixture
def owner() -> Owner:
    return Owner()


def put(*schedules: dict[str, Any], job: str = "j", if_match: int | None = None,
        command_id: str = "", **spec: Any) -> PutJob:  # fmt: skip
    """A job that fires into the topic `out`."""
    written = tuple(
        ScheduleSpec(**{"in_" if k == "in" else k: v for k, v in one.items()}) for one in schedules
    )
    spec.setdefault("topic", TopicTargetSpec(name="out"))
    return PutJob(tenant="t", job=job, spec=JobSpec(schedules=written, **spec), if_match=if_match,
                  command_id=command_id)  # fmt: skip


def ask(kind: type[AnyCommand], **values: Any) -> AnyCommand:
    return kind(tenant="t", job="j", **values)


def at(ms: int) -> dict[str, str]:
    return {"at": format_instant(ms)}


def fired(owner: Owner) -> list[int]:
    return [fire.scheduled_at - T0 for fire in owner.fires()]


def missed(owner: Owner) -> list[tuple[int, int, int, str]]:
    return [(m.first - T0, m.last - T0, m.count, m.reason) for m in owner.missed()]


# --- ticks ---------------------------------------------------------------------------------------


def test_a_tick_fires_once_at_its_time_and_never_before(owner: Owner) -> None:
    owner.send(put({"cron": "* * * * *"}), T0 + 5 * SECOND)
    owner.pass_time(T0 + MINUTE - 1)
    assert fired(owner) == []
    for now in (MINUTE, MINUTE, MINUTE + 1, 2 * MINUTE - 1):
        owner.pass_time(T0 + now)
    assert fired(owner) == [MINUTE]
    (fire,) = owner.fires()
    assert fire.execution_id == "t/j:2026-03-02T10:01:00.000Z:1"
    assert (fire.due_at, fire.claimed_at, fire.state) == (T0 + MINUTE, T0 + MINUTE, "SUCCEEDED")


def test_of_ticks_passed_over_only_the_newest_runs_and_the_rest_is_one_record(owner: Owner) -> None:
    owner.send(put({"cron": "* * * * *"}), T0)
    owner.pass_time(T0 + 3 * HOUR + 10 * SECOND)
    assert missed(owner) == [(MINUTE, 3 * HOUR - MINUTE, 179, "policy")]
    assert fired(owner) == [3 * HOUR]
    state = owner.state(KEY)
    assert state is not None and state.next_ms == T0 + 3 * HOUR + MINUTE


def test_an_outage_without_end_is_counted_to_a_bound(owner: Owner) -> None:
    owner.send(put({"every": "1s"}), T0)
    owner.pass_time(T0 + 3 * DAY)
    (record,) = owner.missed()
    assert (record.first, record.last) == (T0 + SECOND, T0 + 3 * DAY - SECOND)
    assert not record.exact and limits.MISSED_COUNT_MAX <= record.count < 3 * 86_400
    assert fired(owner) == [3 * DAY]


@pytest.mark.parametrize(("late_ms", "runs"), [(10_000, [60_000]), (59_999, [60_000]),
                                               (60_000, [60_000, 120_000]),
                                               (60_001, [120_000])])  # fmt: skip
def test_late_tolerance_reaches_to_the_next_tick_at_most(
    owner: Owner, late_ms: int, runs: list[int]
) -> None:
    owner.send(put({"cron": "* * * * *"}, late_tolerance="1h"), T0)
    owner.pass_time(T0 + MINUTE + late_ms)
    assert fired(owner) == runs


def test_a_rare_tick_simply_runs_within_its_tolerance_and_after_it_as_the_newest(
    owner: Owner,
) -> None:
    owner.send(put({"cron": "0 11 * * *"}, late_tolerance="30s"), T0)
    owner.pass_time(T0 + 5 * HOUR)
    assert fired(owner) == [HOUR]
    assert missed(owner) == []


def test_coinciding_instants_of_several_schedules_are_one_tick(owner: Owner) -> None:
    owner.send(put({"cron": "* * * * *"}, {"every": "30s", "anchor": format_instant(T0)},
                   at(T0 + MINUTE)), T0)  # fmt: skip
    for now in range(0, 2 * MINUTE + 1, 10 * SECOND):
        owner.pass_time(T0 + now)
    assert fired(owner) == [30_000, 60_000, 90_000, 120_000]


def test_a_job_without_a_following_tick_is_finished_and_forgotten_in_time(owner: Owner) -> None:
    owner.send(put({"in": "10s"}), T0)
    owner.pass_time(T0 + 10 * SECOND)
    state = owner.state(KEY)
    assert state is not None and state.status == "FINISHED"
    owner.pass_time(T0 + HOUR)
    assert owner.state(KEY) is not None
    owner.pass_time(T0 + HOUR + 10 * SECOND)
    assert owner.state(KEY) is None and owner.definition(KEY) is None
    assert owner.stores.contents(0) == {}


def test_a_finished_job_with_other_schedules_is_remembered_for_a_day(owner: Owner) -> None:
    owner.send(put({"cron": "0 0 1 1 *", "timezone": "UTC"}), T0)
    state = owner.state(KEY)
    assert state is not None and state.status == "ACTIVE"
    owner.send(put({"every": "1h", "anchor": "9999-12-31T23:00:00Z"}), T0)
    owner.send(ask(PauseJob), T0)
    assert owner.state(KEY).forget_ms == 0  # type: ignore[union-attr]


def test_now_fires_at_the_acceptance_and_not_before_our_clock_is_there(owner: Owner) -> None:
    owner.send(put({"now": True}), T0 + 500, now_ms=T0)
    owner.pass_time(T0 + 499)
    assert fired(owner) == []
    owner.pass_time(T0 + 500)
    assert fired(owner) == [500]


# --- one-offs in the past ------------------------------------------------------------------------


def test_a_one_off_within_its_tolerance_runs_now_and_an_older_one_is_refused(owner: Owner) -> None:
    owner.send(put(at(T0 - 60_000)), T0)
    owner.pass_time(T0)
    assert fired(owner) == [-60_000]
    (fire,) = owner.fires()
    assert fire.due_at == T0, "it is due when it was accepted, not before"
    reply = owner.send(put(at(T0 - 60_001), job="k"), T0)
    assert isinstance(reply, Refused) and [p.field for p in reply.problems] == ["schedules[0].at"]


def test_a_late_one_off_does_not_bring_ticks_from_before_the_acceptance(owner: Owner) -> None:
    owner.send(put(at(T0 - 30_000), {"cron": "* * * * *"},
                   {"every": "1s", "anchor": format_instant(T0 - HOUR)}), T0 + 500)  # fmt: skip
    owner.pass_time(T0 + 500)
    assert fired(owner) == [-30_000]
    owner.pass_time(T0 + 1_000)
    assert fired(owner) == [-30_000, 1_000]
    assert missed(owner) == []


def test_late_one_offs_of_one_job_all_run(owner: Owner) -> None:
    owner.send(put(at(T0 - 30_000), at(T0 - 10_000), at(T0), {"every": "1s"}), T0)
    owner.pass_time(T0)
    assert fired(owner) == [-30_000, -10_000, 0]
    owner.pass_time(T0 + 1_000)
    assert fired(owner)[3:] == [1_000]


def test_late_one_offs_and_ticks_that_were_passed_over_together_are_one_record(
    owner: Owner,
) -> None:
    owner.send(put(at(T0 - 30_000), at(T0 - 10_000), {"every": "1s"}), T0)
    owner.pass_time(T0 + HOUR)
    assert missed(owner) == [(-30_000, HOUR - SECOND, 2 + 3_599, "policy")]
    assert fired(owner) == [HOUR]


def test_a_late_one_off_is_passed_over_once_the_tick_behind_its_acceptance_is(
    owner: Owner,
) -> None:
    owner.send(put(at(T0 - 40_000), {"every": "7s"}), T0)
    owner.pass_time(T0 + 20_000)
    assert missed(owner) == [(-40_000, 7_000, 2, "policy")]
    assert fired(owner) == [14_000]


def test_late_one_offs_of_a_paused_job_are_all_recorded_at_once(owner: Owner) -> None:
    owner.send(put({"cron": "0 0 1 1 *"}), T0)
    owner.send(ask(PauseJob), T0)
    owner.send(put(at(T0 - 30_000), at(T0 - 10_000), {"now": True}), T0)
    owner.pass_time(T0 + SECOND)
    assert missed(owner) == [(ms, ms, 1, "paused") for ms in (-30_000, -10_000, 0)]


@pytest.mark.parametrize("at_ms", [T0 - 30_000, T0])
def test_a_one_off_that_cannot_be_told_from_one_that_ran_is_refused(
    owner: Owner, at_ms: int
) -> None:
    owner.send(put({"cron": "* * * * *"}), T0 - HOUR)
    owner.pass_time(T0)
    before = owner.stores.contents(0)
    reply = owner.send(put(at(at_ms)), T0 + 20_000)
    assert isinstance(reply, Refused) and reply.kind == "invalid"
    assert [p.field for p in reply.problems] == ["schedules[0].at"]
    assert "2026-03-02T10:00:00.000Z" in reply.problems[0].message
    assert owner.stores.contents(0) == before


def test_a_one_off_that_ran_stays_in_a_definition_that_is_edited(owner: Owner) -> None:
    schedules = (at(T0), {"every": "1h"})
    owner.send(put(*schedules), T0 - MINUTE)
    owner.pass_time(T0)
    reply = owner.send(put(*schedules, payload=b"new"), T0 + 20_000)
    assert isinstance(reply, Accepted) and reply.version == 2
    owner.pass_time(T0 + HOUR - MINUTE)
    assert fired(owner) == [0, HOUR - MINUTE]


def test_a_finished_job_that_is_put_with_now_and_another_payload_runs_again(owner: Owner) -> None:
    for n in range(3):
        owner.send(put({"now": True}, payload=b"%d" % n), T0 + n * MINUTE)
        owner.pass_time(T0 + n * MINUTE)
    assert fired(owner) == [0, MINUTE, 2 * MINUTE]


def test_now_runs_also_when_ticks_were_decided_past_the_command(owner: Owner) -> None:
    """The command was appended before a tick and is read after that tick was decided."""
    owner.send(put({"every": "1s"}), T0)
    owner.pass_time(T0 + 5_000)
    runs = len(fired(owner))
    owner.send(put({"now": True}), T0 + 4_500, now_ms=T0 + 5_100)
    owner.pass_time(T0 + 5_100)
    assert len(fired(owner)) == runs + 1
    owner.send(ask(DeleteJob), T0 + 4_600, now_ms=T0 + 5_200)
    owner.send(put({"in": "100ms"}), T0 + 4_700, now_ms=T0 + 5_200)
    owner.pass_time(T0 + 5_200)
    assert len(fired(owner)) == runs + 2
    assert len(set(fired(owner))) == runs + 2


# --- edits ---------------------------------------------------------------------------------------


def test_the_same_content_again_changes_nothing_at_all(owner: Owner) -> None:
    first = owner.send(put({"every": "10m"}), T0)
    before, count = owner.stores.contents(0), len(owner.records)
    again = owner.send(put({"every": "10m"}), T0 + 7 * MINUTE)
    assert owner.stores.contents(0) == before and len(owner.records) == count
    assert (again.version, again.sequence) == (first.version, first.sequence) == (1, 1)
    assert isinstance(again, Accepted) and not again.repeated


@pytest.mark.parametrize("wait_ms", [MINUTE, 30 * MINUTE])
def test_the_same_content_again_is_accepted_after_its_one_off_has_passed(
    owner: Owner, wait_ms: int
) -> None:
    owner.send(put(at(T0 + SECOND)), T0)
    owner.pass_time(T0 + SECOND)
    reply = owner.send(put(at(T0 + SECOND)), T0 + SECOND + wait_ms)
    assert isinstance(reply, Accepted) and reply.version == 1
    owner.pass_time(T0 + wait_ms)
    assert fired(owner) == [SECOND]


def test_an_edit_that_keeps_the_schedules_keeps_the_tick(owner: Owner) -> None:
    owner.send(put({"every": "10m"}), T0)
    reply = owner.send(put({"every": "10m"}, payload=b"new"), T0 + 9 * MINUTE)
    assert reply.version == 2
    owner.pass_time(T0 + 10 * MINUTE)
    assert fired(owner) == [10 * MINUTE]
    assert owner.fires()[0].version == 2


def test_an_interval_keeps_its_anchor_when_other_schedules_come_and_go(owner: Owner) -> None:
    owner.send(put({"every": "10m"}), T0)
    owner.send(put({"every": "10m"}, {"cron": "0 12 * * *"}), T0 + 3 * MINUTE)
    owner.pass_time(T0 + 10 * MINUTE)
    owner.send(put({"cron": "0 13 * * *"}, {"every": "10m"}), T0 + 14 * MINUTE)
    owner.pass_time(T0 + 20 * MINUTE)
    assert fired(owner) == [10 * MINUTE, 20 * MINUTE]


def test_an_edited_interval_counts_from_the_edit(owner: Owner) -> None:
    owner.send(put({"every": "10m"}), T0)
    owner.send(put({"every": "11m"}), T0 + 3 * MINUTE)
    for now in range(0, 30 * MINUTE, MINUTE):
        owner.pass_time(T0 + now)
    assert fired(owner) == [14 * MINUTE, 25 * MINUTE]


def test_a_reminder_keeps_its_day_when_its_text_is_edited(owner: Owner) -> None:
    owner.send(put({"in": "40d"}), T0)
    owner.send(put({"in": "40d"}, payload=b"other"), T0 + 5 * DAY)
    owner.pass_time(T0 + 40 * DAY)
    assert fired(owner) == [40 * DAY]


def test_an_edit_before_its_tick_is_decided_by_append_times_not_by_when_it_is_read(
    owner: Owner,
) -> None:
    """The tick of 10:01 is settled under the old schedule although the edit is read first."""
    owner.send(put({"cron": "* * * * *"}), T0)
    owner.send(put({"cron": "*/5 * * * *"}), T0 + 70_000, now_ms=T0 + 80_000)
    owner.pass_time(T0 + 10 * MINUTE - 1)
    assert fired(owner)[0] == MINUTE
    assert owner.fires()[0].version == 1
    assert fired(owner)[1:] == [5 * MINUTE]


def test_an_edit_with_the_wrong_version_is_refused_and_says_which_one_is_there(
    owner: Owner,
) -> None:
    assert isinstance(owner.send(put({"every": "10m"}, if_match=0), T0), Accepted)
    for expected in (0, 2):
        reply = owner.send(put({"every": "11m"}, if_match=expected), T0)
        assert isinstance(reply, Refused) and reply.kind == "version_conflict"
        assert f"{expected} was expected, 1 is there" in reply.problems[0].message
    assert isinstance(owner.send(put({"every": "11m"}, if_match=1), T0), Accepted)
    for kind in (PauseJob, ResumeJob, DeleteJob):
        reply = owner.send(ask(kind, if_match=1), T0)
        assert isinstance(reply, Refused) and reply.kind == "version_conflict"


# --- pause and resume ----------------------------------------------------------------------------


def test_a_paused_job_has_no_ticks_and_none_are_made_up_for(owner: Owner) -> None:
    owner.send(put({"cron": "* * * * *"}), T0)
    owner.send(ask(PauseJob, by="me", note="holiday"), T0 + 90_000)
    owner.pass_time(T0 + HOUR)
    owner.send(ask(ResumeJob), T0 + HOUR + 30_000)
    owner.pass_time(T0 + HOUR + MINUTE)
    assert fired(owner) == [MINUTE, HOUR + MINUTE]
    assert missed(owner) == []
    hold = owner.changes()[1]
    assert (hold.change, hold.by, hold.note) == ("pause", "me", "holiday")


def test_a_one_off_whose_time_passes_in_a_pause_is_recorded_as_missed(owner: Owner) -> None:
    owner.send(put(at(T0 + MINUTE), at(T0 + 2 * MINUTE), at(T0 + HOUR), {"every": "10s"}), T0)
    owner.send(ask(PauseJob), T0 + 5_000)
    owner.pass_time(T0 + MINUTE)
    owner.pass_time(T0 + 10 * MINUTE)
    assert missed(owner) == [(MINUTE, MINUTE, 1, "paused"), (2 * MINUTE, 2 * MINUTE, 1, "paused")]
    owner.send(ask(ResumeJob), T0 + HOUR - 5_000)
    owner.pass_time(T0 + HOUR)
    assert fired(owner) == [HOUR]


@pytest.mark.parametrize("kind", [PauseJob, ResumeJob])
def test_a_one_off_between_our_clock_and_the_command_is_not_lost(
    owner: Owner, kind: type[AnyCommand]
) -> None:
    """The broker's clock is ahead of ours: the command lies after a tick that we must not decide
    yet."""
    owner.send(put(at(T0 + 500)), T0)
    if kind is ResumeJob:
        owner.send(ask(PauseJob), T0)
    owner.send(ask(kind), T0 + 1_000, now_ms=T0)
    assert fired(owner) == missed(owner) == []
    owner.pass_time(T0 + 1_000)
    if kind is PauseJob:
        assert missed(owner) == [(500, 500, 1, "paused")]
    else:
        assert fired(owner) == [500]


def test_pausing_twice_and_resuming_twice_changes_nothing_the_second_time(owner: Owner) -> None:
    owner.send(put({"every": "10s"}), T0)
    for kind in (PauseJob, ResumeJob):
        first = owner.send(ask(kind), T0)
        count = len(owner.records)
        second = owner.send(ask(kind), T0 + SECOND)
        assert second.sequence == first.sequence and len(owner.records) == count


def test_an_edit_of_a_paused_job_leaves_it_paused(owner: Owner) -> None:
    owner.send(put({"every": "10s"}), T0)
    owner.send(ask(PauseJob), T0)
    owner.send(put({"every": "20s"}), T0)
    owner.pass_time(T0 + HOUR)
    assert fired(owner) == []
    assert owner.state(KEY).status == "PAUSED"  # type: ignore[union-attr]
    owner.send(ask(ResumeJob), T0 + HOUR)
    owner.pass_time(T0 + HOUR + 20 * SECOND)
    assert fired(owner) == [HOUR + 20 * SECOND]


def test_a_finished_job_cannot_be_paused_and_a_resumed_one_without_ticks_is_finished(
    owner: Owner,
) -> None:
    owner.send(put({"in": "10s"}), T0)
    owner.send(ask(PauseJob), T0)
    owner.pass_time(T0 + MINUTE)
    owner.send(ask(ResumeJob), T0 + MINUTE)
    state = owner.state(KEY)
    assert state is not None and state.status == "FINISHED" and state.forget_ms
    reply = owner.send(ask(PauseJob), T0 + MINUTE)
    assert isinstance(reply, Refused) and reply.kind == "finished"


# --- delete, and the job that comes after --------------------------------------------------------


def test_nothing_follows_a_deletion_and_everything_is_forgotten_after_a_week(owner: Owner) -> None:
    owner.send(put({"every": "10s"}), T0)
    owner.pass_time(T0 + 10 * SECOND)
    reply = owner.send(ask(DeleteJob), T0 + 15 * SECOND)
    assert isinstance(reply, Accepted)
    owner.pass_time(T0 + 7 * DAY)
    assert fired(owner) == [10 * SECOND]
    assert owner.definition(KEY) is None
    assert owner.state(KEY).status == "DELETED"  # type: ignore[union-attr]
    owner.pass_time(T0 + 7 * DAY + 15 * SECOND)
    assert owner.stores.contents(0) == {}


@pytest.mark.parametrize("kind", [PauseJob, ResumeJob, DeleteJob, TriggerJob])
def test_a_job_that_is_not_there_answers_not_found(owner: Owner, kind: type[AnyCommand]) -> None:
    reply = owner.send(ask(kind), T0)
    assert isinstance(reply, Refused) and reply.kind == "not_found"
    owner.send(put({"every": "10s"}), T0)
    owner.send(ask(DeleteJob), T0)
    reply = owner.send(ask(kind), T0)
    assert isinstance(reply, Refused) and reply.kind == "not_found"


def test_a_job_created_again_at_the_second_of_a_tick_does_not_decide_it_again(owner: Owner) -> None:
    owner.send(put({"cron": "* * * * *"}), T0)
    owner.pass_time(T0 + MINUTE)
    owner.send(ask(DeleteJob), T0 + MINUTE)
    refused = owner.send(put({"cron": "* * * * *"}, at(T0 + MINUTE)), T0 + MINUTE)
    assert isinstance(refused, Refused)
    again = owner.send(put({"cron": "* * * * *"}), T0 + MINUTE)
    owner.pass_time(T0 + 2 * MINUTE)
    assert fired(owner) == [MINUTE, 2 * MINUTE]
    assert (again.version, again.sequence) == (2, 4)
    lives = [fire.life for fire in owner.fires()]
    assert lives[0] < lives[1] == again.life


def test_the_last_tick_before_a_deletion_is_decided_first(owner: Owner) -> None:
    owner.send(put({"cron": "* * * * *"}), T0)
    owner.send(ask(DeleteJob), T0 + MINUTE, now_ms=T0 + MINUTE + 500)
    assert fired(owner) == [MINUTE]


def test_a_job_created_again_after_it_was_forgotten_begins_anew(owner: Owner) -> None:
    owner.send(put({"in": "10s"}), T0)
    owner.pass_time(T0 + 10 * SECOND)
    owner.pass_time(T0 + 2 * HOUR)
    reply = owner.send(put({"in": "10s"}), T0 + 2 * HOUR)
    assert (reply.version, reply.sequence) == (1, 1)


# --- trigger -------------------------------------------------------------------------------------


def test_a_trigger_runs_beside_the_schedule_under_a_key_of_its_own(owner: Owner) -> None:
    owner.send(put({"cron": "* * * * *"}), T0)
    reply = owner.send(ask(TriggerJob, command_id="x", payload=b"p",
                           scheduled_at=format_instant(T0 + MINUTE)), T0 + SECOND)  # fmt: skip
    owner.pass_time(T0 + MINUTE)
    manual, tick = owner.fires()
    assert manual.execution_id == reply.execution_id
    assert manual.execution_id.startswith("t/j:2026-03-02T10:01:00.000Z~m")
    assert tick.execution_id == "t/j:2026-03-02T10:01:00.000Z:1"
    assert (manual.due_at, manual.scheduled_at) == (T0 + SECOND, T0 + MINUTE)
    values = [r.value for r in owner.records if r.topic == "out"]
    assert values == [b"p", b""]


def test_triggers_without_an_id_are_each_a_run_and_with_one_only_once(owner: Owner) -> None:
    owner.send(put({"cron": "0 0 1 1 *"}), T0)
    for _ in range(2):
        owner.send(ask(TriggerJob), T0)
    replies = [owner.send(ask(TriggerJob, command_id="same"), T0) for _ in range(2)]
    assert len(owner.fires()) == 3
    assert replies[1].repeated and replies[1].execution_id == replies[0].execution_id
    assert len({fire.execution_id for fire in owner.fires()}) == 3


@pytest.mark.parametrize("status", ["PAUSED", "FINISHED"])
def test_a_paused_or_finished_job_can_be_triggered(owner: Owner, status: str) -> None:
    owner.send(put({"in": "10s"}), T0)
    if status == "PAUSED":
        owner.send(ask(PauseJob), T0)
    owner.pass_time(T0 + 10 * SECOND)
    before = owner.state(KEY)
    owner.send(ask(TriggerJob), T0 + 30 * MINUTE)
    after = owner.state(KEY)
    assert before is not None and after is not None and after.status == before.status == status
    assert owner.fires()[-1].scheduled_at == T0 + 30 * MINUTE
    if status == "FINISHED":
        assert after.forget_ms == T0 + 90 * MINUTE, "counted from the end of the last execution"


def test_a_trigger_that_names_no_instant_is_refused(owner: Owner) -> None:
    owner.send(put({"in": "10s"}), T0)
    reply = owner.send(ask(TriggerJob, scheduled_at="10:00"), T0)
    assert isinstance(reply, Refused) and reply.problems[0].field == "scheduled_at"
    assert not owner.fires()


# --- command ids ---------------------------------------------------------------------------------


def test_a_command_id_takes_effect_once_within_its_hour(owner: Owner) -> None:
    first = owner.send(put({"every": "10m"}, command_id="a"), T0)
    owner.send(put({"every": "20m"}, command_id="b"), T0 + MINUTE)
    again = owner.send(put({"every": "10m"}, command_id="a"), T0 + HOUR - 1)
    assert again.repeated and (again.version, again.sequence) == (first.version, first.sequence)
    assert [change.version for change in owner.changes()] == [1, 2]
    later = owner.send(put({"every": "10m"}, command_id="a"), T0 + HOUR)
    assert not later.repeated and later.version == 3


def test_a_command_id_with_another_body_is_refused(owner: Owner) -> None:
    owner.send(put({"every": "10m"}, command_id="a"), T0)
    for other in (put({"every": "11m"}, command_id="a"), ask(PauseJob, command_id="a")):
        reply = owner.send(other, T0)
        assert isinstance(reply, Refused) and reply.kind == "id_reused"
        assert [problem.field for problem in reply.problems] == ["command_id"]


def test_a_thousand_command_ids_are_remembered_and_more_are_refused(owner: Owner) -> None:
    owner.send(put({"cron": "0 0 1 1 *"}), T0)
    most = limits.COMMAND_IDS_MAX
    for n in range(most):
        assert isinstance(owner.send(ask(TriggerJob, command_id=f"c{n}"), T0), Accepted)
    replies = [owner.send(ask(TriggerJob, command_id=f"c{n}"), T0) for n in range(0, most, 97)]
    assert all(reply.repeated for reply in replies)
    refused = next(
        reply
        for n in range(limits.COMMAND_IDS_INLINE_MAX + 1)
        if isinstance(reply := owner.send(ask(TriggerJob, command_id=f"d{n}"), T0), Refused)
    )
    assert refused.kind == "too_many_commands"
    state = owner.state(KEY)
    assert state is not None and len(state.ids) <= limits.COMMAND_IDS_INLINE_MAX
    assert owner.stores.contents(0) == owner.fold()
    assert isinstance(owner.send(ask(TriggerJob, command_id="e"), T0 + HOUR), Accepted)


def test_ids_outlive_a_restart_and_a_deletion(owner: Owner) -> None:
    first = put({"every": "10m"}, command_id="a")
    owner.send(first, T0)
    owner.send(ask(DeleteJob, command_id="b"), T0)
    owner.restart(T0)
    reply = owner.send(first, T0 + SECOND)
    assert reply.repeated
    assert owner.state(KEY).status == "DELETED"  # type: ignore[union-attr]


def test_every_state_record_carries_the_transaction_that_wrote_it(owner: Owner) -> None:
    """Also one that only remembers a command id: a lost marker is judged by these numbers."""
    owner.send(put({"every": "10s"}, command_id="a"), T0)
    for command in (
        put({"every": "10s"}, command_id="b"), ask(ResumeJob, command_id="c"),
        ask(PauseJob), ask(PauseJob, command_id="d"), ask(TriggerJob), ask(ResumeJob),
        put({"every": "20s"}), ask(DeleteJob),
    ):  # fmt: skip
        owner.send(command, T0)
        assert owner.state(KEY).txn == owner.seq  # type: ignore[union-attr]


# --- broken jobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way_back", ["resume", "put", "put the same"])
def test_a_broken_job_rests_until_it_is_resumed_or_put(owner: Owner, way_back: str) -> None:
    from processors.core import job as decide
    from processors.core.job import Job
    from processors.core.spec import plan_of
    from schemas.bindings import JOB_DEFINITION, JOB_STATE

    owner.send(put({"every": "10s"}), T0)
    state, definition = owner.state(KEY), owner.definition(KEY)
    assert state is not None and definition is not None
    job = Job(state, definition, plan_of(definition))
    decision = decide.break_job(KEY, job, T0 + 10 * SECOND, 77, "boom")
    assert decision.state is not None
    assert [(m.first, m.count, m.reason, m.detail) for m in decision.missed] == [
        (T0 + 10 * SECOND, 1, "error", "boom")
    ]
    assert decision.state.status == "BROKEN" and decision.state.due_ms == 0
    assert decision.state.hold is not None and decision.state.hold.reason == "decision"
    assert decision.changed is not None and decision.changed.sequence == state.sequence + 2
    owner.store.apply({b"s/t/j": JOB_STATE.encode(decision.state),
                       b"j/t/j": JOB_DEFINITION.encode(definition)})  # fmt: skip
    owner.restart(T0 + 10 * SECOND)
    commands = {"resume": ask(ResumeJob), "put": put({"every": "10s"}, payload=b"x"),
                "put the same": put({"every": "10s"})}  # fmt: skip
    owner.send(commands[way_back], T0 + 11 * SECOND)
    owner.pass_time(T0 + 20 * SECOND)
    assert fired(owner) == [20 * SECOND]


# --- what cannot be ------------------------------------------------------------------------------


def test_the_store_is_what_its_changelogs_say_after_all_of_this(owner: Owner) -> None:
    owner.send(put({"every": "10s"}, at(T0 + 25_000)), T0)
    for n, command in enumerate(
        (ask(PauseJob), ask(ResumeJob), ask(TriggerJob, command_id="x"), ask(DeleteJob),
         put({"in": "5s"}), put({"in": "6s"}), put({"cron": "* * * * *"}))
    ):  # fmt: skip
        owner.send(command, T0 + 12_000 * (n + 1))
        owner.pass_time(T0 + 12_000 * (n + 1) + 5_000)
        assert owner.stores.contents(0) == owner.fold()
