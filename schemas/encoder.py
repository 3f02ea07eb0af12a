"""Avro encoders compiled from their schemas: one Python expression per record.

An Avro body is the fields' encodings one after the other, so a record is one `b"".join` over
them. The general-purpose writer of fastavro takes 2 to 3 times as long for our small records
(docs/decisions/0002-compiled-encoder.md), and encoding is the largest cost of a fire. Tests hold
every schema's output equal to fastavro's, byte for byte.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
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
    and Avro body. A value of the wrong type raises whatever its encoding ran into.

    Where the schema has an optional record, the value may also be `Encoded`: bytes that are that
    record's encoding already.
    """
    writer = _Writer(prefix)
    parts = [part for f in schema["fields"] for part in writer.inline(f, f"v.{_attribute(f)}")]
    return writer.function(schema["name"], "v", parts)


def compile_parts(
    schema: dict[str, Any], prefix: bytes, *starts: str, encoded: bool = False
) -> tuple[Callable[..., bytes], ...]:
    """Functions whose results together are a record: the first for the fields before `starts[0]`
    (with the prefix), and one from each of `starts` up to the next, which a batch of records may
    share. All take their fields as arguments, in the schema's order; texts as UTF-8 bytes where
    `encoded`."""
    names = [field["name"] for field in schema["fields"]]
    bounds = [0, *(names.index(start) for start in starts), len(names)]
    functions = []
    for at, end in pairwise(bounds):
        writer = _Writer(b"" if at else prefix, encoded=encoded)
        fields = schema["fields"][at:end]
        parts = [part for f in fields for part in writer.inline(f, _attribute(f))]
        arguments = ", ".join(_attribute(f) for f in fields)
        functions.append(writer.function(schema["name"], arguments, parts))
    return tuple(functions)


class Encoded(bytes):
    """A record that is encoded already, without prefix, to stand in another one."""


class _Writer:
    """Turns schemas into the text of expressions that yield bytes.

    `inline` parts are written into the function itself, without a call for each number and text,
    which is where the time goes; `single` is for where one expression has to do.
    """

    def __init__(self, prefix: bytes, *, encoded: bool = False) -> None:
        self.encoded = encoded
        self.scope: dict[str, Any] = {
            "L": encode_long, "B": encode_bytes, "S": encode_string, "join": b"".join,
            "small": _SMALL, "recent": _recent, "varint": _varint, "PREFIX": prefix,
            "boolean": (b"\x00", b"\x01"), "Encoded": Encoded,
        }  # fmt: skip
        self.named: dict[str, dict[str, Any]] = {}

    def function(self, name: str, arguments: str, parts: list[str]) -> Callable[..., bytes]:
        start = "PREFIX, " if self.scope["PREFIX"] else ""
        source = f"def encode({arguments}):\n    return join(({start}{', '.join(parts)},))\n"
        exec(compile(source, f"<encoder of {name}>", "exec"), self.scope)  # noqa: S102
        encode: Callable[..., bytes] = self.scope["encode"]
        return encode

    def inline(self, field: dict[str, Any], var: str) -> list[str]:
        schema = field["type"]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("long", "int"):
            return [f"(small[n] if 0 <= (n := {var}) < {SMALL} else recent(n))"]
        if kind in ("string", "bytes"):
            data = f"{var}.encode()" if kind == "string" and not self.encoded else var
            return [f"(small[n] if (n := len(b := {data})) < {SMALL} else varint(n))", "b"]
        return [self.value(schema, var)]

    def value(self, schema: Any, var: str) -> str:
        if not isinstance(schema, list):
            return self.single(schema, var)
        null, other = schema
        assert null == "null", "unions are null or one type, null first"
        some = f"b'\\x02' + {self.single(other, var)}"
        if self.is_record(other):
            some = f"b'\\x02' + {var} if type({var}) is Encoded else {some}"
        return f"(b'\\x00' if {var} is None else {some})"

    def is_record(self, schema: Any) -> bool:
        return isinstance(schema, dict) and schema["type"] == "record"

    def single(self, schema: Any, var: str) -> str:
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
                return f"{self.record(schema)}({var})"
            case "array":
                return self.blocks(var, f"*[{self.single(schema['items'], 'x')} for x in {var}]")
            case "map":
                item = self.single(schema["values"], "x")
                return self.blocks(var, f"*[S(k) + {item} for k, x in {var}.items()]")
            case str():
                return self.single(self.named[kind.rpartition(".")[2]], var)
            case _:
                raise ValueError(f"no encoder for {schema!r}")

    def record(self, schema: dict[str, Any]) -> str:
        """Name of a function for a record inside another one."""
        self.named[schema["name"]] = schema
        name = f"record_{schema['name']}"
        if name not in self.scope:
            fields = schema["fields"]
            parts = [part for f in fields for part in self.inline(f, f"v.{_attribute(f)}")]
            source = f"def {name}(v):\n    return join(({', '.join(parts)},))\n"
            exec(compile(source, f"<encoder of {schema['name']}>", "exec"), self.scope)  # noqa: S102
        return name

    def blocks(self, var: str, items: str) -> str:
        return f"(b'\\x00' if not {var} else join((L(len({var})), {items}, b'\\x00')))"


def _attribute(field: dict[str, Any]) -> str:
    """Python name of a field: keywords get a trailing underscore."""
    name: str = field["name"]
    return "in_" if name == "in" else name
