"""One partition's task: steps, doubts, blame, and what goes out when."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from schemas import limits
from streams.crash import CRASH_POINTS
from streams.errors import Aborted, Doubt, Fenced, Refusal, StreamError, Unavailable
from streams.ports import Record
from streams.task import Stage
from tests.unit.streams.toy import IN, name
from tests.unit.streams.world import TID, Killed, Process, World

FAR = 9_999_999_999_999


def started(crash: Callable[[str], None] = lambda _: None) -> tuple[World, Process]:
    world = World()
    process = world.process(crash)
    process.work(5)
    return world, process


def record(offset: int, text: str) -> Record:
    return Record(name(IN), 0, offset, 0, None, text.encode())


# --- steps ---------------------------------------------------------------------------------------


def test_what_is_decided_is_in_the_log_then_in_the_store_then_in_memory() -> None:
    world, process = started()
    world.send(f"set a {FAR}", "reply a")
    process.executor.held = True
    process.round()
    assert process.task.stage is Stage.COMMITTING and process.task.busy
    assert world.events() == [] and world.stored() == {} and process.logic.done == []
    process.executor.held = False
    process.round()
    assert world.events() == ["set a"] and world.stored() == world.fold() != {}
    assert len(process.logic.done) == 1
    assert len(world.records("replies")) == 1


def test_a_due_entry_fires_once_at_its_time_and_not_before() -> None:
    world, process = started()
    due = world.clock.wall_ms() + 10_000
    world.send(f"set a {due}")
    process.work(10)
    while world.clock.wall_ms() < due - 10:
        process.work(1, ms=10)
    process.round()
    assert world.runs() == []
    process.work(10, ms=10)
    assert world.runs() == ["a"]
    assert world.stored() == world.fold()


def test_an_idle_task_marks_every_five_seconds_and_a_busy_one_with_each_step() -> None:
    world, process = started()
    process.work(150, ms=200)
    gaps = [later.wall_ms - mark.wall_ms for mark, later in pairwise(world.marks())]
    assert len(gaps) >= 5
    assert all(limits.IDLE_MARK_MS <= gap <= limits.IDLE_MARK_MS + 200 for gap in gaps)
    marks = len(world.marks())
    for n in range(10):
        world.send(f"set k{n} {FAR}")
        process.work(2)
    assert len(world.marks()) == marks + 10


def test_transactions_are_paced_unless_they_are_full() -> None:
    world, process = started()
    world.send("set a 0")
    process.round()
    assert len(process.logic.done) == 1
    world.send("set b 0")
    process.round()
    assert len(process.logic.done) == 1, "right after a commit the next one waits"
    world.clock.advance(limits.PACE_MS)
    process.round()
    assert len(process.logic.done) == 2
    world.send(*(f"set k{n} 0" for n in range(2 * limits.COMMANDS_PER_STEP_MAX + 5)))
    world.clock.advance(limits.PACE_MS)
    process.round()
    process.round()
    assert len(process.logic.done) == 4, "a full one is followed at once"


def test_the_task_says_when_it_has_something_to_do() -> None:
    world, process = started()
    process.work(3)
    now_s = world.clock.monotonic_s()
    at = process.task.next_turn_s()
    assert at is not None and now_s < at <= now_s + limits.IDLE_MARK_MS / 1_000
    due = world.clock.wall_ms() + 1_000
    world.send(f"set a {due}")
    process.work(2)
    at = process.task.next_turn_s()
    assert at is not None
    assert at == pytest.approx(world.clock.monotonic_s() + (due - world.clock.wall_ms()) / 1_000)
    process.executor.held = True
    world.send("set b 0")
    process.round()
    assert process.task.next_turn_s() is None, "it is told when the commit is back"


def test_inputs_are_held_back_while_too_much_waits_and_come_again_when_it_is_worked_off() -> None:
    world, process = started()
    process.executor.held = True
    count = 2 * limits.INPUT_BUFFER_RECORDS_MAX
    world.send(*(f"set k{n} 0" for n in range(count)))
    process.work(10)
    assert process.inputs.paused == 1
    assert process.memory[IN] <= limits.INPUT_BUFFER_RECORDS_MAX + 2_000
    process.executor.held = False
    process.work(40)
    assert process.inputs.resumed >= 1
    assert len(world.events()) == count
    assert world.marks()[-1].positions[0].offset == count


def test_a_step_stops_at_so_many_bytes_and_goes_on_with_the_next() -> None:
    world, process = started()
    big = "x" * 200_000
    world.send(*(f"fire out {n}-{big}" for n in range(100)))
    steps = len(process.logic.done)
    process.work(10)
    per_record = 400_000  # the event and the record itself
    assert len(process.logic.done) - steps >= 100 * per_record // limits.TRANSACTION_BYTES_MAX
    most = limits.TRANSACTION_BYTES_MAX // per_record + 2
    assert all(mark.records <= most + 1 for mark in world.marks())
    assert [key.split("-")[0] for key in world.runs()] == [str(n) for n in range(100)]


# --- the clock -----------------------------------------------------------------------------------


def test_nothing_is_decided_while_the_clocks_disagree_but_marks_go_on() -> None:
    world, process = started()
    due = world.clock.wall_ms() + 1_000
    world.send(f"set a {due}")
    process.work(5)
    world.clock.jump(60_000)  # the broker's clock is the same one here: it agrees at the next mark
    steps = len(process.logic.steps)
    process.round()
    assert len(process.logic.steps) == steps, "the wall clock jumped: wait for a mark"
    marks = len(world.marks())
    process.work(limits.CLOCK_ALONE_AGREEMENT_MS // 100 - 5, ms=100)
    assert len(world.marks()) > marks + 20
    assert world.runs() == [], "agreement has to last: both clocks may have been set wrong together"
    process.work(25, ms=100)
    assert world.runs() == ["a"]
    assert [len(world.alarmed(event)) for event in ("clock_held", "clock_trusted_again")] == [1, 1]
    assert world.alarmed("clock_held")[0]["partition"] == 0


def test_a_clock_that_was_put_back_goes_on_within_two_minutes_and_repeats_nothing() -> None:
    """The clock ran two hours ahead, on the broker's machine too, and is corrected: nothing waits
    until the wrong time comes round."""
    world, process = started()
    hours = 2 * 3_600_000
    world.clock.jump(hours)
    world.send(f"set a {world.clock.wall_ms() + 500}")
    process.work(600, ms=100)
    assert world.runs() == ["a"]
    world.clock.jump(-hours)
    corrected_ms = world.clock.wall_ms()
    world.send(f"set b {corrected_ms + 10_000}")
    while world.runs() == ["a"]:
        process.work(10, ms=100)
        assert world.clock.wall_ms() - corrected_ms < 120_000
    assert world.runs() == ["a", "b"]


def test_a_machine_that_slept_goes_on_at_once() -> None:
    world, process = started()
    world.send(f"set a {world.clock.wall_ms() + 3_600_000}")
    process.work(5)
    world.clock.suspend(7_200_000)
    process.work(10)
    assert world.runs() == ["a"]
    assert world.alarmed("clock_held") == []


# --- doubts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Doubt("?"), Fenced("?")])
@pytest.mark.parametrize("operation", ["write", "commit"])
@pytest.mark.parametrize("done", [False, True])
def test_whatever_became_of_a_commit_in_doubt_the_effect_is_there_once(
    error: StreamError, operation: str, done: bool
) -> None:
    world, process = started()
    world.send(f"set a {FAR}", "fire out x", "reply r")
    world.broker.fail_next(operation, error, client=TID, done=done)  # type: ignore[arg-type]
    process.work(200)
    assert len(world.alarmed("take_over_again")) == 1
    assert world.events() == ["set a", "fired x"]
    assert world.runs() == ["x"]
    assert world.stored() == world.fold()
    assert process.logic.resumed == 2


@pytest.mark.parametrize("arrived", [False, True])
def test_an_end_of_transaction_that_is_not_answered_is_found_out_by_taking_over(
    arrived: bool,
) -> None:
    world, process = started()
    world.send(f"set a {FAR}", "fire out x")
    world.broker.delay_end_txn(TID, arrived=arrived)
    process.work(200)
    assert world.events() == ["set a", "fired x"] and world.runs() == ["x"]
    assert world.stored() == world.fold()


def test_after_a_doubt_nothing_of_what_was_decided_is_remembered_or_sent() -> None:
    world, process = started()
    world.send("set a 0", "reply r")
    world.broker.fail_next("commit", Doubt("?"), client=TID)
    process.round()
    assert process.task.stage is Stage.WAITING
    assert process.memory[IN] == 0 and process.task.store is None
    assert process.inputs.token is None, "nothing more is read"
    assert world.records("replies") == []
    process.work(200)
    assert len(world.records("replies")) == 1


def test_a_store_that_fails_after_the_commit_is_wiped_and_restored() -> None:
    world, process = started()
    world.send(f"set a {FAR}")
    process.executor.held = True
    process.round()
    world.stores.damage(0)
    process.executor.held = False
    with pytest.raises(Exception, match="damaged"):
        process.round()
    process.die()
    successor = world.process()
    successor.work(10)
    assert world.stored() == world.fold() and b"s/a" in world.fold()


def test_an_input_that_is_lost_while_a_commit_is_under_way_waits_for_the_commit() -> None:
    world, process = started()
    world.send(f"set a {FAR}", "reply r")
    process.executor.held = True
    process.round()
    process.task.lost_input(process.task._token, "gone")
    assert process.task.stage is Stage.COMMITTING
    process.executor.held = False
    process.executor.run()
    assert process.task.stage is Stage.WAITING
    assert [values["reason"] for values in world.alarmed("take_over_again")] == ["gone"]
    assert world.events() == ["set a"] and len(world.records("replies")) == 1
    process.work(100)
    assert world.events() == ["set a"] and world.stored() == world.fold()


def test_an_unexpected_error_on_the_way_stops_the_process_and_says_why() -> None:
    world, process = started()
    world.broker.fail_next("commit", ZeroDivisionError("our fault"), client=TID)
    process.work(1, ms=6_000)
    process.round()
    assert isinstance(process.task.fatal, StreamError)
    assert "our fault" in str(process.task.fatal)
    assert world.alarmed("task_failed")


# --- tokens --------------------------------------------------------------------------------------


def test_records_that_an_earlier_take_over_asked_for_are_dropped() -> None:
    world, process = started()
    world.send("set a 0")
    process.work(3)
    token = process.task._token
    world.broker.fail_next("commit", Doubt("?"), client=TID)
    world.send("set b 0")
    process.round()
    late = [record(0, "set a 0"), record(1, "set b 0")]
    process.task.receive(token, late, IN)
    assert process.memory[IN] == 0
    process.until_deciding()
    process.task.receive(token, late, IN)
    assert process.memory[IN] == 0
    process.task.lost_input(token, "of long ago")
    assert process.task.stage is Stage.DECIDING
    process.work(20)
    assert world.events() == ["set a", "set b"]


def test_a_closed_task_takes_nothing_and_gives_everything_up() -> None:
    world, process = started()
    token = process.task._token
    process.task.close()
    process.task.receive(token, [record(0, "set a 0")], IN)
    assert process.task.stage is Stage.CLOSED and process.memory[IN] == 0
    assert process.inputs.token is None
    world.stores.open(0).close()
    process.work(5)
    assert process.task.stage is Stage.CLOSED


def test_a_take_over_that_ends_after_the_task_was_closed_is_let_go() -> None:
    world, process = started()
    world.send("set a 0")
    process.work(5)
    process.die()
    successor = world.process()
    successor.executor.held = True
    successor.task.take_over()
    successor.task.close()
    successor.executor.held = False
    successor.executor.run()
    assert successor.task.stage is Stage.CLOSED
    world.stores.open(0).close()


def test_a_commit_that_comes_back_after_the_task_was_closed_belongs_to_the_next_owner() -> None:
    world, process = started()
    world.send(f"set a {FAR}")
    process.executor.held = True
    process.round()
    process.task.close()
    process.executor.held = False
    process.executor.run()
    assert process.logic.done == []
    successor = world.process()
    successor.work(10)
    assert world.events() == ["set a"]
    assert world.stored() == world.fold()


# --- catching up ---------------------------------------------------------------------------------


def test_after_a_take_over_commands_that_waited_come_before_timers() -> None:
    world, process = started()
    due = world.clock.wall_ms() + 10_000
    world.send(f"set a {due}", f"set b {due}")
    process.work(5)
    process.die()
    world.clock.advance(20_000)
    world.send("del a")
    process = world.process()
    process.work(20)
    assert world.runs() == ["b"]


def test_timers_wait_for_commands_two_seconds_at_most() -> None:
    world, process = started()
    due = world.clock.wall_ms() + 10_000
    world.send(f"set a {due}")
    process.work(5)
    process.die()
    world.clock.advance(20_000)
    world.send(*["set z 0"] * 10)
    process = world.process().until_deciding()
    process.inputs.stop(0)  # the commands do not come
    start = world.clock.wall_ms()
    while not world.runs():
        process.work(1, ms=50)
        assert world.clock.wall_ms() - start < limits.CATCH_UP_MS_MAX + 200
    assert world.clock.wall_ms() - start >= limits.CATCH_UP_MS_MAX - 200


# --- users' topics -------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["missing", "deleted"])
def test_a_topic_that_is_gone_is_left_out_and_the_others_are_written(topic: str) -> None:
    world, process = started()
    if topic == "deleted":
        world.broker.create_topic("deleted")
        world.send("fire deleted first")
        process.work(5)
        world.broker.delete_topic("deleted")
    world.send(f"set a {FAR}", f"fire {topic} x", "fire out y")
    process.work(300)
    events = [event for event in world.events() if event != "fired first"]
    assert events == ["set a", "failed x", "fired y"]
    assert world.runs("out") == ["y"]
    assert topic in process.logic.suspended
    assert world.stored() == world.fold()


def test_a_record_that_a_topic_refuses_fails_alone() -> None:
    world, process = started()
    world.broker.create_topic("small", batch_bytes_max=100)
    world.send("fire small x", f"fire small {'y' * 200}", "fire small z")
    process.work(100)
    assert world.runs("small") == ["x", "z"]
    assert world.events() == ["fired x", f"failed {'y' * 200}", "fired z"]
    assert process.logic.suspended == {}


def test_an_abort_that_names_nobody_is_looked_into_and_then_blamed_on_all_its_topics() -> None:
    world, process = started()
    world.send("fire out x", "fire other y")
    for _ in range(2):
        world.broker.fail_next("commit", Aborted("somebody refused"), client=TID)
    for _ in range(100):
        process.work(1)
        producer = process.task.producer
        if producer is not None and producer._open:  # type: ignore[attr-defined]
            producer.abort(1)
    assert set(process.logic.suspended) == {"out", "other"}
    assert world.events() == ["failed x", "failed y"]


def test_an_abort_without_any_topic_to_blame_is_a_doubt() -> None:
    world, process = started()
    world.send("set a 0")
    world.broker.fail_next("commit", Aborted("?"), client=TID)
    process.work(200)
    assert len(world.alarmed("take_over_again")) == 1
    assert world.events() == ["set a"]


def test_a_doubt_that_names_a_topic_leaves_it_out_after_the_take_over() -> None:
    world, process = started()
    world.send("fire out x", "fire other y")
    refusal = Refusal("out", "", "it took no record for 2 s", whole_topic=True)
    world.broker.fail_next("commit", Doubt("?", (refusal,)), client=TID)
    process.work(200)
    assert world.events() == ["failed x", "fired y"]


# --- blame ---------------------------------------------------------------------------------------


def test_poison_is_set_aside_with_where_it_came_from() -> None:
    world, process = started()
    world.send("set a 0", "poison", "set b 0")
    process.work(10)
    (aside,) = world.quarantined()
    assert (aside.topic, aside.partition, aside.offset, aside.value, aside.error) == (
        IN, 0, 1, b"poison", "poison",
    )  # fmt: skip
    assert world.events() == ["set a", "set b"]
    assert [values["offset"] for values in world.alarmed("quarantined")] == [1]


@pytest.mark.parametrize("at", [0, 1, 500, 998, 999])
def test_a_crashing_record_among_a_thousand_good_ones_is_found_by_halving(at: int) -> None:
    world, process = started()
    texts = [f"set k{n} 0" for n in range(1_000)]
    texts.insert(at, "crash")
    world.send(*texts)
    steps = 0
    while len(world.events()) < 1_000:
        process.work(1)
        steps += 1
        assert steps < 60, "a handful of steps for each halving"
    assert [aside.offset for aside in world.quarantined()] == [at]
    assert "ZeroDivisionError" in world.quarantined()[0].error
    assert world.events() == [f"set k{n}" for n in range(1_000)]
    assert b"s/half-written" not in world.fold(), "nothing it began to write is left"
    assert world.stored() == world.fold()


def test_many_crashing_records_are_each_set_aside_and_no_good_one() -> None:
    world, process = started()
    texts = ["crash" if n % 7 == 0 else f"set k{n} 0" for n in range(70)]
    world.send(*texts)
    process.work(400)
    assert [aside.offset for aside in world.quarantined()] == list(range(0, 70, 7))
    assert len(world.events()) == 60


def test_a_crashing_due_entry_breaks_its_owner_and_no_other() -> None:
    world, process = started()
    due = world.clock.wall_ms() + 1_000
    world.send(f"set a {due}", f"set bad {due}", f"set worse-bad {due}", f"set c {due}")
    process.work(5)
    process.work(200, ms=20)
    assert sorted(world.runs()) == ["a", "c", "worse-bad"]
    assert world.events().count("broken bad") == 1
    assert [values["reason"] for values in world.alarmed("due_entry_crashed")] == ["bad crashed"]
    assert b'"broken":"bad crashed"' in world.fold()[b"s/bad"]
    assert world.stored() == world.fold()


def test_a_due_entry_that_crashes_in_the_step_that_made_it_does_not_stop_the_partition() -> None:
    """Nothing committed has the entry, so there is nothing to break yet."""
    from streams.binding import DueEntryCrashed

    world, process = started()
    apply = process.logic.apply

    def settle_then_apply(txn: object, rec: Record, now_ms: int) -> None:
        if rec.value == b"touch bad":
            entries = [key for key in txn.writes if key.endswith(b"bad")]  # type: ignore[attr-defined]
            found = [key for key in entries if key.startswith(b"d/")]
            scanned = process.logic.store.scan(b"d/", b"d0", 10)  # type: ignore[union-attr]
            found += [key for key, _ in scanned if key.endswith(b"bad")]
            for entry in found:
                if txn.get(entry) is not None:  # type: ignore[attr-defined]
                    raise DueEntryCrashed(entry, "settling crashed")
            return
        apply(txn, rec, now_ms)  # type: ignore[arg-type]

    process.logic.apply = settle_then_apply  # type: ignore[method-assign,assignment]
    world.send("set a 0", f"set bad {FAR}", "touch bad", "set c 0")
    process.work(60)
    assert [event for event in world.events() if event.startswith(("set", "broken"))] == [
        "set a", "set bad", "broken bad", "set c",
    ]  # fmt: skip
    assert world.quarantined() == []


# --- what is addressed to others -----------------------------------------------------------------


def test_what_is_forwarded_is_acknowledged_before_the_position_moves() -> None:
    world, process = started()
    world.send("forward f")
    process.executor.held = True
    process.round()
    assert world.records("elsewhere") == []
    process.executor.held = False
    process.round()
    assert [r.value for r in world.records("elsewhere")] == [b"forwarded"]


def test_a_forward_that_is_not_acknowledged_is_a_doubt_and_nothing_is_committed() -> None:
    world, process = started()
    flush = process.outbox.flush
    process.outbox.flush = lambda _: False  # type: ignore[method-assign,assignment]
    world.send("set a 0", "forward f")
    process.round()
    assert world.events() == [] and process.task.stage is Stage.WAITING
    process.outbox.flush = flush  # type: ignore[method-assign]
    process.work(200)
    assert world.events() == ["set a"]
    assert len(world.records("elsewhere")) == 2, "sent again: under its id it takes effect once"


def test_nothing_is_sent_for_a_step_that_was_dropped() -> None:
    world, process = started()
    world.send("reply r", "fire missing x")
    process.work(100)
    assert len(world.records("replies")) == 1


# --- kill -9 at every crash point ----------------------------------------------------------------


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", sorted(CRASH_POINTS))
def test_wherever_the_process_dies_every_input_takes_effect_once(point: str, nth: int) -> None:
    world = World()
    left = nth

    def crash(at: str) -> None:
        nonlocal left
        if at == point:
            left -= 1
            if left == 0:
                raise Killed

    due = world.clock.wall_ms() + 3_000
    texts = [f"set a {due}", "fire out x", "fire missing y", f"set b {FAR}", "poison", "del b"]
    process = world.process(crash)
    try:
        for text in texts:
            world.send(text)
            process.work(40, ms=25)
        process.work(60, ms=50)
        process.task.close()
    except Killed:
        pass
    process.die()
    successor = world.process()
    world.send(*texts[len(world.records(name(IN))) :])
    successor.work(300, ms=25)
    sets = [event for event in world.events() if not event.startswith("fired a")]
    assert sorted(sets) == sorted(["set a", "fired x", "failed y", "set b", "deleted b"])
    assert world.runs() == ["x", "a"]
    assert [aside.value for aside in world.quarantined()] == [b"poison"]
    assert world.stored() == world.fold()
    assert world.hidden() == []


def test_unavailable_inputs_are_waited_for() -> None:
    world, process = started()
    world.broker.fail_next("read", Unavailable("away"))
    world.send("set a 0")
    with pytest.raises(Unavailable):
        process.round()
    process.work(5)
    assert world.events() == ["set a"]
