"""A scheduler as a child process that is started again when it dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Final

from horolog.settings import Settings
from processors.topology import JOB_STATE
from schemas.bindings import MARK
from schemas.codec import Undecodable
from schemas.limits import DRAIN_S
from streams.clock import SystemClock
from streams.errors import Refuse, Unavailable
from streams.layout import MARK_KEY, topic_name
from streams.ports import Clock, Log, TopicPartition

BACK_OFF_S_MIN: Final = 0.5
BACK_OFF_S_MAX: Final = 30.0
STABLE_S: Final = 10.0
"""A process that lived for so long is no failed start."""
FAILED_STARTS_MAX: Final = 5
READY_S: Final = 60.0
_HOPELESS: Final = (1, 2)
"""Exit codes of a refusal and of wrong settings."""


class SupervisedScheduler:
    """Starts `horolog run scheduler`, keeps it running, ends it. One thread uses it.

    The child ends with this process, however that ends. `lines` is where its log goes; None:
    where ours goes.
    """

    def __init__(
        self,
        settings: Settings,
        bootstrap: str,
        *,
        member: str,
        say: Callable[[str], None],
        lines: IO[bytes] | None = None,
    ) -> None:
        self.member = member
        self.restarts = 0
        self._settings = settings
        self._environment = child_environment(settings, bootstrap)
        self._say = say
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
        command = [sys.executable, "-m", "horolog", "run", "scheduler", "--member", self.member,
                   "--until-stdin-ends"]  # fmt: skip
        self._child = subprocess.Popen(  # noqa: S603 our own program
            command,
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
            self._say(f"the scheduler ended ({_manner(code)})")
            self._failed_starts = 0 if now_s - self._started_s > STABLE_S else self._failed_starts
            self._start_at_s = now_s + self._back_off_s()
            self._failed_starts += 1
        if self._failed_starts > FAILED_STARTS_MAX:
            raise Refuse(f"the scheduler ended {self._failed_starts} times right after its start")
        if now_s >= self._start_at_s:
            self.restarts += 1
            self._say("starting the scheduler again")
            self.start()

    def kill(self) -> None:
        """End it as a crash would: with -9, at once."""
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def stop(self) -> None:
        """Let it finish what is under way and end, within its time to drain."""
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(DRAIN_S + 2)
            except subprocess.TimeoutExpired:
                self._say("the scheduler does not end and is killed; nothing is lost by it")
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


class Owners:
    """Tells when a member that starts now, on this machine, has come to own every partition: it
    takes each over with a mark.

    Make it when no process of that name runs. What one that died had committed may come to light
    later; its marks are older.
    """

    def __init__(self, log: Log, settings: Settings, clock: Clock | None = None) -> None:
        self._since_ms = (clock or SystemClock()).wall_ms()
        name = topic_name(settings.namespace, JOB_STATE)
        partitions = [(name, p) for p in range(settings.partitions)]
        self._missing = set(partitions)
        self._reader = log.reader("horolog-owners", committed=True)
        self._reader.assign(log.offsets().stable_end(partitions))

    def wait(self, member: str, alive: Callable[[], None], timeout_s: float = READY_S) -> None:
        """Return once `member` owns them all. `alive` is called now and then and may raise.
        Raises `Unavailable` when it takes longer."""
        until_s = time.monotonic() + timeout_s
        try:
            while self._missing:
                for record in self._reader.read(1_000, 0.1):
                    if record.key == MARK_KEY and self._is_by(member, record.value):
                        self._missing.discard((record.topic, record.partition))
                alive()
                if time.monotonic() > until_s:
                    raise Unavailable(_unowned(member, self._missing, timeout_s))
        finally:
            self._reader.close()

    def _is_by(self, member: str, value: bytes | None) -> bool:
        try:
            mark = MARK.decode(value or b"")
        except Undecodable:
            return False
        return mark.owner == member and mark.wall_ms >= self._since_ms


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
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")])
        ),
    }
    if settings.config_file is not None:
        found["HOROLOG_CONFIG"] = str(settings.config_file.resolve())
    return found


def _unowned(member: str, missing: set[TopicPartition], timeout_s: float) -> str:
    numbers = ", ".join(str(partition) for _, partition in sorted(missing))
    return f"the scheduler {member} did not take over partition {numbers} in {timeout_s:.0f} s"


def _manner(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
