"""The scheduler: binds the decisions of the core to topics and the state store.

One instance decides for one partition. What a step changes in memory is taken over only when its
transaction is committed; a step that is dropped is followed by `resume`.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from schemas import limits
from schemas.bindings import (
    COMMANDS,
    JOB_CHANGED,
    JOB_DEFINITION,
    JOB_STATE,
    SLOTS_GRANTED,
    TICKS_MISSED,
)
from schemas.codec import Undecodable
from schemas.commands import (
    AnyCommand,
    CancelExecution,
    DeleteJob,
    PauseJob,
    PutJob,
    ResumeJob,
    TriggerJob,
)
from schemas.partition import job_key as key_of
from schemas.partition import partition_of
from schemas.replies import Problem
from schemas.state import CommandId, JobState, OpenExecution
from schemas.units import Unreadable, format_instant, parse_instant
from streams.binding import DueEntryCrashed
from streams.crash import CrashPoint, unarmed
from streams.errors import PoisonRecord
from streams.layout import topic_name
from streams.ports import Produced, Record, Store
from streams.transaction import Transaction

from . import command_ids
from . import topology as topics
from .answers import Answers
from .core import executions
from .core import job as decide
from .core.admission import BadCommand, further, read_command
from .core.job import Asked, Decision, Job, Refusal, index_changes, index_entries
from .core.keys import (
    DEFINITION,
    DUE,
    IDS,
    IDS_SUFFIX,
    KIND_AT,
    QUEUE,
    STATE,
    Kind,
    due_ms_of,
    ordinal_of,
    owner_of,
    parse_queue,
    split_job_key,
)
from .core.late import decide_late_tick
from .core.schedule_input import schedule_warnings
from .core.spec import admit, digest, plan_of
from .core.wheel import Wheel
from .firing import Firing
from .jobs import Budget, Jobs, Step, stored_execution
from .leasing import Leasing
from .plain import PlainFires
from .running import Running
from .targets import TopicTargets

Alarm = Callable[..., None]


class Scheduler:
    """Decides commands, reports and due entries of one partition (`streams.binding.Logic`)."""

    def __init__(
        self,
        *,
        namespace: str,
        partition: int,
        partitions: int,
        cluster: str,
        cluster_key: bytes,
        tz: str,
        targets: TopicTargets,
        budget: Budget,
        alarm: Alarm,
        lease_ms: int = limits.LEASE_MS,
        crash: CrashPoint = unarmed,
    ) -> None:
        self._crash = crash
        self._namespace = namespace
        self._partitions = partitions
        self._tz = tz
        self._targets = targets
        self._commands = topic_name(namespace, topics.COMMANDS)
        self._reports = topic_name(namespace, topics.REPORTS)
        self._schedules = topic_name(namespace, topics.SCHEDULES)
        self._job_state = topic_name(namespace, topics.JOB_STATE)
        self._changes = topic_name(namespace, topics.SCHEDULE_CHANGES)
        self._executions = topic_name(namespace, topics.EXECUTIONS)
        dead_letters = topic_name(namespace, topics.DEAD_LETTERS)
        self._answers = Answers(topic_name(namespace, topics.REPLIES))
        source = f"/horolog/{cluster}".encode()
        self._firing = Firing(
            executions=self._executions, dead_letters=dead_letters, source=source, tz=tz,
            targets=targets,
        )  # fmt: skip
        self._plain = PlainFires(
            executions=self._executions, job_state=self._job_state, source=source, tz=tz,
            targets=targets, firing=self._firing,
        )  # fmt: skip
        self._jobs = Jobs(budget)
        self._leasing = Leasing(
            namespace=namespace, partition=partition, partitions=partitions,
            cluster_key=cluster_key, lease_ms=lease_ms,
        )  # fmt: skip
        self._running = Running(
            executions=self._executions, dead_letters=dead_letters, tz=tz, jobs=self._jobs,
            leasing=self._leasing, write=self._write_state, alarm=alarm,
            lease_ms=lease_ms, crash=crash,
        )  # fmt: skip
        self._wheel: Wheel | None = None
        self._last_append_ms = 0
        self._now_ms = 0
        self.fired = 0

    # --- what the task calls ---------------------------------------------------------------------

    def resume(self, store: Store, *, epoch: int, now_ms: int, gap_ms: int = 0) -> None:
        """Forget what was remembered; load wheel, queue and leases from the index."""
        self._jobs.clear()
        self._wheel = Wheel(
            store.scan, seconds=limits.WHEEL_SECONDS,
            share=limits.WHEEL_KEYS_PER_TENANT_SECOND_MAX, keys_max=limits.WHEEL_KEYS_MAX,
        )  # fmt: skip
        self._wheel.load(now_ms)
        self._leasing.resume(
            store, lambda key, ordinal: stored_execution(store.get(STATE + key), ordinal),
            epoch=epoch, now_ms=now_ms, gap_ms=gap_ms,
        )  # fmt: skip

    def deadline_ms(self) -> int | None:
        """When wheel or leases want attention."""
        if self._wheel is None:
            return None
        ticks, leases = self._wheel.deadline_ms(), self._leasing.deadline_ms()
        return ticks if leases is None else leases if ticks is None else min(ticks, leases)

    def finish(self, txn: Transaction, now_ms: int) -> None:
        """What workers and slots are told goes out behind the commit."""
        self._now_ms = now_ms
        step: Step | None = txn.memory
        queued = step.queued if step is not None else ()
        self._leasing.finish(txn, queued, now_ms)

    def committed(self, txn: Transaction) -> None:
        """Let memory, wheel and queue follow."""
        step: Step | None = txn.memory
        if step is None:
            return
        self._jobs.committed(step, self._now_ms)
        assert self._wheel is not None
        add = self._wheel.add
        for key in step.index:
            add(key)
        self._leasing.queued(step.queued)
        self.fired += step.fires
        if self._crash is not unarmed and topics.tells_workers(txn.outbox):
            self._crash("CP18")

    def suspend(self, topic: str, reason: str, now_ms: int) -> None:
        """Decide without this topic for a while."""
        self._targets.suspend(topic, reason, now_ms)

    def refuse(self, tag: str, reason: str) -> None:
        """This execution's record was refused: it fails."""
        self._targets.refuse(tag, reason)

    def wants_drained(self) -> bool:
        """Whether lapsed leases wait for the end of `reports`."""
        return self._leasing.wants_drained()

    def drained(self, asked_ms: int) -> None:
        """Every report that was in the log at `asked_ms` is decided."""
        self._leasing.drained(asked_ms)

    def figures(self) -> Mapping[str, int]:
        """Sizes of what is held in memory, and counts."""
        held = self._wheel.size() if self._wheel is not None else 0
        return {
            "wheel_keys": held, "cached_jobs": len(self._jobs), "fired": self.fired,
            "outdated_reports": self._running.outdated, "forged_reports": self._running.forged,
            **self._leasing.figures(),
        }  # fmt: skip

    # --- due entries -----------------------------------------------------------------------------

    def due(self, txn: Transaction, now_ms: int, limit: int) -> int:
        """Decide what is due, fairly over tenants, then lease what waits; at most `limit`."""
        assert self._wheel is not None
        self._wheel.load(now_ms)
        entries, decided = self._leasing.lapsed(now_ms, limit), 0
        # In portions, since payloads may be large.
        while decided < limit and not txn.full:
            entries += self._wheel.draw(now_ms, min(DRAW_MAX, limit - decided) - len(entries))
            if not entries:
                break
            self._decide_entries(txn, entries, now_ms)
            decided += len(entries)
            entries = []
        self._running.send_again(txn, now_ms)
        # However much is due, what waits has its share of the step.
        left = max(limit - decided, limit // LEASES_SHARE)
        return decided + self._running.lease_waiting(txn, now_ms, left)

    def _decide_entries(self, txn: Transaction, entries: list[bytes], now_ms: int) -> None:
        owners = [owner_of(entry) for entry in entries]
        self._jobs.load(txn, owners)

        def decide_due(entry: bytes, job_key: bytes) -> None:
            self._decide_due(txn, entry, job_key, now_ms)

        self._plain.fire(txn, entries, owners, self._jobs.held, now_ms, decide_due)

    def _decide_due(self, txn: Transaction, entry: bytes, job_key: bytes, now_ms: int) -> None:
        """An entry that the state no longer asks for is nobody's: the wheel is only a cache."""
        job = self._jobs.get(txn, job_key)
        if job is None:
            return
        state, kind = job.state, entry[KIND_AT]
        if kind == Kind.TICK:
            if not state.due_ms or state.due_ms != due_ms_of(entry):
                return
            key = job_key.decode()
            definition = job.definition
            plain = definition is None or definition.policy is None
            decide_tick = decide.decide_tick if plain else decide_late_tick
            decision = decide_tick(key, job, now_ms, txn.seq, self._tz)
            after = self._write(txn, key, job_key, job, decision, now_ms)
            if after.state.due_ms == state.due_ms:  # drawn, and due once more
                Step.of(txn).index.append(entry)
        elif kind == Kind.LEASE:
            self._running.lapsed(txn, entry, job_key, job, due_ms_of(entry), now_ms)
        elif state.forget_ms and state.forget_ms == due_ms_of(entry):
            self._forget(txn, job_key, job, now_ms)

    def break_entry(self, txn: Transaction, crash: DueEntryCrashed, now_ms: int) -> bool:
        """Deciding raised: the job becomes BROKEN, or the execution that it was about fails, and
        others go on."""
        entry = crash.entry
        queued = entry.startswith(QUEUE)
        job_key = parse_queue(entry)[3] if queued else owner_of(entry)
        job = self._jobs.get(txn, job_key)
        if job is None or txn.get(entry) is None:
            return False
        if queued or entry[KIND_AT] == Kind.LEASE:
            execution = executions.at(job.state, ordinal_of(entry))
            assert execution is not None
            self._running.failed(txn, job_key, job, execution, now_ms, crash.reason)
            return True
        key = job_key.decode()
        decision = decide.break_job(key, job, now_ms, txn.seq, crash.reason)
        self._write(txn, key, job_key, job, decision, now_ms)
        return True

    def _settle(
        self, txn: Transaction, key: str, job_key: bytes, job: Job | None, upto_ms: int, now_ms: int
    ) -> Job | None:
        """Decide the job's own ticks up to a command's append time before the command acts."""
        while job is not None and 0 < job.state.due_ms <= upto_ms:
            entry = index_entries(*split_job_key(job_key), job.state)[0]
            try:
                plain = job.definition is None or job.definition.policy is None
                decide_tick = decide.decide_tick if plain else decide_late_tick
                decision = decide_tick(key, job, now_ms, txn.seq, self._tz, upto_ms)
                job = self._write(txn, key, job_key, job, decision, now_ms)
            except Exception as error:
                raise DueEntryCrashed(entry, repr(error)) from error
        return job

    # --- input records ---------------------------------------------------------------------------

    def apply(self, txn: Transaction, record: Record, now_ms: int) -> None:
        """Decide one input record: a command, a batch of reports, or a grant."""
        if record.value is None:
            raise PoisonRecord("a record without a value")
        if record.topic == self._commands:
            self._apply_command(txn, record, record.value, now_ms)
        elif record.topic == self._reports:
            self._running.reported(txn, record.value, now_ms)
        else:
            try:
                self._leasing.granted(SLOTS_GRANTED.decode(record.value))
            except Undecodable as error:
                raise PoisonRecord(str(error)) from error

    def _apply_command(self, txn: Transaction, record: Record, value: bytes, now_ms: int) -> None:
        """Accept it, refuse it with all its problems, or send it home."""
        try:
            command = read_command(value)
        except Undecodable as error:
            raise PoisonRecord(str(error)) from error
        except BadCommand as bad:
            self._answers.refuse_bad(txn, bad, self._all_problems(bad, record.timestamp_ms))
            return
        key = key_of(command.tenant, command.job)
        home = partition_of(key, self._partitions)
        if home != txn.partition:
            self._forward(txn, record, command, key, home)
            return
        self._last_append_ms = at_ms = max(record.timestamp_ms, self._last_append_ms)
        job_key = key.encode()
        job = self._jobs.get(txn, job_key)
        job = self._settle(txn, key, job_key, job, min(at_ms, now_ms), now_ms)
        self._decide(txn, record, command, key, job_key, job, at_ms, now_ms)

    def _all_problems(self, bad: BadCommand, at_ms: int) -> tuple[Problem, ...]:
        """Also those that only admission sees: whoever asks wants to hear of all at once."""
        if bad.spec is None:
            return bad.problems
        admitted = admit(bad.tenant, bad.job, bad.spec, accepted_ms=at_ms,
                         namespace=self._namespace)  # fmt: skip
        return further(bad.problems, admitted) if isinstance(admitted, tuple) else bad.problems

    def _decide(
        self,
        txn: Transaction,
        record: Record,
        command: AnyCommand,
        key: str,
        job_key: bytes,
        job: Job | None,
        at_ms: int,
        now_ms: int,
    ) -> None:
        wanted, body = b"", b""
        if command.command_id:
            wanted, body = command_ids.id_hash(command.command_id), command_ids.body_hash(command)
            if job is not None and self._repeated(txn, command, job_key, job, wanted, body, at_ms):
                return
        if isinstance(command, CancelExecution):
            self._cancel(txn, command, key, job_key, job, wanted, body, at_ms, now_ms)
            return
        asked = Asked(
            at_ms=at_ms, now_ms=now_ms, txn=txn.seq, tz=self._tz, by=command.by,
            note=command.note, command_id=command.command_id,
            if_match=None if isinstance(command, TriggerJob) else command.if_match,
        )  # fmt: skip
        warnings: tuple[str, ...] = ()
        decision: Decision | Refusal
        match command:
            case PutJob():
                decision, warnings = self._put(command, key, job, asked)
            case PauseJob():
                decision = decide.pause(key, job, asked)
            case ResumeJob():
                decision = decide.resume(key, job, asked)
                if job is not None and (passed := decide.passed_while_paused(job, at_ms)):
                    told = f"{passed} ticks passed while the job was paused; none of them runs"
                    warnings = (told,)
            case DeleteJob():
                decision = decide.delete(key, job, asked)
            case TriggerJob():
                place = f"{topics.COMMANDS}-{record.partition}-{record.offset}"
                run = wanted or command_ids.id_hash(place)
                decision = self._trigger(command, key, job, asked, run)
        if isinstance(decision, Refusal):
            self._answers.refuse(txn, command, decision)
            return
        assert decision.state is not None
        execution_id = decision.fires[0].execution_id if decision.fires else ""
        if command.command_id:
            state = self._remember(txn, job_key, decision.state, wanted, body, at_ms, execution_id)
            if state is None:
                self._answers.refuse(txn, command, TOO_MANY)
                return
            decision = msgspec.structs.replace(decision, state=state)
        state = decision.state
        assert state is not None
        if decision.fires and state.open:
            warnings = (_skipped(state.open[0]),)
        if state is not (job.state if job is not None else None):
            job = self._write(txn, key, job_key, job, decision, now_ms)
            if job.state.open and decision.changed is not None:
                job = self._tell_workers(txn, command, job_key, job, now_ms)
            state = job.state
        self._answers.accept(
            txn, command, life=state.life, version=state.version, sequence=state.sequence,
            execution_id=execution_id, warnings=warnings,
        )  # fmt: skip

    def _remember(
        self,
        txn: Transaction,
        job_key: bytes,
        state: JobState,
        wanted: bytes,
        body: bytes,
        at_ms: int,
        execution_id: str,
    ) -> JobState | None:
        seen = CommandId(
            id=wanted, body=body, at_ms=at_ms, version=state.version, sequence=state.sequence,
            execution_id=execution_id,
        )  # fmt: skip
        return command_ids.remember(txn, self._job_state, job_key, state, seen)

    def _tell_workers(
        self, txn: Transaction, command: AnyCommand, job_key: bytes, job: Job, now_ms: int
    ) -> Job:
        """What a change of the job means for executions that are open."""
        match command:
            case PauseJob():
                return self._running.paused(txn, job_key, job, now_ms)
            case DeleteJob():
                return self._running.deleted(txn, job_key, job, now_ms)
            case _ if job.state.status != "PAUSED":  # resumed, or put after it broke while paused
                return self._running.resumed(txn, job_key, job, now_ms)
            case _:
                return job

    def _repeated(
        self,
        txn: Transaction,
        command: AnyCommand,
        job_key: bytes,
        job: Job,
        wanted: bytes,
        body: bytes,
        at_ms: int,
    ) -> bool:
        """Whether a command with this id took effect within the hour; then it is answered."""
        seen = command_ids.find(txn, job_key, job.state, wanted, at_ms)
        if seen is None:
            return False
        if seen.body == body:
            self._answers.accept(
                txn, command, life=job.state.life, version=seen.version, sequence=seen.sequence,
                execution_id=seen.execution_id, repeated=True,
            )  # fmt: skip
            return True
        problem = Problem("command_id", f"{command.command_id!r} was another command's id",
                          "a new id for a new command")  # fmt: skip
        reused = Refusal("id_reused", "the command id was used with another body", (problem,))
        self._answers.refuse(txn, command, reused)
        return True

    def _put(
        self, command: PutJob, key: str, job: Job | None, asked: Asked
    ) -> tuple[Decision | Refusal, tuple[str, ...]]:
        definition = job.definition if job is not None and job.state.status != "BROKEN" else None
        if definition is not None and definition.digest == digest(command.spec):
            assert job is not None
            # What was accepted once stays so, also when a time that it names has passed.
            same = decide.put(key, job, definition, job.plan, asked)
            return same, schedule_warnings(job.plan)
        admitted = admit(command.tenant, command.job, command.spec, accepted_ms=asked.at_ms,
                         namespace=self._namespace,
                         decided_ms=job.state.cursor_ms if job is not None else 0)  # fmt: skip
        if isinstance(admitted, tuple):
            return Refusal("invalid", "the definition is not valid", admitted), ()
        decision = decide.put(key, job, admitted.definition, admitted.plan, asked)
        return decision, admitted.warnings

    def _trigger(
        self, command: TriggerJob, key: str, job: Job | None, asked: Asked, run: bytes
    ) -> Decision | Refusal:
        scheduled_at_ms: int | None = None
        if command.scheduled_at is not None:
            try:
                scheduled_at_ms = int(parse_instant(command.scheduled_at))
            except Unreadable as error:
                problem = Problem("scheduled_at", f"{error.value!r} {error.message}", error.hint)
                return Refusal("invalid", "the command is not valid", (problem,))
        return decide.trigger(key, job, asked, run, scheduled_at_ms, command.payload)

    def _cancel(
        self,
        txn: Transaction,
        command: CancelExecution,
        key: str,
        job_key: bytes,
        job: Job | None,
        wanted: bytes,
        body: bytes,
        at_ms: int,
        now_ms: int,
    ) -> None:
        execution = executions.find(job.state, command.execution_id) if job is not None else None
        if job is None or execution is None:
            absent = f"job {key} has no open execution {command.execution_id}"
            self._answers.refuse(txn, command, Refusal("not_found", absent))
            return
        if command.command_id and not command_ids.room(txn, job_key, job.state, at_ms):
            self._answers.refuse(txn, command, TOO_MANY)
            return
        execution_id = execution.execution_id
        job = self._running.cancel(txn, job_key, job, execution, now_ms, command.note)
        if command.command_id:
            state = self._remember(txn, job_key, job.state, wanted, body, at_ms, execution_id)
            if state is not None:
                job = self._write_state(txn, job_key, job, state)
        self._answers.accept(
            txn, command, life=job.state.life, version=job.state.version,
            sequence=job.state.sequence, execution_id=execution_id,
        )  # fmt: skip

    def _forward(
        self, txn: Transaction, record: Record, command: AnyCommand, key: str, home: int
    ) -> None:
        """Send a command that arrived in a foreign partition home, under the same id."""
        if command.hops:
            raise PoisonRecord(
                f"{key} belongs to partition {home} of {self._partitions}, and the command was "
                f"forwarded here: is there another partition count about?"
            )
        place = f"{topics.COMMANDS}-{record.partition}-{record.offset}"
        moved = msgspec.structs.replace(command, hops=1, command_id=command.command_id or place)
        value = COMMANDS[type(command).__name__].encode(moved)
        txn.forward(Produced(self._commands, home, key.encode(), value))

    # --- writing ---------------------------------------------------------------------------------

    def _write(
        self,
        txn: Transaction,
        key: str,
        job_key: bytes,
        job: Job | None,
        decision: Decision,
        now_ms: int,
    ) -> Job:
        """Turn a decision into records, store writes and memory; the job as it is then."""
        state, definition = decision.state, decision.definition
        assert state is not None
        if definition is not None:
            encoded = JOB_DEFINITION.encode(definition)
            txn.put_state(self._schedules, job_key, DEFINITION + job_key, encoded)
            after = Job(state, definition, plan_of(definition))
        elif decision.undefined:
            if job is not None and job.definition is not None:
                txn.put_state(self._schedules, job_key, DEFINITION + job_key, None)
            after = Job(state, None, ())
        else:
            assert job is not None
            after = Job(state, job.definition, job.plan)
        if decision.changed is not None:
            changed = decision.changed
            if definition is not None:  # the same bytes again, not encoded twice
                changed = msgspec.structs.replace(changed, definition=JOB_DEFINITION.embed(encoded))
            suffix = f"@{changed.life}.{changed.version}"
            if changed.change != "put":
                suffix += f"#{changed.sequence}"
            txn.append(self._changes, job_key + suffix.encode(), JOB_CHANGED.encode(changed))
        for missed in decision.missed:
            span = f"{key}:{format_instant(missed.first)}#{missed.sequence}"
            txn.append(self._executions, span.encode(), TICKS_MISSED.encode(missed))
        for fire in decision.fires:
            runs = after.definition
            assert runs is not None
            if runs.topic is not None and not state.open:
                self._firing.write(txn, job_key, runs, state.life, fire, now_ms)
                Step.of(txn).fires += 1
            else:
                state = self._running.claim(txn, job_key, runs, state, fire, now_ms)
        return self._write_state(txn, job_key, job, state, after)

    def _write_state(
        self,
        txn: Transaction,
        job_key: bytes,
        job: Job | None,
        state: JobState,
        after: Job | None = None,
    ) -> Job:
        """The next state of a job with the index entries that follow from it. `after` has the
        definition, where it is not the same as before."""
        step = Step.of(txn)
        txn.put_state(self._job_state, job_key, STATE + job_key, JOB_STATE.encode(state))
        self._index(txn, step, job_key, job.state if job is not None else None, state)
        basis = after if after is not None else job
        assert basis is not None
        written = step.jobs[job_key] = Job(state, basis.definition, basis.plan)
        return written

    def _index(
        self,
        txn: Transaction,
        step: Step,
        job_key: bytes,
        before: JobState | None,
        after: JobState | None,
    ) -> None:
        """Replace the index entries that followed from one state by those of the next."""
        gone, new = index_changes(*split_job_key(job_key), before, after)
        writes = txn.writes
        for entry in gone:
            writes[entry] = None
        for entry in new:
            writes[entry] = b""
            (step.index if entry.startswith(DUE) else step.queued).append(entry)

    def _forget(self, txn: Transaction, job_key: bytes, job: Job, now_ms: int) -> None:
        """The job is no longer remembered, unless something of it is still open: then later."""
        if job.state.open:
            after = msgspec.structs.replace(
                job.state, txn=txn.seq, forget_ms=now_ms + limits.KEEP_FINISHED_ONE_OFF_MS
            )
            self._write_state(txn, job_key, job, after)
            return
        if decide.forget(job) is None:
            return
        if job.definition is not None:
            txn.put_state(self._schedules, job_key, DEFINITION + job_key, None)
        txn.put_state(self._job_state, job_key, STATE + job_key, None)
        if txn.get(IDS + job_key) is not None:
            txn.put_state(self._job_state, job_key + IDS_SUFFIX, IDS + job_key, None)
        step = Step.of(txn)
        self._index(txn, step, job_key, job.state, None)
        step.jobs[job_key] = None


def _skipped(execution: OpenExecution) -> str:
    """Why a trigger does not run, and what to do."""
    state = execution.state if execution.state != "CLOSING" else "not yet stopped"
    return (
        f"skipped (overlap): {execution.execution_id} is {state}, and the job allows one execution "
        "at a time; cancel that one, or wait for its end, and trigger again under a new command id"
    )


LEASES_SHARE: Final = 4
"""Of what a step may decide, this part is kept for what waits for a place."""
DRAW_MAX: Final = 250
"""Due entries decided before a step looks again at how large it has become."""
TOO_MANY = Refusal(
    "too_many_commands", f"{limits.COMMAND_IDS_MAX} commands with ids within an hour"
)
