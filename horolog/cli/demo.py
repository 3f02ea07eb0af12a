"""`horolog demo`: see jobs fire, or have it checked."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .frame import FAILURE, Failure, command, say
from .up import end_on_signals

if TYPE_CHECKING:
    from horolog.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Make `demo` a command of `app`."""
    command(app, "demo", which=("bootstrap", "config"))(_demo)


def _demo(
    settings: "Settings",
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Run for about a minute, kill the scheduler and the workers once on the way, and "
            "judge every tick: one JSON line on stdout, exit code 0 only if none was early, lost, "
            "or doubled without a lost lease.",
        ),
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep all data in this folder.  [default: a temporary one]",
                     metavar="DIR"),
    ] = None,
) -> None:  # fmt: skip
    """See jobs of every kind fire: records, HTTP calls and Python functions, until Ctrl-C.

    Runs everything in a folder and under a namespace of its own; nothing stays.
    """
    from horolog.demo.jobs import DemoFailed

    try:
        if check:
            _check(settings, keep)
        else:
            from horolog.demo.showing import show

            show(settings, keep, say, end_on_signals())
    except DemoFailed as failed:
        raise Failure(str(failed)) from failed


def _check(settings: "Settings", keep: Path | None) -> None:
    """One JSON line, whatever comes; exit code 0 or 1."""
    import msgspec

    from horolog.demo.checking import check, report_line

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        report = check(settings, keep, say)
    except Exception as error:
        typer.echo(msgspec.json.encode({"ok": False, "error": str(error)}))
        raise Failure(f"the check could not be made: {error}") from error
    typer.echo(report_line(report))
    if not report.ok:
        raise typer.Exit(FAILURE)
