"""Leases of one partition: places, what waits for them, items to workers, lost leases.

Binds `core.places`, `core.waiting` and `core.executions` to a step of the scheduler. Places are
taken and given back while a step decides; a step that is dropped is followed by `resume`, which
counts them again from the state.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from hmac import compare_digest
from typing import Final, NamedTuple

from schemas import limits
from schemas.bindings import SLOTS_WANTED, WORK_BATCH
from schemas.leases import HttpCall, WorkBatch, WorkItem, WorkKind
from schemas.partition import partition_of
from schemas.slots import SlotsGranted
from schemas.state import JobDefinition, OpenExecution
from streams.layout import topic_name
from streams.ports import Produced, Store
from streams.transaction import Transaction

from .core.executions import Placed
from .core.keys import DUE, KIND_AT, Kind, owner_of, parse_queue, second_prefix
from .core.places import POOL_LIMIT, PoolPlaces
from .core.waiting import Waiting
from .topology import SLOT_REQUESTS, inbox_of

SCAN_KEYS: Final = 5_000
TOKEN_BYTES: Final = 16
WORK_BATCH_BYTES_MAX: Final = 524_288
"""A broker takes records of up to 1 MB."""
RESENDS_PER_LEASE: Final = 4
"""At least; a lease is not lost because one message was."""
ITEM_BYTES: Final = 1_536
"""More than an item takes up beside payload, URL and headers."""

Opened = Callable[[bytes, int], OpenExecution | None]
"""From job key and ordinal to the open execution, as stored."""


class Told(NamedTuple):
    """A lease that its worker may not have heard of."""

    job_key: bytes
    ordinal: int
    fence: int


class Leasing:
    """Who holds what, of one partition's executions."""

    def __init__(
        self,
        *,
        namespace: str,
        partition: int,
        partitions: int,
        cluster_key: bytes,
        lease_ms: int,
    ) -> None:
        self._namespace = namespace
        self._partition = partition
        self._partitions = partitions
        self._keyed = blake2b(key=cluster_key, digest_size=TOKEN_BYTES)
        self._lease_ms = lease_ms
        self._requests = topic_name(namespace, SLOT_REQUESTS)
        self._pools: dict[str, PoolPlaces] = {}
        self._waiting: Waiting | None = None
        self._items: dict[tuple[str, int, str], list[WorkItem]] = defaultdict(list)
        self._unheard: deque[tuple[int, Told]] = deque()
        self._tell_ms: dict[Told, int] = {}
        self._lapsed: list[tuple[int, bytes]] = []
        self._epoch = -1
        self._since_ms = 0
        self._shift_ms = 0
        self._drained_ms = 0
        self._now_ms = 0
        self._turn = 0
        self._deadline: tuple[int | None] | None = None
        """What `deadline_ms` found, until something changes: it is asked for all the time."""

    # --- taking over -----------------------------------------------------------------------------

    def resume(self, store: Store, opened: Opened, *, epoch: int, now_ms: int, gap_ms: int) -> None:
        """Count leases from the state, plan to tell workers again what they may not have heard, and
        lease nothing until the slots processor has answered this epoch."""
        if epoch != self._epoch:
            self._epoch, self._since_ms = epoch, now_ms
        self._shift_ms = min(max(gap_ms, 0), self._lease_ms)
        self._drained_ms = 0
        self._now_ms = now_ms
        self._deadline = None
        self._items.clear()
        self._unheard.clear()
        self._tell_ms.clear()
        self._lapsed = []
        self._waiting = Waiting(store.scan, keys_max=limits.QUEUE_KEYS_MAX)
        self._waiting.load()
        held: dict[str, dict[str, int]] = {pool: {} for pool in (*limits.POOLS_BUILT, *self._pools)}
        for job_key, ordinal in self._leases(store, now_ms):
            execution = opened(job_key, ordinal)
            if execution is None or not execution.leased:
                continue
            workers = held.setdefault(execution.pool, {})
            workers[execution.worker] = workers.get(execution.worker, 0) + 1
            if not execution.named or execution.state == "CLOSING":
                self._plan(Told(job_key, ordinal, execution.fence), now_ms)
        for pool, workers in held.items():
            self._places(pool).restore(epoch, workers)

    def _leases(self, store: Store, now_ms: int) -> Iterable[tuple[bytes, int]]:
        lower = DUE
        longest_ms = max(self._lease_ms, limits.LEASE_MS)  # it may be another setting than before
        upper = second_prefix((now_ms + 2 * longest_ms) // 1000 + 1)
        while pairs := store.scan(lower, upper, SCAN_KEYS):
            for key, _ in pairs:
                if key[KIND_AT] == Kind.LEASE:
                    yield owner_of(key), int.from_bytes(key[-2:], "big")
            lower = pairs[-1][0] + b"\x00"

    def _places(self, pool: str) -> PoolPlaces:
        places = self._pools.get(pool)
        if places is None:
            places = self._pools[pool] = PoolPlaces(pool, self._partition, self._lease_ms)
            places.restore(self._epoch, {})
        return places

    # --- places and the queue --------------------------------------------------------------------

    def granted(self, message: SlotsGranted) -> None:
        """Follow a grant of places; one of another epoch is ignored."""
        if message.limit.startswith(POOL_LIMIT):
            self._places(message.limit.removeprefix(POOL_LIMIT)).granted(message)

    def take(self, pool: str, handler: str, now_ms: int) -> Placed | None:
        """A place for a new execution, unless others wait for one already."""
        assert self._waiting is not None
        if self._waiting.has(pool, handler):
            return None
        return self._take(pool, handler, now_ms)

    def _take(self, pool: str, handler: str, now_ms: int) -> Placed | None:
        place = self._places(pool).take(handler, now_ms)
        return Placed(place.worker, place.inbox_partition) if place is not None else None

    def free(self, pool: str, worker: str) -> None:
        """A lease is closed: its place is free."""
        places = self._places(pool)
        if worker in places.held:  # all are, unless the clock went back further than a lease
            places.release(worker)

    def refused(self, pool: str, worker: str, now_ms: int) -> None:
        """The worker had no place after all: it is passed over for a while."""
        self._places(pool).refuse(worker, now_ms)

    def drawn(self, now_ms: int, limit: int) -> Iterable[tuple[bytes, Placed]]:
        """Queue keys with the place each may be leased to. A place whose key turns out to be
        nobody's is given back by `free`."""
        waiting = self._waiting
        assert waiting is not None
        waiting.load_more()
        left, groups = limit, list(waiting.groups())
        if not groups:
            return
        self._turn = (self._turn + 1) % len(groups)
        for pool, handler in groups[self._turn :] + groups[: self._turn]:
            while left > 0:
                place = self._take(pool, handler, now_ms)
                if place is None:
                    break
                key = waiting.draw((pool, handler))
                if key is None:
                    self.free(pool, place.worker)
                    break
                left -= 1
                yield key, place

    def queued(self, keys: Iterable[bytes]) -> None:
        """Take committed queue keys in."""
        assert self._waiting is not None
        self._deadline = None
        for key in keys:
            self._waiting.add(key)

    def can_lease(self, now_ms: int) -> bool:
        """Whether something waits and a place is free for it."""
        waiting = self._waiting
        return waiting is not None and any(
            self._places(pool).free(handler, now_ms) for pool, handler in waiting.groups()
        )

    # --- lost leases -----------------------------------------------------------------------------

    def may_expire(self, entry: bytes, execution: OpenExecution, now_ms: int) -> bool:
        """Whether a lapsed lease may be given up: its time is over, moved by the gap in ownership
        if it was given or renewed before that, and every report up to then has been read. Else
        the entry is kept for `lapsed`."""
        until_ms = execution.lease_until
        if execution.fence < self._epoch << 16 and until_ms < self._since_ms + self._lease_ms:
            until_ms += self._shift_ms
        if until_ms <= min(now_ms, self._drained_ms):
            return True
        heappush(self._lapsed, (until_ms, entry))
        return False

    def wants_drained(self) -> bool:
        """Whether the end of `reports` should be read, so that lapsed leases can be judged."""
        return bool(self._lapsed) and self._drained_ms < self._lapsed[0][0] <= self._now_ms

    def drained(self, asked_ms: int) -> None:
        """Every report that was in the log at `asked_ms` has been decided."""
        self._drained_ms = max(self._drained_ms, asked_ms)
        self._deadline = None

    def lapsed(self, now_ms: int, limit: int) -> list[bytes]:
        """Up to `limit` index keys of lapsed leases that may be given up now."""
        entries: list[bytes] = []
        until_ms = min(now_ms, self._drained_ms)
        while self._lapsed and self._lapsed[0][0] <= until_ms and len(entries) < limit:
            entries.append(heappop(self._lapsed)[1])
        return entries

    def _lapsed_deadline_ms(self) -> int | None:
        """When `lapsed` has something, or the end of `reports` is to be asked for."""
        if not self._lapsed or self._drained_ms < self._lapsed[0][0] <= self._now_ms:
            return None  # the answer wakes us up
        return self._lapsed[0][0]

    # --- what workers are told -------------------------------------------------------------------

    def give(
        self, kind: WorkKind, job_key: bytes, definition: JobDefinition | None,
        execution: OpenExecution, now_ms: int,
    ) -> None:  # fmt: skip
        """Tell the lease's worker, once this step is committed; and see in a while whether it has
        heard."""
        item = self._item(kind, job_key, definition, execution)
        self._items[execution.pool, execution.inbox, execution.worker].append(item)
        again_ms = now_ms + min(limits.RESEND_MS, self._lease_ms // RESENDS_PER_LEASE)
        self._plan(Told(job_key, execution.ordinal, execution.fence), again_ms)

    def _plan(self, told: Told, at_ms: int) -> None:
        self._unheard.append((at_ms, told))
        self._tell_ms[told] = at_ms

    def unheard(self, now_ms: int) -> list[Told]:
        """Leases of which the worker may have to be told again by now."""
        due = []
        while self._unheard and self._unheard[0][0] <= now_ms:
            at_ms, told = self._unheard.popleft()
            if self._tell_ms.get(told) == at_ms:  # nothing was told since
                del self._tell_ms[told]
                due.append(told)
        return due

    def _item(
        self, kind: WorkKind, job_key: bytes, definition: JobDefinition | None,
        execution: OpenExecution,
    ) -> WorkItem:  # fmt: skip
        tenant, _, job = job_key.decode().partition("/")
        execution_id = execution.execution_id
        http = None
        payload, content_type = b"", ""
        if kind == "work" and definition is not None:
            payload = definition.payload if execution.payload is None else execution.payload
            content_type = definition.content_type
            target = definition.http
            if target is not None:
                http = HttpCall(
                    method=target.method, url=target.url, headers=target.headers,
                    timeout_ms=target.timeout_ms,
                )  # fmt: skip
        return WorkItem(
            kind=kind, tenant=tenant, job=job, execution_id=execution_id,
            occurrence=execution.occurrence, ordinal=execution.ordinal, attempt=execution.attempt,
            delivery=execution.delivery, fence=execution.fence, partition=self._partition,
            scheduled_at=execution.scheduled_at, due_at=execution.due_at,
            lease_until=execution.lease_until, handler=execution.handler, http=http,
            token=self.token(execution_id, execution.delivery, execution.worker),
            payload=payload, content_type=content_type,
            previous_outcome="unknown" if execution.lost else "",
            max_duration_ms=limits.MAX_DURATION_MS,
        )  # fmt: skip

    def token(self, execution_id: str, delivery: int, worker: str) -> bytes:
        """Proves that a report is about a lease we gave."""
        keyed = self._keyed.copy()
        keyed.update(f"{execution_id}\n{delivery}\n{worker}".encode())
        return keyed.digest()

    def genuine(self, execution_id: str, delivery: int, worker: str, token: bytes) -> bool:
        """Whether the token belongs to this lease."""
        return compare_digest(self.token(execution_id, delivery, worker), token)

    def finish(self, txn: Transaction, queued: Iterable[bytes], now_ms: int) -> None:
        """Put what workers and the slots processor are told behind the commit. `queued` are the
        queue keys that this step makes."""
        self._now_ms = now_ms
        self._deadline = None
        assert self._waiting is not None
        for (pool, inbox, worker), items in self._items.items():
            topic = topic_name(self._namespace, inbox_of(pool))
            for part in _bounded(items):
                value = WORK_BATCH.encode(WorkBatch(worker=worker, sent_ms=now_ms, items=part))
                txn.send(Produced(topic, inbox, worker.encode(), value))
        self._items.clear()
        new: dict[str, dict[str, int]] = {}
        for key in queued:
            pool, handler, _, _ = parse_queue(key)
            counts = new.setdefault(pool, {})
            counts[handler] = counts.get(handler, 0) + 1
        for pool, places in self._pools.items():
            waiting = self._waiting.counts(pool)
            message = places.wanted(now_ms, waiting, new.get(pool, {}), 0)
            if message is not None:
                partition = partition_of(message.limit, self._partitions)
                value = SLOTS_WANTED.encode(message)
                txn.send(Produced(self._requests, partition, message.limit.encode(), value))

    def deadline_ms(self) -> int | None:
        """When there is something to do: lease, give up, tell again, or ask for places."""
        if self._deadline is None:
            self._deadline = (self._find_deadline_ms(),)
        return self._deadline[0]

    def _find_deadline_ms(self) -> int | None:
        now_ms, waiting = self._now_ms, self._waiting
        if waiting is None:
            return None
        if self.can_lease(now_ms):
            return 0
        times = [places.deadline_ms() for places in self._pools.values()]
        if waiting.size():
            times += [places.retry_ms(now_ms) for places in self._pools.values()]
        times.append(self._lapsed_deadline_ms())
        if self._unheard:
            times.append(self._unheard[0][0])
        return min((t for t in times if t is not None), default=None)

    def figures(self) -> dict[str, int]:
        """Sizes of what is held in memory."""
        return {
            "waiting": self._waiting.size() if self._waiting is not None else 0,
            "lapsed": len(self._lapsed), "unheard": len(self._tell_ms),
            "held": sum(sum(places.held.values()) for places in self._pools.values()),
        }  # fmt: skip


def _bounded(items: Sequence[WorkItem]) -> Iterable[tuple[WorkItem, ...]]:
    """Parts that fit into a record."""
    part: list[WorkItem] = []
    size = 0
    for item in items:
        more = ITEM_BYTES + len(item.payload)
        if item.http is not None:
            texts = sum(len(name) + len(value) for name, value in item.http.headers.items())
            more += len(item.http.url) + 4 * texts
        size += more
        if part and (size > WORK_BATCH_BYTES_MAX or len(part) == limits.WORK_BATCH_ITEMS_MAX):
            yield tuple(part)
            part, size = [], more
        part.append(item)
    yield tuple(part)
