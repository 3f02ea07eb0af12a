"""What the receiver writes, what is counted of it, and what is registered."""

import io

import msgspec
import pytest

from horolog.client import JsonPut, encode_command
from horolog.demo.jobs import demo_jobs, kafka_command, put_arguments
from horolog.demo.receipts import End, Receipt, Receipts, lateness_of
from horolog.demo.receiver import receipt_of
from processors.core.admission import read_command
from processors.core.spec import Admitted, admit
from schemas.commands import PutJob
from streams.ports import Record


def receipt(job: str, late_ms: int) -> Receipt:
    return Receipt(
        execution_id="e", occurrence="o", subject=job, scheduled_ms=1_000,
        received_ms=1_000 + late_ms, partition=0, offset=0,
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
    assert (found.lateness_ms, found.partition, found.offset) == (5, 3, 42)


def test_receipts_are_followed_to_the_receivers_last_line() -> None:
    lines = [receipt("t/a", 1), receipt("t/b", 2), receipt("t/a", 3), End(end=True, records=3)]
    receipts = Receipts()
    receipts.follow(io.BytesIO(b"".join(msgspec.json.encode(line) + b"\n" for line in lines)))
    assert len(receipts) == 3
    assert receipts.ended == End(end=True, records=3)
    count, last = receipts.of("t/a")
    assert (count, last and last.lateness_ms) == (2, 3)
    assert receipts.of("t/nobody") == (0, None)


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
    assert len({str(one.schedule) for one in jobs if not one.job.startswith("fleet")}) >= 5
    assert len({one.job for one in jobs}) == len(jobs)


def test_every_job_is_a_valid_command_in_its_encoding() -> None:
    for one in demo_jobs():
        command = kafka_command(one, "target")
        assert isinstance(command, JsonPut) == (one.way == "JSON")
        read = read_command(encode_command(command))
        assert isinstance(read, PutJob)
        admitted = admit(read.tenant, read.job, read.spec, accepted_ms=1, namespace="ns")
        assert isinstance(admitted, Admitted)
        assert admitted.warnings == ()


def test_a_job_becomes_a_command_line() -> None:
    by_id = {one.job: one for one in demo_jobs()}
    line = " ".join(put_arguments(by_id["every-third-second-in-tokyo"], "x"))
    assert "--cron */3 * * * * * --timezone Asia/Tokyo --topic x" in line
    assert "--now --topic x" in " ".join(put_arguments(by_id["at-once"], "x"))
