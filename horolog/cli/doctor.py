"""`horolog doctor`: is everything as it should be?"""

from typing import TYPE_CHECKING

import typer

from .frame import FAILURE, Format, Output, command

if TYPE_CHECKING:
    from horolog.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Make `doctor` a command of `app`."""
    command(app, "doctor")(_doctor)


def _doctor(settings: "Settings", output: Output = Format.TABLE) -> None:
    """Look the installation over: a line for each thing that was looked at.

    Exit code 1 if something is wrong. A warning is something to know that stops nothing.
    """
    import msgspec

    from horolog.doctor import examine

    from .table import write_rows

    wrong = False
    rows = []
    for finding in examine(settings):
        wrong |= finding.state == "wrong"
        if output is Format.TABLE:
            hint = f"; {finding.hint}" if finding.hint else ""
            typer.echo(f"{finding.state:<8} {finding.check}: {finding.told}{hint}")
        else:
            rows.append(msgspec.structs.asdict(finding))
    if output is not Format.TABLE:
        write_rows(rows, (), output)
    if wrong:
        raise typer.Exit(FAILURE)
