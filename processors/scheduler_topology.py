"""The scheduler's topics as the machinery sees them: keys, index, transaction numbers."""

from collections.abc import Iterable
from typing import Final

from schemas.bindings import (
    EXECUTION_FIRED,
    EXECUTION_MOVED,
    INPUT_LOST,
    JOB_CHANGED,
    JOB_DEFINITION,
    JOB_IDS,
    JOB_STATE,
    MARK,
    QUARANTINED,
    TICKS_MISSED,
)
from schemas.codec import Undecodable
from streams.binding import Changelog, Topology

from . import topology as topics
from .core.job import index_entries
from .core.keys import DEFINITION, DUE, IDS, IDS_SUFFIX, QUEUE, STATE, split_job_key

_WITH_TXN: Final = {
    codec.prefix: codec
    for codec in (JOB_DEFINITION, JOB_STATE, JOB_IDS, MARK, JOB_CHANGED, EXECUTION_FIRED,
                  EXECUTION_MOVED, TICKS_MISSED, INPUT_LOST, QUARANTINED)
}  # fmt: skip


def definition_key(key: bytes) -> bytes:
    """Store key of a record on `schedules`."""
    return DEFINITION + key


def state_key(key: bytes) -> bytes:
    """Store key of a record on `job-state`."""
    if key.endswith(IDS_SUFFIX):
        return IDS + key[: -len(IDS_SUFFIX)]
    return STATE + key


def index(store_key: bytes, value: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Due entries that follow from one state record."""
    tenant, job = split_job_key(store_key[len(STATE) :])
    return [(entry, b"") for entry in index_entries(tenant, job, JOB_STATE.decode(value))]


def transaction_of(value: bytes) -> int:
    """Transaction sequence of any record of ours; -1 for one that carries none."""
    codec = _WITH_TXN.get(value[:5])
    if codec is None:
        return -1
    try:
        txn: int = codec.decode(value).txn
    except Undecodable:
        return -1
    return txn


def targets_of(value: bytes) -> Iterable[tuple[str, int]]:
    """The target partition that an execution event names."""
    if value[:5] != EXECUTION_FIRED.prefix:
        return ()
    fired = EXECUTION_FIRED.decode(value)
    return ((fired.topic, fired.partition),) if fired.partition >= 0 else ()


SCHEDULER: Final = Topology(
    name="scheduler",
    inputs=(topics.REPORTS, topics.SLOT_GRANTS, topics.COMMANDS),
    urgent=frozenset({topics.REPORTS, topics.SLOT_GRANTS}),
    from_end=frozenset({topics.SLOT_GRANTS}),
    changelogs=(
        Changelog(topics.JOB_STATE, state_key),
        Changelog(topics.SCHEDULES, definition_key),
    ),
    events=(topics.SCHEDULE_CHANGES, topics.EXECUTIONS, topics.DEAD_LETTERS),
    events_topic=topics.EXECUTIONS,
    quarantine=topics.QUARANTINE,
    index_prefixes=(DUE, QUEUE),
    indexed_prefix=STATE,
    index=index,
    transaction_of=transaction_of,
    targets_of=targets_of,
)
