"""`horolog run`: services in the foreground."""

from typing import TYPE_CHECKING, Annotated

import typer

from .frame import bootstrap_of, command, group

if TYPE_CHECKING:
    from horolog.settings import Settings

app = group("Run a service in the foreground, logging to stderr.")

Member = Annotated[
    str | None,
    typer.Option(
        "--member", metavar="NAME", help="Name of this process: unique among those that run, the "
        "same after a restart.  [default: name of the host]",
    ),
]  # fmt: skip


@command(app, "scheduler")
def scheduler(settings: "Settings", member: Member = None) -> None:
    """Run a scheduler until SIGTERM or Ctrl-C, which it answers within 10 seconds.

    It refuses to start on topics that are missing or wrong, and says why. Several schedulers share
    the partitions between them; each needs a name of its own.
    """
    from horolog import scheduler_process

    scheduler_process.run(settings, bootstrap_of(settings), member=member)


@command(app, "slots")
def slots(settings: "Settings", member: Member = None) -> None:
    """Run a slots processor, which shares the workers' places out between the schedulers.

    One is enough; several share the limits between them, and each needs a name of its own. While
    none runs, schedulers go on with the places they hold.
    """
    from horolog import slots_process

    slots_process.run(settings, bootstrap_of(settings), member=member)
