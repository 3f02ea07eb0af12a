"""Topics as values: what a processor needs, what a cluster has, and how the two differ.

A topic whose partition count, clean-up policy or kind of timestamp is wrong would lose or misplace
records, so such a problem is fatal: nothing may start on it. Other differences may be meant by
whoever runs the cluster and are warnings. Nothing here talks to Kafka; `streams.admin` does.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct

from .layout import topic_name

Cleanup = Literal["delete", "compact", "compact,delete"]

PER_TASK: Final = "P"
"""The partition count of topics that have one partition for each partition task."""

DAY_MS: Final = 86_400_000

BATCH_BYTES_MAX: Final = 1_048_588
"""Kafka bounds batches, not records; our clients make none above 1,000,000 bytes."""

REPLICAS: Final = 3
IN_SYNC_MIN: Final = 2

NAMESPACE_CHARS_MAX: Final = 128
"""Kafka takes 249 for a topic; transactional ids and groups are longer than our suffixes."""

_FATAL_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": (
        "records may be missing already: find out which, then set it with `kafka-configs.sh "
        "--alter`, or use a new namespace"
    ),
    "message.timestamp.type": "set it with `kafka-configs.sh --alter`, or use a new namespace",
}


class TopicSpec(Struct, frozen=True, kw_only=True):
    """What a processor needs of one topic, whatever the namespace and the size of the cluster."""

    suffix: str
    partitions: int | Literal["P"]
    cleanup: Cleanup
    append_time: bool = False
    settings: Mapping[str, str] = {}


class TopicSet(Struct, frozen=True, kw_only=True):
    """The topics of one installation: a namespace, its number of partition tasks, the specs."""

    namespace: str
    partitions: int
    specs: tuple[TopicSpec, ...]


class Topic(Struct, frozen=True, kw_only=True):
    """One topic of a cluster, found or to be made."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]


class Cluster(Struct, frozen=True, kw_only=True):
    """What a Kafka has: how many brokers answer, and those of the asked topics that exist."""

    brokers: int
    topics: Mapping[str, Topic]


class Problem(Struct, frozen=True, kw_only=True):
    """One difference between a topic and its spec; on a fatal one nothing may start."""

    topic: str
    what: str
    found: str
    expected: str
    advice: str
    fatal: bool

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"topic {self.topic}: {self.what} is {self.found}, expected {self.expected}; "
            f"{self.advice}"
        )


class Plan(Struct, frozen=True, kw_only=True):
    """What `apply` would do: topics to create, and problems with those that exist."""

    create: tuple[Topic, ...]
    keep: tuple[Topic, ...]
    problems: tuple[Problem, ...]


def check_namespace(namespace: str) -> str:
    """The namespace itself; raises `ValueError` if Kafka takes no topic names that begin so."""
    if not re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9._-]{{,{NAMESPACE_CHARS_MAX - 1}}}", namespace):
        raise ValueError(
            f"namespace {namespace!r}: 1 to {NAMESPACE_CHARS_MAX} letters, digits, '.', '_' or "
            "'-', of which the first is a letter or digit"
        )
    return namespace


def topics_of(wanted: TopicSet, *, brokers: int) -> tuple[Topic, ...]:
    """The topics as they are to be made on a cluster of so many brokers."""
    namespace = check_namespace(wanted.namespace)
    replicas = 1 if brokers == 1 else REPLICAS
    return tuple(
        Topic(
            name=topic_name(namespace, spec.suffix),
            partitions=wanted.partitions if spec.partitions == PER_TASK else spec.partitions,
            replicas=replicas,
            settings={
                "cleanup.policy": spec.cleanup,
                "message.timestamp.type": "LogAppendTime" if spec.append_time else "CreateTime",
                "min.insync.replicas": str(_in_sync_min(replicas)),
                "max.message.bytes": str(BATCH_BYTES_MAX),
                # A leader that lacks acknowledged records would silently undo them.
                "unclean.leader.election.enable": "false",
                **spec.settings,
            },
        )
        for spec in wanted.specs
    )


def make_plan(wanted: TopicSet, cluster: Cluster) -> Plan:
    """Compare what is wanted with what the cluster has."""
    topics = topics_of(wanted, brokers=cluster.brokers)
    create = tuple(topic for topic in topics if topic.name not in cluster.topics)
    keep = tuple(topic for topic in topics if topic.name in cluster.topics)
    problems = [
        problem
        for topic in keep
        for problem in _differences(topic, cluster.topics[topic.name], cluster.brokers)
    ]
    if 1 < cluster.brokers < REPLICAS:
        problems += [_too_few_brokers(topic, cluster.brokers) for topic in create]
    return Plan(create=create, keep=keep, problems=tuple(problems))


def missing(topic: Topic) -> Problem:
    """What `verify` says of a topic that does not exist."""
    return Problem(
        topic=topic.name,
        what="the topic",
        found="missing",
        expected=f"there, with {topic.partitions} partitions",
        advice="run `horolog topics apply`",
        fatal=True,
    )


def describe(problems: Iterable[Problem]) -> str:
    """The problems as lines, fatal ones first."""
    ordered = sorted(problems, key=lambda problem: not problem.fatal)
    return "\n".join(str(problem) for problem in ordered)


def _differences(wanted: Topic, found: Topic, brokers: int) -> Iterable[Problem]:
    if found.partitions != wanted.partitions:
        yield Problem(
            topic=wanted.name,
            what="the number of partitions",
            found=str(found.partitions),
            expected=str(wanted.partitions),
            advice="it never changes: start with the number the topic was made with, "
            "or use a new namespace",
            fatal=True,
        )
    # A broker that is down for a moment must not make a topic look wrong.
    if brokers >= REPLICAS and found.replicas < REPLICAS:
        yield Problem(
            topic=wanted.name,
            what="the replication factor",
            found=str(found.replicas),
            expected=str(REPLICAS),
            advice="records can be lost with a broker: use `kafka-reassign-partitions.sh`",
            fatal=False,
        )
    settings = {**wanted.settings, "min.insync.replicas": str(_in_sync_min(found.replicas))}
    for key, expected in settings.items():
        actual = found.settings.get(key, "unset")
        if _same(key, actual, expected):
            continue
        yield Problem(
            topic=wanted.name,
            what=key,
            found=actual,
            expected=expected,
            advice=_FATAL_SETTINGS.get(key, "fine if it is meant"),
            fatal=key in _FATAL_SETTINGS,
        )


def _same(key: str, actual: str, expected: str) -> bool:
    if key == "cleanup.policy":
        return set(actual.split(",")) == set(expected.split(","))
    return actual == expected


def _in_sync_min(replicas: int) -> int:
    return IN_SYNC_MIN if replicas >= REPLICAS else 1


def _too_few_brokers(topic: Topic, brokers: int) -> Problem:
    return Problem(
        topic=topic.name,
        what="the number of brokers that answer",
        found=str(brokers),
        expected=f"{REPLICAS} or more, or 1 for development",
        advice="start the others, then apply again",
        fatal=True,
    )
