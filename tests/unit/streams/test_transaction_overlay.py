"""One transaction under construction."""

from streams.layout import TXN_HEADER
from streams.memory import MemoryStores
from streams.ports import Produced, Store
from streams.transaction import Transaction


def opened() -> Store:
    store = MemoryStores().open(0)
    store.apply({b"s/a": b"old", b"s/b": b"old"})
    return store


def test_a_step_reads_its_own_writes_before_the_store() -> None:
    txn = Transaction(7, 3, store := opened())
    assert txn.get(b"s/a") == b"old" and txn.get(b"s/c") is None
    txn.put_state("h.state", b"a", b"s/a", b"new")
    txn.put_state("h.state", b"b", b"s/b", None)
    txn.put_index(b"d/x", b"")
    assert (txn.get(b"s/a"), txn.get(b"s/b"), txn.get(b"d/x")) == (b"new", None, b"")
    assert (store.get(b"s/a"), store.get(b"s/b"), store.get(b"d/x")) == (b"old", b"old", None)
    store.apply(txn.writes)
    assert (store.get(b"s/a"), store.get(b"s/b"), store.get(b"d/x")) == (b"new", None, b"")


def test_the_last_write_of_a_key_counts() -> None:
    txn = Transaction(7, 3, opened())
    for value in (b"1", None, b"2"):
        txn.put_state("h.state", b"a", b"s/a", value)
    assert txn.get(b"s/a") == b"2" and txn.writes == {b"s/a": b"2"}
    assert [record.value for record in txn.records] == [b"1", None, b"2"]


def test_state_and_events_go_to_the_own_partition_and_targets_where_they_say() -> None:
    txn = Transaction(7, 3, opened())
    txn.put_state("h.state", b"a", b"s/a", b"v")
    txn.append("h.events", b"e", b"v")
    txn.target("orders", 9, None, b"p", (("n", b"v"),), "tag")
    assert [(r.topic, r.partition, r.tag) for r in txn.records] == [
        ("h.state", 3, ""), ("h.events", 3, ""), ("orders", 9, "tag"),
    ]  # fmt: skip
    assert txn.targets == {"orders"}


def test_a_tombstone_says_in_a_header_which_transaction_wrote_it() -> None:
    """A value carries the number itself; a tombstone has no value."""
    txn = Transaction(1_234, 0, opened())
    txn.put_state("h.state", b"a", b"s/a", None)
    txn.put_state("h.state", b"b", b"s/b", b"v")
    assert txn.records[0].headers == ((TXN_HEADER, b"1234"),)
    assert txn.records[1].headers is None


def test_empty_means_that_there_is_nothing_to_write_or_send() -> None:
    def fresh() -> Transaction:
        return Transaction(7, 0, opened())

    assert fresh().empty
    message = Produced("t", 0, b"k", b"v")
    for act in (
        lambda txn: txn.put_state("h.state", b"a", b"s/a", b"v"),
        lambda txn: txn.put_index(b"d/x", None),
        lambda txn: txn.append("h.events", b"e", b"v"),
        lambda txn: txn.send(message),
        lambda txn: txn.forward(message),
        lambda txn: txn.target("t", 0, None, b"v", (), ""),
    ):
        txn = fresh()
        act(txn)
        assert not txn.empty


def test_the_bytes_of_a_step_are_counted() -> None:
    txn = Transaction(7, 0, opened())
    txn.put_state("h.state", b"a", b"s/a", b"12345")
    txn.append("h.events", b"e", b"123")
    txn.target("orders", 0, None, b"12", (), "")
    txn.put_state("h.state", b"b", b"s/b", None)
    assert txn.bytes == 10
