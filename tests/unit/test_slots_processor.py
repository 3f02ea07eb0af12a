"""The slots processor over a store in memory: what it writes, sends, refuses, and when it looks."""

import pytest
from msgspec.structs import replace

from processors.core.places import pool_limit
from processors.core.slots import PARTITION_SILENT_MS, WORKER_SILENT_MS
from processors.slots import SEND_AGAIN_MS, SETTLE_MS, Slots
from processors.slots_topology import LIMIT, SLOTS
from schemas.bindings import SLOT_STATE, SLOTS_GRANTED, SLOTS_WANTED, WORKER_OFFER
from schemas.partition import partition_of
from schemas.slots import SlotsGranted, SlotsWanted, WorkerOffer
from streams.binding import DueEntryCrashed
from streams.errors import PoisonRecord
from streams.memory.store import MemoryStores
from streams.ports import Record
from streams.transaction import Transaction

PARTITIONS = 4
LIMIT_KEY = pool_limit("default")
HOME = partition_of(LIMIT_KEY, PARTITIONS)
NOW = 1_700_000_000_000

OFFER = WorkerOffer(
    pool="default", worker="w#1", inbox_partition=2, handlers=("a",), places=4, ahead=0,
    draining=False, n=1,
)  # fmt: skip
WANTED = SlotsWanted(
    limit=LIMIT_KEY, partition=1, epoch=5, n=1, held={}, wanted={"a": 2}, oldest_ms=NOW, answers=0
)


class Home:
    """One owner of the limit's partition."""

    def __init__(self, stores: MemoryStores) -> None:
        self.store = stores.open(HOME)
        self.alarms: list[str] = []
        self.told: list[dict[str, object]] = []
        self.slots = Slots(
            namespace="ns", partition=HOME, partitions=PARTITIONS,
            alarm=self._alarm,
        )  # fmt: skip
        self.txn = 0
        self.slots.resume(self.store, epoch=1, now_ms=NOW)

    def _alarm(self, event: str, **values: object) -> None:
        self.alarms.append(event)
        self.told.append(values)

    def begin(self) -> Transaction:
        self.txn += 1
        return Transaction(self.txn, HOME, self.store)

    def hear(self, txn: Transaction, message: WorkerOffer | SlotsWanted | bytes) -> None:
        if isinstance(message, bytes):
            value = message
        elif isinstance(message, WorkerOffer):
            value = WORKER_OFFER.encode(message)
        else:
            value = SLOTS_WANTED.encode(message)
        self.slots.apply(txn, Record("ns.slot-requests", HOME, 0, NOW, None, value), NOW)

    def step(
        self, *messages: WorkerOffer | SlotsWanted, now_ms: int = NOW
    ) -> tuple[Transaction, list[SlotsGranted]]:
        """A step that is committed, and what it sends afterwards."""
        txn = self.begin()
        for message in messages:
            self.hear(txn, message)
        self.slots.due(txn, now_ms, 100)
        self.slots.finish(txn, now_ms)
        self.store.apply(txn.writes)
        self.slots.committed(txn)
        return txn, [SLOTS_GRANTED.decode(message.value or b"") for message in txn.outbox]


@pytest.fixture
def home() -> Home:
    return Home(MemoryStores())


def test_a_grant_goes_to_its_partition_and_is_written_before_it_is_sent(home: Home) -> None:
    txn, grants = home.step(OFFER, WANTED)
    assert [(grant.partition, grant.n) for grant in grants] == [(1, 1)]
    (message,) = txn.outbox
    assert (message.topic, message.partition, message.key) == (
        "ns.slot-grants", 1, LIMIT_KEY.encode(),
    )  # fmt: skip
    (record,) = txn.records
    assert (record.topic, record.partition, record.key) == (
        "ns.slot-state", HOME, LIMIT_KEY.encode(),
    )  # fmt: skip
    state = SLOT_STATE.decode(record.value or b"")
    assert (state.txn, state.partitions["1"].granted) == (txn.seq, {"w#1": 4})
    assert txn.writes[LIMIT + LIMIT_KEY.encode()] == record.value


def test_what_changes_no_grant_and_is_said_again_anyway_is_not_written(home: Home) -> None:
    home.step(OFFER, WANTED)
    txn, grants = home.step(
        replace(OFFER, n=2), replace(WANTED, n=2, answers=1, held={"w#1": 1}, wanted={"a": 1})
    )
    assert (txn.records, grants) == ([], [])


def test_a_new_owner_sends_every_grant_again_as_it_was(home: Home) -> None:
    _, first = home.step(OFFER, WANTED, replace(WANTED, partition=3))
    home.slots.resume(home.store, epoch=2, now_ms=NOW)
    assert home.slots.deadline_ms() == 0
    txn, again = home.step()
    assert again == first
    assert txn.records == []
    assert home.slots.deadline_ms() == NOW + SETTLE_MS
    _, nothing = home.step(replace(WANTED, n=2, answers=1))
    assert nothing == []


def test_a_grant_that_nobody_answers_is_sent_again(home: Home) -> None:
    _, first = home.step(OFFER, WANTED)
    home.step(now_ms=NOW + SETTLE_MS)
    assert home.slots.deadline_ms() == NOW + SEND_AGAIN_MS
    _, again = home.step(now_ms=NOW + SEND_AGAIN_MS)
    assert again == first
    assert home.slots.deadline_ms() == NOW + 2 * SEND_AGAIN_MS


def test_it_looks_again_when_somebody_falls_silent_and_then_never(home: Home) -> None:
    home.step(OFFER, WANTED)
    home.step(replace(WANTED, n=2, answers=1))
    now, times = NOW, []
    while (deadline := home.slots.deadline_ms()) is not None:
        assert deadline > now
        now = deadline
        times.append(now - NOW)
        home.step(now_ms=now)
    assert WORKER_SILENT_MS in times
    assert max(times) == PARTITION_SILENT_MS


def test_a_step_that_is_dropped_leaves_no_trace(home: Home) -> None:
    home.step(OFFER, WANTED)
    txn = home.begin()
    home.hear(txn, replace(WANTED, n=2, epoch=9))
    home.slots.due(txn, NOW, 100)
    home.slots.resume(home.store, epoch=1, now_ms=NOW)
    _, grants = home.step()
    assert [(grant.epoch, grant.n) for grant in grants] == [(5, 1)]


def test_several_messages_of_one_step_make_one_grant(home: Home) -> None:
    _, grants = home.step(OFFER, WANTED, *(replace(WANTED, n=n) for n in range(2, 9)))
    assert [grant.n for grant in grants] == [1]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "an empty value"),
        (b"\x00\x00\x00\x00\x01x", "expected WorkerOffer or SlotsWanted"),
        (WORKER_OFFER.encode(OFFER)[:-1], "not a WorkerOffer"),
        (replace(OFFER, places=-1), "places"),
        (replace(OFFER, ahead=10**6), "ahead"),
        (replace(WANTED, partition=PARTITIONS), "partition 4 of 4"),
        (replace(WANTED, held={"w": -1}), "below zero"),
        (replace(WANTED, limit="tenant:acme"), "only pool:<name> is known"),
    ],
)
def test_a_message_that_makes_no_sense_is_set_aside(
    home: Home, message: WorkerOffer | SlotsWanted | bytes, reason: str
) -> None:
    with pytest.raises(PoisonRecord, match=reason):
        home.hear(home.begin(), message)


def test_a_limit_of_another_partition_is_set_aside(home: Home) -> None:
    other = next(
        pool for n in range(99) if partition_of(pool_limit(pool := f"p{n}"), PARTITIONS) != HOME
    )
    with pytest.raises(PoisonRecord, match="another partition count"):
        home.hear(home.begin(), replace(OFFER, pool=other))


def test_a_limit_that_cannot_be_divided_is_forgotten_and_learned_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.step(OFFER, WANTED)
    txn = home.begin()
    home.hear(txn, replace(WANTED, n=2))
    with monkeypatch.context() as broken:
        broken.setattr("processors.core.slots.Board", None)
        with pytest.raises(DueEntryCrashed) as crash:
            home.slots.due(txn, NOW, 100)
    home.slots.resume(home.store, epoch=1, now_ms=NOW)
    txn = home.begin()
    assert home.slots.break_entry(txn, crash.value, NOW)
    home.store.apply(txn.writes)
    home.slots.committed(txn)
    assert home.alarms == ["limit_forgotten"]
    assert home.store.get(LIMIT + LIMIT_KEY.encode()) is None
    _, grants = home.step(replace(OFFER, n=2), replace(WANTED, n=3, answers=1))
    assert [(grant.n, grant.workers["w#1"].count) for grant in grants] == [(2, 4)]


def test_a_limit_that_only_this_step_made_is_left_to_smaller_steps(home: Home) -> None:
    assert not home.slots.break_entry(home.begin(), DueEntryCrashed(LIMIT_KEY.encode(), "why"), NOW)


def test_its_state_records_tell_their_transaction(home: Home) -> None:
    txn, _ = home.step(OFFER)
    (record,) = txn.records
    assert SLOTS.transaction_of(record.value or b"") == txn.seq
    assert SLOTS.transaction_of(WORKER_OFFER.encode(OFFER)) == -1


def test_a_worker_with_other_leases_gets_nothing_and_the_operator_hears_why_once(
    home: Home,
) -> None:
    other = replace(OFFER, worker="other#1", lease_ms=3_000)
    _, grants = home.step(other, WANTED)
    assert all(grant.workers == {} for grant in grants)
    _, grants = home.step(replace(other, n=2), replace(OFFER, lease_ms=60_000))
    assert [grant.workers.keys() for grant in grants] == [{"w#1"}]
    assert home.alarms == ["worker_refused"]
    assert home.told[0]["worker"] == "other#1"
    assert "3000 ms" in str(home.told[0]["reason"])
    assert "60000 ms" in str(home.told[0]["reason"])
    assert "HOROLOG_LEASE_MS" in str(home.told[0]["advice"])


def test_a_worker_that_does_not_say_what_leases_it_goes_by_is_believed(home: Home) -> None:
    _, grants = home.step(replace(OFFER, lease_ms=0), WANTED)
    assert [grant.workers.keys() for grant in grants] == [{"w#1"}]
    assert home.alarms == []


def test_a_scheduler_that_gives_other_leases_gets_no_places_and_the_operator_hears_why_once(
    home: Home,
) -> None:
    other = replace(WANTED, lease_ms=3_000)
    _, grants = home.step(replace(OFFER, lease_ms=60_000), other)
    assert grants == []
    _, grants = home.step(
        replace(other, n=2), replace(WANTED, partition=2, lease_ms=60_000),
    )  # fmt: skip
    assert [grant.partition for grant in grants] == [2]
    assert home.alarms == ["scheduler_refused"]
    assert home.told[0]["partition"] == WANTED.partition
    assert "3000 ms" in str(home.told[0]["reason"])
