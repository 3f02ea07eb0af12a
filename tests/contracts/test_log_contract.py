"""What every log promises: Kafka for real, and the twin in memory."""

import pytest

from streams.errors import Aborted, Doubt, Fenced, OutOfRange, Unavailable
from streams.ports import (
    Delivered,
    Log,
    Produced,
    Reader,
    Record,
    TopicPartition,
    TransactionalProducer,
)
from tests.contracts.conftest import Cluster, raised, until

NOTHING: frozenset[TopicPartition] = frozenset()
NOBODY: frozenset[str] = frozenset()


def rec(topic: str, value: bytes | None, key: bytes | None = b"k", partition: int = 0) -> Produced:
    return Produced(topic, partition, key, value)


def owner(cluster: Cluster, name: str = "owner") -> TransactionalProducer:
    producer = cluster.log.transactional(cluster.name(name))
    producer.init(10)
    return producer


def write(producer: TransactionalProducer, *records: Produced) -> None:
    producer.write(records, report=NOTHING, careful=NOBODY)


def put(producer: TransactionalProducer, *records: Produced) -> None:
    write(producer, *records)
    producer.commit(10)


def attempt(producer: TransactionalProducer, *records: Produced, careful: str) -> Aborted | Doubt:
    """Write and commit something that a topic refuses."""

    def both() -> None:
        producer.write(records, report=NOTHING, careful=frozenset({careful}))
        producer.commit(10)

    error = raised(both)
    assert isinstance(error, Aborted | Doubt), error
    return error


def usable(
    cluster: Cluster, producer: TransactionalProducer, error: Aborted | Doubt
) -> TransactionalProducer:
    """After a doubt it takes a new producer."""
    if isinstance(error, Aborted):
        return producer
    producer.close()
    return owner(cluster)


def refusals(error: Aborted | Doubt) -> list[tuple[str, str, bool]]:
    return [(refusal.topic, refusal.tag, refusal.whole_topic) for refusal in error.refusals]


def read_to_end(
    log: Log, topic: str, partition: int = 0, *, committed: bool = True
) -> list[Record]:
    """All that a reader may see now."""
    key = (topic, partition)
    offsets = log.offsets()
    end = (offsets.stable_end if committed else offsets.end)([key])[key]
    reader = log.reader(f"read-{topic}", committed=committed)
    reader.assign({key: offsets.start([key])[key]})
    records: list[Record] = []

    def is_at_end() -> bool:
        records.extend(reader.read(1_000, 0.05))
        return reader.position(key) >= end

    until(is_at_end, f"the end of {topic}")
    reader.close()
    return records


def records_of(log: Log, topic: str, partition: int = 0) -> list[Record]:
    """All records, once no transaction is open: markers come a little after the commit returns."""
    key = (topic, partition)
    offsets = log.offsets()
    until(lambda: offsets.stable_end([key]) == offsets.end([key]), f"the markers of {topic}")
    return read_to_end(log, topic, partition)


def values(log: Log, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in records_of(log, topic, partition)]


def seen(log: Log, topic: str, *, committed: bool) -> list[bytes | None]:
    """What a reader sees while a transaction is open."""
    return [record.value for record in read_to_end(log, topic, committed=committed)]


def arrived(cluster: Cluster, topic: str, end: int) -> None:
    """Wait until what was handed over stands in the log, whose end is then this."""
    offsets = cluster.log.offsets()
    until(lambda: offsets.end([(topic, 0)])[topic, 0] >= end, f"{topic} to reach {end}")


def take(reader: Reader, count: int) -> list[Record]:
    """Read until so many records have come."""
    records: list[Record] = []

    def has_come() -> bool:
        records.extend(reader.read(count - len(records), 0.1))
        return len(records) == count

    until(has_come, f"{count} records")
    return records


# --- transactions -----------------------------------------------------------------------------


def test_a_committed_transaction_is_read_as_it_was_written(cluster: Cluster) -> None:
    topic = cluster.topic("t", 2)
    headers = [("ce_id", b"1"), ("ce_id", b"2"), ("empty", b"")]
    put(
        owner(cluster),
        Produced(topic, 0, b"k1", b"v1", headers),
        Produced(topic, 1, b"k2", b"v2"),
        Produced(topic, 0, None, b""),
        Produced(topic, 0, b"", None, ()),
    )
    first = records_of(cluster.log, topic, 0)
    assert [(r.offset, r.key, r.value, r.headers) for r in first] == [
        (0, b"k1", b"v1", tuple(headers)),
        (1, None, b"", ()),
        (2, b"", None, ()),
    ]
    assert {(r.topic, r.partition) for r in first} == {(topic, 0)}
    assert values(cluster.log, topic, 1) == [b"v2"]


def test_a_commit_reports_where_the_last_record_of_a_partition_went(cluster: Cluster) -> None:
    state, events = cluster.topic("state", 2, compacted=True), cluster.topic("events")
    producer = owner(cluster)
    asked = frozenset({(state, 1), (events, 0), (state, 0)})
    producer.write(
        [rec(state, b"1", partition=1), rec(events, b"2"), rec(state, b"3", b"!", 1)],
        report=asked,
        careful=NOBODY,
    )
    delivered = producer.commit(10)
    (last,) = records_of(cluster.log, state, 1)[1:]
    (event,) = records_of(cluster.log, events)
    assert dict(delivered) == {
        (state, 1): Delivered(state, 1, last.offset, last.timestamp_ms),
        (events, 0): Delivered(events, 0, event.offset, event.timestamp_ms),
    }


def test_only_what_was_asked_for_is_reported(cluster: Cluster) -> None:
    topic = cluster.topic("t", 2)
    producer = owner(cluster)
    producer.write(
        [rec(topic, b"1"), rec(topic, b"2", partition=1)],
        report=frozenset({(topic, 1)}),
        careful=frozenset({topic}),
    )
    assert list(producer.commit(10)) == [(topic, 1)]


def test_reports_are_of_the_transaction_at_hand(cluster: Cluster) -> None:
    topic, other = cluster.topic("t"), cluster.topic("u")
    producer = owner(cluster)
    asked = frozenset({(topic, 0)})
    offsets = []
    for _ in range(3):
        producer.write([rec(topic, b"1"), rec(topic, b"2")], report=asked, careful=NOBODY)
        offsets.append(producer.commit(10)[topic, 0].offset)
    # Two records and a marker each.
    assert offsets == [1, 4, 7]
    producer.write([rec(other, b"1")], report=asked, careful=NOBODY)
    assert producer.commit(10) == {}


def test_append_time_is_the_brokers_and_never_falls(cluster: Cluster) -> None:
    topic = cluster.topic("t", append_time=True)
    producer = owner(cluster)
    for _ in range(3):
        put(producer, rec(topic, b"v"))
    times = [record.timestamp_ms for record in records_of(cluster.log, topic)]
    assert times == sorted(times)
    assert times[0] > 1_600_000_000_000


def test_an_open_transaction_hides_itself_and_all_behind_it(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    slow, quick = owner(cluster, "slow"), owner(cluster, "quick")
    put(quick, rec(topic, b"before"))
    write(slow, rec(topic, b"open"))
    arrived(cluster, topic, 3)
    put(quick, rec(topic, b"behind"))
    assert seen(cluster.log, topic, committed=True) == [b"before"]
    assert seen(cluster.log, topic, committed=False) == [b"before", b"open", b"behind"]
    offsets = cluster.log.offsets()
    assert offsets.stable_end([(topic, 0)]) == {(topic, 0): 2}
    slow.commit(10)
    assert values(cluster.log, topic) == [b"before", b"open", b"behind"]
    assert offsets.stable_end([(topic, 0)]) == offsets.end([(topic, 0)]) == {(topic, 0): 6}
    assert cluster.log.offsets().start([(topic, 0)]) == {(topic, 0): 0}


def test_aborted_records_are_never_shown(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    producer = owner(cluster)
    put(producer, rec(topic, b"1"))
    write(producer, rec(topic, b"aborted"))
    producer.abort(10)
    put(producer, rec(topic, b"2"))
    assert values(cluster.log, topic) == [b"1", b"2"]


def test_an_abort_leaves_its_records_and_a_marker_in_the_log(cluster: Cluster) -> None:
    # What resolves a lost marker.
    topic = cluster.topic("t", 2)
    producer = owner(cluster)
    write(producer, rec(topic, b"1"), rec(topic, b"2"))
    producer.abort(10)
    assert values(cluster.log, topic) == []
    assert cluster.log.offsets().end([(topic, 0), (topic, 1)]) == {(topic, 0): 3, (topic, 1): 0}


def test_a_transaction_of_nothing_is_committed(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    producer = owner(cluster)
    producer.write([], report=NOTHING, careful=NOBODY)
    assert producer.commit(10) == {}
    put(producer, rec(topic, b"1"))
    assert values(cluster.log, topic) == [b"1"]


def test_a_large_transaction_keeps_its_order(cluster: Cluster) -> None:
    topic = cluster.topic("t", 3)
    producer = owner(cluster)
    numbers = [b"%d" % number for number in range(6_000)]
    producer.write(
        [rec(topic, number, partition=index % 3) for index, number in enumerate(numbers)],
        report=frozenset((topic, partition) for partition in range(3)),
        careful=NOBODY,
    )
    delivered = producer.commit(20)
    assert [delivered[topic, partition].offset for partition in range(3)] == [1_999] * 3
    for partition in range(3):
        assert values(cluster.log, topic, partition) == numbers[partition::3]


def test_committing_without_a_transaction_is_in_doubt(cluster: Cluster) -> None:
    producer = owner(cluster)
    with pytest.raises(Doubt):
        producer.commit(1)


# --- epochs -----------------------------------------------------------------------------------


def test_taking_over_aborts_the_predecessors_open_transaction(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    old = owner(cluster)
    put(old, rec(topic, b"1"))
    write(old, rec(topic, b"open"))
    arrived(cluster, topic, 3)
    new = owner(cluster)
    offsets = cluster.log.offsets()
    assert offsets.stable_end([(topic, 0)]) == offsets.end([(topic, 0)])
    put(new, rec(topic, b"2"))
    assert values(cluster.log, topic) == [b"1", b"2"]


def test_a_zombies_commit_is_fenced_and_nothing_of_it_shows(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    old = owner(cluster)
    write(old, rec(topic, b"zombie"))
    arrived(cluster, topic, 1)
    new = owner(cluster)
    with pytest.raises(Fenced):
        old.commit(10)
    put(new, rec(topic, b"new"))
    assert values(cluster.log, topic) == [b"new"]


def test_a_zombie_that_begins_anew_is_fenced(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    old = owner(cluster)
    put(old, rec(topic, b"old"))
    new = owner(cluster)
    with pytest.raises(Fenced):
        put(old, rec(topic, b"zombie"))
    with pytest.raises(Fenced):
        put(old, rec(topic, b"zombie again"))
    put(new, rec(topic, b"new"))
    assert values(cluster.log, topic) == [b"old", b"new"]


def test_a_zombie_that_follows_its_records_is_fenced(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    old = owner(cluster)
    put(old, rec(topic, b"old"))
    owner(cluster)

    def zombie() -> None:
        old.write(
            [rec(topic, b"zombie")] * 50,
            report=frozenset({(topic, 0)}),
            careful=frozenset({topic}),
        )
        old.commit(10)

    assert isinstance(raised(zombie), Fenced)


def test_a_zombies_abort_is_fenced(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    old = owner(cluster)
    put(old, rec(topic, b"old"))
    write(old, rec(topic, b"zombie"))
    owner(cluster)
    with pytest.raises(Fenced):
        old.abort(10)


def test_a_zombie_learns_nothing_from_an_empty_transaction(cluster: Cluster) -> None:
    old = owner(cluster)
    owner(cluster)
    write(old)
    assert old.commit(10) == {}


def test_of_several_that_took_the_epoch_only_the_last_can_commit(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    first, second, third = (owner(cluster) for _ in range(3))
    for old in (first, second):
        with pytest.raises(Fenced):
            put(old, rec(topic, b"old"))
    put(third, rec(topic, b"third"))
    assert values(cluster.log, topic) == [b"third"]


def test_owners_of_different_ids_do_not_disturb_each_other(cluster: Cluster) -> None:
    topic = cluster.topic("t", 2)
    one, two = owner(cluster, "one"), owner(cluster, "two")
    write(one, rec(topic, b"1"))
    put(two, rec(topic, b"2", partition=1))
    one.commit(10)
    assert values(cluster.log, topic, 0) == [b"1"]
    assert values(cluster.log, topic, 1) == [b"2"]


def test_a_producer_takes_the_epoch_once(cluster: Cluster) -> None:
    producer = owner(cluster)
    with pytest.raises(Doubt):
        producer.init(1)


# --- refusals ---------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_is_refused_as_a_whole(cluster: Cluster) -> None:
    state, missing = cluster.topic("state"), cluster.name("missing")
    producer = owner(cluster)
    put(producer, rec(state, b"1"))
    error = attempt(producer, rec(state, b"2"), rec(missing, b"x"), careful=missing)
    assert isinstance(error, Aborted)
    assert [(topic, whole) for topic, _, whole in refusals(error)] == [(missing, True)]
    put(producer, rec(state, b"3"))
    assert values(cluster.log, state) == [b"1", b"3"]


def test_a_topic_that_appears_after_it_was_refused_is_written(cluster: Cluster) -> None:
    state, late = cluster.topic("state"), cluster.name("late")
    producer = owner(cluster)
    attempt(producer, rec(late, b"x"), careful=late)
    cluster.create(late)

    def is_taken() -> bool:
        def both() -> None:
            records = [rec(state, b"1"), rec(late, b"x")]
            producer.write(records, report=NOTHING, careful=frozenset({late}))
            producer.commit(10)

        return raised(both) is None

    until(is_taken, "the new topic to be known")
    assert values(cluster.log, late) == [b"x"]


def test_a_record_that_is_too_large_is_named_and_not_its_neighbours(cluster: Cluster) -> None:
    state = cluster.topic("state")
    small = cluster.topic("small", batch_bytes_max=2_000)
    producer = owner(cluster)
    neighbours = [Produced(small, 0, b"k", b"x" * 100, tag=f"n{n}") for n in range(5)]
    large = Produced(small, 0, b"k", b"x" * 3_000, tag="large")
    error = attempt(producer, rec(state, b"1"), *neighbours, large, *neighbours, careful=small)
    assert isinstance(error, Aborted)
    assert refusals(error) == [(small, "large", False)]
    put(producer, rec(state, b"2"), *neighbours)
    assert values(cluster.log, state) == [b"2"]
    assert len(values(cluster.log, small)) == 5


def test_a_record_too_large_for_the_client_is_named(cluster: Cluster) -> None:
    state, target = cluster.topic("state"), cluster.topic("target")
    producer = owner(cluster)
    huge = Produced(target, 0, b"k", b"x" * 1_010_000, tag="huge")
    error = attempt(producer, rec(state, b"1"), huge, careful=target)
    assert isinstance(error, Aborted)
    assert refusals(error) == [(target, "huge", False)]
    put(producer, rec(state, b"2"))
    assert values(cluster.log, state) == [b"2"]


def test_small_records_that_are_many_for_their_topic_are_written(cluster: Cluster) -> None:
    state = cluster.topic("state")
    small = cluster.topic("small", batch_bytes_max=2_000)
    producer = owner(cluster)
    many = [rec(small, b"%d" % number + b"x" * 200) for number in range(100)]
    for _ in range(2):
        producer.write([rec(state, b"1"), *many], report=NOTHING, careful=frozenset({small}))
        producer.commit(10)
    assert values(cluster.log, small) == [record.value for record in many] * 2


def test_a_record_without_key_is_refused_by_a_compacted_topic(cluster: Cluster) -> None:
    state, compacted = cluster.topic("state"), cluster.topic("compacted", compacted=True)
    producer = owner(cluster)
    bad = Produced(compacted, 0, None, b"v", tag="bad")
    good = Produced(compacted, 0, b"k", b"v", tag="good")
    error = attempt(producer, rec(state, b"1"), good, bad, careful=compacted)
    assert isinstance(error, Aborted)
    assert refusals(error) == [(compacted, "bad", False)]
    # The same producer, the same partition: nothing of the refusal lingers.
    put(producer, rec(state, b"2"), good)
    put(producer, rec(state, b"3"), good)
    assert values(cluster.log, state) == [b"2", b"3"]
    assert values(cluster.log, compacted) == [b"v", b"v"]


def test_a_partition_that_does_not_exist_is_refused_with_its_topic(cluster: Cluster) -> None:
    state, target = cluster.topic("state"), cluster.topic("target", 2)
    producer = owner(cluster)
    put(producer, rec(state, b"1"), rec(target, b"1"))
    error = attempt(producer, rec(state, b"2"), rec(target, b"x", partition=5), careful=target)
    assert [(topic, whole) for topic, _, whole in refusals(error)] == [(target, True)]
    producer = usable(cluster, producer, error)
    put(producer, rec(state, b"3"), rec(target, b"3", partition=1))
    assert values(cluster.log, state) == [b"1", b"3"]


def test_a_topic_that_is_deleted_after_it_was_known_is_named(cluster: Cluster) -> None:
    state, target = cluster.topic("state"), cluster.topic("target")
    producer = owner(cluster)
    put(producer, rec(state, b"1"), rec(target, b"1"))
    cluster.delete(target)
    error = attempt(producer, rec(state, b"2"), rec(target, b"2"), careful=target)
    assert [(topic, whole) for topic, _, whole in refusals(error)] == [(target, True)]
    producer = usable(cluster, producer, error)
    put(producer, rec(state, b"3"))
    assert values(cluster.log, state) == [b"1", b"3"]


def test_a_topic_that_nobody_is_careful_with_is_not_blamed(cluster: Cluster) -> None:
    state = cluster.topic("state")
    producer = owner(cluster)
    put(producer, rec(state, b"1"))
    error = attempt(producer, rec(state, b"2"), rec(cluster.name("ours"), b"x"), careful="another")
    assert refusals(error) == []


# --- the outbox -------------------------------------------------------------------------------


def test_what_an_outbox_sent_is_there_after_a_flush(cluster: Cluster) -> None:
    topic = cluster.topic("t", 2)
    outbox = cluster.log.outbox(cluster.name("outbox"))
    outbox.send([Produced(topic, 1, b"k", b"%d" % n, [("h", b"v")]) for n in range(500)])
    assert outbox.flush(10)
    records = records_of(cluster.log, topic, 1)
    assert [record.value for record in records] == [b"%d" % n for n in range(500)]
    assert records[0].headers == (("h", b"v"),)
    outbox.close()


def test_an_outbox_drops_what_cannot_be_sent_and_goes_on(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    outbox = cluster.log.outbox(cluster.name("outbox"))
    outbox.send([rec(topic, b"1"), rec(topic, b"x" * 1_010_000), rec(topic, b"2")])
    assert outbox.flush(10)
    assert values(cluster.log, topic) == [b"1", b"2"]


# --- the reader -------------------------------------------------------------------------------


@pytest.fixture
def ten(cluster: Cluster) -> TopicPartition:
    """A partition with ten records outside transactions, at offsets 0 to 9."""
    return fill(cluster, cluster.topic("ten"), 10)


def fill(cluster: Cluster, topic: str, count: int, partition: int = 0) -> TopicPartition:
    outbox = cluster.log.outbox(cluster.name("filler"))
    outbox.send([rec(topic, b"%d" % n, partition=partition) for n in range(count)])
    assert outbox.flush(10)
    return topic, partition


def new_reader(cluster: Cluster) -> Reader:
    return cluster.log.reader(cluster.name("reader"), committed=True)


def test_a_reader_begins_where_it_is_told(cluster: Cluster, ten: TopicPartition) -> None:
    reader = new_reader(cluster)
    reader.assign({ten: 7})
    assert [record.offset for record in take(reader, 3)] == [7, 8, 9]


def test_a_read_returns_at_most_what_was_asked_for(cluster: Cluster, ten: TopicPartition) -> None:
    reader = new_reader(cluster)
    reader.assign({ten: 0})
    offsets: list[int] = []

    def is_read() -> bool:
        records = reader.read(3, 0.1)
        assert len(records) <= 3
        offsets.extend(record.offset for record in records)
        return len(offsets) == 10

    until(is_read, "all ten")
    assert offsets == list(range(10))


def test_a_reader_at_the_end_waits_for_what_comes(cluster: Cluster, ten: TopicPartition) -> None:
    reader = new_reader(cluster)
    reader.assign({ten: 10})
    assert reader.read(10, 0.1) == []
    fill(cluster, ten[0], 1)
    assert [record.offset for record in take(reader, 1)] == [10]


def test_a_new_assignment_begins_again_and_shows_nothing_older(
    cluster: Cluster, ten: TopicPartition
) -> None:
    reader = new_reader(cluster)
    fill(cluster, ten[0], 3_000)
    for offset in [5, 2_000, 0, 9, 9, 1_234, 3] * 4:
        reader.assign({ten: offset})
        assert take(reader, 1)[0].offset == offset


def test_partitions_are_assigned_beside_each_other(cluster: Cluster) -> None:
    topic = cluster.topic("t", 3)
    reader = new_reader(cluster)
    for partition in range(3):
        fill(cluster, topic, 50, partition)
        reader.assign({(topic, partition): partition})
    records = take(reader, 50 + 49 + 48)
    for partition in range(3):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(partition, 50))


def test_what_was_unassigned_is_not_read(cluster: Cluster) -> None:
    topic = cluster.topic("t", 2)
    one, two = fill(cluster, topic, 20, 0), fill(cluster, topic, 20, 1)
    reader = new_reader(cluster)
    reader.assign({one: 0, two: 0})
    take(reader, 40)
    reader.unassign([one, ("never", 0)])
    fill(cluster, topic, 5, 0)
    fill(cluster, topic, 5, 1)
    assert {record.partition for record in take(reader, 5)} == {1}
    assert reader.read(10, 0.1) == []


def test_a_paused_partition_stands_still_and_loses_nothing(cluster: Cluster) -> None:
    topic = cluster.topic("t", 2)
    one, two = fill(cluster, topic, 20, 0), fill(cluster, topic, 20, 1)
    reader = new_reader(cluster)
    reader.assign({one: 0, two: 0})
    before = take(reader, 15)
    reader.pause([one])
    two_left = 20 - sum(record.partition == 1 for record in before)
    assert {record.partition for record in take(reader, two_left)} <= {1}
    assert reader.read(10, 0.1) == []
    reader.resume([one])
    one_seen = sum(record.partition == 0 for record in before)
    rest = take(reader, 20 - one_seen)
    assert [record.offset for record in rest] == list(range(one_seen, 20))


def test_a_new_assignment_is_not_paused(cluster: Cluster, ten: TopicPartition) -> None:
    reader = new_reader(cluster)
    reader.assign({ten: 0})
    reader.pause([ten])
    assert reader.read(10, 0.05) == []
    reader.assign({ten: 4})
    assert take(reader, 6)[0].offset == 4
    reader.pause([ten])
    reader.unassign([ten])
    reader.assign({ten: 8})
    assert take(reader, 2)[0].offset == 8


def test_a_position_outside_the_log_is_told_with_its_partition(cluster: Cluster) -> None:
    topic = cluster.topic("t", 2)
    good, bad = fill(cluster, topic, 10, 0), fill(cluster, topic, 10, 1)
    cluster.trim(topic, 1, 4)
    for wrong in (3, 11):
        reader = new_reader(cluster)
        reader.assign({bad: wrong})
        error: list[OutOfRange] = []

        def is_told(reader: Reader = reader, error: list[OutOfRange] = error) -> bool:
            try:
                assert reader.read(10, 0.1) == []
            except OutOfRange as raised:
                error.append(raised)
            return bool(error)

        until(is_told, "the error")
        assert error[0].partition == bad
        # Others can be read all the same, and a right position mends it.
        reader.assign({good: 0})
        assert {record.partition for record in take(reader, 10)} == {0}
        reader.assign({bad: 4})
        assert [record.offset for record in take(reader, 6)] == list(range(4, 10))
        reader.close()


def test_the_position_counts_what_a_reader_does_not_see(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    producer = owner(cluster)
    put(producer, rec(topic, b"1"))
    write(producer, rec(topic, b"aborted"))
    producer.abort(10)
    reader = new_reader(cluster)
    reader.assign({(topic, 0): 0})
    assert reader.position((topic, 0)) == 0
    take(reader, 1)
    assert reader.position((topic, 0)) >= 1

    def is_past() -> bool:
        assert reader.read(10, 0.05) == []
        return reader.position((topic, 0)) == 4

    until(is_past, "the markers to be passed")
    reader.assign({(topic, 0): 1})
    assert reader.position((topic, 0)) == 1


def test_reading_raw_gives_offset_key_and_value(cluster: Cluster) -> None:
    topic = cluster.topic("t")
    producer = owner(cluster)
    put(producer, rec(topic, b"1", b"a"), rec(topic, None, b"b"))
    put(producer, rec(topic, b"3", None))
    reader = new_reader(cluster)
    reader.assign({(topic, 0): 0})
    found: list[tuple[int, bytes | None, bytes | None]] = []

    def is_at_end() -> bool:
        found.extend(reader.read_raw(100, 5))
        return reader.position((topic, 0)) == 5

    until(is_at_end, "the end")
    assert found == [(0, b"a", b"1"), (1, b"b", None), (3, None, b"3")]


# --- offsets and topics -----------------------------------------------------------------------


def test_offsets_tell_where_partitions_begin_and_end(cluster: Cluster) -> None:
    topic = cluster.topic("t", 2)
    one, two = fill(cluster, topic, 10, 0), (topic, 1)
    cluster.trim(topic, 0, 6)
    offsets = cluster.log.offsets()
    assert offsets.start([one, two]) == {one: 6, two: 0}
    assert offsets.end([one, two]) == {one: 10, two: 0}
    assert offsets.stable_end([two, one]) == {one: 10, two: 0}
    assert offsets.end([]) == {}


def test_offsets_of_a_missing_partition_are_unavailable(cluster: Cluster) -> None:
    with pytest.raises(Unavailable):
        cluster.log.offsets().end([(cluster.name("missing"), 0)])


def test_the_probe_counts_partitions_and_remembers(cluster: Cluster) -> None:
    topics = cluster.log.topics()
    name = cluster.name("t")
    assert topics.partitions(name) == 0
    cluster.topic("t", 3)
    assert topics.partitions(name) == 0
    topics.forget(name)
    assert topics.partitions(name) == 3
    cluster.delete(name)
    assert topics.partitions(name) == 3
    topics.forget(name)
    assert topics.partitions(name) == 0
