"""What the log says about who is alive."""

from collections.abc import Iterator

import pytest

from horolog.signs import Owner, Pool, owners, pools, set_aside
from projections.reading import LogReading
from schemas.bindings import MARK, QUARANTINED, SLOTS_WANTED, WORKER_OFFER
from schemas.events import Quarantined
from schemas.partition import partition_of
from schemas.slots import SlotsWanted, WorkerOffer
from schemas.state import Mark
from streams.memory import ManualClock, MemoryBroker, MemoryLog
from streams.ports import Produced

PARTITIONS = 3
SILENT_MS = 15_000
POOLS = ("default", "http")


class Written:
    """A namespace in memory into which everybody writes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock)
        self.broker.create_topic("ns.job-state", PARTITIONS, compacted=True)
        self.broker.create_topic("ns.slot-requests", PARTITIONS, append_time=True)
        self.broker.create_topic("ns.quarantine", PARTITIONS)
        self.log = MemoryLog(self.broker)
        self.reading = LogReading(self.log, "ns", "test")

    def write(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        self.log.outbox("test").send([Produced(f"ns.{topic}", partition, key, value)])

    def mark(self, partition: int, owner: str) -> None:
        mark = Mark(
            txn=1, epoch=1, records=1, wall_ms=self.clock.wall_ms(), owner=owner, positions=()
        )
        self.write("job-state", partition, b"!mark", MARK.encode(mark))

    def offer(self, worker: str, pool: str = "default", **changes: object) -> None:
        values = {
            "pool": pool, "worker": worker, "inbox_partition": 0, "handlers": ("h",), "places": 20,
            "ahead": 0, "draining": False, "n": 1,
        } | changes  # fmt: skip
        home = partition_of(f"pool:{pool}", PARTITIONS)
        value = WORKER_OFFER.encode(WorkerOffer(**values))  # type: ignore[arg-type]
        self.write("slot-requests", home, b"", value)

    def want(self, partition: int, count: int, pool: str = "default") -> None:
        limit = f"pool:{pool}"
        message = SlotsWanted(
            limit=limit, partition=partition, epoch=1, n=1, held={}, wanted={"h": count},
            oldest_ms=0, answers=0,
        )  # fmt: skip
        home = partition_of(limit, PARTITIONS)
        self.write("slot-requests", home, b"", SLOTS_WANTED.encode(message))

    def pools(self) -> dict[str, Pool]:
        return pools(
            self.reading, POOLS, PARTITIONS, now_ms=self.clock.wall_ms(), silent_ms=SILENT_MS
        )


@pytest.fixture
def written() -> Iterator[Written]:
    found = Written()
    yield found
    found.reading.close()


def test_the_newest_mark_names_the_owner_and_partitions_without_one_are_left_out(
    written: Written,
) -> None:
    written.mark(0, "old")
    written.clock.advance(1_000)
    written.mark(0, "new")
    written.mark(2, "other")
    written.write("job-state", 0, b"t/j", b"\x00state")
    at_ms = written.clock.wall_ms()
    assert owners(written.reading, "job-state", PARTITIONS) == {
        0: Owner("new", at_ms), 2: Owner("other", at_ms),
    }  # fmt: skip


def test_a_worker_counts_while_it_offers_and_is_not_draining(written: Written) -> None:
    written.offer("gone")
    written.clock.advance(SILENT_MS + 1)
    written.offer("here")
    written.offer("ending", draining=True, places=0)
    written.offer("caller", pool="http", places=200)
    found = written.pools()
    assert found["default"].workers == {"here": 20}
    assert found["http"].workers == {"caller": 200}


def test_the_newest_offer_and_want_count(written: Written) -> None:
    written.offer("w", places=5)
    written.want(0, 7)
    written.want(1, 1)
    written.clock.advance(10)
    written.offer("w", places=9)
    written.want(0, 2)
    assert written.pools()["default"] == Pool(workers={"w": 9}, wanted=3)


def test_the_leases_that_a_worker_goes_by_are_told_with_its_newest_offer(written: Written) -> None:
    written.offer("silent about it")
    written.offer("w", lease_ms=3_000)
    written.clock.advance(10)
    written.offer("w", lease_ms=5_000)
    assert written.pools()["default"].leases == {"w": 5_000}


def test_wants_are_remembered_for_longer_than_they_are_repeated_and_not_for_ever(
    written: Written,
) -> None:
    written.want(0, 4)
    written.clock.advance(20_000)
    assert written.pools()["default"].wanted == 4
    written.clock.advance(10_000)
    assert written.pools()["default"].wanted == 0


def test_nothing_was_said_of_a_pool_that_nobody_uses(written: Written) -> None:
    assert written.pools() == {name: Pool(workers={}, wanted=0) for name in POOLS}


def test_garbage_among_requests_is_passed_over(written: Written) -> None:
    home = partition_of("pool:default", PARTITIONS)
    written.write("slot-requests", home, b"", WORKER_OFFER.prefix + b"\xff")
    written.offer("w")
    assert written.pools()["default"].workers == {"w": 20}


def test_what_was_set_aside_is_counted_and_the_newest_told(written: Written) -> None:
    assert set_aside(written.reading, PARTITIONS).count == 0
    for n in range(3):
        one = Quarantined(
            topic="commands", partition=n, offset=n, timestamp_ms=0, key=None, value=b"",
            error=f"wrong {n}", at_ms=n, txn=1,
        )  # fmt: skip
        written.write("quarantine", n % 2, b"k", QUARANTINED.encode(one))
    found = set_aside(written.reading, PARTITIONS)
    assert (found.count, found.exact, found.newest) == (3, True, "commands-2@2: wrong 2")
