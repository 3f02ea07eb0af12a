"""Topic administration on a real Kafka."""

import msgspec
import pytest
from confluent_kafka.admin import AdminClient

from processors.topology import topic_set
from streams import admin
from streams.errors import Refuse, Unavailable
from streams.topics import TopicSet, TopicSpec


@pytest.fixture
def config(broker: str) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": broker}


def one_topic(namespace: str, spec: TopicSpec) -> TopicSet:
    return TopicSet(namespace=namespace, partitions=2, specs=(spec,))


SPEC = TopicSpec(suffix="state", partitions="P", cleanup="compact", append_time=True)


def test_apply_creates_all_topics_as_verify_wants_them(
    config: admin.ClientConfig, namespace: str
) -> None:
    wanted = topic_set(namespace, 3)
    planned = admin.plan(config, wanted)
    assert len(planned.create) == len(wanted.specs)
    assert {str(problem).split(":")[1].strip() for problem in admin.verify(config, wanted)} == {
        "the topic is missing, expected there, with 3 partitions; run `horolog topics apply`",
        "the topic is missing, expected there, with 16 partitions; run `horolog topics apply`",
    }

    applied = admin.apply(config, wanted)
    assert set(applied.created) == {topic.name for topic in planned.create}
    assert applied.warnings == ()
    assert admin.verify(config, wanted) == []


def test_apply_again_changes_nothing(config: admin.ClientConfig, namespace: str) -> None:
    wanted = topic_set(namespace, 1)
    admin.apply(config, wanted)
    assert admin.apply(config, wanted).created == ()
    assert admin.plan(config, wanted).create == ()


def test_another_number_of_partitions_is_refused(
    config: admin.ClientConfig, namespace: str
) -> None:
    wanted = one_topic(namespace, SPEC)
    admin.apply(config, wanted)
    other = msgspec.structs.replace(wanted, partitions=4)
    with pytest.raises(Refuse, match=f"{namespace}.state: the number of partitions is 2, expec"):
        admin.apply(config, other)
    assert [problem.fatal for problem in admin.verify(config, other)] == [True]
    assert admin.verify(config, wanted) == []


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (msgspec.structs.replace(SPEC, cleanup="delete"), "cleanup.policy is delete, expected com"),
        (
            msgspec.structs.replace(SPEC, append_time=False),
            "type is CreateTime, expected LogAppend",
        ),
    ],
)
def test_a_topic_that_would_lose_or_misdate_records_is_refused(
    config: admin.ClientConfig, namespace: str, made: TopicSpec, said: str
) -> None:
    admin.apply(config, one_topic(namespace, made))
    with pytest.raises(Refuse, match=said):
        admin.apply(config, one_topic(namespace, SPEC))


def test_a_difference_that_may_be_meant_is_a_warning(
    config: admin.ClientConfig, namespace: str
) -> None:
    made = msgspec.structs.replace(SPEC, settings={"segment.ms": "60000"})
    admin.apply(config, one_topic(namespace, made))
    wanted = msgspec.structs.replace(SPEC, settings={"segment.ms": "3600000"})
    applied = admin.apply(config, one_topic(namespace, wanted))
    assert [(warning.what, warning.found) for warning in applied.warnings] == [
        ("segment.ms", "60000")
    ]


def test_nothing_is_created_while_something_is_wrong(
    config: admin.ClientConfig, namespace: str
) -> None:
    admin.apply(config, one_topic(namespace, SPEC))
    second = TopicSpec(suffix="more", partitions=1, cleanup="delete")
    wanted = TopicSet(namespace=namespace, partitions=9, specs=(SPEC, second))
    with pytest.raises(Refuse):
        admin.apply(config, wanted)
    there = AdminClient(dict(config)).list_topics(timeout=10).topics
    assert f"{namespace}.more" not in there


def test_a_setting_that_kafka_rejects_is_refused_in_its_words(
    config: admin.ClientConfig, namespace: str
) -> None:
    spec = msgspec.structs.replace(SPEC, settings={"segment.bytes": "many"})
    with pytest.raises(Refuse, match=r"segment\.bytes"):
        admin.apply(config, one_topic(namespace, spec))


def test_a_kafka_that_is_not_there_is_unavailable(namespace: str) -> None:
    nobody: admin.ClientConfig = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(Unavailable, match="did not answer in time"):
        admin.verify(nobody, one_topic(namespace, SPEC), timeout_s=0.5)
