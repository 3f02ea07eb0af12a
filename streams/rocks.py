"""State of partitions in RocksDB: one database per partition, one column family, WAL on, no sync.

Killing the process loses nothing; losing the machine's power may lose the newest batches, in
order, and never half of one. Both are closed by a restore from the log, whose position is written
in the same batch as the state.

Never fork with an open store: the child has no background threads and hangs.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NoReturn

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from .errors import Corrupt, Refuse, Unavailable

BLOCK_CACHE_BYTES: Final = 64 * 1_048_576
WRITE_BUFFER_BYTES: Final = 8 * 1_048_576
OPEN_FILES_MAX: Final = 128
BLOOM_BITS_PER_KEY: Final = 10

# RocksDB names a condition only in the first words of its message; all come as plain Exception.
_DAMAGE: Final = ("Corruption", "Invalid argument", "Not found", "Not implemented")
# A file that the manifest names is not there, or shorter than it should be.
_DAMAGED_FILES: Final = ("No such file or directory", "file is too short", "truncated record")


class RocksStore:
    """The store of one partition. One thread at a time; no iterator outlives a call, for one that
    did would hold the database open after `close`."""

    __slots__ = ("_database", "_path")

    def __init__(self, path: Path, options: Options) -> None:
        self._path = path
        try:
            self._database = Rdict(str(path), options)
        except Exception as error:  # noqa: BLE001 - the client raises nothing narrower
            _raise_mapped(error, path)

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:  # noqa: BLE001
            _raise_mapped(error, self._path)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        try:
            values: list[bytes | None] | None = self._database[list(keys)]
        except Exception as error:  # noqa: BLE001
            _raise_mapped(error, self._path)
        return values or []

    def scan(self, lower: bytes, upper: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        if lower >= upper or limit <= 0:
            return []
        options = ReadOptions()
        options.set_iterate_upper_bound(upper)
        try:
            items = self._database.items(from_key=lower, read_opt=options)
            pairs: list[tuple[bytes, bytes]] = list(islice(items, limit))  # type: ignore[arg-type]
            if len(pairs) < limit:
                self._check_end(pairs[-1][0] if pairs else lower, options)
        except Exception as error:  # noqa: BLE001
            _raise_mapped(error, self._path)
        return pairs

    def apply(self, writes: Mapping[bytes, bytes | None]) -> None:
        self.apply_pairs(writes.items())

    def apply_pairs(self, writes: Iterable[tuple[bytes, bytes | None]]) -> None:
        batch = WriteBatch(raw_mode=True)
        put = batch.put
        delete = batch.delete
        for key, value in writes:
            if value is None:
                delete(key)
            else:
                put(key, value)
        try:
            self._database.write(batch)
        except Exception as error:  # noqa: BLE001
            _raise_mapped(error, self._path)

    def close(self) -> None:
        """Release the database and its lock. A second call does nothing."""
        try:
            self._database.close()
        except Exception:  # noqa: BLE001
            # The lock is free all the same. Closing flushes what is in the WAL anyway; damage that
            # shows here shows again to whoever opens the store.
            return

    def _check_end(self, last: bytes, options: ReadOptions) -> None:
        """`items` takes a block that cannot be read for the end, in silence; an iterator says."""
        iterator = self._database.iter(options)
        iterator.seek(last)
        if iterator.valid():
            iterator.next()
        iterator.status()


class RocksStores:
    """The stores below one folder, `<folder>/<partition>`. They share one block cache."""

    def __init__(self, folder: Path, *, cache_bytes: int = BLOCK_CACHE_BYTES) -> None:
        self._folder = folder
        self._cache = Cache(cache_bytes)

    def open(self, partition: int) -> RocksStore:
        self._folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._discarded(partition), ignore_errors=True)
        return RocksStore(self._path(partition), _options(self._cache))

    def wipe(self, partition: int) -> None:
        discarded = self._discarded(partition)
        shutil.rmtree(discarded, ignore_errors=True)
        # Renamed first: dying half-way must not leave a store that opens with files missing.
        try:
            self._path(partition).rename(discarded)
        except FileNotFoundError:
            return
        shutil.rmtree(discarded, ignore_errors=True)

    def _path(self, partition: int) -> Path:
        return self._folder / str(partition)

    def _discarded(self, partition: int) -> Path:
        return self._folder / f"{partition}.discarded"


def _options(cache: Cache) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, block_based=False)
    blocks.set_format_version(5)
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(3)
    options.set_max_open_files(OPEN_FILES_MAX)
    # After a kill the newest batch may be half in the WAL: open with all batches before it.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    # The due index is a queue: rewrite a file that is mostly tombstones before scans feel it.
    options.add_compact_on_deletion_collector_factory(1_024, 512, 0.5)
    options.set_keep_log_file_num(2)
    options.set_stats_dump_period_sec(0)
    return options


def _raise_mapped(error: Exception, path: Path) -> NoReturn:
    text = str(error)
    if isinstance(error, DbClosedError):
        raise Refuse(f"store {path} was used after it was closed") from error
    if "LOCK" in text or "lock hold by" in text:
        raise Unavailable(f"store {path} is open elsewhere: {text}") from error
    if text.startswith(_DAMAGE) or any(words in text for words in _DAMAGED_FILES):
        raise Corrupt(f"store {path} is damaged: {text}") from error
    raise Refuse(f"store {path} cannot be used: {text}") from error
