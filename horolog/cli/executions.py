"""`horolog execution`: what became of each tick."""

from typing import TYPE_CHECKING, Annotated

import typer

from .asking import CommandId, Note, Wait, answer, send
from .frame import NOT_FOUND, USAGE, Failure, Format, Output, Tenant, command, group
from .table import write_one, write_rows

if TYPE_CHECKING:
    from horolog.settings import Settings

app = group("Executions: what became of each tick, and why.")

ExecutionId = Annotated[
    str, typer.Argument(metavar="EXECUTION", help="Its id, or its occurrence key.")
]


@command(app, "list")
def list_executions(
    settings: "Settings",
    job: Annotated[str | None, typer.Option(help="Only this job's.", metavar="JOB")] = None,
    state: Annotated[
        str | None,
        typer.Option(
            help="Only those that are QUEUED, PENDING, RUNNING, SUCCEEDED, FAILED, DEAD, "
            "CANCELLED, SKIPPED or MISSED.", metavar="STATE",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(help="At most so many.", min=1, max=10_000, metavar="N")
    ] = 20,
    tenant: Tenant = None,
    output: Output = Format.TABLE,
) -> None:  # fmt: skip
    """List the newest executions first. A run of missed ticks is one line with their number."""
    from api.shown_executions import execution_row
    from projections.executions import TERMINAL, WAITING

    from .reading import read_executions

    owner, wanted = tenant or settings.tenant, state.upper() if state else None
    known = (*WAITING, *TERMINAL)
    if wanted is not None and wanted not in known:
        raise Failure(f"--state {state!r} is no state", kind="usage", code=USAGE,
                      hint=f"one of {', '.join(known)}")  # fmt: skip
    view = read_executions(settings, owner, job, wanted, limit)
    found = view.executions(owner, job, state=wanted, limit=limit)
    rows = [execution_row(execution) for execution in found]
    columns = ["scheduled_at", "job", "state", "reason", "count", "claimed_at"]
    if any(row["pool"] for row in rows):
        columns += ["finished_at", "delivery", "worker"]
    columns.append("execution_id")
    if any(row["detail"] for row in rows):
        columns.append("detail")
    write_rows(rows, columns, output)


@command(app, "get")
def get(settings: "Settings", execution: ExecutionId, output: Output = Format.TABLE) -> None:
    """Show an execution as it stands, and everything that happened to it."""
    from api.shown_executions import execution_document, execution_lines

    from .reading import read_timeline

    timeline = read_timeline(settings, execution)
    if timeline.row is None:
        raise _unknown(execution)
    document = execution_document(timeline)
    write_one(execution_lines(document) if output is Format.TABLE else document, output)


@command(app, "cancel")
def cancel(
    settings: "Settings",
    execution: ExecutionId,
    note: Note = "",
    command_id: CommandId = "",
    wait: Wait = 30.0,
    output: Output = Format.TABLE,
) -> None:
    """End an execution: at once while it waits, else its worker is told to stop it.

    What runs already may still be finishing; its job's next run waits until it has.
    """
    from schemas.commands import CancelExecution

    from .reading import job_of

    tenant, job = job_of(execution)
    asked = CancelExecution(
        tenant=tenant, job=job, execution_id=execution, note=note, command_id=command_id
    )
    told = send(settings, asked, wait)
    answer(told, output, "cancelled", of=getattr(told, "execution_id", ""))


def _unknown(execution: str) -> Failure:
    return Failure(
        f"there is no execution {execution}", kind="not_found", code=NOT_FOUND,
        hint="`horolog execution list` lists them; they are kept for 30 days",
    )  # fmt: skip
