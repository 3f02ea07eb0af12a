"""Schedulers, workers and users over a log in memory, while everything that may go wrong does."""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from processors import topology
from schemas import bindings
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
from schemas.partition import partition_of
from streams.errors import Doubt
from streams.memory import ManualClock, MemoryBroker, MemoryLog, MemoryStores
from streams.memory.faults import Operation
from streams.memory.partition import MemoryPartition
from streams.ports import Produced, Record
from streams.topics import PER_TASK
from tests.properties.leases_log import INBOX, INBOXES, NAMESPACE, Topics, decoded, name
from tests.properties.leases_owners import PROCESSORS, HonestSlots, Owner
from tests.properties.leases_workers import Run, Worker

FAR = "2099-01-01T00:00:00Z"
HANDLERS = ("h1", "h2", "rare")
JOBS = [("a", "j1"), ("a", "j2"), ("a", "j3"), ("b", "j4"), ("b", "j5"), ("c", "j6"),
        ("c", "j7"), ("d", "j8")]  # fmt: skip


class World:
    """One installation. `play` lets things happen, `heal` lets them come to rest. Its places are
    owned by the real slots processor, or by one that is honest and simple."""

    def __init__(self, seed: int, *, real_slots: bool = False) -> None:
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
        self.stores = {kind: [MemoryStores() for _ in range(2)] for kind in PROCESSORS}
        self.owners = self._owners("scheduler")
        self.slots = self._owners("slots") if real_slots else []
        self.honest_slots = HonestSlots(self) if not real_slots else None
        self.zombies: list[tuple[int, Owner]] = []
        self.workers: list[Worker] = []
        self.runs: list[Run] = []
        self.alarms: list[tuple[str, Mapping[str, Any]]] = []
        self.commands = 0
        self._seen: list[str] = []
        self._job: tuple[str, str] | None = None
        self._items = Topics(self, [(INBOX, p) for p in range(INBOXES)], from_end=False)
        self._fences: dict[tuple[str, str], int] = {}
        for _ in range(2):
            self._start_worker()
        for _ in range(6):
            self._put()

    def _owners(self, processor: str) -> list[Owner]:
        stores = self.stores[processor][0]
        return [Owner(self, p, stores, processor) for p in range(self.partitions)]

    def alarm(self, event: str, **values: Any) -> None:
        self.alarms.append((event, values))
        assert event not in ("task_failed", "due_entry_crashed"), (event, values)
        assert event != "quarantined" or values["topic"] == topology.COMMANDS, values

    @property
    def mono_ms(self) -> int:
        return round(self.clock.monotonic_s() * 1_000)

    def partition(self, topic: str, partition: int) -> MemoryPartition:
        found = self.broker.partition(name(topic), partition)
        assert found is not None
        return found

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
        owners = self.owners + self.slots
        turns: list[Callable[[], None]] = [owner.turn for owner in owners]
        turns += [self.honest_slots.step] if self.honest_slots is not None else []
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

    def begun(self, run: Run) -> None:
        """A worker begins: who else believes that it may?"""
        item = run.item
        assert run.begun_at >= item.due_at, "I1: early"
        for worker in self.workers:
            other = worker.held.get(item.execution_id)
            if other is None or worker.name == run.worker or worker.frozen:
                continue
            assert not worker.believes(other), (
                f"I7: {run.worker} begins {item.execution_id} as delivery {item.delivery}, while "
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

    def _about_a_job(self, kind: Callable[..., AnyCommand], **fields: Any) -> None:
        tenant, job = self._job or self.rng.choice(JOBS)
        self.send(kind(tenant=tenant, job=job, **fields))

    def _burst(self) -> None:
        """Several commands about one job at once: they may well be decided in one transaction."""
        self._job = self.rng.choice(JOBS)
        acts = (self._put, self._put, self._trigger, self._delete, self._pause, self._resume)
        for act in self.rng.choices(acts, k=4):
            act()
        self._job = None

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
        self._about_a_job(PutJob, spec=spec)

    def _trigger(self) -> None:
        self._about_a_job(TriggerJob)

    def _pause(self) -> None:
        self._about_a_job(PauseJob)

    def _resume(self) -> None:
        self._about_a_job(ResumeJob)

    def _delete(self) -> None:
        self._about_a_job(DeleteJob)

    def _cancel(self) -> None:
        for record in self._items.read():
            self._seen += [item.execution_id for item in decoded(record.value or b"").items]
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
        owners = self.slots if self.slots and self.rng.random() < 0.4 else self.owners
        partition = self.rng.randrange(self.partitions)
        before = owners[partition]
        known = self.stores[before.processor]
        stores = self.rng.choice((before.stores, *known))
        if self.rng.random() < 0.4:
            stores = next(s for s in (*known, MemoryStores()) if s is not before.stores)
            self.zombies.append((self.mono_ms + self.rng.choice((50, 500, 2_000)), before))
        elif before.task.busy or self.rng.random() < 0.5:
            before.crash()
        else:
            before.task.close()
        if any(z.stores is stores and z.task.partition == partition for _, z in self.zombies):
            stores = MemoryStores()
        if self.rng.random() < 0.2:
            self.clock.advance(self.pace * self.rng.choice((500, 2_000)))
        owners[partition] = Owner(self, partition, stores, before.processor)

    def _drop_transaction(self) -> None:
        processor = self.rng.choice(("scheduler", "slots") if self.slots else ("scheduler",))
        client = f"{NAMESPACE}-{processor}-{self.rng.randrange(self.partitions)}"
        error = Doubt("the coordinator went away")
        operations: tuple[Operation, ...] = ("commit", "commit", "write", "init")
        operation = self.rng.choice(operations)
        self.broker.fail_next(operation, error, client=client, done=self.rng.random() < 0.5)

    def _stall_input(self) -> None:
        """What is in the log comes late, while timers go on."""
        feed = self.rng.choice(self.owners).feed
        ms = self.rng.choice((200, self.lease_ms, 2 * self.lease_ms))
        feed.stalled_until_ms = self.mono_ms + ms

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
        self.settle(self.lease_ms)
        for tenant, job in JOBS:
            spec = JobSpec(
                schedules=(ScheduleSpec(at=FAR),),
                worker=WorkerTargetSpec(handler="h1"),
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
        count = self.broker.partition_count(name(topic))
        reader.assign({(name(topic), p): 0 for p in range(count)})
        records: list[Record] = []
        while more := reader.read(10_000, 0):
            records += more
        return records


ACTS: list[tuple[Callable[[World], None], int]] = [
    (World._put, 12), (World._trigger, 40), (World._pause, 6), (World._resume, 9),
    (World._delete, 5), (World._cancel, 8), (World._start_worker, 12), (World._kill_worker, 6),
    (World._freeze_worker, 4), (World._drain_worker, 5), (World._change_owner, 6),
    (World._drop_transaction, 5), (World._stall_input, 8), (World._sleep, 2), (World._jump, 4),
    (World._garbage, 2), (World._burst, 6),
]  # fmt: skip
