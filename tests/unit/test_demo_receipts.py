"""What the receiver writes, what is counted of it, and what is registered."""

import io

import msgspec
import pytest

from horolog.demo.handlers import app as handlers
from horolog.demo.jobs import FLEETS, Addresses, demo_jobs, kafka_command, put_arguments
from horolog.demo.receipts import End, Kind, Receipt, Receipts, lateness_of
from horolog.demo.topic_receiver import receipt_of
from processors.core.admission import read_command
from processors.core.spec import Admitted, admit
from processors.core.target_spec import AT_LEAST_ONCE
from processors.exchange import JsonPut, encode_command
from schemas.commands import PutJob
from streams.ports import Record

TO = Addresses(topic="x", url="http://127.0.0.1:1")


def receipt(job: str, late_ms: int, kind: Kind = "topic", delivery: int = 1) -> Receipt:
    return Receipt(
        kind=kind, execution_id="e", occurrence="o", subject=job, scheduled_ms=1_000,
        received_ms=1_000 + late_ms, delivery=delivery,
    )  # fmt: skip


def test_a_receipt_is_read_off_the_headers_alone() -> None:
    headers = (
        ("ce_id", b"t/j:2026-03-29T01:30:00.000Z:1"), ("ce_subject", b"t/j"),
        ("X-Deduplication-Key", b"t/j:2026-03-29T01:30:00.000Z"),
        ("X-Horolog-Scheduled-At", b"2026-03-29T01:30:00.000Z"),
    )  # fmt: skip
    record = Record("x", 3, 42, 0, None, b"whatever", headers)
    found = receipt_of(record, 1_774_747_800_005)
    assert (found.execution_id, found.subject) == ("t/j:2026-03-29T01:30:00.000Z:1", "t/j")
    assert found.occurrence == "t/j:2026-03-29T01:30:00.000Z"
    assert (found.kind, found.lateness_ms, found.delivery) == ("topic", 5, 1)


def test_receipts_are_followed_to_the_receivers_last_line() -> None:
    end = End(end=True, records=3)
    lines = [receipt("t/a", 1), receipt("t/b", 2, "http"), receipt("t/a", 3), end]
    receipts = Receipts()
    written = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    assert receipts.follow(io.BytesIO(written)) == end
    assert len(receipts) == 3
    assert (receipts.of_kind("topic"), receipts.of_kind("http")) == (2, 1)
    count, last = receipts.of("t/a")
    assert (count, last and last.lateness_ms) == (2, 3)
    assert receipts.of("t/nobody") == (0, None)


def test_a_receiver_that_died_has_no_last_line() -> None:
    line = msgspec.json.encode(receipt("t/a", 1)) + b"\n"
    assert Receipts().follow(io.BytesIO(line)) is None


def test_a_repeat_says_nothing_about_lateness() -> None:
    receipts = Receipts()
    receipts.add(receipt("t/a", 5))
    receipts.add(receipt("t/a", 4_000, "worker", delivery=2))
    found = receipts.lateness()
    assert found is not None
    assert found.max == 5


@pytest.mark.parametrize(
    ("values", "p50", "p99"),
    [([7], 7, 7), ([1, 2], 1, 2), (list(range(1, 101)), 50, 99), (list(range(1, 201)), 100, 198)],
)
def test_percentiles_are_by_rank(values: list[int], p50: int, p99: int) -> None:
    found = lateness_of(reversed(values))
    assert found is not None
    assert (found.p50, found.p99, found.max) == (p50, p99, max(values))


def test_of_nothing_there_is_no_lateness() -> None:
    assert lateness_of([]) is None
    assert Receipts().lateness() is None


def test_the_demonstration_has_every_way_and_several_kinds_of_schedule() -> None:
    jobs = demo_jobs()
    assert {one.way for one in jobs} == {"CLI", "Avro", "JSON"}
    assert {next(iter(one.schedule)) for one in jobs} == {"cron", "every", "in", "now"}
    assert len({str(one.schedule) for one in jobs if not one.fleet}) >= 5
    assert {one.kind for one in jobs} == {one.kind for one in jobs if one.fleet} == set(FLEETS)
    assert len({one.job for one in jobs}) == len(jobs)


def test_every_job_is_a_valid_command_in_its_encoding() -> None:
    for one in demo_jobs():
        command = kafka_command(one, TO)
        assert isinstance(command, JsonPut) == (one.way == "JSON")
        read = read_command(encode_command(command))
        assert isinstance(read, PutJob)
        admitted = admit(read.tenant, read.job, read.spec, accepted_ms=1, namespace="ns")
        assert isinstance(admitted, Admitted)
        assert admitted.warnings == (() if one.kind == "topic" else (AT_LEAST_ONCE,))


def test_a_job_becomes_a_command_line() -> None:
    by_id = {one.job: one for one in demo_jobs()}

    def line(job: str) -> str:
        return " ".join(put_arguments(by_id[job], TO))

    assert "--cron */3 * * * * * --timezone Asia/Tokyo --topic x" in line(
        "every-third-second-in-tokyo"
    )
    assert "--now --topic x --key at-once" in line("at-once")
    assert "--http http://127.0.0.1:1/http?hold_ms=0 --payload" in line("call-every-two-seconds")
    assert "--worker report --payload" in line("run-every-two-seconds")


def test_the_functions_take_what_the_jobs_send() -> None:
    for one in demo_jobs():
        if one.kind == "worker":
            handler = handlers.handlers[one.target(TO)["worker"]["handler"]]
            handler.resolve()
            found = handler.arguments(msgspec.json.encode(one.sent(TO)), "application/json")
            assert found.keys() == {"url", "hold_ms"}
