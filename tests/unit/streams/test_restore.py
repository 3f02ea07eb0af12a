"""Bringing a store up to the log: from nothing, from where it was, and when not to trust it."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.scheduler_topology import SCHEDULER
from schemas import limits
from schemas.bindings import MARK
from schemas.commands import DeleteJob, PauseJob, ResumeJob, TriggerJob
from schemas.state import Mark
from schemas.units import parse_instant
from streams.binding import Topology
from streams.errors import Refuse, Unavailable
from streams.layout import STORE_INDEXED, STORE_MANIFEST, STORE_MARK, encode_offset, offset_key
from streams.memory import ManualClock, MemoryBroker, MemoryLog, MemoryStores
from streams.ports import Produced
from streams.restore import ABSENT_MS_MAX, Manifest, Restored, restore
from tests.unit.core.owner import Owner
from tests.unit.core.test_job_examples import ask, put
from tests.unit.streams.toy import DEFS, STATE, TOY, encode, name
from tests.unit.streams.world import Killed

HOUR_MS = 3_600_000


class Disk:
    """A log with the toy's changelogs, and one machine's stores."""

    def __init__(self, topology: Topology = TOY) -> None:
        self.topology = topology
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock, lambda s: self.clock.advance(int(s * 1_000)))
        for log in topology.changelogs:
            self.broker.create_topic(name(log.topic), compacted=True)
        self.log = MemoryLog(self.broker)
        self.producer = self.log.transactional("t")
        self.producer.init(1)
        self.stores = MemoryStores()
        self.alarms: list[str] = []
        self.txn = 0
        self.manifest = Manifest("c", "h", "toy", 0, 1)

    def commit(self, *records: Produced, mark: bool = True, abort: bool = False) -> None:
        self.txn += 1
        written = list(records)
        if mark:
            value = MARK.encode(Mark(
                txn=self.txn, epoch=1, records=len(written) + 1, wall_ms=self.clock.wall_ms(),
                owner="me", positions=(),
            ))  # fmt: skip
            written.append(Produced(name(self.topology.changelogs[0].topic), 0, b"!mark", value))
        self.producer.write(written, report=frozenset(), careful=frozenset())
        if abort:
            self.producer.abort(1)
        else:
            self.producer.commit(1)

    def state(self, key: str, due: int = 0, **more: Any) -> Produced:
        value = encode(txn=self.txn + 1, due=due, **more)
        return Produced(name(STATE), 0, key.encode(), value)

    def restore(
        self, stores: MemoryStores | None = None, crash: Callable[[str], None] = lambda _: None
    ) -> Restored:
        stores = self.stores if stores is None else stores
        reader = self.log.reader("restore", committed=True)
        restored = restore(
            self.topology, self.manifest, stores=stores, reader=reader,
            offsets=self.log.offsets(), clock=self.clock,
            alarm=lambda event, **values: self.alarms.append(f"{event}: {values.get('reason')}"),
            crash=crash,
        )  # fmt: skip
        restored.store.close()
        return restored

    def afresh(self) -> dict[bytes, bytes]:
        """What a restore into an empty folder gives."""
        stores = MemoryStores()
        alarms = list(self.alarms)
        self.restore(stores)
        self.alarms = alarms
        return kept(stores)


def kept(stores: MemoryStores) -> dict[bytes, bytes]:
    """Everything in the store but when it was begun."""
    return {key: value for key, value in stores.contents(0).items() if key != b"m/begun"}


def random_history(disk: Disk, random: Random, steps: int) -> list[MemoryStores]:
    """Commits, aborts, deletions and compactions; stores as they were left on the way."""
    left = []
    for _ in range(steps):
        records = []
        for _ in range(random.randrange(4)):
            key = f"k{random.randrange(8)}"
            if random.random() < 0.3:
                records.append(Produced(name(STATE), 0, key.encode(), None))
                records.append(Produced(name(DEFS), 0, key.encode(), None))
            else:
                records.append(disk.state(key, random.choice([0, 5, 70, 70_000])))
                if random.random() < 0.5:
                    records.append(Produced(name(DEFS), 0, key.encode(), encode(txn=disk.txn + 1)))
        disk.commit(*records, abort=random.random() < 0.15)
        if random.random() < 0.25:
            disk.broker.compact(name(random.choice([STATE, DEFS])))
        if random.random() < 0.3:
            stores = MemoryStores()
            disk.restore(stores)
            left.append(stores)
        elif random.random() < 0.3 and left:
            disk.restore(left[-1])
    return left


# --- both ways give the same ---------------------------------------------------------------------


@given(st.randoms(use_true_random=False), st.integers(1, 25))
@settings(max_examples=80, deadline=None)
def test_catching_up_from_anywhere_gives_byte_for_byte_what_a_full_restore_gives(
    random: Random, steps: int
) -> None:
    disk = Disk()
    left = random_history(disk, random, steps)
    expected = disk.afresh()
    for stores in left:
        disk.restore(stores)
        assert kept(stores) == expected
    assert disk.alarms == []


@given(st.randoms(use_true_random=False), st.integers(1, 12))
@settings(max_examples=80, deadline=None)
def test_a_restore_may_be_killed_at_every_write_and_goes_on_from_there(
    random: Random, kills: int
) -> None:
    disk = Disk()
    left = random_history(disk, random, 12)
    stores = random.choice(left) if left and random.random() < 0.5 else MemoryStores()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("streams.restore.BATCH_RECORDS", 3)
        for _ in range(kills):
            _killed(disk, stores, writes=random.randrange(6))
        disk.restore(stores)
    assert kept(stores) == disk.afresh()


def _killed(disk: Disk, stores: MemoryStores, writes: int) -> None:
    """A restore that dies after so many writes to the store."""
    store = stores.open(0)
    applied = 0
    apply = type(store).apply

    def apply_or_die(self: Any, pairs: Any) -> None:
        nonlocal applied
        if applied == writes:
            raise Killed
        applied += 1
        apply(self, pairs)

    store.close()
    try:
        type(store).apply = apply_or_die
        disk.restore(stores)
    except Killed:
        stores.kill()
    finally:
        type(store).apply = apply


def test_a_restore_that_is_killed_half_way_is_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> (
    None
):  # fmt: skip
    monkeypatch.setattr("streams.restore.BATCH_RECORDS", 10)
    disk = Disk()
    for n in range(100):
        disk.commit(disk.state(f"k{n}", due=n + 1))

    def crash(point: str) -> None:
        assert point == "CP14"
        raise Killed

    with pytest.raises(Killed):
        disk.restore(crash=crash)
    half = [key for key in disk.stores.contents(0) if key.startswith(b"s/")]
    assert 0 < len(half) < 100
    disk.stores.kill()
    restored = disk.restore()
    assert kept(disk.stores) == disk.afresh()
    assert restored.records < 200, "what was read is not read again"
    assert disk.alarms == []


def test_the_state_of_real_jobs_comes_back_with_its_index() -> None:
    owner, disk = Owner(), Disk(SCHEDULER)
    start = parse_instant("2026-03-02T10:00:00Z")
    random, now = Random(5), start
    middle = MemoryStores()
    written = 0
    for n in range(120):
        job = f"j{random.randrange(12)}"
        command = random.choice([
            put({"every": "10s"}, job=job), put({"cron": "* * * * *"}, job=job),
            put({"in": "5s"}, {"in": "1h"}, job=job), put({"now": True}, job=job),
            *(kind(tenant="t", job=job) for kind in (PauseJob, ResumeJob, DeleteJob)),
            TriggerJob(tenant="t", job=job, command_id=f"c{n}"), ask(TriggerJob),
        ])  # fmt: skip
        owner.send(command, now)
        now += random.choice([0, 700, 4_000, 30_000, 3_700_000])
        owner.pass_time(now)
        ours = {name(log.topic) for log in SCHEDULER.changelogs}
        disk.commit(*(r for r in owner.records[written:] if r.topic in ours))
        written = len(owner.records)
        if n == 60:
            disk.restore(middle)
            disk.broker.compact(name("job-state"))
    disk.restore()
    disk.restore(middle)
    for stores in (disk.stores, middle):
        found = {k: v for k, v in stores.contents(0).items() if not k.startswith(b"m/")}
        assert found == owner.stores.contents(0)
    assert any(key.startswith(b"d/") for key in disk.stores.contents(0))


# --- the ends of what is there -------------------------------------------------------------------


def test_nothing_in_the_log_is_nothing_in_the_store() -> None:
    restored = Disk().restore()
    assert (restored.mark, restored.records, restored.torn) == (None, 0, ())


def test_records_of_an_open_or_aborted_transaction_are_not_restored() -> None:
    disk = Disk()
    disk.commit(disk.state("a", due=1))
    disk.commit(disk.state("b", due=2), abort=True)
    disk.producer.write([disk.state("c")], report=frozenset(), careful=frozenset())
    restored = disk.restore()
    assert restored.mark is not None and restored.mark.txn == 1
    assert [key for key in disk.stores.contents(0) if key.startswith(b"s/")] == [b"s/a"]


def test_a_log_whose_end_has_no_records_any_more_is_restored_to_its_end() -> None:
    disk = Disk()
    for _ in range(20):
        disk.commit(disk.state("a"))
    disk.commit(Produced(name(STATE), 0, b"a", None))
    disk.broker.compact(name(STATE), drop_tombstones=True)
    disk.commit(disk.state("x"), abort=True)
    restored = disk.restore()
    assert restored.mark is not None and restored.mark.txn == 21
    assert disk.stores.contents(0)[offset_key(STATE)] == encode_offset(
        disk.log.offsets().end([(name(STATE), 0)])[name(STATE), 0]
    )


def test_a_log_that_says_there_is_more_than_it_gives_is_unavailable() -> None:
    disk = Disk()
    disk.commit(disk.state("a"))

    class Longer:
        def start(self, keys: Any) -> Any:
            return disk.log.offsets().start(keys)

        def stable_end(self, keys: Any) -> Any:
            return {key: end + 5 for key, end in disk.log.offsets().stable_end(keys).items()}

    class Waiting:
        """Every look at the clock takes a while."""

        def __getattr__(self, name: str) -> Any:
            disk.clock.advance(700)
            return getattr(disk.clock, name)

    with pytest.raises(Unavailable, match="state-0"):
        restore(
            TOY, disk.manifest, stores=disk.stores, reader=disk.log.reader("r", committed=True),
            offsets=Longer(), clock=Waiting(), alarm=lambda *_: None, crash=lambda _: None,
        )  # fmt: skip
    disk.stores.open(0).close()


def test_state_above_the_mark_is_reported_as_torn() -> None:
    disk = Disk()
    disk.commit(disk.state("a"))
    disk.commit(disk.state("b"), Produced(name(DEFS), 0, b"b", encode(txn=2)), mark=False)
    restored = disk.restore()
    assert sorted(restored.torn) == [(DEFS, b"b"), (STATE, b"b")]
    disk.commit(disk.state("c"), Produced(name(DEFS), 0, b"c", encode(txn=3)))
    assert disk.restore().torn == ()


def test_a_long_log_without_marks_in_between_is_not_held_in_memory() -> None:
    disk = Disk()
    count = limits.TRANSACTION_RECORDS_MAX + 7_000
    for start in range(0, count, 5_000):
        disk.commit(*(disk.state(f"k{n}") for n in range(start, min(start + 5_000, count))))
    disk.broker.compact(name(STATE))
    held: list[int] = []
    remember = restore.__globals__["_Restore"]._remember_tail

    def watch(self: Any, log: Any, batch: Any) -> None:
        remember(self, log, batch)
        held.append(len(self.tail))

    restore.__globals__["_Restore"]._remember_tail = watch
    try:
        disk.restore()
    finally:
        restore.__globals__["_Restore"]._remember_tail = remember
    assert max(held) <= limits.TRANSACTION_RECORDS_MAX


# --- when the store is not trusted ---------------------------------------------------------------


def restored_disk() -> Disk:
    disk = Disk()
    for n in range(5):
        disk.commit(
            disk.state(f"k{n}", due=n + 1), Produced(name(DEFS), 0, b"k%d" % n, encode(txn=n + 1))
        )
    disk.restore()
    assert disk.alarms == []
    return disk


def edit(disk: Disk, writes: dict[bytes, bytes | None]) -> None:
    store = disk.stores.open(0)
    store.apply(writes)
    store.close()


def _other(**change: Any) -> Callable[[Disk], None]:
    def spoil(disk: Disk) -> None:
        manifest = msgspec.structs.replace(disk.manifest, **change)
        edit(disk, {STORE_MANIFEST: msgspec.json.encode(manifest)})

    return spoil


def _offset(topic: str, offset: int) -> Callable[[Disk], None]:
    return lambda disk: edit(disk, {offset_key(topic): encode_offset(offset)})


def _trimmed(disk: Disk) -> None:
    _offset(DEFS, 1)(disk)
    disk.broker.trim(name(DEFS), 0, 2)


def _away(disk: Disk) -> None:
    disk.clock.advance(ABSENT_MS_MAX + 1)


SPOILED: dict[str, tuple[Callable[[Disk], None], str]] = {
    "of another cluster": (_other(cluster="x"), "belongs to"),
    "of another namespace": (_other(namespace="x"), "belongs to"),
    "of another processor": (_other(processor="x"), "belongs to"),
    "of another partition": (_other(partition=1), "belongs to"),
    "of another partition count": (_other(partitions=2), "belongs to"),
    "of another layout": (_other(layout=2), "belongs to"),
    "damaged": (lambda disk: disk.stores.damage(0), "damaged"),
    "ahead of the log": (_offset(STATE, 1_000), "stored offset 1000"),
    "with half an offset": (lambda d: edit(d, {offset_key(STATE): b"123"}), "3 bytes"),
    "behind the log's start": (_trimmed, "stored offset 1"),
    "away for too long": (_away, "away for longer"),
    "with a mark that is none": (lambda d: edit(d, {STORE_MARK: b"???"}), "its mark"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_store_that_cannot_be_trusted_is_wiped_and_made_anew(how: str) -> None:
    disk = restored_disk()
    expected = disk.afresh()
    edit(disk, {b"s/ghost": encode(txn=1, due=3), b"d/ghost": b""})
    spoil, why = SPOILED[how]
    spoil(disk)
    if how == "behind the log's start":
        expected = disk.afresh()
    disk.restore()
    assert (
        len(disk.alarms) == 1
        and disk.alarms[0].startswith("store_wiped")
        and why in (disk.alarms[0])
    )
    assert kept(disk.stores) == expected


def test_a_store_that_was_away_for_less_is_kept() -> None:
    disk = restored_disk()
    disk.clock.advance(ABSENT_MS_MAX)
    assert disk.restore().records == 0
    assert disk.alarms == []


def test_a_first_restore_that_was_interrupted_long_ago_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is no mark yet that tells how old it is; deletions may have been collected since."""
    monkeypatch.setattr("streams.restore.BATCH_RECORDS", 2)
    disk = Disk()
    disk.commit(disk.state("gone", due=7), disk.state("a"), disk.state("b"), disk.state("c"))
    _killed(disk, disk.stores, writes=2)
    assert b"s/gone" in disk.stores.contents(0)
    disk.commit(Produced(name(STATE), 0, b"gone", None))
    disk.clock.advance(3 * 24 * HOUR_MS)
    disk.broker.compact(name(STATE), drop_tombstones=True)
    disk.commit(disk.state("d"))
    disk.restore()
    assert b"s/gone" not in disk.stores.contents(0)
    assert kept(disk.stores) == disk.afresh()


def test_an_index_that_was_not_finished_is_built_again_from_scratch() -> None:
    disk = restored_disk()
    expected = kept(disk.stores)
    edit(disk, {STORE_INDEXED: b"0", b"d/wrong": b""})
    disk.restore()
    assert kept(disk.stores) == expected


# --- what must stop the process ------------------------------------------------------------------


@pytest.mark.parametrize("topic", [STATE, DEFS])
def test_records_without_any_mark_are_refused(topic: str) -> None:
    disk = Disk()
    disk.commit(Produced(name(topic), 0, b"a", encode(txn=1, due=0)), mark=False)
    with pytest.raises(Refuse, match="no mark"):
        disk.restore()
    disk.stores.open(0).close()


def test_records_that_were_only_aborted_are_no_reason_to_refuse() -> None:
    disk = Disk()
    disk.commit(disk.state("a"), abort=True)
    for _ in range(2):
        assert disk.restore().mark is None


def test_a_mark_that_cannot_be_read_is_refused() -> None:
    disk = Disk()
    disk.commit(Produced(name(STATE), 0, b"!mark", b"\x00\x00\x00\x00\x63"), mark=False)
    with pytest.raises(Refuse, match="its mark"):
        disk.restore()
