"""The receiver of calls, and the Python function that reports to it, without any Horolog."""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pytest

from horolog import Context
from horolog.demo.handlers import report
from horolog.demo.http_receiver import Listening
from horolog.demo.jobs import DemoFailed
from horolog.demo.receipts import Receipts
from horolog.demo.receiving import Receiver

TICK = datetime(2026, 3, 29, 1, 30, 0, 5_000, tzinfo=UTC)


@pytest.fixture
def receipts() -> Receipts:
    return Receipts()


@pytest.fixture
def receiver(receipts: Receipts) -> Iterator[Receiver]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = Receiver(
        "http_receiver", (), receipts=receipts, environment=environment,
        errors=sys.__stderr__.buffer,
    )  # fmt: skip
    yield found
    found.close()


def context(delivery: int = 1) -> Context:
    return Context(
        tenant="t", job="j", scheduled_at=TICK, execution_id="t/j:x:1", occurrence="t/j:x",
        delivery=delivery,
    )  # fmt: skip


def test_each_call_has_a_receipt_by_its_headers_alone(
    receiver: Receiver, receipts: Receipts
) -> None:
    url = msgspec.json.decode(receiver.first_line(), type=Listening).url
    receiver.follow()
    # A handler stays a function that one can call.
    assert report(context(), f"{url}/worker") == {"delivery": 1}
    assert report(context(delivery=2), f"{url}/http?hold_ms=1") == {"delivery": 2}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        report(context(), f"{url}/elsewhere")
    assert receiver.finish() == 2
    first, second = receipts.all
    assert (first.kind, first.execution_id, first.occurrence) == ("worker", "t/j:x:1", "t/j:x")
    assert (first.subject, first.scheduled_ms) == ("t/j", 1_774_747_800_005)
    assert (second.kind, second.delivery) == ("http", 2)


def test_a_receiver_that_is_killed_has_not_seen_everything(receiver: Receiver) -> None:
    receiver.first_line()
    receiver.follow()
    receiver._process.kill()
    with pytest.raises(DemoFailed, match="before it was done"):
        receiver.finish()


def test_a_receiver_that_ends_at_once_is_told(receipts: Receipts) -> None:
    found = Receiver(
        "no_such_receiver", (), receipts=receipts, environment=os.environ,
        errors=sys.__stderr__.buffer,
    )  # fmt: skip
    with pytest.raises(DemoFailed, match="exit code 1"):
        found.first_line()
    found.close()
