"""Whose turn it is in a child process: runs in order of arrival, at most so many at once."""

import threading
from collections import deque

from .handlers import Handler
from .wire import Run

Turn = tuple[Run, Handler]


class Turns:
    """Hands out runs to threads and to the event loop. Thread-safe.

    Whoever took a turn asks for the `next` one when it is done, and keeps its place if there is
    one.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._waiting: deque[Turn] = deque()
        self._busy = 0
        self.finished = 0
        """Turns that ended, to see whether there is progress."""

    def add(self, turns: list[Turn]) -> None:
        """Let them wait, behind those that do."""
        with self._lock:
            self._waiting.extend(turns)

    def take(self) -> Turn | None:
        """A turn, if there is a place for it."""
        with self._lock:
            if self._busy >= self._places or not self._waiting:
                return None
            self._busy += 1
            return self._waiting.popleft()

    def next(self) -> Turn | None:
        """The turn that follows one that has ended; None: its place is free."""
        with self._lock:
            self.finished += 1
            if self._waiting:
                return self._waiting.popleft()
            self._busy -= 1
            return None

    def withdraw(self, number: int) -> bool:
        """Take a waiting run out; False if it does not wait."""
        with self._lock:
            for index, (run, _) in enumerate(self._waiting):
                if run.number == number:
                    del self._waiting[index]
                    return True
            return False

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def startable(self) -> int:
        """How many of those that wait have a place."""
        return min(len(self._waiting), self._places - self._busy)
