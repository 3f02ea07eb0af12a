"""A real Kafka for the tests that want one: one per session, in a folder of its own."""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from horolog.broker import probe, server
from horolog.broker.prepare import prepare

# Machines are shared and noisy: how long an example takes says nothing about what it shows.
settings.register_profile("horolog", deadline=None)
settings.load_profile("horolog")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a Kafka that is ready.

    The one of KAFKA_BOOTSTRAP_SERVERS if set, else an embedded one. Without Java or Maven the tests
    fail with the message that says what to install: they are never skipped.
    """
    external = server.external_bootstrap(os.environ)
    if external is not None:
        probe.wait_ready(external, {}, 30)
        yield external
        return
    # Pays for itself once a session starts a few more brokers.
    prepare(_report)
    data_dir = tmp_path_factory.mktemp("broker")
    yield server.start(data_dir, log=_report).bootstrap
    server.stop(data_dir)


@pytest.fixture
def namespace() -> str:
    """A prefix for topics, groups and transactional ids that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Path]:
    """A data folder for a broker that a test starts, breaks and restarts by itself."""
    data_dir = tmp_path / "own bröker"
    yield data_dir
    server.stop(data_dir)


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
