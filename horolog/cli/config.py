"""`horolog config`: the settings that count here."""

from typing import TYPE_CHECKING, Annotated

import typer

from .frame import Format, Output, command, group
from .table import write_rows

if TYPE_CHECKING:
    from horolog.settings import Settings

app = group("The settings that count here, and where they come from.")


@command(app, "show")
def show(
    settings: "Settings",
    origin: Annotated[
        bool,
        typer.Option("--origin", help="Say where each value came from: a flag, the environment, "
                     "the settings file or the default."),
    ] = False,
    output: Output = Format.TABLE,
) -> None:  # fmt: skip
    """Show every setting. What may be secret is masked."""
    from horolog.origins import explain

    rows = [
        {"setting": one.name, "value": one.value} | ({"origin": one.origin} if origin else {})
        for one in explain(settings)
    ]
    write_rows(rows, ("setting", "value", "origin") if origin else ("setting", "value"), output)
