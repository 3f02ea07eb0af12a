"""Who owns the partitions, by the marks in the log; and how children come to our settings."""

import os
from pathlib import Path

import pytest

from horolog.owners import Owners
from horolog.settings import Settings, load
from horolog.supervised import child_environment
from schemas.bindings import MARK
from schemas.state import Mark
from streams.errors import Unavailable
from streams.memory import ManualClock, MemoryBroker, MemoryLog
from streams.ports import Produced

PARTITIONS = 2


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("HOROLOG_") or name == "KAFKA_BOOTSTRAP_SERVERS":
            monkeypatch.delenv(name)


class Marks:
    """A log in memory into which owners write their marks."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock)
        self.broker.create_topic("ns.job-state", PARTITIONS, compacted=True)
        self.log = MemoryLog(self.broker)
        self.settings: Settings = load({"namespace": "ns", "partitions": PARTITIONS})

    def mark(self, partition: int, owner: str, wall_ms: int | None = None) -> None:
        at_ms = self.clock.wall_ms() if wall_ms is None else wall_ms
        mark = Mark(txn=1, epoch=1, records=1, wall_ms=at_ms, owner=owner, positions=())
        record = Produced("ns.job-state", partition, b"!mark", MARK.encode(mark))
        self.log.outbox("marks").send([record])

    def owners(self) -> Owners:
        return Owners(self.log, self.settings, "job-state", self.clock)


@pytest.fixture
def marks() -> Marks:
    return Marks()


def fine() -> None:
    """The process is alive."""


def test_a_member_owns_everything_once_it_has_marked_every_partition(marks: Marks) -> None:
    owners = marks.owners()
    marks.mark(0, "me")
    marks.mark(1, "me")
    owners.wait(["me"], fine)


def test_marks_of_others_and_of_who_died_before_do_not_count(marks: Marks) -> None:
    marks.mark(0, "me")
    marks.clock.advance(1_000)
    owners = marks.owners()
    marks.mark(0, "me", wall_ms=marks.clock.wall_ms() - 1)
    marks.mark(1, "somebody")
    with pytest.raises(Unavailable, match="did not take over partition 0, 1 in 0 s"):
        owners.wait(["me"], fine, timeout_s=0.01)


def test_several_members_own_everything_together_and_each_owns_some(marks: Marks) -> None:
    owners = marks.owners()
    marks.mark(0, "me")
    marks.mark(1, "me")
    with pytest.raises(Unavailable, match="me-2 did not take over any in 0 s"):
        owners.wait(["me", "me-2"], fine, timeout_s=0.01)
    owners = marks.owners()
    marks.mark(0, "me")
    marks.mark(1, "me-2")
    owners.wait(["me", "me-2"], fine)


def test_more_members_than_partitions_are_not_all_waited_for(marks: Marks) -> None:
    owners = marks.owners()
    for partition in range(PARTITIONS):
        marks.mark(partition, f"m{partition}")
    owners.wait([f"m{n}" for n in range(PARTITIONS + 2)], fine)


def test_the_wait_ends_with_the_process_that_is_waited_for(marks: Marks) -> None:
    def dead() -> None:
        raise RuntimeError("it died")

    with pytest.raises(RuntimeError, match="it died"):
        marks.owners().wait(["me"], dead)


def test_a_child_comes_to_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my.toml").write_text('tenant = "t"\n[kafka.client]\n"sasl.password" = "s3cret"')
    flags = {"namespace": "ns", "partitions": 3, "data_dir": "data"}
    ours = load(flags, config=Path("my.toml"))
    environment = child_environment(ours, "kafka:1")
    assert "s3cret" not in str(environment)

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    theirs = load()
    assert theirs.kafka.bootstrap == "kafka:1"
    assert theirs.kafka.client == ours.kafka.client
    assert (theirs.namespace, theirs.partitions, theirs.tenant) == ("ns", 3, "t")
    assert theirs.data_dir == Path("data").resolve()
