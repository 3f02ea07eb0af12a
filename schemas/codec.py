"""Typed values to bytes and back: Avro bodies in the Confluent wire format.

A codec belongs to one struct class and the schema of the same name. Encoding trusts the types
(mypy checked them); decoding checks them again, since bytes come from strangers.
"""

import io
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import fastavro
import msgspec

from .encoder import compile_encoder
from .registry import name_of, registered

MAGIC: Final = 0
PREFIX_BYTES: Final = 5

T = TypeVar("T", bound=msgspec.Struct)


class Undecodable(ValueError):
    """These bytes can never be decoded as what they should be. Set them aside and move on."""


class Codec(Generic[T]):
    """Encodes and decodes one record type. `encode` never fails for a well-typed value;
    `decode` raises `Undecodable` for anything that `encode` could not have written."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self.id, schema = registered(kind.__name__)
        self._schema = fastavro.parse_schema(schema, named_schemas={})
        self.prefix: Final = bytes([MAGIC]) + self.id.to_bytes(4, "big")
        self.encode: Callable[[T], bytes] = compile_encoder(schema, self.prefix)

    def decode(self, data: bytes) -> T:
        """The value in `data`, which must carry this codec's schema id."""
        if data[:PREFIX_BYTES] != self.prefix:
            raise Undecodable(f"expected {self.kind.__name__}, found {describe(data)}")
        source = io.BytesIO(data)
        source.seek(PREFIX_BYTES)
        try:
            found = _read(source, self._schema, None)
            if source.tell() != len(data):
                raise Undecodable(f"{len(data) - source.tell()} bytes after the record")
            return msgspec.convert(found, self.kind, builtin_types=(bytes,))
        except Undecodable:
            raise
        except Exception as error:  # fastavro raises whatever its reader ran into
            raise Undecodable(f"not a {self.kind.__name__}: {error!r}") from error


def schema_name(data: bytes) -> str | None:
    """Name of the schema that `data` says it has; None when it is not one of ours."""
    if len(data) < PREFIX_BYTES or data[0] != MAGIC:
        return None
    return name_of(int.from_bytes(data[1:PREFIX_BYTES], "big"))


def describe(data: bytes) -> str:
    """What a value looks like from outside, for error messages."""
    if not data:
        return "an empty value"
    if data[0] != MAGIC:
        return f"a first byte of 0x{data[0]:02x}"
    if len(data) < PREFIX_BYTES:
        return f"only {len(data)} bytes"
    return schema_name(data) or f"schema id {int.from_bytes(data[1:PREFIX_BYTES], 'big')}"


_read = fastavro.schemaless_reader
