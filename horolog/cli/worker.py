"""`horolog worker` and `horolog run worker`: user code, and HTTP targets."""

from typing import TYPE_CHECKING, Annotated

import typer

from .frame import UNAVAILABLE, Failure, bootstrap_of, command

if TYPE_CHECKING:
    from horolog.sdk_settings import Where
    from horolog.settings import Settings

Name = Annotated[
    str, typer.Option(help="Name of this worker.  [default: name of the host]", metavar="NAME")
]
Drain = Annotated[
    float,
    typer.Option(help="How long runs may take to finish after SIGTERM.", metavar="SECONDS",
                 min=0.0, max=21_600.0),
]  # fmt: skip
UntilStdinEnds = Annotated[bool, typer.Option(hidden=True)]


def add_to(app: typer.Typer, run: typer.Typer) -> None:
    """Make `worker` a command of `app`, and another one of `run`."""
    command(app, "worker")(_worker)
    command(run, "worker")(_http_worker)


def _worker(
    settings: "Settings",
    application: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="Where the App is, as in jobs:app.")
    ],
    concurrency: Annotated[
        int, typer.Option(help="How many run at once.", min=1, max=10_000, metavar="N")
    ] = 20,
    processes: Annotated[
        int,
        typer.Option(help="Processes they share.  [default: one for each processor]", min=0,
                     metavar="N", show_default=False),
    ] = 0,
    pool: Annotated[str, typer.Option(help="Pool to work for.", metavar="NAME")] = "default",
    name: Name = "",
    drain_timeout: Drain = 30.0,
    register: Annotated[
        bool, typer.Option(help="Put the jobs that are declared with @app.schedule.")
    ] = True,
    until_stdin_ends: UntilStdinEnds = False,
) -> None:  # fmt: skip
    """Run the handlers of a Python application until SIGTERM or Ctrl-C.

    Then it takes nothing new, lets what runs finish, and hands back what does not; a second Ctrl-C
    does not wait. User code runs in processes of its own.
    """
    from horolog.monitor import watch_worker
    from horolog.worker_process import CannotRegister, WorkerOptions, run_application
    from workers.process import CannotLoad
    from workers.runtime import LogSilent

    options = WorkerOptions(
        name=name, pool=pool, places=concurrency, processes=processes,
        drain_ms=round(drain_timeout * 1_000), register=register,
        until_stdin_ends=until_stdin_ends,
    )  # fmt: skip
    _log_as("worker", settings)
    try:
        run_application(_where(settings), application, options, watch_worker(settings.monitor))
    except CannotLoad as error:
        raise Failure(f"{application} cannot be loaded: {error}") from error
    except CannotRegister as error:
        raise Failure(
            "declared jobs were refused: " + "; ".join(error.problems),
            hint="--no-register starts the worker without putting them",
        ) from error
    except LogSilent as error:
        raise Failure(str(error), kind="unavailable", code=UNAVAILABLE) from error


def _http_worker(
    settings: "Settings",
    concurrency: Annotated[
        int, typer.Option(help="How many calls at once.", min=1, max=10_000, metavar="N")
    ] = 200,
    pool: Annotated[str, typer.Option(help="Pool to work for.", metavar="NAME")] = "http",
    name: Name = "",
    drain_timeout: Drain = 30.0,
    until_stdin_ends: UntilStdinEnds = False,
) -> None:
    """Call the targets of HTTP jobs until SIGTERM or Ctrl-C.

    Only https to public addresses, unless HOROLOG_HTTP__ALLOWED_CIDRS and
    HOROLOG_HTTP__ALLOW_PLAIN_HTTP allow more.
    """
    from horolog.broker.probe import cluster_id_at
    from horolog.http_worker_process import HttpAllowed, run_http
    from horolog.monitor import watch_worker
    from horolog.worker_process import WorkerOptions
    from workers.runtime import LogSilent

    options = WorkerOptions(
        name=name, pool=pool, places=concurrency, drain_ms=round(drain_timeout * 1_000),
        until_stdin_ends=until_stdin_ends,
    )  # fmt: skip
    allowed = HttpAllowed(
        cidrs=settings.http.allowed_cidrs, plain_http=settings.http.allow_plain_http
    )
    _log_as("http-worker", settings)
    where = _where(settings)
    cluster = cluster_id_at(where.bootstrap, settings.kafka.client, timeout_s=30.0)
    try:
        run_http(
            where, options, allowed, source=f"/horolog/{cluster or settings.namespace}",
            watch=watch_worker(settings.monitor),
        )  # fmt: skip
    except LogSilent as error:
        raise Failure(str(error), kind="unavailable", code=UNAVAILABLE) from error


def _where(settings: "Settings") -> "Where":
    from horolog.sdk_settings import Where

    return Where(
        bootstrap=bootstrap_of(settings), namespace=settings.namespace, tenant=settings.tenant,
        client=settings.kafka.client, lease_ms=settings.lease_ms,
    )  # fmt: skip


def _log_as(service: str, settings: "Settings") -> None:
    from horolog import logs

    logs.configure(service=service, namespace=settings.namespace)
