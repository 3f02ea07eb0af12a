"""What the folder of a Kafka in Docker remembers, and what its container is told."""

import gc
import warnings
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.broker import container, server
from horolog.broker.errors import BrokerError
from horolog.broker.jars import find_pom
from horolog.broker.settings import Ports, server_settings

PORTS = Ports(broker=20_001, controller=20_002)
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture(autouse=True)
def sockets_of_dockers_client() -> Iterator[None]:
    """It leaves one open for each refused connection: they end here, in no other test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_a_container_is_set_as_the_embedded_broker_and_told_one_address_that_is_right_inside() -> (
    None
):
    told = container.environment(PORTS, "some-cluster")
    for name, value in server_settings(Path(container.LOG_DIR), PORTS).items():
        if name != "listeners":
            assert told[f"KAFKA_{name.upper().replace('.', '_')}"] == value
    assert told["KAFKA_ADVERTISED_LISTENERS"] == "BROKER://127.0.0.1:20001"
    assert told["KAFKA_LISTENERS"].startswith("BROKER://0.0.0.0:20001,CONTROLLER://127.0.0.1:")
    assert told["CLUSTER_ID"] == "some-cluster"


def test_the_image_is_of_the_release_that_the_embedded_broker_is() -> None:
    pom = Xml.parse(find_pom()).getroot()
    _, _, release = container.IMAGE.partition(":")
    assert release in {
        found.text for found in pom.iter("{http://maven.apache.org/POM/4.0.0}version")
    }


def test_a_folder_has_no_container_until_it_says_so(tmp_path: Path) -> None:
    assert container.kept(tmp_path) is None
    (tmp_path / "container.json").write_text('{"name": "horolog-1", "cluster_id": "c"}')
    assert container.kept(tmp_path) == container.Kept(name="horolog-1", cluster_id="c")
    found = server.status(tmp_path)
    assert (found.running, found.ready, found.cluster_id) == (False, False, "c")


def test_a_damaged_record_is_told(tmp_path: Path) -> None:
    (tmp_path / "container.json").write_text("{}")
    with pytest.raises(BrokerError, match="is damaged"):
        container.kept(tmp_path)


def test_a_docker_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert container.why_no_docker().startswith("Docker, which could run Kafka too, does not")


def test_without_java_and_docker_one_message_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr("horolog.broker.java.PACKAGE", "no_such_package")
    with pytest.raises(BrokerError) as refused:
        server.start(tmp_path / "data", log=print, env={"PATH": str(tmp_path)})
    told = str(refused.value)
    assert "No java in HOROLOG_JAVA, JAVA_HOME or PATH" in told
    assert "KAFKA_BOOTSTRAP_SERVERS" in told
    assert "Docker, which could run Kafka too, does not answer" in told


def test_a_folder_whose_kafka_is_in_docker_gets_no_empty_one_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    (tmp_path / "container.json").write_text('{"name": "horolog-1", "cluster_id": "c"}')
    with pytest.raises(BrokerError, match="is kept in Docker"):
        server.start(tmp_path, log=print)
