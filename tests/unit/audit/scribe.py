"""A log as the real scheduler writes it, kept so that a test can forge it.

Transactions close with their marks and leave a marker behind, as on a broker.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from processors import topology
from projections.audit.causes import Acknowledged
from projections.audit.entries import OWN_TOPICS, command_of, entry_of
from projections.audit.finding import Report, Tally, Violation
from projections.audit.partition import Evidence, audit_partition
from projections.audit.receipts import Receipt
from schemas import bindings
from schemas.commands import JobSpec, PutJob, ScheduleSpec, TopicTargetSpec
from schemas.leases import WorkItem
from schemas.state import Mark, Position
from streams.layout import MARK_KEY
from streams.ports import Record
from streams.transaction import Transaction
from tests.unit.leases.partition import CODECS, Partition, decoded


class Scribe(Partition):
    """One partition's owner whose log is kept, with what receivers and clients saw."""

    def __init__(self) -> None:
        self.log: dict[str, list[Record]] = {topic: [] for topic in OWN_TOPICS}
        self.ends = dict.fromkeys(OWN_TOPICS, 0)
        self.aborted: set[tuple[str, int]] = set()
        self.asked: list[Record] = []
        self.receipts: list[Receipt] = []
        self.acknowledged: list[Acknowledged] = []
        super().__init__()

    def apply(self, topic: str, *values: bytes) -> None:
        if topic == topology.COMMANDS:
            for value in values:
                offset = len(self.asked)
                self.asked.append(Record(f"h.{topic}", 0, offset, self.now_ms, None, value))
        super().apply(topic, *values)

    def _commit(self, txn: Transaction) -> None:
        super()._commit(txn)
        touched = set()
        own = 0
        for record in txn.records:
            suffix = record.topic.removeprefix("h.")
            if suffix not in self.log:
                self._received(record)
                continue
            own += 1
            touched.add(suffix)
            self.append(suffix, record.key, record.value, tuple(record.headers or ()))
        for suffix in touched - {topology.JOB_STATE}:
            self.ends[suffix] += 1  # the marker
        self._mark(own + 1)

    def _mark(self, records: int) -> None:
        mark = Mark(
            txn=self.seq, epoch=self.epoch, records=records, wall_ms=self.now_ms, owner="o",
            positions=(Position(topology.COMMANDS, len(self.asked)),),
        )  # fmt: skip
        self.append(topology.JOB_STATE, MARK_KEY, bindings.MARK.encode(mark))
        self.ends[topology.JOB_STATE] += 1

    def append(self, topic: str, key: bytes | None, value: bytes | None, headers: Any = ()) -> str:
        """Put a record at the end; where it stands."""
        offset = self.ends[topic]
        self.log[topic].append(Record(f"h.{topic}", 0, offset, self.now_ms, key, value, headers))
        self.ends[topic] += 1
        return f"{topic}-0@{offset}"

    def _received(self, record: Any) -> None:
        headers = {name: value.decode() for name, value in record.headers}
        self.receipts.append(
            Receipt(
                execution_id=headers["ce_id"], received_ms=self.now_ms,
                fence=int(headers["X-Horolog-Fence"]), where=f"receipts:{len(self.receipts) + 1}",
            )
        )  # fmt: skip

    def receive(self, item: WorkItem) -> WorkItem:
        """A worker's target notes the run."""
        self.receipts.append(
            Receipt(
                execution_id=item.execution_id, received_ms=self.now_ms, delivery=item.delivery,
                fence=item.fence, where=f"receipts:{len(self.receipts) + 1}",
            )
        )  # fmt: skip
        return item

    def put_cron(self, job: str, cron: str, timezone: str = "UTC") -> None:
        spec = JobSpec(
            schedules=(ScheduleSpec(cron=cron, timezone=timezone),),
            topic=TopicTargetSpec(name="orders"),
        )
        self.send(PutJob(tenant="t", job=job, spec=spec))

    def send(self, command: Any) -> Any:
        answer = super().send(command)
        if hasattr(answer, "sequence"):
            self.acknowledged.append(
                Acknowledged(
                    job=f"{answer.tenant}/{answer.job}", sequence=answer.sequence,
                    execution_id=answer.execution_id, where=f"log:{len(self.acknowledged) + 1}",
                )
            )  # fmt: skip
        return answer

    # --- forging -------------------------------------------------------------------------------

    def change(self, topic: str, which: Callable[[Any], bool], **fields: Any) -> str:
        """Write other fields into the first record that fits; where it stands."""
        n = self._find(topic, which)
        record = self.log[topic][n]
        body = decoded(record.value)
        forged = msgspec.structs.replace(body, **fields)
        value = CODECS[type(body).__name__].encode(forged)
        self.log[topic][n] = msgspec.structs.replace(record, value=value)
        return self._place(record)

    def copy(self, topic: str, which: Callable[[Any], bool], **fields: Any) -> str:
        """Write the first record that fits once more, at the end, as a transaction of its own."""
        body = decoded(self.log[topic][self._find(topic, which)].value)
        return self.write(topic, msgspec.structs.replace(body, **fields))

    def write(self, topic: str, body: Any) -> str:
        """Write an event of an execution at the end, as a transaction of its own."""
        self.seq += 1
        body = msgspec.structs.replace(body, txn=self.seq)
        key = f"{body.execution_id}#{body.sequence}".encode()
        where = self.append(topic, key, CODECS[type(body).__name__].encode(body))
        self.ends[topic] += 1
        self._mark(2)
        return where

    def drop(self, topic: str, which: Callable[[Any], bool]) -> str:
        """Take the first record that fits out, and abort it; where it stood."""
        record = self.log[topic][self._find(topic, which)]
        self.aborted.add((topic, record.offset))
        return self._place(record)

    def place(self, topic: str, which: Callable[[Any], bool]) -> str:
        """Where the first record that fits stands."""
        return self._place(self.log[topic][self._find(topic, which)])

    def _find(self, topic: str, which: Callable[[Any], bool]) -> int:
        for n, record in enumerate(self.log[topic]):
            if record.value is not None and which(decoded(record.value)):
                return n
        raise AssertionError("no such record")

    @staticmethod
    def _place(record: Record) -> str:
        return f"{record.topic.removeprefix('h.')}-{record.partition}@{record.offset}"

    # --- judging -------------------------------------------------------------------------------

    def audit(self, *, cut: frozenset[str] = frozenset(), settled: bool = True) -> Report:
        tally = Tally()
        answers: dict[str, list[Acknowledged]] = {}
        for answer in self.acknowledged:
            answers.setdefault(answer.job, []).append(answer)
        streams = {
            topic: [
                entry_of(record, topic, aborted=(topic, record.offset) in self.aborted)
                for record in records
            ]
            for topic, records in self.log.items()
        }
        evidence = Evidence(
            partition=0, partitions=1, streams=streams, settled=settled,
            commands=[command_of(record) for record in self.asked], cut=cut,
            acknowledged=answers, receipts=self.receipts,
        )  # fmt: skip
        count = audit_partition(evidence, tally)
        return tally.report(partitions=1, records=0, transactions=count, receipts=0)


def violations(report: Report, check: str) -> list[Violation]:
    """What one check found."""
    return [one for result in report.results if result.check == check for one in result.shown]


def found(report: Report) -> list[Violation]:
    """Everything that was found."""
    return [one for result in report.results for one in result.shown]
