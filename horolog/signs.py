"""Signs of life in the log: who owns which partition, which workers offer, what was set aside."""

from collections.abc import Iterable
from typing import Final

import msgspec

from processors.core.places import pool_limit
from processors.topology import QUARANTINE, SLOT_REQUESTS
from projections.reading import LogReading
from schemas.bindings import MARK, QUARANTINED, SLOTS_WANTED, WORKER_OFFER
from schemas.codec import Undecodable
from schemas.partition import partition_of
from streams.layout import MARK_KEY
from streams.ports import Record

MARKS_READ: Final = 20
REQUESTS_READ: Final = 2_000
QUARANTINE_READ: Final = 1_000
WANTED_AGAIN_MS: Final = 25_000
"""Whoever wants places says so at least once within this time."""


class Owner(msgspec.Struct, frozen=True):
    """Who took part in a partition last, and when, by that process's clock."""

    name: str
    seen_ms: int


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's workers that offered themselves lately, with their places, and how much waits.
    `leases` has the length of a lease that each worker goes by, as far as it says so."""

    workers: dict[str, int]
    wanted: int
    leases: dict[str, int] = {}


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """Records that could not be used: how many (`exact`, or at least so many), and the newest."""

    count: int
    exact: bool
    newest: str


def owners(reading: LogReading, topic: str, partitions: int) -> dict[int, Owner]:
    """By partition, who wrote the newest mark of a changelog; partitions without one are left
    out."""
    newest: dict[int, tuple[int, Owner]] = {}

    def take(record: Record) -> None:
        if record.key != MARK_KEY or record.value is None:
            return
        try:
            mark = MARK.decode(record.value)
        except Undecodable:
            return
        known = newest.get(record.partition)
        if known is None or known[0] < record.offset:
            newest[record.partition] = record.offset, Owner(mark.owner, mark.wall_ms)

    reading.tail(
        topic, range(partitions), take, records=MARKS_READ, enough=lambda p: p in newest
    )  # fmt: skip
    return {partition: owner for partition, (_, owner) in sorted(newest.items())}


def pools(
    reading: LogReading, names: Iterable[str], partitions: int, *, now_ms: int, silent_ms: int
) -> dict[str, Pool]:
    """What was said of each pool; a worker that has not offered for `silent_ms` is left out."""
    limits = {pool_limit(name): name for name in names}
    oldest_ms: dict[int, int] = {}
    offers: dict[str, dict[str, tuple[int, int, int]]] = {name: {} for name in limits.values()}
    wants: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in limits.values()}

    def take(record: Record) -> None:
        at_ms, value = record.timestamp_ms, record.value or b""
        oldest_ms[record.partition] = min(oldest_ms.get(record.partition, at_ms), at_ms)
        try:
            if value[:5] == WORKER_OFFER.prefix and now_ms - at_ms <= silent_ms:
                offer = WORKER_OFFER.decode(value)
                known = offers.setdefault(offer.pool, {})
                places = 0 if offer.draining else offer.places
                told_now = at_ms, places, offer.lease_ms
                known[offer.worker] = max(known.get(offer.worker, (0, 0, 0)), told_now)
            elif value[:5] == SLOTS_WANTED.prefix and now_ms - at_ms <= WANTED_AGAIN_MS:
                message = SLOTS_WANTED.decode(value)
                name = limits.get(message.limit)
                if name is not None:
                    known_wants, p = wants[name], message.partition
                    told = (record.offset, sum(message.wanted.values()))
                    known_wants[p] = max(known_wants.get(p, (-1, 0)), told)
        except Undecodable:
            return

    homes = sorted({partition_of(limit, partitions) for limit in limits})
    reading.tail(
        SLOT_REQUESTS, homes, take, records=REQUESTS_READ,
        enough=lambda p: oldest_ms.get(p, now_ms) < now_ms - WANTED_AGAIN_MS,
    )  # fmt: skip
    return {
        name: Pool(
            workers={
                worker: places for worker, (_, places, _) in sorted(offers[name].items()) if places
            },
            leases={worker: lease for worker, (_, _, lease) in offers[name].items() if lease},
            wanted=sum(count for _, count in wants[name].values()),
        )
        for name in limits.values()
    }


def set_aside(reading: LogReading, partitions: int) -> SetAside:
    """What lies in quarantine."""
    found: list[tuple[int, str]] = []
    seen: dict[int, int] = {}

    def take(record: Record) -> None:
        seen[record.partition] = seen.get(record.partition, 0) + 1
        try:
            one = QUARANTINED.decode(record.value or b"")
        except Undecodable:
            return
        found.append((one.at_ms, f"{one.topic}-{one.partition}@{one.offset}: {one.error}"))

    whole = [True]

    def enough(partition: int) -> bool:
        # Asked only where more lies before what was read.
        whole[0] = False
        return seen.get(partition, 0) > 0

    reading.tail(QUARANTINE, range(partitions), take, records=QUARANTINE_READ, enough=enough)
    newest = max(found, default=(0, ""))[1]
    return SetAside(count=sum(seen.values()), exact=whole[0], newest=newest)
