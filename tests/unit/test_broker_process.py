import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.broker.process import (
    is_running,
    lock_file,
    pid_file,
    read_pid,
    stop,
    take_lock,
)


@contextlib.contextmanager
def program(data_dir: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the folder's lock, as the broker's JVM does."""
    lock = take_lock(lock_file(data_dir), timeout_s=1)
    process = subprocess.Popen(command, pass_fds=(lock,))
    os.close(lock)
    pid_file(data_dir).write_text(str(process.pid))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_folder_without_a_broker_is_not_running(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    assert read_pid(tmp_path) is None
    assert stop(tmp_path) is False


def test_a_broker_is_running_for_as_long_as_its_process_lives(tmp_path: Path) -> None:
    with program(tmp_path, "sleep", "60") as process:
        assert is_running(tmp_path)
        assert read_pid(tmp_path) == process.pid
        process.kill()
        process.wait()
        assert not is_running(tmp_path)
        assert read_pid(tmp_path) is None


def test_asking_does_not_look_like_a_broker(tmp_path: Path) -> None:
    os.close(take_lock(lock_file(tmp_path), timeout_s=1))
    script = (
        "import sys, pathlib, horolog.broker.process as p\n"
        "print(sum(p.is_running(pathlib.Path(sys.argv[1])) for _ in range(3000)))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    askers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    assert [asker.communicate()[0].strip() for asker in askers] == [b"0", b"0"]


def test_stop_spares_a_stranger_that_got_the_number_of_a_dead_broker(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        os.close(take_lock(lock_file(tmp_path), timeout_s=1))
        pid_file(tmp_path).write_text(str(stranger.pid))
        assert stop(tmp_path) is False
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_stop_returns_when_the_process_has_ended(tmp_path: Path) -> None:
    with program(tmp_path, "sleep", "60"):
        assert stop(tmp_path) is True
        assert not is_running(tmp_path)


def test_a_process_that_ignores_sigterm_is_killed_with_a_warning(tmp_path: Path) -> None:
    stubborn = ("sh", "-c", f"trap '' TERM; touch {tmp_path}/deaf; exec sleep 60")
    with program(tmp_path, *stubborn):
        while not (tmp_path / "deaf").exists():
            time.sleep(0.01)
        with pytest.warns(UserWarning, match="was killed"):
            assert stop(tmp_path, timeout_s=0.1) is True


def run_guard(data_dir: Path, pid: int) -> tuple[subprocess.Popen[bytes], int]:
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "horolog.broker.guard", str(data_dir), str(pid), str(read_end)]
    guard = subprocess.Popen(command, pass_fds=(read_end,))
    os.close(read_end)
    return guard, write_end


def test_the_guard_stops_the_broker_when_its_starter_has_died(tmp_path: Path) -> None:
    with program(tmp_path, "sleep", "60") as process:
        guard, starter = run_guard(tmp_path, process.pid)
        assert is_running(tmp_path)
        os.close(starter)
        assert guard.wait(timeout=20) == 0
        assert not is_running(tmp_path)


def test_the_guard_spares_a_later_broker_in_the_same_folder(tmp_path: Path) -> None:
    with program(tmp_path, "sleep", "60") as process:
        guard, starter = run_guard(tmp_path, process.pid + 1)
        assert guard.wait(timeout=20) == 0
        os.close(starter)
        assert is_running(tmp_path)
