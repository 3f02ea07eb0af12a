"""The slots processor: binds the division of places to topics and the state store.

One instance answers for the limits of one partition. What it hears is followed in memory; what a
new owner cannot do without, and every grant before it is sent, is written to `slot-state` first.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from schemas import limits
from schemas.bindings import SLOT_STATE, SLOTS_GRANTED, SLOTS_WANTED, WORKER_OFFER
from schemas.codec import Undecodable, describe
from schemas.partition import partition_of
from schemas.slots import SlotsGranted, SlotState, SlotsWanted, WorkerOffer
from streams.binding import DueEntryCrashed
from streams.errors import PoisonRecord
from streams.layout import prefix_end, topic_name
from streams.ports import Produced, Record, Store
from streams.transaction import Transaction

from .core import slots
from .core.places import POOL_LIMIT, pool_limit
from .slots_topology import LIMIT
from .topology import SLOT_GRANTS
from .topology import SLOT_STATE as SLOT_STATE_TOPIC

SETTLE_MS: Final = 2_000
"""Places that are not used go back after this time."""
SEND_AGAIN_MS: Final = 5_000
"""A grant that is not answered is sent again after this time."""
LIMITS_SCANNED: Final = 1_000
REFUSED_REMEMBERED_MAX: Final = 10_000

Alarm = Callable[..., None]
Message = WorkerOffer | SlotsWanted


class _Step:
    """What a step will have changed in memory once it is committed."""

    __slots__ = ("keep", "states")

    def __init__(self) -> None:
        self.states: dict[str, SlotState] = {}
        self.keep: set[str] = set()


class Slots:
    """Decides who may hold how many places (`streams.binding.Logic`)."""

    def __init__(
        self,
        *,
        namespace: str,
        partition: int,
        partitions: int,
        alarm: Alarm,
        lease_ms: int = limits.LEASE_MS,
    ) -> None:
        self._partition = partition
        self._partitions = partitions
        self._alarm = alarm
        self._lease_ms = lease_ms
        # The earliest that a dead worker's lease can end, renewed as late as it was: what was lost
        # with it is not given to it again.
        left_ms = lease_ms - lease_ms // limits.RENEWALS_PER_LEASE
        self._worker_silent_ms = min(slots.WORKER_SILENT_MS, left_ms)
        self._refused: set[str] = set()
        """Workers and scheduler partitions that an alarm was raised about: one is enough."""
        self._grants = topic_name(namespace, SLOT_GRANTS)
        self._slot_state = topic_name(namespace, SLOT_STATE_TOPIC)
        self._limits: dict[str, SlotState] = {}
        self._forget_memory()

    def _forget_memory(self) -> None:
        self._limits = {}
        # What follows says when to look again. It may run ahead of a commit, since `resume` comes
        # after every step that is dropped.
        self._heard: set[str] = set()
        self._resend: set[str] = set()
        self._settle_ms: dict[str, int] = {}
        self._sent_ms: dict[tuple[str, str], int] = {}
        self._next_ms: dict[str, int] = {}

    # --- what the task calls ---------------------------------------------------------------------

    def resume(self, store: Store, *, epoch: int, now_ms: int, gap_ms: int = 0) -> None:
        """Read what is known and send every grant again; nobody counts as silent yet."""
        del epoch, gap_ms
        self._forget_memory()
        lower, upper = LIMIT, prefix_end(LIMIT)
        while pairs := store.scan(lower, upper, LIMITS_SCANNED):
            for _, value in pairs:
                state = slots.all_seen(SLOT_STATE.decode(value), now_ms)
                self._limits[state.limit] = state
            lower = pairs[-1][0] + b"\x00"
        self._heard, self._resend = set(self._limits), set(self._limits)

    def deadline_ms(self) -> int | None:
        """When places should be divided again."""
        if self._heard:
            return 0
        return min(self._next_ms.values(), default=None)

    def apply(self, txn: Transaction, record: Record, now_ms: int) -> None:
        """Follow an offer or a want."""
        message = _read(record.value)
        limit = pool_limit(message.pool) if isinstance(message, WorkerOffer) else message.limit
        self._check(message, limit)
        if message.lease_ms not in (0, self._lease_ms):
            self._tell_of_refusal(message, limit)
            if isinstance(message, SlotsWanted):
                return
            message = replace(message, places=0, ahead=0, draining=True)
        step = self._step(txn)
        before = self._state(step, limit)
        after = slots.evolve(before, message, now_ms)
        if after is before:
            return
        step.states[limit] = after
        self._heard.add(limit)
        if slots.must_be_kept(before, message):
            step.keep.add(limit)

    def due(self, txn: Transaction, now_ms: int, limit: int) -> int:
        """Divide the places of each limit of which something was heard, or whose time has come."""
        del limit
        step = self._step(txn)
        late = {key for key, at_ms in self._next_ms.items() if at_ms <= now_ms}
        todo = sorted(self._heard | late)
        for key in todo:
            try:
                self._divide(txn, step, key, now_ms)
            except Exception as error:
                raise DueEntryCrashed(key.encode(), repr(error)) from error
        return len(todo)

    def finish(self, txn: Transaction, now_ms: int) -> None:
        """Write what must not be lost, in the same transaction."""
        del now_ms
        step = self._step(txn)
        for limit in sorted(step.keep):
            state = step.states[limit] = replace(step.states[limit], txn=txn.seq)
            key = limit.encode()
            txn.put_state(self._slot_state, key, LIMIT + key, SLOT_STATE.encode(state))

    def break_entry(self, txn: Transaction, crash: DueEntryCrashed, now_ms: int) -> bool:
        """Forget what is known of a limit: within seconds everybody has said it again."""
        del now_ms
        limit = crash.entry.decode()
        if limit not in self._limits:
            return False
        self._alarm("limit_forgotten", limit=limit, reason=crash.reason)
        key = limit.encode()
        txn.put_state(self._slot_state, key, LIMIT + key, None)
        self._step(txn).states[limit] = slots.unknown(limit)
        self._heard.discard(limit)
        return True

    def committed(self, txn: Transaction) -> None:
        """Let memory follow."""
        step: _Step | None = txn.memory
        if step is None:
            return
        self._limits |= step.states

    def suspend(self, topic: str, reason: str, now_ms: int) -> None:
        """We write to no topics of users."""

    def refuse(self, tag: str, reason: str) -> None:
        """We write to no topics of users."""

    def wants_drained(self) -> bool:
        """Nothing waits for an end of the input: a late message is as good as one in time."""
        return False

    def drained(self, asked_ms: int) -> None:
        """Nothing waits for it."""

    def figures(self) -> Mapping[str, int]:
        """Sizes of what is held in memory."""
        states = self._limits.values()
        return {
            "limits": len(states),
            "workers": sum(len(state.workers) for state in states),
            "partitions": sum(len(state.partitions) for state in states),
        }

    def _tell_of_refusal(self, message: Message, limit: str) -> None:
        """Who goes by other leases believes in leases that are over, or gives up those that are
        not: a worker gets no work and a scheduler no places until all are told the same and
        started again. Said once of each."""
        who: dict[str, object]
        if isinstance(message, WorkerOffer):
            event, who = "worker_refused", {"worker": message.worker}
        else:
            event, who = "scheduler_refused", {"partition": message.partition}
        known = f"{limit} {who}"
        if known in self._refused:
            return
        if len(self._refused) >= REFUSED_REMEMBERED_MAX:
            self._refused.clear()
        self._refused.add(known)
        self._alarm(
            event, limit=limit, **who,
            reason=f"it goes by leases of {message.lease_ms} ms, the slots processor by leases of "
            f"{self._lease_ms} ms",
            advice="set HOROLOG_LEASE_MS (lease_ms) to one value on every scheduler, slots "
            "processor and worker, and start them again",
        )  # fmt: skip

    # --- dividing --------------------------------------------------------------------------------

    def _divide(self, txn: Transaction, step: _Step, limit: str, now_ms: int) -> None:
        before = self._state(step, limit)
        settle_ms = self._settle_ms.get(limit)
        settle = settle_ms is not None and settle_ms <= now_ms
        state, changed = slots.grant(
            before, now_ms, settle=settle, silent_ms=self._worker_silent_ms
        )
        step.states[limit] = state
        if changed:
            step.keep.add(limit)
        told = {str(message.partition) for message in changed}
        again = [name for name in self._to_send_again(state, now_ms) if name not in told]
        for message in (*changed, *(slots.grant_of(state, name) for name in again)):
            self._send(txn, message, now_ms)
        if settle:
            del self._settle_ms[limit]
        if changed or limit in self._heard:
            self._settle_ms.setdefault(limit, now_ms + SETTLE_MS)
        self._heard.discard(limit)
        self._resend.discard(limit)
        self._plan(state, now_ms)

    def _to_send_again(self, state: SlotState, now_ms: int) -> list[str]:
        if state.limit in self._resend:
            return list(state.partitions)
        return [
            name
            for name in slots.unanswered(state, now_ms)
            if now_ms - self._sent_ms.get((state.limit, name), 0) >= SEND_AGAIN_MS
        ]

    def _send(self, txn: Transaction, message: SlotsGranted, now_ms: int) -> None:
        value = SLOTS_GRANTED.encode(message)
        txn.send(Produced(self._grants, message.partition, message.limit.encode(), value))
        self._sent_ms[message.limit, str(message.partition)] = now_ms

    def _plan(self, state: SlotState, now_ms: int) -> None:
        """When there will be something to do for the limit if nothing is heard."""
        limit = state.limit
        times = [
            self._sent_ms.get((limit, name), 0) + SEND_AGAIN_MS
            for name in slots.unanswered(state, now_ms)
        ]
        silent_ms = slots.falls_silent_ms(state, now_ms, self._worker_silent_ms)
        if silent_ms is not None:
            times.append(silent_ms)
        if limit in self._settle_ms:
            times.append(self._settle_ms[limit])
        if times:
            self._next_ms[limit] = min(times)
        else:
            self._next_ms.pop(limit, None)

    # --- reading ---------------------------------------------------------------------------------

    def _check(self, message: Message, limit: str) -> None:
        """Raise `PoisonRecord` for what we cannot follow."""
        if not limit.startswith(POOL_LIMIT):
            raise PoisonRecord(f"limit {limit!r}: only {POOL_LIMIT}<name> is known")
        home = partition_of(limit, self._partitions)
        if home != self._partition:
            raise PoisonRecord(
                f"{limit} belongs to partition {home} of {self._partitions}: is there another "
                "partition count about?"
            )
        if isinstance(message, WorkerOffer):
            if not 0 <= message.places <= limits.PLACES_MAX:
                raise PoisonRecord(f"{message.places} places: 0 to {limits.PLACES_MAX} can be")
            if not 0 <= message.ahead <= limits.AHEAD_MAX:
                raise PoisonRecord(f"{message.ahead} ahead: 0 to {limits.AHEAD_MAX} can be")
            return
        if not 0 <= message.partition < self._partitions:
            raise PoisonRecord(f"partition {message.partition} of {self._partitions}")
        if any(count < 0 for count in (*message.held.values(), *message.wanted.values())):
            raise PoisonRecord("a count below zero")

    def _state(self, step: _Step, limit: str) -> SlotState:
        state = step.states.get(limit)
        if state is None:
            state = self._limits.get(limit)
        return state if state is not None else slots.unknown(limit)

    @staticmethod
    def _step(txn: Transaction) -> _Step:
        step = txn.memory
        if step is None:
            step = txn.memory = _Step()
        return step  # type: ignore[no-any-return]


def _read(value: bytes | None) -> Message:
    data = value or b""
    try:
        if data.startswith(WORKER_OFFER.prefix):
            return WORKER_OFFER.decode(data)
        if data.startswith(SLOTS_WANTED.prefix):
            return SLOTS_WANTED.decode(data)
    except Undecodable as error:
        raise PoisonRecord(str(error)) from error
    raise PoisonRecord(f"expected WorkerOffer or SlotsWanted, found {describe(data)}")
