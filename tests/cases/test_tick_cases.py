"""Cases from public bug reports about ticks that are late, edited, paused or many, by their ids.

Each drives the scheduler of one partition, without log and threads. Where `cases.jsonl` and the
documentation disagree the documentation holds, and the test says so.
"""

from typing import Any

import pytest

from processors.core.schedule import jitter_ms
from schemas.commands import (
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
from tests.cases.test_time_cases import CASES
from tests.unit.core.owner import Owner

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
KEY = "t/j"


@pytest.fixture
def owner() -> Owner:
    return Owner()


def put(schedule: dict[str, Any], job: str = "j", **spec: Any) -> PutJob:
    spec.setdefault("topic", TopicTargetSpec(name="out"))
    return PutJob(tenant="t", job=job, spec=JobSpec(schedules=(ScheduleSpec(**schedule),), **spec))


def fired(owner: Owner, job: str | None = None) -> list[str]:
    return [format_instant(f.scheduled_at).replace(".000Z", "Z") for f in owner.fires(job)]


def run_until(owner: Owner, from_ms: int, until_ms: int, step_ms: int = SECOND) -> None:
    for now_ms in range(from_ms, until_ms + 1, step_ms):
        owner.pass_time(now_ms)


def test_c064_a_one_off_a_second_ago_runs_once_also_when_the_scheduler_restarts(
    owner: Owner,
) -> None:
    now_ms = parse_instant(CASES["C064"]["input"]["now"])
    assert isinstance(owner.send(put({"at": "2026-06-01T11:59:59Z"}), now_ms), Accepted)
    owner.restart(now_ms + 5 * MINUTE)
    owner.pass_time(now_ms + 5 * MINUTE)
    owner.restart(now_ms + 6 * MINUTE)
    owner.pass_time(now_ms + 6 * MINUTE)
    assert fired(owner) == ["2026-06-01T11:59:59Z"]
    assert isinstance(owner.send(put({"at": "2020-01-01T00:00:00Z"}, "k"), now_ms), Refused)


def test_c065_two_one_offs_at_one_instant_run_once_each_over_a_crash(owner: Owner) -> None:
    now_ms = parse_instant(CASES["C065"]["input"]["now"])
    for job in ("A", "B"):
        owner.send(put({"at": "2026-06-01T12:00:00Z"}, job), now_ms)
    owner.pass_time(now_ms + HOUR, limit=1)
    owner.restart(now_ms + HOUR + 6 * SECOND)
    owner.pass_time(now_ms + HOUR + 6 * SECOND)
    runs = {job: len(fired(owner, job)) for job in ("A", "B")}
    assert runs == CASES["C065"]["expected"]["runs"]


def test_c066_nothing_of_the_far_future_runs_within_a_day(owner: Owner) -> None:
    given = CASES["C066"]["input"]
    now_ms = parse_instant(given["now"])
    for n, text in enumerate(given["one_off"]):
        owner.send(put({"at": text}, f"at{n}"), now_ms)
        state = owner.state(f"t/at{n}")
        assert state is not None and state.next_ms == parse_instant(text)
    for n, seconds in enumerate(given["interval_s"]):
        owner.send(put({"every": f"{seconds}s"}, f"every{n}"), now_ms)
    owner.pass_time(now_ms + DAY)
    assert fired(owner) == []


def test_c068_a_clock_that_was_put_back_neither_repeats_a_tick_nor_stays_silent(
    owner: Owner,
) -> None:
    """The clock guard holds such a clock before it gets here; even so nothing fires twice, and the
    first tick after the true time has passed the last one fires. Fired ticks are the record."""
    true_ms = parse_instant("2026-06-01T15:00:00Z")
    owner.send(put({"cron": "* * * * *"}), true_ms - 30 * SECOND)
    owner.pass_time(true_ms)
    for now_ms in (true_ms + 61 * SECOND, true_ms + 10 * SECOND, true_ms + 61 * SECOND,
                   true_ms + 2 * MINUTE):  # fmt: skip
        owner.pass_time(now_ms)
    assert fired(owner) == [f"2026-06-01T15:0{n}:00Z" for n in range(3)]


def test_c070_the_length_of_a_run_does_not_move_the_next(owner: Owner) -> None:
    given, expected = CASES["C070"]["input"], CASES["C070"]["expected"]
    anchor_ms = parse_instant(given["anchor"])
    owner.send(put({"every": f"{given['interval_s']}s", "anchor": given["anchor"]}),
               anchor_ms - SECOND)  # fmt: skip
    run_until(owner, anchor_ms, anchor_ms + 5 * MINUTE - SECOND, 700)
    assert fired(owner) == expected["nominal"]
    assert max(fire.claimed_at - fire.scheduled_at for fire in owner.fires()) < 700


def test_c071_a_manual_run_does_not_move_the_interval(owner: Owner) -> None:
    given = CASES["C071"]["input"]
    manual_ms = parse_instant(given["manual_run_at"])
    owner.send(put({"every": f"{given['interval_s']}s", "anchor": given["anchor"]}),
               manual_ms - HOUR)  # fmt: skip
    owner.send(TriggerJob(tenant="t", job="j", command_id="m"), manual_ms)
    state = owner.state(KEY)
    assert state is not None
    assert state.next_ms == parse_instant(CASES["C071"]["expected"]["next"])


@pytest.mark.parametrize(
    ("missed", "tolerance", "expected"),
    [
        ("skip", "60s", ["14:44:30", "14:44:45"]),
        ("skip", "0s", ["14:44:45"]),
        ("latest", "0s", ["14:44:30", "14:44:45"]),
        ("all", "0s", ["14:44:00", "14:44:15", "14:44:30", "14:44:45"]),
    ],
)
def test_c074_each_policy_does_what_it_says(
    owner: Owner, missed: str, tolerance: str, expected: list[str]
) -> None:
    given = CASES["C074"]["input"]
    down_ms, up_ms = map(parse_instant, given["scheduler_down"])
    owner.send(put({"every": f"{given['interval_s']}s", "anchor": given["anchor"]}, missed=missed,
                   late_tolerance=tolerance), down_ms - SECOND)  # fmt: skip
    owner.pass_time(down_ms)
    run_until(owner, up_ms, up_ms + 10 * SECOND, 50)
    assert [text[11:19] for text in fired(owner)] == expected
    covered = len(owner.fires()) + sum(record.count for record in owner.missed())
    assert covered == 4, "each tick has one record"


@pytest.mark.parametrize("n", range(2))
def test_c076_lateness_is_judged_for_each_tick_by_itself(owner: Owner, n: int) -> None:
    given = CASES["C076"]["input"]
    case = given["cases"][n]
    schedule = {"every": f"{given['interval_s']}s", "anchor": given["anchor"]}
    command = put(schedule, missed="skip", late_tolerance=f"{given['grace_s']}s")
    owner.send(command, parse_instant(case["down_from"]))
    up_ms = parse_instant(case["up_at"])
    run_until(owner, up_ms, up_ms + 89 * SECOND)
    assert [text[11:16] for text in fired(owner)] == [["10:00"], ["10:02"]][n]
    run_until(owner, up_ms + 89 * SECOND, up_ms + 91 * SECOND)
    assert [text[11:16] for text in fired(owner)][1:] == [["10:02"], ["10:04"]][n]


def test_c077_a_long_pause_says_how_much_passed_and_the_job_goes_on(owner: Owner) -> None:
    """The case counts the tick of the very second of the pause; here that one runs, since a command
    acts on what is undecided after the ticks up to its own time."""
    given = CASES["C077"]["input"]
    pause_ms, resume_ms = parse_instant(given["suspend"]), parse_instant(given["resume"])
    owner.send(put({"cron": given["cron"]}, missed="skip"), pause_ms - 30 * SECOND)
    owner.send(PauseJob(tenant="t", job="j"), pause_ms)
    owner.pass_time(resume_ms)
    reply = owner.send(ResumeJob(tenant="t", job="j"), resume_ms)
    assert fired(owner) == [given["suspend"]]
    assert reply.warnings[0].startswith("3720 ticks passed")
    owner.pass_time(resume_ms + 30 * SECOND)
    assert fired(owner)[1:] == [CASES["C077"]["expected"]["next"]]
    assert owner.missed() == []


@pytest.mark.parametrize("missed", ["latest", "skip", "all"])
def test_c078_a_pause_skips_whatever_the_policy(owner: Owner, missed: str) -> None:
    given = CASES["C078"]["input"]
    pause_ms, resume_ms = parse_instant(given["pause"]), parse_instant(given["resume"])
    owner.send(put({"cron": given["cron"]}, missed=missed), pause_ms - MINUTE)
    owner.send(PauseJob(tenant="t", job="j"), pause_ms)
    owner.pass_time(resume_ms - SECOND)
    owner.send(ResumeJob(tenant="t", job="j"), resume_ms)
    run_until(owner, resume_ms, resume_ms + 10 * MINUTE)
    assert fired(owner) == CASES["C078"]["expected"]["next"]


@pytest.mark.parametrize("change", [{}, {"name": "another name"}])
def test_c086_a_save_while_a_tick_is_due_loses_nothing(owner: Owner, change: Any) -> None:
    given = CASES["C086"]["input"]
    now_ms = parse_instant(given["now"])
    owner.send(put({"cron": given["cron"]}), now_ms - HOUR)
    owner.send(put({"cron": given["cron"]}, **change), now_ms)
    owner.pass_time(now_ms)
    assert fired(owner) == ["2026-06-01T10:00:00Z"]
    state = owner.state(KEY)
    assert state is not None
    assert state.next_ms == parse_instant(CASES["C086"]["expected"]["next"])


@pytest.mark.parametrize("offset_ms", [-1, 0, 1])
@pytest.mark.parametrize("read_late_ms", [0, 700])
def test_an_edit_at_the_very_second_of_a_tick_neither_loses_nor_doubles_it(
    owner: Owner, offset_ms: int, read_late_ms: int
) -> None:
    """Beside C086: before its second the edit replaces the tick, from then on the tick has run."""
    tick_ms = parse_instant("2026-06-01T10:00:00Z")
    owner.send(put({"cron": "0 10 * * *"}), tick_ms - HOUR)
    edit_ms = tick_ms + offset_ms
    owner.send(put({"cron": "30 10 * * *"}), edit_ms, now_ms=edit_ms + read_late_ms)
    owner.pass_time(tick_ms + HOUR)
    expected = ["2026-06-01T10:30:00Z"]
    if offset_ms >= 0:
        expected.insert(0, "2026-06-01T10:00:00Z")
    assert fired(owner) == expected
    assert [fire.version for fire in owner.fires()] == ([1, 2] if offset_ms >= 0 else [2])


def test_c088_a_new_schedule_takes_effect_at_the_edit(owner: Owner) -> None:
    owner.send(put({"cron": "0 4 * * 1"}), parse_instant("2026-06-02T00:00:00Z"))
    edit_ms = parse_instant("2026-06-02T09:20:00Z")
    owner.send(put({"cron": "0 * * * *"}), edit_ms)
    run_until(owner, edit_ms, edit_ms + HOUR, 10 * SECOND)
    assert fired(owner) == [CASES["C088"]["expected"]["first_run"]]


@pytest.mark.parametrize("missed", ["latest", "skip", "all"])
def test_c089_another_kind_of_schedule_replays_nothing(owner: Owner, missed: str) -> None:
    four_ms = parse_instant("2026-06-01T04:00:00Z")
    owner.send(put({"cron": "0 4 * * *"}, missed=missed), four_ms - HOUR)
    owner.pass_time(four_ms)
    edit_ms = parse_instant("2026-06-01T10:20:00Z")
    owner.send(put({"every": "3600s"}, missed=missed), edit_ms)
    run_until(owner, edit_ms, edit_ms + HOUR, 10 * SECOND)
    assert fired(owner) == ["2026-06-01T04:00:00Z", CASES["C089"]["expected"]["next"]]


def test_kinds_of_schedules_change_to_and_fro_without_a_double_or_a_loss(owner: Owner) -> None:
    """Beside C089: cron, interval, one-off and back, each counting from its edit."""
    t0 = parse_instant("2026-06-01T10:00:00Z")
    kinds: list[dict[str, Any]] = [
        {"cron": "* * * * *"}, {"every": "20s"}, {"in_": "30s"}, {"cron": "*/2 * * * *"},
        {"at": "2026-06-01T10:09:30Z"}, {"every": "60s", "anchor": "2026-06-01T10:00:00Z"},
    ]  # fmt: skip
    for n, kind in enumerate(kinds):
        owner.send(put(kind), t0 + n * 2 * MINUTE)
        run_until(owner, t0 + n * 2 * MINUTE, t0 + (n + 1) * 2 * MINUTE - SECOND)
    found = [text[14:19] for text in fired(owner)]
    by_kind = (["01:00", "02:00"], ["02:20", "02:40", "03:00", "03:20", "03:40", "04:00"],
               ["04:30"], ["08:00"], ["09:30"], ["11:00"])  # fmt: skip
    assert found == [text for kind in by_kind for text in kind]
    assert owner.missed() == []


def test_a_job_that_is_deleted_and_created_again_fires_no_tick_twice(owner: Owner) -> None:
    tick_ms = parse_instant("2026-06-01T10:00:00Z")
    owner.send(put({"cron": "* * * * *"}), tick_ms - 30 * SECOND)
    owner.pass_time(tick_ms)
    for n in range(1, 6):
        owner.send(DeleteJob(tenant="t", job="j"), tick_ms + n)
        owner.send(put({"cron": "* * * * *"}), tick_ms + n)
    owner.pass_time(tick_ms + 59 * SECOND)
    assert fired(owner) == ["2026-06-01T10:00:00Z"]
    owner.pass_time(tick_ms + MINUTE)
    assert fired(owner)[1:] == ["2026-06-01T10:01:00Z"]
    lives = [fire.life for fire in owner.fires()]
    assert lives[0] < lives[1]
    assert [fire.version for fire in owner.fires()] == [1, 6]


def test_c091_twenty_processes_that_register_a_job_make_one_job_and_one_run_a_slot(
    owner: Owner,
) -> None:
    start_ms = parse_instant("2026-06-01T09:50:00Z")
    for now_ms in range(start_ms, start_ms + 45 * MINUTE, 30 * SECOND):
        for n in range(20):
            reply = owner.send(put({"cron": "0,30 * * * *"}, "nightly"), now_ms + n)
            assert reply.version == 1
        owner.pass_time(now_ms + 20)
    assert fired(owner, "nightly") == ["2026-06-01T10:00:00Z", "2026-06-01T10:30:00Z"]


def test_c106_jitter_delays_every_slot_once_and_the_one_at_the_end_too(owner: Owner) -> None:
    given, expected = CASES["C106"]["input"], CASES["C106"]["expected"]
    from_ms = parse_instant(given["from_"])
    owner.send(put({"cron": given["cron"]}, jitter=f"{given['jitter_s']}s", end=given["end"]),
               from_ms)  # fmt: skip
    run_until(owner, from_ms, from_ms + (given["hours"] + 1) * HOUR, 10 * SECOND)
    assert len(owner.fires()) == expected["fires"]
    delay_ms = jitter_ms("t", "j", given["jitter_s"] * 1_000)
    assert {fire.due_at - fire.scheduled_at for fire in owner.fires()} == {delay_ms}
    low_s, high_s = expected["delay_range_s"]
    assert low_s * 1_000 <= delay_ms < high_s * 1_000
    assert fired(owner)[-1] == given["end"]
    assert all(fire.claimed_at >= fire.due_at for fire in owner.fires())


def test_c110_ten_thousand_jobs_at_one_instant_run_once_each(owner: Owner) -> None:
    given = CASES["C110"]["input"]
    before_ms = parse_instant("2026-05-31T23:00:00Z")
    names = [f"j{n}" for n in range(given["jobs"])] + ["twin-a", "twin-b"]
    for name in names:
        owner.send(put({"cron": given["cron"]}, name), before_ms)
    owner.pass_time(before_ms + HOUR)
    assert sorted(fire.job for fire in owner.fires()) == sorted(names)
    assert set(fired(owner)) == {"2026-06-01T00:00:00Z"}
