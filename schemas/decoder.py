"""Avro decoders compiled from their schemas, straight into structs.

The counterpart of `encoder`: one function per record that reads field after field. Bytes come
from strangers, so every length is checked against what is there; the caller checks that the end
of the record is the end of the bytes. Tests hold the results equal to fastavro's.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

Decode = Callable[[bytes, int], tuple[Any, int]]
ITEMS_MAX: Final = 100_000


class Malformed(ValueError):
    """The bytes do not follow the schema."""


def long_rest(data: bytes, at: int, first: int) -> tuple[int, int]:
    """The raw value of a number whose first byte, read already, says that more follow."""
    value, shift = first & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than ten bytes")
    if value >> 64:
        raise Malformed("a number of more than 64 bits")
    return value, at


def compile_decoder(schema: dict[str, Any], kind: type[msgspec.Struct]) -> Decode:
    """A function (bytes, offset) → (struct, offset behind it). Raises `Malformed`, `IndexError` or
    `UnicodeDecodeError` for bytes that do not follow the schema."""
    writer = _Writer()
    name = writer.record(schema, kind)
    source = "\n".join(writer.functions)
    exec(compile(source, f"<decoder of {schema['name']}>", "exec"), writer.scope)  # noqa: S102
    decode: Decode = writer.scope[name]
    return decode


class _Writer:
    """Writes one function per record type, statement by statement."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {
            "long_rest": long_rest, "Malformed": Malformed, "ITEMS_MAX": ITEMS_MAX
        }  # fmt: skip
        self.functions: list[str] = []
        self.named: dict[str, dict[str, Any]] = {}
        self.kinds: dict[str, type[msgspec.Struct]] = {}

    def record(self, schema: dict[str, Any], kind: type[msgspec.Struct]) -> str:
        name = schema["name"]
        self.named[name], self.kinds[name] = schema, kind
        self.scope[f"make_{name}"] = kind
        fields = {f.encode_name: f for f in msgspec.structs.fields(kind)}
        lines = [f"def read_{name}(data, i):"]
        arguments = []
        for n, field in enumerate(schema["fields"]):
            target = fields[field["name"]]
            lines += self.value(field["type"], f"f{n}", target.type)
            arguments.append(f"{target.name}=f{n}")
        lines.append(f"    return make_{name}({', '.join(arguments)}), i")
        self.functions.append("\n".join(lines))
        return f"read_{name}"

    def value(self, schema: Any, var: str, hint: Any) -> list[str]:
        """Statements that leave the value in `var` and the offset behind it in `i`."""
        if isinstance(schema, list):
            some = self.value(schema[1], var, _some(hint))
            return [
                "    u = data[i]; i += 1",
                f"    if u == 0: {var} = None",
                "    elif u != 2: raise Malformed('no such branch')",
                "    else:",
                *("    " + line for line in some),
            ]
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "long" | "int":
                return [*_raw(var), f"    {var} = ({var} >> 1) ^ -({var} & 1)"]
            case "string" | "bytes":
                text = ".decode()" if kind == "string" else ""
                return [*_length(), f"    {var} = data[i:j]{text}; i = j"]
            case "boolean":
                return ["    u = data[i]; i += 1",
                        "    if u > 1: raise Malformed('neither true nor false')",
                        f"    {var} = u == 1"]  # fmt: skip
            case "enum":
                symbols = f"symbols_{schema['name']}"
                self.scope[symbols] = tuple(schema["symbols"])
                return [*_raw("n"), "    if n & 1: raise Malformed('no such symbol')",
                        f"    {var} = {symbols}[n >> 1]"]  # fmt: skip
            case "record":
                self.record(schema, hint)
                return [f"    {var}, i = read_{schema['name']}(data, i)"]
            case "array":
                item = self.value(schema["items"], "x", _item(hint))
                body = [*item, "    found.append(x)"]
                return [*_blocks("[]", body), f"    {var} = tuple(found)"]
            case "map":
                key = [*_length(), "    k = data[i:j].decode(); i = j"]
                item = self.value(schema["values"], "x", _map_item(hint))
                return [*_blocks("{}", [*key, *item, "    found[k] = x"]), f"    {var} = found"]
            case str():
                name = kind.rpartition(".")[2]
                return [f"    {var}, i = read_{name}(data, i)"]
            case _:
                raise ValueError(f"no decoder for {schema!r}")


def _raw(var: str) -> list[str]:
    return [
        f"    {var} = data[i]; i += 1",
        f"    if {var} > 127: {var}, i = long_rest(data, i, {var})",
    ]


def _length() -> list[str]:
    return [
        *_raw("n"),
        "    j = i + (n >> 1)",
        "    if n & 1 or j > len(data): raise Malformed('a length beyond the end')",
    ]


def _blocks(empty: str, body: list[str]) -> list[str]:
    """Items come in counted blocks; a negative count has the block's size behind it."""
    return [
        f"    found = {empty}",
        "    while True:",
        *("    " + line for line in _raw("n")),
        "        if n == 0: break",
        "        count = n >> 1",
        "        if n & 1:",
        "            count = count + 1",
        *("        " + line for line in _raw("n")),
        "        if count > ITEMS_MAX: raise Malformed('too many items')",
        "        for _ in range(count):",
        *("        " + line for line in body),
    ]


def _some(hint: Any) -> Any:
    """The type beside None."""
    return next((t for t in getattr(hint, "__args__", ()) if t is not type(None)), hint)


def _item(hint: Any) -> Any:
    """The item type of `tuple[X, ...]`."""
    return hint.__args__[0]


def _map_item(hint: Any) -> Any:
    """The value type of `dict[str, X]`."""
    return hint.__args__[1]
