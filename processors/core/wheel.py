"""The timer wheel: what is due in the next minute, held in memory in front of the index.

Two levels. Buckets hold the keys of one second each, tenant by tenant; when a second's first key
is due, its tenants join the ready set, where draws go round by tenant and within a tenant by time:
a tenant's older work never stands before another's. A bucket holds at most a share of keys per
tenant, and the wheel so many in all; what is beyond is read from the index when it comes to it.

It is a cache: keys only, rebuilt at a take-over, and whoever draws a key checks it against the
state before acting on it.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from .keys import due_ms_of, second_and_tenant, second_prefix

Scan = Callable[[bytes, bytes, int], list[tuple[bytes, bytes]]]

QUANTUM: Final = 32
"""Keys a tenant may draw before the next one's turn."""
SCAN_KEYS: Final = 1_000
_NEVER_MS: Final = 1 << 62


class _Bucket:
    """Keys of one tenant in one second, in order. `more`: the index has further ones."""

    __slots__ = ("keys", "more", "next")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.next = 0
        self.more = False


class Wheel:
    """Due keys of one partition. `scan` reads the index: (lower, upper, limit) → pairs."""

    def __init__(self, scan: Scan, *, seconds: int, share: int, keys_max: int) -> None:
        self._scan = scan
        self._seconds = seconds
        self._share = share
        self._keys_max = keys_max
        self._buckets: dict[int, dict[bytes, _Bucket]] = {}
        self._first_ms: dict[int, int] = {}
        self._order: list[int] = []
        self._loaded = 0
        self._lower = b""
        """Index keys below this are here or were drawn; the others are read when it comes to it."""
        self._count = 0
        self._open: dict[bytes, deque[tuple[int, _Bucket]]] = {}
        self._ready: deque[bytes] = deque()
        self._parked: list[tuple[int, bytes]] = []

    def load(self, now_ms: int) -> None:
        """Read the index ahead: a whole wheel at first, then half a wheel whenever less than half
        is left. Stops early at `keys_max` keys and goes on when half of them are drawn. What was
        read is never scanned again, so drawn keys leave no tombstones in the way."""
        upto = now_ms // 1000 + self._seconds
        full = self._count * 2 > self._keys_max
        if full or (self._loaded and upto - self._loaded < self._seconds // 2):
            return
        lower, upper = max(self._lower, second_prefix(0)), second_prefix(upto)
        while pairs := self._scan(lower, upper, SCAN_KEYS):
            lower = pairs[-1][0] + b"\x00"
            for key, _ in pairs:
                if not self._put(key):
                    lower = _next_tenant(key)
                    break
            if self._count >= self._keys_max:
                self._lower, self._loaded = lower, second_and_tenant(key)[0]
                return
        self._lower, self._loaded = max(lower, upper), upto

    def add(self, key: bytes) -> None:
        """Take in a new key; one beyond what was read so far is left to the index."""
        if key < self._lower:
            self._put(key)

    def deadline_ms(self) -> int | None:
        """When `draw` or `load` has something to do; None before the first `load`."""
        if not self._loaded:
            return None
        if self._ready:
            return 0
        full = self._count * 2 > self._keys_max
        at = _NEVER_MS if full else (self._loaded - self._seconds // 2) * 1000
        if self._order:
            at = min(at, self._first_ms[self._order[0]])
        if self._parked:
            at = min(at, self._parked[0][0])
        return at

    def draw(self, now_ms: int, limit: int) -> list[bytes]:
        """Up to `limit` keys that are due, fairly over tenants."""
        self._open_seconds(now_ms)
        while self._parked and self._parked[0][0] <= now_ms:
            self._ready.append(heappop(self._parked)[1])
        drawn: list[bytes] = []
        ready = self._ready
        while ready and len(drawn) < limit:
            tenant = ready.popleft()
            wake_ms = self._draw_tenant(tenant, now_ms, min(QUANTUM, limit - len(drawn)), drawn)
            if wake_ms is None:
                del self._open[tenant]
            elif wake_ms <= now_ms:
                ready.append(tenant)
            else:
                heappush(self._parked, (wake_ms, tenant))
        self._count -= len(drawn)
        return drawn

    def size(self) -> int:
        """Keys held."""
        return self._count

    def _put(self, key: bytes) -> bool:
        """Hold the key; False when the tenant's share of that second, or the wheel, is full."""
        second, tenant = second_and_tenant(key)
        due_ms = due_ms_of(key)
        queue = self._open.get(tenant)
        if queue is not None:
            for opened, bucket in queue:
                if opened == second:
                    return self._insert(bucket, key, tenant, due_ms)
        tenants = self._buckets.get(second)
        if tenants is None:
            tenants = self._buckets[second] = {}
            heappush(self._order, second)
            self._first_ms[second] = due_ms
        elif due_ms < self._first_ms[second]:
            self._first_ms[second] = due_ms
        found = tenants.get(tenant)
        if found is None:
            found = tenants[tenant] = _Bucket()
        if len(found.keys) >= self._share or self._count >= self._keys_max:
            found.more = True
            return False
        found.keys.append(key)
        self._count += 1
        return True

    def _insert(self, bucket: _Bucket, key: bytes, tenant: bytes, due_ms: int) -> bool:
        """Into a second that is open already, unless the index will give it anyway. Either way its
        tenant wakes up for it."""
        by_index = bucket.more and (not bucket.keys or key > bucket.keys[-1])
        if not by_index and self._count >= self._keys_max:  # let the index give it all, in order
            self._count -= len(bucket.keys) - bucket.next
            bucket.keys, bucket.next, bucket.more = [], 0, True
        elif not by_index:
            insort(bucket.keys, key, lo=bucket.next)
            self._count += 1
        if any(parked == tenant and at > due_ms for at, parked in self._parked):
            self._parked = [(due_ms if t == tenant else at, t) for at, t in self._parked]
            heapify(self._parked)
        return True

    def _open_seconds(self, now_ms: int) -> None:
        while self._order and self._first_ms[self._order[0]] <= now_ms:
            second = heappop(self._order)
            del self._first_ms[second]
            for tenant, bucket in self._buckets.pop(second).items():
                if bucket.more:  # the share held is not the earliest part: read it in order
                    self._count -= len(bucket.keys)
                    bucket.keys = []
                else:
                    bucket.keys.sort()
                queue = self._open.get(tenant)
                if queue is None:
                    self._open[tenant] = deque([(second, bucket)])
                    self._ready.append(tenant)
                    continue
                insort(queue, (second, bucket), key=lambda entry: entry[0])
                self._unpark(tenant)

    def _unpark(self, tenant: bytes) -> None:
        """An earlier second may have come before the one the tenant waits for."""
        kept = [entry for entry in self._parked if entry[1] != tenant]
        if len(kept) != len(self._parked):
            self._parked = kept
            heapify(self._parked)
            self._ready.append(tenant)

    def _draw_tenant(
        self, tenant: bytes, now_ms: int, count: int, drawn: list[bytes]
    ) -> int | None:
        """Draw up to `count`; when the tenant's next key is due, or None: it has none left."""
        queue = self._open[tenant]
        while queue:
            second, bucket = queue[0]
            if bucket.next >= len(bucket.keys):
                if not bucket.more or not self._refill(second, tenant, bucket):
                    queue.popleft()
                    continue
            elif count == 0:
                return 0
            keys, at = bucket.keys, bucket.next
            end = min(len(keys), at + count)
            if now_ms < second * 1000 + 999:
                while end > at and due_ms_of(keys[end - 1]) > now_ms:
                    end -= 1
            drawn += keys[at:end]
            bucket.next = end
            if end == at and count:
                return due_ms_of(keys[at])
            count -= end - at
        return None

    def _refill(self, second: int, tenant: bytes, bucket: _Bucket) -> bool:
        """The next share of an overfull bucket, from the index."""
        prefix = second_prefix(second) + tenant + b"\x00"
        lower = bucket.keys[-1] + b"\x00" if bucket.keys else prefix
        share = self._share if self._count < self._keys_max else QUANTUM
        pairs = self._scan(lower, prefix[:-1] + b"\x01", share)
        bucket.keys = [key for key, _ in pairs]
        bucket.next = 0
        self._count += len(pairs)
        bucket.more = len(pairs) == share
        return bool(pairs)


def _next_tenant(key: bytes) -> bytes:
    """A bound behind every key of this key's second and tenant."""
    second, tenant = second_and_tenant(key)
    return second_prefix(second) + tenant + b"\x01"
