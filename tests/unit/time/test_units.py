"""Instants and durations as text."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.units import (
    DURATION_MS_MAX,
    EPOCH_MS_MAX,
    EPOCH_MS_MIN,
    Unreadable,
    format_duration,
    format_instant,
    parse_duration_ms,
    parse_instant,
    parse_local,
)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("90s", 90_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("1s250ms", 1_250),
        ("1.5s", 1_500),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("0s", 0),
        ("PT5M", 300_000),
        ("pt0.25s", 250),
        ("P1DT12H", 129_600_000),
        ("P2W", 1_209_600_000),
        ("PT1,5S", 1_500),
    ],
)
def test_a_duration_is_read_in_both_notations(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "m",
        "-5m",
        "5 m",
        "5m3h",
        "5m5m",
        "P",
        "PT",
        "P1DT",
        "1.5h",
        "5M",
        "1e3s",
        "٣s",
        "∞",
        "0.0001s",
        "9" * 40 + "d",
        "9" * 100,
        "5min",
        "PT5",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("90", "names no unit"),
        ("P1M", "no fixed length"),
        ("P1Y2DT1H", "no fixed length"),
        ("-5m", "negative"),
        ("0.0001s", "finer than a millisecond"),
    ],
)
def test_a_refused_duration_is_told_why(text: str, told: str) -> None:
    with pytest.raises(Unreadable, match=told):
        parse_duration_ms(text)


@given(st.integers(0, DURATION_MS_MAX))
def test_every_duration_survives_writing_and_reading(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms


@given(st.integers(EPOCH_MS_MIN, EPOCH_MS_MAX))
def test_an_instant_is_written_as_the_standard_library_writes_it(at_ms: int) -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    text = format_instant(at_ms)
    assert text == at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert parse_instant(text) == at_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-29T01:30:00Z", "2026-03-29T01:30:00.000Z"),
        ("2026-03-29t01:30:00z", "2026-03-29T01:30:00.000Z"),
        ("2026-03-29T03:30:00+02:00", "2026-03-29T01:30:00.000Z"),
        ("2026-03-28 20:00-05:30", "2026-03-29T01:30:00.000Z"),
        ("2026-03-29T01:30:00.25Z", "2026-03-29T01:30:00.250Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_is_read_with_any_offset(text: str, expected: str) -> None:
    assert format_instant(parse_instant(text)) == expected


def test_digits_beyond_milliseconds_are_rounded_up_so_that_nothing_is_early() -> None:
    assert format_instant(parse_instant("2026-03-29T01:30:00.000001Z")).endswith("00.001Z")
    assert format_instant(parse_instant("2026-12-31T23:59:59.9999Z")) == "2027-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-30T00:00:00Z",
        "2026-03-29T24:00:00Z",
        "2026-03-29",
        "now",
        "",
        "2026-W13-7T00:00Z",
        "2026-03-29T01:30:00+24:00",
        "2026-03-29T01:30:00+0200",
        "٢٠٢٦-03-29T01:30:00Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:00:00-02:00",
        "2016-12-31T23:59:60Z",
        "2" * 500,
    ],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_instant(text)


def test_a_local_time_is_no_instant_but_can_be_read_as_what_the_clock_shows() -> None:
    with pytest.raises(Unreadable, match="neither an offset nor a zone"):
        parse_instant("2026-03-29T01:30:00")
    assert parse_local("1970-01-02T00:00:00.500") == 86_400_500
    assert parse_local("1970-01-02T00:00:00Z") is None
