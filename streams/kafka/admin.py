"""Questions to the cluster: where partitions begin and end, and which topics there are."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from ..errors import Unavailable
from ..ports import TopicPartition as TopicPartitionKey
from .failures import Link, kafka_error, made
from .settings import ClientSettings

ANSWER_S: Final = 1.0
TRY_S: Final = 0.25
"""One question in a hundred is answered after a second or more; a new client answers at once."""
TOPIC_KNOWN_S: Final = 30.0
TOPIC_ABSENT_S: Final = 2.0
"""One that does not exist may be created at any moment."""

_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Answer = TypeVar("Answer")


class Admin:
    """An AdminClient that is replaced after any odd answer: one that was told an old leader epoch
    repeats the error for more than 10 s."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._client: AdminClient | None = None

    def client(self) -> AdminClient:
        if self._client is None:
            self._client = made(AdminClient, self._settings.admin(Link("admin")))  # type: ignore[arg-type]
        return self._client

    def renew(self) -> None:
        self._client = None

    def ask(self, doing: str, question: Callable[[AdminClient, float], Answer]) -> Answer:
        """The answer, within about a second. Raises `Unavailable`."""
        until_s = time.monotonic() + ANSWER_S
        while True:
            try:
                return question(self.client(), TRY_S)
            except (KafkaException, TimeoutError) as error:
                self.renew()
                if time.monotonic() >= until_s:
                    raise Unavailable(f"{doing}: {error}") from error
                time.sleep(0.02)


class KafkaOffsets:
    """Meets `streams.ports.Offsets`."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def start(self, partitions: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        return self._list(partitions, _EARLIEST, committed=False)

    def end(self, partitions: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        return self._list(partitions, _LATEST, committed=False)

    def stable_end(self, partitions: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        return self._list(partitions, _LATEST, committed=True)

    def _list(
        self, partitions: Iterable[TopicPartitionKey], spec: OffsetSpec, *, committed: bool
    ) -> dict[TopicPartitionKey, int]:
        wanted = {TopicPartition(topic, partition): spec for topic, partition in partitions}
        if not wanted:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def question(client: AdminClient, timeout_s: float) -> dict[TopicPartitionKey, int]:
            futures = client.list_offsets(
                wanted, isolation_level=isolation, request_timeout=timeout_s
            )
            found = {
                (asked.topic, asked.partition): _result(future, timeout_s).offset
                for asked, future in futures.items()
            }
            # Of a partition that was just made the broker may not know an offset yet.
            if any(offset < 0 for offset in found.values()):
                raise TimeoutError("an offset is not known yet")
            return found

        return self._admin.ask("asking for offsets", question)


class KafkaTopics:
    """Meets `streams.ports.TopicProbe`. Asks in a way that never creates a topic."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._known: dict[str, tuple[float, int]] = {}
        self.small: dict[str, int] = {}
        """Topics whose limit is below the client's batches, with that limit in bytes."""

    def partitions(self, topic: str) -> int:
        known = self._known.get(topic)
        now_s = time.monotonic()
        if known is not None and now_s - known[0] < (TOPIC_KNOWN_S if known[1] else TOPIC_ABSENT_S):
            return known[1]
        count = self._admin.ask(
            f"asking for topic {topic}",
            lambda client, timeout_s: _partition_count(client, topic, timeout_s),
        )
        self._known[topic] = (now_s, count)
        return count

    def forget(self, topic: str) -> None:
        self._known.pop(topic, None)

    def batch_bytes_max(self, topic: str) -> int:
        """`max.message.bytes` of the topic. Raises `Unavailable`, also if we may not know."""
        return self._admin.ask(
            f"asking for the limits of topic {topic}",
            lambda client, timeout_s: _message_bytes_max(client, topic, timeout_s),
        )


def _partition_count(client: AdminClient, topic: str, timeout_s: float) -> int:
    futures = client.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)
    try:
        return len(_result(futures[topic], timeout_s).partitions)
    except KafkaException as exception:
        if kafka_error(exception).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return 0
        raise


def _message_bytes_max(client: AdminClient, topic: str, timeout_s: float) -> int:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    futures = client.describe_configs([resource], request_timeout=timeout_s)
    return int(_result(futures[resource], timeout_s)["max.message.bytes"].value)


def _result(future: "Future[Answer]", timeout_s: float) -> Answer:
    # The client answers at its own time limit; ours is a little later.
    return future.result(timeout_s + 0.5)
