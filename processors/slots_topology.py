"""The slots processor's topics as the machinery sees them."""

from collections.abc import Iterable
from typing import Final

from schemas.bindings import MARK, QUARANTINED, SLOT_STATE
from schemas.codec import Undecodable
from streams.binding import Changelog, Topology

from . import topology as topics

LIMIT: Final = b"l/"
"""Prefix in the store of what is known of each limit."""
_INDEX: Final = b"d/"

_WITH_TXN: Final = {codec.prefix: codec for codec in (SLOT_STATE, MARK, QUARANTINED)}


def limit_key(key: bytes) -> bytes:
    """Store key of a record on `slot-state`."""
    return LIMIT + key


def transaction_of(value: bytes) -> int:
    """Transaction sequence of any record of ours; -1 for one that carries none."""
    codec = _WITH_TXN.get(value[:5])
    if codec is None:
        return -1
    try:
        txn: int = codec.decode(value).txn
    except Undecodable:
        return -1
    return txn


def _no_index(store_key: bytes, value: bytes) -> Iterable[tuple[bytes, bytes]]:
    del store_key, value
    return ()


def _no_targets(value: bytes) -> Iterable[tuple[str, int]]:
    del value
    return ()


SLOTS: Final = Topology(
    name="slots",
    inputs=(topics.SLOT_REQUESTS,),
    # All that was said goes into one division of the places, which is the due entry.
    urgent=frozenset({topics.SLOT_REQUESTS}),
    # A new owner sends every grant again, and is told everything again.
    from_end=frozenset({topics.SLOT_REQUESTS}),
    changelogs=(Changelog(topics.SLOT_STATE, limit_key),),
    events=(),
    events_topic=topics.QUARANTINE,
    quarantine=topics.QUARANTINE,
    index_prefixes=(_INDEX,),
    indexed_prefix=LIMIT,
    index=_no_index,
    transaction_of=transaction_of,
    targets_of=_no_targets,
)
