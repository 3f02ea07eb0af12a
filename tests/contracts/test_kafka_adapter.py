"""What only the real adapter can meet: a broker that dies, and settings of users."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.broker import server
from horolog.broker.process import is_running
from streams.crash import unarmed
from streams.errors import Doubt, Refuse
from streams.kafka import KafkaLog
from streams.kafka.admin import Admin
from streams.kafka.failures import Link
from streams.kafka.ownership import KafkaOwnership
from streams.kafka.refusals import batch_bytes
from streams.kafka.settings import ClientSettings
from streams.ports import Produced
from tests.contracts.conftest import KafkaCluster, until
from tests.contracts.test_log_contract import values


def test_crash_points_are_passed_in_order(kafka: KafkaCluster) -> None:
    topic = kafka.topic("t")
    passed: list[str] = []
    producer = KafkaLog(kafka.bootstrap, crash=passed.append).transactional(kafka.name("owner"))
    producer.init(10)
    assert set(passed) == {"CP13"}
    passed.clear()
    records = [Produced(topic, 0, b"k", b"1"), Produced(topic, 0, b"k", b"2")]
    producer.write(records, report=frozenset(), careful=frozenset())
    producer.commit(10)
    producer.write(records, report=frozenset(), careful=frozenset())
    producer.abort(10)
    writing = ["CP02", "CP03", "CP05", "CP04"]
    assert passed == [*writing, "CP06", *writing, "CP12"]


def test_a_commit_over_a_broken_connection_is_in_doubt(own_broker: Path) -> None:
    started = server.start(own_broker, log=_quiet)
    cluster = KafkaCluster(started.bootstrap, "doubt")
    topic = cluster.topic("t")
    producer = cluster.log.transactional("owner")
    producer.init(10)
    records = [Produced(topic, 0, b"k", b"1")]
    producer.write(records, report=frozenset({(topic, 0)}), careful=frozenset())
    producer.commit(10)
    producer.write(records, report=frozenset({(topic, 0)}), careful=frozenset())
    until(lambda: cluster.log.offsets().end([(topic, 0)])[topic, 0] == 3, "the second record")
    os.kill(started.pid, signal.SIGKILL)
    until(lambda: not is_running(own_broker), "the broker to be dead")
    restart = threading.Thread(target=server.start, args=(own_broker,), kwargs={"log": _quiet})
    restart.start()
    # The client itself gets through to the restarted broker and would call it a success.
    with pytest.raises(Doubt, match="connection was lost"):
        producer.commit(20)
    restart.join()
    producer.close()
    heir = cluster.log.transactional("owner")
    heir.init(20)
    heir.write(records, report=frozenset({(topic, 0)}), careful=frozenset())
    heir.commit(20)
    assert len(values(cluster.log, topic)) in (2, 3)


@pytest.fixture
def restless(kafka: KafkaCluster) -> Iterator[list[KafkaOwnership]]:
    members: list[KafkaOwnership] = []
    yield members
    for member in members:
        member.leave()


def test_a_member_that_stops_polling_loses_its_partitions(
    kafka: KafkaCluster, restless: list[KafkaOwnership]
) -> None:
    topic = kafka.topic("commands", 4)
    settings = ClientSettings(kafka.bootstrap, {})
    told: list[tuple[str, list[int], bool]] = []

    def join(name: str) -> KafkaOwnership:
        link = Link(name)
        config = settings.member(kafka.name("group"), name, link)
        config |= {"session.timeout.ms": 6_000, "max.poll.interval.ms": 6_000}
        member = KafkaOwnership(
            config,
            link,
            Admin(settings),
            kafka.name("group"),
            topic,
            name,
            on_assigned=lambda _: None,
            on_revoked=lambda numbers, lost: told.append((name, numbers, lost)),
            crash=unarmed,
        )
        restless.append(member)
        return member

    slow, quick = join("slow"), join("quick")

    def is_shared() -> bool:
        slow.poll(0.02)
        quick.poll(0.02)
        return len(slow.owned()) == len(quick.owned()) == 2

    until(is_shared, "both to own two")
    held = sorted(slow.owned())
    told.clear()

    def has_all() -> bool:
        quick.poll(0.05)
        return len(quick.owned()) == 4

    until(has_all, "the other to get all")
    assert sorted(slow.owned()) == held

    def knows() -> bool:
        slow.poll(0.02)
        quick.poll(0.02)
        return ("slow", held, True) in told

    until(knows, "the slow one to learn of it")
    until(is_shared, "both to own two again")


def test_what_promises_rest_on_cannot_be_set_by_users() -> None:
    theirs = {
        "isolation.level": "read_uncommitted",
        "enable.idempotence": False,
        "auto.offset.reset": "latest",
        "transactional.id": "mine",
        "sasl.password": "secret",
    }
    settings = ClientSettings("host:1", theirs)
    link = Link("c")
    reader = settings.reader("c", link, committed=True)
    assert reader["isolation.level"] == "read_committed"
    assert reader["auto.offset.reset"] == "error"
    assert settings.transactional("x", link)["transactional.id"] == "x"
    assert settings.outbox("c", link)["enable.idempotence"] is True
    for config in (reader, settings.transactional("x", link), settings.admin(link)):
        assert config["sasl.password"] == "secret"
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    "wrong", [{"no.such.setting": "x"}, {"linger.ms": "often"}, {"linger.ms": {"a": 1}}]
)
def test_a_setting_that_no_client_takes_is_refused(wrong: dict[str, str]) -> None:
    log = KafkaLog("127.0.0.1:9", wrong)
    for make in (
        lambda: log.transactional("x"),
        lambda: log.outbox("x"),
        lambda: log.reader("x", committed=True),
        lambda: log.topics().partitions("x"),
    ):
        with pytest.raises(Refuse, match=r"kafka\.client"):
            make()


def test_users_settings_come_before_those_that_are_a_matter_of_taste() -> None:
    settings = ClientSettings("host:1", {"linger.ms": 7, "fetch.wait.max.ms": 100})
    assert settings.transactional("x", Link("x"))["linger.ms"] == 7
    assert settings.reader("c", Link("c"), committed=False)["fetch.wait.max.ms"] == 100


@pytest.mark.parametrize(
    "record",
    [
        Produced("t", 0, b"key", b"v" * 100),
        Produced("t", 0, None, None),
        Produced("t", 0, b"", b"v" * 20_000, [("name", b"x" * 100), ("other", b"")]),
    ],
    ids=["plain", "empty", "headers"],
)
def test_the_size_of_a_record_is_what_the_broker_compares(
    kafka: KafkaCluster, record: Produced
) -> None:
    size = batch_bytes(record)
    for limit, taken in ((size, True), (size - 1, False)):
        topic = kafka.topic(f"limit-{limit}", batch_bytes_max=limit)
        outbox = kafka.log.outbox(kafka.name("outbox"))
        outbox.send(
            [Produced(topic, 0, record.key, record.value, record.headers)],
        )
        outbox.flush(10)
        assert (len(values(kafka.log, topic)) == 1) is taken


def test_errors_of_a_kind_are_logged_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = KafkaLog("127.0.0.1:9", {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20})
    outbox = log.outbox("lonely")
    outbox.send([Produced("t", 0, b"k", b"v")])
    give_up_s = time.monotonic() + 1
    while time.monotonic() < give_up_s:
        outbox.flush(0.1)
    assert 1 <= len(caplog.records) <= 4


def _quiet(line: str) -> None:
    """The broker's start is not what is tested."""
