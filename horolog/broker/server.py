"""Starts the embedded broker of a data folder and says how it is."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from .errors import BrokerError
from .folder import (
    choose_ports,
    kafka_log,
    last_words,
    prepare_folder,
    read_cluster_id,
    read_ports,
)
from .jars import find_jars
from .java import find_java
from .launch import Program, end_with_caller, format_storage, launch
from .probe import cluster_id_at, wait_ready
from .process import POLL_S, is_running, one_starter, read_pid, stop

__all__ = [
    "BrokerHandle",
    "BrokerStatus",
    "external_bootstrap",
    "start",
    "status",
    "stop",
]

READY_S_MAX = 60.0


class BrokerHandle(Struct, frozen=True, kw_only=True):
    """A broker that is ready. `started` tells whether this call started it or found it running."""

    bootstrap: str
    cluster_id: str
    pid: int
    data_dir: Path
    started: bool


class BrokerStatus(Struct, frozen=True, kw_only=True):
    """What is known of a folder's broker; `ready` means that Kafka answers as this cluster."""

    data_dir: Path
    running: bool
    ready: bool
    pid: int | None
    bootstrap: str | None
    cluster_id: str | None
    log_file: Path


def external_bootstrap(env: Mapping[str, str]) -> str | None:
    """The Kafka that the user brought, which comes before any embedded one."""
    return env.get("KAFKA_BOOTSTRAP_SERVERS", "").strip() or None


def start(
    data_dir: Path,
    *,
    log: Callable[[str], None],
    outlive_caller: bool = False,
    env: Mapping[str, str] = os.environ,
) -> BrokerHandle:
    """Make sure that the folder's broker runs and is ready; attach to it if it runs already.

    A broker of another folder is never attached to, also if it sits on the port this one had: then
    this one takes a new port and says so. Unless `outlive_caller`, a broker started here is stopped
    when the calling process ends, however it ends. `log` gets one line per step that takes time.
    Raises `BrokerError` with the reason; then nothing that this call started is left running.
    """
    data_dir = data_dir.resolve()
    prepare_folder(data_dir)
    with one_starter(data_dir, timeout_s=2 * READY_S_MAX):
        if is_running(data_dir):
            return _await(data_dir, started=False)
        java = find_java(env)
        program = Program(java=java, jars=find_jars(java, env, log))
        if read_cluster_id(data_dir) is None:
            format_storage(data_dir, program, log)
        ports = choose_ports(data_dir, log)
        log(f"starting Kafka in {data_dir} on 127.0.0.1:{ports.broker}")
        launch(data_dir, program, ports)
        try:
            pid = read_pid(data_dir)
            if pid is not None and not outlive_caller:
                end_with_caller(data_dir, pid)
            handle = _await(data_dir, started=True)
        except BaseException:
            stop(data_dir)
            raise
        log(f"Kafka is ready at {handle.bootstrap} (process {handle.pid})")
        return handle


def status(data_dir: Path) -> BrokerStatus:
    """How the folder's broker is; starts and changes nothing."""
    data_dir = data_dir.resolve()
    ports, cluster_id = read_ports(data_dir), read_cluster_id(data_dir)
    bootstrap = f"127.0.0.1:{ports.broker}" if ports else None
    running = is_running(data_dir)
    ready = (
        running
        and bootstrap is not None
        and cluster_id is not None
        and cluster_id_at(bootstrap, {}, timeout_s=2) == cluster_id
    )
    return BrokerStatus(
        data_dir=data_dir,
        running=running,
        ready=ready,
        pid=read_pid(data_dir),
        bootstrap=bootstrap,
        cluster_id=cluster_id,
        log_file=kafka_log(data_dir),
    )


def _await(data_dir: Path, *, started: bool) -> BrokerHandle:
    """Wait until the broker launched here is ready, and see that it is the folder's own."""
    pid, ports, cluster_id = (
        read_pid(data_dir),
        read_ports(data_dir),
        read_cluster_id(data_dir),
    )
    if pid is None or ports is None or cluster_id is None:
        raise BrokerError(f"Kafka ended at once. {last_words(data_dir)}")
    bootstrap = f"127.0.0.1:{ports.broker}"
    deadline = time.monotonic() + READY_S_MAX
    while not _accepts(ports.broker):
        if not is_running(data_dir):
            raise BrokerError(f"Kafka ended while starting. {last_words(data_dir)}")
        if time.monotonic() > deadline:
            waited = f"opened no port within {READY_S_MAX:.0f} s"
            raise BrokerError(f"Kafka {waited}. {last_words(data_dir)}")
        time.sleep(POLL_S)
    found = cluster_id_at(bootstrap, {}, timeout_s=READY_S_MAX)
    if found != cluster_id:
        raise BrokerError(
            f"the Kafka at {bootstrap} is cluster {found}, but {data_dir} is cluster {cluster_id}: "
            "it belongs to somebody else and is left alone."
        )
    try:
        wait_ready(bootstrap, {}, READY_S_MAX, alive=lambda: is_running(data_dir))
    except BrokerError as error:
        raise BrokerError(f"{error} {last_words(data_dir)}") from error
    return BrokerHandle(
        bootstrap=bootstrap,
        cluster_id=cluster_id,
        pid=pid,
        data_dir=data_dir,
        started=started,
    )


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
