"""Services as child processes that are started again when they die."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from horolog.settings import Settings
from schemas.limits import CANCEL_GRACE_MS, DRAIN_S
from streams.errors import Refuse

BACK_OFF_S_MIN: Final = 0.5
BACK_OFF_S_MAX: Final = 30.0
STABLE_S: Final = 10.0
"""A process that lived for so long is no failed start."""
FAILED_STARTS_MAX: Final = 5
WORKER_DRAIN_S: Final = 10.0
"""How long runs may take to finish when everything ends."""
END_MARGIN_S: Final = 5.0
_HOPELESS: Final = (1, 2)
"""Exit codes of a refusal and of wrong settings."""


class Supervised:
    """Starts `horolog` with these arguments, keeps it running, ends it. One thread uses it.

    `name` is what messages call it. The child ends with this process, however that ends. It has
    `end_s` to end by itself. `lines` is where its log goes; None: where ours goes.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        end_s: float,
        lines: IO[bytes] | None = None,
    ) -> None:
        self.name = name
        self.restarts = 0
        self._command = [sys.executable, "-m", "horolog.attended", *arguments]
        self._environment = environment
        self._say = say
        self._end_s = end_s
        self._lines = lines
        self._child: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._failed_starts = 0
        self._start_at_s = 0.0

    @property
    def pid(self) -> int | None:
        """The process that runs now; None between two."""
        return self._child.pid if self._child is not None else None

    def gave_up(self) -> bool:
        """Whether it ended for a reason that starting it again does not change."""
        return self._child is not None and self._child.poll() in _HOPELESS

    def start(self) -> None:
        """Start the process; it is not ready yet."""
        self._child = subprocess.Popen(  # noqa: S603 our own program
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._lines,
            env=self._environment,
            # Ctrl-C on our terminal is for us; we end the child in our order.
            start_new_session=True,
        )
        self._started_s = time.monotonic()

    def look(self) -> None:
        """Start it again if it died, after a while if it dies at once. Raises `Refuse` when it
        does not stay alive."""
        now_s = time.monotonic()
        child = self._child
        if child is not None:
            code = child.poll()
            if code is None:
                return
            self._forget(child)
            self._say(f"{self.name} ended ({_manner(code)})")
            self._failed_starts = 0 if now_s - self._started_s > STABLE_S else self._failed_starts
            self._start_at_s = now_s + self._back_off_s()
            self._failed_starts += 1
        if self._failed_starts > FAILED_STARTS_MAX:
            raise Refuse(f"{self.name} ended {self._failed_starts} times right after its start")
        if now_s >= self._start_at_s:
            self.restarts += 1
            self._say(f"starting {self.name} again")
            self.start()

    def kill(self) -> None:
        """End it as a crash would: with -9, at once."""
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def stop(self) -> None:
        """Let it finish what is under way and end, within its time."""
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(self._end_s)
            except subprocess.TimeoutExpired:
                self._say(f"{self.name} does not end and is killed; nothing is lost by it")
                child.kill()
                child.wait()
        self._forget(child)

    def _forget(self, child: "subprocess.Popen[bytes]") -> None:
        if child.stdin is not None:
            child.stdin.close()
        self._child = None

    def _back_off_s(self) -> float:
        """Nothing for the first death: whoever was killed is wanted back at once."""
        if self._failed_starts == 0:
            return 0.0
        return float(min(BACK_OFF_S_MIN * 2 ** (self._failed_starts - 1), BACK_OFF_S_MAX))


def processor(
    name: str, kind: str, settings: Settings, bootstrap: str, *, member: str,
    say: Callable[[str], None], lines: IO[bytes] | None = None,
) -> Supervised:  # fmt: skip
    """`horolog run KIND` under this member's name: a scheduler, or a slots processor."""
    return Supervised(
        name, ("run", kind, "--member", member), environment=child_environment(settings, bootstrap),
        say=say, end_s=DRAIN_S + END_MARGIN_S, lines=lines,
    )  # fmt: skip


def worker(
    name: str, arguments: Sequence[str], settings: Settings, bootstrap: str, *,
    say: Callable[[str], None], lines: IO[bytes] | None = None,
) -> Supervised:  # fmt: skip
    """A worker: `arguments` are those of `horolog`, but for how it drains."""
    return Supervised(
        name, (*arguments, "--drain-timeout", f"{WORKER_DRAIN_S:g}"),
        environment=child_environment(settings, bootstrap), say=say,
        end_s=WORKER_DRAIN_S + CANCEL_GRACE_MS / 1_000 + END_MARGIN_S, lines=lines,
    )  # fmt: skip


def gateway(
    name: str, settings: Settings, bootstrap: str, *, say: Callable[[str], None],
    lines: IO[bytes] | None = None,
) -> Supervised:  # fmt: skip
    """`horolog run gateway`, where the settings say."""
    return Supervised(
        name, ("run", "gateway"), environment=child_environment(settings, bootstrap), say=say,
        end_s=DRAIN_S + END_MARGIN_S, lines=lines,
    )  # fmt: skip


def child_environment(settings: Settings, bootstrap: str) -> Mapping[str, str]:
    """The environment in which a child process comes to the same settings. What is secret stays
    where it is: the child reads it from there."""
    found = dict(os.environ)
    found |= {
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "HOROLOG_NAMESPACE": settings.namespace,
        "HOROLOG_PARTITIONS": str(settings.partitions),
        "HOROLOG_DATA_DIR": str(settings.data_dir.resolve()),
        "HOROLOG_TENANT": settings.tenant,
        "HOROLOG_LEASE_MS": str(settings.lease_ms),
        "HOROLOG_HTTP__ALLOWED_CIDRS": json.dumps(settings.http.allowed_cidrs),
        "HOROLOG_HTTP__ALLOW_PLAIN_HTTP": str(settings.http.allow_plain_http).lower(),
        "HOROLOG_GATEWAY__HOST": settings.gateway.host,
        "HOROLOG_GATEWAY__PORT": str(settings.gateway.port),
        "HOROLOG_GATEWAY__INSECURE_WITHOUT_AUTH": str(
            settings.gateway.insecure_without_auth
        ).lower(),
        "HOROLOG_GATEWAY__NAMES": json.dumps(settings.gateway.names),
        "HOROLOG_MONITOR__HOST": settings.monitor.host,
        "HOROLOG_MONITOR__PORT": str(settings.monitor.port),
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")])
        ),
    }
    if settings.config_file is not None:
        found["HOROLOG_CONFIG"] = str(settings.config_file.resolve())
    return found


def _manner(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
