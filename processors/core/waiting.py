"""What waits for a place: executions by pool and handler, drawn fairly over tenants.

A cache of the queue keys in the store. A line is the keys of one pool, handler and tenant in order
of time; past the bound it holds the first part of each line and reads on when that is used up, so
that work nobody takes stands in nobody's way. Whoever draws a key checks it against the state.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from .keys import QUEUE, parse_queue

Scan = Callable[[bytes, bytes, int], list[tuple[bytes, bytes]]]
For = tuple[str, str]
"""Pool and handler."""

SCAN_KEYS: Final = 1_000
COMPACT_AFTER: Final = 256
_END: Final = QUEUE[:-1] + bytes([QUEUE[-1] + 1])


class _Line:
    """Keys of one tenant from `at` on. From `upto` on they are in the store only; None: all are
    here."""

    __slots__ = ("at", "group", "keys", "prefix", "upto")

    def __init__(self, prefix: bytes, group: "_Group") -> None:
        self.prefix = prefix
        self.group = group
        self.keys: list[bytes] = []
        self.at = 0
        self.upto: bytes | None = None

    def __len__(self) -> int:
        return len(self.keys) - self.at

    @property
    def end(self) -> bytes:
        """A bound behind every key of the line."""
        return self.prefix[:-1] + b"\x01"

    def insert(self, key: bytes) -> bool:
        """Put it in its place; False: it stands there already."""
        keys = self.keys
        if not keys or keys[-1] < key:
            keys.append(key)
            return True
        place = bisect_left(keys, key, lo=self.at)
        if place < len(keys) and keys[place] == key:
            return False
        keys.insert(place, key)
        return True

    def draw(self) -> bytes:
        key = self.keys[self.at]
        self.at += 1
        if self.at >= COMPACT_AFTER and self.at * 2 > len(self.keys):
            del self.keys[: self.at]
            self.at = 0
        return key

    def leave_half(self) -> int:
        """Leave the later half to the store; how many keys that is."""
        half = self.at + (len(self) + 1) // 2
        left = len(self.keys) - half
        if left:
            self.upto = self.keys[half]
            del self.keys[half:]
        return left


class _Group:
    """The lines of one pool and handler, drawn from in turn."""

    __slots__ = ("count", "turn")

    def __init__(self) -> None:
        self.turn: deque[_Line] = deque()
        self.count = 0


class Waiting:
    """Queue keys of one partition. `keys_max`, at least 2, bounds how many are held, in at most
    half as many lines; further lines come in when there is room."""

    def __init__(self, scan: Scan, *, keys_max: int) -> None:
        self._scan = scan
        self._keys_max = keys_max
        self._share = max(1, keys_max // 8)
        """Keys of one line that are read at once."""
        self._lines_max = keys_max // 2
        self._lines: dict[bytes, _Line] = {}
        self._groups: dict[For, _Group] = {}
        self._held = 0
        self._unseen: bytes | None = QUEUE
        """From here on the store may have lines that are not listed; None: it has none."""

    def load(self) -> None:
        """Read the beginnings of lines from the store, as far as there is room."""
        while self._unseen is not None and len(self._lines) < self._lines_max:
            pairs = self._scan(self._unseen, _END, SCAN_KEYS)
            if not pairs:
                self._unseen = None
                return
            self._unseen = self._take_in([key for key, _ in pairs])

    def load_more(self) -> None:
        """Read on once there is room again. To be called before anything is drawn in a step: what
        was drawn stands in the store until the commit."""
        if self._unseen is not None and len(self._lines) <= self._lines_max // 2:
            self.load()

    def _take_in(self, keys: list[bytes]) -> bytes:
        """Begin lines with keys in order, until one has its share; where to read on."""
        for key in keys:
            line = self._lines.get(_prefix(key))
            if line is None:
                if len(self._lines) >= self._lines_max:
                    return key
                line = self._begin(key)
            elif line.upto is not None or (line.keys and key <= line.keys[-1]):
                return line.end  # listed before
            if len(line) >= self._share:
                line.upto = key
                return line.end
            if self._held >= self._keys_max:
                self._make_room()
                if line.upto is not None:
                    return line.end
            self._put(line, key)
        return keys[-1] + b"\x00"

    def add(self, key: bytes) -> None:
        """Take in a new key that is committed; one that the store will give is left to it."""
        prefix = _prefix(key)
        line = self._lines.get(prefix)
        if line is None:
            if self._unseen is not None and key >= self._unseen:
                return
            if len(self._lines) >= self._lines_max:
                self._unseen = prefix if self._unseen is None else min(prefix, self._unseen)
                return
            line = self._begin(key)
        elif self._held >= self._keys_max:
            self._make_room()
        if line.upto is None or key < line.upto:
            self._put(line, key)

    def has(self, pool: str, handler: str) -> bool:
        """Whether something waits for this handler."""
        group = self._groups.get((pool, handler))
        return group is not None and group.count > 0

    def draw(self, wanted: For) -> bytes | None:
        """The next key of a pool and handler; None: nothing waits there."""
        group = self._groups.get(wanted)
        if group is None or not group.turn:
            return None
        line = group.turn.popleft()
        key = line.draw()
        self._held -= 1
        group.count -= 1
        if not len(line) and line.upto is not None:
            self._read_on(line, line.upto)
        if len(line):
            group.turn.append(line)
        else:
            del self._lines[line.prefix]
            if not group.turn:
                del self._groups[wanted]
        return key

    def groups(self) -> Iterator[For]:
        """Pools and handlers that something waits for."""
        return iter(self._groups)

    def counts(self, pool: str) -> Mapping[str, int]:
        """Handler → how much waits, of one pool; a lower bound past the bound."""
        return {h: group.count for (p, h), group in self._groups.items() if p == pool}

    def size(self) -> int:
        """Keys held."""
        return self._held

    def _begin(self, key: bytes) -> _Line:
        """A line for this key, which is to be put into it."""
        if self._held >= self._keys_max:
            self._make_room()
        pool, handler, _, _ = parse_queue(key)
        group = self._groups.get((pool, handler))
        if group is None:
            group = self._groups[pool, handler] = _Group()
        prefix = _prefix(key)
        line = self._lines[prefix] = _Line(prefix, group)
        group.turn.append(line)
        return line

    def _put(self, line: _Line, key: bytes) -> None:
        if line.insert(key):
            self._held += 1
            line.group.count += 1

    def _read_on(self, line: _Line, upto: bytes) -> None:
        most = min(self._share, SCAN_KEYS, self._keys_max - self._held)
        keys = [key for key, _ in self._scan(upto, line.end, most)]
        line.keys, line.at = keys, 0
        line.upto = keys[-1] + b"\x00" if len(keys) == most else None
        self._held += len(keys)
        line.group.count += len(keys)

    def _make_room(self) -> None:
        """Leave a part of the longest line to the store. There are at most half as many lines as
        keys, so it has one to leave."""
        longest = max(self._lines.values(), key=len)
        left = longest.leave_half()
        self._held -= left
        longest.group.count -= left


def _prefix(key: bytes) -> bytes:
    """Pool, handler and tenant of a queue key, each with its end: what its line has in common."""
    end = key.index(0, key.index(0, key.index(0) + 1) + 1)
    return key[: end + 1]
