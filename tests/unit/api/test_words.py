"""Times and schedules in the words of the pages."""

from datetime import UTC, datetime

import pytest

from api.pages.words import clock, duration, local_clock, relative
from schemas.units import parse_instant

NOW_MS = 1_800_000_000_000
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("away_ms", "told"),
    [
        (0, "now"), (400, "now"), (3 * SECOND, "in 3 s"), (-59 * SECOND, "59 s ago"),
        (MINUTE, "in 1 min"), (90 * MINUTE, "in 1 h 30 min"), (-2 * HOUR, "2 h ago"),
        (DAY + 2 * HOUR, "in 1 d 2 h"), (-400 * DAY, "400 d ago"),
    ],
)  # fmt: skip
def test_a_distance_says_what_counts(away_ms: int, told: str) -> None:
    assert relative(NOW_MS + away_ms, NOW_MS) == told


@pytest.mark.parametrize(
    ("ms", "told"),
    [(-5, "0 ms"), (7, "7 ms"), (999, "999 ms"), (1_500, "1.5 s"), (90_000, "1m30s")],
)
def test_a_duration_has_few_digits(ms: int, told: str) -> None:
    assert duration(ms) == told


def test_an_instant_names_its_year_only_where_it_is_another_one() -> None:
    this_year = datetime.now(UTC).year
    assert str(this_year) not in clock(int(parse_instant(f"{this_year}-06-15T01:02:03Z")))
    assert clock(int(parse_instant("2031-06-15T01:02:03.004Z"))) == "Sun 15 Jun 2031 01:02:03.004"


def test_a_local_time_is_that_of_its_clock_and_short_where_it_may_be() -> None:
    at_ms = int(parse_instant("2031-06-15T22:30:00.500Z"))
    assert local_clock(at_ms, 7_200, short=True) == "Mon 16 Jun 2031 00:30"
    assert local_clock(at_ms + 5 * SECOND, 7_200, short=True) == "Mon 16 Jun 2031 00:30:05"
