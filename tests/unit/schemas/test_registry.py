"""The schema files, their ids, and the structs that stand for them."""

import json
from pathlib import Path
from typing import Any, Literal, get_origin, get_type_hints

import fastavro
import msgspec
import pytest

import schemas
from schemas import registry
from schemas.registry import NAMESPACE, fingerprint, lock, name_of, registered, self_contained
from tests.unit.schemas.values import CODECS

NAMES = sorted(lock())


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the schema files that may be edited; the registry reads it instead."""
    folder = tmp_path / "schemas"
    (folder / "avro").mkdir(parents=True)
    source = Path(schemas.__file__ or "").parent
    for path in (*source.glob("avro/*.avsc"), source / "ids.lock.json"):
        (folder / path.relative_to(source)).write_bytes(path.read_bytes())
    monkeypatch.setattr(registry, "files", lambda _: folder)
    caches = (registry.sources, registry._named_types, registry.lock)
    for cache in caches:
        cache.cache_clear()
    yield folder
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


def changed() -> list[str]:
    """Names of schemas that are not as they were when they got their ids."""
    return [name for name, entry in lock().items() if fingerprint(name) != entry["sha256"]]


def records(schema: Any) -> list[dict[str, Any]]:
    """Every record that is written out within a schema, itself included."""
    if isinstance(schema, list):
        return [found for one in schema for found in records(one)]
    if not isinstance(schema, dict):
        return []
    inner = [schema[part] for part in ("items", "values") if part in schema]
    inner += [field["type"] for field in schema.get("fields", ())]
    if isinstance(schema["type"], dict | list):
        inner.append(schema["type"])
    own = [schema] if schema["type"] == "record" else []
    return own + [found for one in inner for found in records(one)]


def test_no_schema_changed_under_its_id() -> None:
    assert not changed(), "a changed schema needs a new id, or users cannot read old records"


def test_every_schema_file_has_an_id_and_every_id_is_its_own() -> None:
    assert set(registry.sources()) == set(lock())
    ids = [entry["id"] for entry in lock().values()]
    assert len(set(ids)) == len(ids)
    assert all(0 < one < 2**31 for one in ids)
    assert [name_of(lock()[name]["id"]) for name in NAMES] == NAMES
    assert name_of(0) is None


@pytest.mark.parametrize("part", ["type", "doc", "name", "default"])
def test_a_schema_that_changed_under_its_id_is_noticed(edited: Path, part: str) -> None:
    path = edited / "avro" / "refused.avsc"
    schema = json.loads(path.read_text())
    schema["fields"][0][part] = "bytes"
    path.write_text(json.dumps(schema))
    assert changed() == ["Refused"]


def test_a_changed_type_is_noticed_in_every_schema_that_uses_it(edited: Path) -> None:
    path = edited / "avro" / "job_definition.avsc"
    path.write_text(path.read_text().replace('"Version', '"The version'))
    users = [
        name
        for name in NAMES
        if any(record["name"] == "JobDefinition" for record in records(self_contained(name)))
    ]
    assert changed() == [name for name in lock() if name in users]
    assert {"JobDefinition", "JobChanged"} <= set(users)


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_stands_alone_and_is_valid(name: str) -> None:
    schema = self_contained(name)
    text = json.dumps(schema)
    fastavro.parse_schema(json.loads(text), named_schemas={})
    assert schema["name"] == name
    assert schema["namespace"] == NAMESPACE
    assert registered(name).schema == schema


@pytest.mark.parametrize("name", NAMES)
def test_every_record_and_every_field_says_what_it_is(name: str) -> None:
    for record in records(self_contained(name)):
        assert record.get("doc", "").strip(), f"{record['name']} has no doc"
        for field in record["fields"]:
            doc = field.get("doc", "")
            assert doc.strip(), f"{record['name']}.{field['name']} has no doc"
            assert doc.rstrip().endswith((".", "?")), f"{record['name']}.{field['name']}: {doc!r}"


def test_a_type_is_defined_in_one_place() -> None:
    written = [found["name"] for schema in registry.sources().values() for found in records(schema)]
    assert len(set(written)) == len(written)


@pytest.mark.parametrize("name", NAMES)
def test_fields_of_schema_and_struct_have_the_same_names_and_types(name: str) -> None:
    _same(registered(name).schema, CODECS[name].kind, name)


def _same(schema: dict[str, Any], kind: type[msgspec.Struct], at: str) -> None:
    hints = get_type_hints(kind)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    assert set(fields) == {field["name"] for field in schema["fields"]}, at
    for field in schema["fields"]:
        _fits(field["type"], hints[fields[field["name"]].name], f"{at}.{field['name']}")


def _fits(schema: Any, hint: Any, at: str) -> None:
    if isinstance(schema, str) and schema.startswith(NAMESPACE + "."):
        schema = registry._named_types()[schema]
    if isinstance(schema, list):
        assert schema[0] == "null" and type(None) in hint.__args__, at
        _fits(schema[1], next(one for one in hint.__args__ if one is not type(None)), at)
        return
    kind = schema["type"] if isinstance(schema, dict) else schema
    simple = {"long": int, "int": int, "string": str, "bytes": bytes, "boolean": bool}
    if kind in simple:
        literal = kind == "string" and get_origin(hint) is Literal
        assert hint is simple[kind] or literal, f"{at}: {kind} is {hint}"
    elif kind == "enum":
        assert set(schema["symbols"]) == set(hint.__args__), at
    elif kind == "map":
        assert hint.__origin__ is dict and hint.__args__[0] is str, at
        _fits(schema["values"], hint.__args__[1], at)
    elif kind == "array":
        assert hint.__origin__ is tuple and hint.__args__[1] is Ellipsis, at
        _fits(schema["items"], hint.__args__[0], f"{at}[]")
    else:
        _same(schema, hint, at)


@pytest.mark.parametrize("name", NAMES)
def test_a_field_with_a_default_has_the_same_one_in_schema_and_struct(name: str) -> None:
    for record in records(registered(name).schema):
        kind = CODECS[record["name"]].kind if record["name"] in CODECS else None
        if kind is None:
            continue
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        for field in record["fields"]:
            if "default" in field:
                found = fields[field["name"]].default
                if found is msgspec.NODEFAULT:
                    found = fields[field["name"]].default_factory
                    assert found is not msgspec.NODEFAULT, f"{name}.{field['name']}"
                    found = found()
                shown = found.decode("latin-1") if isinstance(found, bytes) else found
                assert shown == field["default"] or list(shown) == field["default"]
