"""Faults put into a scheduler before it starts: a bug in a decision, a loop that gets stuck."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

from processors import plain, scheduler, topology
from processors.core import job as core
from schemas import limits
from streams import clock, inputs
from streams.kafka import outbox, ownership, producer


def crash_on_command() -> None:
    """Deciding any command about a job whose id begins with `crash` raises."""
    decide = scheduler.Scheduler._decide

    def crashing(self: Any, txn: Any, record: Any, command: Any, *rest: Any) -> None:
        if command.job.startswith("crash"):
            raise RuntimeError("a bug in a command's decision")
        decide(self, txn, record, command, *rest)

    scheduler.Scheduler._decide = crashing  # type: ignore[method-assign]


def crash_on_tick() -> None:
    """Deciding a tick of a job whose id begins with `crash` raises, the short way and the long."""
    decide, encode = core.decide_tick, plain._event

    def crashing(job_key: str, *rest: Any) -> core.Decision:
        if "/crash" in job_key:
            raise RuntimeError("a bug in a tick's decision")
        return decide(job_key, *rest)

    def crashing_plainly(tenant: bytes, job: bytes, *rest: Any) -> bytes:
        if job.startswith(b"crash"):
            raise RuntimeError("a bug in a tick's decision")
        return encode(tenant, job, *rest)

    core.decide_tick = crashing
    plain._event = crashing_plainly


def get_stuck() -> None:
    """The loop stands still for ever in the first command about a job named `stuck`."""
    short_watchdog()
    decide = scheduler.Scheduler._decide

    def stuck(self: Any, txn: Any, record: Any, command: Any, *rest: Any) -> None:
        if command.job == "stuck":
            threading.Event().wait()
        decide(self, txn, record, command, *rest)

    scheduler.Scheduler._decide = stuck  # type: ignore[method-assign]


def drop_the_first_forward() -> None:
    """The queue of what is forwarded stays full, once: the records are dropped and counted."""
    send, left = outbox.KafkaOutbox.send, 1

    def dropping(self: Any, records: Any) -> None:
        nonlocal left
        records = list(records)
        if left and any(record.topic.endswith(".commands") for record in records):
            left -= 1
            self.dropped += len(records)
            return
        send(self, records)

    outbox.KafkaOutbox.send = dropping  # type: ignore[method-assign]


def stop_reading() -> None:
    """The thread that reads the inputs runs into a bug after its third batch."""
    hand_on, left = inputs.InputThread._hand_on, 3

    def breaking(self: Any, records: Any) -> None:
        nonlocal left
        left -= bool(records)
        if left < 0:
            raise RuntimeError("a bug in reading")
        hand_on(self, records)

    inputs.InputThread._hand_on = breaking  # type: ignore[method-assign]


def stop_before_workers_are_told() -> None:
    """Stands still, once, between the commit of a lease and the message to its worker."""
    send, left = outbox.KafkaOutbox.send, 1

    def stopping(self: Any, records: Any) -> None:
        nonlocal left
        records = list(records)
        if left and topology.tells_workers(records):
            left -= 1
            os.kill(os.getpid(), signal.SIGSTOP)
        send(self, records)

    outbox.KafkaOutbox.send = stopping  # type: ignore[method-assign]


AHEAD = "ahead"
"""While this file is in the data folder, the wall clock of the scheduler is 5 s ahead."""


def clock_ahead() -> None:
    told = Path(os.environ["HOROLOG_DATA_DIR"]) / AHEAD
    wall_ms = clock.SystemClock.wall_ms

    def ahead(self: Any) -> int:
        return wall_ms(self) + (5_000 if told.exists() else 0)

    clock.SystemClock.wall_ms = ahead  # type: ignore[method-assign]


def short_watchdog() -> None:
    limits.WATCHDOG_MS = 3_000  # type: ignore[misc]


DEAF = "deaf"
"""While this file is in the data folder, the scheduler hears nothing of its group."""


def deaf_to_its_group() -> None:
    """It is put out for not polling, and goes on believing that it owns what it had: it decides,
    is fenced, and takes the epoch back."""
    limits.POLL_INTERVAL_MS_MAX = limits.SESSION_MS + 500  # type: ignore[misc]
    told = Path(os.environ["HOROLOG_DATA_DIR"]) / DEAF
    for name in ("poll", "commit_positions"):
        call = getattr(ownership.KafkaOwnership, name)

        def deaf(self: Any, argument: Any, call: Any = call) -> None:
            if not told.exists():
                call(self, argument)

        setattr(ownership.KafkaOwnership, name, deaf)


def stop_after_some_fires() -> None:
    """Kills itself with -9 in a commit once a few thousand fires are written."""
    fires = 0
    commit = producer.KafkaTransactionalProducer.commit

    def killing(self: Any, timeout_s: float) -> Any:
        nonlocal fires
        fires += sum(1 for record in self._batch if record.headers)
        if fires > 4_000:
            threading.Timer(0.002, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return commit(self, timeout_s)

    producer.KafkaTransactionalProducer.commit = killing  # type: ignore[method-assign]


def stop_after_a_trigger() -> None:
    """Kills itself once a transaction with a fire is acknowledged."""
    commit = producer.KafkaTransactionalProducer.commit

    def killing(self: Any, timeout_s: float) -> Any:
        delivered = commit(self, timeout_s)
        if any(record.headers for record in self._batch):
            os.kill(os.getpid(), signal.SIGKILL)
        return delivered

    producer.KafkaTransactionalProducer.commit = killing  # type: ignore[method-assign]


def stop_before_the_mark_of_a_trigger() -> None:
    """Kills itself in a transaction with a fire, once all but its mark is in the log."""
    hand_over = producer.KafkaTransactionalProducer._hand_over

    def killing(self: Any, batch: Any) -> None:
        if not any(record.headers for record in batch):
            hand_over(self, batch)
            return
        hand_over(self, batch[:-1])
        self._client.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    producer.KafkaTransactionalProducer._hand_over = killing  # type: ignore[method-assign]
