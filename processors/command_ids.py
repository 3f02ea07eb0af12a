"""Commands that took effect within the last hour, so that a repeat takes effect once.

Up to 16 stand in the job's own state; more go into a record of their own, at most 1,000.
"""

from hashlib import blake2b

import msgspec

from schemas import limits
from schemas.bindings import JOB_IDS
from schemas.commands import AnyCommand
from schemas.state import CommandId, JobIds, JobState
from streams.transaction import Transaction

from .core.keys import IDS, IDS_SUFFIX
from .core.spec import canonical


def id_hash(command_id: str) -> bytes:
    """What a command id is remembered as."""
    return blake2b(command_id.encode(), digest_size=8).digest()


def body_hash(command: AnyCommand) -> bytes:
    """What the rest of the command is remembered as: a repeat must have the same."""
    bare = msgspec.structs.replace(command, command_id="", reply_to="", hops=0)
    return blake2b(type(command).__name__.encode() + canonical(bare), digest_size=8).digest()


def find(txn: Transaction, job_key: bytes, state: JobState, wanted: bytes, at_ms: int) -> (
    CommandId | None
):  # fmt: skip
    """The command with this id, if it was appended within the last hour."""
    oldest_ms = at_ms - limits.COMMAND_ID_MS
    for seen in state.ids:
        if seen.id == wanted and seen.at_ms > oldest_ms:
            return seen
    if not state.ids:  # further ids are older than those in the state
        return None
    return next(
        (seen for seen in _further(txn, job_key) if seen.id == wanted and seen.at_ms > oldest_ms),
        None,
    )


def remember(
    txn: Transaction, topic: str, job_key: bytes, state: JobState, seen: CommandId
) -> JobState | None:
    """The state with the command remembered; None when the hour has too many already."""
    oldest_ms = seen.at_ms - limits.COMMAND_ID_MS
    kept = tuple(one for one in state.ids if one.at_ms > oldest_ms)
    if len(kept) >= limits.COMMAND_IDS_INLINE_MAX:
        further = tuple(one for one in _further(txn, job_key) if one.at_ms > oldest_ms)
        if len(further) + len(kept) >= limits.COMMAND_IDS_MAX:
            return None
        value = JOB_IDS.encode(JobIds(txn=txn.seq, ids=further + kept))
        txn.put_state(topic, job_key + IDS_SUFFIX, IDS + job_key, value)
        kept = ()
    return msgspec.structs.replace(state, txn=txn.seq, ids=(*kept, seen))


def room(txn: Transaction, job_key: bytes, state: JobState, at_ms: int) -> bool:
    """Whether one more command with an id may take effect in this hour."""
    if len(state.ids) < limits.COMMAND_IDS_INLINE_MAX:
        return True
    oldest_ms = at_ms - limits.COMMAND_ID_MS
    live = sum(one.at_ms > oldest_ms for one in (*state.ids, *_further(txn, job_key)))
    return live < limits.COMMAND_IDS_MAX


def _further(txn: Transaction, job_key: bytes) -> tuple[CommandId, ...]:
    value = txn.get(IDS + job_key)
    return JOB_IDS.decode(value).ids if value is not None else ()
