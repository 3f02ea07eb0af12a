"""One process's clients of the cluster in memory."""

from collections.abc import Callable

from ..crash import CrashPoint, unarmed
from .broker import MemoryBroker
from .group import MemoryOwnership
from .producer import MemoryOutbox, MemoryTransactionalProducer
from .reader import MemoryOffsets, MemoryReader, MemoryTopics


class MemoryLog:
    """Meets `streams.ports.Log`. A process that dies leaves its transactions open and its group
    membership to `MemoryGroup.expel`, as on the real cluster; nothing has to be told."""

    def __init__(self, broker: MemoryBroker, crash: CrashPoint = unarmed) -> None:
        self._broker = broker
        self._crash = crash

    def transactional(self, transactional_id: str) -> MemoryTransactionalProducer:
        return MemoryTransactionalProducer(self._broker, transactional_id, self._crash)

    def outbox(self, client_id: str) -> MemoryOutbox:
        return MemoryOutbox(self._broker, client_id)

    def reader(self, client_id: str, *, committed: bool) -> MemoryReader:
        return MemoryReader(self._broker, client_id, committed=committed)

    def offsets(self) -> MemoryOffsets:
        return MemoryOffsets(self._broker)

    def topics(self) -> MemoryTopics:
        return MemoryTopics(self._broker)

    def ownership(
        self,
        group: str,
        topic: str,
        member: str,
        *,
        on_assigned: Callable[[list[int]], None],
        on_revoked: Callable[[list[int], bool], None],
    ) -> MemoryOwnership:
        return MemoryOwnership(
            self._broker.group(group, topic),
            member,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            wait=self._broker.wait,
            crash=self._crash,
        )
