"""A partition has one owner whose decisions count, whoever else believes to own it."""

import itertools
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from processors import topology
from schemas.replies import Accepted
from streams.layout import MARK_KEY
from tests.broker.scenarios import checks, patches
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import World, mark_of, put, until

DRAIN_S = 10.0
ANSWER_S = 90.0
"""Nobody may own the partition for a while."""
HAND_OVER_S = 5.0
"""A generous bound for what takes one to two seconds on an idle machine."""


def owners(world: World, partition: int = 0) -> list[str]:
    """Who owned the partition, one after the other, by its marks."""
    marks = [
        mark_of(record).owner
        for record in world.records(topology.JOB_STATE)
        if record.key == MARK_KEY and record.partition == partition
    ]
    return [owner for owner, _ in itertools.groupby(marks)]


class Client:
    """Registers one job after the other, on a thread of its own, and notes who was accepted."""

    def __init__(self, world: World, orders: str) -> None:
        self.accepted: list[str] = []
        self._world = world
        self._orders = orders
        self._enough = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(self._run)

    def stop(self) -> None:
        self._enough.set()
        self._done.result()

    def _run(self) -> None:
        for n in itertools.count():
            if self._enough.wait(0.05):
                return
            job = f"new-{n}"
            [answer] = self._world.ask(put(job, self._orders, command_id=job), wait_s=ANSWER_S)
            assert isinstance(answer, Accepted)
            self.accepted.append(job)

    def check(self) -> None:
        """Every acknowledged decision is there, once."""
        made = [change.job for change in checks.changes(self._world)]
        assert sorted(job for job in made if job in self.accepted) == sorted(self.accepted)


def ticking(world: World, orders: str, count: int = 20) -> list[str]:
    """Jobs that fire every second; registered one by one, so at many different instants."""
    jobs = [f"every-{n}" for n in range(count)]
    for job in jobs:
        world.accepted(put(job, orders, every="1s"))
    return jobs


@scenario()
def test_a_scheduler_that_was_stopped_decides_nothing_once_another_took_over(world: World) -> None:
    old = world.scheduler("old").await_owner()
    orders = world.topic()
    jobs = ticking(world, orders)
    new = world.scheduler("new")
    time.sleep(1.5)  # the other joins and has nothing to do
    old.pause()
    new.await_owner()
    arrived = world.tail(orders, since_end=True)
    old.go_on()
    until(lambda: len(arrived.refresh()) >= 3 * len(jobs), "fires after the zombie woke", new)
    assert old.alive
    assert owners(world) in (["old", "new"], ["old", "new", "old"])
    for scheduler in (old, new):
        assert scheduler.terminate() == 0
    for job in jobs:
        checks.check_every_second(world, job)
    checks.check_log(world)
    checks.check_stores(world, old, new)


@scenario()
def test_a_zombie_that_takes_the_epoch_back_loses_and_doubles_nothing(world: World) -> None:
    old = world.scheduler("old", patch="deaf_to_its_group").await_owner()
    orders = world.topic()
    jobs = ticking(world, orders)
    client = Client(world, orders)
    deaf = world.folder / patches.DEAF
    deaf.touch()
    new = world.scheduler("new").await_owner()
    until(lambda: "FENCED" in old.log_file.read_text(), "the old owner to be fenced", old)
    until(lambda: "FENCED" in new.log_file.read_text(), "the lawful owner to be fenced", new)
    deaf.unlink()
    until(lambda: old.owned_lately() ^ new.owned_lately() == {0}, "one owner", new)
    arrived = world.tail(orders, since_end=True)
    until(lambda: len(arrived.refresh()) >= 3 * len(jobs), "fires in peace", new)
    client.stop()
    for scheduler in (old, new):
        assert scheduler.terminate() == 0
    for job in jobs:
        checks.check_every_second(world, job)
    client.check()
    checks.check_log(world)
    checks.check_stores(world, old, new)


@scenario()
def test_owners_that_are_stopped_in_turn_lose_and_double_nothing(world: World) -> None:
    one = world.scheduler("one").await_owner()
    orders = world.topic()
    jobs = ticking(world, orders)
    client = Client(world, orders)
    two = world.scheduler("two")
    time.sleep(1.5)
    for owner, other in ((one, two), (two, one)):
        owner.pause()
        until(lambda other=other: 0 in other.owned_lately(), "the other to own it", other)
        owner.go_on()
    arrived = world.tail(orders, since_end=True)
    until(lambda: len(arrived.refresh()) >= 2 * len(jobs), "fires in peace", one)
    client.stop()
    assert owners(world)[:3] == ["one", "two", "one"]
    for scheduler in (one, two):
        assert scheduler.terminate() == 0
    for job in jobs:
        checks.check_every_second(world, job)
    client.check()
    checks.check_log(world)
    checks.check_stores(world, one, two)


@scenario(partitions=4)
def test_two_schedulers_share_the_partitions_and_one_hands_over_when_told_to_end(
    world: World,
) -> None:
    first = world.scheduler("first").await_owner()
    orders = world.topic()
    jobs = ticking(world, orders, 40)
    second = world.scheduler("second")
    until(lambda: len(second.owned_lately()) == 2, "the second to own its share", second)
    until(lambda: len(first.owned_lately()) == 2, "the first to keep its share", first)
    assert first.owned_lately() | second.owned_lately() == {0, 1, 2, 3}

    arrived = world.tail(orders)
    started_s = time.monotonic()
    assert first.terminate() == 0
    assert time.monotonic() - started_s < DRAIN_S
    until(lambda: len(second.owned_lately()) == 4, "the second to own all", second)
    assert time.monotonic() - started_s < HAND_OVER_S
    assert "take_over_again" not in second.events()
    arrived.refresh()
    until(lambda: len(arrived.refresh()) >= 6 * len(jobs), "more fires", second)
    assert second.terminate() == 0
    for job in jobs:
        checks.check_every_second(world, job)
    checks.check_log(world)
    checks.check_stores(world, first, second)


@scenario(partitions=2)
def test_a_partition_that_moves_while_its_owner_dies_does_not_stay_without_one(
    world: World,
) -> None:
    """The owner comes back under its name and finds the group settled without that partition."""
    dying = world.scheduler("one", crash="CP15").await_owner()
    orders = world.topic()
    jobs = ticking(world, orders)
    two = world.scheduler("two")
    assert dying.await_end() == -signal.SIGKILL
    one = world.scheduler("one")
    until(lambda: one.owned_lately() | two.owned_lately() == {0, 1}, "both to be owned", two)
    arrived = world.tail(orders, since_end=True)
    until(lambda: len(arrived.refresh()) >= 3 * len(jobs), "fires", two)
    for scheduler in (one, two):
        assert scheduler.terminate() == 0
    for job in jobs:
        checks.check_every_second(world, job)
    checks.check_log(world)
    checks.check_stores(world, one, two)


@scenario()
def test_a_scheduler_under_the_name_of_another_is_refused(world: World) -> None:
    first = world.scheduler("same").await_owner()
    second = world.scheduler("same")
    assert second.await_end() != 0
    assert "give this one another name" in second.log_file.read_text()
    assert first.alive


@scenario()
def test_a_scheduler_whose_name_another_machine_takes_ends_with_the_reason(world: World) -> None:
    """There the data folder is another one, so only the group sees it."""
    first = world.scheduler("same").await_owner()
    orders = world.topic()
    jobs = ticking(world, orders)
    second = world.scheduler("same", data_dir=world.folder / "elsewhere")
    assert first.await_end() not in (0, None)
    assert "no two processes may share a member name" in first.log_file.read_text()
    arrived = world.tail(orders, since_end=True)
    until(lambda: len(arrived.refresh()) >= 2 * len(jobs), "fires", second)
    assert second.terminate() == 0
    for job in jobs:
        checks.check_every_second(world, job)
    checks.check_log(world)
    checks.check_stores(world, second)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in the middle of a herd"])
@scenario()
def test_a_scheduler_that_is_told_to_end_drains_and_ends(world: World, busy: bool) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    if busy:
        world.send(*(put(f"job-{n}", orders, every="1s") for n in range(3_000)))
        arrived = world.tail(orders)
        until(lambda: len(arrived.refresh()) > 3_000, "the herd", scheduler)
    started_s = time.monotonic()
    assert scheduler.terminate() == 0
    assert time.monotonic() - started_s < DRAIN_S
    assert scheduler.events()[-1] == "scheduler_stopped"
    checks.check_log(world)
    checks.check_stores(world, scheduler)
