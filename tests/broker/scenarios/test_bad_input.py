"""What is wrong is refused over Kafka, with all its problems; nothing stays of it."""

import copy
import json
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from processors import topology
from schemas import limits
from schemas.bindings import COMMANDS
from schemas.commands import (
    AnyCommand,
    DeleteJob,
    JobSpec,
    PauseJob,
    PutJob,
    ResumeJob,
    ScheduleSpec,
    TopicTargetSpec,
    TriggerJob,
)
from schemas.replies import Accepted, Refused
from tests.broker.scenarios import checks
from tests.broker.scenarios.world import SchedulerProcess, Tail, World, put, until

JOB = "standing"
"""A job that is there before, and must be the same after."""


class Refusals:
    """A world with one job in it, and a way to send what must change nothing."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scheduler: SchedulerProcess = world.scheduler().await_owner()
        self.orders = world.topic()
        world.accepted(put(JOB, self.orders, command_id="first"))
        self._replies: Tail = world.tail(topology.REPLIES, since_end=True)
        self._before = checks.state_records(world)

    def json(self, command: dict[str, Any]) -> Refused:
        """The refusal of a JSON command."""
        command = {"command_id": "bad", "reply_to": "me"} | command
        return self._refused(json.dumps(command).encode())

    def avro(self, command: AnyCommand) -> Refused:
        codec = COMMANDS[type(command).__name__]
        return self._refused(codec.encode(with_reply(command)))

    def put_json(self, **definition: Any) -> Refused:
        """The refusal of a put whose definition differs from a good one in these fields."""
        whole = {"schedules": [{"every": "1h"}], "target": {"topic": {"name": self.orders}}}
        return self.json({"type": "put", "tenant": "acme", "job": "new",
                          "definition": whole | definition})  # fmt: skip

    def quarantined(self, value: bytes | None) -> str:
        """Why a record that cannot be answered was set aside; the next one is applied."""
        count, answered = len(checks.quarantined(self.world)), len(self.answers())
        self.world.produce(value, f"acme/{JOB}")
        self.world.flush()
        until(lambda: len(checks.quarantined(self.world)) > count, "quarantine", self.scheduler)
        self._check_nothing_changed()
        assert len(self.answers()) == answered
        return checks.quarantined(self.world)[-1].error

    def _refused(self, value: bytes) -> Refused:
        answered = len(self.answers())
        self.world.produce(value, "acme/new")
        self.world.flush()
        until(lambda: len(self.answers()) > answered, "an answer", self.scheduler)
        [*_, answer] = self.answers()
        assert isinstance(answer, Refused), answer
        assert answer.command_id in ("bad", "first")
        assert answer.message
        assert all(problem.field and problem.message for problem in answer.problems)
        self._check_nothing_changed()
        return answer

    def answers(self) -> list[Accepted | Refused]:
        """Every answer since the job was registered."""
        return checks.answers(self._replies.refresh())

    def _check_nothing_changed(self) -> None:
        assert checks.state_records(self.world) == self._before
        assert self.scheduler.alive


def with_reply(command: AnyCommand) -> AnyCommand:
    return msgspec.structs.replace(command, reply_to="me", command_id=command.command_id or "bad")


def fields(answer: Refused) -> list[str]:
    return [problem.field for problem in answer.problems]


@pytest.fixture(scope="module")
def refusals(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refusals]:
    """One for all tests: since none of them may leave anything behind."""
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    world = World(broker, namespace, tmp_path_factory.mktemp("bad-input"), partitions=1)
    try:
        made = Refusals(world)
        yield made
        [still] = world.accepted(put("good", made.orders, command_id="good"))
        assert not still.repeated
        assert made.scheduler.terminate() == 0
        checks.check_log(world)
        checks.check_stores(world, made.scheduler)
    finally:
        world.close()
        sys.stderr.write(world.newest_lines())


# --- commands that can be read but not applied -----------------------------------------------


def test_an_unknown_field_is_refused_by_name_with_the_closest_known_one(
    refusals: Refusals,
) -> None:
    answer = refusals.put_json(payloda={"a": 1})
    assert answer.kind == "invalid"
    assert fields(answer) == ["payloda"]
    assert "payload" in answer.problems[0].hint
    answer = refusals.json({"type": "pause", "tenant": "acme", "job": JOB, "untill": "tomorrow"})
    assert fields(answer) == ["untill"]


def test_a_field_that_is_not_built_yet_is_refused_by_name(refusals: Refusals) -> None:
    answer = refusals.put_json(task="t", precision="millisecond", concurrency="queue")
    assert {"task", "precision"} <= set(fields(answer))
    assert any("concurrency" in field for field in fields(answer))
    assert all("not built yet" in problem.message for problem in answer.problems)
    spec = good_spec(refusals, concurrency="replace", max_attempts=3)
    answer = refusals.avro(PutJob(tenant="acme", job="new", spec=spec))
    assert set(fields(answer)) == {"concurrency", "max_attempts"}


def test_an_unknown_kind_of_command_is_refused(refusals: Refusals) -> None:
    answer = refusals.json({"type": "cancel-everything", "tenant": "acme", "job": JOB})
    assert fields(answer) == ["type"]
    answer = refusals.json({"tenant": "acme", "job": JOB})
    assert fields(answer) == ["type"]


@pytest.mark.parametrize(
    "cron", ["99 * * * *", "* * * *", "0 0 31 2 *", "@reboot", "H * * * *", "* * * * * * 2030", ""]
)
def test_a_cron_expression_that_cannot_be_run_is_refused(refusals: Refusals, cron: str) -> None:
    answer = refusals.put_json(schedules=[{"cron": cron}])
    assert fields(answer) == ["schedules[0].cron"]
    spec = good_spec(refusals, schedules=(ScheduleSpec(cron=cron),))
    answer = refusals.avro(PutJob(tenant="acme", job="new", spec=spec))
    assert fields(answer) == ["schedules[0].cron"]


@pytest.mark.parametrize("zone", ["Europe/Lodnon", "europe/berlin", "../etc/passwd", "UTC+2", ""])
def test_a_zone_that_does_not_exist_is_refused(refusals: Refusals, zone: str) -> None:
    answer = refusals.put_json(schedules=[{"cron": "0 9 * * *", "timezone": zone}])
    assert fields(answer) == ["schedules[0].timezone"]
    spec = good_spec(refusals, schedules=(ScheduleSpec(cron="0 9 * * *", timezone=zone),))
    answer = refusals.avro(PutJob(tenant="acme", job="new", spec=spec))
    assert fields(answer) == ["schedules[0].timezone"]


@pytest.mark.parametrize(
    "schedule",
    [
        {},
        {"every": "10ms"},
        {"every": "often"},
        {"every": "1h", "cron": "* * * * *"},
        {"at": "2001-01-01T00:00:00Z"},
        {"at": "2030-01-01T00:00:00"},
        {"at": "2030-02-31T00:00:00Z"},
        {"in": "-5m"},
        {"now": False},
        {"cron": 5},
        "every hour",
    ],
    ids=str,
)
def test_a_schedule_that_says_nothing_usable_is_refused(
    refusals: Refusals, schedule: object
) -> None:
    answer = refusals.put_json(schedules=[schedule])
    assert answer.problems
    assert all("schedules[0]" in field for field in fields(answer))


@pytest.mark.parametrize("schedules", [[], [{"every": "1h"}] * 11, {"every": "1h"}, None], ids=str)
def test_too_few_or_too_many_schedules_are_refused(refusals: Refusals, schedules: object) -> None:
    answer = refusals.put_json(schedules=schedules)
    assert set(fields(answer)) == {"schedules"}


@pytest.mark.parametrize(
    "target",
    [
        None,
        {},
        {"topic": {}},
        {"topic": {"name": ""}},
        {"topic": {"name": "no spaces"}},
        {"topic": {"name": "x" * 250}},
        {"topic": {"name": "__consumer_offsets"}},
        {"topic": {"name": "orders", "partition": 3}},
        {"topic": {"name": "orders", "headers": {"ce_id": "mine"}}},
        {"topic": {"name": "orders", "headers": {"a": 1}}},
        {"topic": {"name": "orders", "outcome": "report"}},
        {"topic": "orders"},
        {"topic": {"name": "orders"}, "http": {"url": "https://example.org"}},
    ],
    ids=str,
)
def test_a_target_that_cannot_be_used_is_refused(refusals: Refusals, target: object) -> None:
    answer = refusals.put_json(target=target)
    assert answer.problems
    assert all("target" in field for field in fields(answer))


def test_one_of_our_own_topics_is_no_target(refusals: Refusals) -> None:
    own = refusals.world.name(topology.JOB_STATE)
    answer = refusals.put_json(target={"topic": {"name": own}})
    assert fields(answer) == ["target.topic.name"]


@pytest.mark.parametrize("tenant", ["", "Acme", "a" * 64, "ac/me", "#", "a b", "ä", None, 7])
def test_a_tenant_that_is_no_id_is_refused(refusals: Refusals, tenant: object) -> None:
    answer = refusals.json({"type": "pause", "tenant": tenant, "job": JOB})
    assert fields(answer) == ["tenant"] or set(fields(answer)) == {"tenant"}


@pytest.mark.parametrize("job", ["", ".hidden", "~m", "a/b", "a#ids", "x" * 129, "a b", "ü", None])
def test_a_job_that_is_no_id_is_refused(refusals: Refusals, job: object) -> None:
    answer = refusals.json({"type": "pause", "tenant": "acme", "job": job})
    assert set(fields(answer)) == {"job"}
    if isinstance(job, str):
        assert set(fields(refusals.avro(PauseJob(tenant="acme", job=job)))) == {"job"}


def test_texts_that_are_too_long_are_refused(refusals: Refusals) -> None:
    answer = refusals.json({"type": "pause", "tenant": "acme", "job": JOB, "by": "x" * 257,
                            "note": "x" * 1_025})  # fmt: skip
    assert set(fields(answer)) == {"by", "note"}


def test_a_payload_that_is_too_large_is_refused(refusals: Refusals) -> None:
    large = "x" * limits.PAYLOAD_BYTES_MAX
    assert fields(refusals.put_json(payload=large)) == ["payload"]
    spec = good_spec(refusals, payload=b"x" * (limits.PAYLOAD_BYTES_MAX + 1))
    assert fields(refusals.avro(PutJob(tenant="acme", job="new", spec=spec))) == ["payload"]
    trigger = TriggerJob(tenant="acme", job=JOB, payload=b"x" * (limits.PAYLOAD_BYTES_MAX + 1))
    assert fields(refusals.avro(trigger)) == ["payload"]


def test_base64_that_is_none_is_refused(refusals: Refusals) -> None:
    assert fields(refusals.put_json(payload_base64="%%%")) == ["payload_base64"]
    answer = refusals.put_json(payload_base64="aGk=", payload=1)
    assert fields(answer) == ["payload_base64"]


def test_an_unknown_job_is_refused_whatever_is_asked_of_it(refusals: Refusals) -> None:
    for kind in (PauseJob, ResumeJob, DeleteJob, TriggerJob):
        answer = refusals.avro(kind(tenant="acme", job="nobody"))
        assert answer.kind == "not_found"
        assert "acme/nobody" in answer.message
    for name in ("pause", "resume", "delete", "trigger"):
        answer = refusals.json({"type": name, "tenant": "other", "job": JOB})
        assert answer.kind == "not_found"


def test_a_version_conflict_names_both_versions(refusals: Refusals) -> None:
    answer = refusals.avro(PauseJob(tenant="acme", job=JOB, if_match=7))
    assert answer.kind == "version_conflict"
    assert fields(answer) == ["if_match"]
    assert "7" in answer.problems[0].message
    assert "1" in answer.problems[0].message
    answer = refusals.json({"type": "put", "tenant": "acme", "job": JOB, "if_match": 0,
                            "definition": {"schedules": [{"every": "2h"}],
                            "target": {"topic": {"name": refusals.orders}}}})  # fmt: skip
    assert answer.kind == "version_conflict"
    for if_match in (-1, "1", True, 1.5, 2**60):
        answer = refusals.json(
            {"type": "delete", "tenant": "acme", "job": JOB, "if_match": if_match}
        )
        assert fields(answer) == ["if_match"]


def test_an_id_that_was_used_with_another_body_is_refused(refusals: Refusals) -> None:
    other = DeleteJob(tenant="acme", job=JOB, command_id="first")
    answer = refusals.avro(other)
    assert (answer.kind, fields(answer)) == ("id_reused", ["command_id"])


def test_a_nominal_time_that_is_none_is_refused(refusals: Refusals) -> None:
    answer = refusals.avro(TriggerJob(tenant="acme", job=JOB, scheduled_at="tomorrow"))
    assert fields(answer) == ["scheduled_at"]


def test_everything_that_is_wrong_is_named_at_once(refusals: Refusals) -> None:
    answer = refusals.json(
        {
            "type": "put", "tenant": "Acme", "job": "a/b", "wat": 1,
            "definition": {
                "schedules": [{"cron": "99 * * * *", "timezone": "Mars/Olympus"}, {"every": "1ms"}],
                "target": {"topic": {"name": "no spaces"}}, "concurrency": "sometimes",
                "max_attempts": 3, "late_tolerance": "soon", "color": "red",
            },
        }
    )  # fmt: skip
    named = " ".join(fields(answer))
    for field in ("wat", "color"):
        assert field in named
    missing = [
        field
        for field in ("tenant", "job", "cron", "timezone", "schedules[1].every", "topic.name",
                      "concurrency", "max_attempts", "late_tolerance")
        if field not in named
    ]  # fmt: skip
    assert missing == []


# --- records that cannot be answered ---------------------------------------------------------


def test_malformed_json_goes_to_quarantine_with_the_reason(refusals: Refusals) -> None:
    assert "JSON" in refusals.quarantined(b'{"type": "pause", "tenant": "acme", ')


def test_undecodable_avro_goes_to_quarantine_with_the_reason(refusals: Refusals) -> None:
    whole = COMMANDS["PutJob"].encode(put("new", refusals.orders))
    assert "PutJob" in refusals.quarantined(whole[:-4])
    assert "PutJob" in refusals.quarantined(whole + b"more")
    assert "schema id 4242" in refusals.quarantined(b"\x00" + (4242).to_bytes(4, "big") + whole[5:])


def test_a_command_that_is_too_large_goes_to_quarantine_unread(refusals: Refusals) -> None:
    large = {"type": "put", "tenant": "acme", "job": "new", "reply_to": "me",
             "definition": {"payload": "x" * limits.COMMAND_BYTES_MAX}}  # fmt: skip
    error = refusals.quarantined(json.dumps(large).encode())
    assert str(limits.COMMAND_BYTES_MAX) in error


def test_values_of_the_wrong_kind_are_refused_wherever_they_stand(refusals: Refusals) -> None:
    """Each field of a good command replaced by every kind of wrong value, one at a time."""
    good = {
        "type": "put", "tenant": "acme", "job": "new", "command_id": "bad", "reply_to": "me",
        "by": "x", "note": "x", "if_match": 0,
        "definition": {
            "name": "x", "schedules": [{"cron": "0 9 * * *", "timezone": "UTC",
                                        "dst": {"gap": "next", "repeat": "first"}}],
            "target": {"topic": {"name": refusals.orders, "key": "k", "headers": {"a": "b"}}},
            "payload": {"a": 1}, "content_type": "application/json", "concurrency": "forbid",
            "missed": "latest", "late_tolerance": "60s", "max_attempts": 1,
        },
    }  # fmt: skip
    wrong: list[Any] = [[], {}, 7, True, "\u0000", -1, 1e308, {"a": {"b": []}}]
    world, sent = refusals.world, 0
    before, answered = checks.state_records(world), len(refusals.answers())
    aside = len(checks.quarantined(world))
    for path in _paths(good):
        if path[:2] == ("definition", "payload") or path == ("reply_to",):
            continue
        for value in wrong:
            bad = copy.deepcopy(good)
            _set(bad, path, value)
            if path == ("command_id",) or _is_fine(path, value):
                continue
            world.produce(json.dumps(bad).encode(), "acme/new")
            sent += 1
    world.flush()
    until(lambda: len(refusals.answers()) >= answered + sent, "answers", refusals.scheduler)
    assert [a for a in refusals.answers() if not isinstance(a, Refused)] == []
    assert len(checks.quarantined(world)) == aside
    assert checks.state_records(world) == before


def _paths(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    children = node.items() if isinstance(node, dict) else ()
    if isinstance(node, list):
        children = enumerate(node)  # type: ignore[assignment]
    for name, child in children:
        yield from _paths(child, (*at, name))


def _set(node: Any, path: tuple[Any, ...], value: Any) -> None:
    for name in path[:-1]:
        node = node[name]
    node[path[-1]] = value


def _is_fine(path: tuple[Any, ...], value: Any) -> bool:
    """Not every value is wrong everywhere."""
    last = path[-1]
    if value == {} and last in ("headers", "dst"):
        return True
    if value == 7 and last == "if_match":
        return False
    return value == "\u0000" and last in ("by", "note", "name", "content_type", "key", "a")


def good_spec(refusals: Refusals, **more: Any) -> JobSpec:
    values = {
        "schedules": (ScheduleSpec(every="1h"),),
        "topic": TopicTargetSpec(name=refusals.orders),
    }
    return JobSpec(**(values | more))
