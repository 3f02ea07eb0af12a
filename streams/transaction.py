"""One transaction under construction: records for the log, writes for the store.

Nothing here touches the world. A step fills it, the task performs it, or drops it whole.
"""

from typing import Any, Final

from schemas import limits

from .layout import TXN_HEADER
from .ports import Headers, Produced, Store

_ABSENT: Final = object()


class Transaction:
    """What one step decided. Reads see the step's own writes before the store's."""

    __slots__ = ("bytes", "forwards", "memory", "outbox", "partition", "records",
                 "seq", "store", "targets", "writes")  # fmt: skip

    def __init__(self, seq: int, partition: int, store: Store) -> None:
        self.seq = seq
        self.partition = partition
        self.store = store
        self.records: list[Produced] = []
        self.writes: dict[bytes, bytes | None] = {}
        self.outbox: list[Produced] = []
        self.forwards: list[Produced] = []
        self.targets: set[str] = set()
        self.memory: Any = None
        """The logic's own values of this step, taken over when it is committed."""
        self.bytes = 0

    def get(self, key: bytes) -> bytes | None:
        """The value as this step left it."""
        found: Any = self.writes.get(key, _ABSENT)
        return self.store.get(key) if found is _ABSENT else found

    def put_state(self, topic: str, key: bytes, store_key: bytes, value: bytes | None) -> None:
        """Change state: a record on a changelog and the same bytes in the store; None deletes."""
        headers = ((TXN_HEADER, b"%d" % self.seq),) if value is None else None
        self.records.append(Produced(topic, self.partition, key, value, headers))
        self.writes[store_key] = value
        self.bytes += len(value) if value is not None else 0

    def put_index(self, store_key: bytes, value: bytes | None) -> None:
        """Change an index entry: in the store only, since it follows from the state."""
        self.writes[store_key] = value

    def append(self, topic: str, key: bytes, value: bytes) -> None:
        """Write an event to one of the processor's own topics."""
        self.records.append(Produced(topic, self.partition, key, value))
        self.bytes += len(value)

    def target(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: Headers,
        tag: str,
    ) -> None:
        """Write to a user's topic; `tag` comes back if the topic refuses the record."""
        self.records.append(Produced(topic, partition, key, value, headers, tag))
        self.targets.add(topic)
        self.bytes += len(value)

    def send(self, message: Produced) -> None:
        """Send after the commit; must be repeatable."""
        self.outbox.append(message)

    def forward(self, message: Produced) -> None:
        """Send and have acknowledged before the commit: the input moves past the original."""
        self.forwards.append(message)

    @property
    def full(self) -> bool:
        """Whether the step should take nothing more."""
        return (
            self.bytes > limits.TRANSACTION_BYTES_MAX
            or len(self.records) > limits.TRANSACTION_RECORDS_MAX // 2
        )

    @property
    def empty(self) -> bool:
        """Whether the step decided nothing that must be written."""
        return not (self.records or self.writes or self.forwards or self.outbox)
