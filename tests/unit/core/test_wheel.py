"""The timer wheel against the sorted list that it stands in front of."""

from bisect import bisect_left, insort
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from processors.core.keys import Kind, due_key, due_ms_of, owner_of, second_and_tenant
from processors.core.wheel import QUANTUM, Wheel

SECONDS, SHARE, KEYS_MAX = 10, 5, 40
T0 = 1_700_000_000_000


class Index:
    """The due index: a sorted list of keys."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.scans = 0

    def put(self, key: bytes) -> None:
        at = bisect_left(self.keys, key)
        if self.keys[at : at + 1] != [key]:
            self.keys.insert(at, key)

    def delete(self, key: bytes) -> None:
        at = bisect_left(self.keys, key)
        if self.keys[at : at + 1] == [key]:
            del self.keys[at]

    def scan(self, lower: bytes, upper: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self.scans += 1
        first, last = bisect_left(self.keys, lower), bisect_left(self.keys, upper)
        return [(key, b"") for key in self.keys[first : min(last, first + limit)]]

    def due(self, now_ms: int) -> list[bytes]:
        return [key for key in self.keys if due_ms_of(key) <= now_ms]


def key(due_ms: int, tenant: int = 0, job: int = 0) -> bytes:
    return due_key(due_ms, b"t%d" % tenant, b"j%d" % job, Kind.TICK)


def wheel_of(index: Index, *, keys_max: int = KEYS_MAX, share: int = SHARE) -> Wheel:
    return Wheel(index.scan, seconds=SECONDS, share=share, keys_max=keys_max)


def step(wheel: Wheel, index: Index, now_ms: int, limit: int) -> list[bytes]:
    """What an owner does in one step: draw, decide, commit."""
    wheel.load(now_ms)
    drawn = wheel.draw(now_ms, limit)
    for one in drawn:
        index.delete(one)
    return drawn


def drain(wheel: Wheel, index: Index, now_ms: int, limit: int = 1_000) -> list[bytes]:
    """Steps until the wheel wants to sleep."""
    found: list[bytes] = []
    for _ in range(10_000):
        deadline = wheel.deadline_ms()
        if deadline is not None and deadline > now_ms:
            return found
        found += step(wheel, index, now_ms, limit)
    raise AssertionError("the wheel never sleeps")


# --- against the list, at random -----------------------------------------------------------------

MOMENTS = st.one_of(st.integers(0, 14), st.integers(0, 160)).map(lambda n: n * 250)
TENANTS = st.sampled_from([0, 0, 0, 1, 2, 3])
ACTIONS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 250, 999, 1_000, 4_000, 9_000, 30_000])),
    st.tuples(st.just("draw"), st.sampled_from([1, 3, 40, 1_000])),
    st.tuples(
        st.just("add"),
        st.lists(st.tuples(MOMENTS, TENANTS, st.integers(0, 40)), max_size=12),
    ),
    st.tuples(st.just("add many"), st.tuples(MOMENTS, TENANTS, st.integers(20, 60))),
    st.tuples(st.just("delete"), st.integers(0, 10_000)),
)


@example(first=[(0, 0, 0), (250, 0, 0)],
         actions=[("wait", 0), ("add many", (250, 0, 40)), ("add", [(0, 0, 0)])])  # fmt: skip
@given(
    first=st.lists(st.tuples(MOMENTS, TENANTS, st.integers(0, 40)), max_size=60),
    actions=st.lists(ACTIONS, max_size=25),
)
@settings(max_examples=400, deadline=None)
def test_every_key_is_drawn_once_at_its_time_and_the_wheel_never_sleeps_past_one(
    first: list[tuple[int, int, int]], actions: list[tuple[str, object]]
) -> None:
    index, now = Index(), T0
    for moment, tenant, job in first:
        index.put(key(T0 + moment, tenant, job))
    wheel = wheel_of(index)
    assert wheel.deadline_ms() is None
    wheel.load(now)
    gone: Counter[bytes] = Counter()  # deleted behind the wheel's back: it may still draw them

    def check(drawn: list[bytes]) -> None:
        for one in drawn:
            assert due_ms_of(one) <= now, "never before its time"
        for one, count in Counter(drawn).items():
            assert count <= 1 + gone[one], "twice only what was taken away in between"

    def sleep_to(until: int) -> None:
        """The loop: wake at the wheel's deadlines."""
        nonlocal now
        while True:
            check(drain(wheel, index, now))
            assert not index.due(now), "everything due is drawn"
            wake = wheel.deadline_ms()
            assert wake is not None
            if index.keys:
                assert wake <= min(due_ms_of(one) for one in index.keys)
            if wake > until:
                break
            now = wake
        now = until

    for action, value in actions:
        if action == "wait":
            assert isinstance(value, int)
            sleep_to(now + value)
        elif action == "draw":
            assert isinstance(value, int)
            before = set(index.keys)
            drawn = step(wheel, index, now, value)
            check(drawn)
            assert len(drawn) <= value
            assert all(one in before or gone[one] for one in drawn)
        elif action == "delete":
            assert isinstance(value, int)
            if index.keys:
                one = index.keys[value % len(index.keys)]
                index.delete(one)
                gone[one] += 1
        else:
            assert isinstance(value, list | tuple)
            if action == "add many":
                moment, tenant, count = value
                value = [(moment + n % 3 * 250, tenant, 100 + n) for n in range(count)]
            new = {key(max(T0 + m, now - 2_000), t, j) for m, t, j in value} - set(index.keys)
            for one in new:
                index.put(one)
            for one in new:
                wheel.add(one)
        assert wheel.size() <= KEYS_MAX + SHARE + QUANTUM * 4
    sleep_to(now + 60_000)
    assert not index.keys


def test_a_key_that_is_added_twice_is_only_stale_the_second_time() -> None:
    index = Index()
    wheel = wheel_of(index)
    wheel.load(T0)
    for _ in range(2):
        index.put(key(T0 + 500))
        wheel.add(key(T0 + 500))
    assert set(drain(wheel, index, T0 + 500)) == {key(T0 + 500)}
    assert not index.keys


# --- what it promises, one by one ----------------------------------------------------------------


def test_keys_of_one_second_are_drawn_when_their_millisecond_has_come() -> None:
    index = Index()
    for ms in (1_900, 1_100, 1_500):
        index.put(key(T0 + ms))
    wheel = wheel_of(index)
    wheel.load(T0)
    for ms in (1_100, 1_500, 1_900):
        assert wheel.deadline_ms() == T0 + ms
        assert drain(wheel, index, T0 + ms - 1) == []
        assert drain(wheel, index, T0 + ms) == [key(T0 + ms)]


def test_an_earlier_key_of_the_same_second_moves_the_deadline() -> None:
    index = Index()
    for ms in (100, 900):
        index.put(key(T0 + ms, job=ms))
    wheel = wheel_of(index)
    wheel.load(T0)
    drain(wheel, index, T0 + 100)
    index.put(key(T0 + 400))
    wheel.add(key(T0 + 400))
    assert wheel.deadline_ms() == T0 + 400
    assert drain(wheel, index, T0 + 400) == [key(T0 + 400)]


def test_keys_that_come_out_of_order_are_drawn_in_order() -> None:
    index = Index()
    wheel = wheel_of(index)
    wheel.load(T0)
    for ms in (2_750, 2_250, 2_500):
        index.put(key(T0 + ms))
        wheel.add(key(T0 + ms))
    assert drain(wheel, index, T0 + 2_250) == [key(T0 + 2_250)]
    assert drain(wheel, index, T0 + 2_999) == [key(T0 + 2_500), key(T0 + 2_750)]


def test_a_key_before_those_held_of_an_overfull_second_is_not_lost() -> None:
    index = Index()
    for n in range(20):
        index.put(key(T0 + 500 + n, job=n))
    wheel = wheel_of(index)
    wheel.load(T0)
    drawn = step(wheel, index, T0 + 900, 2)
    for ms in (100, 502, 503, 900):
        one = key(T0 + ms, job=100 + ms)
        index.put(one)
        wheel.add(one)
    drawn += drain(wheel, index, T0 + 900)
    assert len(drawn) == len(set(drawn)) == 24 and not index.keys


def test_many_overfull_tenants_are_read_in_small_pieces_once_the_wheel_is_full() -> None:
    index = Index()
    for n in range(7 * 600):
        index.put(key(T0 + 500 + n // 7 % 400, tenant=n % 7, job=n))
    wheel = wheel_of(index, keys_max=10, share=500)
    wheel.load(T0)
    drawn: list[bytes] = []
    for ms in range(500, 1_000, 25):
        drawn += drain(wheel, index, T0 + ms, limit=50)
        assert wheel.size() <= 10 + 500 + 7 * QUANTUM
    assert len(drawn) == len(set(drawn)) == 7 * 600


def test_an_earlier_key_wakes_a_tenant_that_waits_for_a_later_one() -> None:
    index = Index()
    index.put(key(T0 + 100))
    index.put(key(T0 + 900, job=1))
    wheel = wheel_of(index)
    wheel.load(T0)
    drain(wheel, index, T0 + 100)
    assert wheel.deadline_ms() == T0 + 900
    for ms, job in ((400, 2), (-3_000, 3)):
        index.put(key(T0 + ms, job=job))
        wheel.add(key(T0 + ms, job=job))
    assert drain(wheel, index, T0 + 150) == [key(T0 - 3_000, job=3)]
    assert wheel.deadline_ms() == T0 + 400
    assert drain(wheel, index, T0 + 400) == [key(T0 + 400, job=2)]


def test_a_full_second_of_a_tenant_is_read_on_in_order() -> None:
    index = Index()
    for n in range(4 * SHARE + 2):
        index.put(key(T0 + 2_000 + n, job=n))
    wheel = wheel_of(index)
    wheel.load(T0)
    assert wheel.size() == SHARE
    drawn = drain(wheel, index, T0 + 3_000, limit=3)
    assert [due_ms_of(one) for one in drawn] == [T0 + 2_000 + n for n in range(4 * SHARE + 2)]


@pytest.mark.parametrize("keys_max", [1, 7, 40, 10_000])
def test_the_wheel_holds_no_more_than_it_may_however_much_there_is(keys_max: int) -> None:
    index = Index()
    for n in range(2_000):
        index.put(key(T0 + n % 9_000, tenant=n % 7, job=n))
    wheel = wheel_of(index, keys_max=keys_max, share=50)
    wheel.load(T0)
    assert wheel.size() <= keys_max
    for n in range(2_000):
        one = key(T0 + n * 4, tenant=n % 7, job=10_000 + n)
        index.put(one)
        wheel.add(one)
        assert wheel.size() <= keys_max
    drawn: list[bytes] = []
    for now in range(T0, T0 + 10_000, 500):
        drawn += drain(wheel, index, now)
        assert wheel.size() <= keys_max + 50 + 7 * QUANTUM
    assert len(drawn) == len(set(drawn)) == 4_000 and not index.keys


def test_adds_into_an_open_second_do_not_fill_the_wheel_beyond_its_bound() -> None:
    index = Index()
    wheel = wheel_of(index, keys_max=20, share=8)
    wheel.load(T0)
    for n in range(500):
        one = key(T0 + n % 2, tenant=n % 3, job=n)
        index.put(one)
        wheel.add(one)
        if n % 5 == 0:
            step(wheel, index, T0 + 1, 1)
        assert wheel.size() <= 20 + 8 + 3 * QUANTUM
    drain(wheel, index, T0 + 1)
    assert not index.keys


def test_a_tenant_with_ten_thousand_keys_delays_another_by_a_turn_at_most() -> None:
    index = Index()
    for n in range(10_000):
        index.put(key(T0, tenant=1, job=n))
    for tenant in (2, 3):
        for n in range(5):
            index.put(key(T0 + 1, tenant=tenant, job=n))
    wheel = wheel_of(index, keys_max=2_000, share=500)
    drawn: list[bytes] = []
    while index.keys:
        drawn += step(wheel, index, T0 + 1, 100)
    tenants = [second_and_tenant(one)[1] for one in drawn]
    assert {tenants.index(b"t2"), tenants.index(b"t3")} <= set(range(2 * QUANTUM + 5 + 1))
    for tenant in (b"t2", b"t3"):
        last = len(tenants) - 1 - tenants[::-1].index(tenant)
        assert last <= 3 * QUANTUM
    assert len(drawn) == 10_010


def test_a_tenant_that_comes_while_another_is_worked_off_has_its_turn_in_the_next_draw() -> None:
    index = Index()
    for n in range(10_000):
        index.put(key(T0 - 5_000 + n % 5_000, tenant=1, job=n))
    wheel = wheel_of(index, keys_max=2_000, share=500)
    for _ in range(10):
        step(wheel, index, T0, 200)
    late = key(T0, tenant=2)
    index.put(late)
    wheel.add(late)
    assert late in step(wheel, index, T0, 2 * QUANTUM)


def test_older_work_of_one_tenant_comes_before_its_newer() -> None:
    index = Index()
    for n in range(300):
        index.put(key(T0 - n * 37, job=n))
    wheel = wheel_of(index, keys_max=1_000, share=100)
    drawn = drain(wheel, index, T0, limit=10)
    assert [due_ms_of(one) for one in drawn] == sorted(due_ms_of(one) for one in drawn)


def test_what_was_read_is_not_scanned_again() -> None:
    """Deleted keys stand in the way of a scan, so the index is read once, piece after piece."""
    index = Index()
    for n in range(500):
        index.put(key(T0 + n * 100, job=n))
    lowers: list[bytes] = []

    def scan(lower: bytes, upper: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        lowers.append(lower)
        return index.scan(lower, upper, limit)

    wheel = Wheel(scan, seconds=SECONDS, share=100, keys_max=1_000)
    for now in range(T0, T0 + 60_000, 100):
        drain(wheel, index, now)
    assert not index.keys
    assert lowers == sorted(lowers)
    assert len(lowers) < 40


def test_a_new_wheel_finds_what_the_last_owner_left() -> None:
    index = Index()
    for n in range(1_000):
        index.put(key(T0 - 100_000 + n * 150, tenant=n % 5, job=n))
    first = wheel_of(index, keys_max=100, share=10)
    drawn = step(first, index, T0, 300)
    second = wheel_of(index, keys_max=100, share=10)
    drawn += drain(second, index, T0)
    assert sorted(drawn) == sorted(
        key(T0 - 100_000 + n * 150, tenant=n % 5, job=n) for n in range(1_000)
        if n * 150 <= 100_000
    )  # fmt: skip
    assert len({owner_of(one) for one in drawn}) == len(drawn)


def test_an_idle_wheel_wakes_only_to_read_ahead() -> None:
    index = Index()
    wheel = wheel_of(index)
    wheel.load(T0)
    wakes = []
    now = T0
    while now < T0 + 60_000:
        deadline = wheel.deadline_ms()
        assert deadline is not None and deadline > now
        wakes.append(now := deadline)
        wheel.load(now)
    assert len(wakes) <= 60 // (SECONDS // 2) + 1
    keys: list[bytes] = []
    insort(keys, key(now))
    index.put(keys[0])
    wheel.add(keys[0])
    assert drain(wheel, index, now) == keys
