"""Who has come to own the partitions, by the marks in the log."""

import time
from collections.abc import Callable
from typing import Final

from horolog.settings import Settings
from schemas.bindings import MARK
from schemas.codec import Undecodable
from streams.clock import SystemClock
from streams.errors import Unavailable
from streams.layout import MARK_KEY, topic_name
from streams.ports import Clock, Log, TopicPartition

READY_S: Final = 60.0


class Owners:
    """Tells when a member that starts now, on this machine, has come to own every partition of a
    processor: it takes each over with a mark on `changelog`.

    Make it when no process of that name runs. What one that died had committed may come to light
    later; its marks are older.
    """

    def __init__(
        self, log: Log, settings: Settings, changelog: str, clock: Clock | None = None
    ) -> None:
        self._since_ms = (clock or SystemClock()).wall_ms()
        name = topic_name(settings.namespace, changelog)
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


def _unowned(member: str, missing: set[TopicPartition], timeout_s: float) -> str:
    numbers = ", ".join(str(partition) for _, partition in sorted(missing))
    return f"{member} did not take over partition {numbers} in {timeout_s:.0f} s"
