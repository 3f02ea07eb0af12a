"""What waits for a place: executions by pool and handler, drawn fairly over tenants.

A cache of the queue keys in the store. Past its bound it holds the first part only and reads on
when that is used up; whoever draws a key checks it against the state.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from .keys import QUEUE, parse_queue

Scan = Callable[[bytes, bytes, int], list[tuple[bytes, bytes]]]
For = tuple[str, str]
"""Pool and handler."""

SCAN_KEYS: Final = 1_000
COMPACT_AFTER: Final = 256


class _Line:
    """Keys of one tenant in order of time, drawn from the front."""

    __slots__ = ("at", "keys")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.at = 0

    def add(self, key: bytes) -> None:
        if not self.keys or self.keys[-1] < key:
            self.keys.append(key)
        else:
            insort(self.keys, key, lo=self.at)

    def draw(self) -> bytes:
        key = self.keys[self.at]
        self.at += 1
        if self.at >= COMPACT_AFTER and self.at * 2 > len(self.keys):
            del self.keys[: self.at]
            self.at = 0
        return key

    def empty(self) -> bool:
        return self.at >= len(self.keys)


class _Tenants:
    """Waiting keys of one pool and handler, tenant after tenant in turn."""

    def __init__(self) -> None:
        self.lines: dict[bytes, _Line] = {}
        self.turn: deque[bytes] = deque()
        self.count = 0

    def add(self, tenant: bytes, key: bytes) -> None:
        line = self.lines.get(tenant)
        if line is None:
            line = self.lines[tenant] = _Line()
            self.turn.append(tenant)
        line.add(key)
        self.count += 1

    def draw(self) -> bytes | None:
        if not self.turn:
            return None
        tenant = self.turn.popleft()
        line = self.lines[tenant]
        key = line.draw()
        if line.empty():
            del self.lines[tenant]
        else:
            self.turn.append(tenant)
        self.count -= 1
        return key


class Waiting:
    """Queue keys of one partition; `keys_max` bounds how many are held."""

    def __init__(self, scan: Scan, *, keys_max: int) -> None:
        self._scan = scan
        self._keys_max = keys_max
        self._lines: dict[For, _Tenants] = {}
        self._held = 0
        self._read_to: bytes | None = QUEUE
        """Keys from here on are in the store only; None: all are here."""

    def load(self) -> None:
        """Read keys from the store up to the bound."""
        end = QUEUE[:-1] + b"0"
        while self._read_to is not None and self._held < self._keys_max:
            pairs = self._scan(self._read_to, end, SCAN_KEYS)
            for key, _ in pairs:
                self._put(key)
            self._read_to = pairs[-1][0] + b"\x00" if len(pairs) == SCAN_KEYS else None

    def add(self, key: bytes) -> None:
        """Take in a new key; one that the store will give anyway is left to it."""
        if self._read_to is not None and key >= self._read_to:
            return
        self._put(key)

    def draw(self, line: For) -> bytes | None:
        """The next key of a pool and handler; None: nothing waits there."""
        tenants = self._lines.get(line)
        key = tenants.draw() if tenants is not None else None
        if key is None:
            if self._read_to is None or self._held:
                return None
            self.load()
            tenants = self._lines.get(line)
            key = tenants.draw() if tenants is not None else None
        if key is not None:
            self._held -= 1
        return key

    def lines(self) -> Iterator[For]:
        """Pools and handlers that something waits for."""
        return (line for line, tenants in self._lines.items() if tenants.count)

    def counts(self, pool: str) -> Mapping[str, int]:
        """Handler → how much waits, of one pool; a lower bound past the bound."""
        return {h: t.count for (p, h), t in self._lines.items() if p == pool and t.count}

    def size(self) -> int:
        """Keys held."""
        return self._held

    def _put(self, key: bytes) -> None:
        pool, handler, tenant, _ = parse_queue(key)
        tenants = self._lines.get((pool, handler))
        if tenants is None:
            tenants = self._lines[pool, handler] = _Tenants()
        tenants.add(tenant, key)
        self._held += 1
