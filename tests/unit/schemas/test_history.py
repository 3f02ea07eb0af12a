"""Schemas may only change so that old and new records are read by old and new programs.

FULL_TRANSITIVE in the words of schema registries: every version can read what every other version
of the same record has written. Judged by Avro's own library.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import Schema, parse

from schemas.history import Recorded, Rewritten, current, main, record, recorded

NOW = {one.name: one for one in current()}


def parsed(schema: dict[str, Any]) -> Schema:
    return parse(json.dumps(schema))


def quarrels(one: Recorded, other: Recorded) -> list[str]:
    """Why records of one version cannot be read by a program of the other, both ways."""
    told = []
    for reader, writer in ((one, other), (other, one)):
        found = ReaderWriterCompatibilityChecker().get_compatibility(
            parsed(reader.schema), parsed(writer.schema)
        )
        if found.compatibility is not SchemaCompatibilityType.compatible:
            reasons = ", ".join(sorted(found.messages))
            told.append(f"{reader.name} {reader.id} cannot read {writer.id}: {reasons}")
    return told


def test_something_is_recorded() -> None:
    assert {one.name for one in recorded()} >= {"PutJob", "ExecutionFired", "JobState", "Mark"}


@pytest.mark.parametrize("one", recorded(), ids=lambda one: f"{one.name}.{one.id}")
def test_every_version_ever_used_reads_and_is_read_by_the_current_one(one: Recorded) -> None:
    assert one.name in NOW, "records of it lie on topics: its schema must stay"
    assert quarrels(NOW[one.name], one) == []


def test_versions_of_one_record_are_compatible_with_each_other() -> None:
    by_name: dict[str, list[Recorded]] = {}
    for one in recorded():
        by_name.setdefault(one.name, []).append(one)
    for versions in by_name.values():
        for n, one in enumerate(versions):
            assert [told for other in versions[n + 1 :] for told in quarrels(one, other)] == []


def test_no_schema_has_changed_under_an_id_that_was_recorded() -> None:
    known = {(one.name, one.id): one.schema for one in recorded()}
    changed = [
        one.name for one in current() if known.get((one.name, one.id), one.schema) != one.schema
    ]
    assert changed == [], "a changed schema needs a new id in ids.lock.json"


def test_no_id_was_ever_another_record() -> None:
    names: dict[int, set[str]] = {}
    for one in (*recorded(), *current()):
        names.setdefault(one.id, set()).add(one.name)
    assert [found for found in names.values() if len(found) > 1] == []


def field(schema: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in schema["fields"] if one["name"] == name)
    return found


def removed(schema: dict[str, Any]) -> None:
    schema["fields"].remove(field(schema, "owner"))


def added(schema: dict[str, Any]) -> None:
    schema["fields"].append({"name": "more", "type": "long"})


def retyped(schema: dict[str, Any]) -> None:
    field(schema, "owner")["type"] = "long"


def widened(schema: dict[str, Any]) -> None:
    # A new program reads old records, but an old one cannot read new records.
    field(schema, "owner")["type"] = ["null", "string"]


@pytest.mark.parametrize("change", [removed, added, retyped, widened])
def test_a_change_that_breaks_somebody_is_noticed(change: Any) -> None:
    mark = NOW["Mark"]
    schema = copy.deepcopy(mark.schema)
    change(schema)
    assert quarrels(Recorded("Mark", 999, schema), mark) != []


def test_a_field_with_a_default_may_come_and_go() -> None:
    mark = NOW["Mark"]
    schema = copy.deepcopy(mark.schema)
    schema["fields"].append({"name": "more", "type": "long", "default": 0})
    assert quarrels(Recorded("Mark", 999, schema), mark) == []


def test_what_is_current_is_recorded_once(tmp_path: Path) -> None:
    made = record(tmp_path)
    assert {path.name for path in made} == {f"{one.name}.{one.id}.avsc" for one in current()}
    assert recorded(tmp_path) == current()
    assert record(tmp_path) == []


def test_a_version_that_was_recorded_is_never_written_over(tmp_path: Path) -> None:
    mark = NOW["Mark"]
    record(tmp_path)
    path = tmp_path / f"Mark.{mark.id}.avsc"
    path.write_text(path.read_text().replace('"epoch"', '"epoche"'))
    (tmp_path / f"PutJob.{NOW['PutJob'].id}.avsc").unlink()
    with pytest.raises(Rewritten, match="Mark has changed under its id"):
        record(tmp_path)
    assert not list(tmp_path.glob("PutJob.*")), "nothing is recorded beside a mistake"


def test_the_tool_does_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["chekc"]) == 2
    assert "record" in capsys.readouterr().err
