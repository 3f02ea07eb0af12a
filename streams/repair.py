"""Lost transaction markers: seen, judged and resolved before anything is restored.

After `init_transactions` we are the only writer of our partitions and nothing of ours is open, so
a last stable offset below the high watermark means that a broker lost a marker (Kafka 4.3 and
4.4 do after a crash; KAFKA-20734). The next transaction that ends there decides for the lost one,
so we look first and then choose: a whole transaction was acknowledged, or may have been, and is
committed; anything else is aborted.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from schemas.bindings import MARK
from schemas.codec import Undecodable
from schemas.limits import TRANSACTION_RECORDS_MAX
from schemas.state import Mark

from .binding import Topology
from .errors import Unavailable
from .layout import MARK_KEY, TXN_HEADER, topic_name
from .ports import (
    Clock,
    Offsets,
    Produced,
    Reader,
    Record,
    TopicPartition,
    TransactionalProducer,
)

READ_S: Final = 0.2
STALLED_S: Final = 10.0
MARKER_LOOKS: Final = 200
MARKER_LOOK_S: Final = 0.02

Alarm = Callable[..., None]
Records = tuple[Record, ...]


def resolve_lost_markers(
    topology: Topology,
    namespace: str,
    partition: int,
    *,
    producer: TransactionalProducer,
    offsets: Offsets,
    hidden: Reader,
    plain: Reader,
    clock: Clock,
    commit_s: float,
    alarm: Alarm,
) -> bool:
    """Look for lost markers of this partition's own topics and resolve them. True when there were
    any: the log then has what the lost transaction should have left.

    `hidden` must read uncommitted, `plain` committed records only. Raises `Unavailable`, `Fenced`,
    `Doubt`.
    """
    own = [(topic_name(namespace, topic), partition) for topic in topology.own_topics]
    # The end first: what ends between the two questions is not taken for hidden.
    end, stable = offsets.end(own), offsets.stable_end(own)
    torn = [tp for tp in own if stable[tp] < end[tp]]
    if not torn:
        return False
    look = _Look(topology, own[0], plain, clock, stable, offsets.start(own))
    tails = {tp: look.records(hidden, tp, stable[tp], end[tp]) for tp in torn}
    whole = look.committed(tails)
    alarm("lost_marker", partition=partition, topics=[tp[0] for tp in torn], committed=whole)
    named = look.targets(tails, (topic_name(namespace, topology.events_topic), partition))
    mark = _last_mark(tails.get(own[0], ())) if whole else None
    touches = [_touch(tp, mark if tp == own[0] else None, len(torn)) for tp in torn]
    _decide(touches, producer, commit_s, whole=whole)
    _await_markers(own, offsets, plain)
    _decide(_target_touches(named, offsets, alarm), producer, commit_s, whole=whole)
    return True


class _Look:
    """Reads what is at the end of our own partitions, hidden or not."""

    def __init__(
        self,
        topology: Topology,
        mark_topic: TopicPartition,
        plain: Reader,
        clock: Clock,
        stable: Mapping[TopicPartition, int],
        start: Mapping[TopicPartition, int],
    ) -> None:
        self.topology = topology
        self.mark_topic = mark_topic
        self.plain = plain
        self.clock = clock
        self.stable = stable
        self.start = start

    def committed(self, tails: Mapping[TopicPartition, Records]) -> bool:
        """Whether the hidden transaction is to be committed.

        Its marker may be lost in some partitions only. Where the mark itself shows, the
        transaction was committed, and so it was where any other of its records shows. Where all
        of it is hidden, it is whole when there are as many records as its mark counts.
        """
        if self.mark_topic not in tails:
            newest = _last_mark(self._before_end(self.mark_topic))
            hidden = {self._txn(r) for tail in tails.values() for r in tail if r.key != MARK_KEY}
            return newest is not None and all(0 < txn <= newest.txn for txn in hidden)
        tail = tails[self.mark_topic]
        mark = _last_mark(tail)
        if mark is None or tail[-1].key != MARK_KEY:
            return False
        if sum(record.key == MARK_KEY for record in tail) > 1:
            return True  # judged before, and the marker of that repair was lost as well
        plain = [tp for tp in self.stable if tp not in tails]
        if any(self._txn(record) == mark.txn for tp in plain for record in self._before_end(tp)):
            return True
        return sum(len(records) for records in tails.values()) == mark.records

    def targets(
        self, tails: Mapping[TopicPartition, Records], events: TopicPartition
    ) -> set[TopicPartition]:
        """Partitions of users' topics that the hidden transaction wrote to, too: they have the
        same defect and no owner who would see it."""
        hidden = {self._txn(record) for records in tails.values() for record in records}
        told = tails[events] if events in tails else self._before_end(events)
        return {
            target
            for record in told
            if record.value is not None and (events in tails or self._txn(record) in hidden)
            for target in self.topology.targets_of(record.value)
        }

    def _txn(self, record: Record) -> int:
        if record.value is not None:
            return self.topology.transaction_of(record.value)
        return next((int(value) for name, value in record.headers if name == TXN_HEADER), -1)

    def _before_end(self, tp: TopicPartition) -> Records:
        """As many of the last records as one transaction can have."""
        end = self.stable[tp]
        begin = max(self.start[tp], end - TRANSACTION_RECORDS_MAX)
        return self.records(self.plain, tp, begin, end)

    def records(self, reader: Reader, tp: TopicPartition, begin: int, end: int) -> Records:
        """The records in [begin, end) that the reader may see."""
        found: list[Record] = []
        if begin >= end:
            return ()
        reader.assign({tp: begin})
        try:
            position, deadline = begin, self.clock.monotonic_s() + STALLED_S
            while position < end:
                batch = reader.read(10_000, READ_S)
                found += [record for record in batch if record.offset < end]
                if batch:
                    position = batch[-1].offset + 1
                if reader.position(tp) >= end:
                    break
                if self.clock.monotonic_s() > deadline:
                    raise Unavailable(f"{tp[0]}-{tp[1]}: no records from {position} to {end}")
        finally:
            reader.unassign([tp])
        return tuple(found)


def _await_markers(own: list[TopicPartition], offsets: Offsets, plain: Reader) -> None:
    """Wait until the ends of our transaction stand in the log, which they do some time after it is
    acknowledged: a restore that came before them would miss what they decide."""
    for _ in range(MARKER_LOOKS):
        stable, end = offsets.stable_end(own), offsets.end(own)
        if all(stable[tp] == end[tp] for tp in own):
            return
        plain.read(1, MARKER_LOOK_S)  # nothing is assigned: it only waits
    raise Unavailable(f"transaction markers of {own[0][0]}-{own[0][1]} were lost once more")


def _last_mark(records: Iterable[Record]) -> Mark | None:
    last = None
    for record in records:
        if record.key == MARK_KEY and record.value is not None:
            last = record.value
    try:
        return MARK.decode(last) if last is not None else None
    except Undecodable:
        return None


def _touch(tp: TopicPartition, mark: Mark | None, touched: int) -> Produced:
    """A record that carries our transaction's end into the partition. On the mark's topic it is
    the mark itself, one transaction on; elsewhere a tombstone of the mark's key, which no reader
    takes for state or event."""
    if mark is None:
        return Produced(tp[0], tp[1], MARK_KEY, None)
    again = msgspec.structs.replace(mark, txn=mark.txn + 1, records=touched)
    return Produced(tp[0], tp[1], MARK_KEY, MARK.encode(again))


def _target_touches(named: set[TopicPartition], offsets: Offsets, alarm: Alarm) -> list[Produced]:
    """Empty records that say what they are, for the partitions where something is hidden."""
    if not named:
        return []
    try:
        stable, end = offsets.stable_end(named), offsets.end(named)
    except Unavailable as error:
        alarm("target_not_touched", targets=sorted(named), reason=str(error))
        return []
    headers = (("ce_specversion", b"1.0"), ("ce_type", b"io.horolog.marker.v1"))
    hidden = [tp for tp in sorted(named) if stable[tp] < end[tp]]
    return [Produced(topic, partition, None, None, headers) for topic, partition in hidden]


def _decide(
    touches: list[Produced], producer: TransactionalProducer, commit_s: float, *, whole: bool
) -> None:
    """End a transaction in these partitions: what is hidden there ends with it."""
    if not touches:
        return
    producer.write(touches, report=frozenset(), careful=frozenset())
    if whole:
        producer.commit(commit_s)
    else:
        producer.abort(commit_s)
