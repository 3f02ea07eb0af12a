"""What only the twin can do: faults to order, and the passing of days in a call."""

import pytest

from streams.errors import Corrupt, Doubt, Fenced, OutOfRange, Unavailable
from streams.memory import ManualClock, MemoryBroker, MemoryLog, MemoryStores
from streams.memory.producer import MemoryTransactionalProducer
from streams.ports import Ownership, Produced

TOPIC = "t"
KEY = (TOPIC, 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> MemoryBroker:
    broker = MemoryBroker(clock)
    broker.create_topic(TOPIC, compacted=True)
    return broker


def owner(broker: MemoryBroker, name: str = "owner") -> MemoryTransactionalProducer:
    producer = MemoryLog(broker).transactional(name)
    producer.init(1)
    return producer


def write(producer: MemoryTransactionalProducer, value: bytes | None, key: bytes = b"k") -> None:
    producer.write([Produced(TOPIC, 0, key, value)], report=frozenset({KEY}), careful=frozenset())


def put(producer: MemoryTransactionalProducer, value: bytes | None, key: bytes = b"k") -> None:
    write(producer, value, key)
    producer.commit(1)


def shown(broker: MemoryBroker, *, committed: bool = True) -> list[tuple[int, bytes | None]]:
    reader = MemoryLog(broker).reader("r", committed=committed)
    reader.assign({KEY: MemoryLog(broker).offsets().start([KEY])[KEY]})
    return [(record.offset, record.value) for record in reader.read(1_000, 0)]


def ends(broker: MemoryBroker) -> tuple[int, int]:
    offsets = MemoryLog(broker).offsets()
    return offsets.stable_end([KEY])[KEY], offsets.end([KEY])[KEY]


def test_a_lost_marker_hides_a_commit_until_the_next_one(broker: MemoryBroker) -> None:
    old = owner(broker)
    put(old, b"1")
    broker.lose_marker("owner")
    put(old, b"lost")
    new = owner(broker)
    assert shown(broker) == [(0, b"1")]
    assert ends(broker) == (2, 3)
    put(new, b"2")
    assert shown(broker) == [(0, b"1"), (2, b"lost"), (3, b"2")]
    assert ends(broker) == (5, 5)


def test_the_next_abort_decides_for_a_lost_commit_too(broker: MemoryBroker) -> None:
    broker.lose_marker("owner")
    put(owner(broker), b"lost")
    new = owner(broker)
    write(new, b"2")
    new.abort(1)
    put(new, b"3")
    assert shown(broker) == [(3, b"3")]


def test_a_lost_abort_is_committed_with_what_follows(broker: MemoryBroker) -> None:
    old = owner(broker)
    write(old, b"open")
    broker.lose_marker("owner")
    new = owner(broker)
    assert ends(broker) == (0, 1)
    put(new, b"2")
    assert shown(broker) == [(0, b"open"), (1, b"2")]


def test_a_marker_can_be_lost_in_one_partition_only(broker: MemoryBroker) -> None:
    broker.create_topic("u")
    producer = owner(broker)
    broker.lose_marker("owner", [("u", 0)])
    records = [Produced(TOPIC, 0, b"k", b"1"), Produced("u", 0, b"k", b"1")]
    producer.write(records, report=frozenset(), careful=frozenset())
    producer.commit(1)
    offsets = MemoryLog(broker).offsets()
    assert offsets.stable_end([KEY, ("u", 0)]) == {KEY: 2, ("u", 0): 0}


def test_an_end_that_arrived_is_found_decided_by_the_next_owner(broker: MemoryBroker) -> None:
    old = owner(broker)
    broker.delay_end_txn("owner", arrived=True)
    write(old, b"1")
    with pytest.raises(Doubt):
        old.commit(1)
    assert ends(broker) == (0, 1)
    owner(broker)
    assert shown(broker) == [(0, b"1")]


def test_an_end_under_way_is_overtaken_by_the_next_owner(broker: MemoryBroker) -> None:
    old = owner(broker)
    broker.delay_end_txn("owner", arrived=False)
    write(old, b"1")
    with pytest.raises(Doubt):
        old.commit(1)
    owner(broker)
    broker.deliver_end_txn("owner")
    assert shown(broker) == []
    assert ends(broker) == (2, 2)


def test_an_end_under_way_arrives_when_it_is_delivered(broker: MemoryBroker) -> None:
    old = owner(broker)
    broker.delay_end_txn("owner", arrived=False)
    write(old, b"1")
    with pytest.raises(Doubt):
        old.commit(1)
    broker.deliver_end_txn("owner")
    assert shown(broker) == [(0, b"1")]


def test_a_transaction_that_took_too_long_is_aborted_and_its_owner_fenced(
    broker: MemoryBroker,
) -> None:
    producer = owner(broker)
    write(producer, b"slow")
    broker.time_out("owner")
    assert ends(broker) == (2, 2)
    with pytest.raises(Fenced):
        producer.commit(1)
    assert shown(broker) == []


def test_an_ordered_failure_strikes_once_and_before_the_call(broker: MemoryBroker) -> None:
    producer = owner(broker)
    write(producer, b"1")
    broker.fail_next("commit", Doubt("lost"))
    with pytest.raises(Doubt, match="lost"):
        producer.commit(1)
    assert shown(broker) == []
    producer.commit(1)
    assert shown(broker) == [(0, b"1")]


def test_an_ordered_failure_can_strike_after_the_call(broker: MemoryBroker) -> None:
    producer = owner(broker)
    write(producer, b"1")
    broker.fail_next("commit", Doubt("lost"), done=True)
    with pytest.raises(Doubt, match="lost"):
        producer.commit(1)
    assert shown(broker) == [(0, b"1")]


def test_an_ordered_failure_is_for_its_client_only(broker: MemoryBroker) -> None:
    broker.fail_next("init", Unavailable("slow"), client="b")
    owner(broker, "a")
    with pytest.raises(Unavailable):
        owner(broker, "b")
    owner(broker, "b")


def test_compaction_keeps_the_newest_committed_record_of_each_key(broker: MemoryBroker) -> None:
    producer = owner(broker)
    put(producer, b"old", b"a")
    put(producer, b"b", b"b")
    put(producer, b"new", b"a")
    put(producer, None, b"b")
    write(producer, b"aborted", b"a")
    producer.abort(1)
    before = ends(broker)
    broker.compact(TOPIC)
    assert shown(broker) == [(4, b"new"), (6, None)]
    assert shown(broker, committed=False) == [(4, b"new"), (6, None)]
    broker.compact(TOPIC, drop_tombstones=True)
    assert shown(broker) == [(4, b"new")]
    assert ends(broker) == before


def test_compaction_leaves_alone_what_stands_behind_an_open_transaction(
    broker: MemoryBroker,
) -> None:
    slow, quick = owner(broker, "slow"), owner(broker, "quick")
    put(quick, b"1")
    write(slow, b"open")
    put(quick, b"2")
    broker.compact(TOPIC)
    assert shown(broker) == [(0, b"1")]
    slow.commit(1)
    assert [value for _, value in shown(broker)] == [b"1", b"open", b"2"]


def test_retention_moves_the_start_and_old_positions_fall_outside(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    producer = owner(broker)
    put(producer, b"old")
    clock.advance(10_000)
    put(producer, b"new")
    broker.retain(TOPIC, 5_000)
    assert MemoryLog(broker).offsets().start([KEY]) == {KEY: 2}
    reader = MemoryLog(broker).reader("r", committed=True)
    reader.assign({KEY: 0})
    with pytest.raises(OutOfRange):
        reader.read(10, 0)
    assert shown(broker) == [(2, b"new")]


def test_append_time_is_the_brokers_clock(broker: MemoryBroker, clock: ManualClock) -> None:
    producer = owner(broker)
    write(producer, b"1")
    clock.advance(7)
    assert producer.commit(1)[KEY].timestamp_ms == clock.wall_ms() - 7


def test_a_read_that_finds_nothing_lets_time_pass(clock: ManualClock) -> None:
    broker = MemoryBroker(clock, lambda seconds: clock.advance(round(seconds * 1_000)))
    broker.create_topic(TOPIC)
    reader = MemoryLog(broker).reader("r", committed=True)
    reader.assign({KEY: 0})
    assert reader.read(1, 0.25) == []
    assert clock.monotonic_s() == 0.25


def test_the_clocks_part_when_the_machine_sleeps_or_is_set(clock: ManualClock) -> None:
    wall_ms = clock.wall_ms()
    clock.advance(10)
    clock.suspend(100)
    clock.jump(-1_000)
    assert clock.wall_ms() == wall_ms + 110 - 1_000
    assert clock.boottime_ms() == 110
    assert clock.monotonic_s() == 0.010


def test_crash_points_are_passed_in_order(broker: MemoryBroker) -> None:
    passed: list[str] = []
    producer = MemoryLog(broker, passed.append).transactional("owner")
    producer.init(1)
    write(producer, b"1")
    producer.commit(1)
    write(producer, b"2")
    producer.abort(1)
    writing = ["CP02", "CP03", "CP05", "CP04"]
    assert passed == ["CP13", *writing, "CP06", *writing, "CP12"]


def test_a_crash_in_the_midst_leaves_the_transaction_to_the_next_owner(
    broker: MemoryBroker,
) -> None:
    class Killed(Exception):
        pass

    def kill(point: str) -> None:
        if point == "CP06":
            raise Killed

    doomed = MemoryLog(broker, kill).transactional("owner")
    doomed.init(1)
    write(doomed, b"1")
    with pytest.raises(Killed):
        doomed.commit(1)
    assert ends(broker) == (0, 1)
    owner(broker)
    assert shown(broker) == []


def member(broker: MemoryBroker, name: str, told: list[tuple[str, list[int], bool]]) -> Ownership:
    return MemoryLog(broker).ownership(
        "g",
        "commands",
        name,
        on_assigned=lambda _: None,
        on_revoked=lambda numbers, lost: told.append((name, numbers, lost)),
    )


def test_an_expelled_member_learns_at_its_next_poll_that_all_is_lost(
    broker: MemoryBroker,
) -> None:
    broker.create_topic("commands", 4)
    told: list[tuple[str, list[int], bool]] = []
    slow, other = member(broker, "slow", told), member(broker, "other", told)
    for _ in range(2):
        slow.poll(0)
        other.poll(0)
    lost = sorted(slow.owned())
    broker.group("g", "commands").expel("slow")
    other.poll(0)
    assert other.owned() == frozenset(range(4))
    assert sorted(slow.owned()) == lost
    slow.poll(0)
    assert told == [("slow", lost, True)]
    other.poll(0)
    slow.poll(0)
    assert len(slow.owned()) == len(other.owned()) == 2
    assert not slow.owned() & other.owned()


def test_a_partition_can_be_moved_by_hand(broker: MemoryBroker) -> None:
    broker.create_topic("commands", 2)
    told: list[tuple[str, list[int], bool]] = []
    one, two = member(broker, "one", told), member(broker, "two", told)
    one.poll(0)
    two.poll(0)
    moved = min(one.owned())
    broker.group("g", "commands").move(moved, "two")
    two.poll(0)
    assert moved not in two.owned()
    one.poll(0)
    two.poll(0)
    assert moved in two.owned()
    assert told == [("one", [moved], False)]


def test_a_killed_process_leaves_its_stores_to_the_next(broker: MemoryBroker) -> None:
    stores = MemoryStores()
    store = stores.open(0)
    store.apply({b"b": b"2", b"a": b"1"})
    stores.kill()
    assert stores.open(0).get(b"a") == b"1"
    assert list(stores.contents(0).items()) == [(b"a", b"1"), (b"b", b"2")]


def test_a_damaged_store_is_corrupt_until_it_is_wiped() -> None:
    stores = MemoryStores()
    store = stores.open(0)
    store.apply({b"a": b"1"})
    stores.damage(0)
    with pytest.raises(Corrupt):
        store.get(b"a")
    store.close()
    with pytest.raises(Corrupt):
        stores.open(0)
    stores.wipe(0)
    assert stores.open(0).get(b"a") is None
