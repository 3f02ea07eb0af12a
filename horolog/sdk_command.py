"""The command `horolog` where only the SDK is installed: runs workers."""

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import Final

from horolog.sdk_settings import find

OK, FAILURE, USAGE, UNAVAILABLE = 0, 1, 2, 6
_EXIT_CODES: Final = "exit codes: 0 drained, 1 refused or failed, 2 usage, 6 no answer from Kafka"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end with its exit code. With the server installed beside the SDK
    this is the server's command, which has everything."""
    if arguments is None and _server_is_here():
        from horolog.cli import main as server_main  # type: ignore[import-not-found,unused-ignore]

        server_main()
        return
    sys.exit(_run(sys.argv[1:] if arguments is None else arguments))


def _server_is_here() -> bool:
    from importlib.util import find_spec

    return find_spec("horolog.cli") is not None


def _run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )  # fmt: skip
    logging.getLogger("horolog").setLevel(logging.INFO)
    from confluent_kafka import KafkaException

    from horolog.client import NoReply, NoTopics
    from horolog.worker_process import CannotRegister, WorkerOptions, run_application
    from streams.errors import StreamError
    from workers.process import CannotLoad
    from workers.runtime import LogSilent

    try:
        where = find(
            bootstrap=options.bootstrap, namespace=options.namespace, tenant=options.tenant
        )
        how = WorkerOptions(
            name=options.name, pool=options.pool, places=options.concurrency,
            processes=options.processes, drain_ms=round(options.drain_timeout * 1_000),
            register=options.register,
        )  # fmt: skip
    except ValueError as error:
        return _tell(str(error), USAGE)
    try:
        run_application(where, options.application, how)
    except CannotRegister as error:
        return _tell("declared jobs were refused\n  " + "\n  ".join(error.problems), FAILURE)
    except CannotLoad as error:
        return _tell(f"{options.application} cannot be loaded: {error}", FAILURE)
    except (NoTopics, NoReply, LogSilent, StreamError, KafkaException) as error:
        return _tell(f"{error}; Kafka was looked for at {where.bootstrap}", UNAVAILABLE)
    return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="horolog", description="Run Horolog's workers.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    worker = commands.add_parser(
        "worker", help="run the handlers of a Python application", epilog=_EXIT_CODES
    )
    worker.add_argument("application", metavar="MODULE:APP", help="as in jobs:app")
    worker.add_argument("--concurrency", type=int, default=20, metavar="N",
                        help="how many run at once (20)")  # fmt: skip
    worker.add_argument("--processes", type=int, default=0, metavar="N",
                        help="processes they share (one for each processor)")  # fmt: skip
    worker.add_argument("--pool", default="default", help="pool to work for (default)")
    worker.add_argument("--name", default="", help="name of this worker (the host's)")
    worker.add_argument("--drain-timeout", type=float, default=30.0, metavar="SECONDS",
                        help="how long runs may take to finish after SIGTERM (30)")  # fmt: skip
    worker.add_argument("--no-register", dest="register", action="store_false",
                        help="do not put the jobs declared with @app.schedule")  # fmt: skip
    worker.add_argument("--bootstrap", help="Kafka  [env: KAFKA_BOOTSTRAP_SERVERS]")
    worker.add_argument("--namespace", help="which Horolog  [env: HOROLOG_NAMESPACE]")
    worker.add_argument("--tenant", help="owner of declared jobs  [env: HOROLOG_TENANT]")
    return parser


def _tell(message: str, code: int) -> int:
    sys.stderr.write(f"error: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1:]))
