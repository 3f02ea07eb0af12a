"""What a worker and its child processes say to each other, and how it lies in a socket.

A frame is four bytes of length and a MessagePack list of messages. Runs are named by numbers.
"""

import socket
from collections.abc import Sequence
from typing import Final

import msgspec

from .lease import Ended

HEADER_BYTES: Final = 4
READ_BYTES: Final = 262_144
BEGAN_SLOTS: Final = 16_384
"""Slots of the memory that a child shares with its parent, to note when a run began."""
BEGAN_BYTES: Final = 8 * BEGAN_SLOTS


class Hello(msgspec.Struct, tag=0, array_like=True, frozen=True, gc=False):
    """First word to a child: whose handlers to load, and how many places it has."""

    application: str
    path: tuple[str, ...]
    places: int
    worker: str


class Run(msgspec.Struct, tag=1, array_like=True, frozen=True, gc=False):
    """Run a handler, unless it cannot begin by `before_ms` (local, since the machine started)."""

    number: int
    slot: int
    before_ms: int
    handler: str
    tenant: str
    job: str
    execution_id: str
    occurrence: str
    attempt: int
    delivery: int
    fence: int
    scheduled_at: int
    payload: bytes
    content_type: str
    previous_outcome: str


class Stop(msgspec.Struct, tag=2, array_like=True, frozen=True, gc=False):
    """Drop the run if it has not begun; else tell it, as `why` demands."""

    number: int
    why: str


class Ready(msgspec.Struct, tag=10, array_like=True, frozen=True, gc=False):
    """A child has loaded its handlers. `declared` are the jobs declared beside them, as JSON."""

    handlers: tuple[str, ...]
    declared: bytes


class Unusable(msgspec.Struct, tag=11, array_like=True, frozen=True, gc=False):
    """A child cannot load its handlers."""

    reason: str


class Done(Ended, tag=12, array_like=True, frozen=True, gc=False):
    """A run ended."""

    number: int


class Dropped(msgspec.Struct, tag=13, array_like=True, frozen=True, gc=False):
    """A run never began."""

    number: int


class Kept(msgspec.Struct, tag=14, array_like=True, frozen=True, gc=False):
    """A run that was to be taken back has begun."""

    number: int


class Progress(msgspec.Struct, tag=15, array_like=True, frozen=True, gc=False):
    """A run says how far it is."""

    number: int
    text: str


ToChild = Hello | Run | Stop
ToParent = Ready | Unusable | Done | Dropped | Kept | Progress

_encode: Final = msgspec.msgpack.Encoder().encode
decode_to_child: Final = msgspec.msgpack.Decoder(list[ToChild]).decode
decode_to_parent: Final = msgspec.msgpack.Decoder(list[ToParent]).decode


def frame(messages: Sequence[ToChild] | Sequence[ToParent]) -> bytes:
    """The messages as they lie in the socket."""
    body = _encode(messages)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class Frames:
    """Cuts what comes out of a socket into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are whole now."""
        rest = self._rest
        rest += data
        bodies = []
        at = 0
        while len(rest) - at >= HEADER_BYTES:
            end = at + HEADER_BYTES + int.from_bytes(rest[at : at + HEADER_BYTES], "big")
            if len(rest) < end:
                break
            bodies.append(bytes(rest[at + HEADER_BYTES : end]))
            at = end
        if at:
            del rest[:at]
        return bodies


def read_frame(connection: socket.socket, frames: Frames) -> list[bytes] | None:
    """Wait for at least one whole frame; None when the other side is gone."""
    while True:
        data = connection.recv(READ_BYTES)
        if not data:
            return None
        if bodies := frames.feed(data):
            return bodies
