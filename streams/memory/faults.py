"""Faults that a test or the simulator orders in advance."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec

Operation = Literal[
    "init", "write", "commit", "abort", "send", "flush", "read", "offsets", "topics", "poll"
]


class Fault(msgspec.Struct, frozen=True):
    operation: Operation
    client: str | None
    error: Exception
    done: bool


class Faults:
    """Each fault strikes once, the first call that it fits."""

    def __init__(self) -> None:
        self._ordered: list[Fault] = []

    def order(self, fault: Fault) -> None:
        self._ordered.append(fault)

    @contextmanager
    def during(self, operation: Operation, client: str) -> Iterator[None]:
        """Fail instead of what is inside, or after it."""
        fault = self._take(operation, client)
        if fault is not None and not fault.done:
            raise fault.error
        yield
        if fault is not None:
            raise fault.error

    def _take(self, operation: Operation, client: str) -> Fault | None:
        for fault in self._ordered:
            if fault.operation == operation and fault.client in (None, client):
                self._ordered.remove(fault)
                return fault
        return None
