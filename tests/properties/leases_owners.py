"""Schedulers of the simulation: the real partition task, one step of its process at a time.

And an owner of the places that is honest and simple; it may promise a few too many, as places are
soft.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import ceil
from typing import Any

from processors import topology
from processors.jobs import Budget
from processors.scheduler import Scheduler
from processors.scheduler_topology import SCHEDULER
from processors.slots import Slots
from processors.slots_topology import SLOTS
from processors.targets import TopicTargets
from schemas import bindings
from schemas.slots import Places, SlotsGranted, SlotsWanted
from streams.binding import Logic, Topology
from streams.crash import unarmed
from streams.errors import StreamError
from streams.memory import MemoryLog, MemoryStores
from streams.ports import Record
from streams.takeover import TakeOver
from streams.task import PartitionTask, Parts
from tests.properties.leases_log import NAMESPACE, POOL, Around, Topics, decoded, name


class Executor:
    """Meets `streams.task.Executor`: what is submitted is done a little later."""

    def __init__(self, world: Around) -> None:
        self._world = world
        self._work: list[tuple[float, Callable[[], object], Callable[[object], None]]] = []

    def submit(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        latency_s = self._world.rng.choice((0.001, 0.003, 0.01, 0.08))
        self._work.append((self._world.clock.monotonic_s() + latency_s, work, done))

    def crash(self) -> None:
        """The process is gone; what it had asked for last may be done all the same."""
        for _, work, _ in self._work:
            if self._world.rng.random() < 0.5:
                with suppress(StreamError):
                    work()
        self._work.clear()

    def run(self) -> None:
        for entry in list(self._work):
            at_s, work, done = entry
            if at_s <= self._world.clock.monotonic_s():
                self._work.remove(entry)
                result: object
                try:
                    result = work()
                except Exception as error:  # noqa: BLE001 - the task is handed whatever it was
                    result = error
                done(result)


class Feed:
    """Meets `streams.task.Inputs` for one task."""

    def __init__(self, world: Around, partition: int, topics: tuple[str, ...]) -> None:
        self._world = world
        self._topics = topics
        self._reader = MemoryLog(world.broker).reader("inputs", committed=True)
        self._logs = [world.partition(topic, partition) for topic in topics]
        self._seen: list[int] = []
        self._token = 0
        self.stalled_until_ms = 0

    def start(self, partition: int, token: int, positions: Mapping[str, int]) -> None:
        self._reader.assign({(name(topic), partition): at for topic, at in positions.items()})
        self._token = token
        self._seen = []

    def stop(self, partition: int) -> None:
        self._reader.unassign([(name(topic), partition) for topic in self._topics])

    def pause(self, partition: int, topic: str) -> None:
        self._reader.pause([(name(topic), partition)])

    def resume(self, partition: int, topic: str) -> None:
        self._reader.resume([(name(topic), partition)])

    def pump(self, task: PartitionTask, most: int) -> None:
        ends = [log.end for log in self._logs]
        if ends == self._seen or self._world.mono_ms < self.stalled_until_ms:
            return
        records = self._reader.read(most, 0)
        if not records:
            self._seen = ends
        by_topic: dict[str, list[Record]] = {}
        for record in records:
            by_topic.setdefault(record.topic[len(NAMESPACE) + 1 :], []).append(record)
        for topic, records in by_topic.items():
            task.receive(self._token, records, topic)


def scheduler(world: Around, partition: int) -> Scheduler:
    return Scheduler(
        namespace=NAMESPACE, partition=partition, partitions=world.partitions, cluster="c",
        cluster_key=b"key" * 8, tz="sim", budget=Budget(), alarm=world.alarm,
        targets=TopicTargets(MemoryLog(world.broker).topics(), world.alarm),
        lease_ms=world.lease_ms,
    )  # fmt: skip


def slots(world: Around, partition: int) -> Slots:
    return Slots(
        namespace=NAMESPACE,
        partition=partition,
        partitions=world.partitions,
        alarm=world.alarm,
        lease_ms=world.lease_ms,
    )


PROCESSORS: Mapping[str, tuple[Topology, Callable[[Around, int], Logic]]] = {
    "scheduler": (SCHEDULER, scheduler),
    "slots": (SLOTS, slots),
}


class Owner:
    """One process's task for one partition of a processor."""

    def __init__(
        self, world: Around, partition: int, stores: MemoryStores, processor: str = "scheduler"
    ) -> None:
        self.world = world
        self.stores = stores
        self.processor = processor
        topology, make = PROCESSORS[processor]
        self._urgent = topology.urgent
        self.logic = make(world, partition)
        log = MemoryLog(world.broker)
        self.executor = Executor(world)
        self.feed = Feed(world, partition, topology.inputs)
        take_over = TakeOver(
            topology, namespace=NAMESPACE, cluster="c", partitions=world.partitions, log=log,
            stores=stores, clock=world.clock, alarm=world.alarm, crash=unarmed,
        )  # fmt: skip
        self.task = PartitionTask(
            partition,
            Parts(
                topology=topology, namespace=NAMESPACE, owner="o", logic=self.logic,
                take_over=take_over, executor=self.executor, inputs=self.feed,
                outbox=log.outbox("outbox"), clock=world.clock, alarm=world.alarm, crash=unarmed,
            ),
        )  # fmt: skip
        self._ends: tuple[float, int, dict[str, int]] | None = None

    def turn(self, *, assigned: bool = True) -> None:
        """What the runner does in one round, for this task."""
        task, world = self.task, self.world
        self.executor.run()
        if assigned and task.wants_take_over:
            task.take_over()
        self.feed.pump(task, world.rng.choice((1, 5, 200)))
        self._ask_ends()
        task.turn()
        assert task.fatal is None, repr(task.fatal)

    def _ask_ends(self) -> None:
        now_s = self.world.clock.monotonic_s()
        if self._ends is None and self.task.wants_ends:
            partition = self.task.partition
            ends = {t: self.world.partition(t, partition).end for t in self._urgent}
            at_s = now_s + self.world.rng.choice((0.005, 0.1))
            self._ends = (at_s, self.world.clock.wall_ms(), ends)
        elif self._ends is not None and self._ends[0] <= now_s:
            _, asked_ms, ends = self._ends
            self._ends = None
            self.task.ends_read(asked_ms, ends)

    def crash(self) -> None:
        self.executor.crash()
        opened = self.stores._open.get(self.task.partition)
        if opened is not None:
            opened.close()

    def figures(self) -> Mapping[str, int]:
        return self.logic.figures()


class HonestSlots:
    """Divides every worker's places evenly, rounded up."""

    def __init__(self, world: Around) -> None:
        self._world = world
        requests = [(topology.SLOT_REQUESTS, p) for p in range(world.partitions)]
        self._requests = Topics(world, requests, from_end=False)
        self._offers: dict[str, Any] = {}
        self._seen_ms: dict[str, int] = {}
        self._demands: dict[int, SlotsWanted] = {}
        self._granted: dict[int, SlotsGranted] = {}
        self._sent_ms: dict[int, int] = {}

    def step(self) -> None:
        now_ms = self._world.clock.wall_ms()
        for record in self._requests.read():
            assert record.value is not None
            message = decoded(record.value)
            if not isinstance(message, SlotsWanted):
                known = self._offers.get(message.worker)
                if known is None or message.n > known.n:
                    self._offers[message.worker] = message
                    self._seen_ms[message.worker] = now_ms
            elif message.limit == f"pool:{POOL}":
                before = self._demands.get(message.partition)
                if before is None or (message.epoch, message.n) > (before.epoch, before.n):
                    self._demands[message.partition] = message
        for partition, demand in self._demands.items():
            self._grant(partition, demand, now_ms)

    def _grant(self, partition: int, demand: SlotsWanted, now_ms: int) -> None:
        count = self._world.partitions
        workers = {
            worker: Places(
                count=ceil((offer.places + offer.ahead) / count),
                inbox_partition=offer.inbox_partition, handlers=offer.handlers,
            )
            for worker, offer in self._offers.items()
            if not offer.draining and now_ms - self._seen_ms[worker] < 5_000
        }  # fmt: skip
        last = self._granted.get(partition)
        if last is None or last.epoch != demand.epoch:
            n = demand.answers + 1
        elif last.workers != workers:
            n = last.n + 1
        elif demand.answers < last.n and now_ms - self._sent_ms[partition] > 200:
            n = last.n
        else:
            return
        message = SlotsGranted(
            limit=demand.limit, partition=partition, epoch=demand.epoch, n=n, workers=workers
        )
        self._granted[partition], self._sent_ms[partition] = message, now_ms
        value = bindings.SLOTS_GRANTED.encode(message)
        self._world.produce(topology.SLOT_GRANTS, partition, value, lossy=True)
