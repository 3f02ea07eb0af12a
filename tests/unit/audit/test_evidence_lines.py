"""Receipts and client logs, line by line."""

import msgspec
import pytest

from projections.audit.lines import BadLine, read_client_log, read_receipts

ID = "acme/report:2026-03-02T10:00:00.000Z:1"


def receipt(**fields: object) -> bytes:
    return msgspec.json.encode({"execution_id": ID, "received_ms": 5, **fields})


def test_a_receipt_needs_no_more_than_an_id_and_a_time() -> None:
    (found,) = read_receipts("r", [receipt()])
    assert (found.execution_id, found.received_ms, found.delivery, found.fence) == (ID, 5, 1, 0)
    assert (found.job, found.where) == ("acme/report", "r:1")


def test_a_time_may_be_an_instant() -> None:
    line = b'{"execution_id": "%b", "received_at": "1970-01-01T00:00:01.500Z"}' % ID.encode()
    (found,) = read_receipts("r", [line])
    assert found.received_ms == 1_500


def test_other_fields_empty_lines_and_the_last_line_of_a_receiver_are_passed_over() -> None:
    lines = [receipt(kind="http", delivery=2, fence=9), b"", b'{"end": true, "records": 1}']
    (found,) = read_receipts("r", lines)
    assert (found.delivery, found.fence) == (2, 9)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "r:2: not JSON"),
        (b"[]", "r:2: not an object"),
        (b'{"received_ms": 1}', "r:2: execution_id is None"),
        (b'{"execution_id": "x", "received_ms": 1}', "r:2: execution_id is 'x'"),
        (b'{"execution_id": "a/b:c:1"}', "r:2: received_ms is None"),
        (b'{"execution_id": "a/b:c:1", "received_at": "noon"}', "r:2: received_at is 'noon'"),
        (b'{"execution_id": "a/b:c:1", "received_ms": 1, "fence": "1"}', "r:2: fence is '1'"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: bytes, told: str) -> None:
    with pytest.raises(BadLine, match="^" + told.replace("[", r"\[")):
        list(read_receipts("r", [receipt(), line]))


def test_of_a_clients_log_the_acknowledgements_count() -> None:
    lines = [
        b'{"tenant": "acme", "job": "report", "sequence": 3, "execution_id": "", "version": 1}',
        b'{"kind": "not_found", "message": "no", "tenant": "acme", "job": "report"}',
        b'{"tenant": "acme", "job": "report", "sequence": 4, "execution_id": "acme/report:x:1"}',
    ]
    found = list(read_client_log("c", lines))
    assert [(a.job, a.sequence, a.execution_id, a.where) for a in found] == [
        ("acme/report", 3, "", "c:1"), ("acme/report", 4, "acme/report:x:1", "c:3"),
    ]  # fmt: skip
    with pytest.raises(BadLine, match="c:1: sequence is -1"):
        list(read_client_log("c", [b'{"tenant": "a", "job": "b", "sequence": -1}']))
