"""The loop of a process with its real threads, over a cluster in memory."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schemas import limits
from streams.clock import SystemClock
from streams.errors import OutOfRange, Refuse, StreamError, Unavailable
from streams.inputs import InputThread
from streams.memory import MemoryBroker, MemoryLog, MemoryStores
from streams.ports import Outbox, Produced, Record
from streams.runner import Runner, TaskThread, watch
from streams.takeover import TakeOver
from streams.task import Parts, Stage
from tests.unit.streams.toy import (
    DEFS,
    EVENTS,
    IN,
    NAMESPACE,
    QUARANTINE,
    STATE,
    TOY,
    Toy,
    name,
)

PARTITIONS = 4
SETTLED_S = 20.0
"""So long a test waits for something that takes milliseconds."""
FAR = 9_999_999_999_999


class Cluster:
    """Topics of several partitions; what is committed in them."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.broker = MemoryBroker(self.clock, time.sleep)
        for topic in (IN, EVENTS, QUARANTINE):
            self.broker.create_topic(name(topic), PARTITIONS)
        for topic in (STATE, DEFS):
            self.broker.create_topic(name(topic), PARTITIONS, compacted=True)
        for topic in ("out", "replies"):
            self.broker.create_topic(topic)
        self.log = MemoryLog(self.broker)

    def send(self, partition: int, *texts: str) -> None:
        records = (Produced(name(IN), partition, None, text.encode()) for text in texts)
        self.log.outbox("user").send(records)

    def count(self, topic: str, partitions: int = PARTITIONS) -> int:
        reader = self.log.reader("view", committed=True)
        reader.assign({(topic, p): 0 for p in range(partitions)})
        with self.broker.lock:
            return len(reader.read(100_000, 0))


class OwnClock:
    """The clock of one process, which may be wrong, and may be moved on."""

    def __init__(self) -> None:
        self._true = SystemClock()
        self.wrong_ms = 0
        self._passed_ms = 0

    def wall_ms(self) -> int:
        return self._true.wall_ms() + self.wrong_ms

    def boottime_ms(self) -> int:
        return self._true.boottime_ms() + self._passed_ms

    def monotonic_s(self) -> float:
        return self._true.monotonic_s() + self._passed_ms / 1_000

    def pass_time(self, ms: int) -> None:
        """Let time pass for what measures distances."""
        self._passed_ms += ms
        self.wrong_ms += ms


class Member:
    """One process: a runner on a thread of its own."""

    def __init__(self, cluster: Cluster, member: str) -> None:
        self.cluster = cluster
        self.clock = OwnClock()
        self.log = MemoryLog(cluster.broker)
        self.stores = MemoryStores()
        self.logics: dict[int, Toy] = {}
        self.alarms: list[tuple[str, Any]] = []
        self.error: BaseException | None = None
        take_over = TakeOver(
            TOY, namespace=NAMESPACE, cluster="c", partitions=PARTITIONS, log=self.log,
            stores=self.stores, clock=self.clock, alarm=self._alarm, crash=lambda _: None,
        )  # fmt: skip

        def make_parts(
            partition: int, thread: TaskThread, inputs: InputThread, outbox: Outbox
        ) -> Parts:
            self.logics[partition] = Toy()
            return Parts(
                topology=TOY, namespace=NAMESPACE, owner=member, logic=self.logics[partition],
                take_over=take_over, executor=thread, inputs=inputs, outbox=outbox,
                clock=self.clock, alarm=self._alarm, crash=lambda _: None,
            )  # fmt: skip

        self.runner = Runner(
            group="toy", member=member, namespace=NAMESPACE, inputs=TOY.inputs, log=self.log,
            clock=self.clock, make_parts=make_parts, alarm=self._alarm, crash=lambda _: None,
        )  # fmt: skip
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _alarm(self, event: str, **values: Any) -> None:
        self.alarms.append((event, values))

    def _run(self) -> None:
        try:
            self.runner.run()
        except StreamError as error:
            self.error = error

    def start(self) -> "Member":
        self.thread.start()
        return self

    def stop(self) -> None:
        self.runner.stop()
        self.thread.join(SETTLED_S)
        assert not self.thread.is_alive()

    @property
    def ready(self) -> set[int]:
        return {p for p, task in list(self.runner.tasks.items()) if task.ready}


def until(what: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + SETTLED_S
    while not what():
        assert time.monotonic() < end, f"never: {why}"
        time.sleep(0.005)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def member(cluster: Cluster) -> Iterator[Callable[[str], Member]]:
    made: list[Member] = []

    def make(member_name: str) -> Member:
        made.append(Member(cluster, member_name))
        return made[-1].start()

    yield make
    for one in made:
        one.runner.stop()
        one.thread.join(SETTLED_S)


def test_one_process_owns_all_partitions_and_decides_in_each(
    cluster: Cluster, member: Callable[[str], Member]
) -> None:
    process = member("a")
    until(lambda: process.ready == set(range(PARTITIONS)), "ready")
    due = cluster.clock.wall_ms() + 300
    for partition in range(PARTITIONS):
        cluster.send(partition, *(f"set p{partition}k{n} {due}" for n in range(50)))
    until(lambda: cluster.count("out", 1) == 50 * PARTITIONS, "every entry fires")
    process.stop()
    assert cluster.count("out", 1) == 50 * PARTITIONS
    assert process.error is None


def test_a_second_process_takes_its_share_and_a_stopped_one_hands_over_at_once(
    cluster: Cluster, member: Callable[[str], Member]
) -> None:
    first = member("a")
    until(lambda: len(first.ready) == PARTITIONS, "the first owns all")
    second = member("b")
    until(lambda: len(first.ready) == len(second.ready) == 2, "both own half")
    assert first.ready | second.ready == set(range(PARTITIONS))
    for partition in range(PARTITIONS):
        cluster.send(partition, f"set k{partition} {FAR}")
    until(lambda: cluster.count(name(EVENTS)) == PARTITIONS, "each is decided by its owner")
    first.stop()
    until(lambda: second.ready == set(range(PARTITIONS)), "the second owns all")
    for partition in range(PARTITIONS):
        cluster.send(partition, f"del k{partition}")
    until(lambda: cluster.count(name(EVENTS)) == 2 * PARTITIONS, "and goes on")
    assert not [a for a in second.alarms if a[0] in ("torn_transaction", "lost_marker")]


def test_a_drain_finishes_the_commit_that_is_under_way_and_sends_what_follows(
    cluster: Cluster, member: Callable[[str], Member]
) -> None:
    process = member("a")
    until(lambda: len(process.ready) == PARTITIONS, "ready")
    task = process.runner.tasks[0]
    reached, go_on = threading.Event(), threading.Event()
    assert task.producer is not None
    commit = task.producer.commit

    def slow(timeout_s: float) -> Any:
        reached.set()
        assert go_on.wait(SETTLED_S)
        return commit(timeout_s)

    task.producer.commit = slow  # type: ignore[method-assign]
    cluster.send(0, f"set a {FAR}", "reply a")
    assert reached.wait(SETTLED_S)
    process.runner.stop()
    time.sleep(0.05)
    assert process.thread.is_alive(), "it waits for the commit"
    go_on.set()
    process.thread.join(SETTLED_S)
    assert not process.thread.is_alive()
    assert cluster.count(name(EVENTS)) == 1 and cluster.count("replies", 1) == 1
    assert task.stage is Stage.CLOSED
    for partition in range(PARTITIONS):
        process.stores.open(partition).close()


def test_a_member_that_was_expelled_comes_back_and_nothing_is_lost_or_doubled(
    cluster: Cluster, member: Callable[[str], Member]
) -> None:
    first, second = member("a"), member("b")
    until(lambda: len(first.ready) == len(second.ready) == 2, "both own half")
    group = cluster.broker.group(name("toy"), name(IN))
    for n in range(5):
        cluster.send(n % PARTITIONS, *(f"set r{n}k{k} {FAR}" for k in range(20)))
        expelled = "a" if n % 2 else "b"
        until(lambda who=expelled: group.current(who) is not None, "it came back")  # type: ignore[misc]
        with cluster.broker.lock:
            group.expel(expelled)
        cluster.send((n + 1) % PARTITIONS, *(f"set s{n}k{k} {FAR}" for k in range(20)))
    until(lambda: cluster.count(name(EVENTS)) == 200, "everything is decided")
    until(lambda: first.ready | second.ready == set(range(PARTITIONS)), "all are owned")
    assert cluster.count(name(EVENTS)) == 200


def test_a_fault_that_must_stop_the_process_stops_it_and_says_why(
    cluster: Cluster, member: Callable[[str], Member]
) -> None:
    cluster.log.outbox("x").send([Produced(name(STATE), 2, b"a", b'{"txn":1,"due":0}')])
    process = member("a")
    process.thread.join(SETTLED_S)
    assert isinstance(process.error, Refuse) and "no mark" in str(process.error)
    assert [values["partition"] for event, values in process.alarms if event == "task_failed"] == [
        2
    ]


def test_positions_are_told_to_the_group_for_lag_tools(
    cluster: Cluster, member: Callable[[str], Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schemas.limits.GROUP_OFFSETS_EVERY_MS", 50)
    process = member("a")
    cluster.send(1, "set a 0", "set b 0")
    group = cluster.broker.group(name("toy"), name(IN))
    until(lambda: group.positions.get(1) == 2, "the group knows")
    process.stop()


def test_the_watchdog_gives_up_on_a_loop_that_stands_still(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schemas.limits.WATCHDOG_MS", 10)
    process = Member(cluster, "a")  # never started
    told: list[str] = []

    class Stop(Exception):
        """Ends the watchdog's thread."""

    def give_up(reason: str) -> None:
        told.append(reason)
        raise Stop

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    watch(process.runner, cluster.clock, give_up)
    until(lambda: bool(told), "it gives up")
    assert "stood still" in told[0]
    process.runner._drain()


# --- inputs --------------------------------------------------------------------------------------


class Received:
    """What an input thread handed on."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, list[Record], str]] = []
        self.lost: list[tuple[int, int, str]] = []

    def records(self, partition: int) -> list[bytes | None]:
        return [r.value for p, _, batch, _ in list(self.batches) if p == partition for r in batch]


@pytest.fixture
def fed(cluster: Cluster) -> Iterator[tuple[InputThread, Received]]:
    received = Received()
    thread = InputThread(
        cluster.log.reader("inputs", committed=True), NAMESPACE,
        lambda *batch: received.batches.append(batch), lambda *lost: received.lost.append(lost),
    )  # fmt: skip
    yield thread, received
    thread.close()


def test_records_come_with_the_token_of_the_start_that_asked_for_them(
    cluster: Cluster, fed: tuple[InputThread, Received]
) -> None:
    inputs, received = fed
    cluster.send(0, "a", "b")
    inputs.start(0, 7, {IN: 0})
    until(lambda: len(received.records(0)) == 2, "both come")
    inputs.start(0, 8, {IN: 1})
    until(lambda: len(received.records(0)) == 3, "the second again")
    assert [(token, [r.value for r in batch]) for _, token, batch, _ in received.batches][-1] == (
        8, [b"b"],
    )  # fmt: skip
    assert {topic for *_, topic in received.batches} == {IN}
    inputs.stop(0)
    cluster.send(0, "c")
    cluster.send(1, "d")
    inputs.start(1, 9, {IN: 0})
    until(lambda: received.records(1) == [b"d"], "the other partition")
    assert len(received.records(0)) == 3


def test_a_paused_input_comes_again_when_it_is_resumed(
    cluster: Cluster, fed: tuple[InputThread, Received]
) -> None:
    inputs, received = fed
    inputs.start(0, 1, {IN: 0})
    inputs.start(1, 1, {IN: 0})
    inputs.pause(0, IN)
    cluster.send(1, "x")
    until(lambda: received.records(1) == [b"x"], "the other one goes on")
    cluster.send(0, "a")
    cluster.send(1, "y")
    until(lambda: received.records(1) == [b"x", b"y"], "still")
    assert received.records(0) == []
    inputs.resume(0, IN)
    until(lambda: received.records(0) == [b"a"], "resumed")


def test_a_lost_position_is_told_of_its_partition_only(
    cluster: Cluster, fed: tuple[InputThread, Received]
) -> None:
    inputs, received = fed
    cluster.send(0, *"abcdef")
    cluster.broker.trim(name(IN), 0, 4)
    inputs.start(1, 5, {IN: 0})
    inputs.start(0, 6, {IN: 2})
    until(lambda: bool(received.lost), "it is told")
    cluster.send(1, "x")
    until(lambda: received.records(1) == [b"x"], "the other partition is read on")
    assert [(partition, token) for partition, token, _ in received.lost] == [(0, 6)]


@pytest.mark.parametrize("error", [Unavailable("away"), OutOfRange("somewhere")])
def test_a_reader_in_trouble_is_asked_again_or_every_partition_is_told(
    cluster: Cluster, fed: tuple[InputThread, Received], error: StreamError
) -> None:
    inputs, received = fed
    inputs.start(0, 1, {IN: 0})
    inputs.start(1, 1, {IN: 0})
    cluster.send(0, "a")
    until(lambda: received.records(0) == [b"a"], "it reads")
    cluster.broker.fail_next("read", error, client="inputs")
    if isinstance(error, OutOfRange):
        until(lambda: sorted(p for p, *_ in received.lost) == [0, 1], "nobody knows which")
    else:
        cluster.send(0, "b")
        until(lambda: received.records(0) == [b"a", b"b"], "it goes on")
        assert received.lost == []


# --- a clock that is wrong -----------------------------------------------------------------------


def test_a_process_whose_clock_is_wrong_decides_nothing_and_alone_keeps_what_it_has(
    cluster: Cluster, member: Callable[[str], Member]
) -> None:
    process = member("a")
    until(lambda: process.ready == set(range(PARTITIONS)), "ready")
    process.clock.wrong_ms = 3_600_000
    cluster.send(0, f"set a {cluster.clock.wall_ms() + 600_000}")  # past by the wrong clock
    held = lambda: any(event == "clock_held" for event, _ in process.alarms)  # noqa: E731
    until(held, "held")
    process.clock.pass_time(limits.CLOCK_GIVE_UP_MS)
    until(
        lambda: all(t.guard.disagreed_ms() > 0 for t in list(process.runner.tasks.values())), "seen"
    )
    process.clock.pass_time(limits.CLOCK_GIVE_UP_MS)
    until(lambda: process.runner.tasks[0].guard.disagreed_ms() > limits.CLOCK_GIVE_UP_MS, "long")
    assert set(process.runner.tasks) == set(range(PARTITIONS))
    assert cluster.count("out", 1) == 0


def test_c069_a_node_an_hour_ahead_gives_its_partitions_up_to_one_that_is_right(
    cluster: Cluster, member: Callable[[str], Member]
) -> None:
    """It fires nothing early, and comes back once its clock was set right."""
    wrong = member("b")
    wrong.clock.wrong_ms = 3_600_000
    until(lambda: len(wrong.runner.tasks) == PARTITIONS, "owns all")
    right = member("a")
    until(lambda: len(right.ready) == PARTITIONS // 2, "shared out")
    due_ms = cluster.clock.wall_ms() + 600_000
    for partition in range(PARTITIONS):
        cluster.send(partition, f"set p{partition} {due_ms}")
    until(
        lambda: all(t.guard.disagreed_ms() for t in list(wrong.runner.tasks.values())), "disagrees"
    )
    wrong.clock.pass_time(limits.CLOCK_GIVE_UP_MS)
    until(lambda: right.ready == set(range(PARTITIONS)), "the other has all")
    until(lambda: not wrong.runner.tasks, "gave up")
    assert [values["stay_out_ms"] for event, values in wrong.alarms
            if event == "gave_partitions_up"] == [limits.CLOCK_REJOIN_MS_MIN]  # fmt: skip
    assert cluster.count("out", 1) == 0, "nothing is early by the brokers' clock"

    wrong.clock.wrong_ms = 0
    wrong.clock.pass_time(limits.CLOCK_REJOIN_MS_MIN)
    wrong.clock.wrong_ms = 0
    until(lambda: len(wrong.ready) == PARTITIONS // 2, "is back")
    assert all(task.guard.agrees() for task in list(wrong.runner.tasks.values()))


def test_back_with_a_clock_that_is_still_wrong_the_first_disagreement_is_enough(
    cluster: Cluster, member: Callable[[str], Member]
) -> None:
    right, wrong = member("a"), member("b")
    wrong.clock.wrong_ms = -3_600_000
    gave_up = lambda: [v for e, v in wrong.alarms if e == "gave_partitions_up"]  # noqa: E731
    until(lambda: any(t.guard.disagreed_ms() for t in list(wrong.runner.tasks.values())), "wrong")
    wrong.clock.pass_time(limits.CLOCK_GIVE_UP_MS)
    until(lambda: len(gave_up()) == 1, "gave up")
    wrong.clock.pass_time(limits.CLOCK_REJOIN_MS_MIN)
    until(lambda: len(gave_up()) == 2, "gave up again")
    assert gave_up()[1]["disagreed_ms"] < limits.CLOCK_GIVE_UP_MS
    assert gave_up()[1]["stay_out_ms"] == limits.CLOCK_REJOIN_MS_MAX
    until(lambda: right.ready == set(range(PARTITIONS)), "the other has all")
