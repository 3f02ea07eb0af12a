"""`horolog import`: other programs' tables as files for `apply`. Nothing is ever written."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .frame import FAILURE, USAGE, Failure, Format, Output, command, group, say
from .table import write_rows

if TYPE_CHECKING:
    from horolog.importers.crontab import Crontab

app = group("Read other programs' schedules; print files for `apply`, never write anything.")


@app.callback()
def _group() -> None:
    """Read other programs' schedules; print files for `apply`, never write anything."""


@command(app, "crontab")
def crontab_file(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A crontab; - for standard input.")
    ],
    worker: Annotated[
        str | None,
        typer.Option(help="Handler that runs the commands; its payload is command, user, "
                     "environment and stdin.", metavar="HANDLER"),
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="Pool of that handler.", metavar="POOL")
    ] = None,
    http: Annotated[
        str | None, typer.Option(help="Endpoint that is called with that payload.", metavar="URL")
    ] = None,
    user_column: Annotated[
        bool | None,
        typer.Option("--user-column/--no-user-column",
                     help="Whether a user stands before each command.  [default: in "
                     "/etc/crontab and in folders named cron.d]"),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(help="Zone of lines under no CRON_TZ: that of the machine whose table it is.  "
                     "[default: UTC]", metavar="ZONE"),
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="What the ids of the jobs begin with.", metavar="TEXT")
    ] = "",
    output: Output = Format.TABLE,
) -> None:  # fmt: skip
    """Print the lines of a crontab as jobs, in YAML for `apply`; without a target list them.

    Lines that cannot be scheduled are told on stderr, with their number and the reason; the exit
    code is then 1. The others are printed all the same.
    """
    from horolog.importers.crontab import parse_crontab

    _check_options(worker, pool, http, timezone, prefix)
    text = _read(file)
    if user_column is None:
        user_column = _has_user_column(file)
        kind = "has a user before each command" if user_column else "has no user column"
        say(f"note: read as a table that {kind}; --user-column and --no-user-column say which")
    crontab = parse_crontab(text, user_column=user_column)
    zone = timezone or "UTC"
    if timezone is None and any(entry.timezone is None for entry in crontab.entries):
        say("note: times without CRON_TZ are read as UTC; cron reads them on its machine's clock: "
            "--timezone names it")  # fmt: skip
    for warning in crontab.warnings:
        say(f"warning: {warning}")
    for entry in crontab.entries:
        for warning in entry.warnings:
            say(f"warning: line {entry.line_no}: {entry.expression!r}: {warning}")
    if worker is None and http is None:
        _list(crontab, zone, output)
    else:
        _print_jobs(crontab, _target(worker, pool, http), zone, prefix, output)
    if crontab.problems:
        raise _not_scheduled(crontab)


def _check_options(
    worker: str | None, pool: str | None, http: str | None, timezone: str | None, prefix: str
) -> None:
    from processors.core.admission import JOB_CHARS
    from processors.core.zones import PINNED, UnknownZone

    if worker is not None and http is not None:
        raise Failure("two targets are given", hint="--worker or --http", kind="usage", code=USAGE)
    if pool is not None and worker is None:
        raise Failure("--pool goes with --worker", kind="usage", code=USAGE)
    foreign = next((one for one in prefix if one not in JOB_CHARS), None)
    if foreign is not None or prefix[:1] in (".", "~"):
        raise Failure(f"no job id begins with {prefix!r}", hint="A-Z a-z 0-9 . _ ~ -, and neither "
                      ". nor ~ first", kind="usage", code=USAGE)  # fmt: skip
    if timezone is not None:
        try:
            PINNED.zone(timezone)
        except UnknownZone as unknown:
            raise Failure(f"--timezone {timezone!r} {unknown.message}", hint=unknown.hint,
                          kind="usage", code=USAGE) from None  # fmt: skip


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}", kind="usage",
                      code=USAGE) from error  # fmt: skip
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Failure(f"{file} is no UTF-8 text: line {line} has the byte "
                      f"0x{data[error.start]:02x}") from error  # fmt: skip


def _has_user_column(file: str) -> bool:
    path = Path(file)
    return path.parent.name == "cron.d" or path.absolute() == Path("/etc/crontab")


def _target(worker: str | None, pool: str | None, http: str | None) -> dict[str, Any]:
    if http is not None:
        return {"http": {"url": http}}
    return {"worker": {"handler": worker} | ({"pool": pool} if pool is not None else {})}


def _list(crontab: "Crontab", zone: str, output: Format) -> None:
    from horolog.importers.crontab_jobs import payload_of

    rows = [
        {"line": entry.line_no, "cron": entry.expression, "timezone": entry.timezone or zone,
         **payload_of(entry)}
        for entry in crontab.entries
    ]  # fmt: skip
    if output is Format.TABLE:
        for row in rows:
            if "stdin" in row:
                row["stdin"] = row["stdin"].replace("\n", "\\n")
    columns = ["line", "cron", "timezone", "user", "command", "stdin"]
    used = [c for c in columns if any(row.get(c) is not None for row in rows)]
    write_rows(rows, used or columns[:3], output)


def _print_jobs(
    crontab: "Crontab", target: dict[str, Any], zone: str, prefix: str, output: Format
) -> None:
    from horolog.importers.crontab_jobs import jobs_of
    from horolog.importers.yaml_text import to_yaml

    documents = jobs_of(crontab, target, timezone=zone, prefix=prefix)
    if output is not Format.TABLE:
        write_rows(documents, (), output)
        return
    sys.stdout.write("---\n".join(to_yaml(document) for document in documents))


def _not_scheduled(crontab: "Crontab") -> Failure:
    from schemas.replies import Problem

    count = len(crontab.problems)
    problems = [
        Problem(f"line {p.line_no}", f"{p.line.strip()!r} {p.reason}") for p in crontab.problems
    ]
    lines = "line" if count == 1 else "lines"
    return Failure(f"{count} {lines} cannot be scheduled", kind="invalid", code=FAILURE,
                   problems=problems)  # fmt: skip
