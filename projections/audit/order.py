"""Transactions by themselves: whole, in order, within bounds (I6, I10, I13's keys, I14)."""

from collections.abc import Iterator
from typing import Final

from schemas import limits
from schemas.events import ExecutionFired, ExecutionMoved, JobChanged, Quarantined, TicksMissed
from schemas.partition import partition_of
from schemas.state import JobDefinition, JobIds, JobState
from schemas.units import format_instant

from .entries import EXECUTIONS, Entry
from .finding import Tally, Violation
from .transactions import Transaction

RECORD_BYTES_MAX: Final = 1_048_588
"""What a broker takes."""
NOT_WHOLE: Final = "transactions of which compaction or retention removed records"


class OrderChecks:
    """Folds the transactions of one partition."""

    def __init__(self, tally: Tally, partitions: int) -> None:
        self._tally = tally
        self._partitions = partitions
        self._number = -1
        self._epoch = -1
        self._positions: dict[str, int] = {}
        self._doubtful: list[tuple[int, Violation]] = []
        self._removed_to = -1

    def see(self, txn: Transaction) -> Iterator[Violation]:
        """What is wrong with this transaction by itself and behind those before it."""
        yield from self._grows(txn)
        self._is_whole(txn)
        for entry in txn.entries:
            yield from self._is_bounded(entry)
            yield from self._is_at_home(entry)

    def end(self) -> Iterator[Violation]:
        """Torn transactions, now that it is known from where on nothing was removed."""
        for number, violation in self._doubtful:
            if number > self._removed_to:
                yield violation
            else:
                self._tally.leave_out(NOT_WHOLE)

    # --- I6 --------------------------------------------------------------------------------------

    def _grows(self, txn: Transaction) -> Iterator[Violation]:
        self._tally.count("I6")
        if txn.number <= self._number:
            told = f"transaction {txn.number} was written behind transaction {self._number}"
            yield Violation("I6", txn.where, told)
        self._number = max(self._number, txn.number)
        mark = txn.closed
        if mark is None:
            return
        if mark.epoch < self._epoch or mark.epoch > mark.txn:
            told = f"epoch {mark.epoch} in transaction {mark.txn}, after epoch {self._epoch}"
            yield Violation("I6", txn.where, told)
        self._epoch = max(self._epoch, mark.epoch)
        for position in mark.positions:
            before = self._positions.get(position.topic, 0)
            if position.offset < before:
                told = f"the position in {position.topic} goes back from {before}"
                yield Violation("I6", txn.where, f"{told} to {position.offset}")
            self._positions[position.topic] = position.offset

    # --- I10 -------------------------------------------------------------------------------------

    def _is_whole(self, txn: Transaction) -> None:
        """Count against the mark. What is missing may have been compacted away, which shows later:
        compaction goes from the beginning of a topic to some point in it."""
        if txn.holes:
            self._removed_to = max(self._removed_to, txn.number)
        mark = txn.closed
        self._tally.count("I10")
        seen = len(txn.entries) + 1
        if mark is None:
            told = f"{len(txn.entries)} records of transaction {txn.number}, which has no mark"
        elif seen <= mark.records <= seen + txn.repairs:
            return
        else:
            told = f"transaction {txn.number} has {seen} records, its mark counts {mark.records}"
        hidden = [entry.where for entry in txn.aborted if entry.txn == txn.number]
        if hidden:
            told += f"; aborted: {', '.join(hidden[:5])}"
        self._doubtful.append((txn.number, Violation("I10", txn.where, told)))

    # --- I13 -------------------------------------------------------------------------------------

    def _is_at_home(self, entry: Entry) -> Iterator[Violation]:
        """The key and the partition are those of the job that the body names."""
        body, key = entry.body, entry.key or b""
        if isinstance(body, ExecutionFired | ExecutionMoved):
            wanted = body.execution_id.encode()
            if entry.topic == EXECUTIONS:
                wanted += b"#%d" % body.sequence
            fits = key == wanted and body.execution_id.startswith(f"{body.tenant}/{body.job}:")
        elif isinstance(body, TicksMissed):
            job = f"{body.tenant}/{body.job}"
            fits = key == f"{job}:{format_instant(body.first)}#{body.sequence}".encode()
        elif isinstance(body, JobChanged):
            fits = key.startswith(f"{body.tenant}/{body.job}@{body.life}.{body.version}".encode())
        elif isinstance(body, JobDefinition):
            fits = key == f"{body.tenant}/{body.job}".encode()
        else:
            return
        self._tally.count("I13")
        if not fits:
            about = f"{body.tenant}/{body.job}"
            yield Violation("I13", entry.where, f"key {key.decode(errors='replace')!r} is not that "
                            f"of a record about {about}")  # fmt: skip
        home = partition_of(f"{body.tenant}/{body.job}", self._partitions)
        if home != entry.partition:
            told = f"job {body.tenant}/{body.job} belongs to partition {home}"
            yield Violation("I13", entry.where, told)

    # --- I14 -------------------------------------------------------------------------------------

    def _is_bounded(self, entry: Entry) -> Iterator[Violation]:
        self._tally.count("I14")
        size = len(entry.value or b"") + len(entry.key or b"")
        found: list[tuple[str, int, int]] = [("bytes", size, RECORD_BYTES_MAX)]
        match entry.body:
            case JobState() as state:
                ids = len(state.ids)
                found += [
                    ("open executions", len(state.open), limits.OPEN_EXECUTIONS_MAX),
                    ("command ids", ids, limits.COMMAND_IDS_INLINE_MAX),
                ]
            case JobIds() as further:
                found.append(("command ids", len(further.ids), limits.COMMAND_IDS_MAX))
            case JobDefinition() as definition:
                found += [
                    ("schedules", len(definition.schedules), limits.SCHEDULES_MAX),
                    ("bytes of payload", len(definition.payload), limits.PAYLOAD_BYTES_MAX),
                ]
            case ExecutionMoved() as moved:
                found.append(("bytes of result", len(moved.result), limits.RESULT_BYTES_MAX))
            case Quarantined() as parked:
                most = limits.QUARANTINE_VALUE_BYTES_MAX
                found.append(("bytes set aside", len(parked.value or b""), most))
            case _:
                pass
        for what, amount, most in found:
            if amount > most:
                yield Violation("I14", entry.where, f"{amount} {what} are more than {most}")
