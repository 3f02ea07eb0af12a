"""Zones come from the pinned data, and local times become instants by the documented rules."""

import random
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from processors.core.schedule import CronSchedule, next_tick
from processors.core.zones import PINNED, UnknownZone, Zone, ZoneData, local_to_instant
from schemas.units import format_instant, parse_instant, parse_local

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_the_data_is_that_of_the_pinned_package() -> None:
    assert PINNED.version == version("tzdata")
    assert len(PINNED.names) > 500


def test_the_hosts_zone_files_and_settings_are_never_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("PYTHONTZPATH", str(tmp_path))
    fresh = ZoneData("fresh", files("tzdata"))
    schedules = (CronSchedule(cron="0 9 * * *", timezone="Asia/Kolkata"),)
    tick = next_tick(schedules, 0, zones=fresh)
    assert tick is not None
    assert format_instant(tick.at_ms) == "1970-01-01T03:30:00.000Z"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("europe/paris", "'Europe/Paris'"),
        ("EUROPE/PARIS", "'Europe/Paris'"),
        (" Europe/Paris", "'Europe/Paris'"),
        ("America/New York", "'America/New_York'"),
        ("Europe/Pariss", "'Europe/Paris'"),
        ("utc", "'UTC'"),
        ("UTC+3", "'Etc/GMT-3'"),
        ("GMT-05:00", "'Etc/GMT+5'"),
        ("+00:00", "'UTC'"),
        ("+05:30", "name a place"),
        ("Mars/Olympus", "use a name like"),
        ("", "use a name like"),
        ("x" * 10_000, "use a name like"),
        ("\x00", "use a name like"),
    ],
)
def test_an_unknown_name_is_refused_with_the_right_one(name: str, hint: str) -> None:
    with pytest.raises(UnknownZone) as refused:
        PINNED.zone(name)
    assert hint in refused.value.hint


def standard(name: str) -> ZoneInfo:
    with (files("tzdata.zoneinfo") / name).open("rb") as stream:
        return ZoneInfo.from_file(stream, key=name)


def test_every_zone_agrees_with_the_standard_library_at_random_instants() -> None:
    """The stretches hold the offset of each instant in them, from 1850 to 2500."""
    rng = random.Random(7)
    for name in sorted(PINNED.names):
        zone, expected = PINNED.zone(name), standard(name)
        for _ in range(40):
            at_s = rng.randint(-3_786_912_000, 16_725_225_600)
            stretch = zone.stretch(at_s)
            assert stretch.start_s <= at_s < stretch.end_s, name
            offset = (EPOCH + timedelta(seconds=at_s)).astimezone(expected).utcoffset()
            assert stretch.offset_s == (offset or timedelta()).total_seconds(), (name, at_s)


def test_stretches_join_without_holes_and_agree_on_the_offsets_at_their_borders() -> None:
    for name in sorted(PINNED.names)[::5]:
        zone = PINNED.zone(name)
        stretch = zone.stretch(-2_000_000_000)
        while stretch.end_s < 5_000_000_000:
            following = zone.stretch(stretch.end_s)
            assert following.start_s == stretch.end_s, name
            assert following.before_s == stretch.offset_s, name
            assert following.offset_s == stretch.after_s, name
            stretch = following


def resolved(text: str, zone: Zone, **rules: str) -> str | None:
    local_ms = parse_local(text)
    assert local_ms is not None
    at_s = local_to_instant(zone, local_ms // 1_000, **rules)  # type: ignore[arg-type]
    return None if at_s is None else format_instant(at_s * 1_000)[:19]


def test_a_local_time_in_a_gap_becomes_what_was_asked_for() -> None:
    berlin, apia = PINNED.zone("Europe/Berlin"), PINNED.zone("Pacific/Apia")
    assert resolved("2026-03-29T02:30:00", berlin) == "2026-03-29T01:00:00"
    assert resolved("2026-03-29T02:30:00", berlin, gap="shift") == "2026-03-29T01:30:00"
    assert resolved("2026-03-29T02:30:00", berlin, gap="skip") is None
    assert resolved("2026-03-29T03:00:00", berlin, gap="skip") == "2026-03-29T01:00:00"
    assert resolved("2011-12-30T09:00:00", apia) == "2011-12-30T10:00:00"
    assert resolved("2011-12-30T09:00:00", apia, gap="shift") == "2011-12-30T19:00:00"


def test_a_local_time_that_occurs_twice_becomes_the_one_that_was_asked_for() -> None:
    lord_howe = PINNED.zone("Australia/Lord_Howe")
    assert resolved("2026-04-05T01:45:00", lord_howe) == "2026-04-04T14:45:00"
    assert resolved("2026-04-05T01:45:00", lord_howe, repeat="second") == "2026-04-04T15:15:00"


def test_the_far_ends_of_the_calendar_have_an_offset() -> None:
    for name in ("Pacific/Kiritimati", "Pacific/Niue", "America/New_York", "UTC"):
        zone = PINNED.zone(name)
        for text in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"):
            at_s = parse_instant(text) // 1_000
            assert abs(zone.stretch(at_s).offset_s) <= 16 * 3_600
