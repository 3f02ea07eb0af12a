"""What an audit says: of each check how much it looked at, and what it found wrong."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

SHOWN_MAX: Final = 20
"""Violations of one check that are told in full; the others are counted."""

CHECKS: Final[Mapping[str, str]] = {
    "I1": "nothing is decided, started or received before its time",
    "I2": "an occurrence is claimed once",
    "I3": "every tick of an accepted, active job is covered by exactly one record",
    "I4": "a job's executions do not overlap, and only what overlaps is skipped",
    "I5": "attempts and lost leases stay within bounds; one dead letter for each that failed",
    "I6": "epochs, transactions, positions and fencing numbers only grow",
    "I7": "one lease at a time; deliveries count up, and only the holder renews",
    "I8": "a terminal state never changes",
    "I9": "after a pause, cancel or delete nothing new is decided or leased",
    "I10": "of every transaction all records are visible, and none of an aborted one",
    "I11": "a job's events lead from each of its states to the next",
    "I12": "a job's events have gapless sequence numbers",
    "I13": "every event belongs to its job, and every change to a command about that job",
    "I14": "records and what they hold stay within declared bounds",
    "I15": "a command id takes effect once within its hour",
    "I16": "a deleted job never comes back, and a later life decides no tick twice",
    "lost-write": "what was accepted has its effect in the log",
    "aborted-read": "nobody received what no committed transaction wrote",
    "targets": "every run has a distinct receipt, and every receipt a run",
}
"""What can be checked, by id; the ids are those of the invariants in the documentation."""

NOT_CHECKED: Final[Mapping[str, str]] = {
    "I17": "caps of tenants and exclusion groups are not built yet",
    "I11-index": "stores and their indexes are not in the log; a restore rebuilds both from it",
    "I14-memory": "sizes in a process's memory are not in the log; see its own figures",
}
"""What cannot be checked by the log, and why."""

State = Literal["ok", "violated", "nothing to check"]


class Violation(msgspec.Struct, frozen=True):
    """One broken invariant: which, by which record (topic-partition@offset, or file:line), how."""

    check: str
    where: str
    what: str


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One check: how many things were looked at, how many were wrong, and the first of those."""

    check: str
    says: str
    state: State
    checked: int
    violations: int
    shown: tuple[Violation, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole audit. `unjudged` says, by reason, what could not be judged by what is retained."""

    ok: bool
    partitions: int
    records: int
    transactions: int
    receipts: int
    results: tuple[CheckResult, ...]
    not_checked: Mapping[str, str]
    unjudged: Mapping[str, int]


class Tally:
    """Counts what was checked and keeps the first violations of each check."""

    def __init__(self) -> None:
        self.checked: dict[str, int] = dict.fromkeys(CHECKS, 0)
        self.violations: dict[str, int] = dict.fromkeys(CHECKS, 0)
        self.shown: dict[str, list[Violation]] = {check: [] for check in CHECKS}
        self.unjudged: dict[str, int] = {}

    def count(self, check: str, things: int = 1) -> None:
        """So many more things were looked at."""
        self.checked[check] += things

    def add(self, violations: Iterable[Violation]) -> None:
        """Take what a checker found."""
        for violation in violations:
            self.violations[violation.check] += 1
            if len(self.shown[violation.check]) < SHOWN_MAX:
                self.shown[violation.check].append(violation)

    def leave_out(self, reason: str, things: int = 1) -> None:
        """So many things could not be judged, for this reason."""
        self.unjudged[reason] = self.unjudged.get(reason, 0) + things

    def report(
        self, *, partitions: int, records: int, transactions: int, receipts: int
    ) -> Report:  # fmt: skip
        """Everything so far."""
        return Report(
            ok=not any(self.violations.values()), partitions=partitions, records=records,
            transactions=transactions, receipts=receipts,
            results=tuple(self._result(check, says) for check, says in CHECKS.items()),
            not_checked=NOT_CHECKED, unjudged=dict(self.unjudged),
        )  # fmt: skip

    def _result(self, check: str, says: str) -> CheckResult:
        checked, violations = self.checked[check], self.violations[check]
        state: State = "violated" if violations else "ok" if checked else "nothing to check"
        return CheckResult(
            check=check, says=says, state=state, checked=checked, violations=violations,
            shown=tuple(self.shown[check]),
        )  # fmt: skip
