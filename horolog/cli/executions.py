"""`horolog execution`: what became of each tick."""

from typing import TYPE_CHECKING, Annotated

import typer

from .frame import Format, Output, Tenant, command, group
from .table import write_rows

if TYPE_CHECKING:
    from horolog.settings import Settings

app = group("Executions: what became of each tick, and why.")


@command(app, "list")
def list_executions(
    settings: "Settings",
    job: Annotated[str | None, typer.Option(help="Only this job's.", metavar="JOB")] = None,
    state: Annotated[
        str | None,
        typer.Option(help="Only those that are SUCCEEDED, FAILED or MISSED.", metavar="STATE"),
    ] = None,
    limit: Annotated[
        int, typer.Option(help="At most so many.", min=1, max=10_000, metavar="N")
    ] = 20,
    tenant: Tenant = None,
    output: Output = Format.TABLE,
) -> None:
    """List the newest executions first. A run of missed ticks is one line with their number."""
    from .reading import read_executions
    from .shown import execution_row

    owner, wanted = tenant or settings.tenant, state.upper() if state else None
    view = read_executions(settings, owner, job, wanted, limit)
    found = view.executions(owner, job, state=wanted, limit=limit)
    rows = [execution_row(execution) for execution in found]
    columns = ["scheduled_at", "job", "state", "reason", "count", "claimed_at", "execution_id"]
    if any(row["detail"] for row in rows):
        columns.append("detail")
    write_rows(rows, columns, output)
