"""Values of every record, drawn from their schemas, and the same values as strangers see them."""

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st

from schemas import bindings
from schemas.codec import Codec
from schemas.registry import NAMESPACE, _named_types, registered

CODECS: Mapping[str, Codec[Any]] = {
    codec.kind.__name__: codec for codec in vars(bindings).values() if isinstance(codec, Codec)
}
"""Record name → codec, of everything that `schemas.bindings` has."""

_TEXT = st.text(max_size=40)
_LONG = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1100, 1100),
    st.sampled_from([2**63 - 1, -(2**63), 2**31, -1, 0, 63, 64, 127, 128, 1023, 1024]),
)
_INT = st.integers(-(2**31), 2**31 - 1)


def values_of(codec: Codec[Any]) -> st.SearchStrategy[Any]:
    """Any value of the codec's record, all fields drawn."""
    return _of(_schema(codec), codec.kind)


def _schema(codec: Codec[Any]) -> dict[str, Any]:
    return registered(codec.kind.__name__).schema


def _of(schema: Any, hint: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, str) and schema.startswith(NAMESPACE + "."):
        schema = _named_types()[schema]
    if isinstance(schema, list):
        return st.one_of(st.none(), _of(schema[1], _beside_none(hint)))
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "long":
            return _LONG
        case "int":
            return _INT
        case "string":
            return _TEXT
        case "bytes":
            return st.one_of(st.binary(max_size=40), st.binary(min_size=1020, max_size=1100))
        case "boolean":
            return st.booleans()
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "map":
            (_, item) = hint.__args__
            return st.dictionaries(_TEXT, _of(schema["values"], item), max_size=4)
        case "array":
            (item, _) = hint.__args__
            return st.lists(_of(schema["items"], item), max_size=4).map(tuple)
        case "record":
            fields = {f.encode_name: f for f in msgspec.structs.fields(hint)}
            return st.builds(
                hint,
                **{
                    fields[f["name"]].name: _of(f["type"], fields[f["name"]].type)
                    for f in schema["fields"]
                },
            )
        case _:
            raise AssertionError(f"no strategy for {schema!r}")


def _beside_none(hint: Any) -> Any:
    return next(one for one in hint.__args__ if one is not type(None))


def full_value(codec: Codec[Any]) -> Any:
    """One value with every optional part present and two items in every list and map."""
    return _full(_schema(codec), codec.kind)


def _full(schema: Any, hint: Any) -> Any:
    if isinstance(schema, str) and schema.startswith(NAMESPACE + "."):
        schema = _named_types()[schema]
    if isinstance(schema, list):
        return _full(schema[1], _beside_none(hint))
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "long":
            return 1_700_000_000_000
        case "int":
            return -3
        case "string":
            return "Zürich"
        case "bytes":
            return b"\x00\xff"
        case "boolean":
            return True
        case "enum":
            return schema["symbols"][-1]
        case "map":
            return {name: _full(schema["values"], hint.__args__[1]) for name in ("a", "b")}
        case "array":
            return (_full(schema["items"], hint.__args__[0]),) * 2
        case _:
            fields = {f.encode_name: f for f in msgspec.structs.fields(hint)}
            return hint(**{
                fields[f["name"]].name: _full(f["type"], fields[f["name"]].type)
                for f in schema["fields"]
            })  # fmt: skip


def plain(value: Any) -> Any:
    """The value as dicts and lists under the schema's names, as fastavro takes and gives it."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(type(value))
        return {f.encode_name: plain(getattr(value, f.name)) for f in fields}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value
