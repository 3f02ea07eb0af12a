"""Writes plain values as YAML that every reader understands alike.

Text that any version of YAML could take for something else, or that holds more than letters,
digits and `. _ / -`, stands in double quotes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

Value: TypeAlias = "str | int | bool | Mapping[str, Value] | list[Value] | None"

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*", re.ASCII)
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def to_yaml(value: Value) -> str:
    """One YAML document, without the line that divides it from others."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Value) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _entry(f"{_text(key)}:", part)
    elif isinstance(value, list) and value:
        for part in value:
            first, *others = _lines(part)
            yield f"- {first}"
            yield from (f"  {line}" for line in others)
    else:
        yield _scalar(value)


def _entry(label: str, part: Value) -> Iterator[str]:
    if isinstance(part, Mapping | list) and part:
        yield label
        yield from (f"  {line}" for line in _lines(part))
    else:
        yield f"{label} {_scalar(part)}"


def _scalar(value: Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _text(value)
        case list():
            return "[]"
        case _:
            return "{}"


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return f'"{"".join(map(_character, value))}"'


def _character(one: str) -> str:
    if one in _ESCAPES:
        return _ESCAPES[one]
    if one.isprintable():
        return one
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else (
        f"\\U{code:08x}"
    )  # fmt: skip
