"""One of Horolog's services as a process of its own, with its log."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 30.0
"""A time-out is a failure, not a measurement."""


class ServiceProcess:
    """`horolog …` in the foreground. `patch` names a function of `patches` that breaks something
    in it first, `crash` a crash point at which it kills itself."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        environment: Mapping[str, str],
        *,
        crash: str = "",
        patch: str = "",
    ) -> None:
        self.member = name
        self.log_file = log_file
        module = "tests.broker.scenarios.patched" if patch else "horolog"
        environment = {"PYTHONPATH": str(ROOT), **environment}
        if crash:
            environment["HOROLOG_CRASH"] = crash
        if patch:
            environment["SCENARIO_PATCH"] = patch
        with log_file.open("wb") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *command], env=os.environ | environment, cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=lines, stderr=lines,
            )  # fmt: skip

    def kill(self) -> None:
        """As a crash would end it."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """SIGTERM, and its exit code."""
        self.process.terminate()
        return self.process.wait(20)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def await_end(self, timeout_s: float = WAIT_S) -> int:
        return self.process.wait(timeout_s)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def log_lines(self) -> list[dict[str, Any]]:
        """What it logged, as far as that is JSON."""
        lines = self.log_file.read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def events(self) -> list[str]:
        return [line["event"] for line in self.log_lines()]
