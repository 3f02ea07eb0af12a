"""What every store promises, whatever it keeps its pairs in."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.errors import Refuse, Unavailable
from streams.ports import Stores

KEYS = st.binary(min_size=1, max_size=3)
BATCHES = st.lists(st.dictionaries(KEYS, st.none() | st.binary(max_size=4), max_size=8), max_size=8)


def test_a_store_is_empty_at_first(stores: Stores) -> None:
    store = stores.open(3)
    assert store.get(b"k") is None
    assert store.scan(b"", b"\xff", 10) == []


def test_what_was_applied_is_read(stores: Stores) -> None:
    store = stores.open(0)
    store.apply({b"a": b"1", b"b": b""})
    assert store.get(b"a") == b"1"
    assert store.get(b"b") == b""
    assert store.get(b"c") is None


def test_none_deletes(stores: Stores) -> None:
    store = stores.open(0)
    store.apply({b"a": b"1", b"b": b"2"})
    store.apply({b"a": None, b"never": None})
    assert store.get(b"a") is None
    assert store.scan(b"a", b"z", 10) == [(b"b", b"2")]


def test_get_many_answers_in_the_order_asked(stores: Stores) -> None:
    store = stores.open(0)
    store.apply({b"a": b"1", b"b": b"2"})
    assert store.get_many([b"b", b"x", b"a", b"b"]) == [b"2", None, b"1", b"2"]
    assert store.get_many([]) == []


def test_scan_goes_from_lower_to_before_upper_in_byte_order(stores: Stores) -> None:
    store = stores.open(0)
    store.apply({key: key for key in (b"d/9", b"d/10", b"d/\x00", b"d/\xff", b"e/", b"d")})
    assert [key for key, _ in store.scan(b"d/", b"d0", 10)] == [
        b"d/\x00",
        b"d/10",
        b"d/9",
        b"d/\xff",
    ]
    assert [key for key, _ in store.scan(b"d/10", b"d/9", 10)] == [b"d/10"]


def test_scan_stops_at_the_limit(stores: Stores) -> None:
    store = stores.open(0)
    store.apply({bytes([n]): b"" for n in range(20)})
    assert store.scan(b"", b"\xff", 3) == [(b"\x00", b""), (b"\x01", b""), (b"\x02", b"")]
    assert store.scan(b"", b"\xff", 0) == []


def test_an_empty_or_inverted_range_holds_nothing(stores: Stores) -> None:
    store = stores.open(0)
    store.apply({b"a": b"1", b"b": b"2"})
    assert store.scan(b"a", b"a", 10) == []
    assert store.scan(b"b", b"a", 10) == []


def test_what_was_applied_outlives_a_close(stores: Stores) -> None:
    store = stores.open(0)
    store.apply({b"a": b"1"})
    store.close()
    again = stores.open(0)
    assert again.get(b"a") == b"1"


def test_partitions_are_separate(stores: Stores) -> None:
    one, two = stores.open(1), stores.open(2)
    one.apply({b"a": b"1"})
    assert two.get(b"a") is None
    one.close()
    stores.wipe(1)
    two.apply({b"b": b"2"})
    assert two.get(b"b") == b"2"


def test_wipe_leaves_an_empty_store(stores: Stores) -> None:
    store = stores.open(0)
    store.apply({b"a": b"1"})
    store.close()
    stores.wipe(0)
    assert stores.open(0).get(b"a") is None


def test_wiping_what_is_not_there_does_nothing(stores: Stores) -> None:
    stores.wipe(7)
    assert stores.open(7).get(b"a") is None


def test_a_store_is_open_once(stores: Stores) -> None:
    store = stores.open(0)
    with pytest.raises(Unavailable):
        stores.open(0)
    store.close()
    stores.open(0).close()


def test_closing_twice_does_nothing(stores: Stores) -> None:
    store = stores.open(0)
    store.close()
    store.close()


def test_using_a_closed_store_is_refused(stores: Stores) -> None:
    store = stores.open(0)
    store.close()
    for use in (
        lambda: store.get(b"a"),
        lambda: store.get_many([b"a"]),
        lambda: store.scan(b"a", b"b", 1),
        lambda: store.apply({b"a": b"1"}),
    ):
        with pytest.raises(Refuse):
            use()


def test_a_scan_holds_nothing_open(stores: Stores) -> None:
    store = stores.open(0)
    store.apply({bytes([n]): b"v" for n in range(100)})
    kept = store.scan(b"", b"\xff", 10)
    store.close()
    again = stores.open(0)
    assert again.scan(b"", b"\xff", 10) == kept


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(batches=BATCHES, lower=KEYS, upper=KEYS, limit=st.integers(0, 12))
def test_a_store_is_an_ordered_map(
    stores: Stores,
    batches: list[dict[bytes, bytes | None]],
    lower: bytes,
    upper: bytes,
    limit: int,
) -> None:
    stores.wipe(0)
    store = stores.open(0)
    expected: dict[bytes, bytes] = {}
    for batch in batches:
        store.apply(batch)
        for key, value in batch.items():
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        inside = sorted((k, v) for k, v in expected.items() if lower <= k < upper)
        assert store.scan(lower, upper, limit) == inside[:limit]
        keys = [*batch, lower, upper]
        assert store.get_many(keys) == [expected.get(key) for key in keys]
    store.close()
