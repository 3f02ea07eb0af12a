"""`horolog broker`: the embedded Kafka."""

import os
from typing import TYPE_CHECKING

from .frame import FAILURE, Failure, Format, Output, command, group, say
from .table import write_one

if TYPE_CHECKING:
    from horolog.settings import Settings

app = group("The embedded Kafka: one node, on this machine only.")


@command(app, "start", which=("data", "config"))
def start(settings: "Settings", output: Output = Format.TABLE) -> None:
    """Start the data folder's broker and wait until it is ready. It goes on in the background."""
    from horolog.broker import server

    _refuse_external("started")
    handle = server.start(settings.broker_dir, log=say, outlive_caller=True)
    write_one(
        {
            "bootstrap": handle.bootstrap,
            "pid": handle.pid,
            "cluster_id": handle.cluster_id,
            "data": str(handle.data_dir),
            "started": handle.started,
        },
        output,
    )


@command(app, "stop", which=("data", "config"))
def stop(settings: "Settings") -> None:
    """Stop the data folder's broker. Fine if none runs."""
    from horolog.broker import server

    was_running = server.stop(settings.broker_dir)
    say("the broker has stopped" if was_running else f"no broker runs in {settings.broker_dir}")


@command(app, "status", which=("data", "config"))
def status(settings: "Settings", output: Output = Format.TABLE) -> None:
    """Say how the data folder's broker is. Exit code 1 unless it is ready."""
    import typer

    from horolog.broker import server

    found = server.status(settings.broker_dir)
    state = "ready" if found.ready else "not ready" if found.running else "stopped"
    write_one(
        {
            "state": state,
            "bootstrap": found.bootstrap,
            "pid": found.pid,
            "cluster_id": found.cluster_id,
            "data": str(found.data_dir),
            "log_file": str(found.log_file),
        },
        output,
    )
    if not found.ready:
        raise typer.Exit(FAILURE)


def _refuse_external(done: str) -> None:
    from horolog.broker import server

    external = server.external_bootstrap(os.environ)
    if external is not None:
        raise Failure(
            f"KAFKA_BOOTSTRAP_SERVERS is {external}: that Kafka is used, and none is {done}",
            hint="unset KAFKA_BOOTSTRAP_SERVERS for the embedded one",
        )
