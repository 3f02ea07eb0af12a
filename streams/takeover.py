"""Taking a partition over: the epoch first, then what the log says, then where to read on.

Runs on the task's own thread and decides nothing. What it returns is safe only once the first
mark is committed: a successful `init` proves nothing.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from schemas.bindings import INPUT_LOST
from schemas.events import InputLost

from .binding import Topology
from .crash import CrashPoint
from .errors import Refuse
from .layout import topic_name
from .ports import Clock, Log, Offsets, Reader, Stores, TransactionalProducer
from .repair import resolve_lost_markers
from .restore import Manifest, Restored, restore

INIT_S: Final = 10.0
COMMIT_S: Final = 12.0

Alarm = Callable[..., None]
Event = Callable[[int], tuple[bytes, bytes]]
"""From the transaction's sequence to an event's key and value."""


class TakenOver(msgspec.Struct, frozen=True):
    """What the task goes on with: its producer, its store, where its inputs are read from, and up
    to where they were written when we looked (`ends`)."""

    producer: TransactionalProducer
    restored: Restored
    positions: dict[str, int]
    ends: dict[str, int]
    events: tuple[Event, ...]


class TakeOver:
    """Takes partitions of one processor over, one call at a time per partition."""

    def __init__(
        self,
        topology: Topology,
        *,
        namespace: str,
        cluster: str,
        partitions: int,
        log: Log,
        stores: Stores,
        clock: Clock,
        alarm: Alarm,
        crash: CrashPoint,
    ) -> None:
        self.topology = topology
        self.namespace = namespace
        self.cluster = cluster
        self.partitions = partitions
        self.log = log
        self.stores = stores
        self.clock = clock
        self.alarm = alarm
        self.crash = crash

    def run(self, partition: int) -> TakenOver:
        """Raises `Fenced`, `Doubt`, `Unavailable` (try again) or `Refuse` (tell the operator)."""
        name = f"{self.topology.name}-{partition}"
        producer = self.log.transactional(f"{self.namespace}-{name}")
        plain = self.log.reader(f"{name}-restore", committed=True)
        try:
            producer.init(INIT_S)
            offsets = self.log.offsets()
            self._repair(partition, producer, offsets, plain)
            restored = restore(
                self.topology,
                Manifest(
                    self.cluster, self.namespace, self.topology.name, partition, self.partitions
                ),
                stores=self.stores, reader=plain, offsets=offsets, clock=self.clock,
                alarm=self.alarm, crash=self.crash,
            )  # fmt: skip
            try:
                return self._inputs(partition, producer, restored, offsets)
            except BaseException:
                restored.store.close()
                raise
        except BaseException:
            producer.close()
            raise
        finally:
            plain.close()

    def _repair(
        self, partition: int, producer: TransactionalProducer, offsets: Offsets, plain: Reader
    ) -> None:
        hidden = self.log.reader(f"{self.topology.name}-{partition}-repair", committed=False)
        try:
            resolve_lost_markers(
                self.topology, self.namespace, partition,
                producer=producer, offsets=offsets, hidden=hidden, plain=plain,
                clock=self.clock, commit_s=COMMIT_S, alarm=self.alarm,
            )  # fmt: skip
        finally:
            hidden.close()

    def _inputs(
        self,
        partition: int,
        producer: TransactionalProducer,
        restored: Restored,
        offsets: Offsets,
    ) -> TakenOver:
        full = {t: (topic_name(self.namespace, t), partition) for t in self.topology.inputs}
        starts, stable = offsets.start(full.values()), offsets.stable_end(full.values())
        marked = {p.topic: p.offset for p in restored.mark.positions} if restored.mark else {}
        positions, events = {}, []
        for topic, tp in full.items():
            start, end = starts[tp], stable[tp]
            if topic in self.topology.from_end:
                positions[topic] = end
                continue
            position = marked.get(topic, start)
            if position > end:
                raise Refuse(
                    f"{tp[0]}-{partition} ends at {end}, but was read up to {position}: the topic "
                    "was created again. Restore it from a backup or use another namespace."
                )
            if position < start:
                self.alarm("input_lost", topic=topic, partition=partition, first=position,
                           last=start - 1)  # fmt: skip
                events.append(self._lost(topic, partition, position, start - 1))
                position = start
            positions[topic] = position
        if restored.torn:
            self.alarm("torn_transaction", partition=partition, keys=_shown(restored.torn))
        ends = {topic: stable[tp] for topic, tp in full.items()}
        return TakenOver(producer, restored, positions, ends, tuple(events))

    def _lost(self, topic: str, partition: int, first: int, last: int) -> Event:
        at_ms = self.clock.wall_ms()

        def event(txn: int) -> tuple[bytes, bytes]:
            lost = InputLost(
                topic=topic, partition=partition, first=first, last=last, txn=txn, at_ms=at_ms
            )
            return f"!lost/{topic}#{first}".encode(), INPUT_LOST.encode(lost)

        return event


def _shown(torn: Iterable[tuple[str, bytes]]) -> list[str]:
    return [f"{topic}:{key.decode(errors='replace')}" for topic, key in torn][:20]
