"""One partition's owner with a worker's side that tests play by hand: no log, no threads.

Each step is what the task does: decide, finish, commit, store, memory, outbox.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from processors import topology
from processors.core.zones import PINNED
from processors.jobs import Budget
from processors.scheduler import Scheduler
from processors.targets import TopicTargets
from schemas import bindings
from schemas.codec import Codec, schema_name
from schemas.commands import (
    AnyCommand,
    CancelExecution,
    DeleteJob,
    JobSpec,
    PauseJob,
    PutJob,
    ResumeJob,
    ScheduleSpec,
    TopicTargetSpec,
    TriggerJob,
    WorkerTargetSpec,
)
from schemas.events import ExecutionFired, ExecutionMoved
from schemas.leases import Report, ReportKind, WorkItem
from schemas.replies import Accepted, Refused
from schemas.slots import Places, SlotsGranted, SlotsWanted
from schemas.state import JobState, OpenExecution
from schemas.units import format_instant, parse_instant
from streams.layout import topic_name
from streams.memory import MemoryStores
from streams.ports import Produced, Record
from streams.transaction import Transaction

T0 = int(parse_instant("2026-03-02T10:00:00Z"))
LEASE_MS = 60_000
WORKER = "w-1"
CODECS: dict[str, Codec[Any]] = {
    codec.kind.__name__: codec for codec in vars(bindings).values() if isinstance(codec, Codec)
}


class NoTopics:
    """Every topic has two partitions."""

    def partitions(self, topic: str) -> int:
        return 2

    def forget(self, topic: str) -> None:
        """Nothing is remembered."""


class Partition:
    """Owns partition 0 of 1; the clock moves only when it is told to."""

    def __init__(self, *, places: int = 10, lease_ms: int = LEASE_MS) -> None:
        self.now_ms = T0
        self.lease_ms = lease_ms
        self.stores = MemoryStores()
        self.store = self.stores.open(0)
        self.records: list[Produced] = []
        self.replies: list[Accepted | Refused] = []
        self.wants: list[SlotsWanted] = []
        self.items: list[WorkItem] = []
        self.sent: list[Produced] = []
        self.alarms: list[str] = []
        self.seq = 0
        self.grants = 0
        self.commands = 0
        self.scheduler = self._scheduler(0)
        if places:
            self.grant({WORKER: places})

    def _scheduler(self, gap_ms: int) -> Scheduler:
        self.seq += 1
        scheduler = Scheduler(
            namespace="h", partition=0, partitions=1, cluster="c", cluster_key=b"key" * 8,
            tz=PINNED.version, targets=TopicTargets(NoTopics(), self._alarm), budget=Budget(),
            alarm=self._alarm, lease_ms=self.lease_ms,
        )  # fmt: skip
        self.epoch = self.seq
        scheduler.resume(self.store, epoch=self.epoch, now_ms=self.now_ms, gap_ms=gap_ms)
        return scheduler

    def _alarm(self, event: str, **values: Any) -> None:
        self.alarms.append(event)

    def take_over(self, *, gap_ms: int = 0, places: int = 10) -> None:
        """Another process goes on from the store, after so long."""
        self.now_ms += gap_ms
        self.scheduler = self._scheduler(gap_ms)
        self.settle()
        if places:
            self.grant({WORKER: places})

    # --- steps ---------------------------------------------------------------------------------

    def apply(self, topic: str, *values: bytes) -> None:
        """Read input records now, in one step, and decide what follows at once."""
        txn = self._begin()
        for value in values:
            record = Record(topic_name("h", topic), 0, self.seq, self.now_ms, None, value)
            self.scheduler.apply(txn, record, self.now_ms)
        self._commit(txn)
        self.settle()

    def settle(self) -> None:
        """Decide everything that is due now."""
        for _ in range(200):
            deadline = self.scheduler.deadline_ms()
            if deadline is None or deadline > self.now_ms:
                return
            self.step()
        raise AssertionError("the owner never comes to rest")

    def step(self, limit: int = 1_000) -> Transaction:
        """One step of due entries."""
        txn = self._begin()
        self.scheduler.due(txn, self.now_ms, limit)
        self._commit(txn)
        return txn

    def advance(self, ms: int, *, drained: bool = True) -> None:
        """Let time pass, deadline by deadline; `drained`: reports are read up to their end."""
        until_ms = self.now_ms + ms
        while True:
            self.settle()
            if drained and self.scheduler.wants_drained():
                self.drained()
                continue
            deadline = self.scheduler.deadline_ms()
            if deadline is None or deadline > until_ms:
                break
            self.now_ms = max(self.now_ms, deadline)
        self.now_ms = until_ms
        self.settle()

    def drained(self, asked_ms: int | None = None) -> None:
        """Every report up to now has been read."""
        self.scheduler.drained(self.now_ms if asked_ms is None else asked_ms)
        self.settle()

    def _begin(self) -> Transaction:
        self.seq += 1
        return Transaction(self.seq, 0, self.store)

    def _commit(self, txn: Transaction) -> None:
        self.scheduler.finish(txn, self.now_ms)
        self.records += txn.records
        self.store.apply(txn.writes)
        self.scheduler.committed(txn)
        for message in txn.outbox:
            self._sent(message)

    def _sent(self, message: Produced) -> None:
        self.sent.append(message)
        value = decoded(message.value)
        match value:
            case Accepted() | Refused():
                self.replies.append(value)
            case SlotsWanted():
                self.wants.append(value)
            case _:
                self.items += value.items

    # --- what users ask for --------------------------------------------------------------------

    def send(self, command: AnyCommand) -> Any:
        """Append a command and read it at once; the reply."""
        return self.send_together(command)[0]

    def send_together(self, *commands: AnyCommand) -> Sequence[Any]:
        """Append commands and read them in one step; the replies."""
        values = []
        for command in commands:
            self.commands += 1
            asked = msgspec.structs.replace(
                command, reply_to="me", command_id=command.command_id or f"c{self.commands}"
            )
            values.append(bindings.COMMANDS[type(command).__name__].encode(asked))
        before = len(self.replies)
        self.apply(topology.COMMANDS, *values)
        assert len(self.replies) == before + len(commands)
        return self.replies[before:]

    def put(
        self, job: str = "j", tenant: str = "t", handler: str = "h", payload: bytes = b"{}",
        **schedule: Any,
    ) -> Any:  # fmt: skip
        """A job of a handler; without a schedule it never ticks by itself."""
        when: dict[str, Any] = schedule or {"at": "2099-01-01T00:00:00Z"}
        spec = JobSpec(
            schedules=(ScheduleSpec(**when),), worker=WorkerTargetSpec(handler=handler),
            payload=payload,
        )  # fmt: skip
        return self.send(PutJob(tenant=tenant, job=job, spec=spec))

    def put_topic(self, job: str = "j", **schedule: Any) -> Any:
        when: dict[str, Any] = schedule or {"at": "2099-01-01T00:00:00Z"}
        spec = JobSpec(schedules=(ScheduleSpec(**when),), topic=TopicTargetSpec(name="orders"))
        return self.send(PutJob(tenant="t", job=job, spec=spec))

    def trigger(self, job: str = "j", tenant: str = "t", command_id: str = "") -> Any:
        return self.send(TriggerJob(tenant=tenant, job=job, command_id=command_id))

    def pause(self, job: str = "j") -> Any:
        return self.send(PauseJob(tenant="t", job=job))

    def resume(self, job: str = "j") -> Any:
        return self.send(ResumeJob(tenant="t", job=job))

    def delete(self, job: str = "j") -> Any:
        return self.send(DeleteJob(tenant="t", job=job))

    def cancel(self, execution_id: str, job: str = "j") -> Any:
        return self.send(CancelExecution(tenant="t", job=job, execution_id=execution_id))

    # --- what slots and workers say ------------------------------------------------------------

    def grant(
        self, workers: dict[str, int], handlers: tuple[str, ...] = ("h",), pool: str = "default"
    ) -> None:
        """So many places at these workers, in place of earlier grants."""
        self.grants += 1
        granted = SlotsGranted(
            limit=f"pool:{pool}", partition=0, epoch=self.epoch, n=self.grants,
            workers={
                worker: Places(count=count, inbox_partition=3, handlers=handlers)
                for worker, count in workers.items()
            },
        )  # fmt: skip
        self.apply(topology.SLOT_GRANTS, bindings.SLOTS_GRANTED.encode(granted))

    def taken(self) -> list[WorkItem]:
        """What workers were told since the last call."""
        items, self.items = self.items, []
        return items

    def run(self, job: str = "j") -> WorkItem:
        """Trigger a job and give its item."""
        self.taken()
        self.trigger(job)
        (item,) = self.taken()
        return item

    def report(self, item: WorkItem, kind: ReportKind, **fields: Any) -> None:
        """What the item's worker says about it."""
        self.report_all([reported(item, kind, **fields)])

    def report_all(self, reports: Sequence[Report], worker: str = WORKER) -> None:
        batch = bindings.REPORT_BATCH.encode(
            bindings.REPORT_BATCH.kind(worker=worker, reports=tuple(reports))
        )
        self.apply(topology.REPORTS, batch)

    def succeed(self, item: WorkItem) -> None:
        self.report(item, "outcome", state="SUCCEEDED", result=b"1", started_at=self.now_ms)

    # --- what became of it ---------------------------------------------------------------------

    def state(self, job: str = "j", tenant: str = "t") -> JobState:
        value = self.store.get(f"s/{tenant}/{job}".encode())
        assert value is not None
        return bindings.JOB_STATE.decode(value)

    def open(self, job: str = "j", tenant: str = "t") -> OpenExecution:
        """The job's only open execution."""
        (execution,) = self.state(job, tenant).open
        return execution

    def events(self, topic: str = topology.EXECUTIONS) -> list[Any]:
        name = topic_name("h", topic)
        return [decoded(r.value) for r in self.records if r.topic == name and r.value is not None]

    def history(self, job: str = "j") -> list[str]:
        """State and reason of each event of a job's executions, in order."""
        return [shown(e) for e in self.events() if e.job == job]

    def dead_letters(self) -> list[Any]:
        return self.events(topology.DEAD_LETTERS)

    @property
    def held(self) -> int:
        """Places that the partition counts as taken."""
        return self.scheduler.figures()["held"]


def decoded(value: bytes | None) -> Any:
    name = schema_name(value or b"")
    assert value is not None
    assert name is not None
    return CODECS[name].decode(value)


def shown(event: ExecutionFired | ExecutionMoved) -> str:
    return f"{event.state}({event.reason})" if event.reason else event.state


def reported(item: WorkItem, kind: ReportKind, **fields: Any) -> Report:
    """A report with the item's token."""
    named: dict[str, Any] = {
        "tenant": item.tenant, "job": item.job, "execution_id": item.execution_id,
        "ordinal": item.ordinal, "delivery": item.delivery, "token": item.token,
    }  # fmt: skip
    return Report(kind=kind, **(named | fields))


def instant(ms: int) -> str:
    return format_instant(ms)
