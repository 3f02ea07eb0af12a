"""The same random story, told to Kafka and to its twin, leaves the same log behind."""

import random

import pytest

from streams.errors import StreamError
from streams.ports import Produced, TopicPartition, TransactionalProducer
from tests.contracts.conftest import Cluster, KafkaCluster, MemoryCluster, until
from tests.contracts.test_log_contract import read_to_end

STEPS = 25
OWNERS = ("x", "y")


class Story:
    """One side of it. Every step answers with what its caller saw."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topics = [cluster.topic("t", 2), cluster.topic("u", 1, compacted=True)]
        self.outbox = cluster.log.outbox(cluster.name("outbox"))
        self.producers: list[TransactionalProducer] = []

    @property
    def partitions(self) -> list[TopicPartition]:
        return [(self.topics[0], 0), (self.topics[0], 1), (self.topics[1], 0)]

    def take_over(self, owner: str) -> str:
        producer = self.cluster.log.transactional(self.cluster.name(owner))
        producer.init(10)
        self.producers.append(producer)
        return "taken"

    def write(self, producer: int, places: list[int], value: bytes) -> str:
        partitions = self.partitions
        records = [Produced(*partitions[place], b"key", value) for place in places]
        try:
            self.producers[producer].write(
                records, report=frozenset(partitions), careful=frozenset()
            )
        except StreamError as error:
            return type(error).__name__
        return "written"

    def commit(self, producer: int) -> str:
        try:
            delivered = self.producers[producer].commit(10)
        except StreamError as error:
            return type(error).__name__
        partitions = self.partitions
        return str(sorted((partitions.index(key), d.offset) for key, d in delivered.items()))

    def abort(self, producer: int) -> str:
        try:
            self.producers[producer].abort(10)
        except StreamError as error:
            return type(error).__name__
        return "aborted"

    def send(self, place: int, value: bytes) -> str:
        self.outbox.send([Produced(*self.partitions[place], b"key", value)])
        return str(self.outbox.flush(10))

    def ends(self) -> list[tuple[int, int]]:
        """End and stable end of each partition."""
        offsets, partitions = self.cluster.log.offsets(), self.partitions
        ends, stable = offsets.end(partitions), offsets.stable_end(partitions)
        return [(ends[key], stable[key]) for key in partitions]

    def shown(self, *, committed: bool) -> list[list[tuple[int, bytes | None]]]:
        return [
            [(r.offset, r.value) for r in read_to_end(self.cluster.log, *key, committed=committed)]
            for key in self.partitions
        ]


@pytest.mark.parametrize("seed", range(8))
def test_the_twin_tells_the_same_story(
    seed: int, kafka: KafkaCluster, memory: MemoryCluster
) -> None:
    chance = random.Random(seed)
    sides = (Story(kafka), Story(memory))
    open_transactions: set[int] = set()
    dead: set[int] = set()
    count = 0
    for step in range(STEPS):
        usable = [n for n in range(count) if n not in dead]
        what = chance.choice(("take over", "write", "write", "end", "end", "end", "send"))
        if what == "take over" or not usable:
            owner = chance.choice(OWNERS)
            answers = [side.take_over(owner) for side in sides]
            count += 1
        elif what == "send":
            place = chance.randrange(3)
            answers = [side.send(place, b"%d" % step) for side in sides]
        else:
            producer = chance.choice(usable)
            if producer not in open_transactions:
                places = [chance.randrange(3) for _ in range(chance.randrange(1, 5))]
                answers = [side.write(producer, places, b"%d" % step) for side in sides]
                open_transactions.add(producer)
            else:
                end = Story.commit if chance.random() < 0.7 else Story.abort
                answers = [end(side, producer) for side in sides]
                open_transactions.discard(producer)
                if answers[0] == "Fenced":
                    dead.add(producer)
        assert answers[0] == answers[1], f"step {step}: {what}"
        real, twin = sides
        until(lambda: real.ends() == twin.ends(), f"step {step} ({what}): {twin.ends()}")  # noqa: B023
    for committed in (True, False):
        assert sides[0].shown(committed=committed) == sides[1].shown(committed=committed)
