"""Bad input of every kind is refused with all that is wrong, by JSON and Avro alike."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.core import admission
from processors.core.admission import BadCommand, read_command, read_definition
from schemas import limits
from schemas.bindings import PAUSE_JOB, PUT_JOB
from schemas.codec import Undecodable
from schemas.commands import (
    HttpTargetSpec,
    JobSpec,
    PauseJob,
    PutJob,
    ScheduleSpec,
    TopicTargetSpec,
    WorkerTargetSpec,
)
from schemas.replies import Accepted, Problem, Refused
from schemas.units import parse_instant
from streams.errors import PoisonRecord
from tests.unit.core.owner import Owner

T0 = parse_instant("2026-03-02T10:00:00Z")
GOOD: Mapping[str, Any] = {
    "schedules": [{"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"}],
    "target": {"topic": {"name": "orders"}},
}


def as_json(definition: Any, **envelope: Any) -> bytes:
    command = {"type": "put", "tenant": "t", "job": "j", "reply_to": "me"} | envelope
    return json.dumps(command | {"definition": definition}).encode()


def as_avro(definition: Mapping[str, Any], **envelope: Any) -> bytes:
    """The same command as Avro; only what Avro can say at all."""
    kinds = {"topic": TopicTargetSpec, "http": HttpTargetSpec, "worker": WorkerTargetSpec}
    values = {k: v for k, v in definition.items() if k not in ("schedules", "target", "payload")}
    if "payload" in definition:
        values["payload"] = json.dumps(definition["payload"], separators=(",", ":")).encode()
    target = definition.get("target", {})
    spec = JobSpec(
        schedules=tuple(_schedule(one) for one in definition.get("schedules", ())),
        **{kind: made(**target[kind]) for kind, made in kinds.items() if kind in target},
        **values,
    )
    named = {"tenant": "t", "job": "j", "reply_to": "me"} | envelope
    return PUT_JOB.encode(PutJob(spec=spec, **named))


def _schedule(one: Mapping[str, Any]) -> ScheduleSpec:
    values = {("in_" if k == "in" else k): v for k, v in one.items() if k != "dst"}
    return ScheduleSpec(**values, **one.get("dst", {}))


def told(problems: tuple[Problem, ...]) -> dict[str, str]:
    return {problem.field: f"{problem.message} | {problem.hint}" for problem in problems}


def refusal(data: bytes) -> Refused:
    """The refusal of a command that must have no effect."""
    owner = Owner()
    reply = owner.send(data, T0)
    assert isinstance(reply, Refused), reply
    assert owner.stores.contents(0) == {} and not owner.records, "nothing is half-applied"
    return reply


def with_schedule(**schedule: Any) -> dict[str, Any]:
    return {**GOOD, "schedules": [schedule]}


def with_topic(**topic: Any) -> dict[str, Any]:
    return {**GOOD, "target": {"topic": {"name": "orders"} | topic}}


BAD: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "cron": (with_schedule(cron="0 25 * * *"), {"schedules[0].cron": "25"}),
    "cron that never fires": (with_schedule(cron="0 0 31 2 *"), {"schedules[0].cron": "never"}),
    "zone": (
        with_schedule(cron="0 9 * * *", timezone="Europe/Berln"),
        {"schedules[0].timezone": "Europe/Berlin"},
    ),
    "zone in the wrong case": (
        with_schedule(cron="0 9 * * *", timezone="europe/berlin"),
        {"schedules[0].timezone": "Europe/Berlin"},
    ),
    "duration": (with_schedule(every="soon"), {"schedules[0].every": "no duration"}),
    "duration without unit": (with_schedule(every="90"), {"schedules[0].every": "90s"}),
    "interval too short": (with_schedule(every="999ms"), {"schedules[0].every": "1s"}),
    "anchor": (
        with_schedule(every="1m", anchor="yesterday"),
        {"schedules[0].anchor": "no date and time"},
    ),
    "instant without offset": (
        with_schedule(at="2027-01-01T00:00:00"),
        {"schedules[0].at": "neither an offset nor a zone"},
    ),
    "instant that has passed": (
        with_schedule(at="2026-03-02T09:58:59Z"),
        {"schedules[0].at": "has passed"},
    ),
    "two kinds at once": (
        with_schedule(cron="0 9 * * *", every="1h"),
        {"schedules[0]": "exactly one"},
    ),
    "no kind": (with_schedule(timezone="UTC"), {"schedules[0]": "exactly one"}),
    "now that is not true": (with_schedule(now=False), {"schedules[0].now": "true"}),
    "gap and repeat": (
        with_schedule(cron="0 9 * * *", dst={"gap": "jump", "repeat": "thrice"}),
        {"schedules[0].dst.gap": "auto, next, skip", "schedules[0].dst.repeat": "both"},
    ),
    "field of another kind": (
        with_schedule(every="1h", timezone="UTC"),
        {"schedules[0].timezone": "no field of a schedule of kind 'every'"},
    ),
    "no schedules": ({**GOOD, "schedules": []}, {"schedules": "one to 10"}),
    "eleven schedules": (
        {**GOOD, "schedules": [{"every": "1m"}] * 11},
        {"schedules": "11 schedules"},
    ),
    "no target": ({"schedules": GOOD["schedules"]}, {"target": "is missing"}),
    "topic name": (with_topic(name="what is this?"), {"target.topic.name": "not ' '"}),
    "no topic name": (with_topic(name=""), {"target.topic.name": "no topic name"}),
    "dots": (with_topic(name=".."), {"target.topic.name": "no topic name"}),
    "long topic name": (with_topic(name="x" * 250), {"target.topic.name": "249"}),
    "our topic": (with_topic(name="h.commands"), {"target.topic.name": "belongs to Horolog"}),
    "Kafka's topic": (
        with_topic(name="__consumer_offsets"),
        {"target.topic.name": "belongs to Horolog or to Kafka"},
    ),
    "long key": (with_topic(key="k" * 1_025), {"target.topic.key": "1025 bytes"}),
    "many headers": (
        with_topic(headers={f"h{n}": "v" for n in range(33)}),
        {"target.topic.headers": "33 headers"},
    ),
    "reserved headers": (
        with_topic(
            headers={
                "ce_id": "1", "X-Horolog-Fence": "1", "idempotency-key": "1",
                "X-Deduplication-Key": "1", "Content-Type": "text/plain", "fine": "1",
            }  # fmt: skip
        ),
        {
            "target.topic.headers.ce_id": "is set by Horolog",
            "target.topic.headers.X-Horolog-Fence": "is set by Horolog",
            "target.topic.headers.idempotency-key": "is set by Horolog",
            "target.topic.headers.X-Deduplication-Key": "is set by Horolog",
            "target.topic.headers.Content-Type": "content_type of the job",
        },
    ),
    "long header": (
        with_topic(headers={"h": "v" * 4_096}),
        {"target.topic.headers.h": "4097 bytes"},
    ),
    "outcome": (with_topic(outcome="maybe"), {"target.topic.outcome": "is no choice"}),
    "late tolerance": (
        {**GOOD, "late_tolerance": "-5s"},
        {"late_tolerance": "is negative"},
    ),
    "empty late tolerance": ({**GOOD, "late_tolerance": ""}, {"late_tolerance": "no duration"}),
    "long late tolerance": ({**GOOD, "late_tolerance": "25h"}, {"late_tolerance": "24h"}),
    "empty choices": (
        {**GOOD, "concurrency": "", "missed": ""},
        {"concurrency": "'' is no choice", "missed": "'' is no choice"},
    ),
    "attempts": ({**GOOD, "max_attempts": 8}, {"max_attempts": "not built yet"}),
    "long name": ({**GOOD, "name": "n" * 257}, {"name": "257 characters"}),
    "large payload": ({**GOOD, "payload": "x" * 65_535}, {"payload": "65537 bytes"}),
    "everything at once": (
        {
            "schedules": [
                {"cron": "61 * * * *", "timezone": "Mars/Base"},
                {"every": "1 fortnight"},
                {"cron": "0 9 * * *"},
            ],
            "target": {"topic": {"name": "a b", "outcome": "report"}},
            "late_tolerance": "long",
            "concurrency": "queue",
            "missed": "never",
            "max_attempts": 2,
        },
        {
            "schedules[0].cron": "61", "schedules[0].timezone": "Mars/Base",
            "schedules[1].every": "no duration", "target.topic.name": "no topic name",
            "target.topic.outcome": "not built yet", "late_tolerance": "no duration",
            "concurrency": "not built yet", "missed": "is no choice", "max_attempts": "not built",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_definition_is_refused_naming_every_wrong_field_in_both_forms(name: str) -> None:
    definition, expected = BAD[name]
    replies = [refusal(as_json(definition)), refusal(as_avro(definition))]
    for reply in replies:
        assert reply.kind == "invalid"
        found = told(reply.problems)
        assert set(found) == set(expected)
        for field, part in expected.items():
            assert part in found[field], found[field]
    assert replies[0].problems == replies[1].problems


def test_the_good_definition_is_accepted_in_both_forms_and_means_the_same() -> None:
    owner = Owner()
    definition = {
        **GOOD, "payload": {"a": 1}, "name": "Zürich", "late_tolerance": "5m",
        "target": {"topic": {"name": "orders", "key": "k", "headers": {"x": "y"}}},
    }  # fmt: skip
    first = owner.send(as_json(definition), T0)
    again = owner.send(as_avro(definition), T0)
    assert isinstance(first, Accepted) and (first.version, again.version) == (1, 1)
    explicit = {**definition, "concurrency": "forbid", "max_attempts": 1}
    assert owner.send(as_json(explicit), T0).version == 1, "a default that is written is no change"
    by_json, by_avro = read_command(as_json(definition)), read_command(as_avro(definition))
    assert by_json == by_avro


def test_a_command_that_is_sent_again_in_the_other_form_is_the_same_command() -> None:
    owner = Owner()
    owner.send(as_json(GOOD, command_id="a"), T0)
    reply = owner.send(as_avro(GOOD, command_id="a"), T0)
    assert isinstance(reply, Accepted) and reply.repeated


@pytest.mark.parametrize(
    ("envelope", "expected"),
    [
        ({"tenant": "Acme"}, {"tenant": "'A'"}),
        ({"tenant": "a_b"}, {"tenant": "'_'"}),
        ({"tenant": ""}, {"tenant": "0 characters"}),
        ({"tenant": "a" * 64}, {"tenant": "64 characters"}),
        ({"job": "a/b"}, {"job": "'/'"}),
        ({"job": "näher"}, {"job": "'ä'"}),
        ({"job": "a b"}, {"job": "' '"}),
        ({"job": "a\x00b"}, {"job": "'\\x00'"}),
        ({"job": ""}, {"job": "0 characters"}),
        ({"job": "a" * 129}, {"job": "129 characters"}),
        ({"job": ".hidden"}, {"job": "starts with '.'"}),
        ({"job": "~home"}, {"job": "starts with '~'"}),
        ({"tenant": "A", "job": "b/c"}, {"tenant": "'A'", "job": "'/'"}),
        ({"note": "n" * 1_025}, {"note": "1025 characters"}),
        ({"by": "b" * 257}, {"by": "257 characters"}),
        ({"command_id": "c" * 129}, {"command_id": "129 characters"}),
    ],
)
def test_ids_are_refused_naming_what_is_wrong_in_both_forms(
    envelope: dict[str, str], expected: dict[str, str]
) -> None:
    replies = [refusal(as_json(GOOD, **envelope)), refusal(as_avro(GOOD, **envelope))]
    for reply in replies:
        found = told(reply.problems)
        assert set(found) == set(expected)
        assert all(part in found[field] for field, part in expected.items()), found
    assert replies[0].problems == replies[1].problems


@pytest.mark.parametrize("job", ["a" * 128, "-", "_", "A.b~c-d_9", "0"])
def test_every_character_that_ids_may_have_is_accepted(job: str) -> None:
    assert isinstance(Owner().send(as_json(GOOD, job=job, tenant="a-0" * 21), T0), Accepted)


def test_what_is_wrong_on_different_levels_is_told_in_one_answer() -> None:
    definition = {
        "schedules": [{"cron": "x", "timezoen": "UTC"}], "target": {"topic": {"nmae": "a"}},
        "late_tolerance": "x", "concurency": "forbid",
    }  # fmt: skip
    found = told(refusal(as_json(definition, tenant="A", job="b/c", hopps=1)).problems)
    assert set(found) == {
        "hopps", "tenant", "job", "concurency", "late_tolerance", "schedules[0].cron",
        "schedules[0].timezoen", "target.topic.nmae", "target.topic.name",
    }  # fmt: skip


# --- fields that are not there, and those that are not there yet ---------------------------------


@pytest.mark.parametrize(
    ("change", "field", "hint"),
    [
        ({"shedules": []}, "shedules", "did you mean schedules?"),
        ({"max_attemps": 1}, "max_attemps", "did you mean max_attempts?"),
        ({"zzz": 1}, "zzz", "one of name, schedules"),
        ({"schedules": [{"crn": "* * * * *"}]}, "schedules[0].crn", "did you mean cron?"),
        ({"schedules": [{"every": "1m", "dst": {"gab": "next"}}]}, "schedules[0].dst.gab", "gap"),
        ({"target": {"topik": {}}}, "target.topik", "did you mean topic?"),
        ({"target": {"topic": {"name": "a", "kei": "b"}}}, "target.topic.kei", "mean key?"),
    ],
)
def test_an_unknown_field_is_refused_with_the_one_that_was_meant(
    change: dict[str, Any], field: str, hint: str
) -> None:
    found = told(refusal(as_json({**GOOD, **change})).problems)
    assert set(found) == {field}, "and what only follows from it is not told"
    assert "is no field" in found[field] and hint in found[field]


DOCUMENTED = (
    "task", "start", "end", "max_runs", "jitter", "calendars", "precision", "idempotency",
    "start_deadline", "missed_limit", "max_open", "cancel_grace", "queue_limit",
    "exclusion_group", "group_wait", "backoff", "max_elapsed", "past_next_tick", "max_duration",
    "max_deliveries", "keep_finished", "managed_by", "payload_ref", "heartbeat_timeout",
    "report_within",
)  # fmt: skip
"""Fields of a job that the documentation names beyond those of the first release."""


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_documented_field_is_built_or_refused_by_name_but_never_ignored(name: str) -> None:
    if name in admission._DEFINITION:
        return
    found = told(refusal(as_json({**GOOD, name: "1"})).problems)
    assert set(found) == {name} and "is not built yet" in found[name]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("concurrency", ("allow", "replace", "queue_one", "queue")),
        ("missed", ("skip", "all")),
        ("target.topic.outcome", ("report",)),
        ("target.http.completion", ("callback",)),
    ],
)
def test_a_documented_choice_is_built_or_refused_by_name(
    field: str, values: tuple[str, ...]
) -> None:
    for value in values:
        *path, name = field.split(".")
        definition: dict[str, Any] = {**GOOD, name: value}
        if path:
            kind = path[1]
            inner = {"topic": {"name": "a"}, "http": {"url": "https://example.org/"}}[kind]
            definition = {**GOOD, "target": {kind: inner | {name: value}}}
        reply = Owner().send(as_json(definition), T0)
        if isinstance(reply, Refused):
            assert "is not built yet" in told(reply.problems)[field]


@pytest.mark.parametrize(
    "kind", ["patch", "rerun", "resolve", "redrive", "discard", "backfill", "freeze", "thaw"]
)
def test_a_documented_command_is_built_or_refused_by_name(kind: str) -> None:
    data = json.dumps({"type": kind, "tenant": "t", "job": "j", "reply_to": "me"}).encode()
    reply = Owner().send(data, T0)
    if isinstance(reply, Refused) and reply.message == "no such command":
        assert "is not built yet" in told(reply.problems)["type"]


@pytest.mark.parametrize("kind", ["fire", "", 7, None, [], {}, True])
def test_a_type_that_is_none_is_refused_with_those_that_there_are(kind: Any) -> None:
    data = json.dumps({"type": kind, "tenant": "t", "job": "j", "reply_to": "me"}).encode()
    found = told(refusal(data).problems)
    assert set(found) == {"type"} and "one of put, pause, resume" in found["type"]


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ({"type": "trigger", "force": True}, "force"),
        ({"type": "pause", "end": "2027-01-01T00:00:00Z"}, "end"),
        ({"type": "pause", "definition": {}}, "definition"),
        ({"type": "delete", "if_match": "1"}, "if_match"),
        ({"type": "delete", "if_match": -1}, "if_match"),
        ({"type": "delete", "if_match": True}, "if_match"),
        ({"type": "delete", "if_match": 1.5}, "if_match"),
        ({"type": "trigger", "payload_base64": "a$b"}, "payload_base64"),
        ({"type": "trigger", "payload": 1, "payload_base64": "YQ=="}, "payload_base64"),
        ({"type": "trigger", "payload": "x" * 65_535}, "payload"),
        ({"type": "put"}, "definition"),
        ({"type": "put", "definition": []}, "definition"),
        ({"type": "pause", "note": 5}, "note"),
    ],
)
def test_other_commands_name_their_bad_fields_too(command: dict[str, Any], field: str) -> None:
    data = json.dumps({"tenant": "t", "job": "j", "reply_to": "me"} | command).encode()
    assert set(told(refusal(data).problems)) == {field}


def test_missing_ids_are_told_and_answered_where_that_is_possible() -> None:
    found = told(refusal(b'{"type":"pause","reply_to":"me"}').problems)
    assert set(found) == {"tenant", "job"} and "is missing" in found["job"]


# --- payloads ------------------------------------------------------------------------------------


def test_a_payload_is_any_json_or_bytes_in_base64_and_brings_its_content_type() -> None:
    raw = bytes(range(256))
    spec = read_definition({**GOOD, "payload_base64": base64.b64encode(raw).decode()})
    assert (spec.payload, spec.content_type) == (raw, "application/octet-stream")
    for value, written in (({"b": 1, "a": [None]}, b'{"b":1,"a":[null]}'), (None, b"null")):
        spec = read_definition({**GOOD, "payload": value})
        assert (spec.payload, spec.content_type) == (written, "application/json")
    spec = read_definition({**GOOD, "payload": "x", "content_type": "text/plain"})
    assert spec.content_type == "text/plain"
    assert read_definition(dict(GOOD)).payload == b""


@pytest.mark.parametrize("size", [65_534, 65_535])
def test_a_payload_of_64_kib_is_taken_and_one_byte_more_is_not(size: int) -> None:
    reply = Owner().send(as_json({**GOOD, "payload": "x" * size}), T0)
    assert isinstance(reply, Accepted if size + 2 <= limits.PAYLOAD_BYTES_MAX else Refused)


def test_a_definition_read_alone_tells_problems_by_the_same_paths() -> None:
    with pytest.raises(BadCommand) as caught:
        read_definition({**GOOD, "schedules": [{"crn": "x"}], "nmae": "y"})
    assert [p.field for p in caught.value.problems] == ["nmae", "schedules[0].crn"]
    with pytest.raises(BadCommand, match="definition"):
        read_definition([1])


# --- what is no command at all -------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"", b"hello", b" {}", b"[1]", b"{", b'{"type": "put"', b"\xff{}", b"{\xff}",
        b'{"type":"put","a":' + b"[" * 100_000, b'{"a":"\\ud800"}', b"\x00",
        b"\x00\x00\x00\x00\x01",
        b"\x00\x00\x00\x03\xe7", b"\x00" + b"\xff" * 40,
        b"{" + b" " * limits.COMMAND_BYTES_MAX + b"}",
        PAUSE_JOB.encode(PauseJob(tenant="t", job="j")) + b"\x00",
        PAUSE_JOB.encode(PauseJob(tenant="t", job="j"))[:-1],
    ],
    ids=lambda data: repr(data[:16]),
)  # fmt: skip
def test_what_cannot_be_decoded_is_set_aside_and_changes_nothing(data: bytes) -> None:
    with pytest.raises(Undecodable):
        read_command(data)
    owner = Owner()
    with pytest.raises(PoisonRecord):
        owner.send(data, T0)
    assert owner.stores.contents(0) == {} and not owner.records


def test_a_record_of_ours_that_is_no_command_is_set_aside() -> None:
    from schemas.bindings import MARK
    from schemas.state import Mark

    mark = MARK.encode(Mark(txn=1, epoch=1, records=1, wall_ms=0, owner="", positions=()))
    with pytest.raises(Undecodable, match="no command: Mark"):
        read_command(mark)


def test_a_record_without_a_value_is_set_aside() -> None:
    from streams.ports import Record
    from streams.transaction import Transaction

    owner = Owner()
    txn = Transaction(1, 0, owner.store)
    with pytest.raises(PoisonRecord):
        owner.scheduler.apply(txn, Record("h.commands", 0, 0, T0, b"t/j", None), T0)


def test_an_answer_has_room_however_much_is_wrong() -> None:
    definition = {**GOOD, **{f"field-{n}": n for n in range(5_000)}}
    reply = refusal(as_json(definition, job="/" * 100_000))
    assert 0 < len(reply.problems) <= admission.PROBLEMS_MAX
    assert all(len(p.message) + len(p.hint) < 2_000 for p in reply.problems)


# --- anything at all -----------------------------------------------------------------------------

JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 2**60), st.text(max_size=8),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["cron", "every", "at", "in", "now", "dst", "topic", "http", "worker",
                         "name", "key", "headers", "url", "handler", "x"]),
        inner, max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip
FIELDS = st.sampled_from([
    "type", "tenant", "job", "command_id", "reply_to", "by", "note", "hops", "if_match", "payload",
    "payload_base64", "scheduled_at", "definition", "execution_id", "task", "x",
])  # fmt: skip
DEFINITIONS = st.dictionaries(
    st.sampled_from([*admission._DEFINITION, "jitter", "y"]), JSON, max_size=6
)


@given(
    st.dictionaries(FIELDS, JSON, max_size=6),
    st.one_of(st.none(), st.sampled_from(["put", "pause", "trigger", "cancel", "delete"])),
    st.one_of(st.none(), DEFINITIONS),
)
@settings(max_examples=400, deadline=None)
def test_any_json_object_is_a_command_or_is_refused(
    raw: dict[str, Any], kind: str | None, definition: dict[str, Any] | None
) -> None:
    command = {"reply_to": "me", **raw}
    if kind is not None:
        command |= {"type": kind, "tenant": "t", "job": "j"}
    if definition is not None:
        command["definition"] = definition
    owner = Owner()
    reply = owner.send(json.dumps(command).encode(), T0)
    if isinstance(reply, Refused) and reply.kind == "invalid":
        assert reply.problems and all(problem.message for problem in reply.problems)


@given(st.binary(max_size=60), st.sampled_from([b"", b"{", b"\x00\x00\x00\x00", b'{"type":']))
@settings(max_examples=600, deadline=None)
def test_any_bytes_are_a_command_or_are_set_aside(body: bytes, start: bytes) -> None:
    try:
        read_command(start + body)
    except (BadCommand, Undecodable):
        return
