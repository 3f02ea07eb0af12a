"""Stores of partitions in memory, which outlive the "process" that has them open."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from ..errors import Corrupt, Refuse, Unavailable


class MemoryStores:
    """Meets `streams.ports.Stores`: the disk of one machine."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._open: dict[int, MemoryStore] = {}

    def open(self, partition: int) -> "MemoryStore":
        if partition in self._open:
            raise Unavailable(f"store {partition} is open elsewhere")
        kept = self._kept.setdefault(partition, _Kept())
        if kept.damaged:
            raise Corrupt(f"store {partition} is damaged")
        store = MemoryStore(self, partition, kept)
        self._open[partition] = store
        return store

    def wipe(self, partition: int) -> None:
        if partition in self._open:
            raise Refuse(f"store {partition} must be closed before it is wiped")
        self._kept.pop(partition, None)

    def kill(self) -> None:
        """The process that had stores open is gone, its locks with it; what it wrote stays."""
        for store in list(self._open.values()):
            store.close()

    def damage(self, partition: int) -> None:
        """From now on the store cannot be read."""
        self._kept.setdefault(partition, _Kept()).damaged = True

    def contents(self, partition: int) -> dict[bytes, bytes]:
        """All pairs in order, for comparing."""
        return dict(sorted(self._kept.setdefault(partition, _Kept()).pairs.items()))

    def released(self, partition: int) -> None:
        self._open.pop(partition, None)


class _Kept:
    def __init__(self) -> None:
        self.pairs: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []
        self.damaged = False


class MemoryStore:
    """Meets `streams.ports.Store`."""

    def __init__(self, stores: MemoryStores, partition: int, kept: _Kept) -> None:
        self._stores = stores
        self._partition = partition
        self._kept = kept
        self._closed = False

    def get(self, key: bytes) -> bytes | None:
        self._check()
        return self._kept.pairs.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._check()
        get = self._kept.pairs.get
        return [get(key) for key in keys]

    def scan(self, lower: bytes, upper: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self._check()
        keys, pairs = self._kept.keys, self._kept.pairs
        first = bisect_left(keys, lower)
        beyond = min(bisect_left(keys, upper), first + max(limit, 0))
        return [(key, pairs[key]) for key in keys[first:beyond]]

    def apply(self, writes: Mapping[bytes, bytes | None]) -> None:
        self.apply_pairs(writes.items())

    def apply_pairs(self, writes: Iterable[tuple[bytes, bytes | None]]) -> None:
        self._check()
        keys, pairs = self._kept.keys, self._kept.pairs
        new: list[bytes] = []
        for key, value in writes:
            if value is None:
                if pairs.pop(key, None) is not None and not _removed(key, new):
                    del keys[bisect_left(keys, key)]
            else:
                if key not in pairs:
                    new.append(key)
                pairs[key] = value
        if new:
            keys += new
            keys.sort()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stores.released(self._partition)

    def _check(self) -> None:
        if self._closed:
            raise Refuse(f"store {self._partition} was used after it was closed")
        if self._kept.damaged:
            raise Corrupt(f"store {self._partition} is damaged")


def _removed(key: bytes, new: list[bytes]) -> bool:
    """Take back a key that the same batch put in."""
    if key in new:
        new.remove(key)
        return True
    return False
