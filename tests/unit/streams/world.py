"""A cluster in memory and processes that own its only partition, moved by hand.

Nothing happens but in a call: commits run when `Process.work` lets them, inputs arrive when it
pumps them, time passes when the clock is moved. A process that is killed stops in the middle of
what it did, and another one takes over.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from schemas.bindings import MARK, QUARANTINED
from schemas.events import Quarantined
from schemas.state import Mark
from streams.binding import Logic, Topology
from streams.errors import OutOfRange
from streams.memory import ManualClock, MemoryBroker, MemoryLog, MemoryStores
from streams.ports import Produced, Record
from streams.takeover import TakeOver
from streams.task import PartitionTask, Parts, Stage
from tests.unit.streams.toy import (
    DEFS,
    EVENTS,
    IN,
    NAMESPACE,
    QUARANTINE,
    STATE,
    TOY,
    Toy,
    index,
    name,
)

TID = f"{NAMESPACE}-toy-0"
"""Transactional id of the partition."""


class Killed(BaseException):
    """The process is gone, as by kill -9: nothing after this happens."""


class World:
    """Topics, time, a disk; what is in the log as a reader of committed records sees it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock)
        self.stores = MemoryStores()
        self.alarms: list[tuple[str, dict[str, Any]]] = []
        for topic in (IN, EVENTS, QUARANTINE):
            self.broker.create_topic(name(topic))
        for topic in (STATE, DEFS):
            self.broker.create_topic(name(topic), compacted=True)
        for topic in ("out", "other", "replies", "elsewhere"):
            self.broker.create_topic(topic)
        self._outside = MemoryLog(self.broker)

    def alarm(self, event: str, **values: Any) -> None:
        self.alarms.append((event, values))

    def alarmed(self, event: str) -> list[dict[str, Any]]:
        return [values for found, values in self.alarms if found == event]

    def send(self, *texts: str) -> None:
        """Append input records."""
        outbox = self._outside.outbox("user")
        outbox.send(Produced(name(IN), 0, None, text.encode()) for text in texts)

    def process(
        self, crash: Callable[[str], None] = lambda _: None, stores: MemoryStores | None = None
    ) -> "Process":
        """A process, on a machine of its own where it has `stores` of its own."""
        return Process(self, crash, self.stores if stores is None else stores)

    # --- what is there ---------------------------------------------------------------------------

    def records(self, topic: str, *, committed: bool = True) -> list[Record]:
        reader = self._outside.reader("view", committed=committed)
        (start,) = self._outside.offsets().start([(topic, 0)]).values()
        reader.assign({(topic, 0): start})
        found: list[Record] = []
        while batch := reader.read(1_000, 0):
            found += batch
        return found

    def events(self) -> list[str]:
        """What the processor's events say."""
        values = [record.value for record in self.records(name(EVENTS)) if record.value]
        return [msgspec.json.decode(value)["what"] for value in values if value.startswith(b"{")]

    def runs(self, topic: str = "out") -> list[str]:
        """Keys of what a user's topic received."""
        return [r.value.decode().split()[1] for r in self.records(topic) if r.value is not None]

    def marks(self) -> list[Mark]:
        return [
            MARK.decode(record.value)
            for record in self.records(name(STATE))
            if record.key == b"!mark" and record.value is not None
        ]

    def quarantined(self) -> list[Quarantined]:
        found = [record.value for record in self.records(name(QUARANTINE))]
        return [QUARANTINED.decode(value) for value in found if value is not None]

    def fold(self) -> dict[bytes, bytes]:
        """State and index as they follow from the changelogs."""
        folded: dict[bytes, bytes] = {}
        for log in TOY.changelogs:
            for record in self.records(name(log.topic)):
                if record.key is None or record.key == b"!mark":
                    continue
                key = log.store_key(record.key)
                folded.pop(key, None)
                if record.value is not None:
                    folded[key] = record.value
        for key, value in list(folded.items()):
            if key.startswith(b"s/"):
                folded.update(index(key, value))
        return dict(sorted(folded.items()))

    def stored(self) -> dict[bytes, bytes]:
        """What the disk has, without what the machinery keeps for itself."""
        kept = self.stores.contents(0)
        return {key: value for key, value in kept.items() if not key.startswith(b"m/")}

    def hidden(self) -> list[str]:
        """Topics in which something is neither committed nor aborted."""
        offsets = self._outside.offsets()
        topics = [name(t) for t in (STATE, DEFS, EVENTS, QUARANTINE)] + ["out", "other"]
        keys = [(topic, 0) for topic in topics if self.broker.partition_count(topic)]
        stable, end = offsets.stable_end(keys), offsets.end(keys)
        return [topic for topic, partition in keys if stable[topic, 0] < end[topic, 0]]


class Process:
    """One process that is told to own the partition."""

    def __init__(self, world: World, crash: Callable[[str], None], stores: MemoryStores) -> None:
        self.world = world
        self.stores = stores
        self.log = MemoryLog(world.broker, crash)
        self.logic = Toy()
        self.executor = _Executor()
        self.inputs = _Inputs(self)
        self.outbox = self.log.outbox("outbox")
        self.crash = crash
        self.task = self._task(TOY, self.logic)

    def _task(self, topology: Topology, logic: Logic) -> PartitionTask:
        world = self.world
        take_over = TakeOver(
            topology, namespace=NAMESPACE, cluster="c", partitions=1, log=self.log,
            stores=self.stores, clock=world.clock, alarm=world.alarm, crash=self.crash,
        )  # fmt: skip
        return PartitionTask(0, Parts(
            topology=topology, namespace=NAMESPACE, owner="me", logic=logic, take_over=take_over,
            executor=self.executor, inputs=self.inputs, outbox=self.outbox, clock=world.clock,
            alarm=world.alarm, crash=self.crash,
        ))  # fmt: skip

    def work(self, rounds: int = 30, ms: int = 5) -> None:
        """So many rounds of the loop, each so many milliseconds after the one before."""
        for _ in range(rounds):
            self.round()
            self.world.clock.advance(ms)

    def round(self) -> None:
        if self.task.wants_take_over:
            self.task.take_over()
        self.executor.run()
        self.inputs.pump()
        self.task.turn()
        self.executor.run()

    def until_deciding(self) -> "Process":
        """Take over and prove it; inputs are asked for, none has come."""
        for _ in range(1_000):
            if self.task.stage is Stage.DECIDING and self.task.ready:
                return self
            if self.task.wants_take_over:
                self.task.take_over()
            self.executor.run()
            self.world.clock.advance(10)
        raise AssertionError(f"still {self.task.stage}: {self.world.alarms[-3:]}")

    def die(self) -> None:
        """Kill -9, seen from outside: nothing of it goes on, its disk stays."""
        self.stores.kill()
        self.executor.queue.clear()

    @property
    def memory(self) -> Mapping[str, int]:
        return {topic: len(buffer) for topic, buffer in self.task._buffers.items()}


class _Executor:
    """Runs the work handed over when it is told to."""

    def __init__(self) -> None:
        self.queue: deque[tuple[Callable[[], object], Callable[[object], None]]] = deque()
        self.held = False

    def submit(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        self.queue.append((work, done))

    def run(self) -> None:
        while self.queue and not self.held:
            work, done = self.queue.popleft()
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - as a future does it
                result = error
            done(result)


class _Inputs:
    """Feeds the task when it is pumped."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._reader = process.log.reader("inputs", committed=True)
        self.token: int | None = None
        self.starts: list[tuple[int, dict[str, int]]] = []
        self.paused = 0
        self.resumed = 0
        self.held: list[tuple[int, list[Record]]] = []
        """Batches to hand over late, with their token."""

    def start(self, partition: int, token: int, positions: Mapping[str, int]) -> None:
        self.token = token
        self.starts.append((token, dict(positions)))
        self._reader.assign({(name(topic), partition): at for topic, at in positions.items()})

    def stop(self, partition: int) -> None:
        if self.token is not None:
            self._reader.unassign([(name(IN), partition)])
            self.token = None

    def pause(self, partition: int, topic: str) -> None:
        self.paused += 1
        self._reader.pause([(name(topic), partition)])

    def resume(self, partition: int, topic: str) -> None:
        self.resumed += 1
        self._reader.resume([(name(topic), partition)])

    def pump(self) -> None:
        if self.token is None:
            return
        try:
            records = self._reader.read(2_000, 0)
        except OutOfRange as error:
            token = self.token
            self.stop(0)
            self._process.task.lost_input(token, str(error))
            return
        if records:
            self._process.task.receive(self.token, records, IN)
