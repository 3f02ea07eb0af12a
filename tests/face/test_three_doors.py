"""What is accepted and what is refused is the same through REST, the command line and Kafka."""

import json
from typing import Any, NamedTuple

import pytest
from standing import Standing

TOPIC = {"topic": {"name": "TOPIC"}}
EVERY = [{"every": "1h"}]


class Case(NamedTuple):
    """A definition, and how it is answered: `kind` of the refusal, empty if it is accepted, with
    the fields that are wrong."""

    name: str
    definition: dict[str, Any]
    kind: str = ""
    fields: tuple[str, ...] = ()
    job: str = ""


CASES = [
    Case("plain", {"schedules": EVERY, "target": TOPIC}),
    Case("cron with a zone", {"schedules": [{"cron": "30 2 * * *", "timezone": "Europe/Paris"}],
                              "target": TOPIC}),
    Case("several schedules", {"schedules": [*EVERY, {"at": "2099-01-01T00:00:00Z"}],
                               "target": TOPIC, "name": "Näme", "payload": {"a": [1, None]}}),
    Case("a handler", {"schedules": EVERY, "target": {"worker": {"handler": "h"}}}),
    Case("an address", {"schedules": EVERY, "target": {"http": {"url": "https://example.org/"}}}),
    Case("bytes", {"schedules": EVERY, "target": TOPIC, "payload_base64": "AAEC"}),
    Case("nothing", {}, "invalid", ("schedules", "target")),
    Case("no schedule", {"schedules": [], "target": TOPIC}, "invalid", ("schedules",)),
    Case("schedules that are none", {"schedules": "daily", "target": TOPIC}, "invalid",
         ("schedules",)),
    Case("two targets", {"schedules": EVERY, "target": TOPIC | {"worker": {"handler": "h"}}},
         "invalid", ("target",)),
    Case("an unknown field", {"schedules": EVERY, "target": TOPIC, "colour": 1}, "invalid",
         ("colour",)),
    Case("not built yet", {"schedules": EVERY, "target": TOPIC, "backoff": "5s"}, "invalid",
         ("backoff",)),
    Case("what bounds ticks", {"schedules": EVERY, "target": TOPIC, "jitter": "5s", "max_runs": 3,
                               "missed": "skip", "start_deadline": "1h"}),
    Case("wrong bounds of ticks", {"schedules": EVERY, "target": TOPIC, "jitter": "soon",
                                   "max_runs": -1}, "invalid", ("jitter", "max_runs")),
    Case("a wrong cron and zone", {"target": TOPIC, "schedules": [
        {"cron": "99 * * * *", "timezone": "Europe/Lodnon"}]}, "invalid",
         ("schedules[0].cron", "schedules[0].timezone")),
    Case("never", {"schedules": [{"cron": "0 0 31 2 *"}], "target": TOPIC}, "invalid",
         ("schedules[0].cron",)),
    Case("everything at once", {"schedules": [{"every": "1ms"}],
                                "target": {"topic": {"name": "__x"}}, "colour": 1,
                                "missed": "some"}, "invalid",
         ("colour", "missed", "schedules[0].every", "target.topic.name")),
    Case("a past instant", {"schedules": [{"at": "2001-01-01T00:00:00Z"}], "target": TOPIC},
         "invalid", ("schedules[0].at",)),
    Case("two payloads", {"schedules": EVERY, "target": TOPIC, "payload": 1,
                          "payload_base64": "AA=="}, "invalid", ("payload_base64",)),
    Case("wrong types", {"schedules": [7], "target": [], "name": 5}, "invalid",
         ("name", "schedules[0]", "target")),
    Case("a credential", {"schedules": EVERY, "target": {"http": {
        "url": "https://example.org/", "headers": {"Authorization": "Bearer x"}}}}, "invalid",
        ("target.http.headers.Authorization",)),
    Case("a foreign id", {"schedules": EVERY, "target": TOPIC}, "invalid", ("job",), "näme"),
    Case("a hidden id", {"schedules": EVERY, "target": TOPIC}, "invalid", ("job",), ".x"),
    Case("a long id", {"schedules": EVERY, "target": TOPIC}, "invalid", ("job",), "x" * 129),
]  # fmt: skip

Told = tuple[str, dict[str, str]]


def by_rest(face: Standing, job: str, definition: dict[str, Any]) -> Told:
    from urllib.parse import quote

    answer = face.jobs("PUT", quote(job), definition)
    return ("", {}) if answer.status == 200 else (answer.kind, answer.errors)


def by_cli(face: Standing, job: str, definition: dict[str, Any]) -> Told:
    code, told = face.cli("job", "put", job, "-f", "-", stdin=json.dumps(definition))
    if code == 0:
        return "", {}
    return told["kind"], {one["field"]: one["message"] for one in told["problems"]}


def by_kafka(face: Standing, job: str, definition: dict[str, Any]) -> Told:
    told = face.kafka({"type": "put", "tenant": "default", "job": job, "definition": definition})
    if "kind" not in told:
        return "", {}
    return told["kind"], {one["field"]: one["message"] for one in told["problems"]}


DOORS = {"rest": by_rest, "cli": by_cli, "kafka": by_kafka}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_door_accepts_and_refuses_the_same_in_the_same_words(
    face: Standing, case: Case
) -> None:
    definition = json.loads(json.dumps(case.definition).replace("TOPIC", face.topic))
    told = {
        door: ask(face, case.job or f"{case.name.replace(' ', '-')}.{door}", definition)
        for door, ask in DOORS.items()
    }
    kind, errors = told["rest"]
    assert (kind, set(errors)) == (case.kind, set(case.fields))
    assert told["cli"] == told["kafka"] == told["rest"]


def verbs_by_rest(face: Standing, verb: str, job: str) -> str:
    asked = ("DELETE", job) if verb == "delete" else ("POST", f"{job}:{verb}")
    answer = face.jobs(*asked)
    return "" if answer.status == 200 else answer.kind


def verbs_by_cli(face: Standing, verb: str, job: str) -> str:
    code, told = face.cli("job", verb, job)
    return "" if code == 0 else str(told["kind"])


def verbs_by_kafka(face: Standing, verb: str, job: str) -> str:
    told = face.kafka({"type": verb, "tenant": "default", "job": job})
    return str(told.get("kind", ""))


VERBS = {"rest": verbs_by_rest, "cli": verbs_by_cli, "kafka": verbs_by_kafka}
STORY = ("pause", "pause", "trigger", "resume", "resume", "trigger", "delete", "delete", "pause",
         "trigger")  # fmt: skip


def test_the_life_of_a_job_is_answered_the_same_at_every_step(face: Standing) -> None:
    told: dict[str, list[str]] = {}
    for door, ask in VERBS.items():
        face.put(f"story-{door}")
        told[door] = [ask(face, verb, f"story-{door}") for verb in STORY]
    assert told["rest"] == told["cli"] == told["kafka"]
    assert told["rest"][:7] == [""] * 7
    assert told["rest"][7:] == ["not_found"] * 3


def test_a_finished_job_is_answered_the_same(face: Standing) -> None:
    told = {}
    for door, ask in VERBS.items():
        job = f"finished-{door}"
        face.put(job, schedules=[{"now": True}])
        face.executions(job, 1, "succeeded")
        told[door] = [ask(face, verb, job) for verb in ("pause", "resume", "trigger")]
    assert told["rest"] == told["cli"] == told["kafka"]
    assert "finished" in told["rest"]


def test_a_version_that_is_not_there_is_answered_the_same(face: Standing) -> None:
    definition = {"schedules": EVERY, "target": {"topic": {"name": face.topic}}}
    for door in DOORS:
        face.put(f"versions-{door}")
    rest = face.jobs("PUT", "versions-rest", definition, If_Match='"7"')
    code, cli = face.cli("job", "put", "versions-cli", "-f", "-", "--if-match", "7",
                         stdin=json.dumps(definition))  # fmt: skip
    kafka = face.kafka({"type": "put", "tenant": "default", "job": "versions-kafka",
                        "definition": definition, "if_match": 7})  # fmt: skip
    assert code == 4
    assert rest.status == 412
    assert rest.kind == cli["kind"] == kafka["kind"] == "version_conflict"
    assert set(rest.errors) == {p["field"] for p in cli["problems"]} == {"if_match"}


def test_a_command_id_counts_through_every_door(face: Standing) -> None:
    """A trigger that was sent through one door is recognised at the others: no second run."""
    face.put("once")
    rest = face.jobs("POST", "once:trigger", Idempotency_Key="k-1", Horolog_By="me").json
    kafka = face.kafka({"type": "trigger", "tenant": "default", "job": "once",
                        "command_id": "k-1", "by": "me"})  # fmt: skip
    again = face.jobs("POST", "once:trigger", Idempotency_Key='"k-1"', Horolog_By="me").json
    assert (rest["repeated"], kafka["repeated"], again["repeated"]) == (False, True, True)
    assert rest["execution_id"] == kafka["execution_id"] == again["execution_id"]
    assert len(face.executions("once", 1)) == 1
    other = face.jobs("POST", "once:trigger", {"payload": 1}, Idempotency_Key="k-1",
                      Horolog_By="me")  # fmt: skip
    assert (other.status, other.kind) == (409, "id_reused")
