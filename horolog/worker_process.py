"""One worker as a process: wiring, registering of declared jobs, signals, the end."""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec

from horolog.client import KafkaClient, NoTopics
from horolog.sdk_settings import Where
from processors.exchange import JsonPut
from schemas import limits
from schemas.replies import Accepted
from streams.clock import SystemClock
from streams.kafka import KafkaLog
from streams.layout import topic_name
from workers.children import ChildPool
from workers.kafka import KafkaReportLog
from workers.ports import Acknowledged, Moment, ReportLog
from workers.process import CannotLoad
from workers.runtime import RunningExecutor, Worker, WorkerSettings
from workers.topics import SLOT_REQUESTS, inbox_topic

REGISTER_S: Final = 30.0
_log = logging.getLogger("horolog.worker")


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is to run; times in ms. `processes` 0: as many as there are processors."""

    name: str = ""
    pool: str = "default"
    places: int = limits.PLACES_DEFAULT
    processes: int = 0
    drain_ms: int = limits.WORKER_DRAIN_MS
    cancel_grace_ms: int = limits.CANCEL_GRACE_MS
    register: bool = True
    until_stdin_ends: bool = False
    """Drain also when the standard input ends, which is the end of whoever started the worker."""

    def __post_init__(self) -> None:
        """Raises `ValueError` with the option's name and what would be right."""
        if not 1 <= self.places <= limits.PLACES_MAX:
            raise ValueError(f"concurrency {self.places}: from 1 to {limits.PLACES_MAX}")
        if not 0 <= self.drain_ms <= limits.WORKER_DRAIN_MS_MAX:
            raise ValueError(f"drain time of {self.drain_ms} ms: at most 6 h")


class CannotRegister(Exception):
    """Declared jobs were refused. Tell the user: `problems` says which and why."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


Watch = Callable[[Worker], AbstractContextManager[None]]
"""Holds a worker while it works, to answer for it."""


def run_application(
    where: Where, application: str, options: WorkerOptions, watch: Watch | None = None
) -> None:
    """Run the handlers of `module:app` until SIGTERM or SIGINT; a second one does not wait.

    Raises `CannotLoad`, `CannotRegister`, `horolog.client.NoTopics`, `streams.errors.Unavailable`.
    """
    asyncio.run(_run_application(where, application, options, watch))


async def _run_application(
    where: Where, application: str, options: WorkerOptions, watch: Watch | None
) -> None:
    worker_id = name_of(options)
    pool = ChildPool(
        application=application, worker=worker_id, places=options.places,
        processes=options.processes or os.cpu_count() or 1, alarm=alarm, now=moment,
    )  # fmt: skip
    ready = await pool.open()
    try:
        if not ready.handlers:
            raise CannotLoad(f"{application} has no handlers: @app.task(…) makes one")
        if options.register:
            await asyncio.to_thread(register, where, json.loads(ready.declared))
        _log.info("%s has the handlers %s", application, ", ".join(ready.handlers))
        await serve(where, ready.handlers, pool, worker_id, options, watch)
    finally:
        await pool.close()


async def serve(
    where: Where, handlers: tuple[str, ...], executor: RunningExecutor, worker_id: str,
    options: WorkerOptions, watch: Watch | None = None,
) -> None:  # fmt: skip
    """Work with this executor until a signal, then drain. On the main thread only."""
    clock = SystemClock()
    log = KafkaLog(where.bootstrap, where.client)
    partitions = _partitions(log, where, options.pool)

    def report_log(heard: Callable[[Acknowledged], None]) -> ReportLog:
        return KafkaReportLog(
            where.bootstrap, where.client, client_id=worker_id, clock=clock, on_acknowledged=heard
        )

    worker = Worker(
        WorkerSettings(
            namespace=where.namespace, worker=worker_id, pool=options.pool, places=options.places,
            lease_ms=where.lease_ms, drain_ms=options.drain_ms,
            cancel_grace_ms=options.cancel_grace_ms,
        ),
        handlers=handlers, log=log, partitions=partitions, report_log=report_log,
        executor=executor, clock=clock, alarm=alarm,
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _drain, worker, number)
    if options.until_stdin_ends:
        threading.Thread(target=_await_end_of_stdin, args=(loop, worker), daemon=True).start()
    _log.info("worker %s of pool %s has %d places", worker_id, options.pool, options.places)
    with watch(worker) if watch is not None else contextlib.nullcontext():
        await worker.run()
    _log.info("worker %s ended", worker_id)


def register(where: Where, declared: Sequence[Mapping[str, Any]]) -> None:
    """Put the declared jobs: once more changes nothing. Raises `CannotRegister`."""
    if not declared:
        return
    puts = [
        JsonPut(
            tenant=where.tenant, job=one["job"], definition=one["definition"],
            note="declared beside its handler",
        )
        for one in declared
    ]  # fmt: skip
    log = KafkaLog(where.bootstrap, where.client)
    with KafkaClient(log, namespace=where.namespace, by="worker") as client:
        answers = client.send_all(puts, wait_s=REGISTER_S)
    problems = []
    for put, answer in zip(puts, answers, strict=True):
        if isinstance(answer, Accepted):
            _log.info("job %s is at version %d", put.job, answer.version)
            continue
        told = "; ".join(f"{p.field}: {p.message}" for p in answer.problems) or answer.message
        problems.append(f"job {put.job}: {told}")
    if problems:
        raise CannotRegister(problems)


def name_of(options: WorkerOptions) -> str:
    """The worker's id: its name and a random start, so that a namesake is somebody else."""
    return f"{options.name or socket.gethostname()}-{secrets.token_hex(3)}"


def moment() -> Moment:
    """Now, on this machine's clocks."""
    return Moment(_clock.wall_ms(), _clock.boottime_ms())


def alarm(event: str, **values: object) -> None:
    """Tell the operator."""
    _log.warning("%s %s", event, " ".join(f"{key}={value!r}" for key, value in values.items()))


_clock: Final = SystemClock()


def _partitions(log: KafkaLog, where: Where, pool: str) -> int:
    """Partitions of `slot-requests`, which are the cluster's. Raises `NoTopics`."""
    topics = log.topics()
    requests, inbox = topic_name(where.namespace, SLOT_REQUESTS), inbox_topic(where.namespace, pool)
    for topic in (requests, inbox):
        if not topics.partitions(topic):
            raise NoTopics(f"topic {topic} does not exist at {where.bootstrap}")
    return topics.partitions(requests)


def _await_end_of_stdin(loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
    while os.read(0, 4_096):
        pass
    loop.call_soon_threadsafe(worker.drain)


def _drain(worker: Worker, number: int) -> None:
    _log.info("%s: draining", signal.Signals(number).name)
    worker.drain()
