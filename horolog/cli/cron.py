"""`horolog cron`: what a schedule will do, without any Kafka."""

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .frame import FAILURE, USAGE, Failure, Format, Output, command, group
from .table import write_one, write_rows

if TYPE_CHECKING:
    from processors.core.problem import InvalidSchedule

app = group("What a schedule will do.")


@command(app, "next")
def next_ticks(
    cron: Annotated[
        str | None, typer.Argument(metavar="[CRON]", help="Five fields, or six with seconds first.")
    ] = None,
    timezone: Annotated[
        str, typer.Option(help="Zone whose clock it follows.", metavar="ZONE")
    ] = "UTC",
    every: Annotated[
        str | None, typer.Option(help="Instead of a cron: elapsed time.", metavar="DURATION")
    ] = None,
    after: Annotated[
        str | None, typer.Option(help="Ticks after this instant.  [default: now]",
                                 metavar="INSTANT")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="How many.", min=1, max=1_000, metavar="N")
    ] = 5,
    stdin: Annotated[
        bool,
        typer.Option("--stdin", help='Answer JSON lines such as {"cron": "0 2 * * *", "timezone": '
                     '"Europe/Paris", "after": "2026-03-28T00:00:00Z", "count": 3}, each by one.'),
    ] = False,
    output: Output = Format.TABLE,
) -> None:  # fmt: skip
    """List the next ticks of a schedule, with a remark where the clock changes."""
    import msgspec

    from processors.core.preview import cron_next_line, preview
    from processors.core.problem import InvalidSchedule
    from processors.core.schedule_input import read_schedule, schedule_warnings
    from schemas.units import Unreadable, parse_instant

    from .frame import say

    now_ms = time.time_ns() // 1_000_000
    if stdin:
        for line in sys.stdin:
            if line.strip():
                sys.stdout.write(f"{cron_next_line(line, default_after_ms=now_ms)}\n")
                sys.stdout.flush()
        return
    if (cron is None) == (every is None):
        raise Failure("one schedule is needed", kind="usage", code=USAGE,
                      hint="a cron such as '0 9 * * 1-5', or --every 10m, or --stdin")  # fmt: skip
    try:
        after_ms = parse_instant(after) if after is not None else now_ms
        written: dict[str, object] = (
            {"every": every} if cron is None else {"cron": cron, "timezone": timezone}
        )
        schedule = read_schedule(written, accepted_ms=after_ms, field="")
    except Unreadable as error:
        raise Failure(f"--after {error.value!r} {error.message}", hint=error.hint, kind="usage",
                      code=USAGE) from error  # fmt: skip
    except InvalidSchedule as invalid:
        raise _invalid("the schedule is not valid", invalid) from invalid
    for warning in schedule_warnings((schedule,)):
        say(f"warning: {warning}")
    rows = [
        msgspec.structs.asdict(tick)
        for tick in preview((schedule,), after_ms, count, display_zone=timezone)
    ]
    columns = ["at", "local", "offset", "zone", "notes"]
    if output is Format.TABLE:
        for row in rows:
            row["notes"] = "; ".join(row["notes"])
        if not any(row["notes"] for row in rows):
            columns.remove("notes")
    write_rows(rows, columns, output)


class Dialect(StrEnum):
    """Whose cron expressions are read."""

    HOROLOG = "horolog"
    QUARTZ = "quartz"
    AWS = "aws"


@command(app, "explain")
def explain(
    cron: Annotated[
        str, typer.Argument(metavar="CRON", help="The expression, in quotes.")
    ],
    timezone: Annotated[
        str, typer.Option(help="Zone whose clock it follows.", metavar="ZONE")
    ] = "UTC",
    dialect: Annotated[
        Dialect,
        typer.Option(help="Read it as this program does, and say how Horolog writes it.",
                     metavar="horolog|quartz|aws"),
    ] = Dialect.HOROLOG,
    output: Output = Format.TABLE,
) -> None:  # fmt: skip
    """Say in words when an expression fires."""
    from processors.core.cron_dialects import explain_dialect
    from processors.core.cron_text import describe_cron
    from processors.core.problem import InvalidSchedule
    from processors.core.schedule_input import read_schedule, schedule_warnings

    notes: tuple[str, ...] = ()
    try:
        if dialect is not Dialect.HOROLOG:
            converted = explain_dialect(cron, "aws" if dialect is Dialect.AWS else "quartz")
            cron, notes = converted.expression, converted.notes
        written = {"cron": cron, "timezone": timezone}
        schedule = read_schedule(written, accepted_ms=time.time_ns() // 1_000_000, field="")
        words = describe_cron(cron, timezone)
    except InvalidSchedule as invalid:
        raise _invalid("the expression cannot be read", invalid) from invalid
    told = dict.fromkeys((*notes, *schedule_warnings((schedule,))))
    write_one({"cron": cron, "fires": words, "notes": list(told)}, output)


def _invalid(message: str, invalid: "InvalidSchedule") -> Failure:
    from schemas.replies import Problem

    problems = [Problem(p.field, f"{p.value!r} {p.message}", p.hint) for p in invalid.problems]
    return Failure(message, kind="invalid", code=FAILURE, problems=problems)
