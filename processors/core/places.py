"""The places of one pool that a scheduler partition may use, and those it uses.

The partition's side of the talk with the slots processor. A grant says how many leases may be open
per worker and replaces every earlier one; what the partition holds and wants is said back in
absolute, numbered messages, so that a lost message is made good by the next.

    restore   after a take-over: count the open leases; nothing is free until a grant answers
    granted   a grant was read
    take      a place for one execution, if one is free; release when its lease is closed
    wanted    what to tell the slots processor now, if anything
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from schemas.slots import Places, SlotsGranted, SlotsWanted

SAY_MS: Final = 20
"""Between two messages while places are missing or were taken back."""
SAY_CALMLY_MS: Final = 500
"""Between two messages while there are places enough: nobody waits for the news."""
ASK_AGAIN_MS: Final = 1_000
"""Until a question that no grant has answered since the take-over is asked again; twice as long
each time, up to the next."""
MISS_AGAIN_MS: Final = 5_000
"""Until a partition that misses places says so again."""
REPEAT_MS: Final = 10_000
"""Until a partition that has nothing new to say shows that it is there."""
REFUSED_MS_MIN: Final = 100
REFUSED_MS_MAX: Final = 5_000
LOOKED_AT_MAX: Final = 8
"""Workers with a free place that one `take` compares."""


POOL_LIMIT: Final = "pool:"
"""How the limit keys of pools begin."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where an execution goes: a worker and the partition of `inbox.<pool>` that it reads."""

    worker: str
    inbox_partition: int


class _Refused(msgspec.Struct, frozen=True, gc=False):
    until_ms: int
    wait_ms: int


class _Said(msgspec.Struct, frozen=True):
    at_ms: int
    held: dict[str, int]
    wanted: dict[str, int]
    answers: int
    missing: bool


def pool_limit(pool: str) -> str:
    """The limit key of a pool's places."""
    return POOL_LIMIT + pool


class PoolPlaces:
    """What one partition was granted of one pool and what it holds of it.

    Holds at most one entry per worker. `take` and `release` change what is held at once, so a step
    that is dropped must be followed by `restore`.
    """

    def __init__(self, pool: str, partition: int, lease_ms: int = 0) -> None:
        self.limit = pool_limit(pool)
        self.partition = partition
        self._lease_ms = lease_ms
        self._epoch = -1
        self._held: dict[str, int] = {}
        self._forget_grants()

    def _forget_grants(self) -> None:
        self._n = 0
        self._grant = 0
        self._granted: dict[str, Places] = {}
        self._serving: dict[str, list[str]] = {}
        self._refused: dict[str, _Refused] = {}
        self._turn = 0
        self._said: _Said | None = None
        self._asked_again = False
        self._next_ms: int | None = 0

    # --- what the log says -----------------------------------------------------------------------

    def restore(self, epoch: int, held: Mapping[str, int]) -> None:
        """Begin with the open leases per worker that the state holds. In a new epoch nothing is
        free until a grant answers; in the same one grants and numbers go on. Either way the next
        `wanted` gives a message."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._forget_grants()
        self._held = {worker: count for worker, count in held.items() if count}
        self._said = None
        self._next_ms = 0

    def granted(self, message: SlotsGranted) -> bool:
        """Follow a grant; whether a place may be free now that was not before. Grants of another
        epoch and older ones change nothing; the newest one again is answered again."""
        if message.epoch != self._epoch or message.n < self._grant:
            return False
        if message.n == self._grant:
            self._asked_again = True
            return False
        before = self._granted
        self._grant, self._granted = message.n, message.workers
        self._serving = {}
        for worker in sorted(message.workers):
            for handler in message.workers[worker].handlers:
                self._serving.setdefault(handler, []).append(worker)
        return any(
            worker not in before
            or places.count > before[worker].count
            or places.handlers != before[worker].handlers
            for worker, places in message.workers.items()
        )

    # --- using places ----------------------------------------------------------------------------

    @property
    def answered(self) -> bool:
        """Whether a grant of this epoch has come."""
        return self._grant > 0

    @property
    def held(self) -> Mapping[str, int]:
        """Worker → leases counted as open."""
        return self._held

    def take(self, handler: str, now_ms: int) -> Place | None:
        """A free place at a worker that has the handler, at the one with most free places, in turn
        when they are equal; None when there is none."""
        workers = self._serving.get(handler)
        if workers is None:
            return None
        best, best_free, looked_at = "", 0, 0
        count, start = len(workers), self._turn
        for step in range(count):
            worker = workers[(start + step) % count]
            free = self._free(worker, now_ms)
            if free <= 0:
                continue
            if free > best_free:
                best, best_free = worker, free
            looked_at += 1
            if looked_at == LOOKED_AT_MAX:
                break
        if not best_free:
            return None
        self._turn = start + 1
        self._held[best] = self._held.get(best, 0) + 1
        return Place(best, self._granted[best].inbox_partition)

    def release(self, worker: str) -> None:
        """A lease of this worker is closed."""
        left = self._held[worker] - 1
        if left:
            self._held[worker] = left
        else:
            del self._held[worker]

    def refuse(self, worker: str, now_ms: int) -> None:
        """The worker had no room after all: leave it alone for 0.1 s, then for twice as long each
        time, up to 5 s. The refused lease is released apart from this."""
        last = self._refused.get(worker)
        if last is not None and now_ms < last.until_ms:
            return  # one of several that were under way together
        wait_ms = REFUSED_MS_MIN
        if last is not None and now_ms < last.until_ms + REFUSED_MS_MAX:
            wait_ms = min(last.wait_ms * 2, REFUSED_MS_MAX)
        if last is None and len(self._refused) > 2 * len(self._granted):
            self._refused = {w: r for w, r in self._refused.items() if w in self._granted}
        self._refused[worker] = _Refused(now_ms + wait_ms, wait_ms)

    def free(self, handler: str, now_ms: int) -> int:
        """Places that are free for a handler."""
        return sum(max(0, self._free(worker, now_ms)) for worker in self._serving.get(handler, ()))

    def _free(self, worker: str, now_ms: int) -> int:
        if self._refused:
            refused = self._refused.get(worker)
            if refused is not None and now_ms < refused.until_ms:
                return 0
        return self._granted[worker].count - self._held.get(worker, 0)

    def retry_ms(self, now_ms: int) -> int | None:
        """When a worker that refused may be asked again; None: none is being left alone."""
        ahead = [
            r.until_ms
            for worker, r in self._refused.items()
            if r.until_ms > now_ms and worker in self._granted
        ]
        return min(ahead, default=None)

    # --- saying what is wanted -------------------------------------------------------------------

    def wanted(
        self,
        now_ms: int,
        queued: Mapping[str, int],
        soon: Mapping[str, int],
        oldest_ms: int,
    ) -> SlotsWanted | None:
        """What to send now, after the step's commit; None: nothing yet.

        `queued` and `soon` count, by handler, executions without a place: those that wait, and
        those that will before a place could be asked for. `oldest_ms` is the due time of the
        oldest that waits, 0 for none. Call it at the end of each step and at `deadline_ms`.
        """
        said, wanted = self._said, _sum(queued, soon)
        if said is None or now_ms < said.at_ms:
            return self._say(now_ms, wanted, oldest_ms)
        if not self._changed(said, wanted):
            self._next_ms = said.at_ms + self._repeat_ms(said)
        else:
            hurry = said.missing or self._grant != said.answers or self._misses(wanted, now_ms)
            self._next_ms = said.at_ms + (SAY_MS if hurry else SAY_CALMLY_MS)
        return self._say(now_ms, wanted, oldest_ms) if now_ms >= self._next_ms else None

    def deadline_ms(self) -> int | None:
        """When `wanted` should be asked at the latest; None: before the first `restore`."""
        return self._next_ms if self._epoch >= 0 else None

    def _changed(self, said: _Said, wanted: dict[str, int]) -> bool:
        return (
            self._asked_again
            or self._grant != said.answers
            or wanted != said.wanted
            or self._held != said.held
        )

    def _repeat_ms(self, said: _Said) -> int:
        if not self.answered:
            return min(ASK_AGAIN_MS << min(self._n - 1, 8), MISS_AGAIN_MS)
        return MISS_AGAIN_MS if said.missing else REPEAT_MS

    def _misses(self, wanted: dict[str, int], now_ms: int) -> bool:
        """Whether more is wanted than is free, or more is held than may be."""
        granted = self._granted
        if any(n > (granted[w].count if w in granted else 0) for w, n in self._held.items()):
            return True
        return any(count > self.free(handler, now_ms) for handler, count in wanted.items())

    def _say(self, now_ms: int, wanted: dict[str, int], oldest_ms: int) -> SlotsWanted:
        self._n += 1
        held = dict(self._held)
        self._said = _Said(now_ms, held, wanted, self._grant, self._misses(wanted, now_ms))
        self._asked_again = False
        self._next_ms = now_ms + self._repeat_ms(self._said)
        return SlotsWanted(
            limit=self.limit, partition=self.partition, epoch=self._epoch, n=self._n, held=held,
            wanted=wanted, oldest_ms=oldest_ms, answers=self._grant, lease_ms=self._lease_ms,
        )  # fmt: skip


def _sum(queued: Mapping[str, int], soon: Mapping[str, int]) -> dict[str, int]:
    total = {handler: count for handler, count in queued.items() if count}
    for handler, count in soon.items():
        if count:
            total[handler] = total.get(handler, 0) + count
    return total
