"""What receivers saw against what the log says (I1, I6, aborted reads, targets)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from schemas.events import ExecutionFired, ExecutionMoved

from .entries import Entry, is_tick, occurrence_of
from .finding import Tally, Violation
from .history import Event

NOT_RETAINED: Final = "receipts of executions that are not retained"
FENCE_BITS: Final = 16


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """One record, call or run as an instrumented target saw it. Times are UTC ms, on its own clock;
    a fence of 0 was not noted."""

    execution_id: str
    received_ms: int
    occurrence: str = ""
    scheduled_ms: int = 0
    delivery: int = 1
    fence: int = 0
    where: str = ""

    @property
    def job(self) -> str:
        """`tenant/job`."""
        return self.execution_id.partition(":")[0]


class ReceiptChecks:
    """Folds the events of one partition's jobs. `receipts` are those about them."""

    def __init__(self, tally: Tally, receipts: Iterable[Receipt], *, cut: bool) -> None:
        self._tally = tally
        self._cut = cut
        self._by_id: defaultdict[str, list[Receipt]] = defaultdict(list)
        self._jobs: set[str] = set()
        for receipt in receipts:
            self._by_id[receipt.execution_id].append(receipt)
            self._jobs.add(receipt.job)
        self._matched: set[tuple[str, int]] = set()
        self._known: set[str] = set()
        self._claims: set[str] = set()
        """Of those executions whose claim was seen every lease is seen."""
        self._aborted: defaultdict[str, list[Entry]] = defaultdict(list)

    def hidden(self, aborted: Iterable[Entry]) -> None:
        """Records that were aborted; which of them somebody received shows later."""
        for entry in aborted:
            execution_id = getattr(entry.body, "execution_id", "")
            if execution_id in self._by_id:
                self._aborted[execution_id].append(entry)

    def see(self, event: Event) -> Iterator[Violation]:
        """Match the event with what was received of it."""
        body = event.entry.body
        if not isinstance(body, ExecutionFired | ExecutionMoved) or event.job not in self._jobs:
            return
        execution_id = body.execution_id
        receipts = self._by_id.get(execution_id, [])
        if receipts:
            self._known.add(execution_id)
            if isinstance(body, ExecutionFired):
                self._claims.add(execution_id)
        written = isinstance(body, ExecutionFired) and body.topic and body.state == "SUCCEEDED"
        if written or (body.state == "RUNNING" and (execution_id, body.delivery) not in
                       self._matched):  # fmt: skip
            yield from self._delivered(event, receipts, 1 if written else body.delivery)
        if body.state == "SUCCEEDED":
            self._tally.count("targets")
            if not receipts:
                told = f"{execution_id} succeeded, but nobody received it"
                yield Violation("targets", event.where, told)

    def end(self, *, settled: bool) -> Iterator[Violation]:
        """What was received and is nowhere in the log, whose end may not be `settled`."""
        self._cut |= not settled
        for execution_id, receipts in self._by_id.items():
            self._tally.count("targets", len(receipts))
            self._tally.count("aborted-read", len(receipts))
            deliveries = [receipt.delivery for receipt in receipts]
            for receipt in receipts:
                if (execution_id, receipt.delivery) in self._matched:
                    continue
                yield from self._unmatched(execution_id, receipt)
            for delivery in sorted({d for d in deliveries if deliveries.count(d) > 1}):
                last = [r for r in receipts if r.delivery == delivery][-1]
                told = f"delivery {delivery} of {execution_id} was received "
                yield Violation("targets", last.where, f"{told}{deliveries.count(delivery)} times")

    def _unmatched(self, execution_id: str, receipt: Receipt) -> Iterator[Violation]:
        hidden = self._aborted.get(execution_id, [])
        if hidden and (self._was_aborted(receipt) or not (receipt.fence or self._cut)):
            told = f"{execution_id} was received, but {hidden[0].where}, which claims it, was"
            yield Violation("aborted-read", receipt.where, f"{told} aborted")
        elif execution_id in self._claims or (execution_id in self._known and not self._cut):
            told = f"delivery {receipt.delivery} of {execution_id} was received, but never leased"
            yield Violation("targets", receipt.where, told)
        elif self._cut:
            self._tally.leave_out(NOT_RETAINED)
        else:
            told = f"{execution_id} was received, but never claimed"
            yield Violation("targets", receipt.where, told)

    def _delivered(
        self, event: Event, receipts: list[Receipt], delivery: int
    ) -> Iterator[Violation]:
        body = event.entry.body
        self._matched.add((body.execution_id, delivery))
        for receipt in receipts:
            if receipt.delivery != delivery:
                continue
            self._tally.count("I1")
            if is_tick(occurrence_of(body.execution_id)) and (
                receipt.received_ms < body.scheduled_at
            ):
                early_ms = body.scheduled_at - receipt.received_ms
                yield Violation("I1", receipt.where, f"{body.execution_id} was received {early_ms} "
                                "ms before its tick")  # fmt: skip
            if not receipt.fence or body.execution_id not in self._claims:
                continue
            self._tally.count("I6")
            if receipt.fence >> FENCE_BITS != body.txn:
                told = f"fence {receipt.fence} of {body.execution_id} is of transaction "
                told += (
                    f"{receipt.fence >> FENCE_BITS}, delivery {delivery} was written by {body.txn}"
                )
                check = "aborted-read" if self._was_aborted(receipt) else "I6"
                yield Violation(check, receipt.where, told)

    def _was_aborted(self, receipt: Receipt) -> bool:
        hidden = self._aborted.get(receipt.execution_id, [])
        return any(entry.txn == receipt.fence >> FENCE_BITS for entry in hidden)
