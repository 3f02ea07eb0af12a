"""`horolog audit`: does the log keep what is promised?"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .frame import FAILURE, USAGE, Failure, Format, Output, command, open_log, say

if TYPE_CHECKING:
    from horolog.settings import Settings
    from projections.audit.finding import Report

PROGRESS_S: Final = 2.0

Receipts = Annotated[
    list[Path] | None,
    typer.Option(help="JSON lines that an instrumented target wrote, one a run that it saw.",
                 metavar="FILE"),
]  # fmt: skip
ClientLog = Annotated[
    list[Path] | None,
    typer.Option(help="JSON lines of acknowledged commands, as `-o jsonl` writes them.",
                 metavar="FILE"),
]  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Make `audit` a command of `app`."""
    command(app, "audit")(_audit)


def _audit(
    settings: "Settings",
    receipts: Receipts = None,
    client_log: ClientLog = None,
    output: Output = Format.TABLE,
) -> None:
    """Check by the log alone that every promise was kept: a line for each invariant.

    Reads topics only, never a scheduler's store, and may be run beside a live system. With
    --receipts also that what ran was received, in time and as often as it was delivered; with
    --client-log that what was acknowledged is there. Exit code 1 if something is violated, 2 if a
    file cannot be read.
    """
    import msgspec

    from horolog.client import NoTopics
    from processors.core.zones import PINNED
    from projections.audit.audit import NoLog, audit
    from projections.audit.lines import BadLine, read_client_log, read_receipts

    from .table import write_one

    try:
        seen = [one for path in receipts or () for one in read_receipts(*_lines(path))]
        answers = [one for path in client_log or () for one in read_client_log(*_lines(path))]
    except (BadLine, OSError) as error:
        raise Failure(str(error), kind="usage", code=USAGE) from error
    progress = _Progress()
    try:
        report = audit(
            open_log(settings), settings.namespace, receipts=seen, acknowledged=answers,
            tz=PINNED.version, progress=progress.tell,
        )  # fmt: skip
    except NoLog as error:
        raise NoTopics(str(error)) from error
    if output is Format.TABLE:
        _write(report)
    else:
        write_one(msgspec.structs.asdict(report), output)
    if not report.ok:
        raise typer.Exit(FAILURE)


def _lines(path: Path) -> tuple[str, list[bytes]]:
    return str(path), path.read_bytes().splitlines()


def _write(report: "Report") -> None:
    """A table of the checks, then what was found, then what could not be judged."""
    import msgspec

    from .table import write_rows

    rows: list[dict[str, Any]] = [msgspec.structs.asdict(result) for result in report.results]
    rows += [
        {"check": check, "state": "not checkable", "checked": 0, "violations": 0, "says": why}
        for check, why in report.not_checked.items()
    ]
    write_rows(rows, ("check", "state", "checked", "violations", "says"), Format.TABLE)
    for result in report.results:
        for violation in result.shown:
            sys.stdout.write(f"{violation.check} violated by {violation.where}: {violation.what}\n")
        if result.violations > len(result.shown):
            more = result.violations - len(result.shown)
            sys.stdout.write(f"{result.check} violated by {more} more\n")
    for reason, count in sorted(report.unjudged.items()):
        say(f"not judged: {count} {reason}")
    say(
        f"{report.transactions} transactions and {report.records} records in {report.partitions} "
        f"partitions, {report.receipts} receipts: " + ("clean" if report.ok else "violated")
    )


class _Progress:
    """Says how far it is, from time to time."""

    def __init__(self) -> None:
        self._said_s = time.monotonic()

    def tell(self, partition: int, partitions: int, records: int) -> None:
        """Called after each portion."""
        now_s = time.monotonic()
        if now_s - self._said_s >= PROGRESS_S:
            self._said_s = now_s
            say(f"partition {partition + 1} of {partitions}, {records} records read")
