"""A scheduler that is killed with -9 at any of its crash points, and started again under its name.

Afterwards every accepted job is there, every tick is covered exactly once among the committed
records, and the store is what the changelogs say.
"""

import shutil
import signal
import time

import pytest

from schemas.commands import AnyCommand
from schemas.units import format_instant
from streams.crash import CRASH_POINTS
from tests.broker.scenarios import checks
from tests.broker.scenarios.world import SchedulerProcess, World, put, until

IN_A_STEP = ("CP01", "CP02", "CP03", "CP04", "CP05", "CP06", "CP07", "CP08", "CP09")
IN_A_TAKE_OVER = ("CP14", "CP16")
AT_THE_END = ("CP15", "CP17")


def test_every_crash_point_is_covered_below() -> None:
    covered = {*IN_A_STEP, *IN_A_TAKE_OVER, *AT_THE_END, "CP12", "CP13"}
    assert covered == CRASH_POINTS.keys()


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
        return {job for job, state in checks.states(self.world).items()
                if state.status == "FINISHED"}  # fmt: skip


def await_crash(scheduler: SchedulerProcess) -> None:
    """It kills itself: nobody else does."""
    assert scheduler.await_end() == -signal.SIGKILL


@pytest.mark.parametrize("point", IN_A_STEP)
def test_a_kill_in_a_step_loses_and_doubles_nothing(world: World, point: str) -> None:
    jobs = Jobs(world)
    scheduler = world.scheduler(crash=f"{point}:9")
    world.send(*jobs.commands)
    await_crash(scheduler)
    jobs.check_after(world.scheduler().await_owner())


@pytest.mark.parametrize("point", ["CP07", "CP08"])
def test_a_kill_in_a_step_is_mended_from_an_empty_folder_too(world: World, point: str) -> None:
    jobs = Jobs(world)
    scheduler = world.scheduler(crash=f"{point}:9")
    world.send(*jobs.commands)
    await_crash(scheduler)
    shutil.rmtree(scheduler.state_dir)
    jobs.check_after(world.scheduler().await_owner())


def test_a_kill_while_a_transaction_is_aborted_loses_and_doubles_nothing(world: World) -> None:
    jobs = Jobs(world)
    narrow = world.topic("narrow", max_message_bytes="600")
    jobs.commands.append(put("wide", narrow, every="1s", payload=b"x" * 900, command_id="wide"))
    scheduler = world.scheduler(crash="CP12:3")
    world.send(*jobs.commands)
    await_crash(scheduler)
    jobs.check_after(world.scheduler().await_owner())
    assert {event.state for event in checks.fired(world) if event.job == "wide"} == {"FAILED"}
    checks.check_every_second(world, "wide")


@pytest.mark.parametrize("kept", [True, False], ids=["store kept", "store lost"])
@pytest.mark.parametrize("point", IN_A_TAKE_OVER)
def test_a_kill_in_a_take_over_loses_and_doubles_nothing(
    world: World, point: str, kept: bool
) -> None:
    jobs = Jobs(world)
    first = world.scheduler().await_owner()
    world.accepted(*jobs.commands)
    first.kill()
    if not kept:
        shutil.rmtree(first.state_dir)
    elif point == "CP14":
        # With the store complete there is nothing to restore: let it miss the newest part.
        behind = world.scheduler(crash="CP07:2")
        await_crash(behind)
    await_crash(world.scheduler(crash=point))
    jobs.check_after(world.scheduler().await_owner())


def test_a_kill_while_the_epoch_is_taken_loses_and_doubles_nothing(world: World) -> None:
    jobs = Jobs(world)
    leaving_one_open = world.scheduler(crash="CP04:9")
    world.send(*jobs.commands)
    await_crash(leaving_one_open)
    await_crash(world.scheduler(crash="CP13"))
    jobs.check_after(world.scheduler().await_owner())


@pytest.mark.parametrize("point", AT_THE_END)
def test_a_kill_while_partitions_are_given_up_loses_and_doubles_nothing(
    world: World, point: str
) -> None:
    jobs = Jobs(world)
    scheduler = world.scheduler(crash=point).await_owner()
    world.accepted(*jobs.commands)
    scheduler.process.terminate()
    await_crash(scheduler)
    jobs.check_after(world.scheduler().await_owner())
