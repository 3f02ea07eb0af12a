"""The producers of the log in memory."""

from collections.abc import Iterable, Mapping

from ..crash import CrashPoint
from ..errors import Aborted, Doubt, Fenced, Refusal
from ..ports import Delivered, Produced, TopicPartition
from .broker import MemoryBroker, Refused
from .partition import Outcome


class MemoryTransactionalProducer:
    """Meets `streams.ports.TransactionalProducer`. As with the real client, only a call that has
    something to end asks the broker who owns the epoch."""

    def __init__(self, broker: MemoryBroker, transactional_id: str, crash: CrashPoint) -> None:
        self._broker = broker
        self._id = transactional_id
        self._crash = crash
        self._epoch: int | None = None
        self._fatal: Exception | None = None
        self._open = False
        self._written = False
        self._refusals: list[Refusal] = []
        self._failed = False
        self._delivered: dict[TopicPartition, Delivered] = {}

    def init(self, timeout_s: float) -> None:
        del timeout_s
        self._crash("CP13")
        with self._broker.lock, self._broker.faults.during("init", self._id):
            if self._epoch is not None:
                raise Doubt(f"{self._id}: taking the epoch twice needs a new producer")
            self._epoch = self._broker.take_epoch(self._id)

    def write(
        self,
        records: Iterable[Produced],
        *,
        report: frozenset[TopicPartition],
        careful: frozenset[str],
    ) -> None:
        with self._broker.lock, self._broker.faults.during("write", self._id):
            self._begin()
            self._crash("CP02")
            first = True
            for record in records:
                self._append(record, report, careful)
                if first:
                    self._crash("CP03")
                    first = False
            self._crash("CP05")
            self._crash("CP04")

    def commit(self, timeout_s: float) -> Mapping[TopicPartition, Delivered]:
        del timeout_s
        with self._broker.lock, self._broker.faults.during("commit", self._id):
            self._check("committing")
            if self._failed:
                self._end(Outcome.ABORTED, "aborting")
                raise Aborted(f"{self._id}: a record was refused", tuple(self._refusals))
            self._end(Outcome.COMMITTED, "committing")
            return self._delivered

    def abort(self, timeout_s: float) -> None:
        del timeout_s
        with self._broker.lock, self._broker.faults.during("abort", self._id):
            self._check("aborting")
            self._end(Outcome.ABORTED, "aborting")

    def close(self) -> None:
        self._fatal = Doubt(f"{self._id}: the producer was closed")

    def _begin(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._epoch is None or self._open:
            raise Doubt(f"{self._id}: cannot begin a transaction now")
        self._open = True
        self._written = False
        self._failed = False
        self._refusals = []
        self._delivered = {}

    def _append(
        self, record: Produced, report: frozenset[TopicPartition], careful: frozenset[str]
    ) -> None:
        assert self._epoch is not None
        self._written = True
        if self._fatal is not None:
            return
        try:
            offset, timestamp_ms = self._broker.append(record, self._id, self._epoch)
        except Fenced as fenced:
            # The client hears of it later; what is to be raised then is known already.
            self._fatal = fenced
        except Refused as refused:
            self._failed = True
            if record.topic in careful or not refused.whole_topic:
                self._refuse(record, refused)
        else:
            key = (record.topic, record.partition)
            if key in report:
                self._delivered[key] = Delivered(*key, offset, timestamp_ms)

    def _refuse(self, record: Produced, refused: Refused) -> None:
        if refused.whole_topic and any(r.topic == record.topic for r in self._refusals):
            return
        self._refusals.append(
            Refusal(record.topic, record.tag, refused.reason, whole_topic=refused.whole_topic)
        )

    def _check(self, doing: str) -> None:
        if self._fatal is not None:
            raise self._fatal
        if not self._open:
            raise Doubt(f"{self._id}: {doing} without a transaction")

    def _end(self, outcome: Outcome, doing: str) -> None:
        self._crash("CP06" if outcome is Outcome.COMMITTED else "CP12")
        self._open = False
        if not self._written:
            return
        assert self._epoch is not None
        try:
            heard = self._broker.end_transaction(self._id, self._epoch, outcome)
        except Fenced as fenced:
            self._fatal = fenced
            raise
        if not heard:
            self._fatal = Doubt(f"{self._id}: {doing}: no answer in time")
            raise self._fatal


class MemoryOutbox:
    """Meets `streams.ports.Outbox`. What is sent is there at once."""

    def __init__(self, broker: MemoryBroker, client_id: str) -> None:
        self._broker = broker
        self._client_id = client_id
        self.dropped = 0

    def send(self, records: Iterable[Produced]) -> None:
        with self._broker.lock, self._broker.faults.during("send", self._client_id):
            for record in records:
                try:
                    self._broker.append(record)
                except Refused:
                    self.dropped += 1

    def flush(self, timeout_s: float) -> bool:
        del timeout_s
        with self._broker.faults.during("flush", self._client_id):
            return True

    def close(self) -> None:
        """Nothing is held."""
