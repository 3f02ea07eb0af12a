"""The audit of one partition: every checker over every transaction, in order."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .causes import Acknowledged, CauseChecks
from .entries import DEAD_LETTERS, EXECUTIONS, Entry
from .finding import Tally
from .history import HistoryChecks
from .order import OrderChecks
from .receipts import Receipt, ReceiptChecks
from .runs import RunChecks
from .states import StateChecks
from .ticks import TickChecks
from .transactions import Transaction, transactions

NEWEST = "newest transactions that were not wholly visible yet"


class Evidence(NamedTuple):
    """What there is about one partition. `streams` are the entries of each own topic; `cut` names
    the topics whose beginning is gone; `settled` False: the end was still being written."""

    partition: int
    partitions: int
    streams: Mapping[str, Iterable[Entry]]
    commands: Iterable[Entry]
    cut: frozenset[str] = frozenset()
    settled: bool = True
    acknowledged: Mapping[str, list[Acknowledged]] = {}
    receipts: Iterable[Receipt] = ()


def audit_partition(evidence: Evidence, tally: Tally, tz: str = "") -> int:
    """Check everything into the tally; how many transactions there were."""
    checks = _Checks(evidence, tally, tz)
    count, held = 0, None
    found = transactions(evidence.partition, evidence.streams, evidence.commands, cut=evidence.cut)
    for txn in found:
        if held is not None:
            checks.see(held)
            count += 1
        held = txn
    if held is not None and evidence.settled:
        checks.see(held)
        count += 1
    elif held is not None:
        tally.leave_out(NEWEST)
    checks.end()
    return count


class _Checks:
    """All checkers of a partition, in the order in which they need each other."""

    def __init__(self, evidence: Evidence, tally: Tally, tz: str) -> None:
        cut = EXECUTIONS in evidence.cut
        self._tally = tally
        self._settled = evidence.settled
        self._order = OrderChecks(tally, evidence.partitions)
        self._history = HistoryChecks(tally, cut=cut)
        self._ticks = TickChecks(tally, tz)
        self._runs = RunChecks(tally, letters_cut=DEAD_LETTERS in evidence.cut)
        self._states = StateChecks(tally, self._history, self._ticks, self._runs)
        self._causes = CauseChecks(tally, dict(evidence.acknowledged), cut=cut)
        self._receipts = ReceiptChecks(tally, evidence.receipts, cut=cut)
        self._wall_ms = 0

    def see(self, txn: Transaction) -> None:
        add = self._tally.add
        add(self._order.see(txn))
        self._receipts.hidden(txn.aborted)
        self._causes.begin(txn)
        touched: set[str] = set()
        for event in self._history.see(txn):
            touched.add(event.job)
            add(self._ticks.see(event))
            add(self._runs.see(event))
            add(self._causes.see(event))
            add(self._receipts.see(event))
        add(self._history.found)
        self._history.found.clear()
        add(self._runs.letters(txn))
        add(self._states.see(txn, touched))
        if txn.closed is not None:
            self._wall_ms = max(self._wall_ms, txn.closed.wall_ms)

    def end(self) -> None:
        add = self._tally.add
        add(self._order.end())
        add(self._ticks.end(self._wall_ms))
        add(self._causes.end(self._history.lines, settled=self._settled))
        add(self._receipts.end(settled=self._settled))
