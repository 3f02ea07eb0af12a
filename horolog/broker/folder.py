"""What a broker's data folder holds, and what it remembers between starts.

kafka/          Kafka's own log; `meta.properties` in it says which cluster this is
ports.json      the ports of the last start
broker.lock     locked while the broker lives; broker.pid names its process
logs/           Kafka's log, and what the JVM itself prints
"""

import json
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

from .errors import BrokerError
from .settings import Ports

# Below the range from which systems take the ports of outgoing connections, so that a remembered
# port is rarely taken when the broker comes back.
PORT_MIN, PORT_MAX = 20_000, 32_000


def kafka_dir(data_dir: Path) -> Path:
    """Kafka's own folder; it exists once it is formatted."""
    return data_dir / "kafka"


def kafka_log(data_dir: Path) -> Path:
    """What Kafka logs."""
    return data_dir / "logs" / "broker.log"


def jvm_output(data_dir: Path) -> Path:
    """What the JVM prints by itself, for example that it cannot have the memory it was given."""
    return data_dir / "logs" / "jvm.out"


def prepare_folder(data_dir: Path) -> None:
    """Make the folder; refuse a path that Kafka's own settings cannot express."""
    if "," in str(data_dir):
        raise BrokerError(f"Kafka cannot use a folder with a comma in its path: {data_dir}")
    try:
        (data_dir / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BrokerError(f"cannot make the broker's folder: {error}") from error


def read_cluster_id(data_dir: Path) -> str | None:
    """The id with which the folder was formatted; None if it was not."""
    path = kafka_dir(data_dir) / "meta.properties"
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    for line in text.splitlines():
        if line.startswith("cluster.id="):
            return line.removeprefix("cluster.id=").strip()
    raise BrokerError(f"{path} names no cluster id.")


def read_ports(data_dir: Path) -> Ports | None:
    """The ports of the broker's last start; None before the first."""
    try:
        found = json.loads((data_dir / "ports.json").read_text())
    except FileNotFoundError:
        return None
    return Ports(broker=found["broker"], controller=found["controller"])


def choose_ports(data_dir: Path, log: Callable[[str], None]) -> Ports:
    """The ports of last time if both are free, else new ones, which are remembered."""
    old = read_ports(data_dir)
    if old is not None and _is_free(old.broker) and _is_free(old.controller):
        return old
    if old is not None:
        log(f"port {old.broker} or {old.controller} is taken by another program; choosing others")
    free: list[int] = []
    while len(free) < 2:
        port = random.randint(PORT_MIN, PORT_MAX)  # noqa: S311 no secret
        if port not in free and _is_free(port):
            free.append(port)
    ports = Ports(broker=free[0], controller=free[1])
    temporary = data_dir / "ports.json.new"
    temporary.write_text(json.dumps({"broker": ports.broker, "controller": ports.controller}))
    temporary.replace(data_dir / "ports.json")
    return ports


def last_words(data_dir: Path) -> str:
    """Where the broker's logs are and the end of what is in them, for a message about its death."""
    lines: list[str] = []
    for path in (jvm_output(data_dir), kafka_log(data_dir)):
        if path.exists():
            text = path.read_bytes()[-20_000:].decode(errors="replace")
            told = [line.strip() for line in text.splitlines() if not _is_noise(line)]
            lines += [f"  {line}" for line in told[-6:]]
    return "\n".join([f"See {data_dir / 'logs'}{os.sep}; at its end:", *lines])


def _is_noise(line: str) -> bool:
    return not line.strip() or " INFO " in line or line.startswith("\tat ")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Kafka binds: connections that are winding down do not count, listeners do.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
