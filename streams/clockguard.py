"""Whether our wall clock may be trusted: the reference is the broker's.

Each commit's delivery report carries the append time of the mark, which lies between the moments
before it was produced and after it was reported. How far outside that interval it lies is how far
the two clocks disagree at least. Nothing is decided until one sample agreed, and nothing while the
last one did not, or while the wall clock jumped against the boot clock since (a step, a
suspension): then the next mark has to agree first.
"""

from schemas.limits import CLOCK_SKEW_MS_MAX

from .ports import Clock


class ClockGuard:
    """Holds decisions while |wall - broker| is more than 2 s, or unknown."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._skew_ms: int | None = None
        self._wall_minus_boot_ms = 0

    def sample(self, before_ms: int, broker_ms: int, after_ms: int) -> None:
        """Take in one mark: wall clock before producing and after the report, append time."""
        if broker_ms < before_ms:
            self._skew_ms = before_ms - broker_ms
        else:
            self._skew_ms = max(0, broker_ms - after_ms)
        self._wall_minus_boot_ms = self._clock.wall_ms() - self._clock.boottime_ms()

    def agrees(self) -> bool:
        """Whether ticks may be decided now."""
        if self._skew_ms is None or self._skew_ms > CLOCK_SKEW_MS_MAX:
            return False
        jump = self._clock.wall_ms() - self._clock.boottime_ms() - self._wall_minus_boot_ms
        return abs(jump) <= CLOCK_SKEW_MS_MAX

    @property
    def skew_ms(self) -> int | None:
        """Distance of the clocks at the last mark; None before the first."""
        return self._skew_ms
