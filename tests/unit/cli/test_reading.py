"""The newest executions, however unequally they lie in the partitions."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horolog.cli import reading
from horolog.cli.frame import Failure
from horolog.cli.reading import TAIL_RECORDS, job_of, read_executions, read_timeline
from horolog.settings import Settings, load
from schemas.bindings import EXECUTION_FIRED, EXECUTION_MOVED
from schemas.events import ExecutionFired, ExecutionMoved
from schemas.partition import partition_of
from streams.memory import ManualClock, MemoryBroker, MemoryLog
from streams.ports import Produced

PARTITIONS = 3
JOBS = tuple(next(f"j{n}" for n in range(99) if partition_of(f"t/j{n}", PARTITIONS) == p)
             for p in range(PARTITIONS))  # fmt: skip
"""A job for each partition."""
CALM = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Written:
    """Events in a log in memory, and the settings that mean it."""

    def __init__(self) -> None:
        self.settings: Settings = load({"namespace": "ns", "partitions": PARTITIONS})
        broker = MemoryBroker(ManualClock())
        for topic in ("ns.executions", "ns.schedules"):
            broker.create_topic(topic, PARTITIONS)
        self.log = MemoryLog(broker)
        self._outbox = self.log.outbox("test")
        self._sequence = 0

    def fire(self, job: str, at_ms: int, state: str = "SUCCEEDED") -> str:
        """A claim at this instant; its execution id."""
        self._sequence += 1
        name = f"t/{job}:2026-03-29T01:30:{at_ms:02d}.000Z:1"
        event = ExecutionFired(
            tenant="t", job=job, life=1, sequence=self._sequence, txn=1, execution_id=name,
            scheduled_at=at_ms, due_at=at_ms, claimed_at=at_ms, version=1, attempt=1, state=state,
        )  # fmt: skip
        self._write(job, name, EXECUTION_FIRED.encode(event))
        return name

    def move(self, job: str, name: str, claimed_ms: int, at_ms: int, state: str) -> None:
        """What became later of what was claimed."""
        self._sequence += 1
        event = ExecutionMoved(
            tenant="t", job=job, life=1, sequence=self._sequence, txn=1, execution_id=name,
            scheduled_at=claimed_ms, due_at=claimed_ms, claimed_at=claimed_ms, version=1,
            attempt=1, delivery=1, lost=0, at=at_ms, state=state, pool="default", handler="h",
        )  # fmt: skip
        self._write(job, name, EXECUTION_MOVED.encode(event))

    def _write(self, job: str, name: str, value: bytes) -> None:
        partition = partition_of(f"t/{job}", PARTITIONS)
        key = f"{name}#{self._sequence}".encode()
        self._outbox.send([Produced("ns.executions", partition, key, value)])

    def newest(self, limit: int, **wanted: Any) -> list[int]:
        """When the listed executions were claimed."""
        view = read_executions(self.settings, "t", None, wanted.get("state"), limit)
        return [one.claimed_at for one in view.executions("t", limit=limit, **wanted)]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Written:
    monkeypatch.chdir(tmp_path)
    found = Written()
    # The log in memory keeps the contract of the one on Kafka.
    monkeypatch.setattr(reading, "open_log", lambda _: found.log)
    return found


def test_a_dense_partition_does_not_hide_a_sparse_one(written: Written) -> None:
    dense, sparse, _ = JOBS
    times = range(3 * TAIL_RECORDS)
    for at_ms in times:
        written.fire(sparse if at_ms % 100 == 0 else dense, at_ms)
    for limit in (1, 5, TAIL_RECORDS, 2 * TAIL_RECORDS):
        assert written.newest(limit) == list(reversed(times))[:limit]


def test_what_happened_lately_to_old_executions_does_not_hide_younger_ones(
    written: Written,
) -> None:
    job = JOBS[0]
    names = {at_ms: written.fire(job, at_ms, "RUNNING") for at_ms in range(60)}
    for round_ms in range(1_000, 1_000 + 4 * TAIL_RECORDS):
        written.move(job, names[round_ms % 30], round_ms % 30, round_ms, "RUNNING")
    assert written.newest(40) == list(range(59, 19, -1))


@given(st.lists(st.integers(0, PARTITIONS - 1), max_size=60), st.integers(1, 20))
@CALM
def test_any_spread_over_partitions_gives_the_newest(
    monkeypatch: pytest.MonkeyPatch, spread: list[int], limit: int
) -> None:
    found = Written()
    monkeypatch.setattr(reading, "open_log", lambda _: found.log)
    monkeypatch.setattr(reading, "TAIL_RECORDS", 2)
    for at_ms, partition in enumerate(spread):
        found.fire(JOBS[partition], at_ms)
    assert found.newest(limit) == list(reversed(range(len(spread))))[:limit]


def test_a_rare_state_is_looked_for_to_the_start(written: Written) -> None:
    written.fire(JOBS[1], 1, "FAILED")
    for at_ms in range(2, 3 * TAIL_RECORDS):
        written.fire(JOBS[1], at_ms)
    assert written.newest(3, state="FAILED") == [1]


def test_a_timeline_is_read_back_to_the_claim(written: Written) -> None:
    job = JOBS[2]
    name = written.fire(job, 7, "QUEUED")
    for at_ms in range(8, 8 + 2 * TAIL_RECORDS):
        written.fire(job, at_ms)
    written.move(job, name, 7, 9_999, "SUCCEEDED")
    for wanted in (name, name.rpartition(":")[0]):
        events = read_timeline(written.settings, wanted).events
        assert [event.state for event in events] == ["QUEUED", "SUCCEEDED"]


@pytest.mark.parametrize(
    "text",
    [
        "acme/close-day:2026-03-29T01:30:00.000Z", "acme/close-day:2026-03-29T01:30:00.000Z:1",
        "acme/close-day:2026-03-29T01:30:00.000Z~m0a1b2c3d:12",
    ],
)  # fmt: skip
def test_an_execution_id_or_occurrence_key_names_its_job(text: str) -> None:
    assert job_of(text) == ("acme", "close-day")


@pytest.mark.parametrize("text", ["", "acme", "acme/close-day", "acme/close-day:1", "a/b/c:x:1"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Failure) as refused:
        job_of(text)
    assert refused.value.code == 2
    assert "execution list" in refused.value.hint
