"""What must hold of every log, whatever happened to the processes that wrote it."""

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from processors import topology
from processors.core.keys import STATE
from processors.scheduler_topology import definition_key, index, state_key, transaction_of
from projections.audit.audit import audit
from projections.audit.receipts import Receipt
from schemas.bindings import (
    ACCEPTED,
    COMMANDS,
    EXECUTION_FIRED,
    EXECUTION_MOVED,
    INPUT_LOST,
    JOB_CHANGED,
    JOB_STATE,
    QUARANTINED,
    REFUSED,
    TICKS_MISSED,
)
from schemas.commands import AnyCommand
from schemas.events import (
    ExecutionFired,
    ExecutionMoved,
    JobChanged,
    Quarantined,
    TicksMissed,
)
from schemas.state import JobState, Mark
from streams.layout import MARK_KEY, META, STORE_MARK
from streams.ports import Record
from streams.rocks import RocksStores
from tests.broker.scenarios.world import (
    OWN_TOPICS,
    Answer,
    SchedulerProcess,
    World,
    headers_of,
    ids_of,
    mark_of,
)

Event = ExecutionFired | ExecutionMoved | TicksMissed


def executions(world: World) -> list[Event]:
    """Every event of an execution; lost inputs are not about one."""
    found: list[Event] = []
    for record in world.records(topology.EXECUTIONS):
        if record.key == MARK_KEY:  # left by the repair of a lost marker
            continue
        assert record.value is not None
        if record.value[:5] == TICKS_MISSED.prefix:
            found.append(TICKS_MISSED.decode(record.value))
        elif record.value[:5] == EXECUTION_MOVED.prefix:
            found.append(EXECUTION_MOVED.decode(record.value))
        elif record.value[:5] != INPUT_LOST.prefix:
            found.append(EXECUTION_FIRED.decode(record.value))
    return found


def fired(world: World) -> list[ExecutionFired]:
    return [event for event in executions(world) if isinstance(event, ExecutionFired)]


def moved(world: World) -> list[ExecutionMoved]:
    return [event for event in executions(world) if isinstance(event, ExecutionMoved)]


def missed(world: World) -> list[TicksMissed]:
    return [event for event in executions(world) if isinstance(event, TicksMissed)]


def changes(world: World) -> list[JobChanged]:
    records = world.records(topology.SCHEDULE_CHANGES)
    return [JOB_CHANGED.decode(record.value) for record in records if record.value is not None]


def states(world: World) -> dict[str, JobState]:
    """State of each job, by job id: the newest record of each key."""
    found: dict[str, JobState] = {}
    for record in world.records(topology.JOB_STATE):
        assert record.key is not None
        key = record.key.decode()
        if key == MARK_KEY.decode() or key.endswith("#ids"):
            continue
        job = key.partition("/")[2]
        if record.value is None:
            found.pop(job, None)
        else:
            found[job] = JOB_STATE.decode(record.value)
    return found


def state_records(world: World) -> dict[bytes, bytes | None]:
    """Everything that a refused command must leave as it was: the newest value of each key."""
    topics = (topology.JOB_STATE, topology.SCHEDULES, topology.SCHEDULE_CHANGES,
              topology.EXECUTIONS)  # fmt: skip
    return {
        topic.encode() + b":" + (record.key or b""): record.value
        for topic in topics
        for record in world.records(topic)
        if record.key != MARK_KEY
    }


def check_log(world: World) -> None:
    """Everything below."""
    check_sequences(world)
    check_ticks(world)
    check_targets(world)
    check_marks(world)
    check_audit(world)


def check_sequences(world: World) -> None:
    """Positions of a job's life have no gap over its events and its changes, and none twice."""
    sequences: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for event in [*executions(world), *changes(world)]:
        sequences[event.tenant, event.job, event.life].append(event.sequence)
    for life, found in sequences.items():
        first = min(found)
        assert sorted(found) == list(range(first, first + len(found))), life


def check_ticks(world: World) -> None:
    """No occurrence is decided twice: not fired twice, and not both fired and missed."""
    ids = Counter(event.execution_id for event in fired(world))
    assert [one for one, count in ids.items() if count > 1] == []
    ticks: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in fired(world):
        if "~m" not in event.execution_id:
            ticks[event.tenant, event.job].append(event.scheduled_at)
    for span in missed(world):
        within = [t for t in ticks[span.tenant, span.job] if span.first <= t <= span.last]
        assert within == [], (span, within)


def check_targets(world: World) -> None:
    """What succeeded stands in its topic exactly once, and nothing else does."""
    told: dict[str, list[str]] = defaultdict(list)
    for event in fired(world):
        if event.state == "SUCCEEDED" and event.topic in world.user_topics:
            told[event.topic].append(event.execution_id)
    for topic in world.user_topics:
        assert sorted(ids_of(world.records(topic))) == sorted(told[topic]), topic


def check_marks(world: World) -> None:
    """Transactions count up, inputs are only read forward, and each is there as a whole."""
    by_partition: dict[int, list[Mark]] = defaultdict(list)
    counted: Counter[tuple[int, int]] = Counter()
    bare: Counter[int] = Counter()
    for topic in OWN_TOPICS:
        for record in world.records(topic):
            if record.key == MARK_KEY and topic == topology.JOB_STATE:
                by_partition[record.partition].append(mark_of(record))
            if record.value is None:
                bare[record.partition] += 1
            else:
                counted[record.partition, transaction_of(record.value)] += 1
    for partition, marks in by_partition.items():
        numbers = [mark.txn for mark in marks]
        assert numbers == sorted(set(numbers))
        read = [[p.offset for p in mark.positions if p.topic == topology.COMMANDS]
                for mark in marks]  # fmt: skip
        assert read == sorted(read)
        for mark in marks:
            assert counted[partition, mark.txn] <= mark.records, mark
        # A deleted key has no value to tell its transaction by.
        told = sum(mark.records for mark in marks)
        found = sum(n for (p, _), n in counted.items() if p == partition)
        assert told == found + bare[partition]


def check_audit(world: World) -> None:
    """The auditor, which is told what stands in the users' topics, has nothing to say."""
    report = audit(world.log, world.namespace, receipts=receipts(world))
    assert [one for result in report.results for one in result.shown] == []


def receipts(world: World) -> list[Receipt]:
    """Every record on the users' topics, as one who reads them would note it."""
    found: list[Receipt] = []
    for topic in world.user_topics:
        for record in world.records(topic):
            headers = headers_of(record)
            if "ce_id" in headers:  # not left by the repair of a lost marker
                found.append(
                    Receipt(
                        execution_id=headers["ce_id"], received_ms=record.timestamp_ms,
                        fence=int(headers["X-Horolog-Fence"]),
                        where=f"{topic}-{record.partition}@{record.offset}",
                    )
                )  # fmt: skip
    return found


def check_stores(world: World, *owners: SchedulerProcess) -> None:
    """The store of each partition is what the changelogs say, index included. The owners must have
    ended; which of them owned a partition last, its mark says."""
    expected: dict[int, dict[bytes, bytes]] = defaultdict(dict)
    last: dict[int, Record] = {}
    for topic, key_of in ((topology.JOB_STATE, state_key), (topology.SCHEDULES, definition_key)):
        for record in world.records(topic):
            assert record.key is not None
            if record.key == MARK_KEY:
                last[record.partition] = record
            elif record.value is None:
                expected[record.partition].pop(key_of(record.key), None)
            else:
                expected[record.partition][key_of(record.key)] = record.value
    by_member = {owner.member: owner for owner in owners}
    for partition, mark in last.items():
        pairs = expected[partition]
        for key, value in list(pairs.items()):
            if key.startswith(STATE):
                pairs |= dict(index(key, value))
        store = RocksStores(by_member[mark_of(mark).owner].state_dir).open(partition)
        try:
            found = dict(store.scan(b"\x00", b"\xff", 10_000_000))
        finally:
            store.close()
        assert found[STORE_MARK] == mark.value
        kept = {key: value for key, value in found.items() if not key.startswith(META)}
        assert kept == pairs


def check_every_second(world: World, job: str, *, tenant: str = "acme") -> None:
    """Each tick of an `every: 1s` job between its first and its last is covered exactly once."""
    at = [(event.scheduled_at, 1) for event in fired(world) if _of(event, tenant, job)]
    spans = [(span.first, span.count) for span in missed(world) if _of(span, tenant, job)]
    expected = min(begin for begin, _ in at + spans)
    for begin, count in sorted(at + spans):
        assert begin == expected, f"{job}: a tick is missing or decided twice at {expected}"
        expected += count * 1_000


def _of(event: Event, tenant: str, job: str) -> bool:
    return (event.tenant, event.job) == (tenant, job)


def answers(records: Iterable[Record]) -> list[Answer]:
    """Replies, in their order."""
    found: list[Answer] = []
    for record in records:
        assert record.value is not None
        codec = ACCEPTED if record.value[:5] == ACCEPTED.prefix else REFUSED
        found.append(codec.decode(record.value))
    return found


def quarantined(world: World) -> list[Quarantined]:
    records = world.records(topology.QUARANTINE)
    return [QUARANTINED.decode(record.value) for record in records if record.value is not None]


def commands(world: World, partition: int) -> list[AnyCommand]:
    """What stands on a partition of `commands`, as far as it is Avro."""
    return [
        codec.decode(record.value)
        for record in world.records(topology.COMMANDS)
        for codec in COMMANDS.values()
        if record.partition == partition and (record.value or b"")[:5] == codec.prefix
    ]


def succeeded(events: Iterable[ExecutionFired]) -> list[str]:
    return [event.execution_id for event in events if event.state == "SUCCEEDED"]


def without_txn(state: JobState) -> JobState:
    """For comparing what a state says, not when it was written."""
    return msgspec.structs.replace(state, txn=0)
