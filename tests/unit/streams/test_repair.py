"""Lost transaction markers: what was whole is kept, what was not never shows."""

from itertools import combinations

import msgspec
import pytest

from schemas.bindings import MARK
from streams.errors import Unavailable
from streams.ports import Produced, Record
from streams.transaction import Transaction
from tests.unit.streams.toy import DEFS, EVENTS, QUARANTINE, STATE, name
from tests.unit.streams.world import TID, Process, World

TOPICS = (STATE, DEFS, EVENTS)
WORK = {
    "a job": ("set a 9999999999999",),
    "a deletion, whose tombstone has no value": ("del old",),
    "a job that is forgotten, which leaves tombstones only": ("forget old",),
    "a fire": ("fire out x",),
    "many": ("set a 9999999999999", "del old", "fire out x", "set b 0", "poison"),
    "nothing but the mark": (),
}


def touched(work: str) -> tuple[str, ...]:
    """Topics that the work writes to, the mark's first."""
    return {
        "a job": (STATE, DEFS, EVENTS),
        "a deletion, whose tombstone has no value": (STATE, DEFS, EVENTS),
        "a job that is forgotten, which leaves tombstones only": (STATE, DEFS),
        "a fire": (STATE, EVENTS, "out"),
        "many": (STATE, DEFS, EVENTS, QUARANTINE, "out"),
        "nothing but the mark": (STATE,),
    }[work]


def full(topic: str) -> tuple[str, int]:
    return (topic if topic == "out" else name(topic), 0)


def subsets(topics: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [some for n in range(1, len(topics) + 1) for some in combinations(topics, n)]


CASES = [(work, lost) for work in WORK for lost in subsets(touched(work))]


def running() -> tuple[World, Process]:
    """A world with a job `old`, and the process that runs in it."""
    world = World()
    process = world.process()
    process.work(5)
    world.send("set old 9999999999999")
    process.work(10)
    assert world.events() == ["set old"]
    return world, process


@pytest.mark.parametrize(("work", "lost"), CASES)
def test_an_acknowledged_commit_shows_whole_whichever_of_its_markers_were_lost(
    work: str, lost: tuple[str, ...]
) -> None:
    expected, process = running()
    expected.send(*WORK[work])
    process.work(10)
    process.work(2, ms=6_000)

    world, process = running()
    process.work(1, ms=6_000)
    world.send(*WORK[work])
    world.broker.lose_marker(TID, [full(topic) for topic in lost])
    _one_commit(process)
    process.die()

    successor = world.process()
    successor.until_deciding()
    # A user's topic has no owner who would see that only its marker was lost.
    seen = [topic for topic in lost if topic != "out"]
    assert world.hidden() == ([] if seen else ["out"])
    assert [values["committed"] for values in world.alarmed("lost_marker")] == [True] * bool(seen)
    assert world.events() == expected.events()
    assert world.stored() == world.fold()
    assert list(world.fold()) == list(expected.fold())
    if seen:
        assert world.runs() == expected.runs()
    assert len(world.quarantined()) == len(expected.quarantined())
    successor.work(10)
    assert world.events() == expected.events(), "inputs are read on behind it"


def _one_commit(process: Process) -> None:
    """Exactly one transaction, acknowledged."""
    before = len(process.logic.done)
    for _ in range(20):
        process.round()
        process.world.clock.advance(5)
        if len(process.logic.done) > before:
            return
        if process.memory["in"] == 0 and not process.inputs.held:
            process.world.clock.advance(5_000)
    raise AssertionError("nothing was committed")


# --- transactions that were never whole ----------------------------------------------------------


def partial(world: World, work: str, keep: int | None, *, mark: bool) -> tuple[str, ...]:
    """A process that dies after handing over some records of a transaction; the marker of the
    abort is lost wherever it was to be written. Topics that have something hidden."""
    process = world.process().until_deciding()
    store = process.task.store
    assert store is not None
    txn = Transaction(world.marks()[-1].txn + 1, 0, store)
    for n, text in enumerate(WORK[work]):
        if text != "poison":
            process.logic.apply(txn, _record(n, text), world.clock.wall_ms())
    records = list(txn.records)
    if mark:
        newest = world.records(name(STATE))[-1]
        again = _marked(newest.value, txn.seq, len(records) + 1)
        records.append(Produced(name(STATE), 0, b"!mark", again))
    kept = records if keep is None else records[:keep]
    assert process.task.producer is not None
    process.task.producer.write(kept, report=frozenset(), careful=frozenset())
    process.die()
    topics = tuple(dict.fromkeys(record.topic for record in kept))
    world.broker.lose_marker(TID, [(topic, 0) for topic in topics])
    world.broker.time_out(TID)  # the coordinator aborts it, and its markers are lost
    assert set(world.hidden()) == set(topics)
    return topics


def _record(offset: int, text: str) -> Record:
    return Record(name("in"), 0, offset, 0, None, text.encode())


def _marked(value: bytes | None, txn: int, records: int) -> bytes:
    assert value is not None
    return MARK.encode(msgspec.structs.replace(MARK.decode(value), txn=txn, records=records))


@pytest.mark.parametrize("keep", [1, 2, 3, None])
@pytest.mark.parametrize("work", [work for work in WORK if work != "nothing but the mark"])
def test_an_unfinished_transaction_without_its_mark_never_shows(
    work: str, keep: int | None
) -> None:
    world, process = running()
    process.die()
    events, fold, runs = world.events(), world.fold(), world.runs()
    partial(world, work, keep, mark=False)
    world.process().until_deciding()
    assert [values["committed"] for values in world.alarmed("lost_marker")] == [False]
    assert (world.events(), world.fold(), world.runs()) == (events, fold, runs)
    assert world.stored() == fold
    assert world.hidden() == [], "also where it had written to a user's topic"


def test_a_transaction_that_has_its_mark_but_not_all_that_the_mark_counts_never_shows() -> None:
    world, process = running()
    process.die()
    fold, events = world.fold(), world.events()
    process = world.process().until_deciding()
    assert process.task.producer is not None
    newest = world.records(name(STATE))[-1]
    seq = world.marks()[-1].txn + 1
    process.task.producer.write(
        [
            Produced(name(STATE), 0, b"x", b'{"txn":%d,"due":0}' % seq),
            Produced(name(STATE), 0, b"!mark", _marked(newest.value, seq, 3)),
        ],
        report=frozenset(), careful=frozenset(),
    )  # fmt: skip
    process.die()
    world.broker.lose_marker(TID, [(name(STATE), 0)])
    world.broker.time_out(TID)
    world.process().until_deciding()
    assert (world.fold(), world.events()) == (fold, events)


def test_an_aborted_transaction_whose_marker_came_to_some_topics_never_shows() -> None:
    """In the events it is aborted for all to see; the state's marker is lost."""
    world, process = running()
    process.die()
    fold, events = world.fold(), world.events()
    process = world.process().until_deciding()
    assert process.task.store is not None and process.task.producer is not None
    txn = Transaction(world.marks()[-1].txn + 1, 0, process.task.store)
    process.logic.apply(txn, _record(0, "set a 5"), 0)
    mark = _marked(world.records(name(STATE))[-1].value, txn.seq, len(txn.records) + 1)
    txn.records.append(Produced(name(STATE), 0, b"!mark", mark))
    process.task.producer.write(txn.records, report=frozenset(), careful=frozenset())
    process.die()
    world.broker.lose_marker(TID, [(name(STATE), 0)])
    world.broker.time_out(TID)
    world.process().until_deciding()
    assert (world.fold(), world.events()) == (fold, events)


# --- when the repair itself meets trouble --------------------------------------------------------


@pytest.mark.parametrize("again", subsets(TOPICS))
@pytest.mark.parametrize("lost", [TOPICS, (STATE,), (EVENTS,), (DEFS, EVENTS)])
def test_the_marker_of_the_repair_may_be_lost_as_well(
    lost: tuple[str, ...], again: tuple[str, ...]
) -> None:
    world, process = running()
    world.send("set a 9999999999999", "del old")
    world.broker.lose_marker(TID, [(name(topic), 0) for topic in lost])
    _one_commit(process)
    process.die()

    first = world.process()
    world.broker.lose_marker(TID, [(name(topic), 0) for topic in again])
    # The next transaction of this id is the one that resolves the lost marker.
    first.task.take_over()
    first.executor.run()
    first.die()
    world.process().until_deciding()
    assert world.events() == ["set old", "set a", "deleted old"]
    assert world.stored() == world.fold()
    assert b"j/old" not in world.fold() and b"j/a" in world.fold()
    assert world.hidden() == []


def test_a_target_topic_that_is_gone_does_not_stop_the_repair() -> None:
    world, process = running()
    world.send("fire out x")
    world.broker.lose_marker(TID)
    _one_commit(process)
    process.die()
    world.broker.delete_topic("out")
    world.process().until_deciding()
    assert world.events() == ["set old", "fired x"]
    assert world.alarmed("target_not_touched")


def test_a_log_that_does_not_answer_leaves_everything_for_the_next_try() -> None:
    world, process = running()
    world.send("set a 5")
    world.broker.lose_marker(TID)
    _one_commit(process)
    process.die()
    world.broker.fail_next("offsets", Unavailable("away"))
    successor = world.process().until_deciding()
    assert [values["reason"] for values in world.alarmed("take_over_again")] == ["away"]
    assert world.events() == ["set old", "set a"]
    assert successor.task.ready


def test_nothing_is_written_where_no_marker_is_lost() -> None:
    world, process = running()
    world.send("set a 5", "fire out x")
    process.work(10)
    process.die()
    before = {topic: len(world.records(name(topic), committed=False)) for topic in TOPICS}
    world.process().until_deciding()
    after = {topic: len(world.records(name(topic), committed=False)) for topic in TOPICS}
    assert after == before | {STATE: before[STATE] + 1}, "only the first mark"
    assert world.alarmed("lost_marker") == []
