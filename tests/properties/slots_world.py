"""Scheduler partitions and the owner of a pool's places, talking over a channel that loses,
repeats, delays and reorders, while either side is replaced at any moment.

The slots processor and the places of the partitions are the real ones; what holds a lease is told
by the partitions alone, which is what no worker may have too many of.
"""

from collections import Counter, deque
from random import Random

from msgspec.structs import replace

from processors.core.places import PoolPlaces, pool_limit
from processors.core.slots import PARTITION_SILENT_MS
from processors.slots import Slots
from processors.slots_topology import LIMIT
from schemas.bindings import SLOT_STATE, SLOTS_GRANTED, SLOTS_WANTED, WORKER_OFFER
from schemas.partition import partition_of
from schemas.slots import SlotState, WorkerOffer
from streams.memory.store import MemoryStores
from streams.ports import Record
from streams.transaction import Transaction

POOL = "default"
HOME_OF = 16


class Owner:
    """The slots processor; `take_over` makes another one of it, with what was committed."""

    def __init__(self) -> None:
        self.home = partition_of(pool_limit(POOL), HOME_OF)
        self.store = MemoryStores().open(self.home)
        self.txn = 0
        self.inbox: list[bytes] = []
        self.alarms: list[str] = []

    def take_over(self, now_ms: int) -> None:
        self.inbox.clear()
        self.slots = Slots(
            namespace="test", partition=self.home, partitions=HOME_OF, alarm=self._alarm
        )
        self.txn += 1
        self.slots.resume(self.store, epoch=self.txn, now_ms=now_ms)

    def _alarm(self, event: str, **values: object) -> None:
        self.alarms.append(f"{event} {values}")

    def wants(self, now_ms: int) -> bool:
        deadline = self.slots.deadline_ms()
        return bool(self.inbox) or (deadline is not None and deadline <= now_ms)

    def step(self, now_ms: int, *, dropped: bool = False) -> list[tuple[int, bytes]]:
        """One transaction: (partition, grant) to be sent. A dropped one is decided in vain."""
        self.txn += 1
        txn = Transaction(self.txn, self.home, self.store)
        for value in self.inbox:
            record = Record("test.slot-requests", self.home, 0, now_ms, None, value)
            self.slots.apply(txn, record, now_ms)
        self.slots.due(txn, now_ms, 1_000)
        self.slots.finish(txn, now_ms)
        if dropped:
            self.slots.resume(self.store, epoch=1, now_ms=now_ms)
            return []
        if txn.empty and not self.inbox:
            return []
        self.inbox.clear()
        self.store.apply(txn.writes)
        self.slots.committed(txn)
        return [(message.partition, message.value or b"") for message in txn.outbox]

    def known(self) -> SlotState:
        """What stands in the log."""
        value = self.store.get(LIMIT + pool_limit(POOL).encode())
        assert value is not None
        return SLOT_STATE.decode(value)


class Partition:
    """A scheduler partition: leases what waits as soon as there is a place."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = 0
        self.leases: list[str] = []
        self.ends: list[int] = []
        self.queue: dict[str, list[int]] = {}
        self.served: Counter[str] = Counter()
        self.inbox: list[bytes] = []
        self.take_over()

    def take_over(self) -> None:
        self.epoch += 7
        self.inbox.clear()
        self.places = PoolPlaces(POOL, self.number)
        self.places.restore(self.epoch, Counter(self.leases))
        self.heard_ms = 0

    def want(self, handler: str, count: int, now_ms: int) -> None:
        self.queue.setdefault(handler, []).extend([now_ms] * count)

    def step(self, now_ms: int, run_ms: int, *, dropped: bool = False) -> bytes | None:
        """Read grants, close leases, lease; what to tell the owner. A dropped step has read in
        vain and leaves nothing but what was committed before."""
        before = list(self.leases), list(self.ends), {h: list(q) for h, q in self.queue.items()}
        served = self.served.copy()
        for value in self.inbox:
            self.places.granted(SLOTS_GRANTED.decode(value))
        self.inbox.clear()
        while self.ends and min(self.ends) <= now_ms:
            self.close(self.ends.index(min(self.ends)))
        for handler in sorted(self.queue):
            while self.queue[handler]:
                place = self.places.take(handler, now_ms)
                if place is None:
                    break
                self.queue[handler].pop(0)
                self.leases.append(place.worker)
                self.ends.append(now_ms + run_ms)
                self.served[handler] += 1
        counts = {handler: len(queue) for handler, queue in self.queue.items()}
        oldest = min((queue[0] for queue in self.queue.values() if queue), default=0)
        message = self.places.wanted(now_ms, counts, {}, oldest)
        if dropped:
            self.leases, self.ends, self.queue = before
            self.served = served
            self.places.restore(self.epoch, Counter(self.leases))
            return None
        assert self.places.held == Counter(self.leases)
        return SLOTS_WANTED.encode(message) if message is not None else None

    def close(self, which: int) -> None:
        self.places.release(self.leases.pop(which))
        del self.ends[which]


class World:
    """Everything, and the channel between. `lose` is the share of messages that are lost."""

    def __init__(
        self,
        seed: int,
        *,
        partitions: int,
        workers: list[tuple[int, tuple[str, ...]]],
        run_ms: int = 50,
        lose: float = 0.0,
    ) -> None:
        self.rng = Random(seed)
        self.now_ms = 1_700_000_000_000
        self.run_ms = run_ms
        self.lose = lose
        self.owner = Owner()
        self.owner.take_over(self.now_ms)
        self.partitions = [Partition(n) for n in range(partitions)]
        self.requests: list[bytes] = []
        self.grants: list[tuple[int, bytes]] = []
        self.old_requests: deque[bytes] = deque(maxlen=50)
        self.old_grants: deque[tuple[int, bytes]] = deque(maxlen=50)
        self.most: dict[str, int] = {}
        self.offers: dict[str, WorkerOffer] = {}
        self.offered_ms: dict[str, int] = {}
        self.messages = 0
        for n, (places, handlers) in enumerate(workers):
            self.start_worker(f"w{n}", places, handlers)

    # --- what happens ----------------------------------------------------------------------------

    def start_worker(self, name: str, places: int, handlers: tuple[str, ...]) -> str:
        """A worker begins, under a name and a random start; an earlier one of that name is gone."""
        for other in [w for w in self.offers if w.split("#")[0] == name]:
            del self.offers[other]
        worker = f"{name}#{self.rng.randrange(10**9)}"
        ahead = self.rng.randrange(places + 1) if places else 0
        self.most[worker] = places
        self.offers[worker] = WorkerOffer(
            pool=POOL, worker=worker, inbox_partition=0, handlers=handlers, places=places - ahead,
            ahead=ahead, draining=False, n=0,
        )  # fmt: skip
        return worker

    def offer(self, worker: str, *, draining: bool = False) -> None:
        offer = replace(self.offers[worker], n=self.offers[worker].n + 1)
        self.offers[worker] = offer
        self.offered_ms[worker] = self.now_ms
        self._post(WORKER_OFFER.encode(replace(offer, draining=draining)))

    def step_partition(self, partition: Partition, *, dropped: bool = False) -> None:
        message = partition.step(self.now_ms, self.run_ms, dropped=dropped)
        self.check()
        if message is not None:
            self._post(message)

    def step_owner(self, *, dropped: bool = False, dies: bool = False) -> None:
        grants = self.owner.step(self.now_ms, dropped=dropped)
        if dies:
            self.owner.take_over(self.now_ms)
            return
        self.messages += len(grants)
        self.old_grants.extend(grants)
        self.grants += [grant for grant in grants if self.rng.random() >= self.lose]

    def _post(self, value: bytes) -> None:
        self.messages += 1
        self.old_requests.append(value)
        if self.rng.random() >= self.lose:
            self.requests.append(value)

    def deliver_request(self, index: int) -> None:
        value = self.requests.pop(index)
        self.owner.inbox.append(value)
        if value.startswith(SLOTS_WANTED.prefix):
            message = SLOTS_WANTED.decode(value)
            partition = self.partitions[message.partition]
            if message.epoch == partition.epoch:
                partition.heard_ms = self.now_ms

    def deliver_grant(self, index: int) -> None:
        number, value = self.grants.pop(index)
        self.partitions[number].inbox.append(value)

    def deliver_old(self) -> None:
        """Something that was delivered, or lost, long ago comes now."""
        if self.old_requests:
            self.owner.inbox.append(self.rng.choice(self.old_requests))
        if self.old_grants:
            number, value = self.rng.choice(self.old_grants)
            self.partitions[number].inbox.append(value)

    def advance(self, ms: int) -> None:
        """Time goes on. A partition that nobody heard for so long has lost the log, and what comes
        back is another owner of it."""
        self.now_ms += ms
        for partition in self.partitions:
            silent = self.now_ms - partition.heard_ms
            if partition.places.answered and silent >= PARTITION_SILENT_MS - 1_000:
                partition.take_over()

    def settle(self, ms: int, *, every_ms: int = 20) -> None:
        """Everybody does their work for so long; what is not lost arrives in order."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.advance(every_ms)
            for worker in list(self.offers):
                if self.now_ms - self.offered_ms.get(worker, 0) >= 5_000:
                    self.offer(worker)
            while self.requests:
                self.deliver_request(0)
            if self.owner.wants(self.now_ms):
                self.step_owner()
            while self.grants:
                self.deliver_grant(0)
            for partition in self.partitions:
                self.step_partition(partition)

    # --- what must hold --------------------------------------------------------------------------

    def held(self) -> Counter[str]:
        return sum((Counter(p.leases) for p in self.partitions), Counter())

    def check(self) -> None:
        for worker, count in self.held().items():
            assert count <= self.most[worker], f"{worker} has {count} of {self.most[worker]}"

    def waiting(self) -> int:
        return sum(len(queue) for p in self.partitions for queue in p.queue.values())

    def act(self) -> None:
        """One thing happens, whichever."""
        rng = self.rng
        what = rng.random()
        partition = rng.choice(self.partitions)
        if what < 0.30:
            self.step_partition(partition, dropped=rng.random() < 0.05)
        elif what < 0.50 and self.requests:
            self.deliver_request(0 if rng.random() < 0.8 else rng.randrange(len(self.requests)))
        elif what < 0.70 and self.grants:
            self.deliver_grant(0 if rng.random() < 0.8 else rng.randrange(len(self.grants)))
        elif what < 0.73:
            self.deliver_old()
        elif what < 0.85:
            self.step_owner(dropped=rng.random() < 0.05, dies=rng.random() < 0.03)
        elif what < 0.91:
            partition.want(rng.choice("ab"), rng.randrange(4), self.now_ms)
        elif what < 0.93 and self.offers:
            self.offer(rng.choice(sorted(self.offers)), draining=rng.random() < 0.1)
        elif what < 0.94:
            partition.take_over()
        elif what < 0.945:
            self.owner.take_over(self.now_ms)
        elif what < 0.95:
            self.start_worker(
                f"w{rng.randrange(4)}", rng.randrange(5), rng.choice([("a",), ("a", "b"), ("b",)])
            )
        else:
            self.advance(rng.choice([1, 4, 20, 100, 1_000, 6_000]))
