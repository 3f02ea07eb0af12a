"""Cases from public bug reports that the time core alone can decide, each a test by its id.

The answers are those of `cases.jsonl`; where a case leaves a choice, the documented one holds.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from processors.core.cron import parse_cron
from processors.core.problem import InvalidSchedule
from processors.core.schedule import (
    CronSchedule,
    EverySchedule,
    Schedule,
    Tick,
    count_ticks,
    first_tick,
    jitter_ms,
    next_tick,
    next_tick_from,
)
from processors.core.schedule_input import read_schedule
from processors.core.zones import PINNED, UnknownZone, ZoneData
from schemas.units import format_instant, parse_instant

HERE = Path(__file__).parent
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for case in map(json.loads, (HERE / "cases.jsonl").read_text("utf-8").splitlines())
}
CRON_WITH_NEXT = [
    id_
    for id_, case in CASES.items()
    if {"cron", "tz", "after"} <= case["input"].keys() and "next" in case["expected"]
]
HOUR_MS = 3_600_000


def instants(schedules: Iterable[Schedule], after: str, count: int, **options: Any) -> list[str]:
    found: list[str] = []
    at_ms = int(parse_instant(after))
    while len(found) < count and (tick := next_tick(tuple(schedules), at_ms, **options)):
        at_ms = tick.at_ms
        found.append(format_instant(at_ms).replace(".000Z", "Z"))
    return found


def cron_of(id_: str, **options: str) -> CronSchedule:
    given = CASES[id_]["input"]
    return CronSchedule(cron=given["cron"], timezone=given.get("tz", "UTC"), **options)


@pytest.mark.parametrize("id_", CRON_WITH_NEXT)
def test_a_cron_expression_names_exactly_the_expected_instants(id_: str) -> None:
    given, expected = CASES[id_]["input"], CASES[id_]["expected"]
    assert instants([cron_of(id_)], given["after"], len(expected["next"])) == expected["next"]
    if strict := expected.get("next_strict"):
        schedule = cron_of(id_, gap="next", repeat="first")
        assert instants([schedule], given["after"], len(strict)) == strict


def test_the_file_holds_the_cron_cases_this_module_is_about() -> None:
    assert len(CRON_WITH_NEXT) >= 40


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=f"{id_}-{text}")
        for id_ in ("C006", "C007")
        for text in CASES[id_]["input"]["register"]
    ],
)
def test_an_expression_that_cannot_be_scheduled_is_refused_naming_the_field(text: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        parse_cron(text)
    for problem in refused.value.problems:
        assert problem.field
        assert problem.message


@pytest.mark.parametrize("text", CASES["C006"]["input"]["also_accept"])
def test_c006_rare_expressions_are_accepted_and_fire(text: str) -> None:
    assert next_tick((CronSchedule(cron=text),), 0) is not None


def data_of(version: str) -> ZoneData:
    return ZoneData(version, HERE / "tzdata" / version)


@pytest.mark.parametrize("id_", ["C058", "C059"])
def test_new_zone_data_moves_the_ticks_that_have_not_fired(id_: str) -> None:
    given, expected = CASES[id_]["input"], CASES[id_]["expected"]
    for version, key in (
        (given["tzdata_before"], "next_before"),
        (given["tzdata_after"], "next_after"),
    ):
        found = instants([cron_of(id_)], given["after"], given["count"], zones=data_of(version))
        assert found == expected[key]


@pytest.mark.parametrize("id_", ["C058", "C059"])
def test_after_new_zone_data_no_local_time_fires_twice_and_none_is_lost(id_: str) -> None:
    """Whatever tick was the last under the old data, the new data goes on with the next one."""
    given, schedules = CASES[id_]["input"], (cron_of(id_),)
    old, new = data_of(given["tzdata_before"]), data_of(given["tzdata_after"])
    last: Tick | None = next_tick(schedules, parse_instant(given["after"]), zones=old)
    for _ in range(4):
        assert last is not None
        following = next_tick_from(schedules, last, zones=new)
        assert following is not None
        assert following.at_ms > last.at_ms
        assert datetime.fromisoformat(following.local).date() == (
            datetime.fromisoformat(last.local).date() + timedelta(days=1)
        )
        last = next_tick(schedules, last.at_ms, zones=old)


@pytest.mark.parametrize("name", CASES["C062"]["input"]["register_tz"])
def test_c062_a_name_that_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(UnknownZone):
        PINNED.zone(name)
    with pytest.raises(InvalidSchedule) as refused:
        read_schedule({"cron": "0 9 * * *", "timezone": name}, accepted_ms=0)
    assert [problem.field for problem in refused.value.problems] == ["schedule.timezone"]


@pytest.mark.parametrize("name", CASES["C062"]["input"]["also_accept"])
def test_c062_aliases_and_fixed_offsets_are_accepted_and_kept_as_written(name: str) -> None:
    tick = next_tick((CronSchedule(cron="0 9 * * *", timezone=name),), 0)
    assert tick is not None
    assert tick.zone == name


@pytest.mark.parametrize("n", range(5))
def test_c063_a_one_off_needs_an_offset_or_a_zone(n: int) -> None:
    one_off = dict(CASES["C063"]["input"]["one_off"][n])
    expected = CASES["C063"]["expected"]["results"][n]
    written = {"at": one_off["run_at"]}
    if "tz" in one_off:
        written["timezone"] = one_off["tz"]
    if expected.startswith("4xx"):
        with pytest.raises(InvalidSchedule, match="neither an offset nor a zone"):
            read_schedule(written, accepted_ms=0)
        return
    tick = first_tick((read_schedule(written, accepted_ms=0),), 0)
    assert tick is not None
    assert tick.at_ms == parse_instant(expected)


def test_c064_a_one_off_a_second_ago_is_a_tick_and_one_of_2020_is_refused() -> None:
    now_ms = parse_instant(CASES["C064"]["input"]["now"])
    recent = (read_schedule({"at": "2026-06-01T11:59:59Z"}, accepted_ms=now_ms),)
    tick = first_tick(recent, now_ms, late_tolerance_ms=60_000)
    assert tick == Tick(now_ms - 1_000)
    assert next_tick(recent, now_ms - 1_000) is None
    with pytest.raises(InvalidSchedule, match="has passed"):
        read_schedule({"at": "2020-01-01T00:00:00Z"}, accepted_ms=now_ms)


def test_c066_far_instants_and_long_intervals_neither_overflow_nor_fire_early() -> None:
    given = CASES["C066"]["input"]
    now_ms = parse_instant(given["now"])
    for text in given["one_off"]:
        schedules = (read_schedule({"at": text}, accepted_ms=now_ms),)
        assert instants(schedules, given["now"], 9) == [text]
    for seconds, first in (
        (2_592_000, "2026-07-01T00:00:00Z"),
        (315_360_000, "2036-05-29T00:00:00Z"),
    ):
        assert seconds in given["interval_s"]
        schedules = (read_schedule({"every": f"{seconds}s"}, accepted_ms=now_ms),)
        assert instants(schedules, given["now"], 1) == [first]


def test_c067_a_leap_second_makes_no_second_tick_and_is_refused_as_a_one_off() -> None:
    given = CASES["C067"]["input"]
    before_ms = parse_instant("2016-12-31T23:59:59.070Z")
    tick = next_tick((cron_of("C067"),), before_ms)
    assert tick is not None
    assert tick.at_ms == parse_instant("2017-01-01T00:00:00Z")
    following = next_tick((cron_of("C067"),), tick.at_ms)
    assert following is not None
    assert following.at_ms == parse_instant("2017-02-01T00:00:00Z")
    with pytest.raises(InvalidSchedule, match="leap second"):
        read_schedule({"at": given["one_off"]}, accepted_ms=before_ms)


@pytest.mark.parametrize("id_", ["C070", "C071", "C073"])
def test_an_interval_keeps_its_anchor_in_elapsed_time(id_: str) -> None:
    given, expected = CASES[id_]["input"], CASES[id_]["expected"]
    anchor_ms = parse_instant(given["anchor"])
    schedules = (EverySchedule(every_ms=given["interval_s"] * 1_000, anchor_ms=anchor_ms),)
    if id_ == "C070":  # the anchor itself is the first nominal time
        found = instants(schedules, "2026-06-01T10:45:11Z", given["count"])
        assert found == expected["nominal"]
    elif id_ == "C071":  # a run started by hand does not enter the calculation at all
        assert instants(schedules, given["manual_run_at"], 1) == [expected["next"]]
    else:
        assert instants(schedules, given["anchor"], given["count"]) == expected["next"]


def test_c074_the_ticks_of_an_outage_are_exactly_three() -> None:
    given = CASES["C074"]["input"]
    anchor_ms = parse_instant(given["anchor"])
    schedules = (EverySchedule(every_ms=given["interval_s"] * 1_000, anchor_ms=anchor_ms),)
    down_ms, up_ms = map(parse_instant, given["scheduler_down"])
    count, first_ms, last_ms = count_ticks(schedules, down_ms, up_ms)
    assert count == 3
    assert first_ms == parse_instant("2026-06-06T14:44:00Z")
    assert last_ms == parse_instant("2026-06-06T14:44:30Z")
    assert instants(schedules, given["scheduler_down"][1], 1) == ["2026-06-06T14:44:45Z"]


def test_c077_a_long_suspension_passes_over_3721_ticks_and_goes_on() -> None:
    given = CASES["C077"]["input"]
    from_ms, to_ms = parse_instant(given["suspend"]) - 1, parse_instant(given["resume"])
    assert count_ticks((cron_of("C077"),), from_ms, to_ms)[0] == 3721
    assert instants([cron_of("C077")], given["resume"], 1) == [CASES["C077"]["expected"]["next"]]


def test_c078_the_next_tick_after_a_resume_is_the_next_nominal_one() -> None:
    given, expected = CASES["C078"]["input"], CASES["C078"]["expected"]
    assert instants([cron_of("C078")], given["resume"], 1) == expected["next"]


def test_c086_the_tick_after_one_that_is_due_is_a_day_later() -> None:
    schedules = [cron_of("C086")]
    assert instants(schedules, "2026-06-01T10:00:00Z", 1) == [CASES["C086"]["expected"]["next"]]
    # The cursor, not the clock, decides what comes next: at 10:00:02 the due tick is still there.
    assert instants(schedules, "2026-05-31T10:00:00Z", 1) == ["2026-06-01T10:00:00Z"]


def test_c088_a_new_expression_counts_from_the_edit() -> None:
    weekly, hourly = CronSchedule(cron="0 4 * * 1"), CronSchedule(cron="0 * * * *")
    expected = CASES["C088"]["expected"]["next_fire_in_response"]
    assert instants([weekly], "2026-06-02T00:00:00Z", 1) == ["2026-06-08T04:00:00Z"]
    assert instants([hourly], "2026-06-02T09:20:00Z", 1) == [expected]


def test_c089_a_new_interval_is_anchored_at_the_edit() -> None:
    edit_ms = parse_instant("2026-06-01T10:20:00Z")
    schedules = (read_schedule({"every": "3600s"}, accepted_ms=edit_ms),)
    expected = CASES["C089"]["expected"]["next"]
    assert instants(schedules, "2026-06-01T10:20:00Z", 1) == [expected]


def test_c106_jitter_is_bounded_stable_and_never_changes_the_nominal_ticks() -> None:
    given, expected = CASES["C106"]["input"], CASES["C106"]["expected"]
    end_ms, range_ms = parse_instant(given["end"]), given["jitter_s"] * 1_000
    found = instants([cron_of("C106")], given["from_"], 99, end_ms=end_ms)
    assert len(found) == expected["fires"]
    assert found[-1] == given["end"]
    for job in map(str, range(2_000)):
        delay_ms = jitter_ms("default", job, range_ms)
        assert 0 <= delay_ms < range_ms
        assert delay_ms == jitter_ms("default", job, range_ms)


def test_c112_adjacent_half_open_ranges_share_no_tick() -> None:
    given = CASES["C112"]["input"]
    found = []
    for low, high in given["ranges"]:
        end_ms = parse_instant(high) - 1
        start_ms = parse_instant(low)
        found.append(
            instants(
                [cron_of("C112")], "2026-06-01T00:00:00Z", 99, start_ms=start_ms, end_ms=end_ms
            )
        )
    assert [(len(one), one[0][11:16], one[-1][11:16]) for one in found] == [
        (5, "01:00", "01:04"),
        (5, "01:05", "01:09"),
    ]


def test_c114_a_range_of_an_interval_job_has_the_ticks_of_its_anchor() -> None:
    given, expected = CASES["C114"]["input"], CASES["C114"]["expected"]
    anchor_ms = parse_instant(given["anchor"])
    schedules = (EverySchedule(every_ms=given["interval_s"] * 1_000, anchor_ms=anchor_ms),)
    low, high = given["range"]
    assert instants(schedules, low, 99, end_ms=parse_instant(high) - 1) == expected["slots"]


def test_the_wall_clock_of_each_cron_case_agrees_with_the_standard_library() -> None:
    """`Tick.local` and `fold` are what the zone's clock shows at the instant."""
    for id_ in CRON_WITH_NEXT:
        given = CASES[id_]["input"]
        tick = next_tick((cron_of(id_),), parse_instant(given["after"]))
        assert tick is not None
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=tick.at_ms)
        shown = at + timedelta(seconds=PINNED.zone(tick.zone).offset_s(tick.at_ms // 1_000))
        assert tick.local == shown.replace(tzinfo=None).isoformat()
