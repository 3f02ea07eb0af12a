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


@command(app, "gateway")
def gateway(
    settings: "Settings",
    host: Annotated[
        str | None,
        typer.Option(help="Address to answer at.  [default: 127.0.0.1]", metavar="ADDRESS"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port; 0 is any that is free.  [default: 8765]", metavar="PORT",
                     min=0, max=65_535),
    ] = None,
    insecure_without_auth: Annotated[
        bool,
        typer.Option("--insecure-without-auth", help="Answer at an address that others reach, "
                     "although anybody who does may change, run and end every job."),
    ] = False,
) -> None:  # fmt: skip
    """Answer REST requests and show the page, until SIGTERM or Ctrl-C.

    It asks nobody who he is, so it answers this machine only unless it is told otherwise in plain
    words. Any number of gateways may run beside each other.
    """
    from horolog import gateway_process

    given = {"host": host, "port": port, "insecure_without_auth": insecure_without_auth or None}
    changed = {name: value for name, value in given.items() if value is not None}
    at = settings.gateway.model_copy(update=changed)
    gateway_process.run(settings.model_copy(update={"gateway": at}), bootstrap_of(settings))


@command(app, "slots")
def slots(settings: "Settings", member: Member = None) -> None:
    """Run a slots processor, which shares the workers' places out between the schedulers.

    One is enough; several share the limits between them, and each needs a name of its own. While
    none runs, schedulers go on with the places they hold.
    """
    from horolog import slots_process

    slots_process.run(settings, bootstrap_of(settings), member=member)
