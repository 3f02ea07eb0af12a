"""One partition's owner without log and threads: the scheduler over a store in memory.

Every step is what the task does, with nothing in between: decide, commit, store, memory.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from processors.core.zones import PINNED
from processors.jobs import Budget
from processors.scheduler import Scheduler
from processors.scheduler_topology import SCHEDULER
from processors.targets import TopicTargets
from processors.topology import COMMANDS, EXECUTIONS, REPLIES, SCHEDULE_CHANGES
from schemas import bindings
from schemas.codec import schema_name
from schemas.commands import AnyCommand
from schemas.replies import Accepted, Refused
from schemas.state import JobDefinition, JobState
from streams.layout import topic_name
from streams.memory import MemoryStores
from streams.ports import Produced, Record
from streams.transaction import Transaction

NAMESPACE = "h"
CODECS = {c.kind.__name__: c for c in vars(bindings).values() if isinstance(c, bindings.Codec)}


class Topics:
    """Every topic has three partitions but those that are named as missing."""

    def __init__(self) -> None:
        self.missing: set[str] = set()

    def partitions(self, topic: str) -> int:
        return 0 if topic in self.missing else 3

    def forget(self, topic: str) -> None:
        """Nothing is remembered."""


class Owner:
    """Owns partition 0 of 1. `records` is the log of everything committed, in order."""

    def __init__(self) -> None:
        self.stores = MemoryStores()
        self.store = self.stores.open(0)
        self.topics = Topics()
        self.records: list[Produced] = []
        self.replies: list[Accepted | Refused] = []
        self.alarms: list[tuple[str, Mapping[str, Any]]] = []
        self.seq = 0
        self.offset = 0
        self.scheduler = self._scheduler(0)

    def _scheduler(self, now_ms: int) -> Scheduler:
        def alarm(event: str, **values: Any) -> None:
            self.alarms.append((event, values))

        scheduler = Scheduler(
            namespace=NAMESPACE, partition=0, partitions=1, cluster="c", cluster_key=b"key",
            tz=PINNED.version, targets=TopicTargets(self.topics, alarm), budget=Budget(),
            alarm=alarm,
        )  # fmt: skip
        scheduler.resume(self.store, epoch=self.seq + 1, now_ms=now_ms)
        return scheduler

    def restart(self, now_ms: int) -> None:
        """Another process takes over: all that is in memory is gone."""
        self.scheduler = self._scheduler(now_ms)

    def send(self, command: AnyCommand | bytes, at_ms: int, now_ms: int | None = None) -> Any:
        """Append a command at `at_ms` and read it at `now_ms`; the reply."""
        data = command if isinstance(command, bytes) else self._encode(command)
        record = Record(topic_name(NAMESPACE, COMMANDS), 0, self.offset, at_ms, None, data)
        self.offset += 1
        before = len(self.replies)
        txn = self._begin()
        now_ms = at_ms if now_ms is None else now_ms
        self.scheduler.apply(txn, record, now_ms)
        self._commit(txn, now_ms)
        return self.replies[before] if len(self.replies) > before else None

    @staticmethod
    def _encode(command: AnyCommand) -> bytes:
        asked = msgspec.structs.replace(command, reply_to=command.reply_to or "me")
        return bindings.COMMANDS[type(command).__name__].encode(asked)

    def pass_time(self, now_ms: int, limit: int = 1_000) -> None:
        """Decide everything that is due at `now_ms`."""
        for _ in range(1_000):
            deadline = self.scheduler.deadline_ms()
            if deadline is None or deadline > now_ms:
                return
            txn = self._begin()
            self.scheduler.due(txn, now_ms, limit)
            self._commit(txn, now_ms)
        raise AssertionError("the owner never comes to rest")

    def _begin(self) -> Transaction:
        self.seq += 1
        return Transaction(self.seq, 0, self.store)

    def _commit(self, txn: Transaction, now_ms: int) -> None:
        self.scheduler.finish(txn, now_ms)
        self.records += txn.records
        self.store.apply(txn.writes)
        self.scheduler.committed(txn)
        for message in txn.outbox:
            if message.topic == topic_name(NAMESPACE, REPLIES):
                self.replies.append(decoded(message.value))

    # --- what became of it ---------------------------------------------------------------------

    def state(self, job_key: str) -> JobState | None:
        value = self.store.get(b"s/" + job_key.encode())
        return bindings.JOB_STATE.decode(value) if value is not None else None

    def definition(self, job_key: str) -> JobDefinition | None:
        value = self.store.get(b"j/" + job_key.encode())
        return bindings.JOB_DEFINITION.decode(value) if value is not None else None

    def written(self, suffix: str) -> list[Any]:
        """Values of one of our topics, decoded, in order."""
        name = topic_name(NAMESPACE, suffix)
        return [decoded(r.value) for r in self.records if r.topic == name and r.value is not None]

    def executions(self) -> list[Any]:
        return self.written(EXECUTIONS)

    def changes(self) -> list[Any]:
        return self.written(SCHEDULE_CHANGES)

    def fires(self, job: str | None = None) -> list[Any]:
        found = [e for e in self.executions() if type(e).__name__ == "ExecutionFired"]
        return [e for e in found if job is None or e.job == job]

    def missed(self) -> list[Any]:
        return [e for e in self.executions() if type(e).__name__ == "TicksMissed"]

    def fold(self) -> dict[bytes, bytes]:
        """The store as it follows from the changelogs alone, index included."""
        folded: dict[bytes, bytes] = {}
        for log in SCHEDULER.changelogs:
            name = topic_name(NAMESPACE, log.topic)
            for record in self.records:
                if record.topic == name and record.key is not None:
                    key = log.store_key(record.key)
                    folded.pop(key, None)
                    if record.value is not None:
                        folded[key] = record.value
        entries: Iterable[tuple[bytes, bytes]] = [
            entry
            for key, value in folded.items()
            if key.startswith(SCHEDULER.indexed_prefix)
            for entry in SCHEDULER.index(key, value)
        ]
        return dict(sorted((folded | dict(entries)).items()))


def decoded(value: bytes | None) -> Any:
    assert value is not None
    name = schema_name(value)
    assert name is not None
    return CODECS[name].decode(value)
