"""One processor as a process: checks, wiring, signals, the end."""

import fcntl
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

import structlog

from horolog import logs
from horolog.broker.probe import cluster_id_at
from horolog.monitor import WatchedProcessor, monitored
from horolog.settings import Settings
from processors import service
from processors.topology import topic_set
from schemas import limits
from streams import admin
from streams.binding import Logic
from streams.clock import SystemClock
from streams.crash import CrashPoint, from_environment
from streams.errors import Refuse, Unavailable
from streams.kafka import KafkaLog
from streams.ports import Clock, Log
from streams.runner import Runner
from streams.topics import describe

KAFKA_S: Final = 30.0
FAILED_EXIT: Final = service.STUCK_EXIT
"""It may be started again; exit code 1 says that this would not help."""


class Build(Protocol):
    """`processors.service.build` or one of its siblings."""

    def __call__(
        self,
        service: service.Service,
        *,
        log: Log,
        clock: Clock,
        alarm: Callable[..., None],
        crash: CrashPoint,
    ) -> tuple[Runner, Mapping[int, Logic]]: ...


def run(
    kind: str,
    build: Build,
    settings: Settings,
    bootstrap: str,
    *,
    member: str | None,
    folder: str = "",
) -> None:
    """Run a processor until it is told to stop by SIGTERM or SIGINT.

    `kind` is what messages call it, `folder` where its stores are below the member's state.
    Raises `Refuse` with the reason when going on would break a promise, `Unavailable` when Kafka
    does not answer at the start. Ends the process with `FAILED_EXIT` after any other failure.
    """
    member = _usable(member or socket.gethostname())
    logs.configure(service=kind, member=member, namespace=settings.namespace)
    log = structlog.stdlib.get_logger(f"horolog.{kind}")
    check_topics(settings, bootstrap, log)
    cluster = cluster_id_at(bootstrap, settings.kafka.client, timeout_s=KAFKA_S)
    if cluster is None:
        raise Unavailable(f"Kafka at {bootstrap} does not say which cluster it is")
    state_dir = settings.state_dir(member) / folder
    lock = _only_one(kind, state_dir, member)
    clock, crash, alarm = SystemClock(), from_environment(os.environ), _alarm(log)
    runner, logics = build(
        service.Service(
            namespace=settings.namespace, cluster=cluster, partitions=settings.partitions,
            member=member, state_dir=state_dir, lease_ms=settings.lease_ms,
        ),
        log=KafkaLog(bootstrap, settings.kafka.client, crash), clock=clock, alarm=alarm,
        crash=crash,
    )  # fmt: skip
    service.tune_process()
    service.guard(runner, clock, alarm)
    _stop_on_signals(kind, runner, log)
    log.info(f"{kind}_started", cluster=cluster, state_dir=str(state_dir))
    try:
        with monitored(settings.monitor, WatchedProcessor(kind, runner, logics, clock)):
            runner.run()
    except Refuse:
        raise
    except Exception:
        log.exception(f"{kind}_failed")
        sys.exit(FAILED_EXIT)
    log.info(f"{kind}_stopped")
    os.close(lock)


def _usable(member: str) -> str:
    """The name itself, which becomes a folder and an instance id of a Kafka group."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", member):
        raise Refuse(
            f"--member {member!r}: 1 to 128 letters, digits, '.', '_' or '-', of which the first "
            f"is a letter, a digit or '_'"
        )
    return member


def check_topics(settings: Settings, bootstrap: str, log: structlog.stdlib.BoundLogger) -> None:
    """Say where topics differ from the plan. Raises `Refuse` where nothing may start on them."""
    config = {**settings.kafka.client, "bootstrap.servers": bootstrap}
    wanted = topic_set(settings.namespace, settings.partitions)
    problems = admin.verify(config, wanted, timeout_s=KAFKA_S)
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        raise Refuse(f"the topics are not as they must be:\n{describe(fatal)}")
    for problem in problems:
        log.warning("topic_differs", topic=problem.topic, what=problem.what, found=problem.found,
                    expected=problem.expected)  # fmt: skip


def _only_one(kind: str, state_dir: Path, member: str) -> int:
    """Hold the folder's lock for as long as the process lives: two under one name would take the
    partitions from each other for ever."""
    state_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(state_dir / "member.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refuse(
            f"a {kind} process with the name {member} runs already on {state_dir}; "
            f"give this one another name with --member"
        ) from None
    return descriptor


def _alarm(log: structlog.stdlib.BoundLogger) -> Callable[..., None]:
    def alarm(event: str, **values: object) -> None:
        log.warning(event, **values)

    return alarm


def _stop_on_signals(kind: str, runner: Runner, log: structlog.stdlib.BoundLogger) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        log.info(f"{kind}_stopping", signal=signal.Signals(number).name)
        _bound_drain()
        runner.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _bound_drain() -> None:
    """However the drain hangs, the process ends; what it left undone the next owner restores."""

    def end() -> None:
        sys.stderr.write(f"the drain took longer than {limits.DRAIN_S:.0f} s\n")
        sys.stderr.flush()
        os._exit(1)

    timer = threading.Timer(limits.DRAIN_S, end)
    timer.daemon = True
    timer.start()
