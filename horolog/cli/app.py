"""Every command in one tree."""

import typer

from . import (
    audit,
    broker,
    config,
    cron,
    demo,
    doctor,
    executions,
    importing,
    jobs,
    run,
    topics,
    up,
    worker,
)  # fmt: skip
from .frame import EXIT_CODES, command, group

app = group("Horolog runs jobs on time, from a Kafka log. Everything else follows from that log.")
_help = group("More about the command itself.")

app.add_typer(jobs.app, name="job")
app.add_typer(executions.app, name="execution")
app.add_typer(cron.app, name="cron")
app.add_typer(importing.app, name="import")
app.add_typer(run.app, name="run")
app.add_typer(broker.app, name="broker")
app.add_typer(topics.app, name="topics")
app.add_typer(config.app, name="config")
doctor.add_to(app)
audit.add_to(app)
worker.add_to(app, run.app)
up.add_to(app)
demo.add_to(app)


@command(app, "version")
def _version() -> None:
    """Say which version this is."""
    from importlib.metadata import version

    typer.echo(f"horolog {version('horolog-server')}")


@command(_help, "exit-codes")
def _exit_codes() -> None:
    """Say what each exit code means."""
    for code, meaning in EXIT_CODES.items():
        typer.echo(f"{code:>3}  {meaning}")


app.add_typer(_help, name="help")
