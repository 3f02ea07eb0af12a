"""`horolog run`: services in the foreground."""

from typing import TYPE_CHECKING, Annotated

import typer

from .frame import bootstrap_of, command, group

if TYPE_CHECKING:
    from horolog.settings import Settings

app = group("Run a service in the foreground, logging to stderr.")


@command(app, "scheduler")
def scheduler(
    settings: "Settings",
    member: Annotated[
        str | None,
        typer.Option(
            "--member", metavar="NAME", help="Name of this process: unique among those that run, "
            "the same after a restart.  [default: name of the host]",
        ),
    ] = None,
    until_stdin_ends: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:  # fmt: skip
    """Run a scheduler until SIGTERM or Ctrl-C, which it answers within 10 seconds.

    It refuses to start on topics that are missing or wrong, and says why. Several schedulers share
    the partitions between them; each needs a name of its own.
    """
    from horolog import scheduler_process

    scheduler_process.run(
        settings, bootstrap_of(settings), member=member, until_stdin_ends=until_stdin_ends
    )
