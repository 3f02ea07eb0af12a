"""Definitions from the options of `job put`."""

from pathlib import Path
from typing import Any

import pytest

from horolog.cli.definition import Written, complete_refusal, from_file, from_options
from horolog.cli.frame import USAGE, Failure
from processors.core.admission import read_definition
from schemas.replies import Problem, Refused


def written(**options: Any) -> Written:
    return Written(**({"topic": "t"} | options))


def usage_error(options: Written) -> Failure:
    with pytest.raises(Failure) as caught:
        from_options(options)
    assert caught.value.code == USAGE
    return caught.value


def test_every_option_finds_its_place() -> None:
    definition = from_options(
        written(cron=["0 9 * * 1-5"], key="k", payload='{"a": 1}', name="Näme", now=True)
    )
    assert definition == {
        "schedules": [{"cron": "0 9 * * 1-5"}, {"now": True}],
        "target": {"topic": {"name": "t", "key": "k"}},
        "payload": {"a": 1},
        "name": "Näme",
    }
    read_definition(definition)


def test_options_of_ticks_are_fields_of_the_definition() -> None:
    options: dict[str, Any] = {
        "late_tolerance": "5s", "missed": "all", "missed_limit": 7, "start_deadline": "1h",
        "start": "2027-01-01T00:00:00Z", "end": "2028-01-01T00:00:00Z", "max_runs": 3,
        "jitter": "30s",
    }  # fmt: skip
    definition = from_options(written(cron=["0 9 * * 1-5"], **options))
    assert {name: definition[name] for name in options} == options
    spec = read_definition(definition)
    assert (spec.missed_limit, spec.max_runs, spec.jitter) == (7, 3, "30s")


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({"topic": "t", "header": ["X-Region: eu"]},
         {"topic": {"name": "t", "headers": {"X-Region": "eu"}}}),
        ({"http": "https://x.example/", "method": "PUT", "timeout": "5s", "header": ["A:b:c"]},
         {"http": {"url": "https://x.example/", "method": "PUT", "timeout": "5s",
                   "headers": {"A": "b:c"}}}),
        ({"worker": "close-day", "pool": "default"},
         {"worker": {"handler": "close-day", "pool": "default"}}),
    ],
)  # fmt: skip
def test_every_kind_of_target_has_its_options(
    options: dict[str, Any], target: dict[str, Any]
) -> None:
    definition = from_options(Written(now=True, **options))
    assert definition["target"] == target
    read_definition(definition)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no target is given"),
        ({"topic": "t", "http": "https://x"}, "--topic and --http are both given"),
        ({"topic": "t", "method": "PUT"}, "--method does not go with --topic"),
        ({"worker": "h", "header": ["A: b"]}, "--header does not go with --worker"),
        ({"http": "https://x", "key": "k"}, "--key does not go with --http"),
        ({"http": "https://x", "header": ["nothing"]}, "has no name and value"),
    ],
)
def test_options_of_another_target_are_refused_with_what_would_go(
    options: dict[str, Any], said: str
) -> None:
    failure = usage_error(Written(now=True, **options))
    assert said in failure.message
    assert failure.hint


def test_repeated_options_make_several_schedules() -> None:
    options = written(cron=["* * * * *"], every=["10s", "1h"], in_=["5m"], at=["2030-01-01T00:00Z"])
    assert from_options(options)["schedules"] == [
        {"cron": "* * * * *"}, {"every": "10s"}, {"every": "1h"}, {"at": "2030-01-01T00:00Z"},
        {"in": "5m"},
    ]  # fmt: skip


def test_one_zone_is_for_all_that_have_one_and_an_instant_with_an_offset_has_none() -> None:
    options = written(
        cron=["0 9 * * *", "0 17 * * *"], timezone=["Europe/Paris"],
        at=["2030-01-01T09:00", "2030-01-01T09:00+02:00"],
    )  # fmt: skip
    assert from_options(options)["schedules"] == [
        {"cron": "0 9 * * *", "timezone": "Europe/Paris"},
        {"cron": "0 17 * * *", "timezone": "Europe/Paris"},
        {"at": "2030-01-01T09:00", "timezone": "Europe/Paris"},
        {"at": "2030-01-01T09:00+02:00"},
    ]


def test_several_zones_go_with_the_crons_in_order_or_are_refused() -> None:
    two = ["0 9 * * *", "0 17 * * *"]
    options = written(cron=two, timezone=["Europe/Paris", "Asia/Tokyo"])
    zones = [one["timezone"] for one in from_options(options)["schedules"]]
    assert zones == ["Europe/Paris", "Asia/Tokyo"]
    wrong = usage_error(written(cron=two, timezone=["UTC", "UTC", "UTC"]))
    assert wrong.message == "3 time zones for 2 schedules that have one"


def test_what_is_missing_is_named_with_the_option_that_gives_it() -> None:
    assert "--cron" in usage_error(written()).hint
    assert "--topic" in usage_error(Written(now=True)).hint


def test_a_payload_is_json_or_a_files_bytes(tmp_path: Path) -> None:
    bytes_file, json_file = tmp_path / "p.bin", tmp_path / "p.json"
    bytes_file.write_bytes(b"\x00\xff")
    json_file.write_text("{}")
    definition = from_options(written(now=True, payload_file=bytes_file))
    spec = read_definition(definition)
    assert (spec.payload, spec.content_type) == (b"\x00\xff", "application/octet-stream")
    spec = read_definition(from_options(written(now=True, payload_file=json_file)))
    assert (spec.payload, spec.content_type) == (b"{}", "application/json")
    options = written(now=True, payload_file=bytes_file, content_type="image/png")
    assert read_definition(from_options(options)).content_type == "image/png"

    assert "quotes" in usage_error(written(now=True, payload="hello")).hint
    assert "both" in usage_error(written(now=True, payload="1", payload_file=json_file)).message
    gone = usage_error(written(now=True, payload_file=tmp_path / "gone"))
    assert "No such file" in gone.message


@pytest.mark.parametrize(
    ("content", "said"), [("{", "is no JSON"), ("[]", "holds no JSON object"), ("\xff", "is no")]
)
def test_a_file_that_holds_no_definition_is_refused(
    content: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.json"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(Failure, match=said):
        from_file(str(file))


def test_a_refusal_is_completed_by_what_is_wrong_with_the_schedules_once_each() -> None:
    refused = Refused(
        command_id="c", tenant="t", job="j", kind="invalid", message="no",
        problems=(Problem("definition.foo", "is no field"),
                  Problem("definition.schedules[0].tz", "is no field")),
    )  # fmt: skip
    definition = {"schedules": [{"cron": "99 * * * *", "tz": "Europe/Lodnon"}], "foo": 1}
    fields = [p.field for p in complete_refusal(refused, definition, 0).problems]
    assert fields == ["foo", "schedules[0].tz", "schedules[0].cron"]
    assert complete_refusal(refused, {"schedules": 7}, 0).problems[0].field == "foo"
