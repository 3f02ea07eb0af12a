"""Random expressions around real clock changes, against the brute-force reading of the rules.

3,000 triples of (expression, zone, instant) by default; `HOROLOG_LONG=1` compares 21,000.
"""

import os
import random
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import islice

import pytest

from processors.core.schedule import CronSchedule, count_ticks, next_tick
from projections.audit import cron_by_hand

TRIPLES_PER_SEED = 100
SEEDS = range(210 if os.environ.get("HOROLOG_LONG") else 30)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Half-hour and two-hour shifts, gaps at midnight, skipped days, Ramadan rules, permanent changes,
# negative summer time, offsets with seconds, double summer time, southern and footer-only zones.
PECULIAR = [
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "America/Sao_Paulo",
    "America/Santiago",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "Asia/Beirut",
    "Africa/Cairo",
    "Asia/Gaza",
    "America/Vancouver",
    "Europe/Dublin",
    "Asia/Tehran",
    "Africa/Monrovia",
    "Europe/Amsterdam",
    "Pacific/Kwajalein",
    "Asia/Pyongyang",
    "America/Caracas",
    "Europe/London",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "America/Asuncion",
    "Pacific/Chatham",
    "Asia/Kathmandu",
    "America/Scoresbysund",
    "Antarctica/Casey",
    "Europe/Lisbon",
    "America/St_Johns",
    "Pacific/Fakaofo",
    "Asia/Manila",
    "America/Juneau",
    "UTC",
    "Europe/Moscow",
]


@cache
def changes(zone: str) -> tuple[datetime, ...]:
    """Clock changes of a zone between 1900 and 2060, to the second."""
    tz = cron_by_hand.zone_of(zone)
    found = []
    low = datetime(1900, 1, 1, tzinfo=UTC)
    while low.year < 2060:
        high = low + timedelta(days=10)
        if low.astimezone(tz).utcoffset() != high.astimezone(tz).utcoffset():
            a, b = low, high
            while b - a > timedelta(seconds=1):
                middle = a + timedelta(seconds=(b - a) // timedelta(seconds=2))
                same = middle.astimezone(tz).utcoffset() == a.astimezone(tz).utcoffset()
                a, b = (middle, b) if same else (a, middle)
            found.append(b)
        low = high
    return tuple(found)


def some_zone(rng: random.Random) -> str:
    if rng.random() < 0.7:
        return rng.choice(PECULIAR)
    names = (files("tzdata") / "zones").read_text().split()
    return rng.choice(names)


def some_field(rng: random.Random, low: int, high: int, near: list[int]) -> str:
    def one() -> int:
        return rng.choice(near) if near and rng.random() < 0.7 else rng.randint(low, high)

    match rng.randrange(7):
        case 0:
            return "*"
        case 1:
            return f"*/{rng.choice([1, 2, 3, 5, 7, 10, 15, 20, 30, 45])}"
        case 2:
            return f"{one()}-{one()}"  # may wrap round
        case 3:
            return f"{one()}-{one()}/{rng.randint(1, 9)}"
        case 4:
            return f"{one()}/{rng.randint(1, 30)}"
        case _:
            return ",".join(str(one()) for _ in range(rng.choice([1, 1, 1, 2, 3])))


def some_days(rng: random.Random, at: datetime) -> str:
    if rng.random() < 0.6:
        return rng.choice("**?")
    near = [(at + timedelta(days=n)).day for n in (-1, 0, 1)]
    special = rng.choice(["L", "LW", "1W", f"{rng.choice(near)}W", f"{near[1]}W,L", "15W"])
    return special if rng.random() < 0.4 else some_field(rng, 1, 31, near)


def some_weekdays(rng: random.Random, at: datetime) -> str:
    if rng.random() < 0.6:
        return rng.choice("**?")
    near = [(at.weekday() + n) % 7 for n in (0, 1, 2)]
    names = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
    special = [
        f"{rng.choice(near)}L",
        f"{names[near[1]]}#{min(5, (at.day - 1) // 7 + 1)}",
        f"{rng.choice(names)}-{rng.choice(names)}",
        f"{rng.choice(names)},7",
        f"{rng.randint(0, 7)}-7/{rng.randint(1, 3)}",
        f"7-{rng.randint(0, 6)}/{rng.randint(1, 3)}",
        "7/2",
    ]
    return rng.choice(special) if rng.random() < 0.5 else some_field(rng, 0, 6, near)


def some_expression(rng: random.Random, at: datetime) -> str:
    hours = [(at.hour + n) % 24 for n in (-2, -1, 0, 0, 1)]
    months = some_field(rng, 1, 12, [at.month] * 3 + [at.month % 12 + 1])
    fields = [
        some_field(rng, 0, 59, [0, 30, at.minute, 59]),
        some_field(rng, 0, 23, hours),
        some_days(rng, at),
        "*" if rng.random() < 0.8 else months,
        some_weekdays(rng, at),
    ]
    if rng.random() < 0.1:
        fields.insert(0, rng.choice(["0", "30", "*/30", "59", "0,59", "15-45/15"]))
    return " ".join(fields)


def some_triple(rng: random.Random) -> tuple[str, str, datetime]:
    zone = some_zone(rng)
    known = changes(zone)
    change = rng.choice(known) if known else datetime(2026, 3, 29, 1, tzinfo=UTC)
    after = change + timedelta(seconds=rng.choice([rng.randint(-180_000, 90_000), 0, -1, -3600]))
    return some_expression(rng, change.astimezone(cron_by_hand.zone_of(zone))), zone, after


@pytest.mark.parametrize("seed", SEEDS)
def test_ticks_and_counts_equal_those_of_the_brute_force_reading(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(TRIPLES_PER_SEED):
        expression, zone, after = some_triple(rng)
        gap = rng.choice(["auto", "auto", "auto", "next", "skip", "shift"])
        repeat = rng.choice(["auto", "auto", "auto", "first", "second", "both"])
        told = f"{expression!r} in {zone} after {after.isoformat()}, {gap=}, {repeat=}"
        walk = cron_by_hand.ticks(expression, zone, after, gap=gap, repeat=repeat)
        expected = [(instant - EPOCH) // timedelta(milliseconds=1) for instant in islice(walk, 5)]

        schedules = (CronSchedule(cron=expression, timezone=zone, gap=gap, repeat=repeat),)
        after_ms = at_ms = (after - EPOCH) // timedelta(milliseconds=1)
        found: list[int] = []
        while len(found) < len(expected) and (tick := next_tick(schedules, at_ms)):
            at_ms = tick.at_ms
            found.append(at_ms)
        assert found == expected, told
        if expected:
            counted = count_ticks(schedules, after_ms, expected[-1])
            assert counted == (len(expected), expected[0], expected[-1]), told
            counted = count_ticks(schedules, after_ms, expected[-1] - 1)
            assert counted[0] == len(expected) - 1, told
