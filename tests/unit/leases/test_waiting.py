"""What waits for a place: drawn in turn and in order, bounded, and never lost or drawn twice."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from processors.core import waiting as module
from processors.core.keys import QUEUE, parse_queue, queue_key
from processors.core.waiting import Waiting
from streams.memory import MemoryStores

DEFAULT = ("default", "h")
LINES = [(p, h, t) for p in ("default", "http") for h in ("h", "k") for t in ("a", "b", "c")]


def key(due_ms: int, tenant: str = "a", handler: str = "h", pool: str = "default") -> bytes:
    return queue_key(pool, handler, tenant.encode(), due_ms, b"j%d" % due_ms, 0)


class Queue:
    """A partition's queue: the store, and in front of it what is under test."""

    def __init__(self, keys: list[bytes], keys_max: int = 1_000) -> None:
        self.store = MemoryStores().open(0)
        self.store.apply(dict.fromkeys(keys, b""))
        self.scans = 0
        self.waiting = Waiting(self.scan, keys_max=keys_max)
        self.waiting.load()

    def scan(self, lower: bytes, upper: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self.scans += 1
        return self.store.scan(lower, upper, limit)

    def add(self, *keys: bytes) -> None:
        """Commit keys, as a step would."""
        self.store.apply(dict.fromkeys(keys, b""))
        for one in keys:
            self.waiting.add(one)

    def draw(self, count: int, line: tuple[str, str] = DEFAULT) -> list[bytes]:
        """One step: draw up to so many keys, which are gone once it is committed."""
        self.waiting.load_more()
        drawn: list[bytes] = []
        while len(drawn) < count and (one := self.waiting.draw(line)) is not None:
            drawn.append(one)
        self.store.apply(dict.fromkeys(drawn))
        return drawn


def test_a_tenant_is_served_in_order_of_time() -> None:
    queue = Queue([key(n) for n in (30, 10, 20)])
    queue.add(key(15), key(5))
    assert queue.draw(9) == [key(n) for n in (5, 10, 15, 20, 30)]


def test_tenants_take_turns_however_much_each_has() -> None:
    queue = Queue([key(n) for n in range(50)] + [key(n, "b") for n in range(100, 102)])
    queue.add(key(7, "c"))
    tenants = [parse_queue(one)[2] for one in queue.draw(7)]
    assert sorted(tenants[:3]) == [b"a", b"b", b"c"]
    assert sorted(tenants[3:5]) == [b"a", b"b"]
    assert tenants[5:] == [b"a", b"a"]


def test_pools_and_handlers_do_not_stand_in_each_others_way() -> None:
    queue = Queue([key(n) for n in range(5)])
    queue.add(key(1, pool="http", handler="http"), key(2, handler="k"))
    assert set(queue.waiting.groups()) == {DEFAULT, ("http", "http"), ("default", "k")}
    assert queue.draw(9, ("http", "http")) == [key(1, pool="http", handler="http")]
    assert queue.waiting.counts("default") == {"h": 5, "k": 1}
    assert queue.waiting.counts("http") == {}
    assert not queue.waiting.has("http", "http")
    assert queue.waiting.has("default", "k")


def test_work_that_nobody_takes_keeps_no_other_out_of_memory() -> None:
    """A handler without any worker may have any number of executions waiting."""
    stuck = [key(n, handler="a-stuck") for n in range(5_000)]
    queue = Queue(stuck, keys_max=100)
    for n in range(300):
        queue.add(key(n, "b"))
    assert queue.waiting.size() <= 100
    assert queue.draw(1_000) == [key(n, "b") for n in range(300)]
    # And the other way round, when it was there first.
    queue = Queue(stuck + [key(n) for n in range(300)] + [key(7, "z", "z-last")], keys_max=100)
    assert queue.draw(9, ("default", "z-last")) == [key(7, "z", "z-last")]
    assert queue.draw(1_000) == [key(n) for n in range(300)]
    assert queue.draw(10_000, ("default", "a-stuck")) == stuck


def test_tenants_take_turns_also_beyond_what_is_held() -> None:
    """However much the first tenant has in the store, the last one is in memory too."""
    keys = [key(n) for n in range(3_000)] + [key(n, "z") for n in range(10)]
    queue = Queue(keys, keys_max=64)
    drawn = queue.draw(20)
    assert sum(parse_queue(one)[2] == b"z" for one in drawn) == 10
    assert queue.draw(10_000) == [one for one in keys if one not in drawn]


def test_a_key_that_comes_back_is_drawn_again_once() -> None:
    """Paused and resumed, or returned by its worker: the same key."""
    queue = Queue([key(1), key(2)])
    queue.add(key(2))
    assert queue.waiting.size() == 2
    assert queue.draw(1) == [key(1)]
    queue.add(key(1))
    assert queue.draw(9) == [key(1), key(2)]


def test_more_lines_than_can_be_held_are_all_served() -> None:
    keys = [key(n, f"t{n:04d}") for n in range(500)]
    queue = Queue(keys, keys_max=20)
    assert queue.waiting.size() <= 20
    late = [key(n, f"t{n:04d}") for n in range(1_000, 1_010)]
    queue.add(*late)
    drawn: list[bytes] = []
    while more := queue.draw(3):
        drawn += more
        assert queue.waiting.size() <= 20
    assert sorted(drawn) == sorted(keys + late)


def test_reading_a_long_backlog_does_not_scan_for_every_draw() -> None:
    queue = Queue([key(n) for n in range(20_000)], keys_max=8_000)
    queue.scans = 0
    assert len(queue.draw(20_000)) == 20_000
    assert queue.scans < 40


def test_job_ids_and_times_with_any_bytes_are_no_trouble() -> None:
    odd = [
        queue_key("default", "h", b"a", due_ms, job, ordinal)
        for due_ms in (0, 255, 256 << 16, 2**47)
        for job in (b"~", b"a.b", b"zz")
        for ordinal in (0, 7)
    ]
    queue = Queue(odd, keys_max=6)
    assert queue.draw(100) == sorted(odd)


@given(st.lists(st.integers(0, 60), unique=True), st.integers(2, 40), st.integers(1, 5))
@settings(max_examples=60)
def test_any_backlog_is_drawn_in_order(times: list[int], keys_max: int, step: int) -> None:
    queue = Queue([key(n) for n in times], keys_max=keys_max)
    drawn: list[bytes] = []
    while more := queue.draw(step):
        drawn += more
    assert drawn == [key(n) for n in sorted(times)]


class QueueMachine(RuleBasedStateMachine):
    """Against a model: per line a sorted set, drawn in turn. A removed key is one that was paused
    or cancelled: the cache may still give it, and whoever draws it checks."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_max = 12
        self.queue = Queue([], keys_max=self.keys_max)
        self.model: defaultdict[tuple[str, str, str], set[bytes]] = defaultdict(set)
        self.removed: set[bytes] = set()

    @rule(line=st.sampled_from(LINES), times=st.lists(st.integers(0, 99), max_size=8))
    def add(self, line: tuple[str, str, str], times: list[int]) -> None:
        pool, handler, tenant = line
        keys = [key(n, tenant, handler, pool) for n in times]
        self.model[line] |= set(keys)
        self.removed -= set(keys)
        self.queue.add(*keys)

    @rule(line=st.sampled_from(LINES), at=st.integers(0, 99))
    def remove(self, line: tuple[str, str, str], at: int) -> None:
        pool, handler, tenant = line
        gone = key(at, tenant, handler, pool)
        if gone in self.model[line]:
            self.model[line].discard(gone)
            self.removed.add(gone)
            self.queue.store.apply({gone: None})

    @rule(line=st.sampled_from(LINES), count=st.integers(1, 20))
    def draw(self, line: tuple[str, str, str], count: int) -> None:
        pool, handler, _ = line
        drawn = [one for one in self.queue.draw(count, (pool, handler)) if one not in self.removed]
        assert len(set(drawn)) == len(drawn)
        for one in drawn:
            tenant = parse_queue(one)[2].decode()
            rest = self.model[pool, handler, tenant]
            assert one == min(rest), "each tenant's in order"
            rest.discard(one)

    @precondition(lambda self: any(self.model.values()))
    @rule()
    def take_over(self) -> None:
        self.queue.waiting = Waiting(self.queue.scan, keys_max=self.keys_max)
        self.queue.waiting.load()
        self.removed.clear()

    @invariant()
    def is_bounded(self) -> None:
        assert self.queue.waiting.size() <= self.keys_max

    def teardown(self) -> None:
        """All that was added and not removed comes out in the end."""
        groups = sorted({line[:2] for line in LINES})
        found: set[bytes] = set()
        while drawn := [one for group in groups for one in self.queue.draw(5, group)]:
            found |= set(drawn) - self.removed
        assert found == set().union(*self.model.values())


QueueMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestQueueMachine = pytest.mark.timeout(60)(QueueMachine.TestCase)


def test_the_queue_keys_end_where_the_scan_does() -> None:
    assert module._END == b"q0"
    assert key(2**47, "z", "z", "zz") < module._END
    assert key(0, "0", "-", "-") >= QUEUE
