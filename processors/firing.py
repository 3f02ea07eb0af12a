"""Writing fires: the event of the claim and, for a topic target, the record itself.

This is the hot path: at a full minute it runs tens of thousands of times a second. What the fires
of one step share (times, transaction, outcome, most headers) is made once per step.
"""

from typing import Final

from schemas.bindings import EXECUTION_FIRED
from schemas.encoder import compile_parts
from schemas.registry import registered
from schemas.state import JobDefinition
from schemas.units import format_instant
from streams.ports import Produced
from streams.transaction import Transaction

from .core.job import Fire
from .targets import TopicTargets

EVENT_TYPE: Final = b"io.horolog.execution.due.v1"
ATTEMPT: Final = 1
"""Until retries are built."""
ATTEMPT_SUFFIX: Final = b":1"

_own, _shared = compile_parts(registered("ExecutionFired").schema, EXECUTION_FIRED.prefix, "txn")
Header = tuple[str, bytes]

SPECVERSION: Final[Header] = ("ce_specversion", b"1.0")
TYPE: Final[Header] = ("ce_type", EVENT_TYPE)
FIRST_ATTEMPT: Final[Header] = ("X-Horolog-Attempt", b"1")
FIRST_DELIVERY: Final[Header] = ("X-Horolog-Delivery", b"1")


class Firing:
    """Writes the fires of one partition's steps."""

    def __init__(
        self, *, executions: str, dead_letters: str, source: bytes, tz: str, targets: TopicTargets
    ) -> None:
        self._executions = executions
        self._dead_letters = dead_letters
        self._source: Header = ("ce_source", source)
        self._tz = tz
        self._targets = targets
        self._step: tuple[int, int] = (-1, -1)
        self.time: Header = ("ce_time", b"")
        """When this step's records came about."""
        self._tails: dict[tuple[str, int, str], bytes] = {}
        self._scheduled: dict[int, Header] = {}
        self.types: dict[str, Header] = {}
        """Content types met in this step."""
        self.fence = 0
        """Fencing number of the last fire: the transaction's sequence and the place in it."""

    def begin(self, txn: int, now_ms: int) -> None:
        """Before the fires of a step; more than once in a step does nothing."""
        if self._step == (txn, now_ms):
            return
        self._step = (txn, now_ms)
        self.time = ("ce_time", format_instant(now_ms).encode())
        self._tails.clear()
        self._scheduled.clear()
        self.types.clear()
        self.fence = txn << 16
        self._targets.begin_step()

    def write(
        self,
        txn: Transaction,
        job_key: bytes,
        definition: JobDefinition,
        life: int,
        fire: Fire,
        now_ms: int,
    ) -> None:
        """Claim the occurrence and write it to its topic: exactly once, since it is one
        transaction. Where the topic cannot take it, the execution fails and others go on."""
        self.begin(txn.seq, now_ms)
        self.fence += 1
        target = definition.topic
        assert target is not None
        execution_id = fire.execution_id
        partition, problem = self._targets.place(target, execution_id, now_ms)
        tail = self.tail(txn.seq, now_ms, target.name, partition, problem)
        scheduled_at = fire.scheduled_at
        event = _own(
            definition.tenant, definition.job, life, fire.sequence, execution_id, scheduled_at,
            fire.due_at, definition.version,
        ) + tail  # fmt: skip
        identity = execution_id.encode()
        append = txn.records.append
        append(
            Produced(self._executions, txn.partition, b"%b#%d" % (identity, fire.sequence), event)
        )
        txn.bytes += len(event)
        if problem:
            append(Produced(self._dead_letters, txn.partition, identity, event))
            return
        scheduled = self._scheduled.get(scheduled_at)
        if scheduled is None:
            text = format_instant(scheduled_at).encode()
            scheduled = self._scheduled[scheduled_at] = ("X-Horolog-Scheduled-At", text)
        content = self.content_type(definition.content_type)
        headers = [
            content, SPECVERSION, ("ce_id", identity), self._source, TYPE,
            ("ce_subject", job_key), self.time, ("Idempotency-Key", identity),
            ("X-Deduplication-Key", fire.occurrence.encode()), FIRST_ATTEMPT, FIRST_DELIVERY,
            scheduled, ("X-Horolog-Fence", b"%d" % self.fence),
        ]  # fmt: skip
        if target.headers:
            headers += [(name, value.encode()) for name, value in target.headers.items()]
        payload = fire.payload if fire.payload is not None else definition.payload
        append(Produced(target.name, partition, target.key, payload, headers, execution_id))
        txn.targets.add(target.name)
        txn.bytes += len(payload) + 400

    def tail(self, txn: int, now_ms: int, topic: str, partition: int, problem: str) -> bytes:
        """The end of a fire's event, which those of one step to one place have in common."""
        tail = self._tails.get((topic, partition, problem))
        if tail is None:
            state, reason = ("FAILED", "target") if problem else ("SUCCEEDED", "")
            tail = self._tails[topic, partition, problem] = _shared(
                txn, now_ms, ATTEMPT, state, reason, problem, topic, partition, self._tz, "", "",
                "", 0, "", 0,
            )  # fmt: skip
        return tail

    def content_type(self, name: str) -> Header:
        """The header, made once a step."""
        header = self.types.get(name)
        if header is None:
            header = self.types[name] = ("content-type", name.encode())
        return header
