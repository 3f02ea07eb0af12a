"""What all commands share: options that say which Horolog, how errors are told, exit codes."""

import inspect
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:  # they take a while to import, and `--help` must not
    from horolog.settings import Settings
    from schemas.replies import Problem, Refused
    from streams.kafka import KafkaLog

OK, FAILURE, USAGE, NOT_FOUND, CONFLICT, UNAVAILABLE = 0, 1, 2, 3, 4, 6
FAILED, INTERRUPTED = 70, 130

EXIT_CODES: Final = {
    OK: "done as asked",
    FAILURE: "refused or failed; the reason is on stderr",
    USAGE: "the command line or the settings cannot be understood",
    NOT_FOUND: "there is no such job or execution",
    CONFLICT: "the job is at another version, in another state, or the command id was used before",
    UNAVAILABLE: "Kafka or the scheduler did not answer in time; a command may have been accepted",
    FAILED: "a service failed or was stuck; it may be started again",
    INTERRUPTED: "interrupted by Ctrl-C",
}
_EXIT_OF_REFUSAL: Final = {
    "not_found": NOT_FOUND,
    "version_conflict": CONFLICT,
    "id_reused": CONFLICT,
    "finished": CONFLICT,
}


WHICH: Final = ("namespace", "data", "bootstrap", "config")
"""Names of the options that say which Horolog is meant."""


class Format(StrEnum):
    """How data is written to stdout."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


Output = Annotated[
    Format,
    typer.Option(
        "--output", "-o", help="How to write data: for people, or as JSON.",
        metavar="table|json|jsonl",
    ),
]  # fmt: skip
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", "-t", help="Who owns the job.  [default: default]", metavar="TENANT"),
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]


class Failure(Exception):
    """The command cannot do what was asked. Ends it with this exit code and these lines."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        kind: str = "failure",
        code: int = FAILURE,
        problems: "Sequence[Problem]" = (),
        details: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.kind = kind
        self.code = code
        self.problems = problems
        self.details = details or {}


def group(help: str) -> typer.Typer:
    """A group of commands. Plain help: the decorated one takes longer to import than to read."""
    return typer.Typer(
        help=help, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True
    )


def command(
    app: typer.Typer, name: str, *, which: tuple[str, ...] = WHICH
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command of `app`, with errors told the way all commands tell them.

    A parameter named `settings` is not an option: in its place stand the options that say which
    Horolog is meant, those of `which` that count for the command, and the function gets the
    settings that follow from them.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        wants_settings = "settings" in signature.parameters
        own = [p for p in signature.parameters.values() if p.name != "settings"]
        shared = [p for p in _WHICH if p.name in which] if wants_settings else []
        parameters = [*own, *shared]

        def run(**options: Any) -> None:
            given = {p.name: options.pop(p.name) for p in shared}
            output = options.get("output", Format.TABLE)
            try:
                if wants_settings:
                    options["settings"] = _load(given)
                function(**options)
            except Failure as failure:
                tell(failure, output)
                raise typer.Exit(failure.code) from failure
            except (typer.Exit, KeyboardInterrupt):
                raise
            except Exception as error:
                told = _as_failure(error)
                if told is None:
                    raise
                tell(told, output)
                raise typer.Exit(told.code) from error

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        )
        app.command(name)(run)
        return function

    return register


def _option(name: str, kind: Any, *decls: str, help: str, metavar: str) -> inspect.Parameter:
    option = typer.Option(*decls, help=help, metavar=metavar, rich_help_panel=None)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


_WHICH: Final = (
    _option("namespace", str, "--namespace", metavar="NAME",
            help="What the names of all topics begin with.  [env: HOROLOG_NAMESPACE]"),
    _option("data", Path, "--data", metavar="DIR",
            help="Data folder: embedded broker and stores.  [env: HOROLOG_DATA_DIR]"),
    _option("bootstrap", str, "--bootstrap", metavar="HOST:PORT",
            help="Kafka to use instead of the embedded one.  [env: KAFKA_BOOTSTRAP_SERVERS]"),
    _option("config", Path, "--config", metavar="FILE",
            help="Settings file.  [default: ./horolog.toml; env: HOROLOG_CONFIG]"),
)  # fmt: skip


def which_options() -> list[tuple[str, str]]:
    """Names and help texts of the options that say which Horolog is meant."""
    return [
        (f"--{parameter.name}", parameter.annotation.__metadata__[0].help.replace("  [", " ["))
        for parameter in _WHICH
    ]


def _load(given: dict[str, Any]) -> "Settings":
    from horolog import settings

    return settings.load(
        {
            "namespace": given.get("namespace"),
            "data_dir": given.get("data"),
            "kafka": {"bootstrap": given.get("bootstrap")},
        },
        given.get("config"),
    )


def bootstrap_of(settings: "Settings") -> str:
    """The Kafka to talk to: the one that was named, else the embedded one if it runs."""
    from horolog.broker import server

    if settings.kafka.bootstrap:
        return settings.kafka.bootstrap
    found = server.status(settings.broker_dir)
    if found.ready and found.bootstrap is not None:
        return found.bootstrap
    raise Failure(
        f"no Kafka: none is named, and no embedded one runs in {settings.broker_dir}",
        hint="start one with `horolog up`, say --data where its data is, or set "
        "KAFKA_BOOTSTRAP_SERVERS",
        kind="unavailable",
        code=UNAVAILABLE,
    )


def open_log(settings: "Settings") -> "KafkaLog":
    """The Kafka of these settings, for making clients of it."""
    from streams.kafka import KafkaLog

    return KafkaLog(bootstrap_of(settings), settings.kafka.client)


def refusal(refused: "Refused") -> Failure:
    """A scheduler's no as what ends the command."""
    return Failure(
        refused.message,
        kind=refused.kind,
        code=_EXIT_OF_REFUSAL.get(refused.kind, FAILURE),
        problems=refused.problems,
        details={"tenant": refused.tenant, "job": refused.job, "command_id": refused.command_id},
    )


def tell(failure: Failure, output: Format = Format.TABLE) -> None:
    """Write why the command failed to stderr: lines for people, or one JSON object."""
    if output is not Format.TABLE:
        import msgspec

        told = {"kind": failure.kind, "message": failure.message, "problems": failure.problems}
        told |= {"hint": failure.hint} if failure.hint else {}
        say(msgspec.json.encode(told | failure.details).decode())
        return
    say(f"error: {failure.message}")
    for problem in failure.problems:
        say(f"  {problem.field}: {problem.message}")
        if problem.hint:
            say(f"    hint: {problem.hint}")
    if failure.hint:
        say(f"hint: {failure.hint}")


def say(line: str) -> None:
    """One line to stderr, where everything goes that is not data."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _as_failure(error: Exception) -> Failure | None:
    """What users are told about errors that are nobody's bug; None for the others."""
    from confluent_kafka import KafkaException

    from horolog.broker.errors import BrokerError
    from horolog.client import NoReply, NoTopics
    from horolog.settings import BadSettings
    from streams.errors import Refuse, Unavailable

    match error:
        case BadSettings():
            return Failure("the settings cannot be used", kind="settings", code=USAGE,
                           problems=error.problems)  # fmt: skip
        case BrokerError() | Refuse():
            return Failure(str(error))
        case NoTopics():
            return Failure(str(error), kind="unavailable", code=UNAVAILABLE,
                           hint="`horolog topics apply` makes the topics; is the namespace right?",
                           )  # fmt: skip
        case NoReply():
            again = f" with --command-id {error.unanswered[0]}" if error.unanswered else ""
            return Failure(
                f"{error}; it may have been accepted",
                hint=f"does a scheduler run? Repeat the same command{again}: it takes effect once",
                kind="unavailable", code=UNAVAILABLE,
            )  # fmt: skip
        case Unavailable():
            return Failure(str(error), kind="unavailable", code=UNAVAILABLE,
                           hint="is Kafka up, and is its address right?")  # fmt: skip
        case KafkaException():
            return Failure(f"the Kafka client: {error.args[0]}",
                           hint="the names under [kafka.client] are librdkafka's")  # fmt: skip
        case _:
            return None
