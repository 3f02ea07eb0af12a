import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.topology import TOPICS, topic_set
from streams.topics import (
    PER_TASK,
    Cluster,
    TopicSet,
    make_plan,
    topics_of,
)

WANTED = topic_set("ns", 12)


def cluster(wanted: TopicSet, *, made_on: int, seen_by: int) -> Cluster:
    topics = {topic.name: topic for topic in topics_of(wanted, brokers=made_on)}
    return Cluster(brokers=seen_by, topics=topics)


def changed(name: str, **settings: str) -> Cluster:
    """A one-broker cluster in which one topic's settings differ."""
    made = cluster(WANTED, made_on=1, seen_by=1)
    topic = made.topics[name]
    settings = {key.replace("_", "."): value for key, value in settings.items()}
    other = msgspec.structs.replace(topic, settings={**topic.settings, **settings})
    return Cluster(brokers=1, topics={**made.topics, name: other})


def test_every_truth_topic_is_compacted_and_never_deleted_by_age() -> None:
    policies = {spec.suffix: spec.cleanup for spec in TOPICS}
    for suffix in ("schedules", "job-state", "schedule-changes", "slot-state"):
        assert policies[suffix] == "compact"


def test_topics_that_are_a_clock_take_the_append_time() -> None:
    assert {spec.suffix for spec in TOPICS if spec.append_time} == {
        "commands", "job-state", "reports", "slot-requests", "slot-state",
    }  # fmt: skip


def test_executions_are_not_compacted_while_they_are_kept() -> None:
    (executions,) = (spec for spec in TOPICS if spec.suffix == "executions")
    assert executions.settings["min.compaction.lag.ms"] == executions.settings["retention.ms"]


FOR_READERS = {"replies", "inbox.default", "inbox.http"}
"""Topics whose partitions are shared out among readers, however many tasks there are."""


def test_topics_of_a_task_have_one_partition_per_task_and_those_of_readers_do_not() -> None:
    counts = {topic.name: topic.partitions for topic in topics_of(WANTED, brokers=1)}
    assert {counts.pop(f"ns.{suffix}") for suffix in FOR_READERS} == {16}
    assert set(counts.values()) == {12}
    assert {spec.suffix for spec in TOPICS if spec.partitions != PER_TASK} == FOR_READERS


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, 1, "1"), (3, 3, "2"), (5, 3, "2")]
)
def test_replication_is_three_unless_there_is_one_broker(
    brokers: int, replicas: int, in_sync: str
) -> None:
    for topic in topics_of(WANTED, brokers=brokers):
        assert (topic.replicas, topic.settings["min.insync.replicas"]) == (replicas, in_sync)


def test_two_brokers_are_neither_development_nor_safe() -> None:
    plan = make_plan(WANTED, Cluster(brokers=2, topics={}))
    assert plan.problems
    assert all(problem.fatal for problem in plan.problems)


@given(st.sampled_from([1, 3, 4]), st.sets(st.sampled_from([spec.suffix for spec in TOPICS])))
def test_a_plan_creates_exactly_what_is_missing(brokers: int, present: set[str]) -> None:
    made = cluster(WANTED, made_on=brokers, seen_by=brokers)
    there = {name: topic for name, topic in made.topics.items() if name[3:] in present}
    plan = make_plan(WANTED, Cluster(brokers=brokers, topics=there))
    assert {topic.name for topic in plan.keep} == set(there)
    assert {topic.name for topic in plan.create} == set(made.topics) - set(there)
    assert plan.problems == ()


def test_a_broker_that_is_down_for_a_moment_is_no_problem() -> None:
    for seen_by in (1, 2):
        assert make_plan(WANTED, cluster(WANTED, made_on=3, seen_by=seen_by)).problems == ()


def test_topics_made_on_one_broker_are_weak_on_three() -> None:
    plan = make_plan(WANTED, cluster(WANTED, made_on=1, seen_by=3))
    assert {(problem.what, problem.fatal) for problem in plan.problems} == {
        ("the replication factor", False)
    }


def test_the_order_of_clean_up_policies_does_not_matter() -> None:
    found = changed("ns.executions", cleanup_policy="delete,compact")
    assert make_plan(WANTED, found).problems == ()


@pytest.mark.parametrize(
    ("topic", "key", "value", "fatal"),
    [
        ("ns.job-state", "cleanup.policy", "compact,delete", True),
        ("ns.commands", "cleanup.policy", "compact", True),
        ("ns.commands", "message.timestamp.type", "CreateTime", True),
        ("ns.executions", "message.timestamp.type", "LogAppendTime", True),
        ("ns.commands", "retention.ms", "1000", False),
        ("ns.job-state", "min.insync.replicas", "2", False),
    ],
)
def test_a_problem_says_topic_found_expected_and_what_to_do(
    topic: str, key: str, value: str, fatal: bool
) -> None:
    (problem,) = make_plan(WANTED, changed(topic, **{key.replace(".", "_"): value})).problems
    assert problem.fatal is fatal
    text = str(problem)
    assert text.startswith(f"topic {topic}: {key} is {value}, expected ")
    assert text.endswith(problem.advice)


def test_another_number_of_partitions_is_fatal() -> None:
    plan = make_plan(topic_set("ns", 64), cluster(WANTED, made_on=1, seen_by=1))
    wrong = [topic.name for topic in plan.keep if topic.name[3:] not in FOR_READERS]
    assert [problem.topic for problem in plan.problems] == wrong
    assert all(problem.fatal for problem in plan.problems)


@pytest.mark.parametrize("namespace", ["", ".x", "a b", "ä", "a/b", "a\n", "x" * 129])
def test_a_namespace_that_makes_no_topic_names_is_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        topics_of(topic_set(namespace, 1), brokers=1)


def test_a_topic_is_named_under_its_namespace() -> None:
    names = {topic.name for topic in topics_of(topic_set("horolog", 1), brokers=1)}
    assert "horolog.job-state" in names
