"""A scheduler that is killed with -9 at any of its crash points, and started again under its name.

Afterwards every accepted job is there, every tick is covered exactly once among the committed
records, and the store is what the changelogs say."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from schemas.commands import AnyCommand
from schemas.units import format_instant
from streams.crash import CRASH_POINTS
from tests.broker.scenarios import checks
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import SchedulerProcess, World, put, until

IN_A_STEP = ("CP01", "CP02", "CP03", "CP04", "CP05", "CP06", "CP07", "CP08", "CP09")
IN_A_TAKE_OVER = ("CP14", "CP16")
AT_THE_END = ("CP15", "CP17")
ELSEWHERE = {"CP10", "CP11", "CP18", "CP19", "CP20"}
"""Played where there are workers: test_calls_cut_short, test_schedulers_cut_short."""


class Jobs:
    """Twelve jobs that fire every second and three that fire once, and how to register them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.orders = world.topic()
        soon_ms = int(time.time() * 1000) + 4_000
        self.ticking = [f"every-{n}" for n in range(12)]
        self.once = [f"once-{n}" for n in range(3)]
        self.commands: list[AnyCommand] = [
            put(job, self.orders, every="1s", command_id=job) for job in self.ticking
        ] + [put(job, self.orders, at=format_instant(soon_ms), command_id=job) for job in self.once]

    def check_after(self, scheduler: SchedulerProcess) -> None:
        """The scheduler goes on after the crash: look at it for some fires, then at everything."""
        answers = self.world.accepted(*self.commands)
        assert [answer.version for answer in answers] == [1] * len(self.commands)
        arrived = self.world.tail(self.orders, since_end=True)
        until(lambda: len(arrived.refresh()) >= 2 * len(self.ticking), "more fires", scheduler)
        until(lambda: self._finished() == set(self.once), "the one-offs", scheduler)
        assert scheduler.terminate() == 0
        states = checks.states(self.world)
        assert {*self.ticking, *self.once} <= states.keys()
        assert {states[job].version for job in self.ticking} == {1}
        for job in self.ticking:
            checks.check_every_second(self.world, job)
        assert sorted(e.job for e in checks.fired(self.world) if e.job in self.once) == self.once
        checks.check_log(self.world)
        checks.check_stores(self.world, scheduler)

    def _finished(self) -> set[str]:
        states = checks.states(self.world)
        return {job for job, state in states.items() if state.status == "FINISHED"}


def await_crash(scheduler: SchedulerProcess) -> None:
    """It kills itself: nobody else does."""
    assert scheduler.await_end() == -signal.SIGKILL


def in_a_step(world: World, point: str, *, kept: bool = True) -> None:
    jobs = Jobs(world)
    scheduler = world.scheduler(crash=f"{point}:7")
    world.send(*jobs.commands)
    await_crash(scheduler)
    if not kept:
        shutil.rmtree(scheduler.state_dir)
    jobs.check_after(world.scheduler().await_owner())


def in_an_abort(world: World) -> None:
    jobs = Jobs(world)
    narrow = world.topic("narrow", max_message_bytes="600")
    jobs.commands.append(put("wide", narrow, every="1s", payload=b"x" * 900, command_id="wide"))
    scheduler = world.scheduler(crash="CP12:3")
    world.send(*jobs.commands)
    await_crash(scheduler)
    jobs.check_after(world.scheduler().await_owner())
    assert {event.state for event in checks.fired(world) if event.job == "wide"} == {"FAILED"}
    checks.check_every_second(world, "wide")


def in_a_take_over(world: World, point: str, *, kept: bool) -> None:
    jobs = Jobs(world)
    first = world.scheduler().await_owner()
    world.accepted(*jobs.commands)
    first.kill()
    if not kept:
        shutil.rmtree(first.state_dir)
    elif point == "CP14":
        # With the store complete there is nothing to restore: let it miss the newest part.
        await_crash(world.scheduler(crash="CP07:2"))
    await_crash(world.scheduler(crash=point))
    jobs.check_after(world.scheduler().await_owner())


def while_the_epoch_is_taken(world: World) -> None:
    """Only an owner who finds a transaction open comes past this point."""
    jobs = Jobs(world)
    leaving_one_open = world.scheduler(crash="CP04:7")
    world.send(*jobs.commands)
    await_crash(leaving_one_open)
    await_crash(world.scheduler(crash="CP13"))
    jobs.check_after(world.scheduler().await_owner())


def at_the_end(world: World, point: str) -> None:
    jobs = Jobs(world)
    scheduler = world.scheduler(crash=point).await_owner()
    world.accepted(*jobs.commands)
    scheduler.process.terminate()
    await_crash(scheduler)
    jobs.check_after(world.scheduler().await_owner())


def _scenarios() -> Iterator[tuple[str, Callable[[World], None]]]:
    for point in IN_A_STEP:
        yield point, lambda world, point=point: in_a_step(world, point)
    for point in ("CP07", "CP08"):
        yield (
            f"{point}, store lost",
            lambda world, point=point: in_a_step(world, point, kept=False),
        )
    yield "CP12", in_an_abort
    yield "CP13", while_the_epoch_is_taken
    for point in IN_A_TAKE_OVER:
        for kept in (True, False):
            name = point if kept else f"{point}, store lost"
            yield (
                name,
                lambda world, point=point, kept=kept: in_a_take_over(world, point, kept=kept),
            )
    for point in AT_THE_END:
        yield point, lambda world, point=point: at_the_end(world, point)


SCENARIOS = dict(_scenarios())


def test_every_crash_point_is_among_the_scenarios() -> None:
    played = {name.partition(",")[0] for name in SCENARIOS}
    assert played | ELSEWHERE == CRASH_POINTS.keys()
    assert not played & ELSEWHERE


@pytest.mark.parametrize("name", SCENARIOS)
@scenario()
def test_a_kill_at_a_crash_point_loses_and_doubles_nothing(world: World, name: str) -> None:
    SCENARIOS[name](world)
