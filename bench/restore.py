"""How fast a partition comes back from the log alone."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import Producer

from horolog.broker import server
from horolog.settings import Settings
from horolog.supervised import processor
from processors.core.spec import digest
from processors.topology import topic_set
from schemas.bindings import JOB_DEFINITION, JOB_STATE, MARK
from schemas.commands import JobSpec, ScheduleSpec, TopicTargetSpec
from schemas.partition import job_key
from schemas.state import JobDefinition, JobState, Mark, Position, Schedule, TopicTarget
from streams import admin
from streams.layout import topic_name

from .installed import create_topic, receiver, settings_in
from .jobs import TENANTS
from .report import emit, say

JOBS: Final = 1_000_000
DIRTY_JOBS: Final = 200_000
DIRTY_BATCH: Final = 100
VERSIONS: Final = 10
MILLION: Final = 1_000_000
RUNS: Final = 3
TARGET: Final = "restored"
DAY_MS: Final = 86_400_000


def restore() -> None:
    """1 M jobs in one partition, compacted log, empty folder: N / (first fire - process start)."""
    with _log() as (settings, bootstrap):
        say(f"writing {JOBS:,} jobs as a compacted log has them")
        _write(bootstrap)
        values = _rates("restore", JOBS, settings, bootstrap)
    emit("restore", "/s", values, {"jobs": JOBS, "partitions": 1, "from": "process start"})


def restore_dirty() -> None:
    """Ten state records a job, none compacted, in small transactions with a mark each and numbers
    beyond a million: records / (first fire - process start)."""
    with _log() as (settings, bootstrap):
        say(f"writing {DIRTY_JOBS:,} jobs with {VERSIONS} states each")
        transactions, records = _write_dirty(bootstrap)
        values = _rates("restore_dirty", records, settings, bootstrap)
    emit(
        "restore_dirty", "/s", values,
        {"jobs": DIRTY_JOBS, "records": records, "transactions": transactions, "partitions": 1,
         "from": "process start"},
    )  # fmt: skip


@contextmanager
def _log() -> Iterator[tuple[Settings, str]]:
    """A Kafka of one's own with Horolog's topics, of one partition each, and the target."""
    folder = Path(tempfile.mkdtemp(prefix="horolog-bench-"))
    broker = server.start(folder / "broker", log=say)
    try:
        admin.apply({"bootstrap.servers": broker.bootstrap}, topic_set("bench", 1))
        create_topic(broker.bootstrap, TARGET)
        yield settings_in(folder, "bench", 1), broker.bootstrap
    finally:
        server.stop(broker.data_dir)
        shutil.rmtree(folder, ignore_errors=True)


def _rates(name: str, count: int, settings: Settings, bootstrap: str) -> list[float]:
    """How many a second each run restored."""
    values = []
    for run in range(RUNS):
        seconds = _first_fire_s(settings, bootstrap, f"run{run}")
        values.append(count / seconds)
        say(f"{name} {run + 1}/{RUNS}: {seconds:.1f} s, {values[-1]:,.0f}/s")
    return values


def _first_fire_s(settings: Settings, bootstrap: str, member: str) -> float:
    """Start a scheduler on an empty folder and wait for a record that was not there before."""
    consumer = receiver(bootstrap, TARGET)
    while consumer.poll(1.0) is not None:
        pass
    scheduler = processor("the scheduler", "scheduler", settings, bootstrap, member=member, say=say)
    started_s = time.monotonic()
    scheduler.start()
    try:
        while (message := consumer.poll(0.05)) is None or message.error() is not None:
            if time.monotonic() - started_s > 300:
                raise RuntimeError("no fire within five minutes")
        return time.monotonic() - started_s
    finally:
        scheduler.stop()
        consumer.close()


def _write(bootstrap: str) -> None:
    """What compaction leaves: one definition and one state a job, and the last mark."""
    producer = _transactional(bootstrap)
    schedules, state = topic_name("bench", "schedules"), topic_name("bench", "job-state")
    batch = 50_000
    for first in range(0, JOBS, batch):
        producer.begin_transaction()
        for key, definition, job_state in _jobs(first, first + batch):
            producer.produce(schedules, definition, key, 0)
            producer.produce(state, job_state, key, 0)
            producer.poll(0)
        txn = first // batch + 1
        producer.produce(state, _mark(txn, 2 * batch + 1), b"!mark", 0)
        producer.commit_transaction()


def _write_dirty(bootstrap: str) -> tuple[int, int]:
    """Every job's definition, then its states one after the other; (transactions, records)."""
    producer = _transactional(bootstrap)
    schedules, state = topic_name("bench", "schedules"), topic_name("bench", "job-state")
    jobs = list(_jobs(0, DIRTY_JOBS))
    transactions = records = 0
    for version in range(VERSIONS):
        for first in range(0, DIRTY_JOBS, DIRTY_BATCH):
            producer.begin_transaction()
            part = jobs[first : first + DIRTY_BATCH]
            transactions += 1
            for key, definition, job_state in part:
                if not version:
                    producer.produce(schedules, definition, key, 0)
                changed = JOB_STATE.decode(job_state)
                changed = msgspec.structs.replace(
                    changed, txn=MILLION + transactions, sequence=version + 1, runs=version
                )
                producer.produce(state, JOB_STATE.encode(changed), key, 0)
            count = len(part) * (1 if version else 2) + 1
            mark = _mark(MILLION + transactions, count)
            producer.produce(state, mark, b"!mark", 0)
            producer.commit_transaction()
            records += count
    return transactions, records


def _transactional(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "bench-scheduler-0",
            "linger.ms": 20,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_097_151,
        }
    )
    producer.init_transactions()
    return producer


def _mark(txn: int, records: int) -> bytes:
    return MARK.encode(
        Mark(
            txn=txn,
            epoch=1,
            records=records,
            wall_ms=int(time.time() * 1000),
            owner="bench",
            positions=(Position("commands", 0),),
        )  # fmt: skip
    )


def _jobs(first: int, last: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Jobs due within the next days; the very first one every second."""
    now_ms = int(time.time() * 1000) // 1000 * 1000
    for n in range(first, last):
        tenant, job = TENANTS[n % len(TENANTS)], f"job-{n:07d}"
        every_ms = DAY_MS if n else 1_000
        due_ms = now_ms + (DAY_MS + n * 100 if n else 1_000)
        spec = JobSpec(
            schedules=(ScheduleSpec(every="1d" if n else "1s"),), topic=TopicTargetSpec(name=TARGET)
        )
        definition = JobDefinition(
            txn=1, tenant=tenant, job=job, life=1, version=1,
            schedules=(Schedule(kind="every", every_ms=every_ms, anchor_ms=due_ms),),
            topic=TopicTarget(name=TARGET), payload=b'{"n": 1}', digest=digest(spec),
        )  # fmt: skip
        state = JobState(
            txn=1, life=1, version=1, sequence=1, status="ACTIVE", next_ms=due_ms, due_ms=due_ms,
            tz="bench",
        )  # fmt: skip
        key = job_key(tenant, job).encode()
        yield key, JOB_DEFINITION.encode(definition), JOB_STATE.encode(state)


FIGURES: Final[dict[str, Callable[[], None]]] = {
    "restore": restore,
    "restore_dirty": restore_dirty,
}
