"""Starts the embedded broker of a data folder and says how it is."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from . import container
from .errors import BrokerError, NoJava
from .folder import (
    choose_ports,
    kafka_log,
    last_words,
    prepare_folder,
    read_cluster_id,
    read_ports,
)
from .jars import find_jars
from .java import Java, find_java
from .launch import Program, end_with_caller, format_storage, launch
from .order import Kind, choose
from .probe import cluster_id_at, wait_ready
from .process import POLL_S, is_running, one_starter, read_pid
from .process import stop as stop_process

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
    """A broker that is ready. `started` tells whether this call started it or found it running.
    One in Docker has no `pid`."""

    bootstrap: str
    cluster_id: str
    pid: int | None
    data_dir: Path
    started: bool
    kind: Kind = Kind.EMBEDDED


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
    when the calling process ends, however it ends. Where there is no Java at all, and Docker
    answers, it runs in Docker. `log` gets one line per step that takes time.
    Raises `BrokerError` with the reason; then nothing that this call started is left running.
    """
    data_dir = data_dir.resolve()
    prepare_folder(data_dir)
    with one_starter(data_dir, timeout_s=2 * READY_S_MAX):
        if is_running(data_dir):
            return _await(data_dir, started=False)
        java = _java(data_dir, env)
        if java is None:
            return _start_container(data_dir, log, outlive_caller=outlive_caller)
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
            stop_process(data_dir)
            raise
        log(f"Kafka is ready at {handle.bootstrap} (process {handle.pid})")
        return handle


def stop(data_dir: Path) -> bool:
    """Stop the folder's broker; whether one ran. Raises `BrokerError` if it does not end."""
    in_docker = container.kept(data_dir.resolve())
    return stop_process(data_dir) if in_docker is None else container.remove(in_docker)


def status(data_dir: Path) -> BrokerStatus:
    """How the folder's broker is; starts and changes nothing. One in Docker runs if it answers."""
    data_dir = data_dir.resolve()
    in_docker = container.kept(data_dir)
    if in_docker is not None:
        return _container_status(data_dir, in_docker)
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


def _java(data_dir: Path, env: Mapping[str, str]) -> Java | None:
    """What runs the embedded broker; None if it is to be Docker."""
    java, no_java = None, ""
    try:
        java = find_java(env)
    except NoJava as missing:
        no_java = str(missing)
    kept = Kind.EMBEDDED if read_cluster_id(data_dir) is not None else None
    kept = Kind.CONTAINER if container.kept(data_dir) is not None else kept
    # Asking Docker takes a while.
    asks = kept is Kind.CONTAINER or java is None
    no_docker = container.why_no_docker() if asks else ""
    kind = choose(kept=kept, no_java=no_java, no_docker=no_docker)
    return java if kind is Kind.EMBEDDED else None


def _start_container(
    data_dir: Path, log: Callable[[str], None], *, outlive_caller: bool
) -> BrokerHandle:
    before = container.kept(data_dir)
    if before is not None and (found := _container_status(data_dir, before)).ready:
        return _container_handle(found, started=False)
    ports = choose_ports(data_dir, log)
    alive = container.run(data_dir, ports, outlive_caller=outlive_caller, log=log)
    this = container.kept(data_dir)
    assert this is not None
    try:
        wait_ready(f"127.0.0.1:{ports.broker}", {}, READY_S_MAX, alive=alive)
        handle = _container_handle(_container_status(data_dir, this), started=True)
    except BaseException:
        container.remove(this)
        raise
    log(f"Kafka is ready at {handle.bootstrap} (in Docker, {this.name})")
    return handle


def _container_status(data_dir: Path, this: container.Kept) -> BrokerStatus:
    ports = read_ports(data_dir)
    bootstrap = f"127.0.0.1:{ports.broker}" if ports else None
    answers = bootstrap is not None and cluster_id_at(bootstrap, {}, 2) == this.cluster_id
    return BrokerStatus(
        data_dir=data_dir, running=answers, ready=answers, pid=None, bootstrap=bootstrap,
        cluster_id=this.cluster_id, log_file=kafka_log(data_dir),
    )  # fmt: skip


def _container_handle(found: BrokerStatus, *, started: bool) -> BrokerHandle:
    if not found.ready or found.bootstrap is None or found.cluster_id is None:
        raise BrokerError(f"the Kafka at {found.bootstrap} is not the one of {found.data_dir}.")
    return BrokerHandle(
        bootstrap=found.bootstrap, cluster_id=found.cluster_id, pid=None, data_dir=found.data_dir,
        started=started, kind=Kind.CONTAINER,
    )  # fmt: skip


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
