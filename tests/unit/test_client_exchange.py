"""What the client sends when, and which record is an answer. No Kafka, no clock."""

import pytest

from processors.core.admission import read_command
from processors.exchange import Exchange, JsonPut, Outgoing, encode_command
from schemas.bindings import ACCEPTED, REFUSED
from schemas.commands import JobSpec, PauseJob, PutJob, ScheduleSpec, TopicTargetSpec
from schemas.replies import Accepted, Refused
from streams.ports import Produced

READER = b"reader-1"


def outgoing(command_id: str, refused: Refused | None = None) -> Outgoing:
    return Outgoing(command_id, READER, Produced("commands", 0, b"k", command_id.encode()), refused)


def accepted(command_id: str) -> bytes:
    reply = Accepted(command_id=command_id, tenant="t", job="j", life=1, version=1, sequence=1)
    return ACCEPTED.encode(reply)


def refused(command_id: str) -> Refused:
    return Refused(command_id=command_id, tenant="t", job="j", kind="invalid", message="no")


def sent(exchange: Exchange, now_s: float) -> list[str]:
    return [(record.value or b"").decode() for record in exchange.to_send(now_s)]


def test_a_command_is_sent_once_while_its_answer_may_still_come() -> None:
    exchange = Exchange([outgoing("a"), outgoing("b")], 2.0, 10)
    assert sent(exchange, 0.0) == ["a", "b"]
    assert sent(exchange, 1.9) == []
    assert not exchange.done
    assert exchange.unanswered() == ["a", "b"]


def test_who_hears_nothing_asks_again_with_the_same_id() -> None:
    exchange = Exchange([outgoing("a"), outgoing("b")], 2.0, 10)
    sent(exchange, 0.0)
    assert exchange.take(READER, accepted("a"))
    assert sent(exchange, 2.0) == ["b"]
    assert sent(exchange, 3.9) == []
    assert sent(exchange, 4.0) == ["b"]


def test_only_so_many_are_under_way_at_a_time() -> None:
    exchange = Exchange((outgoing(name) for name in "abc"), 2.0, 2)
    assert sent(exchange, 0.0) == ["a", "b"]
    exchange.take(READER, accepted("b"))
    assert sent(exchange, 0.1) == ["c"]


def test_a_reply_counts_only_for_its_reader_its_command_and_once() -> None:
    exchange = Exchange([outgoing("a")], 2.0, 10)
    sent(exchange, 0.0)
    assert not exchange.take(b"reader-2", accepted("a"))
    assert not exchange.take(READER, accepted("z"))
    assert not exchange.take(READER, None)
    assert not exchange.take(READER, b"\x00garbage")
    assert not exchange.take(READER, accepted("a")[:-1])
    assert exchange.take(READER, accepted("a"))
    assert not exchange.take(READER, accepted("a"))
    assert exchange.done or sent(exchange, 0.2) == []


def test_answers_come_back_in_the_order_of_the_commands() -> None:
    exchange = Exchange([outgoing("a"), outgoing("b", refused("b")), outgoing("c")], 2.0, 10)
    assert sent(exchange, 0.0) == ["a", "c"]
    exchange.take(READER, REFUSED.encode(refused("c")))
    exchange.take(READER, accepted("a"))
    assert exchange.done
    assert [type(answer) for answer in exchange.in_order()] == [Accepted, Refused, Refused]
    assert [answer.command_id for answer in exchange.in_order()] == ["a", "b", "c"]


def test_two_commands_with_one_id_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="'a' is given twice"):
        sent(Exchange([outgoing("a"), outgoing("a")], 2.0, 10), 0.0)


def test_a_command_reads_the_same_whether_it_was_written_as_avro_or_as_json() -> None:
    spec = JobSpec(
        schedules=(ScheduleSpec(every="10s"),), topic=TopicTargetSpec(name="x"), payload=b"{}"
    )
    envelope = {"tenant": "t", "job": "j", "command_id": "c", "reply_to": "r", "by": "me",
                "note": "why", "if_match": 3}  # fmt: skip
    definition = {
        "schedules": [{"every": "10s"}], "target": {"topic": {"name": "x"}}, "payload": {},
    }  # fmt: skip
    avro = encode_command(PutJob(**envelope, spec=spec))
    as_json = encode_command(JsonPut(**envelope, definition=definition))
    assert (avro[:1], as_json[:1]) == (b"\x00", b"{")
    assert read_command(avro) == read_command(as_json)
    assert read_command(encode_command(PauseJob(**envelope))) == PauseJob(**envelope)
    assert b"if_match" not in encode_command(JsonPut(tenant="t", job="j", definition={}))
