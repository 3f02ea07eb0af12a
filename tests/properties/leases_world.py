"""Schedulers, workers and users over a log in memory, while everything that may go wrong does.

Real are the partition tasks, take-over and restore, the scheduler's logic and its places. Workers
keep to the protocol (they renew, give up in time, remember what they said), but die, freeze, drain,
lose messages and say things twice or late. The owner of the places is honest and simple; it may
promise a few too many, as places are soft.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from math import ceil
from random import Random
from typing import Any

import msgspec

from processors import topology
from processors.jobs import Budget
from processors.scheduler import Scheduler
from processors.scheduler_topology import SCHEDULER
from processors.targets import TopicTargets
from schemas import bindings
from schemas.codec import schema_name
from schemas.commands import (
    AnyCommand,
    CancelExecution,
    DeleteJob,
    JobSpec,
    PauseJob,
    PutJob,
    ResumeJob,
    ScheduleSpec,
    TopicTargetSpec,
    TriggerJob,
    WorkerTargetSpec,
)
from schemas.leases import Report, ReportBatch, ReportKind, WorkItem
from schemas.partition import partition_of
from schemas.slots import Places, SlotsGranted, SlotsWanted
from streams.crash import unarmed
from streams.errors import Doubt, StreamError
from streams.layout import topic_name
from streams.memory import ManualClock, MemoryBroker, MemoryLog, MemoryStores
from streams.ports import Produced, Record
from streams.takeover import TakeOver
from streams.task import PartitionTask, Parts
from streams.topics import PER_TASK

NAMESPACE = "sim"
POOL = "default"
INBOX = topology.inbox_of(POOL)
INBOXES = topology.INBOX_PARTITIONS
FAR = "2099-01-01T00:00:00Z"
HANDLERS = ("h1", "h2", "rare")
JOBS = [("a", "j1"), ("a", "j2"), ("a", "j3"), ("b", "j4"), ("b", "j5"), ("c", "j6")]


def name(topic: str) -> str:
    return topic_name(NAMESPACE, topic)


def decoded(value: bytes) -> Any:
    kind = schema_name(value)
    assert kind is not None
    return getattr(bindings, _BINDINGS[kind]).decode(value)


_BINDINGS = {
    codec.kind.__name__: key
    for key, codec in vars(bindings).items()
    if isinstance(codec, bindings.Codec)
}


# --- schedulers -----------------------------------------------------------------------------------


class Executor:
    """Meets `streams.task.Executor`: what is submitted is done a little later."""

    def __init__(self, world: "World") -> None:
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

    def __init__(self, log: MemoryLog) -> None:
        self._reader = log.reader("inputs", committed=True)
        self._token = 0

    def start(self, partition: int, token: int, positions: Mapping[str, int]) -> None:
        self._reader.assign({(name(topic), partition): at for topic, at in positions.items()})
        self._token = token

    def stop(self, partition: int) -> None:
        self._reader.unassign([(name(topic), partition) for topic in SCHEDULER.inputs])

    def pause(self, partition: int, topic: str) -> None:
        self._reader.pause([(name(topic), partition)])

    def resume(self, partition: int, topic: str) -> None:
        self._reader.resume([(name(topic), partition)])

    def pump(self, task: PartitionTask, most: int) -> None:
        by_topic: dict[str, list[Record]] = {}
        for record in self._reader.read(most, 0):
            by_topic.setdefault(record.topic[len(NAMESPACE) + 1 :], []).append(record)
        for topic, records in by_topic.items():
            task.receive(self._token, records, topic)


class Owner:
    """One process's task for one partition."""

    def __init__(self, world: "World", partition: int, stores: MemoryStores) -> None:
        self.world = world
        self.stores = stores
        log = MemoryLog(world.broker)
        self.logic = Scheduler(
            namespace=NAMESPACE, partition=partition, partitions=world.partitions, cluster="c",
            cluster_key=b"key" * 8, tz="sim", targets=TopicTargets(log.topics(), world.alarm),
            budget=Budget(), alarm=world.alarm, lease_ms=world.lease_ms,
        )  # fmt: skip
        self.executor = Executor(world)
        self.feed = Feed(log)
        take_over = TakeOver(
            SCHEDULER, namespace=NAMESPACE, cluster="c", partitions=world.partitions, log=log,
            stores=stores, clock=world.clock, alarm=world.alarm, crash=unarmed,
        )  # fmt: skip
        self.task = PartitionTask(
            partition,
            Parts(
                topology=SCHEDULER, namespace=NAMESPACE, owner="o", logic=self.logic,
                take_over=take_over, executor=self.executor, inputs=self.feed,
                outbox=log.outbox("outbox"), clock=world.clock, alarm=world.alarm, crash=unarmed,
            ),
        )  # fmt: skip
        self._ends: tuple[float, int, dict[str, int]] | None = None

    def turn(self, *, assigned: bool) -> None:
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
            ends = {
                topic: self.world.end(topic, self.task.partition) for topic in SCHEDULER.urgent
            }
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


# --- places ---------------------------------------------------------------------------------------


class HonestSlots:
    """Divides every worker's places evenly, rounded up."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._reader = MemoryLog(world.broker).reader("slots", committed=True)
        self._reader.assign({(name(topology.SLOT_REQUESTS), p): 0 for p in range(world.partitions)})
        self._offers: dict[str, Any] = {}
        self._seen_ms: dict[str, int] = {}
        self._demands: dict[int, SlotsWanted] = {}
        self._granted: dict[int, SlotsGranted] = {}
        self._sent_ms: dict[int, int] = {}

    def step(self) -> None:
        now_ms = self._world.clock.wall_ms()
        for record in self._reader.read(1_000, 0):
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


# --- workers --------------------------------------------------------------------------------------


class Run(msgspec.Struct):
    """What a handler did; `ended_ms` None: it is at it."""

    item: WorkItem
    worker: str
    begun_ms: int
    until_ms: int
    ended_ms: int | None = None


class Held:
    """A lease as its worker sees it, in monotonic time."""

    def __init__(self, item: WorkItem, ends_ms: int, renew_ms: int) -> None:
        self.item = item
        self.ends_ms = ends_ms
        self.renew_ms = renew_ms
        self.run: Run | None = None
        self.told = ""
        self.patience_ms = 0


class Worker:
    """Keeps to the protocol, as far as it is alive and hears."""

    def __init__(self, world: "World", label: str, places: int, handlers: tuple[str, ...]) -> None:
        self.world = world
        self.name = label
        self.places = places
        self.handlers = handlers
        self.inbox = world.rng.randrange(INBOXES)
        self.ahead = world.rng.choice((0, 0, 2))
        self.deaf = 0.0
        self.chatty = 0.0
        self.frozen_until_ms = 0
        self.draining = False
        self.held: dict[str, Held] = {}
        self._said: dict[str, Report] = {}
        self._outgoing: list[tuple[int, int, Report]] = []
        self._reader = MemoryLog(world.broker).reader(label, committed=True)
        self._reader.assign({(name(INBOX), self.inbox): world.end(INBOX, self.inbox)})
        self._offered_ms = -1
        self._n = 0

    # As in `workers.lease`.
    @property
    def _margin_ms(self) -> int:
        return min(5_000, self.world.lease_ms // 6)

    def believes(self, held: Held) -> bool:
        """Whether it counts on the lease now."""
        return self.world.mono_ms < held.ends_ms - self._margin_ms

    @property
    def frozen(self) -> bool:
        return self.world.mono_ms < self.frozen_until_ms

    def step(self) -> None:
        if self.frozen:
            return
        now_ms = self.world.mono_ms
        # Time first: a process that comes back from a long sleep gives up before it listens.
        for held in list(self.held.values()):
            self._look_at(held, now_ms)
        for record in self._reader.read(1_000, 0):
            batch = decoded(record.value or b"")
            if batch.worker != self.name or self.world.rng.random() < self.deaf:
                continue
            for item in batch.items:
                self._take(item, now_ms)
        for held in list(self.held.values()):
            self._begin_if_it_can(held, now_ms)
        self._speak(now_ms)

    def offer(self) -> None:
        self._n += 1
        offer = bindings.WORKER_OFFER.kind(
            pool=POOL, worker=self.name, inbox_partition=self.inbox, handlers=self.handlers,
            places=self.places, ahead=self.ahead, draining=self.draining, n=self._n,
        )
        home = partition_of(f"pool:{POOL}", self.world.partitions)
        value = bindings.WORKER_OFFER.encode(offer)
        self.world.produce(topology.SLOT_REQUESTS, home, value, lossy=True)

    def drain(self) -> None:
        """Take nothing new; what has not begun goes back."""
        self.draining = True
        self.offer()
        for held in list(self.held.values()):
            if held.run is None:
                self._close(held, "returned", reason="drain")

    def leave(self) -> None:
        """Hand everything back and say the rest."""
        for held in list(self.held.values()):
            self._end_run(held)
            self._close(held, "stopped" if held.told == "cancel" else "returned", reason="drain")
        self._speak(1 << 60)

    def die(self) -> None:
        """Runs end with the process, and what was not said is never said."""
        for held in self.held.values():
            self._end_run(held)
        self.held.clear()

    # --- items ---------------------------------------------------------------------------------

    def _take(self, item: WorkItem, now_ms: int) -> None:
        known = self.held.get(item.execution_id)
        if known is not None and known.item.delivery != item.delivery:
            if item.delivery < known.item.delivery:
                return
            self._lose(known)
            known = None
        said = self._said.get(item.execution_id)
        if known is None and said is not None and said.delivery >= item.delivery:
            if said.delivery == item.delivery:
                self._say(said, item.partition)
            return
        match item.kind:
            case "work":
                self._work(item, known, now_ms)
            case "cancel" if known is None:
                self._answer(item, "stopped")
            case "cancel":
                self._stop(known, now_ms)
            case "revoke" if known is None:
                self._answer(item, "revoked")
            case "revoke" if known.run is None:
                self._close(known, "revoked")
            case "revoke":
                self._report(known, "already_started")

    def _work(self, item: WorkItem, known: Held | None, now_ms: int) -> None:
        if known is not None:
            self._report(known, "heartbeat")
            return
        ends_ms = now_ms + item.lease_until - self.world.clock.wall_ms()
        if self.draining:
            self._answer(item, "returned", reason="drain")
        elif item.handler not in self.handlers:
            self._answer(item, "returned", reason="no_handler")
        elif len(self.held) >= self.places + self.ahead:
            self._answer(item, "returned", reason="full")
        elif ends_ms - now_ms < self.world.lease_ms // 6:
            self._answer(item, "returned", reason="lease")
        else:
            renew_ms = ends_ms - self.world.lease_ms * 2 // 3
            self.held[item.execution_id] = Held(item, ends_ms, renew_ms)

    def _begin_if_it_can(self, held: Held, now_ms: int) -> None:
        item, world = held.item, self.world
        running = sum(other.run is not None for other in self.held.values())
        if held.run is not None or running >= self.places or item.due_at > world.clock.wall_ms():
            return
        if held.ends_ms - now_ms < world.lease_ms // 6:
            self._close(held, "returned", reason="lease")
            return
        run_ms = world.rng.choice((0, 10, 50, 300, world.lease_ms // 2, 2 * world.lease_ms))
        wall_ms = world.clock.wall_ms()
        held.run = Run(item, self.name, wall_ms, now_ms + (run_ms if world.faulty else 20))
        world.begun(held.run)

    def _look_at(self, held: Held, now_ms: int) -> None:
        run = held.run
        if run is not None and run.until_ms <= now_ms and not held.told:
            self._finish(held, run)
        elif held.told == "cancel" and now_ms >= held.patience_ms:
            self._end_run(held)
            self._close(held, self.world.rng.choice(("stopped", "abandoned")))
        elif not self.believes(held):
            self._lose(held)
        elif now_ms >= held.renew_ms:
            if run is not None:
                self._report(held, "started", started_at=run.begun_ms)
            self._report(held, "heartbeat")
            held.renew_ms = now_ms + self.world.lease_ms // 3

    def _finish(self, held: Held, run: Run) -> None:
        rng = self.world.rng
        self._end_run(held)
        state = rng.choices(("SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED"), (80, 12, 4, 4))[0]
        self._close(
            held, "outcome", state=state, reason="status" if state == "FAILED" else "",
            started_at=run.begun_ms, finished_at=self.world.clock.wall_ms(), result=b"r",
        )  # fmt: skip

    def _stop(self, held: Held, now_ms: int) -> None:
        if held.run is None:
            self._close(held, "stopped")
        elif held.told != "cancel":
            held.told = "cancel"
            held.patience_ms = now_ms + self.world.rng.choice((0, 100, 1_000))

    def _lose(self, held: Held) -> None:
        """Its time is over: stop the run and say that it is free, which may be old news."""
        self._end_run(held)
        self._close(held, "returned", reason="lease")

    def _end_run(self, held: Held) -> None:
        if held.run is not None:
            held.run.ended_ms = self.world.clock.wall_ms()

    # --- reports -------------------------------------------------------------------------------

    def _answer(self, item: WorkItem, kind: ReportKind, **fields: Any) -> None:
        self._said[item.execution_id] = self._say(report_of(item, kind, **fields), item.partition)

    def _report(self, held: Held, kind: ReportKind, **fields: Any) -> None:
        self._say(report_of(held.item, kind, **fields), held.item.partition)
        if kind == "heartbeat":
            held.ends_ms = max(held.ends_ms, self.world.mono_ms + self.world.lease_ms)

    def _close(self, held: Held, kind: ReportKind, **fields: Any) -> None:
        del self.held[held.item.execution_id]
        self._answer(held.item, kind, **fields)

    def _say(self, report: Report, partition: int) -> Report:
        """Heartbeats are in the log when they count; what else there is to say may come late."""
        rng, now_ms = self.world.rng, self.world.mono_ms
        late_ms = rng.choice((0, 0, 20, 400)) if report.kind != "heartbeat" else 0
        self._outgoing.append((now_ms + late_ms, partition, report))
        if rng.random() < self.chatty:
            self._outgoing.append((now_ms + late_ms + rng.choice((10, 3_000)), partition, report))
        if report.kind == "heartbeat":
            self._speak(now_ms)
        return report

    def _speak(self, now_ms: int) -> None:
        batches: dict[int, list[Report]] = {}
        for entry in [entry for entry in self._outgoing if entry[0] <= now_ms]:
            self._outgoing.remove(entry)
            batches.setdefault(entry[1], []).append(entry[2])
        for partition, reports in batches.items():
            batch = ReportBatch(worker=self.name, reports=tuple(reports))
            self.world.produce(
                topology.REPORTS, partition, bindings.REPORT_BATCH.encode(batch), lossy=False
            )
        if now_ms - self._offered_ms >= 1_000 or self._offered_ms < 0:
            self._offered_ms = now_ms
            self.offer()


def report_of(item: WorkItem, kind: ReportKind, **fields: Any) -> Report:
    return Report(
        kind=kind, tenant=item.tenant, job=item.job, execution_id=item.execution_id,
        ordinal=item.ordinal, delivery=item.delivery, token=item.token, **fields,
    )


# --- the world ------------------------------------------------------------------------------------


class World:
    """One installation. `play` lets things happen, `heal` lets them come to rest."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.clock = ManualClock(1_772_445_600_000)
        self.broker = MemoryBroker(self.clock)
        self.partitions = rng.choice((2, 2, 3))
        self.jumps = seed % 5 == 4
        self.lease_ms = 30_000 if self.jumps else 3_000
        self.pace = 8 if self.jumps else 1
        self.faulty = True
        self.loss = rng.choice((0.0, 0.05, 0.3))
        for spec in topology.TOPICS:
            count = self.partitions if spec.partitions == PER_TASK else spec.partitions
            self.broker.create_topic(
                name(spec.suffix), count, compacted=spec.cleanup == "compact",
                append_time=spec.append_time,
            )  # fmt: skip
        self.broker.create_topic("orders", 2)
        self.stores = [MemoryStores() for _ in range(2)]
        self.owners = [Owner(self, p, self.stores[0]) for p in range(self.partitions)]
        self.zombies: list[tuple[int, Owner]] = []
        self.slots = HonestSlots(self)
        self.workers: list[Worker] = []
        self.runs: list[Run] = []
        self.alarms: list[tuple[str, Mapping[str, Any]]] = []
        self.commands = 0
        self._seen: list[str] = []
        self._items = MemoryLog(self.broker).reader("items", committed=True)
        self._items.assign({(name(INBOX), p): 0 for p in range(INBOXES)})
        self._fences: dict[tuple[str, str], int] = {}
        for _ in range(2):
            self._start_worker()
        for _ in range(6):
            self._put()

    def alarm(self, event: str, **values: Any) -> None:
        self.alarms.append((event, values))
        assert event not in ("task_failed", "due_entry_crashed"), (event, values)
        assert event != "quarantined" or values["topic"] == topology.COMMANDS, values

    @property
    def mono_ms(self) -> int:
        return round(self.clock.monotonic_s() * 1_000)

    def end(self, topic: str, partition: int) -> int:
        found = self.broker.partition(name(topic), partition)
        assert found is not None
        return found.end

    def produce(self, topic: str, partition: int, value: bytes, *, lossy: bool) -> None:
        if lossy and self.faulty and self.rng.random() < self.loss:
            return
        self.broker.append(Produced(name(topic), partition, b"k", value))

    # --- time ----------------------------------------------------------------------------------

    def play(self, rounds: int) -> None:
        """So many rounds, each a little time and perhaps something that happens."""
        rng = self.rng
        for _ in range(rounds):
            self.clock.advance(self.pace * rng.choice((1, 5, 20, 20, 60, 60, 150)))
            if rng.random() < 0.35:
                rng.choices([act for act, _ in ACTS], [weight for _, weight in ACTS])[0](self)
            self.round()

    def round(self) -> None:
        """Everybody has a turn, in any order."""
        turns: list[Callable[[], None]] = [self.slots.step]
        turns += [lambda o=o: o.turn(assigned=True) for o in self.owners]  # type: ignore[misc]
        turns += [w.step for w in self.workers]
        if self.faulty:
            self.rng.shuffle(turns)
        for turn in turns:
            turn()
        for until_ms, zombie in list(self.zombies):
            zombie.turn(assigned=False)
            if until_ms <= self.mono_ms:
                zombie.crash()
                self.zombies.remove((until_ms, zombie))
        for record in self._items.read(1_000, 0):
            self._see(decoded(record.value or b"").items)

    def _see(self, items: tuple[WorkItem, ...]) -> None:
        """I6: a fence belongs to one lease, and later leases of a job have higher ones."""
        for item in items:
            if item.kind == "work":
                self._seen.append(item.execution_id)

    def begun(self, run: Run) -> None:
        """A worker begins: who else believes that it may?"""
        item = run.item
        assert run.begun_ms >= item.due_at, "I1: early"
        for worker in self.workers:
            other = worker.held.get(item.execution_id)
            if other is None or worker.name == run.worker or worker.frozen:
                continue
            assert not worker.believes(other), (
                f"I7: {item.execution_id} begins as delivery {item.delivery} at {run.worker}, while "
                f"{worker.name} holds delivery {other.item.delivery}"
            )
        key = (item.tenant, item.job)
        assert item.fence > self._fences.get(key, 0), f"I6: {item.execution_id} began behind"
        self._fences[key] = item.fence
        self.runs.append(run)

    # --- what happens --------------------------------------------------------------------------

    def send(self, command: AnyCommand) -> None:
        self.commands += 1
        named = msgspec.structs.replace(
            command, command_id=f"c{self.commands}", reply_to="me", by="sim"
        )
        value = bindings.COMMANDS[type(command).__name__].encode(named)
        partition = partition_of(f"{command.tenant}/{command.job}", self.partitions)
        if self.rng.random() < 0.03:
            partition = (partition + 1) % self.partitions  # it is sent home
        self.produce(topology.COMMANDS, partition, value, lossy=False)
        if self.rng.random() < 0.1:
            self.produce(topology.COMMANDS, partition, value, lossy=False)  # nobody answered

    def _job(self) -> dict[str, str]:
        tenant, job = self.rng.choice(JOBS)
        return {"tenant": tenant, "job": job}

    def _put(self) -> None:
        rng = self.rng
        spec = JobSpec(
            schedules=(ScheduleSpec(every=f"{rng.choice((1, 2, 5)) * self.pace}s"),)
            if rng.random() < 0.8
            else (ScheduleSpec(now=True),),
            payload=b"%d" % rng.randrange(10),
            worker=WorkerTargetSpec(handler=rng.choice(HANDLERS)) if rng.random() < 0.9 else None,
        )
        if spec.worker is None:
            spec = msgspec.structs.replace(spec, topic=TopicTargetSpec(name="orders"))
        self.send(PutJob(**self._job(), spec=spec))

    def _trigger(self) -> None:
        self.send(TriggerJob(**self._job()))

    def _pause(self) -> None:
        self.send(PauseJob(**self._job()))

    def _resume(self) -> None:
        self.send(ResumeJob(**self._job()))

    def _delete(self) -> None:
        self.send(DeleteJob(**self._job()))

    def _cancel(self) -> None:
        if self._seen:
            execution_id = self.rng.choice(self._seen[-6:])
            tenant, _, rest = execution_id.partition("/")
            job = rest.partition(":")[0]
            self.send(CancelExecution(tenant=tenant, job=job, execution_id=execution_id))

    def _start_worker(self) -> None:
        rng = self.rng
        if len(self.workers) >= 4:
            return
        label = f"w{rng.randrange(3)}-{rng.getrandbits(32):08x}"
        handlers = HANDLERS[: rng.choice((1, 2, 2, 3))]
        self.workers.append(Worker(self, label, rng.choice((1, 2, 4)), handlers))
        self.workers[-1].deaf = rng.choice((0.0, 0.0, 0.3))
        self.workers[-1].chatty = rng.choice((0.0, 0.3))

    def _one_worker(self) -> Worker | None:
        return self.rng.choice(self.workers) if self.workers else None

    def _kill_worker(self) -> None:
        worker = self._one_worker()
        if worker is not None:
            worker.die()
            self.workers.remove(worker)

    def _freeze_worker(self) -> None:
        worker = self._one_worker()
        if worker is not None:
            ms = self.rng.choice((self.lease_ms // 2, self.lease_ms, 2 * self.lease_ms))
            worker.frozen_until_ms = self.mono_ms + ms

    def _drain_worker(self) -> None:
        worker = self._one_worker()
        if worker is not None and not worker.frozen:
            if not worker.draining:
                worker.drain()
            else:
                worker.leave()
                self.workers.remove(worker)

    def _change_owner(self) -> None:
        """By plan, by a crash, or while the former owner does not know it yet; on the same machine,
        on one that was the owner some time ago, or on a new one."""
        partition = self.rng.randrange(self.partitions)
        before = self.owners[partition]
        stores = self.rng.choice((before.stores, *self.stores))
        if self.rng.random() < 0.4:
            stores = next(s for s in (*self.stores, MemoryStores()) if s is not before.stores)
            self.zombies.append((self.mono_ms + self.rng.choice((50, 500, 2_000)), before))
        elif before.task.busy or self.rng.random() < 0.5:
            before.crash()
        else:
            before.task.close()
        if any(z.stores is stores and z.task.partition == partition for _, z in self.zombies):
            stores = MemoryStores()
        if self.rng.random() < 0.2:
            self.clock.advance(self.pace * self.rng.choice((500, 2_000)))
        self.owners[partition] = Owner(self, partition, stores)

    def _drop_transaction(self) -> None:
        client = f"{NAMESPACE}-scheduler-{self.rng.randrange(self.partitions)}"
        error = Doubt("the coordinator went away")
        operation = self.rng.choice(("commit", "commit", "write", "init"))
        self.broker.fail_next(operation, error, client=client, done=self.rng.random() < 0.5)

    def _sleep(self) -> None:
        self.clock.advance(self.rng.choice((1_000, self.lease_ms, 2 * self.lease_ms)))

    def _jump(self) -> None:
        if self.jumps:
            self.clock.jump(self.rng.choice((-1_500, -200, 200, 1_500)))

    def _garbage(self) -> None:
        value = self.rng.choice((b"", b"\x00\x00\x00\x00\x01x", b"{]", b"\xff"))
        self.produce(topology.COMMANDS, 0, value, lossy=False)

    # --- healing -------------------------------------------------------------------------------

    def heal(self) -> None:
        """No more faults; every job goes on and has no further ticks; good workers for all."""
        self.faulty = False
        self.broker.faults._ordered.clear()
        for worker in list(self.workers):
            worker.die()
        self.workers = [Worker(self, f"good{n}", 20, HANDLERS) for n in range(2)]
        for worker in self.workers:
            worker.deaf = worker.chatty = 0.0
        self.settle(self.lease_ms)
        for tenant, job in JOBS:
            spec = JobSpec(
                schedules=(ScheduleSpec(at=FAR),), worker=WorkerTargetSpec(handler="h1"),
                payload=b"last",
            )
            self.send(PutJob(tenant=tenant, job=job, spec=spec))
            self.send(ResumeJob(tenant=tenant, job=job))
        for _ in range(12):
            self.settle(self.lease_ms)
            if not self.busy():
                break
        while any(owner.task.busy for owner in self.owners):
            self.clock.advance(1)
            for owner in self.owners:
                owner.executor.run()

    def settle(self, ms: int) -> None:
        until_ms = self.mono_ms + ms
        while self.mono_ms < until_ms:
            self.clock.advance(25 * self.pace)
            self.round()

    def busy(self) -> bool:
        """Whether anything is open or waits anywhere."""
        return bool(self.zombies) or any(
            not owner.task.ready
            or owner.figures()["held"]
            or owner.figures()["waiting"]
            or any(state.open for state in self.states(owner))
            for owner in self.owners
        )

    def states(self, owner: Owner) -> Iterator[Any]:
        if owner.task.store is not None:
            for _, value in owner.task.store.scan(b"s/", b"s0", 10_000):
                yield bindings.JOB_STATE.decode(value)

    def committed(self, topic: str) -> list[Record]:
        """Every committed record of one of our topics."""
        reader = MemoryLog(self.broker).reader("check", committed=True)
        reader.assign({(name(topic), p): 0 for p in range(self.broker.partition_count(name(topic)))})
        records: list[Record] = []
        while more := reader.read(10_000, 0):
            records += more
        return records


ACTS: list[tuple[Callable[[World], None], int]] = [
    (World._put, 12), (World._trigger, 40), (World._pause, 6), (World._resume, 9),
    (World._delete, 5), (World._cancel, 8), (World._start_worker, 12), (World._kill_worker, 6),
    (World._freeze_worker, 4), (World._drain_worker, 5), (World._change_owner, 6),
    (World._drop_transaction, 5), (World._sleep, 2), (World._jump, 4), (World._garbage, 2),
]  # fmt: skip
