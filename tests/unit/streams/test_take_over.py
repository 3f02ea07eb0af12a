"""Taking a partition over: the epoch, what the log says, where to read on."""

import msgspec
import pytest

from schemas.bindings import INPUT_LOST, MARK
from schemas.limits import TAKE_OVER_BACK_OFF_MS_MAX
from streams.errors import Doubt, Fenced, Refuse, Unavailable
from streams.memory import MemoryLog, MemoryStores
from streams.ports import Produced
from streams.task import Stage
from tests.unit.streams.toy import EVENTS, IN, STATE, TOY, name
from tests.unit.streams.world import Process, World

FAR = 9_999_999_999_999


def ran(*texts: str) -> tuple[World, Process]:
    """A world in which a process decided these inputs."""
    world = World()
    process = world.process()
    process.work(5)
    world.send(*texts)
    process.work(10)
    return world, process


def test_a_new_log_is_read_from_its_start_and_marked_first() -> None:
    world = World()
    world.send("set a 5", "set b 5")
    process = world.process().until_deciding()
    assert process.inputs.starts == [(1, {IN: 0})]
    (mark,) = world.marks()
    assert (mark.txn, mark.records, mark.owner) == (1, 1, "me")
    assert [(p.topic, p.offset) for p in mark.positions] == [(IN, 0)]


def test_the_successor_reads_on_from_the_mark_whatever_else_says_otherwise() -> None:
    world, process = ran("set a 5", "set b 5", "set c 5")
    process.die()
    world.send("set d 5")
    world.clock.advance(14 * 24 * 3_600_000)  # two weeks off: the group has forgotten its offsets
    successor = world.process().until_deciding()
    assert successor.inputs.starts[-1][1] == {IN: 3}
    successor.work(5)
    assert [e for e in world.events() if e.startswith("set")] == [
        "set a", "set b", "set c", "set d",
    ]  # fmt: skip
    assert [values["reason"][:8] for values in world.alarmed("store_wiped")] == ["away for"]


def test_sequences_go_on_where_the_last_owner_stopped() -> None:
    world, process = ran(f"set a {FAR}")
    last = world.marks()[-1].txn
    process.die()
    successor = world.process().until_deciding()
    assert world.marks()[-1].txn == last + 1
    assert successor.logic.epochs == [last + 1]
    sequences = [mark.txn for mark in world.marks()]
    assert sequences == sorted(set(sequences))


def test_inputs_that_were_deleted_before_they_were_read_are_told_and_passed_over() -> None:
    world, process = ran("set a 5")
    process.die()
    world.send(*(f"set k{n} 5" for n in range(10)))
    world.broker.trim(name(IN), 0, 6)
    successor = world.process().until_deciding()
    assert successor.inputs.starts[-1][1] == {IN: 6}
    (alarm,) = world.alarmed("input_lost")
    assert (alarm["topic"], alarm["first"], alarm["last"]) == (IN, 1, 5)
    (lost,) = [
        INPUT_LOST.decode(record.value)
        for record in world.records(name(EVENTS))
        if record.value is not None and record.value.startswith(INPUT_LOST.prefix)
    ]
    assert (lost.topic, lost.partition, lost.first, lost.last) == (IN, 0, 1, 5)
    assert lost.txn == world.marks()[-1].txn
    successor.die()
    world.process().until_deciding()
    assert len(world.alarmed("input_lost")) == 1, "once, since the mark has moved past them"


def test_inputs_that_are_deleted_while_they_are_read_are_told_too() -> None:
    world, process = ran("set a 5")
    process.inputs.stop(0)
    world.send(*(f"set k{n} 5" for n in range(10)))
    world.broker.trim(name(IN), 0, 4)
    process.inputs.start(0, process.task._token, process.task.positions)
    process.work(200)
    assert [values["last"] for values in world.alarmed("input_lost")] == [3]
    assert [e for e in world.events() if e.startswith("set k")] == [
        f"set k{n}" for n in range(3, 10)
    ]


def test_an_input_that_was_created_again_is_refused() -> None:
    world, process = ran("set a 5", "set b 5")
    process.die()
    world.broker.delete_topic(name(IN))
    world.broker.create_topic(name(IN))
    successor = world.process()
    successor.work(5)
    assert isinstance(successor.task.fatal, Refuse)
    assert "created again" in str(successor.task.fatal)
    world.stores.open(0).close()  # it was let go


def test_an_input_whose_past_means_nothing_is_read_from_its_end() -> None:
    world, process = ran("set a 5", "set b 5")
    process.die()
    world.send("set c 5")
    successor = world.process()
    topology = msgspec.structs.replace(TOY, from_end=frozenset({IN}))
    successor.task = successor._task(topology, successor.logic)
    successor.until_deciding()
    assert successor.inputs.starts[-1][1] == {IN: 3}


def test_an_old_owner_that_goes_on_is_fenced_and_takes_over_again() -> None:
    world, first = ran(f"set a {FAR}")
    second = world.process(stores=MemoryStores()).until_deciding()
    world.send(f"set b {FAR}")
    first.round()
    assert first.task.stage is Stage.WAITING
    assert "epoch" in str(world.alarmed("take_over_again")[-1]["reason"])
    second.work(5)
    assert world.events() == ["set a", "set b"]
    assert _kept(second) == world.fold()
    first.work(100)
    assert world.events() == ["set a", "set b"]
    assert world.stored() == world.fold()


@pytest.mark.parametrize("zombie_first", [True, False])
def test_a_zombie_that_only_fires_timers_is_fenced(zombie_first: bool) -> None:
    world, zombie = ran()
    due = world.clock.wall_ms() + 10_000
    world.send(f"set a {due}")
    zombie.work(5)
    second = world.process(stores=MemoryStores()).until_deciding()
    zombie.inputs.stop(0)  # it hears nothing of the world
    world.clock.advance(11_000)
    for process in (zombie, second) if zombie_first else (second, zombie):
        process.round()
        process.round()
    assert zombie.logic.steps[-1][0] == "due", "it decided, but what it decided is never committed"
    assert zombie.task.stage is Stage.WAITING
    assert world.runs() == ["a"]
    assert [event for event in world.events() if event.startswith("fired")] == ["fired a"]


def _kept(process: Process) -> dict[bytes, bytes]:
    kept = process.stores.contents(0)
    return {key: value for key, value in kept.items() if not key.startswith(b"m/")}


@pytest.mark.parametrize("operation", ["init", "offsets", "read", "commit"])
@pytest.mark.parametrize("error", [Doubt("?"), Unavailable("?"), Fenced("?")])
def test_a_take_over_that_fails_is_tried_again_and_lets_everything_go(
    operation: str, error: Exception
) -> None:
    world, process = ran(f"set a {FAR}")
    process.die()
    successor = world.process()
    world.broker.fail_next(operation, error)  # type: ignore[arg-type]
    successor.until_deciding()
    assert len(world.alarmed("take_over_again")) == 1
    successor.work(5)
    assert world.stored() == world.fold()


def test_the_back_off_grows_to_a_bound_and_starts_anew_after_a_success() -> None:
    world = World()
    process = world.process()
    waits = []
    for _ in range(9):
        world.broker.fail_next("init", Unavailable("away"))
        process.task.take_over()
        process.executor.run()
        assert process.task.stage is Stage.WAITING
        start = world.clock.wall_ms()
        while not process.task.wants_take_over:
            world.clock.advance(50)
        waits.append(world.clock.wall_ms() - start)
    expected = [100, 200, 400, 800, 1_600, 3_200] + [TAKE_OVER_BACK_OFF_MS_MAX] * 3
    assert waits == pytest.approx(expected, abs=50)
    process.until_deciding()
    world.broker.fail_next("commit", Doubt("?"))
    world.clock.advance(6_000)
    process.round()
    assert process.task.stage is Stage.WAITING
    start = world.clock.wall_ms()
    while not process.task.wants_take_over:
        world.clock.advance(50)
    assert world.clock.wall_ms() - start <= 100


def test_a_torn_transaction_is_an_alarm_that_names_the_keys() -> None:
    """An older broker's loss: state shows above the mark that should have come with it."""
    world, process = ran(f"set a {FAR}")
    process.die()
    seq = world.marks()[-1].txn + 5
    tampering = MemoryLog(world.broker).outbox("x")
    tampering.send([Produced(name(STATE), 0, b"torn", b'{"txn":%d,"due":0}' % seq)])
    world.process().until_deciding()
    assert [values["keys"] for values in world.alarmed("torn_transaction")] == [["state:torn"]]


def test_the_mark_says_how_many_of_our_records_the_transaction_has() -> None:
    world, process = ran()
    world.send(f"set a {FAR}", "fire out x", "reply y", "poison")
    process.work(10)
    (mark,) = [m for m in world.marks() if m.records > 1]
    in_it = {STATE: 1 + 1, "defs": 1, EVENTS: 2, "quarantine": 1}
    assert mark.records == sum(in_it.values())
    decoded = MARK.decode(MARK.encode(mark))
    assert decoded.positions[0].offset == 4
    assert process.task.positions == {IN: 4}
