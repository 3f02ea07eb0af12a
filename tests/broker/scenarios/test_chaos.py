"""Schedulers are killed, stopped and started at random while they are given work."""

import os
import random
import time

import pytest

from schemas.commands import AnyCommand, DeleteJob, PauseJob, ResumeJob, TriggerJob
from streams.crash import CRASH_POINTS
from tests.broker.scenarios import checks
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.test_ownership import Client, ticking
from tests.broker.scenarios.world import SchedulerProcess, World, put, until

PLAY_S = 15.0
SEEDS = [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "1").split(",")]


def trouble(world: World, members: dict[str, SchedulerProcess], chance: random.Random) -> None:
    """Who is not there is started again, perhaps to die at some crash point; then one of them is
    killed, told to end, or stopped for up to eight seconds."""
    for name, process in members.items():
        if not process.alive:
            point = f"{chance.choice(sorted(CRASH_POINTS))}:{chance.randrange(1, 40)}"
            members[name] = world.scheduler(name, crash=chance.choice(["", point]))
    victim = members[chance.choice(sorted(members))]
    match chance.choice(["kill", "kill", "terminate", "stop", "stop briefly"]):
        case "kill":
            victim.kill()
        case "terminate":
            victim.process.terminate()
        case "stop":
            victim.pause()
            time.sleep(chance.uniform(6.5, 8.0))
            victim.go_on()
        case _:
            victim.pause()
            time.sleep(chance.uniform(0.1, 2.0))
            victim.go_on()


def orders_about(chance: random.Random, orders: str, n: int) -> AnyCommand:
    job = f"busy-{chance.randrange(8)}"
    match chance.randrange(6):
        case 0:
            return DeleteJob(tenant="acme", job=job, command_id=f"c{n}")
        case 1:
            return PauseJob(tenant="acme", job=job, command_id=f"c{n}")
        case 2:
            return ResumeJob(tenant="acme", job=job, command_id=f"c{n}")
        case 3:
            return TriggerJob(tenant="acme", job=job, command_id=f"c{n}")
        case _:
            every = chance.choice(["1s", "2s", "3s"])
            return put(job, orders, every=every, command_id=f"c{n}")


@pytest.mark.parametrize("seed", SEEDS)
@scenario(partitions=4)
def test_whatever_happens_to_the_processes_the_log_stays_right(world: World, seed: int) -> None:
    chance = random.Random(seed)
    members = {name: world.scheduler(name) for name in ("a", "b")}
    orders = world.topic(partitions=2)
    jobs = ticking(world, orders)
    client = Client(world, orders)
    until_s = time.monotonic() + PLAY_S
    n = 0
    while time.monotonic() < until_s:
        for _ in range(20):
            n += 1
            # The same command twice: as a client does who heard nothing.
            command = orders_about(chance, orders, n)
            world.send(command)
            if chance.random() < 0.3:
                world.send(command)
        trouble(world, members, chance)
        time.sleep(chance.uniform(0.2, 1.5))
    for process in members.values():
        process.kill()
    members = {name: world.scheduler(name) for name in members}
    everywhere = set(range(world.partitions))
    until(lambda: _owned(members) == everywhere, "every partition to be owned", timeout_s=60)
    arrived = world.tail(orders, since_end=True)
    until(lambda: len(arrived.refresh()) >= 3 * len(jobs), "fires in peace", timeout_s=60)
    client.stop()
    for process in members.values():
        assert process.terminate() == 0
    for job in jobs:
        checks.check_every_second(world, job)
    client.check()
    checks.check_log(world)
    checks.check_stores(world, *members.values())


def _owned(members: dict[str, SchedulerProcess]) -> set[int]:
    return set().union(*(process.owned_lately() for process in members.values()))
