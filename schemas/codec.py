"""Typed values to bytes and back: Avro bodies in the Confluent wire format.

A codec belongs to one struct class and the schema of the same name. Encoding trusts the types
(mypy checked them); decoding trusts nothing, since bytes come from strangers.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from .decoder import Decode, Malformed, compile_decoder
from .encoder import Encoded, compile_encoder
from .registry import name_of, registered

MAGIC: Final = 0
PREFIX_BYTES: Final = 5

T = TypeVar("T", bound=msgspec.Struct)


class Undecodable(ValueError):
    """These bytes can never be decoded as what they should be. Set them aside and move on."""


class Codec(Generic[T]):
    """Encodes and decodes one record type. `encode` never fails for a well-typed value;
    `decode` raises `Undecodable` for anything that does not follow the schema."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self.id, schema = registered(kind.__name__)
        self.prefix: Final = bytes([MAGIC]) + self.id.to_bytes(4, "big")
        self.encode: Callable[[T], bytes] = compile_encoder(schema, self.prefix)
        self._read: Decode = compile_decoder(schema, kind)

    def embed(self, data: bytes) -> Encoded:
        """What `encode` gave, to stand inside another record instead of the value."""
        return Encoded(data[PREFIX_BYTES:])

    def decode(self, data: bytes) -> T:
        """The value in `data`, which must carry this codec's schema id."""
        if data[:PREFIX_BYTES] != self.prefix:
            raise Undecodable(f"expected {self.kind.__name__}, found {describe(data)}")
        try:
            found, end = self._read(data, PREFIX_BYTES)
        except (Malformed, IndexError, UnicodeDecodeError) as error:
            reason = str(error) if isinstance(error, Malformed) else "cut short or garbled"
            raise Undecodable(f"not a {self.kind.__name__}: {reason}") from error
        if end != len(data):
            raise Undecodable(f"{len(data) - end} bytes after the {self.kind.__name__}")
        value: T = found
        return value


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
