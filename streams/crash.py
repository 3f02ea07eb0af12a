"""Named crash points in the production code: no-ops unless armed.

`HOROLOG_CRASH=CP07` (or `CP07:3` for the third pass) makes the process kill itself with -9 at
that place. Tests arm them; nothing else does.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Final

CRASH_POINTS: Final[Mapping[str, str]] = {
    "CP01": "after reading inputs, before the transaction begins",
    "CP02": "after the transaction began",
    "CP03": "after the first record was handed over",
    "CP04": "after every record was handed over and flushed",
    "CP05": "after the mark was handed over",
    "CP06": "while the commit is under way",
    "CP07": "commit acknowledged, before the store is written",
    "CP08": "store written, before memory follows",
    "CP09": "store written, before the outbox is sent",
    "CP10": "HTTP request sent, response not read",
    "CP11": "HTTP response read, outcome not produced",
    "CP12": "while aborting",
    "CP13": "in init_transactions",
    "CP14": "half-way through a restore",
    "CP15": "when a partition is revoked",
    "CP16": "when a partition is assigned",
    "CP17": "when the store is closed",
    "CP18": "lease committed, worker not told",
    "CP19": "expiry decided, before the commit",
    "CP20": "gateway: command accepted, the client not told",
}

CrashPoint = Callable[[str], None]


def unarmed(point: str) -> None:
    """Does nothing: what production runs."""


def from_environment(environment: Mapping[str, str]) -> CrashPoint:
    """The crash points that the environment arms."""
    text = environment.get("HOROLOG_CRASH", "")
    if not text:
        return unarmed
    name, _, count = text.partition(":")
    if name not in CRASH_POINTS:
        raise ValueError(f"HOROLOG_CRASH={text}: known points are {', '.join(CRASH_POINTS)}")
    left = int(count or 1)

    def at(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return at
