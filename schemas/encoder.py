"""Avro encoders compiled from their schemas: one Python expression per record.

An Avro body is the fields' encodings one after the other, so a record is one `b"".join` over
them. The general-purpose writer of fastavro takes 2 to 3 times as long for our small records
(docs/decisions/0002-compiled-encoder.md), and encoding is the largest cost of a fire. Tests hold
every schema's output equal to fastavro's, byte for byte.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

SMALL: Final = 1024
"""Numbers below this are looked up; most counts, versions and lengths are."""


def _varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SMALL: Final = tuple(_varint(n) for n in range(SMALL))
_recent: Final = lru_cache(maxsize=8192)(_varint)
"""Instants and transaction numbers repeat over the records of a batch."""


def encode_long(value: int) -> bytes:
    """Zig-zag variable length, as Avro's int and long."""
    return _SMALL[value] if 0 <= value < SMALL else _recent(value)


def encode_bytes(value: bytes) -> bytes:
    """Length, then the bytes."""
    size = len(value)
    return (_SMALL[size] if size < SMALL else _varint(size)) + value


def encode_string(value: str) -> bytes:
    """Length of the UTF-8 form, then the form."""
    data = value.encode()
    size = len(data)
    return (_SMALL[size] if size < SMALL else _varint(size)) + data


def compile_encoder(schema: dict[str, Any], prefix: bytes) -> Callable[[Any], bytes]:
    """A function from a struct, whose attributes are named as the schema's fields, to `prefix`
    and Avro body. A value of the wrong type raises whatever its encoding ran into."""
    scope: dict[str, Any] = {
        "L": encode_long, "B": encode_bytes, "S": encode_string, "join": b"".join,
        "small": _SMALL, "PREFIX": prefix, "boolean": (b"\x00", b"\x01"),
    }  # fmt: skip
    writer = _Writer(scope)
    body = writer.record(schema, "v")
    source = f"def encode(v):\n    return join((PREFIX, {body}))\n"
    exec(compile(source, f"<encoder of {schema['name']}>", "exec"), scope)  # noqa: S102
    encode: Callable[[Any], bytes] = scope["encode"]
    return encode


class _Writer:
    """Turns schemas into the text of expressions that yield bytes."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        self.named: dict[str, dict[str, Any]] = {}

    def record(self, schema: dict[str, Any], var: str) -> str:
        return ", ".join(
            self.value(field["type"], f"{var}.{_attribute(field['name'])}")
            for field in schema["fields"]
        )

    def value(self, schema: Any, var: str) -> str:
        if isinstance(schema, list):
            null, other = schema
            assert null == "null", "unions are null or one type, null first"
            return f"b'\\x00' if {var} is None else b'\\x02' + {self.single(other, var)}"
        return self.single(schema, var)

    def single(self, schema: Any, var: str) -> str:
        """One expression for the whole value, where a tuple of parts cannot stand."""
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "long" | "int":
                return f"L({var})"
            case "string":
                return f"S({var})"
            case "bytes":
                return f"B({var})"
            case "boolean":
                return f"boolean[{var}]"
            case "enum":
                name = f"enum_{schema['name']}"
                self.scope[name] = {s: _SMALL[i] for i, s in enumerate(schema["symbols"])}
                self.named[schema["name"]] = schema
                return f"{name}[{var}]"
            case "record":
                self.named[schema["name"]] = schema
                return f"join(({self.record(schema, var)},))"
            case "array":
                return self.blocks(var, f"*({self.single(schema['items'], 'x')} for x in {var})")
            case "map":
                item = self.single(schema["values"], "x")
                return self.blocks(var, f"*(S(k) + {item} for k, x in {var}.items())")
            case str():
                return self.single(self.named[kind.rpartition(".")[2]], var)
        raise ValueError(f"no encoder for {schema!r}")

    def blocks(self, var: str, items: str) -> str:
        return f"(b'\\x00' if not {var} else join((L(len({var})), {items}, b'\\x00')))"


def _attribute(field: str) -> str:
    """Python name of a field: keywords get a trailing underscore."""
    return "in_" if field == "in" else field
