"""`horolog job`: everything about jobs."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import patching
from .asking import CommandId, IfMatch, Note, Wait, answer, send
from .frame import (
    NOT_FOUND,
    USAGE,
    Failure,
    Format,
    JobId,
    Output,
    Tenant,
    command,
    group,
)
from .table import write_one, write_rows

if TYPE_CHECKING:
    from horolog.settings import Settings

app = group("Jobs: what is to run and when.")


@command(app, "put")
def put(
    settings: "Settings",
    job: JobId,
    cron: Annotated[
        list[str] | None,
        typer.Option(help="Five fields, or six with seconds first.", metavar="FIELDS"),
    ] = None,
    timezone: Annotated[
        list[str] | None,
        typer.Option(help="Zone of --cron and local --at, as Europe/Paris.  [default: UTC]",
                     metavar="ZONE"),
    ] = None,
    every: Annotated[
        list[str] | None,
        typer.Option(help="Elapsed time between ticks, as 10s or 1h30m.", metavar="DURATION"),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="Once, as 2030-01-01T09:00:00+01:00, or local with --timezone.",
                     metavar="INSTANT"),
    ] = None,
    in_: Annotated[
        list[str] | None,
        typer.Option("--in", help="Once, so long after the acceptance.", metavar="DURATION"),
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Once, at once.")] = False,
    topic: Annotated[
        str | None, typer.Option(help="Kafka topic to fire into.", metavar="NAME")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Key of the records in that topic.", metavar="TEXT")
    ] = None,
    http: Annotated[
        str | None, typer.Option(help="URL to call; any 2xx is success.", metavar="URL")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Method of --http.  [default: POST]", metavar="METHOD")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(help="Time for the whole call of --http.  [default: 30s]",
                     metavar="DURATION"),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="Header of the record or call, as 'X-Region: eu'.",
                     metavar="NAME:VALUE"),
    ] = None,
    worker: Annotated[
        str | None,
        typer.Option(help="Handler of user code to run: a name that a worker has.",
                     metavar="HANDLER"),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(help="Pool of workers.  [default: default; of --http http]", metavar="POOL"),
    ] = None,
    payload: Annotated[
        str | None, typer.Option(help="What the record, call or handler gets.", metavar="JSON")
    ] = None,
    payload_file: Annotated[
        Path | None, typer.Option(help="A file whose bytes it gets.", metavar="FILE")
    ] = None,
    content_type: Annotated[
        str | None,
        typer.Option(help="Type of the payload.  [default: application/json; of a file that is "
                     "not named .json application/octet-stream]", metavar="TYPE"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Display name of the job.", metavar="TEXT")
    ] = None,
    late_tolerance: Annotated[
        str | None,
        typer.Option(help="How late a tick may be and simply run.  [default: 60s]",
                     metavar="DURATION"),
    ] = None,
    missed: Annotated[
        str | None,
        typer.Option(help="Which of the ticks that were passed over run.  [default: latest]",
                     metavar="latest|skip|all"),
    ] = None,
    missed_limit: Annotated[
        int | None,
        typer.Option(help="With --missed all: how many at most.  [default: 100]", metavar="N"),
    ] = None,
    start_deadline: Annotated[
        str | None,
        typer.Option(help="How late a tick may start at all.", metavar="DURATION"),
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="No tick before this instant.", metavar="INSTANT")
    ] = None,
    end: Annotated[
        str | None, typer.Option(help="No tick after this instant.", metavar="INSTANT")
    ] = None,
    max_runs: Annotated[
        int | None, typer.Option(help="Finished after so many ticks that ran.", metavar="N")
    ] = None,
    jitter: Annotated[
        str | None,
        typer.Option(help="Upper bound of the job's own delay.  [default: 0s]",
                     metavar="DURATION"),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="The whole definition as JSON; - is standard input.",
                     metavar="FILE"),
    ] = None,
    note: Note = "",
    if_match: IfMatch = None,
    command_id: CommandId = "",
    tenant: Tenant = None,
    wait: Wait = 30.0,
    output: Output = Format.TABLE,
) -> None:  # fmt: skip
    """Create a job or replace its definition. The same content changes nothing.

    Schedule options may be repeated and combined: a job has one to ten schedules.
    """
    from processors.exchange import JsonPut
    from schemas.replies import Refused

    from .definition import Written, complete_refusal, from_file, from_options

    written = Written(
        cron=cron or [], timezone=timezone or [], every=every or [], at=at or [], in_=in_ or [],
        now=now, topic=topic, key=key, http=http, method=method, timeout=timeout,
        header=header or [], worker=worker, pool=pool, payload=payload, payload_file=payload_file,
        content_type=content_type, name=name, late_tolerance=late_tolerance, missed=missed,
        missed_limit=missed_limit, start_deadline=start_deadline, start=start, end=end,
        max_runs=max_runs, jitter=jitter,
    )  # fmt: skip
    if file is not None and not written.nothing:
        raise Failure("--file holds the whole definition", kind="usage", code=USAGE,
                      hint="leave out the options that say what is in it")  # fmt: skip
    definition = from_file(file) if file is not None else from_options(written)
    asked = JsonPut(
        tenant=tenant or settings.tenant, job=job, definition=definition, note=note,
        if_match=if_match, command_id=command_id,
    )  # fmt: skip
    told = send(settings, asked, wait)
    if isinstance(told, Refused) and told.kind == "invalid":
        told = complete_refusal(told, definition, time.time_ns() // 1_000_000)
    answer(told, output, "accepted")


patching.add_to(app)


@command(app, "get")
def get(
    settings: "Settings", job: JobId, tenant: Tenant = None, output: Output = Format.TABLE
) -> None:
    """Show a job: its definition with every default, how it stands, its next runs."""
    from api.shown import job_document, job_lines

    from .reading import read_jobs

    owner = tenant or settings.tenant
    view = read_jobs(settings, owner, job).job(owner, job)
    if view is None:
        raise Failure(f"there is no job {owner}/{job}", kind="not_found", code=NOT_FOUND,
                      hint=f"`horolog job list --tenant {owner}` lists the jobs")  # fmt: skip
    document = job_document(view)
    write_one(job_lines(document) if output is Format.TABLE else document, output)


@command(app, "list")
def list_jobs(
    settings: "Settings",
    state: Annotated[
        str | None,
        typer.Option(help="Only those that are ACTIVE, PAUSED, FINISHED or BROKEN.",
                     metavar="STATE"),
    ] = None,
    tenant: Tenant = None,
    output: Output = Format.TABLE,
) -> None:  # fmt: skip
    """List the tenant's jobs by id."""
    from api.shown import job_row, schedule_text

    from .reading import read_jobs

    owner = tenant or settings.tenant
    rows = [
        job_row(view)
        for view in read_jobs(settings, owner).jobs(owner)
        if state is None or view.state.status == state.upper()
    ]
    if output is Format.TABLE:
        for row in rows:
            row["schedules"] = "; ".join(schedule_text(form) for form in row["schedules"])
    columns = ["job", "state", "version", "next_run", "schedules", "target", "open", "runs", "name"]
    write_rows(rows, columns, output)


@command(app, "delete")
def delete(
    settings: "Settings",
    job: JobId,
    note: Note = "",
    if_match: IfMatch = None,
    command_id: CommandId = "",
    tenant: Tenant = None,
    wait: Wait = 30.0,
    output: Output = Format.TABLE,
) -> None:
    """End a job. Its id may be used again at once; its history stays."""
    from schemas.commands import DeleteJob

    asked = DeleteJob(
        tenant=tenant or settings.tenant, job=job, note=note, if_match=if_match,
        command_id=command_id,
    )  # fmt: skip
    answer(send(settings, asked, wait), output, "deleted")


@command(app, "pause")
def pause(
    settings: "Settings",
    job: JobId,
    note: Note = "",
    if_match: IfMatch = None,
    command_id: CommandId = "",
    tenant: Tenant = None,
    wait: Wait = 30.0,
    output: Output = Format.TABLE,
) -> None:
    """No ticks from now on, until `resume`. Triggers work."""
    from schemas.commands import PauseJob

    asked = PauseJob(
        tenant=tenant or settings.tenant, job=job, note=note, if_match=if_match,
        command_id=command_id,
    )  # fmt: skip
    answer(send(settings, asked, wait), output, "paused")


@command(app, "resume")
def resume(
    settings: "Settings",
    job: JobId,
    note: Note = "",
    if_match: IfMatch = None,
    command_id: CommandId = "",
    tenant: Tenant = None,
    wait: Wait = 30.0,
    output: Output = Format.TABLE,
) -> None:
    """Ticks again, from now on. Also takes a BROKEN job back into service."""
    from schemas.commands import ResumeJob

    asked = ResumeJob(
        tenant=tenant or settings.tenant, job=job, note=note, if_match=if_match,
        command_id=command_id,
    )  # fmt: skip
    answer(send(settings, asked, wait), output, "resumed")


@command(app, "trigger")
def trigger(
    settings: "Settings",
    job: JobId,
    payload: Annotated[
        str | None, typer.Option(help="Instead of the job's own payload.", metavar="JSON")
    ] = None,
    scheduled_at: Annotated[
        str | None, typer.Option(help="Nominal time of the run.  [default: now]", metavar="INSTANT")
    ] = None,
    note: Note = "",
    command_id: CommandId = "",
    tenant: Tenant = None,
    wait: Wait = 30.0,
    output: Output = Format.TABLE,
) -> None:
    """Run a job once, now, beside its schedule; also one that is paused or finished."""
    import msgspec

    from schemas.commands import TriggerJob

    data: bytes | None = None
    if payload is not None:
        try:
            data = msgspec.json.encode(msgspec.json.decode(payload))
        except msgspec.DecodeError as error:
            raise Failure(f"--payload is no JSON: {error}", kind="usage", code=USAGE,
                          hint="a text needs quotes: '\"hello\"'") from error  # fmt: skip
    asked = TriggerJob(
        tenant=tenant or settings.tenant, job=job, payload=data, scheduled_at=scheduled_at,
        note=note, command_id=command_id,
    )  # fmt: skip
    answer(send(settings, asked, wait), output, "triggered")
