"""The last step of the broker order: a Kafka in Docker where there is no Java.

The engine is one of ours that runs the same Kafka without a container, so what is shown is what is
asked of Docker and what becomes of the answers, not the image itself.
"""

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.broker import container, prepare, server
from horolog.broker.order import Kind
from horolog.broker.probe import cluster_id_at
from processors.topology import topic_set
from streams import admin
from tests.broker.docker_engine import Engine

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
NOWHERE = {"PATH": "/nonexistent"}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A Docker, on a machine without Java."""
    found = Engine(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", found.address)
    monkeypatch.setattr("horolog.broker.java.PACKAGE", "no_such_package")
    yield found
    found.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def start(data_dir: Path) -> server.BrokerHandle:
    return server.start(data_dir, log=print, outlive_caller=True, env=NOWHERE)


def test_it_is_started_found_again_stopped_and_goes_on_with_its_data(
    engine: Engine, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    first = start(data_dir)
    assert (first.kind, first.started, first.pid) == (Kind.CONTAINER, True, None)
    assert server.status(data_dir).ready
    made = admin.apply({"bootstrap.servers": first.bootstrap}, topic_set("kept", 2))
    assert made.created

    assert start(data_dir).started is False
    assert server.stop(data_dir) is True
    assert not server.status(data_dir).ready
    assert server.stop(data_dir) is False
    assert engine.created == {}, "the container is removed"

    again = start(data_dir)
    assert (again.started, again.bootstrap) == (True, first.bootstrap)
    assert again.cluster_id == first.cluster_id
    assert admin.verify({"bootstrap.servers": again.bootstrap}, topic_set("kept", 2)) == []
    server.stop(data_dir)


def test_only_this_machine_reaches_it(engine: Engine, tmp_path: Path) -> None:
    handle = start(tmp_path / "data")
    ((name, asked),) = engine.created.items()
    port = handle.bootstrap.rpartition(":")[2]
    published = asked["HostConfig"]["PortBindings"]
    assert published == {f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": port}]}
    assert asked["HostConfig"]["Binds"] == [f"{name}:{container.LOG_DIR}:rw"]
    assert asked["Image"] == container.IMAGE
    server.stop(tmp_path / "data")


def test_one_that_was_killed_is_replaced(engine: Engine, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    first = start(data_dir)
    (process,) = engine.running.values()
    process.kill()
    process.wait()
    assert not server.status(data_dir).ready
    again = start(data_dir)
    assert again.started
    assert cluster_id_at(again.bootstrap, {}, timeout_s=10) == first.cluster_id
    server.stop(data_dir)


def test_a_folder_that_was_deleted_starts_anew(engine: Engine, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    first = start(data_dir)
    server.stop(data_dir)
    for file in data_dir.rglob("*"):
        if file.is_file():
            file.unlink()
    assert start(data_dir).cluster_id != first.cluster_id
    server.stop(data_dir)


def test_nothing_has_to_be_fetched_for_it(engine: Engine) -> None:
    told: list[str] = []
    prepare.prepare(told.append, NOWHERE)
    assert told == ["no Java: Kafka will run in Docker"]


def test_without_the_extra_the_message_names_it(tmp_path: Path) -> None:
    """In a process that cannot import testcontainers."""
    code = (
        "import sys, pathlib\n"
        "sys.modules['testcontainers'] = None\n"
        "from horolog.broker import container\n"
        "print(container.why_no_docker())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env=dict(os.environ),
    )  # fmt: skip
    assert "pip install 'horolog-server[docker]'" in done.stdout, done.stderr
