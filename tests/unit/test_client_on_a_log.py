"""The client against a log in memory, with somebody on the other side who answers."""

from collections.abc import Callable

import pytest

from horolog.client import KafkaClient, NoReply, NoTopics
from processors.core.admission import read_command
from processors.exchange import ASK_AGAIN_S
from schemas.bindings import ACCEPTED
from schemas.commands import AnyCommand, JobSpec, PauseJob, PutJob, ScheduleSpec
from schemas.limits import COMMAND_BYTES_MAX
from schemas.partition import partition_of
from schemas.replies import Accepted, Refused
from streams.memory import ManualClock, MemoryBroker, MemoryLog
from streams.ports import Produced

NAMESPACE, PARTITIONS = "ns", 5


class OtherSide:
    """A cluster in which somebody answers commands whenever the client waits for an answer."""

    def __init__(self, answers: Callable[[AnyCommand], bool] = lambda _: True) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock, self._waits)
        self.log = MemoryLog(self.broker)
        self.answers = answers
        self.seen: list[tuple[int, AnyCommand]] = []
        self._answering = False

    def with_topics(self) -> "OtherSide":
        self.broker.create_topic(f"{NAMESPACE}.commands", PARTITIONS)
        self.broker.create_topic(f"{NAMESPACE}.replies", 16)
        self._reader = self.log.reader("other-side", committed=False)
        self._reader.assign({(f"{NAMESPACE}.commands", p): 0 for p in range(PARTITIONS)})
        self._outbox = self.log.outbox("other-side")
        return self

    def client(self) -> KafkaClient:
        return KafkaClient(self.log, namespace=NAMESPACE, by="me", clock=self.clock)

    def _waits(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1_000))
        if self._answering:  # our own reading waits as well
            return
        self._answering = True
        records = self._reader.read(10_000, 0)
        self._answering = False
        for record in records:
            command = read_command(record.value or b"")
            self.seen.append((record.partition, command))
            if self.answers(command):
                self._answer(command)

    def _answer(self, command: AnyCommand) -> None:
        reply = Accepted(
            command_id=command.command_id, tenant=command.tenant, job=command.job, life=1,
            version=1, sequence=1,
        )  # fmt: skip
        reader = command.reply_to
        topic = f"{NAMESPACE}.replies"
        self._outbox.send(
            [Produced(topic, partition_of(reader, 16), reader.encode(), ACCEPTED.encode(reply))]
        )


def pause(job: str, command_id: str = "") -> PauseJob:
    return PauseJob(tenant="t", job=job, command_id=command_id)


def test_a_command_goes_to_its_jobs_partition_and_its_answer_comes_back() -> None:
    other = OtherSide().with_topics()
    with other.client() as client:
        answer = client.send(pause("a", "c-1"))
    assert isinstance(answer, Accepted)
    assert (answer.command_id, answer.job) == ("c-1", "a")
    ((partition, command),) = other.seen
    assert partition == partition_of("t/a", PARTITIONS)
    assert command.by == "me"


def test_a_lost_reply_is_asked_for_again_under_the_same_id() -> None:
    times: list[str] = []

    def answers(command: AnyCommand) -> bool:
        times.append(command.command_id)
        return len(times) == 3

    other = OtherSide(answers).with_topics()
    with other.client() as client:
        began_s = other.clock.monotonic_s()
        assert isinstance(client.send(pause("a")), Accepted)
    assert len(times) == 3
    assert len(set(times)) == 1
    assert other.clock.monotonic_s() - began_s >= 2 * ASK_AGAIN_S


def test_without_an_answer_it_gives_up_and_names_what_may_have_been_accepted() -> None:
    other = OtherSide(lambda command: command.job != "b").with_topics()
    with other.client() as client, pytest.raises(NoReply) as caught:
        client.send_all([pause("a", "c-a"), pause("b", "c-b")], wait_s=7)
    assert caught.value.unanswered == ("c-b",)
    assert set(caught.value.answers) == {"c-a"}
    assert "within 7 s to c-b" in str(caught.value)


def test_many_commands_are_answered_in_their_order() -> None:
    other = OtherSide().with_topics()
    with other.client() as client:
        answers = client.send_all(pause(f"j-{n}") for n in range(5_000))
    assert [answer.job for answer in answers] == [f"j-{n}" for n in range(5_000)]
    assert len(other.seen) == 5_000


def test_a_command_that_nobody_would_read_is_refused_without_being_sent() -> None:
    other = OtherSide().with_topics()
    spec = JobSpec(schedules=(ScheduleSpec(now=True),), payload=b"x" * COMMAND_BYTES_MAX)
    with other.client() as client:
        large = client.send(PutJob(tenant="t", job="a", spec=spec))
        no_text = client.send(pause("\udcff"))
    assert isinstance(large, Refused)
    assert isinstance(no_text, Refused)
    assert f"at most {COMMAND_BYTES_MAX}" in large.problems[0].hint
    assert "no Unicode" in no_text.problems[0].message
    assert other.seen == []


def test_without_topics_there_is_nothing_to_send_to() -> None:
    with pytest.raises(NoTopics, match=r"ns\.commands does not exist"):
        OtherSide().client()
