"""`horolog topics`: the topics that Horolog needs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .frame import (
    CONFLICT,
    FAILURE,
    USAGE,
    Failure,
    Format,
    Output,
    bootstrap_of,
    command,
    group,
    say,
)
from .table import write_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from horolog.settings import Settings
    from streams.topics import Problem, Topic

app = group("The topics that Horolog needs: see, make and check them.")

CREATE_S = 10.0


@command(app, "plan")
def plan(settings: "Settings", output: Output = Format.TABLE) -> None:
    """List what `apply` would create and what is wrong with topics that exist. Changes nothing.

    `keep`: as it should be; `differs`: kept as well, the difference may be meant; `wrong`: nothing
    may start on it, and `apply` refuses. Exit code 1 if one is wrong.
    """
    from processors.topology import topic_set
    from streams import admin

    found = admin.plan(client_config(settings), topic_set(settings.namespace, settings.partitions))
    problems: dict[str, list[Problem]] = {}
    for problem in found.problems:
        problems.setdefault(problem.topic, []).append(problem)
    rows = [_topic(topic, "create", problems.get(topic.name, [])) for topic in found.create]
    rows += [_topic(topic, "keep", problems.get(topic.name, [])) for topic in found.keep]
    write_rows(rows, ("action", "topic", "partitions", "replicas", "cleanup"), output)
    if output is Format.TABLE:
        for problem in found.problems:
            say(f"{'error' if problem.fatal else 'warning'}: {problem}")
    if any(problem.fatal for problem in found.problems):
        raise typer.Exit(FAILURE)


@command(app, "apply")
def apply(settings: "Settings", output: Output = Format.TABLE) -> None:
    """Create the topics that are missing. Never changes one that exists."""
    from processors.topology import topic_set
    from streams import admin

    made = admin.apply(client_config(settings), topic_set(settings.namespace, settings.partitions))
    for warning in made.warnings:
        say(f"warning: {warning}")
    if output is Format.TABLE and not made.created:
        say("every topic is there")
        return
    write_rows([{"action": "created", "topic": name} for name in made.created],
               ("action", "topic"), output)  # fmt: skip


@command(app, "verify")
def verify(settings: "Settings", output: Output = Format.TABLE) -> None:
    """Check the topics; exit code 1 if nothing may start on them as they are."""
    from processors.topology import topic_set
    from streams import admin

    problems = admin.verify(
        client_config(settings), topic_set(settings.namespace, settings.partitions)
    )
    rows = [_problem(problem) for problem in problems]
    if rows or output is not Format.TABLE:
        write_rows(rows, ("topic", "fatal", "what", "found", "expected", "advice"), output)
    fatal = sum(problem.fatal for problem in problems)
    if fatal:
        raise Failure(f"{fatal} problems with the topics of {settings.namespace}", code=FAILURE)
    say("every topic is as it should be" if not problems else "these differences may be meant")


@command(app, "create")
def create(
    settings: "Settings",
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    partitions: Annotated[
        int, typer.Option(help="How many partitions it gets.", min=1, max=10_000, metavar="N")
    ] = 1,
) -> None:
    """Create a topic of your own for jobs to fire into, with Kafka's defaults otherwise."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
        AdminClient,
        NewTopic,
    )

    if name.startswith((f"{settings.namespace}.", "__")):
        raise Failure(f"{name!r} belongs to Horolog or to Kafka", hint="another name",
                      kind="usage", code=USAGE)  # fmt: skip
    admin_client = AdminClient({**client_config(settings), "log_level": 0})
    made = admin_client.create_topics([NewTopic(name, partitions)], request_timeout=CREATE_S)
    try:
        made[name].result(CREATE_S + 1)
    except KafkaException as error:
        there = error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        raise Failure(error.args[0].str(), code=CONFLICT if there else FAILURE) from error
    say(f"created {name}")


def client_config(settings: "Settings") -> dict[str, str | int | float | bool]:
    """Settings for an administration client of the Kafka that is used."""
    return {**settings.kafka.client, "bootstrap.servers": bootstrap_of(settings)}


def _topic(topic: "Topic", action: str, problems: "Sequence[Problem]") -> dict[str, Any]:
    if problems:
        action = "wrong" if any(problem.fatal for problem in problems) else "differs"
    return {
        "action": action,
        "topic": topic.name,
        "partitions": topic.partitions,
        "replicas": topic.replicas,
        "cleanup": topic.settings["cleanup.policy"],
        "settings": dict(topic.settings),
        "problems": [_problem(problem) for problem in problems],
    }


def _problem(problem: "Problem") -> dict[str, Any]:
    return {
        "topic": problem.topic,
        "fatal": problem.fatal,
        "what": problem.what,
        "found": problem.found,
        "expected": problem.expected,
        "advice": problem.advice,
    }
