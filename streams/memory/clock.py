"""A clock that stands still until it is moved."""


class ManualClock:
    """Meets `streams.ports.Clock`."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._boottime_ms = 0
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        return self._wall_ms

    def boottime_ms(self) -> int:
        return self._boottime_ms

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1_000

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._wall_ms += ms
        self._boottime_ms += ms
        self._monotonic_ms += ms

    def suspend(self, ms: int) -> None:
        """Let time pass while the machine sleeps, which the monotonic clock does not count."""
        self._wall_ms += ms
        self._boottime_ms += ms

    def jump(self, ms: int) -> None:
        """Set the wall clock forward, or back, as an operator or a bad time server does."""
        self._wall_ms += ms
