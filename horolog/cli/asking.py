"""Asking the scheduler for something, and telling what it answered."""

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from .frame import Format, open_log, refusal, say
from .table import write_one

if TYPE_CHECKING:
    from horolog.settings import Settings
    from processors.exchange import Sendable
    from schemas.replies import Accepted, Refused

Note = Annotated[str, typer.Option(help="Why; kept with the change.", metavar="TEXT")]
IfMatch = Annotated[
    int | None,
    typer.Option(help="Only if the job is at this version; 0: only if it does not exist.",
                 metavar="VERSION"),
]  # fmt: skip
CommandId = Annotated[
    str,
    typer.Option(help="A command with the same id takes effect once within an hour.",
                 metavar="ID"),
]  # fmt: skip
Wait = Annotated[
    float, typer.Option(help="Seconds to wait for the scheduler's answer.", metavar="SECONDS")
]


def send(settings: "Settings", asked: "Sendable", wait_s: float) -> "Accepted | Refused":
    """Send one command as this user and wait for what the scheduler says."""
    from horolog.client import KafkaClient

    with KafkaClient(open_log(settings), namespace=settings.namespace, by=_user()) as client:
        return client.send(asked, wait_s=wait_s)


def answer(told: "Accepted | Refused", output: Format, done: str, *, of: str = "") -> None:
    """Write the scheduler's yes, in words about `of` rather than the job if that is given; raises
    `Failure` for its no."""
    import msgspec

    from schemas.replies import Refused

    if isinstance(told, Refused):
        raise refusal(told)
    for warning in told.warnings:
        say(f"warning: {warning}")
    if output is not Format.TABLE:
        write_one(msgspec.structs.asdict(told), output)
        return
    again = ", as answered before under this command id" if told.repeated else ""
    run = f", execution {told.execution_id}" if told.execution_id else ""
    about = f"{told.tenant}/{told.job} {done}, version {told.version}{run}"
    typer.echo(f"{f'{of} {done}' if of else about}{again}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return ""
