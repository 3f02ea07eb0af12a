"""A Kafka in Docker, for machines without any Java: the last step of the broker order.

It has the settings of the embedded one. Its log is in a volume of Docker's, which `container.json`
in the data folder names, and which outlives the container.
"""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from .errors import BrokerError
from .launch import new_cluster_id
from .settings import HEAP_MB_MAX, Ports, server_settings

IMAGE: Final = "apache/kafka:4.2.2"
"""The release of deploy/broker/pom.xml, which says why no later one."""
LOG_DIR: Final = "/var/lib/kafka/data"
ASK_S: Final = 5
END_S: Final = 30
_INSTALL: Final = "Docker can run Kafka too: `pip install 'horolog-server[docker]'`."


def why_no_docker() -> str:
    """Why no container can be started here; empty if one can."""
    try:
        from docker.errors import DockerException
        from testcontainers.core.docker_client import DockerClient
    except ImportError:
        return _INSTALL
    try:
        # It also knows what `docker context use` has chosen.
        client = DockerClient(timeout=ASK_S).client
        try:
            client.ping()
        finally:
            client.close()
    except DockerException as error:
        return f"Docker, which could run Kafka too, does not answer: {error}"
    return ""


class Kept(Struct, frozen=True, kw_only=True):
    """Where Docker has a folder's Kafka: what container and volume are called, and which cluster it
    is. A folder that was deleted and made anew has others."""

    name: str
    cluster_id: str


def kept(data_dir: Path) -> Kept | None:
    """Where Docker has this folder's Kafka, running or not; None if it has none."""
    try:
        return msgspec.json.decode(_record(data_dir).read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise BrokerError(f"{_record(data_dir)} is damaged: {error}") from error


def environment(ports: Ports, cluster: str) -> dict[str, str]:
    """What tells the image to be the broker that the embedded one would be.

    It listens at the same port inside as outside, so that the one address it tells is right for
    itself and for this machine.
    """
    settings = dict(server_settings(Path(LOG_DIR), ports))
    settings["listeners"] = (
        f"BROKER://0.0.0.0:{ports.broker},CONTROLLER://127.0.0.1:{ports.controller}"
    )
    found = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in settings.items()}
    return found | {"CLUSTER_ID": cluster, "KAFKA_HEAP_OPTS": f"-Xmx{HEAP_MB_MAX}m"}


def run(
    data_dir: Path, ports: Ports, *, outlive_caller: bool, log: Callable[[str], None]
) -> Callable[[], bool]:
    """Start the folder's container, in place of one that was left over; tells whether it lives.

    Unless `outlive_caller`, it is removed within seconds of the end of the calling process. Raises
    `BrokerError`.
    """
    from docker.errors import DockerException
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    # What removes the containers of a process that ended knows no exceptions.
    testcontainers_config.ryuk_disabled = outlive_caller
    log(f"starting Kafka in Docker: {IMAGE}, which is fetched once")
    before = kept(data_dir)
    if before is not None:
        remove(before)
    this = before or Kept(name=f"horolog-{uuid.uuid4().hex[:16]}", cluster_id=new_cluster_id())
    # First, so that no volume with data in it is forgotten.
    _record(data_dir).write_bytes(msgspec.json.encode(this))
    try:
        container = DockerContainer(IMAGE)
        container.with_name(this.name)
        container.with_envs(**environment(ports, this.cluster_id))
        container.with_volume_mapping(this.name, LOG_DIR, "rw")
        # Its own way to do this publishes the port to everybody who reaches this machine.
        published: dict[str, Any] = container.ports
        published[f"{ports.broker}/tcp"] = ("127.0.0.1", ports.broker)
        container.start()
    except (DockerException, OSError) as error:
        if before is None:
            _record(data_dir).unlink()
        raise BrokerError(f"Docker could not start Kafka: {error}") from error

    def alive() -> bool:
        container.reload()
        return container.status == "running"

    return alive


def remove(this: Kept) -> bool:
    """Stop and remove the container; whether there was one. Its volume is kept. Raises
    `BrokerError` where Docker does not answer."""
    try:
        from docker.errors import DockerException, NotFound
        from testcontainers.core.docker_client import DockerClient
    except ImportError as error:
        raise BrokerError(f"The Kafka {this.name} is in Docker. {_INSTALL}") from error
    try:
        client = DockerClient().client
        try:
            found = client.containers.get(this.name)
            found.stop(timeout=END_S)
            found.remove(force=True)
        except NotFound:
            return False
        finally:
            client.close()
    except DockerException as error:
        raise BrokerError(f"Docker could not stop Kafka ({this.name}): {error}") from error
    return True


def _record(data_dir: Path) -> Path:
    return data_dir / "container.json"
