"""What a worker offers: how much it can take now, and how much beside that in memory."""

from collections import deque
from typing import Final

from schemas import limits
from schemas.slots import WorkerOffer

WEIGHT: Final = 0.05
"""Share of the newest run in the mean run time."""
CHANGE_SHARE: Final = 0.25
REMEMBER_OFFERS_MS: Final = 2 * limits.OFFER_EVERY_MS


class Offering:
    """Decides when to offer and what. `places` run at once; `ahead` is what is finished in 20 ms
    by the run times seen lately: short runs need not wait for each other's way through the log.
    """

    def __init__(
        self, *, pool: str, worker: str, inbox_partition: int, handlers: tuple[str, ...],
        places: int, lease_ms: int = 0, every_ms: int = limits.OFFER_EVERY_MS,
    ) -> None:  # fmt: skip
        self._pool = pool
        self._worker = worker
        self._inbox_partition = inbox_partition
        self._handlers = handlers
        self._places = places
        self._lease_ms = lease_ms
        self._mean_ms: float | None = None
        self._n = 0
        self._offered: deque[tuple[int, int]] = deque()
        self._draining = False
        self._every_ms = every_ms
        self._offered_ms = -every_ms
        self._changed = True

    def ran(self, run_ms: float) -> None:
        """A run took so long."""
        mean_ms = self._mean_ms
        self._mean_ms = run_ms if mean_ms is None else mean_ms + (run_ms - mean_ms) * WEIGHT

    def drain(self) -> None:
        """Take nothing from now on."""
        self._draining = True
        self._changed = True

    @property
    def ahead(self) -> int:
        """What may wait in memory beside what runs."""
        mean_ms = self._mean_ms
        if mean_ms is None or mean_ms > limits.AHEAD_MS:
            return 0
        return min(limits.AHEAD_MAX, int(self._places * limits.AHEAD_MS / max(mean_ms, 0.001)))

    def room(self, now_ms: int) -> int:
        """How many leases may be here at once: what was offered lately may still come."""
        while self._offered and now_ms - self._offered[0][0] > REMEMBER_OFFERS_MS:
            self._offered.popleft()
        return self._places + max((ahead for _, ahead in self._offered), default=0)

    def due_ms(self) -> int:
        """When to offer next, as far as is known now."""
        if self._changed or self._differs():
            return self._offered_ms + limits.OFFER_CHANGED_MS_MIN
        return self._offered_ms + self._every_ms

    def offer(self, now_ms: int) -> WorkerOffer:
        """The next offer."""
        ahead = 0 if self._draining else self.ahead
        self._n += 1
        self._offered_ms = now_ms
        self._offered.append((now_ms, ahead))
        self._changed = False
        return WorkerOffer(
            pool=self._pool, worker=self._worker, inbox_partition=self._inbox_partition,
            handlers=self._handlers, places=0 if self._draining else self._places, ahead=ahead,
            draining=self._draining, n=self._n, lease_ms=self._lease_ms,
        )  # fmt: skip

    def _differs(self) -> bool:
        if not self._offered or self._draining:
            return False
        offered, ahead = self._offered[-1][1], self.ahead
        if (offered == 0) != (ahead == 0):
            return True
        return abs(ahead - offered) > CHANGE_SHARE * offered
