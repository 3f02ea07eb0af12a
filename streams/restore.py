"""Bringing a partition's store up to the log: copy bytes, then make the index follow.

A full restore copies every record undecoded and computes the index once at the end; a catch-up
from stored offsets replaces the index entries of the keys it touches. Both end at the last stable
offset and can be killed at any point: offsets, data and the index flag are written in one batch.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from schemas.bindings import MARK
from schemas.codec import Undecodable
from schemas.limits import TRANSACTION_RECORDS_MAX
from schemas.state import Mark

from .binding import Changelog, Topology
from .crash import CrashPoint
from .errors import Corrupt, OutOfRange, Refuse, Unavailable
from .layout import (
    MARK_KEY,
    META,
    STORE_BEGUN,
    STORE_INDEXED,
    STORE_MANIFEST,
    STORE_MARK,
    decode_offset,
    encode_offset,
    offset_key,
    prefix_end,
    topic_name,
)
from .ports import Clock, Offsets, RawRecord, Reader, Store, Stores

BATCH_RECORDS: Final = 5_000
READ_S: Final = 0.5
STALLED_S: Final = 20.0
ABSENT_MS_MAX: Final = 12 * 3_600_000
"""Half of `delete.retention.ms`: away for longer, a tombstone may have been missed."""

Alarm = Callable[..., None]


class Manifest(msgspec.Struct, frozen=True):
    """What a store belongs to; another one is wiped."""

    cluster: str
    namespace: str
    processor: str
    partition: int
    partitions: int
    layout: int = 1


class Restored(msgspec.Struct, frozen=True):
    """A store that has everything that is committed, with the newest mark (None: new log)."""

    store: Store
    mark: Mark | None
    records: int
    torn: tuple[tuple[str, bytes], ...]
    """(topic, key) of state records above the mark: an incomplete transaction shows."""


def restore(
    topology: Topology,
    manifest: Manifest,
    *,
    stores: Stores,
    reader: Reader,
    offsets: Offsets,
    clock: Clock,
    alarm: Alarm,
    crash: CrashPoint,
) -> Restored:
    """Open the partition's store and read the changelogs to their last stable offsets.

    A store that cannot be trusted is wiped and rebuilt: damaged, of another manifest, with an
    offset outside the log, or away for longer than half of `delete.retention.ms`. Raises
    `Unavailable` when the log does not answer and `Refuse` for state records without any mark.
    """
    for wiped in (False, True):
        store = None
        try:
            store = stores.open(manifest.partition)
            reason = _distrust(store, manifest, clock.wall_ms())
            if reason is not None:
                raise Corrupt(reason)
            return _Restore(topology, manifest, store, reader, offsets, clock, crash).run()
        except (Corrupt, OutOfRange) as error:
            if store is not None:
                store.close()
            if wiped:
                raise
            alarm("store_wiped", partition=manifest.partition, reason=str(error))
            stores.wipe(manifest.partition)
        except BaseException:
            if store is not None:
                store.close()
            raise
    raise AssertionError("unreachable")


def _distrust(store: Store, manifest: Manifest, now_ms: int) -> str | None:
    found = store.get(STORE_MANIFEST)
    if found is None:
        return None
    if found != msgspec.json.encode(manifest):
        return f"the store belongs to {found.decode(errors='replace')}"
    mark = store.get(STORE_MARK)
    try:
        # Before there is a mark, a first restore was interrupted: what it read then counts.
        begun_ms = decode_offset(store.get(STORE_BEGUN) or b"")
        seen_ms = MARK.decode(mark).wall_ms if mark is not None else begun_ms
    except Undecodable as error:
        return f"its mark: {error}"
    if now_ms - seen_ms > ABSENT_MS_MAX:
        return "away for longer than half of delete.retention.ms"
    return None


class _Restore:
    def __init__(
        self,
        topology: Topology,
        manifest: Manifest,
        store: Store,
        reader: Reader,
        offsets: Offsets,
        clock: Clock,
        crash: CrashPoint,
    ) -> None:
        self.topology = topology
        self.manifest = manifest
        self.store = store
        self.reader = reader
        self.offsets = offsets
        self.clock = clock
        self.crash = crash
        self.names = {
            log.topic: topic_name(manifest.namespace, log.topic) for log in topology.changelogs
        }
        self.records = 0
        self.tail: list[tuple[str, bytes, bytes]] = []

    def run(self) -> Restored:
        store = self.store
        partitions = [(name, self.manifest.partition) for name in self.names.values()]
        starts = self.offsets.start(partitions)
        ends = self.offsets.stable_end(partitions)
        fresh = store.get(STORE_MANIFEST) is None
        if fresh:
            store.apply({
                STORE_MANIFEST: msgspec.json.encode(self.manifest), STORE_INDEXED: b"0",
                STORE_BEGUN: encode_offset(self.clock.wall_ms()),
            })  # fmt: skip
        bulk = store.get(STORE_INDEXED) != b"1"
        total = 0
        spans = []
        for log in self.topology.changelogs:
            name = self.names[log.topic]
            begin, end = self._span(log, starts[name, self.manifest.partition], ends)
            spans.append((log, begin, end))
            total += end - begin
        for log, begin, end in spans:
            self._copy(log, begin, end, bulk=bulk, half=total // 2)
        mark = self._mark()
        if bulk:
            self._rebuild_index()
        return Restored(store, mark, self.records, self._torn())

    def _span(
        self, log: Changelog, start: int, ends: Mapping[tuple[str, int], int]
    ) -> tuple[int, int]:
        end = ends[self.names[log.topic], self.manifest.partition]
        stored = self.store.get(offset_key(log.topic))
        if stored is None:
            return start, end
        begin = decode_offset(stored)
        if begin < start or begin > end:
            raise OutOfRange(f"{log.topic}: stored offset {begin}, the log has {start} to {end}")
        return begin, end

    def _copy(self, log: Changelog, begin: int, end: int, *, bulk: bool, half: int) -> None:
        """Copy [begin, end). The last offsets may be control records, which no reader returns:
        they are passed over when a read at the end comes back empty."""
        if begin >= end:
            return
        name, partition = self.names[log.topic], self.manifest.partition
        self.reader.assign({(name, partition): begin})
        try:
            position, waited_since = begin, self.clock.monotonic_s()
            while position < end:
                batch = self.reader.read_raw(BATCH_RECORDS, READ_S)
                if batch:
                    position = batch[-1][0] + 1
                    self._apply(log, batch, min(position, end), bulk=bulk)
                    waited_since = self.clock.monotonic_s()
                    if self.records >= half:
                        self.crash("CP14")
                if self.reader.position((name, partition)) >= end:
                    position = end
                elif self.clock.monotonic_s() - waited_since > STALLED_S:
                    raise Unavailable(f"{log.topic}-{partition}: no record after {position}")
            self.store.apply({offset_key(log.topic): encode_offset(end)})
        finally:
            self.reader.unassign([(name, partition)])

    def _apply(
        self,
        log: Changelog,
        batch: list[RawRecord],
        position: int,
        *,
        bulk: bool,
    ) -> None:
        store_key = log.store_key
        writes: dict[bytes, bytes | None] = {}
        marked = log is self.topology.changelogs[0]
        for _, key, value in batch:
            if key is not None and key != MARK_KEY:
                writes[store_key(key)] = value
            elif key is not None and marked:
                writes[STORE_MARK] = value
        self._remember_tail(log, batch)
        if not bulk:
            self._index(writes)
        writes[offset_key(log.topic)] = encode_offset(position)
        self.store.apply(writes)
        self.records += len(batch)

    def _index(self, writes: dict[bytes, bytes | None]) -> None:
        prefix = self.topology.indexed_prefix
        keys = [key for key in writes if key.startswith(prefix)]
        for key, old in zip(keys, self.store.get_many(keys), strict=True):
            new = writes[key]
            if old is not None:
                for entry, _ in self._entries(key, old):
                    writes[entry] = None
            if new is not None:
                writes.update(self._entries(key, new))

    def _entries(self, key: bytes, value: bytes) -> Iterable[tuple[bytes, bytes]]:
        try:
            return self.topology.index(key, value)
        except Undecodable as error:
            raise Refuse(
                f"partition {self.manifest.partition}: state record {key!r}: {error}. It was "
                "written by another version or by somebody else; without it ticks would be lost."
            ) from error

    def _rebuild_index(self) -> None:
        """Every index entry from every state record, from scratch."""
        store = self.store
        for prefix in self.topology.index_prefixes:
            for keys in _keys(store, prefix):
                store.apply(dict.fromkeys(keys))
        lower = self.topology.indexed_prefix
        upper = prefix_end(lower)
        while pairs := store.scan(lower, upper, BATCH_RECORDS):
            writes: dict[bytes, bytes | None] = {}
            for key, value in pairs:
                writes.update(self._entries(key, value))
            store.apply(writes)
            lower = pairs[-1][0] + b"\x00"
        store.apply({STORE_INDEXED: b"1"})

    def _remember_tail(self, log: Changelog, batch: list[RawRecord]) -> None:
        """Keep what stands after the newest mark: there should be nothing."""
        if log is self.topology.changelogs[0]:
            last = max((i for i, (*_, key, _) in enumerate(batch) if key == MARK_KEY), default=-1)
            if last >= 0:
                self.tail = [entry for entry in self.tail if entry[0] != log.topic]
            rest = batch[last + 1 :]
        else:
            rest = batch[-1:]
            self.tail = [entry for entry in self.tail if entry[0] != log.topic]
        self.tail += [(log.topic, k, v) for *_, k, v in rest if k is not None and v is not None]
        del self.tail[:-TRANSACTION_RECORDS_MAX]  # a transaction that shows in part is no longer

    def _mark(self) -> Mark | None:
        value = self.store.get(STORE_MARK)
        if value is not None:
            try:
                return MARK.decode(value)
            except Undecodable as error:
                raise Refuse(f"partition {self.manifest.partition}: its mark: {error}") from error
        if self.store.scan(b"", META, 1) or self.store.scan(prefix_end(META), b"\xff", 1):
            raise Refuse(
                f"partition {self.manifest.partition} of {self.topology.changelogs[0].topic} has "
                "state but no mark. The topic was tampered with, or belongs to something else; "
                "restore it from a backup or use another namespace."
            )
        return None

    def _torn(self) -> tuple[tuple[str, bytes], ...]:
        value = self.store.get(STORE_MARK)
        if value is None:
            return ()
        newest = MARK.decode(value).txn
        of = self.topology.transaction_of
        return tuple((topic, key) for topic, key, value in self.tail if of(value) > newest)


def _keys(store: Store, prefix: bytes) -> list[list[bytes]]:
    found, lower = [], prefix
    while pairs := store.scan(lower, prefix_end(prefix), BATCH_RECORDS):
        found.append([key for key, _ in pairs])
        lower = pairs[-1][0] + b"\x00"
    return found
