"""The machine's clocks."""

import time


class SystemClock:
    """Meets `streams.ports.Clock` with the clocks of the machine it runs on."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boottime_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
