"""One installation for all tests of the face that do not kill anything."""

from collections.abc import Iterator

import pytest
from standing import Standing

from streams import admin
from streams.topics import TopicSet, TopicSpec


def stand(broker: str, folder: pytest.TempPathFactory) -> Standing:
    """Topics are there, scheduler and gateway answer."""
    made = Standing(broker, folder.mktemp("face"))
    assert made.cli("topics", "apply")[0] == 0
    spec = TopicSpec(suffix="x", partitions=1, cleanup="delete")
    own = TopicSet(namespace=made.topic, partitions=1, specs=(spec,))
    admin.apply({"bootstrap.servers": broker}, own)
    made.topic = f"{made.topic}.x"
    return made


@pytest.fixture(scope="session")
def face(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """A gateway that answers, and who decides behind it."""
    made = stand(broker, tmp_path_factory)
    try:
        made.scheduler = made.start("run", "scheduler", "--member", "one")
        made.gateway = made.start_gateway()
        yield made
    finally:
        made.stop()


@pytest.fixture
def fragile(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """An installation of its own, for a test that breaks things; nothing runs yet."""
    made = stand(broker, tmp_path_factory)
    try:
        yield made
    finally:
        made.stop()
