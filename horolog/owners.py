"""Who has come to own the partitions, by the marks in the log."""

import time
from collections.abc import Callable, Collection
from typing import Final

from horolog.settings import Settings
from schemas.bindings import MARK
from schemas.codec import Undecodable
from streams.clock import SystemClock
from streams.errors import Unavailable
from streams.layout import MARK_KEY, topic_name
from streams.patience import until_answered
from streams.ports import Clock, Log, TopicPartition

READY_S: Final = 60.0


class Owners:
    """Tells when members that start now, on this machine, have come to own every partition of a
    processor: they take each over with a mark on `changelog`.

    Make it when no process of those names runs. What one that died had committed may come to light
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
        self._reader.assign(until_answered(lambda: log.offsets().stable_end(partitions)))

    def wait(
        self, members: Collection[str], alive: Callable[[], None], timeout_s: float = READY_S
    ) -> None:
        """Return once each partition is owned by one of `members`, and each of them, as far as
        there are partitions enough, owns some. `alive` is called now and then and may raise.
        Raises `Unavailable` when it takes longer."""
        until_s = time.monotonic() + timeout_s
        silent = set(members)
        partitions = len(self._missing)
        try:
            while self._missing or len(silent) > max(0, len(members) - partitions):
                for record in self._reader.read(1_000, 0.1):
                    owner = self._owner(record.value) if record.key == MARK_KEY else ""
                    if owner in members:
                        silent.discard(owner)
                        self._missing.discard((record.topic, record.partition))
                alive()
                if time.monotonic() > until_s:
                    raise Unavailable(_unowned(silent or members, self._missing, timeout_s))
        finally:
            self._reader.close()

    def _owner(self, value: bytes | None) -> str:
        try:
            mark = MARK.decode(value or b"")
        except Undecodable:
            return ""
        return mark.owner if mark.wall_ms >= self._since_ms else ""


def _unowned(members: Collection[str], missing: set[TopicPartition], timeout_s: float) -> str:
    who = ", ".join(sorted(members))
    what = ", ".join(str(partition) for _, partition in sorted(missing))
    return f"{who} did not take over {f'partition {what}' if what else 'any'} in {timeout_s:.0f} s"
