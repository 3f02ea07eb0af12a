"""Ticks of schedules: clock changes, intervals, one-offs, several at once, counts, jitter."""

import random
from typing import Any

import pytest

from processors.core.schedule import (
    AtSchedule,
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
from schemas.units import EPOCH_MS_MAX, format_instant, parse_instant

DAILY = CronSchedule(cron="0 9 * * *")


def after(text: str, count: int, *schedules: Schedule) -> list[str]:
    """The next ticks, without the parts of the text that never change here."""
    found: list[str] = []
    at_ms: int = parse_instant(text)
    while len(found) < count and (tick := next_tick(schedules, at_ms)):
        at_ms = tick.at_ms
        found.append(format_instant(at_ms)[:19])
    return found


# Berlin, 29 March 2026: 02:00 to 03:00 does not exist; 25 October: 02:00 to 03:00 occurs twice.
@pytest.mark.parametrize(
    ("cron", "gap", "expected"),
    [
        ("30 2 * * *", "auto", ["29T01:00", "30T00:30"]),
        ("30 2 * * *", "next", ["29T01:00", "30T00:30"]),
        ("30 2 * * *", "shift", ["29T01:30", "30T00:30"]),
        ("30 2 * * *", "skip", ["30T00:30"]),
        ("0,20,40 2 * * *", "next", ["29T01:00", "30T00:00"]),  # one tick for the whole gap
        ("0,20,40 2 * * *", "shift", ["29T01:00", "29T01:20", "29T01:40", "30T00:00"]),
        ("30 2,3 * * *", "shift", ["29T01:30", "30T00:30"]),  # shifted onto a time of its own
        ("0 2,3 * * *", "next", ["29T01:00", "30T00:00"]),
        ("0 * * * *", "auto", ["29T00:00", "29T01:00", "29T02:00"]),
        ("30 * * * *", "next", ["29T00:30", "29T01:00", "29T01:30"]),
        ("*/20 2 * * *", "auto", ["30T00:00"]),
    ],
)
def test_a_local_time_in_a_gap_follows_the_rule(cron: str, gap: str, expected: list[str]) -> None:
    schedule = CronSchedule(cron=cron, timezone="Europe/Berlin", gap=gap)
    found = after("2026-03-28T23:45:00Z", len(expected), schedule)
    assert [text[8:16] for text in found] == expected


@pytest.mark.parametrize(
    ("cron", "repeat", "expected"),
    [
        ("30 2 * * *", "auto", ["25T00:30", "26T01:30"]),
        ("30 2 * * *", "first", ["25T00:30", "26T01:30"]),
        ("30 2 * * *", "second", ["25T01:30", "26T01:30"]),
        ("30 2 * * *", "both", ["25T00:30", "25T01:30", "26T01:30"]),
        ("30 * * * *", "auto", ["25T00:30", "25T01:30", "25T02:30"]),
        ("30 * * * *", "first", ["25T00:30", "25T02:30", "25T03:30"]),
        ("30 * * * *", "second", ["25T01:30", "25T02:30"]),
        ("0 3 * * *", "first", ["25T02:00", "26T02:00"]),  # 03:00 occurs once
    ],
)
def test_a_local_time_that_occurs_twice_follows_the_rule(
    cron: str, repeat: str, expected: list[str]
) -> None:
    schedule = CronSchedule(cron=cron, timezone="Europe/Berlin", repeat=repeat)
    found = after("2026-10-25T00:10:00Z", len(expected), schedule)
    assert [text[8:16] for text in found] == expected


def test_a_tick_tells_the_local_time_and_which_of_two_equal_ones_it_is() -> None:
    hourly = (CronSchedule(cron="30 * * * *", timezone="Europe/Berlin"),)
    first = next_tick(hourly, parse_instant("2026-10-25T00:00:00Z"))
    assert first == Tick(first.at_ms if first else 0, "2026-10-25T02:30:00", 0, "Europe/Berlin")
    assert first is not None
    second = next_tick(hourly, first.at_ms)
    assert second == Tick(first.at_ms + 3_600_000, "2026-10-25T02:30:00", 1, "Europe/Berlin")
    third = next_tick(hourly, first.at_ms + 3_600_000)
    assert third == Tick(first.at_ms + 7_200_000, "2026-10-25T03:30:00", 0, "Europe/Berlin")


def test_a_tick_is_strictly_after_the_instant_asked_for_to_the_millisecond() -> None:
    nine_ms = parse_instant("2026-06-01T09:00:00Z")
    for asked_ms, expected_ms in (
        (nine_ms - 1, nine_ms),
        (nine_ms, nine_ms + 86_400_000),
        (nine_ms + 1, nine_ms + 86_400_000),
    ):
        tick = next_tick((DAILY,), asked_ms)
        assert tick is not None
        assert tick.at_ms == expected_ms


def test_an_interval_begins_with_its_anchor_and_keeps_its_milliseconds() -> None:
    schedule = EverySchedule(every_ms=1_500, anchor_ms=parse_instant("2026-06-01T00:00:00.250Z"))
    found = []
    at_ms = parse_instant("2026-05-01T00:00:00Z")
    for _ in range(3):
        tick = next_tick((schedule,), at_ms)
        assert tick is not None
        assert tick.zone == tick.local == ""
        at_ms = parse_instant(format_instant(tick.at_ms))
        found.append(format_instant(tick.at_ms)[17:])
    assert found == ["00.250Z", "01.750Z", "03.250Z"]


def test_nothing_is_due_beyond_the_year_9999() -> None:
    assert next_tick((EverySchedule(every_ms=86_400_000, anchor_ms=0),), EPOCH_MS_MAX) is None
    for timezone in ("UTC", "Pacific/Kiritimati", "Pacific/Niue", "America/New_York"):
        schedules = (CronSchedule(cron="* * * * *", timezone=timezone),)
        assert next_tick(schedules, EPOCH_MS_MAX) is None
        assert count_ticks(schedules, EPOCH_MS_MAX - 3_600_000, EPOCH_MS_MAX + 10**15)[0] <= 60


def test_a_one_off_is_due_once() -> None:
    at_ms = parse_instant("2026-06-01T00:00:00Z")
    schedules = (AtSchedule(at_ms=at_ms),)
    assert next_tick(schedules, at_ms - 1) == Tick(at_ms)
    assert next_tick(schedules, at_ms) is None


def test_coinciding_instants_of_several_schedules_are_one_tick() -> None:
    found = after(
        "2026-06-01T08:00:00Z",
        6,
        EverySchedule(every_ms=1_800_000, anchor_ms=0),
        DAILY,
        CronSchedule(cron="0 11 * * *", timezone="Europe/Paris"),  # 09:00 UTC, too
        AtSchedule(at_ms=parse_instant("2026-06-01T09:10:00Z")),
    )
    assert [text[11:16] for text in found] == ["08:30", "09:00", "09:10", "09:30", "10:00", "10:30"]


def test_of_coinciding_instants_the_first_cron_schedule_tells_the_local_time() -> None:
    paris = CronSchedule(cron="0 11 * * *", timezone="Europe/Paris")
    every = EverySchedule(every_ms=3_600_000, anchor_ms=0)
    tick = next_tick((every, paris, DAILY), parse_instant("2026-06-01T08:00:00Z"))
    assert tick is not None
    assert (tick.zone, tick.local) == ("Europe/Paris", "2026-06-01T11:00:00")


def test_start_and_end_bound_the_nominal_instants_and_count_themselves() -> None:
    start_ms, end_ms = (parse_instant(f"2026-06-0{n}T09:00:00Z") for n in (2, 4))
    bounds: Any = {"start_ms": start_ms, "end_ms": end_ms}
    tick = next_tick((DAILY,), 0, **bounds)
    assert tick is not None
    assert tick.at_ms == start_ms
    assert next_tick((DAILY,), end_ms - 1, **bounds) is not None
    assert next_tick((DAILY,), end_ms, **bounds) is None
    assert count_ticks((DAILY,), 0, EPOCH_MS_MAX, **bounds) == (3, start_ms, end_ms)
    assert count_ticks((DAILY,), start_ms, end_ms - 1, **bounds)[0] == 1


def test_counting_is_exact_at_the_far_end_even_where_it_stops_at_the_limit() -> None:
    year_ms = parse_instant("2027-01-01T00:00:00Z")
    from_ms = parse_instant("2026-01-01T00:00:00Z")
    minutely = CronSchedule(cron="* * * * *", timezone="Europe/Berlin")
    assert count_ticks((minutely,), from_ms, year_ms, limit=10**9) == (
        365 * 1_440,
        from_ms + 60_000,
        year_ms,
    )
    assert count_ticks((minutely,), from_ms, year_ms, limit=5) == (5, from_ms + 60_000, year_ms)
    second = EverySchedule(every_ms=1_000, anchor_ms=500)
    assert count_ticks((second,), from_ms, year_ms) == (100_000, from_ms + 500, year_ms - 500)
    both = count_ticks((minutely, second), from_ms, year_ms, limit=7)
    assert both == (7, from_ms + 500, year_ms)


def test_counting_an_empty_span_finds_nothing() -> None:
    nine_ms = parse_instant("2026-06-01T09:00:00Z")
    assert count_ticks((DAILY,), nine_ms, nine_ms) == (0, None, None)
    assert count_ticks((DAILY,), nine_ms, nine_ms - 5) == (0, None, None)
    assert count_ticks((DAILY,), nine_ms, nine_ms + 60_000) == (0, None, None)
    assert count_ticks((), 0, nine_ms) == (0, None, None)
    assert count_ticks((DAILY,), nine_ms - 1, nine_ms) == (1, nine_ms, nine_ms)


def some_schedule(rng: random.Random) -> Schedule:
    zone = rng.choice(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago"])
    match rng.randrange(5):
        case 0:
            every_ms = rng.choice([60_000, 90_500, 3_600_000, 5_400_000])
            return EverySchedule(every_ms=every_ms, anchor_ms=rng.choice([0, 1_774_746_000_000]))
        case 1:
            return AtSchedule(at_ms=1_774_746_000_000 + rng.randrange(0, 86_400_000, 500))
        case _:
            cron = rng.choice(
                ["*/15 * * * *", "30 2 * * *", "0 1-4 * * *", "59 23 * * *", "0 0 * * 0"]
            )
            gap = rng.choice(["auto", "next", "skip", "shift"])
            repeat = rng.choice(["auto", "first", "second", "both"])
            return CronSchedule(cron=cron, timezone=zone, gap=gap, repeat=repeat)


@pytest.mark.parametrize("seed", range(60))
def test_counting_agrees_with_walking_from_tick_to_tick(seed: int) -> None:
    rng = random.Random(seed)
    schedules = tuple(some_schedule(rng) for _ in range(rng.choice([1, 1, 2, 3, 10])))
    change_ms = parse_instant(rng.choice(["2026-03-29T01:00:00Z", "2026-04-04T15:00:00Z"]))
    from_ms = change_ms + rng.randint(-90_000_000, 10_000_000)
    to_ms = from_ms + rng.randint(0, 200_000_000)
    walked: list[int] = []
    at_ms = from_ms
    while (tick := next_tick(schedules, at_ms)) and tick.at_ms <= to_ms:
        assert tick.at_ms > at_ms
        at_ms = tick.at_ms
        walked.append(at_ms)
    ends = (walked[0], walked[-1]) if walked else (None, None)
    assert count_ticks(schedules, from_ms, to_ms) == (len(walked), *ends)


def test_a_one_off_due_at_its_acceptance_is_the_first_tick_and_a_recurring_one_is_not() -> None:
    nine_ms = parse_instant("2026-06-01T09:00:00Z")
    now = AtSchedule(at_ms=nine_ms)
    assert first_tick((now,), nine_ms) == Tick(nine_ms)
    assert first_tick((now, DAILY), nine_ms) == Tick(nine_ms)
    assert first_tick((now,), nine_ms + 60_000, late_tolerance_ms=60_000) == Tick(nine_ms)
    assert first_tick((now,), nine_ms + 60_001, late_tolerance_ms=60_000) is None
    assert first_tick((now,), nine_ms, end_ms=nine_ms - 1) is None
    assert first_tick((now,), nine_ms, start_ms=nine_ms + 1) is None
    daily = first_tick((DAILY,), nine_ms)
    assert daily is not None
    assert daily.at_ms == nine_ms + 86_400_000


def test_a_fired_local_time_does_not_fire_again_when_new_zone_data_moves_it_later() -> None:
    """The last tick was computed with data that put 09:00 in Berlin an hour too early."""
    true_ms = parse_instant("2026-06-01T07:00:00Z")
    last = Tick(true_ms - 3_600_000, "2026-06-01T09:00:00", 0, "Europe/Berlin")
    berlin = CronSchedule(cron="0 9 * * *", timezone="Europe/Berlin")
    following = next_tick_from((berlin,), last)
    assert following is not None
    assert following.at_ms == true_ms + 86_400_000
    # What goes by elapsed time, or by another clock, is not held back.
    for other in (
        CronSchedule(cron="*/10 * * * *", timezone="Europe/Berlin"),
        CronSchedule(cron="10 6 * * *"),
    ):
        following = next_tick_from((berlin, other), last)
        assert following is not None
        assert following.at_ms == last.at_ms + 600_000


def test_jitter_is_zero_without_a_range_and_spreads_evenly_with_one() -> None:
    assert jitter_ms("default", "job", 0) == 0
    delays = [jitter_ms("default", f"job-{n}", 30_000) for n in range(30_000)]
    assert min(delays) >= 0
    assert max(delays) < 30_000
    per_second = [0] * 30
    for delay in delays:
        per_second[delay // 1_000] += 1
    assert min(per_second) > 850
    assert max(per_second) < 1_150


def test_jitter_is_the_same_on_every_machine_and_for_ever() -> None:
    assert jitter_ms("default", "nightly", 30_000) == 16_787
    assert jitter_ms("a-b", "c", 30_000) != jitter_ms("a", "b-c", 30_000)
