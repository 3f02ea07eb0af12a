"""Records as the auditor sees them: decoded, with the transaction they belong to and their place.

The auditor shares the words (`schemas`) with the scheduler and none of its decisions.
"""

from hashlib import blake2b
from typing import Any, Final

import msgspec

from schemas.bindings import (
    COMMANDS as COMMAND_CODECS,
)
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
from schemas.codec import Undecodable, schema_name
from schemas.commands import COMMAND_TYPES
from schemas.state import Mark
from streams.layout import MARK_KEY, TXN_HEADER
from streams.ports import Record

COMMANDS: Final = "commands"
SCHEDULES: Final = "schedules"
JOB_STATE_TOPIC: Final = "job-state"
SCHEDULE_CHANGES: Final = "schedule-changes"
EXECUTIONS: Final = "executions"
DEAD_LETTERS: Final = "dead-letters"
QUARANTINE: Final = "quarantine"
REPLIES: Final = "replies"

OWN_TOPICS: Final = (
    JOB_STATE_TOPIC, SCHEDULES, SCHEDULE_CHANGES, EXECUTIONS, DEAD_LETTERS, QUARANTINE,
)  # fmt: skip
"""What a partition task writes in its transactions, the topic of its marks first."""
IDS_SUFFIX: Final = b"#ids"
REPAIR_TXN: Final = -2
"""Of a record that a repair of lost markers left, which names no transaction."""

_CODECS: Final = {
    codec.prefix: codec
    for codec in (JOB_DEFINITION, JOB_STATE, JOB_IDS, MARK, JOB_CHANGED, EXECUTION_FIRED,
                  EXECUTION_MOVED, TICKS_MISSED, INPUT_LOST, QUARANTINED)
}  # fmt: skip


class Asked(msgspec.Struct, frozen=True):
    """What a command says of itself; what it asks for in detail does not matter here."""

    kind: str
    tenant: str
    job: str
    command_id: str
    run_mark: str
    """Eight hex digits that the occurrence key of a run has that it triggers."""


class Entry(msgspec.Struct, frozen=True):
    """One record. `txn` is its transaction's sequence, -1 where it names none; `body` None: it has
    no value, or one that cannot be read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    txn: int = -1
    body: Any = None
    aborted: bool = False

    @property
    def where(self) -> str:
        """Its place, as other tools write it."""
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def is_mark(self) -> bool:
        """Whether it closes a transaction."""
        return isinstance(self.body, Mark)

    @property
    def job_key(self) -> str:
        """`tenant/job` of a record whose body names them."""
        return f"{self.body.tenant}/{self.body.job}"


def entry_of(record: Record, topic: str, *, aborted: bool = False) -> Entry:
    """Decode one of the task's own records."""
    value, txn = record.value, -1
    body: Any = None
    if value is not None:
        codec = _CODECS.get(value[:5])
        if codec is not None:
            try:
                body = codec.decode(value)
                txn = body.txn
            except Undecodable:
                body = None
    elif record.key == MARK_KEY:
        txn = REPAIR_TXN
    else:
        txn = next((int(text) for name, text in record.headers if name == TXN_HEADER), -1)
    return Entry(
        topic, record.partition, record.offset, record.timestamp_ms, record.key, value, txn, body,
        aborted,
    )  # fmt: skip


def command_of(record: Record) -> Entry:
    """Decode a command as far as it says who asks for what."""
    return Entry(
        COMMANDS, record.partition, record.offset, record.timestamp_ms, record.key, record.value,
        body=_asked(record.value or b"", f"{COMMANDS}-{record.partition}-{record.offset}"),
    )  # fmt: skip


def run_mark(command_id: str) -> str:
    """What a triggered run's occurrence key carries of the id of its command."""
    return blake2b(command_id.encode(), digest_size=8).digest()[:4].hex()


def _asked(value: bytes, place: str) -> Asked | None:
    if value[:1] == b"{":
        try:
            raw = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return None
        texts = [raw.get(name, "") for name in ("type", "tenant", "job", "command_id")]
        if not all(isinstance(text, str) for text in texts) or texts[0] not in COMMAND_TYPES:
            return None
        kind, tenant, job, command_id = texts
        return Asked(kind, tenant, job, command_id, run_mark(command_id or place))
    codec = COMMAND_CODECS.get(schema_name(value) or "")
    if codec is None:
        return None
    try:
        command = codec.decode(value)
    except Undecodable:
        return None
    kind = _KINDS[type(command).__name__]
    return Asked(
        kind, command.tenant, command.job, command.command_id,
        run_mark(command.command_id or place),
    )  # fmt: skip


_KINDS: Final = {kind.__name__: name for name, kind in COMMAND_TYPES.items()}


def occurrence_of(execution_id: str) -> str:
    """Occurrence key of an execution id."""
    return execution_id.rpartition(":")[0]


def is_tick(occurrence: str) -> bool:
    """Whether it is a tick of the schedule, not a run beside it."""
    return occurrence.endswith("Z")
