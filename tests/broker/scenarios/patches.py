"""Faults put into a scheduler before it starts: a bug in a decision, a loop that gets stuck."""

import threading
from typing import Any

from processors import scheduler
from processors.core import job as core


def crash_on_command() -> None:
    """Deciding any command about a job whose id begins with `crash` raises."""
    decide = scheduler.Scheduler._decide

    def crashing(self: Any, txn: Any, record: Any, command: Any, *rest: Any) -> None:
        if command.job.startswith("crash"):
            raise RuntimeError("a bug in a command's decision")
        decide(self, txn, record, command, *rest)

    scheduler.Scheduler._decide = crashing  # type: ignore[method-assign]


def crash_on_tick() -> None:
    """Deciding a tick of a job whose id begins with `crash` raises."""
    decide = core.decide_tick

    def crashing(job_key: str, *rest: Any) -> core.Decision:
        if "/crash" in job_key:
            raise RuntimeError("a bug in a tick's decision")
        return decide(job_key, *rest)

    core.decide_tick = crashing


def get_stuck() -> None:
    """The loop stands still for ever in the first command about a job named `stuck`."""
    decide = scheduler.Scheduler._decide

    def stuck(self: Any, txn: Any, record: Any, command: Any, *rest: Any) -> None:
        if command.job == "stuck":
            threading.Event().wait()
        decide(self, txn, record, command, *rest)

    scheduler.Scheduler._decide = stuck  # type: ignore[method-assign]
