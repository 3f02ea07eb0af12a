"""Each scenario has a namespace of its own on the broker of the session."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.scenarios.played import Plays, is_scenario
from tests.broker.scenarios.world import World


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is played at a time comes last, when nothing else wants the machine."""
    items.sort(key=is_scenario)


@pytest.fixture(scope="session")
def plays(
    request: pytest.FixtureRequest, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Plays]:
    """Begins the plays of this session."""
    made = Plays(request.session.items, broker, tmp_path_factory.mktemp("plays"))
    yield made
    made.close()


@pytest.fixture
def world(broker: str, namespace: str, tmp_path: Path) -> Iterator[World]:
    """One partition, for a test that wants to be alone: it looks at how long something takes."""
    made = World(broker, namespace, tmp_path / "data", partitions=1)
    yield made
    made.close()
    # Shown with a test that failed.
    sys.stderr.write(made.newest_lines())
