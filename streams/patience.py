"""Asking again what Kafka does not answer at once.

A question is given up after about a second, so that a loop which must come back does. Where nothing
can go on without the answer it is asked again: partitions that were just made, on a machine where
much starts at once, are known to their leaders only after some seconds.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from .errors import Unavailable

START_S: Final = 30.0
"""How long the start of a process waits for an answer."""
PAUSE_S: Final = 0.1

Answer = TypeVar("Answer")


def until_answered(question: Callable[[], Answer], within_s: float = START_S) -> Answer:
    """The answer. Raises the last `Unavailable` when none came in this time; asks at least once."""
    until_s = time.monotonic() + within_s
    while True:
        try:
            return question()
        except Unavailable:
            if time.monotonic() >= until_s:
                raise
            time.sleep(PAUSE_S)
