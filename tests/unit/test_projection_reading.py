"""Bringing the log into a fold: committed records only, each once, holes and all."""

from collections.abc import Iterator

import pytest

from projections.reading import LogReading
from streams.memory import ManualClock, MemoryBroker, MemoryLog
from streams.ports import Produced, Record

PARTITIONS = 3


class Written:
    """A namespace in memory with two topics, and what was folded of it."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.broker = MemoryBroker(clock, lambda _: clock.advance(10))
        for topic in ("ns.one", "ns.two"):
            self.broker.create_topic(topic, PARTITIONS, compacted=True)
        self.log = MemoryLog(self.broker)
        self.reading = LogReading(self.log, "ns", "test")
        self.folded: list[tuple[str, str, str | None]] = []
        self._producers = 0

    def write(self, *records: tuple[str, int, str, str | None], end: str = "commit") -> None:
        """One transaction of (topic, partition, key, value); or one that stays open or aborts."""
        self._producers += 1
        producer = self.log.transactional(f"p-{self._producers}")
        producer.init(1)
        producer.write(
            [
                Produced(f"ns.{topic}", p, key.encode(), None if value is None else value.encode())
                for topic, p, key, value in records
            ],
            report=frozenset(),
            careful=frozenset(),
        )
        if end == "commit":
            producer.commit(1)
        elif end == "abort":
            producer.abort(1)

    def fold(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        assert key is not None
        self.folded.append((topic, key.decode(), None if value is None else value.decode()))

    def catch_up(self) -> list[tuple[str, str, str | None]]:
        """What a further reading brings."""
        self.folded = []
        self.reading.catch_up(("one", "two"), range(PARTITIONS), self.fold)
        return self.folded

    def tail(self, records: int, wanted: int) -> list[str | None]:
        """Values of the newest records of topic one, until each partition has `wanted`."""
        found: list[Record] = []
        self.reading.tail(
            "one", range(PARTITIONS), found.append, records=records,
            enough=lambda p: sum(record.partition == p for record in found) >= wanted,
        )  # fmt: skip
        return [record.value.decode() if record.value else None for record in found]


@pytest.fixture
def written() -> Iterator[Written]:
    found = Written()
    yield found
    found.reading.close()


def test_every_committed_record_of_every_topic_is_folded_once(written: Written) -> None:
    written.write(("one", 0, "a", "1"), ("two", 2, "b", "2"))
    written.write(("one", 0, "a", None))
    assert sorted(written.catch_up(), key=str) == [
        ("one", "a", "1"), ("one", "a", None), ("two", "b", "2"),
    ]  # fmt: skip
    assert written.catch_up() == []
    written.write(("one", 1, "c", "3"))
    assert written.catch_up() == [("one", "c", "3")]


def test_records_of_one_partition_come_in_their_order(written: Written) -> None:
    for n in range(50):
        written.write(("one", 1, "k", str(n)))
    assert [value for _, _, value in written.catch_up()] == [str(n) for n in range(50)]


def test_an_empty_log_is_read_at_once(written: Written) -> None:
    assert written.catch_up() == []


def test_aborted_records_are_never_seen(written: Written) -> None:
    written.write(("one", 0, "a", "no"), end="abort")
    written.write(("one", 0, "a", "yes"))
    assert written.catch_up() == [("one", "a", "yes")]


def test_what_lies_behind_an_open_transaction_is_folded_once_it_ends(written: Written) -> None:
    written.write(("one", 0, "a", "before"))
    written.write(("one", 0, "a", "open"), end="leave open")
    written.write(("one", 0, "a", "behind"))
    assert written.catch_up() == [("one", "a", "before")]
    written.broker.time_out("p-2")
    assert written.catch_up() == [("one", "a", "behind")]


def test_compaction_leaves_holes_that_stop_nobody(written: Written) -> None:
    for n in range(20):
        written.write(("one", 0, f"k{n % 2}", str(n)))
    written.broker.compact("ns.one")
    assert written.catch_up() == [("one", "k0", "18"), ("one", "k1", "19")]


def test_a_tail_begins_with_the_newest_and_goes_back_as_far_as_needed(written: Written) -> None:
    for n in range(100):
        written.write(("one", 0, f"k{n}", str(n)))
    newest = written.tail(records=10, wanted=3)
    assert newest[-1] == "99"
    assert len(newest) < 20
    more = written.tail(records=10, wanted=60)
    assert len(more) >= 60
    assert len(set(more)) == len(more)
    assert set(written.tail(records=10, wanted=1_000)) == {str(n) for n in range(100)}


def test_a_partition_that_has_given_enough_is_not_read_further(written: Written) -> None:
    for n in range(100):
        written.write(("one", 0, f"k{n}", f"dense {n}"))
    written.write(("one", 1, "k", "sparse"))
    found = written.tail(records=10, wanted=2)
    assert "sparse" in found
    assert len(found) < 20


def test_a_tail_of_nothing_is_nothing(written: Written) -> None:
    assert written.tail(records=10, wanted=1) == []


def test_a_tail_does_not_look_before_the_start_of_the_log(written: Written) -> None:
    for n in range(10):
        written.write(("one", 0, f"k{n}", str(n)))
    written.broker.trim("ns.one", 0, 16)
    assert written.tail(records=4, wanted=100) == ["8", "9"]
