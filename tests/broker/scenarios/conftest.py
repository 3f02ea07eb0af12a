"""Each scenario has a namespace of its own on the broker of the session."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.scenarios.world import World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(broker: str, namespace: str, tmp_path: Path) -> Iterator[MakeWorld]:
    """Makes the scenario's world, with one partition unless it says more."""
    made: list[World] = []

    def make(partitions: int = 1) -> World:
        made.append(World(broker, namespace, tmp_path / "data", partitions))
        return made[-1]

    yield make
    for world in made:
        world.close()
        # Shown with a test that failed.
        sys.stderr.write(world.newest_lines())


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """One partition."""
    return make_world()
