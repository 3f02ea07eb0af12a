"""What must hold between partitions and the owner of places, whatever happens on the way."""

import pytest

from tests.properties.slots_world import World

HANDLERS = [("a",), ("a", "b"), ("b",)]


@pytest.mark.parametrize("seed", range(50))
def test_no_worker_ever_has_more_leases_than_it_offers(seed: int) -> None:
    world = World(
        seed,
        partitions=1 + seed % 5,
        workers=[(n % 4, HANDLERS[(n + seed) % 3]) for n in range(1 + seed % 4)],
        run_ms=[1, 200, 10_000][seed % 3],
        lose=[0.0, 0.1, 0.5][seed % 3],
    )
    for _ in range(1_500):
        world.act()
    assert world.owner.alarms == []


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happened_everything_that_waits_is_served_in_the_end(seed: int) -> None:
    world = World(seed, partitions=1 + seed % 5, workers=[(2, ("a",)), (1, ("a", "b"))], lose=0.3)
    for _ in range(500):
        world.act()
    world.lose = [0.0, 0.4][seed % 2]
    world.start_worker("last", 2, ("a", "b"))
    for partition in world.partitions:
        partition.want("a", 5, world.now_ms)
        partition.want("b", 5, world.now_ms)
    world.settle(60_000, every_ms=50)
    assert world.waiting() == 0


@pytest.mark.parametrize(("partitions", "places"), [(3, 20), (5, 7), (4, 4)])
def test_backlogs_share_the_places_evenly(partitions: int, places: int) -> None:
    world = World(1, partitions=partitions, workers=[(places, ("a",))], run_ms=300)
    world.partitions[0].want("a", 5_000, world.now_ms)
    world.settle(1_000)
    for partition in world.partitions:
        partition.want("a", 5_000, world.now_ms)
    world.settle(3_000)
    held = [len(partition.leases) for partition in world.partitions]
    assert sum(held) == places
    assert max(held) - min(held) <= 1


@pytest.mark.parametrize(("partitions", "places"), [(3, 1), (8, 2), (12, 4)])
def test_fewer_places_than_partitions_go_round(partitions: int, places: int) -> None:
    world = World(2, partitions=partitions, workers=[(places, ("a",))], run_ms=40)
    for partition in world.partitions:
        # The first one's work is oldest by far and must not keep the places for that.
        partition.want("a", 1_000, world.now_ms - (3_600_000 if partition.number == 0 else 0))
    world.settle(2_000)
    before = [partition.served["a"] for partition in world.partitions]
    world.settle(20_000)
    served = [p.served["a"] - was for p, was in zip(world.partitions, before, strict=True)]
    assert max(served) - min(served) <= 1 + places
    # A place goes from one to the next in three messages, each sent within 20 ms.
    assert sum(served) >= places * 20_000 // (40 + 4 * 20 + 20)


def test_ticks_find_places_without_asking_for_them() -> None:
    world = World(3, partitions=4, workers=[(10, ("a",)), (10, ("a",))])
    world.settle(5_000)
    messages = world.messages
    for partition in world.partitions:
        partition.want("a", 5, world.now_ms)
        world.step_partition(partition)
    assert world.waiting() == 0
    assert world.messages - messages <= 4


def test_a_quiet_pool_costs_a_message_a_partition_each_10_s_and_one_a_worker_each_5_s() -> None:
    world = World(4, partitions=5, workers=[(4, ("a",)), (3, ("a", "b"))])
    world.settle(10_000)
    messages = world.messages
    world.settle(60_000, every_ms=100)
    assert world.messages - messages <= 5 * 6 + 2 * 12
