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
from .layout import MARK_KEY, topic_name
from .ports import Clock, Offsets, Produced, Reader, TopicPartition, TransactionalProducer

READ_S: Final = 0.2
STALLED_S: Final = 10.0

Alarm = Callable[..., None]
Pair = tuple[bytes | None, bytes | None]


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
    stable, end = offsets.stable_end(own), offsets.end(own)
    torn = [tp for tp in own if stable[tp] < end[tp]]
    if not torn:
        return False
    look = _Look(topology, own[0], plain, clock, stable, offsets.start(own))
    tails = {tp: look.pairs(hidden, tp, stable[tp], end[tp]) for tp in torn}
    whole = look.committed(tails)
    alarm("lost_marker", partition=partition, topics=[tp[0] for tp in torn], committed=whole)
    mark = _last_mark(tails.get(own[0], ())) if whole else None
    records = [_touch(tp, mark if tp == own[0] else None, len(torn)) for tp in torn]
    producer.write(records, report=frozenset(), careful=frozenset())
    if not whole:
        producer.abort(commit_s)
        return True
    producer.commit(commit_s)
    events = tails.get((topic_name(namespace, topology.events_topic), partition), ())
    named = {t for _, value in events if value is not None for t in topology.targets_of(value)}
    _touch_targets(named, producer, offsets, commit_s, alarm)
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

    def committed(self, tails: Mapping[TopicPartition, tuple[Pair, ...]]) -> bool:
        """Whether the hidden transaction is to be committed.

        Its marker may be lost in some partitions only. Where the mark itself shows, the
        transaction was committed; where the mark is hidden, the transaction counts as whole when
        every record that the mark counts is found, in hidden tails or in plain view.
        """
        if self.mark_topic not in tails:
            newest = _last_mark(self._before_end(self.mark_topic))
            hidden = {self._txn(value) for pairs in tails.values() for _, value in pairs}
            return newest is not None and all(0 < txn <= newest.txn for txn in hidden)
        mark = _last_mark(tails[self.mark_topic])
        if mark is None or tails[self.mark_topic][-1][0] != MARK_KEY:
            return False
        found = sum(len(pairs) for pairs in tails.values())
        plain = [tp for tp in self.stable if tp not in tails]
        found += sum(
            self._txn(value) == mark.txn for tp in plain for _, value in self._before_end(tp)
        )
        return found == mark.records

    def _txn(self, value: bytes | None) -> int:
        return self.topology.transaction_of(value) if value is not None else -1

    def _before_end(self, tp: TopicPartition) -> tuple[Pair, ...]:
        """As many of the last records as one transaction can have."""
        end = self.stable[tp]
        return self.pairs(self.plain, tp, max(self.start[tp], end - TRANSACTION_RECORDS_MAX), end)

    def pairs(self, reader: Reader, tp: TopicPartition, begin: int, end: int) -> tuple[Pair, ...]:
        """(key, value) of the records in [begin, end) that the reader may see."""
        found: list[Pair] = []
        if begin >= end:
            return ()
        reader.assign({tp: begin})
        try:
            position, deadline = begin, self.clock.monotonic_s() + STALLED_S
            while position < end:
                batch = reader.read_raw(10_000, READ_S)
                found += [(key, value) for offset, key, value in batch if offset < end]
                if batch:
                    position = batch[-1][0] + 1
                if reader.position(tp) >= end:
                    break
                if self.clock.monotonic_s() > deadline:
                    raise Unavailable(f"{tp[0]}-{tp[1]}: no records from {position} to {end}")
        finally:
            reader.unassign([tp])
        return tuple(found)


def _last_mark(pairs: Iterable[Pair]) -> Mark | None:
    last = None
    for key, value in pairs:
        if key == MARK_KEY and value is not None:
            last = value
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


def _touch_targets(
    named: set[TopicPartition],
    producer: TransactionalProducer,
    offsets: Offsets,
    commit_s: float,
    alarm: Alarm,
) -> None:
    """A target partition has the same defect and no owner who would see it. It is touched only
    where something is still hidden, by an empty record that says what it is."""
    if not named:
        return
    try:
        stable, end = offsets.stable_end(named), offsets.end(named)
    except Unavailable as error:
        alarm("target_not_touched", targets=sorted(named), reason=str(error))
        return
    hidden = [tp for tp in sorted(named) if stable[tp] < end[tp]]
    if hidden:
        headers = (("ce_specversion", b"1.0"), ("ce_type", b"io.horolog.marker.v1"))
        records = [Produced(topic, p, None, None, headers) for topic, p in hidden]
        producer.write(records, report=frozenset(), careful=frozenset())
        producer.commit(commit_s)
