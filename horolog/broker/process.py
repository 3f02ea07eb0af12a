"""Knows whether a data folder's broker lives, and ends it.

The JVM inherits an open file on which its starter took a `flock`. The kernel keeps that lock for
exactly as long as the JVM lives, however it dies, so a left-over pid file can neither hide a
broker nor make us signal a stranger that got its number.
"""

import contextlib
import fcntl
import os
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from .errors import BrokerError

POLL_S = 0.02


def lock_file(data_dir: Path) -> Path:
    """The file whose lock the living broker holds."""
    return data_dir / "broker.lock"


def pid_file(data_dir: Path) -> Path:
    """Where the number of the broker's process is written before its JVM starts."""
    return data_dir / "broker.pid"


def take_lock(path: Path, timeout_s: float) -> int:
    """An open, locked descriptor of the file, made if missing; `BrokerError` after the time."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + timeout_s
    while not _try(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            os.close(descriptor)
            raise BrokerError(f"{path} has been locked by another process for {timeout_s:.0f} s.")
        time.sleep(POLL_S)
    return descriptor


@contextlib.contextmanager
def one_starter(data_dir: Path, timeout_s: float) -> Iterator[None]:
    """Keeps two processes from starting a broker in one folder at the same time."""
    descriptor = take_lock(data_dir / "start.lock", timeout_s)
    try:
        yield
    finally:
        os.close(descriptor)


def is_running(data_dir: Path) -> bool:
    """Whether the folder's broker process lives, ready or not."""
    try:
        descriptor = os.open(lock_file(data_dir), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two who ask at once do not take each other for the broker.
        return not _try(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def read_pid(data_dir: Path) -> int | None:
    """The broker's process number; None unless it lives."""
    if not is_running(data_dir):
        return None
    try:
        return int(pid_file(data_dir).read_text())
    except (FileNotFoundError, ValueError):
        return None


def stop(data_dir: Path, timeout_s: float = 20) -> bool:
    """End the folder's broker: SIGTERM, and SIGKILL with a warning after `timeout_s`.

    True if a broker was running. Returns when its process has ended and the folder is free.
    """
    data_dir = data_dir.resolve()
    if not is_running(data_dir):
        return False
    pid = read_pid(data_dir)
    if pid is None:
        if not is_running(data_dir):
            return True
        raise BrokerError(f"A broker uses {data_dir}, but {pid_file(data_dir)} does not name it.")
    _signal(pid, signal.SIGTERM)
    if not _wait_gone(data_dir, timeout_s):
        warnings.warn(
            f"broker {pid} did not stop within {timeout_s:.0f} s and was killed; "
            "it checks its files at the next start",
            stacklevel=2,
        )
        _signal(pid, signal.SIGKILL)
        if not _wait_gone(data_dir, 10):
            raise BrokerError(f"Broker {pid} does not end, even by SIGKILL.")
    pid_file(data_dir).unlink(missing_ok=True)
    return True


def _try(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait_gone(data_dir: Path, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while is_running(data_dir):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
