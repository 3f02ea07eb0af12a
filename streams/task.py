"""One partition, one owner, one transaction at a time.

The task decides on the caller's thread (`turn`) and commits on its own (`Executor`); what comes
back is handed to `turn` again. Safety comes from the producer's epoch and from restoring before
deciding; liveness from the group, which the runner asks.

    take over  init → lost markers? → restore → first mark → inputs from the mark → decide
    step       inputs, then due entries → decide over an overlay → write → commit → store → outbox
    doubt      drop everything that is not in the log, take over again
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol

import msgspec

from schemas import limits
from schemas.bindings import MARK, QUARANTINED
from schemas.events import Quarantined
from schemas.state import Mark, Position

from .binding import DueEntryCrashed, Logic, Topology
from .clockguard import ClockGuard
from .crash import CrashPoint
from .errors import Aborted, Doubt, Fenced, PoisonRecord, Refusal, StreamError, Unavailable
from .layout import MARK_KEY, STORE_MARK, encode_offset, offset_key, topic_name
from .ports import (
    Clock,
    Delivered,
    Outbox,
    Produced,
    Record,
    Store,
    TopicPartition,
    TransactionalProducer,
)
from .takeover import TakenOver, TakeOver
from .transaction import Transaction

COMMIT_S: Final = limits.TRANSACTION_MS_MAX / 1_000 + 2
FIRES_PER_COMMAND: Final = 2
Alarm = Callable[..., None]


class Stage(Enum):
    """Where the task is in its life."""

    WAITING = "waits to take over"
    TAKING_OVER = "takes over"
    DECIDING = "decides"
    COMMITTING = "commits"
    CLOSED = "closed"


class Executor(Protocol):
    """The task's own thread."""

    def submit(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        """Run `work`, then hand its result, or the exception it raised, to `done` on the thread
        that runs `turn`."""


class Inputs(Protocol):
    """Where input records come from: they arrive by `PartitionTask.receive`."""

    def start(self, partition: int, token: int, positions: Mapping[str, int]) -> None:
        """Send records from these positions on, marked with the token."""

    def stop(self, partition: int) -> None:
        """Send nothing more."""

    def pause(self, partition: int, topic: str) -> None: ...

    def resume(self, partition: int, topic: str) -> None: ...


class Committed(msgspec.Struct, frozen=True):
    """What a commit came back with."""

    delivered: Mapping[TopicPartition, Delivered]
    before_ms: int
    after_ms: int


class Parts(msgspec.Struct, frozen=True):
    """What a task is made of, handed in by the runner."""

    topology: Topology
    namespace: str
    owner: str
    logic: Logic
    take_over: TakeOver
    executor: Executor
    inputs: Inputs
    outbox: Outbox
    clock: Clock
    alarm: Alarm
    crash: CrashPoint


class PartitionTask:
    """Owns one partition until `close`."""

    def __init__(self, partition: int, parts: Parts) -> None:
        self.partition = partition
        self.parts = parts
        self.stage = Stage.WAITING
        self.guard = ClockGuard(parts.clock, self._clock_alarm)
        self.last_progress_s = parts.clock.monotonic_s()
        self.records_committed = 0
        self._token = 0
        self._failures = 0
        self._wait_until_s = 0.0
        self._fatal: StreamError | None = None
        self._reset()

    def _reset(self) -> None:
        self.store: Store | None = None
        self.producer: TransactionalProducer | None = None
        self.positions: dict[str, int] = {}
        self._buffers: dict[str, deque[Record]] = {t: deque() for t in self.parts.topology.inputs}
        self._paused: set[str] = set()
        self._txn_seq = 0
        self._epoch = 0
        self._in_flight: Transaction | None = None
        self._consumed: dict[str, int] = {}
        self._batch = limits.COMMANDS_PER_STEP_MAX
        self._applying: tuple[str, Record] | None = None
        self._suspect: tuple[str, Record] | None = None
        self._careful: frozenset[str] = frozenset()
        self._catch_up: dict[str, int] = {}
        self._catch_up_until_s = 0.0
        self._last_commit_s = 0.0
        self._full = False
        self._resumed = False
        self._input_lost: str | None = None
        self._gap_ms = 0
        self._barrier: tuple[int, dict[str, int]] | None = None

    # --- what the runner calls ---------------------------------------------------------------

    def take_over(self) -> None:
        """Take the partition over; call only after a poll showed that the group gives it to us."""
        assert self.stage is Stage.WAITING
        self.stage = Stage.TAKING_OVER
        self.last_progress_s = self.parts.clock.monotonic_s()
        work = self.parts.take_over
        self.parts.executor.submit(lambda: work.run(self.partition), self._taken_over)

    @property
    def wants_take_over(self) -> bool:
        """Whether `take_over` should be called once the group confirms us."""
        waited = self.parts.clock.monotonic_s() >= self._wait_until_s
        return self.stage is Stage.WAITING and waited

    def receive(self, token: int, records: list[Record], topic: str) -> None:
        """Take input records; those asked for by an earlier take-over are dropped."""
        if token != self._token or self.stage is Stage.CLOSED:
            return
        buffer = self._buffers[topic]
        buffer.extend(records)
        if len(buffer) > limits.INPUT_BUFFER_RECORDS_MAX and topic not in self._paused:
            self._paused.add(topic)
            self.parts.inputs.pause(self.partition, topic)

    def lost_input(self, token: int, reason: str) -> None:
        """An input cannot be read from its position: take over again, which says what is lost."""
        if token != self._token:
            return
        if self.busy:
            self._input_lost = reason
        else:
            self._failed(Doubt(reason))

    def turn(self) -> None:
        """Decide and start one transaction, if there is reason to."""
        if self.stage is not Stage.DECIDING:
            return
        now_s = self.parts.clock.monotonic_s()
        if not self._full and (now_s - self._last_commit_s) * 1_000 < limits.PACE_MS:
            return
        if self._has_work():
            self._step()
        elif (now_s - self._last_commit_s) * 1_000 >= self._mark_every_ms():
            self._write(self._begin(), {})

    def next_turn_s(self) -> float | None:
        """On the monotonic clock, when `turn` will have something to do; None: when told."""
        if self.stage is not Stage.DECIDING:
            return None
        clock = self.parts.clock
        paced = self._last_commit_s + (0 if self._full else limits.PACE_MS / 1_000)
        if self._may_decide() and any(self._buffers.values()):
            return paced
        at = self._last_commit_s + self._mark_every_ms() / 1_000
        deadline = self.parts.logic.deadline_ms() if self._may_decide() else None
        if deadline is not None:
            due_s = clock.monotonic_s() + max(0, deadline - clock.wall_ms()) / 1_000
            at = min(at, max(due_s, paced))
        return at

    @property
    def wants_ends(self) -> bool:
        """Whether the ends of the urgent inputs should be read for this task."""
        return self._resumed and self._barrier is None and self.parts.logic.wants_drained()

    def ends_read(self, asked_ms: int, ends: dict[str, int]) -> None:
        """The ends of the urgent inputs, read after `asked_ms`: once everything up to there is
        decided, the logic is told."""
        if self._resumed:
            self._barrier = (asked_ms, ends)
            self._pass_barrier()

    def _pass_barrier(self) -> None:
        if self._barrier is None:
            return
        asked_ms, ends = self._barrier
        if all(self.positions[topic] >= end for topic, end in ends.items()):
            self._barrier = None
            self.parts.logic.drained(asked_ms)

    def close(self) -> None:
        """Stop deciding and give up store and producer. A commit under way must have come back
        (`busy` is False), or its outcome belongs to the next owner."""
        self.parts.crash("CP15")
        self.parts.inputs.stop(self.partition)
        self._token += 1
        self._drop()
        self.stage = Stage.CLOSED

    @property
    def busy(self) -> bool:
        """Whether something runs on the task's own thread."""
        return self.stage in (Stage.TAKING_OVER, Stage.COMMITTING)

    @property
    def ready(self) -> bool:
        """Whether the partition is restored and its due entries are decided in time."""
        return self._resumed and self.stage in (Stage.DECIDING, Stage.COMMITTING)

    @property
    def fatal(self) -> StreamError | None:
        """Why the process must stop, once it must."""
        return self._fatal

    # --- taking over ---------------------------------------------------------------------------

    def _taken_over(self, result: object) -> None:
        self.last_progress_s = self.parts.clock.monotonic_s()
        if self.stage is Stage.CLOSED:
            if isinstance(result, TakenOver):
                result.restored.store.close()
                result.producer.close()
            return
        if isinstance(result, BaseException):
            self._failed(result)
            return
        assert isinstance(result, TakenOver)
        self._reset()
        self.store, self.producer = result.restored.store, result.producer
        mark = result.restored.mark
        self._txn_seq = mark.txn if mark else 0
        self._epoch = self._txn_seq + 1
        self._gap_ms = self.parts.clock.wall_ms() - mark.wall_ms if mark else 0
        self.positions = dict(result.positions)
        self._catch_up = dict(result.ends)
        self.stage = Stage.DECIDING
        txn = self._begin()
        for event in result.events:
            txn.append(self._name(self.parts.topology.events_topic), *event(txn.seq))
        self._write(txn, {})

    def _proven(self) -> None:
        """The first mark is committed: the epoch is ours and the clock has been seen."""
        clock = self.parts.clock
        assert self.store is not None
        self._resume(clock.wall_ms())
        self._resumed = True
        self._failures = 0
        self._catch_up_until_s = clock.monotonic_s() + limits.CATCH_UP_MS_MAX / 1_000
        self._token += 1
        self.parts.inputs.start(self.partition, self._token, self.positions)

    def _resume(self, now_ms: int) -> None:
        assert self.store is not None
        self.parts.logic.resume(self.store, epoch=self._epoch, now_ms=now_ms, gap_ms=self._gap_ms)

    def _failed(self, error: BaseException) -> None:
        """Go back to waiting, longer each time. A fault of ours stops the process."""
        if not isinstance(error, Doubt | Fenced | Unavailable):
            self.parts.alarm("task_failed", partition=self.partition, reason=repr(error))
            known = isinstance(error, StreamError)
            self._fatal = error if known else StreamError(repr(error))  # type: ignore[assignment]
        else:
            self.parts.alarm("take_over_again", partition=self.partition, reason=str(error))
        if isinstance(error, Doubt):  # a topic that is gone takes the producer along
            for refusal in error.refusals:
                self._blame_topic(refusal, self.parts.clock.wall_ms())
        self.parts.inputs.stop(self.partition)
        self._token += 1
        self._drop()
        back_off_ms = min(
            limits.TAKE_OVER_BACK_OFF_MS_MIN * 2**self._failures, limits.TAKE_OVER_BACK_OFF_MS_MAX
        )
        self._failures = min(self._failures + 1, 10)
        self._wait_until_s = self.parts.clock.monotonic_s() + back_off_ms / 1_000
        self.stage = Stage.WAITING

    def _drop(self) -> None:
        """Forget everything that is not in the log or the store."""
        self.parts.crash("CP17")
        if self.producer is not None:
            self.producer.close()
        if self.store is not None:
            self.store.close()
        self._reset()

    # --- deciding ------------------------------------------------------------------------------

    def _may_decide(self) -> bool:
        return self._resumed and self.guard.agrees()

    def _has_work(self) -> bool:
        if not self._may_decide():
            return False
        if any(self._buffers.values()):
            return True
        deadline = self.parts.logic.deadline_ms()
        return deadline is not None and deadline <= self.parts.clock.wall_ms()

    def _clock_alarm(self, event: str, **values: int) -> None:
        self.parts.alarm(event, partition=self.partition, **values)

    def _mark_every_ms(self) -> int:
        return limits.IDLE_MARK_MS if self.guard.agrees() else limits.IDLE_MARK_MS // 5

    def _catching_up(self) -> bool:
        if not self._catch_up:
            return False
        behind = any(self.positions[t] < end for t, end in self._catch_up.items())
        if not behind or self.parts.clock.monotonic_s() > self._catch_up_until_s:
            self._catch_up = {}
        return bool(self._catch_up)

    def _step(self) -> None:
        """Decide a batch. A record that raises is decided again, alone: what comes before it is
        committed first, and if it still raises it is set aside. Nothing else waits for that."""
        txn = self._begin()
        consumed: dict[str, int] = {}
        now_ms, logic = self.parts.clock.wall_ms(), self.parts.logic
        self.parts.crash("CP01")
        topology = self.parts.topology
        urgent = [topic for topic in topology.inputs if topic in topology.urgent]
        others = [topic for topic in topology.inputs if topic not in topology.urgent]
        decided = 0
        alone = self._suspect_comes_next()
        try:
            if alone:
                assert self._suspect is not None
                self._apply_inputs(txn, consumed, now_ms, [self._suspect[0]], 1)
            else:
                left = self._apply_inputs(txn, consumed, now_ms, urgent, self._batch)
                if left and not self._catching_up():
                    fires = 1 if self._batch == 1 else self._batch * FIRES_PER_COMMAND
                    decided = logic.due(txn, now_ms, min(fires, limits.FIRES_PER_STEP_MAX))
                if left and not (decided and self._batch == 1):
                    self._apply_inputs(txn, consumed, now_ms, others, left)
            logic.finish(txn, now_ms)
        except Exception as error:  # noqa: BLE001 - whatever it ran into: find out whose fault it is
            self._blame(error, consumed, alone=alone)
            return
        if alone:
            self._suspect = None
        self._full = decided >= limits.FIRES_PER_STEP_MAX or any(
            len(buffer) >= limits.COMMANDS_PER_STEP_MAX for buffer in self._buffers.values()
        )
        self._batch = min(self._batch * 2, limits.COMMANDS_PER_STEP_MAX)
        if txn.empty and not consumed:
            return
        self._write(txn, consumed)

    def _suspect_comes_next(self) -> bool:
        if self._suspect is None:
            return False
        topic, record = self._suspect
        return bool(self._buffers[topic]) and self._buffers[topic][0] is record

    def _apply_inputs(
        self,
        txn: Transaction,
        consumed: dict[str, int],
        now_ms: int,
        topics: list[str],
        left: int,
    ) -> int:
        """Decide up to `left` records, topic after topic; how many more there might have been."""
        apply = self.parts.logic.apply
        suspect = self._suspect[1] if self._suspect is not None else None
        for topic in topics:
            count = 0
            for record in self._buffers[topic]:
                if count >= left or txn.full:
                    break
                if count and record is suspect:
                    break
                count += 1
                consumed[topic] = count
                self._applying = topic, record
                try:
                    apply(txn, record, now_ms)
                except PoisonRecord as poison:
                    self.quarantine(txn, topic, record, str(poison))
            left -= count
        self._applying = None
        return left

    def _blame(self, error: Exception, consumed: dict[str, int], *, alone: bool) -> None:
        """Find out whose fault it is, and set it aside once it is certain. A due entry that this
        very step made is first to be committed, by a smaller step."""
        clock, logic = self.parts.clock, self.parts.logic
        assert self.store is not None
        applying, self._applying = self._applying, None
        self._resume(clock.wall_ms())
        self._full = True
        txn = self._begin()
        if isinstance(error, DueEntryCrashed) and logic.break_entry(txn, error, clock.wall_ms()):
            self.parts.alarm("due_entry_crashed", partition=self.partition, reason=error.reason)
            logic.finish(txn, clock.wall_ms())
            self._write(txn, {})
        elif alone:
            assert self._suspect is not None
            (topic, record), self._suspect = self._suspect, None
            self.quarantine(txn, topic, record, repr(error))
            self._write(txn, {topic: 1})
        elif applying is not None:
            self._suspect = applying
        elif self._batch > 1:
            self._batch = max(1, self._batch // 2)
        elif consumed:
            topic = next(t for t, count in consumed.items() if count)
            self._suspect = topic, self._buffers[topic][0]
        else:
            self._failed(error)

    def quarantine(self, txn: Transaction, topic: str, record: Record, error: str) -> None:
        """Set a record aside with where it came from."""
        bound = limits.QUARANTINE_VALUE_BYTES_MAX
        self.parts.alarm("quarantined", topic=topic, partition=self.partition, offset=record.offset,
                         reason=error)  # fmt: skip
        event = Quarantined(
            topic=topic, partition=record.partition, offset=record.offset,
            timestamp_ms=record.timestamp_ms, key=record.key and record.key[:bound],
            value=record.value and record.value[:bound], error=error[:2_000],
            at_ms=self.parts.clock.wall_ms(), txn=txn.seq,
        )  # fmt: skip
        key = f"{topic}-{record.partition}-{record.offset}".encode()
        txn.append(self._name(self.parts.topology.quarantine), key, QUARANTINED.encode(event))

    # --- committing ----------------------------------------------------------------------------

    def _begin(self) -> Transaction:
        assert self.store is not None
        self._txn_seq += 1
        return Transaction(self._txn_seq, self.partition, self.store)

    def _write(self, txn: Transaction, consumed: dict[str, int]) -> None:
        """Close the transaction with its mark and hand it to the task's own thread."""
        assert self.producer is not None
        positions = dict(self.positions)
        for topic, count in consumed.items():
            positions[topic] = self._buffers[topic][count - 1].offset + 1
        self._consumed, self._in_flight = consumed, txn
        own = sum(1 for record in txn.records if record.topic not in txn.targets)
        before_ms = self.parts.clock.wall_ms()
        mark = MARK.encode(
            Mark(
                txn=txn.seq,
                epoch=self._epoch,
                records=own + 1,
                wall_ms=before_ms,
                owner=self.parts.owner,
                positions=tuple(Position(topic, offset) for topic, offset in positions.items()),
            )  # fmt: skip
        )
        logs = self.parts.topology.changelogs
        marked = self._name(logs[0].topic)
        txn.records.append(Produced(marked, self.partition, MARK_KEY, mark))
        txn.writes[STORE_MARK] = mark
        report = frozenset((self._name(log.topic), self.partition) for log in logs)
        self.stage = Stage.COMMITTING
        producer, outbox, clock = self.producer, self.parts.outbox, self.parts.clock
        careful = self._careful & txn.targets

        try:
            if not txn.forwards:
                producer.write(txn.records, report=report, careful=careful)
        except StreamError as error:
            self._committed(error)
            return

        def commit() -> Committed:
            if txn.forwards:
                dropped = outbox.dropped
                outbox.send(txn.forwards)
                if not outbox.flush(limits.OUTBOX_FLUSH_S) or outbox.dropped != dropped:
                    raise Doubt("a forwarded command was not acknowledged")
                producer.write(txn.records, report=report, careful=careful)
            delivered = producer.commit(COMMIT_S)
            return Committed(delivered, before_ms, clock.wall_ms())

        self.parts.executor.submit(commit, self._committed)

    def _committed(self, result: object) -> None:
        self.last_progress_s = self._last_commit_s = self.parts.clock.monotonic_s()
        if self.stage is Stage.CLOSED:
            return
        txn, self._in_flight = self._in_flight, None
        assert txn is not None and self.store is not None
        if isinstance(result, Aborted):
            self._aborted(result, txn)
            return
        if isinstance(result, BaseException):
            self._failed(result)
            return
        assert isinstance(result, Committed)
        self.parts.crash("CP07")
        self._follow(txn, result)
        self.parts.crash("CP09")
        self.parts.outbox.send(txn.outbox)
        self.stage = Stage.DECIDING
        if self._input_lost is not None:
            self._failed(Doubt(self._input_lost))
        elif not self._resumed:
            self._proven()

    def _follow(self, txn: Transaction, result: Committed) -> None:
        """The log has it. Let store, positions and memory follow; dying in between only leaves
        the store behind, which the next restore mends."""
        assert self.store is not None
        logs = self.parts.topology.changelogs
        for log in logs:
            delivered = result.delivered.get((self._name(log.topic), self.partition))
            if delivered is not None:
                txn.writes[offset_key(log.topic)] = encode_offset(delivered.offset + 1)
        self.store.apply(txn.writes)
        self.parts.crash("CP08")
        for topic, count in self._consumed.items():
            buffer = self._buffers[topic]
            for _ in range(count - 1):
                buffer.popleft()
            self.positions[topic] = buffer.popleft().offset + 1
            if topic in self._paused and len(buffer) < limits.INPUT_BUFFER_RECORDS_MAX // 2:
                self._paused.discard(topic)
                self.parts.inputs.resume(self.partition, topic)
        self._consumed = {}
        self.records_committed += len(txn.records)
        mark = result.delivered[self._name(logs[0].topic), self.partition]
        self.guard.sample(result.before_ms, mark.timestamp_ms, result.after_ms)
        if self._resumed:
            self.parts.logic.committed(txn)
            self._pass_barrier()
        self._careful = frozenset()

    def _aborted(self, error: Aborted, txn: Transaction) -> None:
        """A user's topic refused something: decide again without it. First find out which."""
        if not txn.targets:
            self._failed(Doubt(f"aborted without a target topic to blame: {error}"))
            return
        now_ms, logic = self.parts.clock.wall_ms(), self.parts.logic
        for refusal in error.refusals:
            self._blame_topic(refusal, now_ms)
        if not error.refusals:
            if self._careful >= txn.targets:
                for topic in txn.targets:
                    logic.suspend(topic, str(error), now_ms)
            self._careful = frozenset(txn.targets)
        self._consumed = {}
        assert self.store is not None
        self._resume(now_ms)
        self.stage = Stage.DECIDING
        self._full = True

    def _blame_topic(self, refusal: Refusal, now_ms: int) -> None:
        if refusal.whole_topic:
            self.parts.alarm("topic_suspended", topic=refusal.topic, reason=refusal.reason)
            self.parts.logic.suspend(refusal.topic, refusal.reason, now_ms)
        else:
            self.parts.logic.refuse(refusal.tag, refusal.reason)

    def _name(self, topic: str) -> str:
        return topic_name(self.parts.namespace, topic)
