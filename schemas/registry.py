"""The Avro schemas: one file each in `avro/`, self-contained once loaded, with fixed ids.

The ids stand in `ids.lock.json` together with the hash of the schema they were given to, so a
schema cannot change under its id. A record on a topic begins with `0x00` and the id (Confluent
wire format); for a state record that id is its schema version.
"""

import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

AvroSchema = dict[str, Any]
NAMESPACE = "io.horolog"


class Registered(NamedTuple):
    """A schema with the id it is known by on every topic."""

    id: int
    schema: AvroSchema


@cache
def sources() -> dict[str, AvroSchema]:
    """Every schema file as written, by record name."""
    folder = files(__package__).joinpath("avro")
    found = (json.loads(f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".avsc"))
    return {schema["name"]: schema for schema in found}


def self_contained(name: str) -> AvroSchema:
    """The schema with every type that another file defines written out at its first use."""
    seen: set[str] = set()

    def expand(node: Any) -> Any:
        if isinstance(node, list):
            return [expand(item) for item in node]
        if isinstance(node, str) and node.startswith(NAMESPACE + ".") and node not in seen:
            return expand(_named_types()[node])
        if not isinstance(node, dict):
            return node
        if node.get("type") in ("record", "enum"):
            seen.add(f"{NAMESPACE}.{node['name']}")
        copy = dict(node)
        for part in ("type", "items", "values"):
            if part in copy:
                copy[part] = expand(copy[part])
        if "fields" in copy:
            copy["fields"] = [dict(field, type=expand(field["type"])) for field in copy["fields"]]
        return copy

    schema = expand(sources()[name])
    assert isinstance(schema, dict)
    return schema


@cache
def _named_types() -> dict[str, AvroSchema]:
    found: dict[str, AvroSchema] = {}

    def collect(node: Any) -> None:
        if isinstance(node, list):
            for item in node:
                collect(item)
        elif isinstance(node, dict):
            if node.get("type") in ("record", "enum"):
                found[f"{NAMESPACE}.{node['name']}"] = node
            for part in ("type", "items", "values"):
                collect(node.get(part))
            for field in node.get("fields", ()):
                collect(field["type"])

    for schema in sources().values():
        collect(schema)
    return found


def fingerprint(name: str) -> str:
    """SHA-256 of the self-contained schema, documentation included."""
    text = json.dumps(self_contained(name), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def lock() -> dict[str, dict[str, Any]]:
    """The committed ids: record name → {id, sha256}."""
    text = files(__package__).joinpath("ids.lock.json").read_text("utf-8")
    locked: dict[str, dict[str, Any]] = json.loads(text)
    return locked


@cache
def registered(name: str) -> Registered:
    """The schema of that record name under its fixed id; `KeyError` for an unknown name."""
    return Registered(lock()[name]["id"], self_contained(name))


@cache
def name_of(schema_id: int) -> str | None:
    """Record name of a schema id, None when the id is not ours."""
    return next((name for name, entry in lock().items() if entry["id"] == schema_id), None)
