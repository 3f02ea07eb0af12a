"""Whether our wall clock may be trusted: the reference is the broker's.

Each commit's delivery report carries the append time of the mark, which lies between the moments
before it was produced and after it was reported. How far outside that interval it lies is how far
the two clocks disagree at least.

    unknown ──agrees──▶ trusted        unknown ──disagrees──▶ held
    trusted ──disagrees | jumped──▶ held ──agrees for 30 s without a jump──▶ trusted

Nothing is decided unless the clock is trusted. A jump is a change of the wall clock against the
boot clock, which counts suspension: a machine that slept has not jumped, one whose time was set
has. After a jump agreement alone says little, since on one machine the broker's clock went along;
so it has to last, which gives whoever set the clock wrong the time to set it right.
"""

from collections.abc import Callable

from schemas.limits import CLOCK_ALONE_AGREEMENT_MS, CLOCK_SKEW_MS_MAX

from .ports import Clock

Alarm = Callable[..., None]


def _silent(event: str, **values: object) -> None:
    del event, values


class ClockGuard:
    """Holds decisions while |wall - broker| is more than 2 s, or unknown, and a while after."""

    def __init__(self, clock: Clock, alarm: Alarm = _silent) -> None:
        self._clock = clock
        self._alarm = alarm
        self._skew_ms: int | None = None
        self._wall_minus_boot_ms = 0
        self._trusted = False
        self._held_since_ms: int | None = None  # all of these on the boot clock
        self._agreeing_since_ms: int | None = None
        self._disagreeing_since_ms: int | None = None

    def sample(self, before_ms: int, broker_ms: int, after_ms: int) -> None:
        """Take in one mark: wall clock before producing and after the report, append time."""
        jump_ms = self._jump_ms()
        if broker_ms < before_ms:
            self._skew_ms = before_ms - broker_ms
        else:
            self._skew_ms = max(0, broker_ms - after_ms)
        now_ms = self._clock.boottime_ms()
        self._wall_minus_boot_ms = self._clock.wall_ms() - now_ms
        if abs(jump_ms) > CLOCK_SKEW_MS_MAX:
            self._hold(jump_ms=jump_ms)
        if self._skew_ms > CLOCK_SKEW_MS_MAX:
            self._hold(skew_ms=self._skew_ms)
            if self._disagreeing_since_ms is None:
                self._disagreeing_since_ms = now_ms
            return
        self._disagreeing_since_ms = None
        if self._agreeing_since_ms is None:
            self._agreeing_since_ms = now_ms
        if self._held_since_ms is None:
            self._trusted = True
        elif now_ms - self._agreeing_since_ms >= CLOCK_ALONE_AGREEMENT_MS:
            self._alarm("clock_trusted_again", held_ms=now_ms - self._held_since_ms)
            self._held_since_ms = None
            self._trusted = True

    def agrees(self) -> bool:
        """Whether ticks may be decided now."""
        if self._trusted and abs(jump_ms := self._jump_ms()) > CLOCK_SKEW_MS_MAX:
            self._hold(jump_ms=jump_ms)
        return self._trusted

    @property
    def skew_ms(self) -> int | None:
        """Distance of the clocks at the last mark; None before the first."""
        return self._skew_ms

    def disagreed_ms(self) -> int:
        """For how long every mark has disagreed; 0 if the last one agreed, or there was none."""
        since_ms = self._disagreeing_since_ms
        return self._clock.boottime_ms() - since_ms if since_ms is not None else 0

    def _jump_ms(self) -> int:
        """How far the wall clock was set since the last mark."""
        if self._skew_ms is None:
            return 0
        return self._clock.wall_ms() - self._clock.boottime_ms() - self._wall_minus_boot_ms

    def _hold(self, **why: int) -> None:
        self._trusted = False
        self._agreeing_since_ms = None
        if self._held_since_ms is None:
            self._held_since_ms = self._clock.boottime_ms()
            self._alarm("clock_held", **why)
