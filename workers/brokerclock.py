"""What time it is at the broker, from the append times of records that were acknowledged.

Local times are milliseconds since the machine started, suspension included: nobody sets that
clock. One acknowledgement says that at some local instant between its sending and its arrival the
broker's clock showed its append time, so the distance of the clocks lies in an interval; several
narrow it.
"""

from math import ceil
from typing import Final

DRIFT_PER_MS: Final = 0.0002
"""How fast two clocks are taken to drift apart: more than machine clocks do."""


class BrokerClock:
    """An interval in which the distance (broker minus local) lies; none before the first sample."""

    def __init__(self) -> None:
        self._low_ms = 0.0
        self._high_ms = 0.0
        self._at_ms: int | None = None

    @property
    def known(self) -> bool:
        """Whether there was an acknowledgement with an append time."""
        return self._at_ms is not None

    def sample(self, sent_ms: int, heard_ms: int, broker_ms: int) -> int:
        """Take an acknowledgement in. Returns by how much the broker's clock has jumped: 0 as long
        as the samples agree with each other."""
        # The broker's milliseconds and ours are both cut off, which adds one either way.
        low_ms, high_ms = broker_ms - heard_ms - 1.0, broker_ms - sent_ms + 1.0
        jumped_ms = 0.0
        if self._at_ms is not None:
            drift_ms = max(0, heard_ms - self._at_ms) * DRIFT_PER_MS
            known_low_ms, known_high_ms = self._low_ms - drift_ms, self._high_ms + drift_ms
            if low_ms <= known_high_ms and known_low_ms <= high_ms:
                low_ms, high_ms = max(low_ms, known_low_ms), min(high_ms, known_high_ms)
            elif low_ms > known_high_ms:
                jumped_ms = low_ms - known_high_ms
            else:
                jumped_ms = high_ms - known_low_ms
        self._low_ms, self._high_ms, self._at_ms = low_ms, high_ms, heard_ms
        return round(jumped_ms)

    def ahead_ms(self, now_ms: int) -> int | None:
        """By how much the broker's clock is ahead of the local one at the most: local time plus
        this is what it may show already. None while the clock is not known."""
        if self._at_ms is None:
            return None
        return ceil(self._high_ms + max(0, now_ms - self._at_ms) * DRIFT_PER_MS)
