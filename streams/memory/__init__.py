"""The ports in memory: what the machinery needs from a cluster, a disk and a clock, without them.

Deterministic: nothing happens but in a call, and nothing sleeps. Held to the behaviour of the real
adapters by the contract suites in `tests/contracts`.
"""

from .broker import MemoryBroker
from .clock import ManualClock
from .log import MemoryLog
from .store import MemoryStores

__all__ = ["ManualClock", "MemoryBroker", "MemoryLog", "MemoryStores"]
