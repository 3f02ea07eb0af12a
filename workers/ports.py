"""What a worker needs from the world besides the ports of `streams`.

Times are local milliseconds since the machine started, unless named otherwise.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from .lease import Ended, Lease

Why = Literal["cancel", "drain", "lease", "revoke", "recall"]
"""Why a run is to stop. `revoke` and `recall` only take back what has not begun."""

Alarm = Callable[..., None]
"""Tell the operator: a name, and values by keyword."""


class Moment(msgspec.Struct, frozen=True, gc=False):
    """Now, on the two clocks a worker goes by: the wall's, and the one nobody sets."""

    wall_ms: int
    local_ms: int


class Executor(Protocol):
    """Runs what leases ask for. One thread calls it; `Runs` hears from it on the same thread."""

    def start(self, lease: Lease, *, before_ms: int) -> None:
        """Run it, or drop it if it has not begun by `before_ms`."""

    def stop(self, lease: Lease, why: Why) -> None:
        """Take it back if it has not begun (it is dropped then), else tell the run."""

    def began_at(self, lease: Lease) -> int:
        """Wall time at which the run began; 0 while it waits for its turn."""

    def abandon(self, lease: Lease) -> None:
        """Nobody waits for this run any more; whatever it occupies may be replaced."""

    def flush(self) -> None:
        """Hand over what was started and stopped since the last call."""


class Runs(Protocol):
    """Hears what becomes of runs, by lease number."""

    def ended(self, number: int, ended: Ended, now: Moment) -> None:
        """The run ended."""

    def dropped(self, number: int, now: Moment) -> None:
        """It was taken back, or too late to begin: it never began."""

    def kept(self, number: int, now: Moment) -> None:
        """It was to be taken back, but had begun."""

    def progressed(self, number: int, progress: str, now: Moment) -> None:
        """The run said how far it is."""


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """What became of a record: `heard_ms` local, `broker_ms` its append time (-1: none).

    `failed` says why it is not in the log; it may be sent again.
    """

    number: int
    heard_ms: int
    broker_ms: int = -1
    failed: str = ""


class ReportLog(Protocol):
    """An idempotent producer that says what became of each record. `on_acknowledged`, given when
    it is made, is called from any thread, once for every record that was sent."""

    def send(self, topic: str, partition: int, key: bytes, value: bytes, number: int) -> bool:
        """Queue a record; False when the queue is full: try later."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing is queued; False when time ran out."""

    def close(self) -> None: ...
