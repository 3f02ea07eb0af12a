"""Makes and checks the topics of an installation on a real Kafka."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are not in __all__
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from msgspec import Struct

from .errors import Refuse, Unavailable
from .topics import (
    Cluster,
    Plan,
    Problem,
    Topic,
    TopicSet,
    describe,
    make_plan,
    missing,
    topics_of,
)

ClientConfig: TypeAlias = Mapping[str, str | int | float | bool]
T = TypeVar("T")

TIMEOUT_S = 30.0
# Kafka answers within milliseconds or, when something is odd, not at all on this connection.
CALL_S = 5.0
# A client that asks for offsets while metadata is still spreading may sit on the question for 3 s.
LEADER_S = 1.0
RETRY_S = 0.05

# Asking again cannot help; everything else is asked again, by a new client, until the time is over.
_FINAL = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._AUTHENTICATION,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.TOPIC_EXCEPTION,
    }
)


class Applied(Struct, frozen=True, kw_only=True):
    """What `apply` made, and the warnings about what was there."""

    created: tuple[str, ...]
    warnings: tuple[Problem, ...]


def plan(config: ClientConfig, wanted: TopicSet, *, timeout_s: float = TIMEOUT_S) -> Plan:
    """What `apply` would create, and what is wrong with the topics that exist. Changes nothing.

    `config` goes to the client verbatim and names the cluster by `bootstrap.servers`. Raises
    `Unavailable` if Kafka does not answer in time, `Refuse` if it forbids the question.
    """
    return _plan(config, wanted, time.monotonic() + timeout_s)


def verify(
    config: ClientConfig, wanted: TopicSet, *, timeout_s: float = TIMEOUT_S
) -> list[Problem]:
    """All problems, missing topics among them; nothing may start while one of them is fatal."""
    found = _plan(config, wanted, time.monotonic() + timeout_s)
    return [*(missing(topic) for topic in found.create), *found.problems]


def apply(config: ClientConfig, wanted: TopicSet, *, timeout_s: float = TIMEOUT_S) -> Applied:
    """Create the topics that are missing and return once every partition's leader answers.

    Never changes a topic that exists. Raises `Refuse` with all fatal problems before it creates
    anything, or when Kafka rejects a topic; `Unavailable` when it takes longer than `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    to_do = _plan(config, wanted, deadline)
    _refuse_fatal(to_do.problems)
    if to_do.create:
        _ask(config, deadline, lambda admin, call_s: _create(admin, to_do.create, call_s))
    topics = (*to_do.create, *to_do.keep)
    _ask(config, deadline, lambda admin, call_s: _reach_leaders(admin, topics, call_s))
    if not to_do.create:
        return Applied(created=(), warnings=to_do.problems)
    # Somebody else may have created them at the same moment, with other settings.
    done = _plan(config, wanted, deadline)
    _refuse_fatal((*(missing(topic) for topic in done.create), *done.problems))
    return Applied(created=tuple(topic.name for topic in to_do.create), warnings=done.problems)


def _plan(config: ClientConfig, wanted: TopicSet, deadline: float) -> Plan:
    names = [topic.name for topic in topics_of(wanted, brokers=1)]
    cluster = _ask(config, deadline, lambda admin, call_s: _read_cluster(admin, names, call_s))
    return make_plan(wanted, cluster)


def _refuse_fatal(problems: Sequence[Problem]) -> None:
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        raise Refuse(describe(fatal))


def _read_cluster(admin: AdminClient, names: Sequence[str], call_s: float) -> Cluster:
    metadata = admin.list_topics(timeout=call_s)
    if not metadata.brokers:
        raise Unavailable("no broker is registered yet")
    there = {name: metadata.topics[name] for name in names if name in metadata.topics}
    for topic in there.values():
        if topic.error is not None:
            raise KafkaException(topic.error)
    settings = _read_settings(admin, list(there), call_s)
    return Cluster(
        brokers=len(metadata.brokers),
        topics={
            name: Topic(
                name=name,
                partitions=len(topic.partitions),
                replicas=min((len(p.replicas) for p in topic.partitions.values()), default=0),
                settings=settings[name],
            )
            for name, topic in there.items()
        },
    )


def _read_settings(
    admin: AdminClient, names: Sequence[str], call_s: float
) -> dict[str, Mapping[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    answers = admin.describe_configs(resources, request_timeout=call_s)
    return {
        resource.name: {key: entry.value for key, entry in _result(answer, call_s).items()}
        for resource, answer in answers.items()
    }


def _create(admin: AdminClient, topics: Sequence[Topic], call_s: float) -> None:
    new = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replicas,
            config=dict(topic.settings),
        )
        for topic in topics
    ]
    for answer in admin.create_topics(new, request_timeout=call_s).values():
        try:
            _result(answer, call_s)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _reach_leaders(admin: AdminClient, topics: Sequence[Topic], call_s: float) -> None:
    metadata = admin.list_topics(timeout=call_s).topics
    for topic in topics:
        made = metadata.get(topic.name)
        # A leader is -1 until there is one.
        if made is None or any(p.leader < 0 for p in made.partitions.values()):
            raise Unavailable(f"topic {topic.name} has no leader for each partition yet")
    # Metadata names leaders before they know of it themselves; one that answers does know.
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ends = {
        TopicPartition(topic.name, partition): latest
        for topic in topics
        for partition in metadata[topic.name].partitions
    }
    leader_s = min(call_s, LEADER_S)
    for answer in admin.list_offsets(ends, request_timeout=leader_s).values():
        _result(answer, leader_s)


def _result(answer: "Future[Any]", call_s: float) -> Any:
    # The client itself gives up after `call_s`; this is for a client that does not.
    return answer.result(timeout=call_s + 1)


def _ask(config: ClientConfig, deadline: float, question: Callable[[AdminClient, float], T]) -> T:
    """Ask until Kafka answers, each time by a new client.

    After a broker's restart or right after a topic's creation one client can go on giving the same
    wrong answer for longer than anybody wants to wait.
    """
    while True:
        told: list[str] = []
        call_s = min(CALL_S, max(RETRY_S, deadline - time.monotonic()))
        try:
            return question(_client(config, told), call_s)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.code() in _FINAL:
                raise Refuse(f"Kafka refuses: {error.str()}") from failure
            told.append(error.str())
        except (Unavailable, TimeoutError) as failure:
            told.append(str(failure) or "no answer")
        if time.monotonic() + RETRY_S > deadline:
            raise Unavailable(f"Kafka did not answer in time: {'; '.join(dict.fromkeys(told))}")
        time.sleep(RETRY_S)


def _client(config: ClientConfig, told: list[str]) -> AdminClient:
    """A client that tells what goes wrong on its connections instead of printing it."""
    settings: dict[str, Any] = {
        **config,
        "log_level": 0,
        "error_cb": lambda error: told.append(error.str()),
    }
    return AdminClient(settings)
