"""`horolog up` as a process, on a Kafka that is there already."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from horolog.broker.process import is_running

LINE_S = 60.0


class Up:
    """A running `horolog up`, followed line by line."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HOROLOG_")}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "horolog", "up", "--data", str(folder)],
            env=clean | {
                "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
                "HOROLOG_NAMESPACE": f"up-{uuid.uuid4().hex[:8]}", "HOROLOG_PARTITIONS": "2",
                "HOROLOG_SCHEDULERS": "1",
            },
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._lines: Queue[str] = Queue()
        self._follower = Thread(target=self._follow)
        self._follower.start()

    def _follow(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)

    def wait_for(self, text: str) -> None:
        while text not in self._lines.get(timeout=LINE_S):
            pass

    def services(self) -> dict[str, int]:
        """Process number of each child, by what it runs."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        found = {}
        for child in children.split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
            if "horolog.attended" in words:
                found[words[words.index("run") + 1]] = int(child)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._follower.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def up(broker: str, tmp_path: Path) -> "Up":
    return Up(broker, tmp_path)


SERVICES = ("scheduler", "slots", "worker", "gateway")


@pytest.mark.parametrize(
    ("service", "called", "again"),
    [
        ("scheduler", "the scheduler", "scheduler_started"),
        ("worker", "the HTTP worker", "of pool http has"),
        ("gateway", "the gateway", "gateway_started"),
    ],
)
def test_up_restarts_a_service_that_died_and_ends_everything_on_ctrl_c(
    up: Up, service: str, called: str, again: str
) -> None:
    try:
        up.wait_for("Ctrl-C ends everything")
        first = up.services()
        assert set(first) == set(SERVICES)
        os.kill(first[service], signal.SIGKILL)
        up.wait_for(f"{called} ended (killed by SIGKILL)")
        up.wait_for(again)
        second = up.services()
        assert [name for name in SERVICES if second[name] != first[name]] == [service]
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(60) == 0
        assert not [pid for pid in second.values() if Path(f"/proc/{pid}").exists()]
        # The Kafka was there before and is left alone; no other was started.
        assert not is_running(up.folder / "broker")
    finally:
        up.close()


def test_every_service_ends_when_up_dies_without_a_word(up: Up) -> None:
    try:
        up.wait_for("Ctrl-C ends everything")
        services = up.services()
        up.process.kill()
        up.process.wait()
        give_up_s = time.monotonic() + 60
        while alive := [name for name, pid in services.items() if Path(f"/proc/{pid}").exists()]:
            assert time.monotonic() < give_up_s, f"{alive} outlived `horolog up`"
            time.sleep(0.05)
    finally:
        up.close()


def test_up_says_once_that_http_jobs_may_call_anything_where_it_allows_that(up: Up) -> None:
    try:
        up.wait_for("HTTP jobs may call private addresses and plain http")
    finally:
        up.close()
