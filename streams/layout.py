"""Keys that the machinery itself keeps in a partition's store."""

from typing import Final

from .errors import Corrupt

MARK_KEY: Final = b"!mark"
"""Record key of the mark on the first changelog."""
TXN_HEADER: Final = "horolog-txn"
"""Header of a tombstone on a changelog: its transaction's sequence, which a value would carry."""
META: Final = b"m/"
STORE_MARK: Final = META + b"mark"
STORE_MANIFEST: Final = META + b"manifest"
STORE_BEGUN: Final = META + b"begun"
"""Wall time at which an empty store began to be filled."""
STORE_INDEXED: Final = META + b"indexed"


def offset_key(topic: str) -> bytes:
    """Where the next changelog offset to restore from is kept."""
    return META + b"next/" + topic.encode()


def encode_offset(offset: int) -> bytes:
    """Eight bytes, big endian."""
    return offset.to_bytes(8, "big")


def decode_offset(value: bytes) -> int:
    """The offset; `Corrupt` for anything that is not eight bytes."""
    if len(value) != 8:
        raise Corrupt(f"an offset of {len(value)} bytes in the store")
    return int.from_bytes(value, "big")


def topic_name(namespace: str, suffix: str) -> str:
    """Full name of one of our topics, group or transactional id prefix."""
    return f"{namespace}.{suffix}"


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
