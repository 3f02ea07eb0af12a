"""The scheduler: binds the decisions of the core to topics and the state store.

One instance decides for one partition. Decoded jobs are kept in memory up to a bound shared by the
process; what a step changes is taken over only when its transaction is committed.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from schemas import limits
from schemas.bindings import (
    ACCEPTED,
    COMMANDS,
    JOB_CHANGED,
    JOB_DEFINITION,
    JOB_STATE,
    REFUSED,
    TICKS_MISSED,
)
from schemas.codec import Undecodable
from schemas.commands import AnyCommand, DeleteJob, PauseJob, PutJob, ResumeJob, TriggerJob
from schemas.partition import job_key as key_of
from schemas.partition import partition_of
from schemas.replies import Accepted, Problem, Refused
from schemas.state import CommandId, JobDefinition, JobState
from schemas.units import Unreadable, format_instant, parse_instant
from streams.binding import DueEntryCrashed
from streams.errors import PoisonRecord
from streams.layout import topic_name
from streams.ports import Produced, Record, Store
from streams.transaction import Transaction

from . import command_ids
from .core import job as decide
from .core.admission import BadCommand, read_command
from .core.job import Asked, Decision, Job, Refusal, due_entries
from .core.keys import (
    DEFINITION,
    IDS,
    IDS_SUFFIX,
    KIND_AT,
    STATE,
    Kind,
    due_ms_of,
    owner_of,
    split_job_key,
)
from .core.spec import admit, plan_of
from .core.wheel import Wheel
from .firing import Firing
from .targets import TopicTargets
from .topology import (
    COMMANDS as COMMANDS_TOPIC,
)
from .topology import (
    DEAD_LETTERS,
    EXECUTIONS,
    REPLIES,
    REPLY_PARTITIONS,
    SCHEDULE_CHANGES,
    SCHEDULES,
)
from .topology import (
    JOB_STATE as JOB_STATE_TOPIC,
)

Alarm = Callable[..., None]


class Budget:
    """How many decoded jobs a process may hold, over all its partitions."""

    def __init__(self, most: int = limits.JOB_CACHE_MAX) -> None:
        self.most = most
        self.held = 0


class _Step:
    """What a step will have changed in memory once it is committed."""

    __slots__ = ("due", "fires", "jobs")

    def __init__(self) -> None:
        self.jobs: dict[bytes, Job | None] = {}
        self.due: list[bytes] = []
        self.fires = 0


class Scheduler:
    """Decides commands and due entries of one partition (`streams.binding.Logic`)."""

    def __init__(
        self,
        *,
        namespace: str,
        partitions: int,
        cluster: str,
        tz: str,
        targets: TopicTargets,
        budget: Budget,
        alarm: Alarm,
    ) -> None:
        self._namespace = namespace
        self._partitions = partitions
        self._tz = tz
        self._targets = targets
        self._budget = budget
        self._alarm = alarm
        self._topics = {
            suffix: topic_name(namespace, suffix)
            for suffix in (COMMANDS_TOPIC, SCHEDULES, JOB_STATE_TOPIC, SCHEDULE_CHANGES,
                           EXECUTIONS, DEAD_LETTERS, REPLIES)
        }  # fmt: skip
        self._job_state = self._topics[JOB_STATE_TOPIC]
        self._firing = Firing(
            executions=self._topics[EXECUTIONS], dead_letters=self._topics[DEAD_LETTERS],
            source=f"/horolog/{cluster}".encode(), tz=tz, targets=targets,
        )  # fmt: skip
        self._jobs: dict[bytes, Job] = {}
        self._store: Store | None = None
        self._wheel: Wheel | None = None
        self._last_append_ms = 0
        self.fired = 0

    # --- what the task calls ---------------------------------------------------------------------

    def resume(self, store: Store, *, epoch: int, now_ms: int) -> None:
        """Forget what was remembered and load the wheel from the index."""
        del epoch
        self._forget_jobs()
        self._store = store
        self._wheel = Wheel(
            store.scan, seconds=limits.WHEEL_SECONDS,
            share=limits.WHEEL_KEYS_PER_TENANT_SECOND_MAX, keys_max=limits.WHEEL_KEYS_MAX,
        )  # fmt: skip
        self._wheel.load(now_ms)

    def deadline_ms(self) -> int | None:
        """When the wheel wants attention."""
        return self._wheel.deadline_ms() if self._wheel is not None else None

    def committed(self, txn: Transaction) -> None:
        """Let cache and wheel follow."""
        step = txn.memory
        if step is None:
            return
        for key, job in step.jobs.items():
            if job is None:
                if self._jobs.pop(key, None) is not None:
                    self._budget.held -= 1
            else:
                self._hold(key, job)
        assert self._wheel is not None
        add = self._wheel.add
        for due in step.due:
            add(due)
        self.fired += step.fires

    def suspend(self, topic: str, reason: str, now_ms: int) -> None:
        """Decide without this topic for a while."""
        self._targets.suspend(topic, reason, now_ms)

    def refuse(self, tag: str, reason: str) -> None:
        """This execution's record was refused: it fails."""
        self._targets.refuse(tag, reason)

    def figures(self) -> Mapping[str, int]:
        """Sizes of what is held in memory."""
        held = self._wheel.size() if self._wheel is not None else 0
        return {"wheel_keys": held, "cached_jobs": len(self._jobs), "fired": self.fired}

    # --- due entries -----------------------------------------------------------------------------

    def due(self, txn: Transaction, now_ms: int, limit: int) -> int:
        """Decide what is due, fairly over tenants, at most `limit` entries."""
        assert self._wheel is not None
        self._wheel.load(now_ms)
        entries = self._wheel.draw(now_ms, limit)
        if not entries:
            return 0
        self._targets.begin_step()
        owners = [owner_of(entry) for entry in entries]
        self._load(txn, owners)
        for entry, job_key in zip(entries, owners, strict=True):
            try:
                self._decide_due(txn, entry, job_key, now_ms)
            except Exception as error:
                raise DueEntryCrashed(entry, repr(error)) from error
        return len(entries)

    def _decide_due(self, txn: Transaction, entry: bytes, job_key: bytes, now_ms: int) -> None:
        """An entry that the state no longer asks for is nobody's: the wheel is only a cache."""
        job = self._job(txn, job_key)
        if job is None:
            return
        state = job.state
        if entry[KIND_AT] == Kind.TICK:
            if not state.due_ms or state.due_ms != due_ms_of(entry):
                return
            key = job_key.decode()
            decision = decide.decide_tick(key, job, now_ms, txn.seq, self._tz)
            if decision.missed or job.definition is None:
                self._write(txn, key, job_key, job, decision, now_ms)
            else:
                self._write_fire(txn, entry, job_key, job, job.definition, decision, now_ms)
        elif state.forget_ms and state.forget_ms == due_ms_of(entry):
            decision_or_none = decide.forget(job)
            if decision_or_none is not None:
                self._forget(txn, job_key, job)

    def _write_fire(
        self,
        txn: Transaction,
        entry: bytes,
        job_key: bytes,
        job: Job,
        definition: JobDefinition,
        decision: Decision,
        now_ms: int,
    ) -> None:
        """What `_write` would do for a tick that simply runs, without asking what else there is."""
        state, step, writes = decision.state, self._step(txn), txn.writes
        assert state is not None
        value = JOB_STATE.encode(state)
        txn.records.append(Produced(self._job_state, txn.partition, job_key, value))
        writes[STATE + job_key] = value
        writes[entry] = None
        for due in due_entries(*split_job_key(job_key), state):
            writes[due] = b""
            step.due.append(due)
        step.jobs[job_key] = Job(state, definition, job.plan)
        for fire in decision.fires:
            self._firing.write(txn, job_key, definition, state.life, fire, now_ms)
            step.fires += 1

    def break_entry(self, txn: Transaction, crash: DueEntryCrashed, now_ms: int) -> None:
        """Deciding for this job raised: the job becomes BROKEN, others go on."""
        job_key = owner_of(crash.entry)
        job = self._job(txn, job_key)
        if job is None:
            return
        key = job_key.decode()
        self._write(txn, key, job_key, job,
                    decide.break_job(key, job, now_ms, txn.seq, crash.reason), now_ms)  # fmt: skip

    def _settle(
        self, txn: Transaction, key: str, job_key: bytes, job: Job | None, upto_ms: int, now_ms: int
    ) -> Job | None:
        """Decide the job's own ticks up to a command's append time before the command acts."""
        while job is not None and 0 < job.state.due_ms <= upto_ms:
            try:
                decision = decide.decide_tick(key, job, now_ms, txn.seq, self._tz)
                job = self._write(txn, key, job_key, job, decision, now_ms)
            except Exception as error:
                raise DueEntryCrashed(self._entry(job_key, job), repr(error)) from error
        return job

    @staticmethod
    def _entry(job_key: bytes, job: Job | None) -> bytes:
        assert job is not None
        return due_entries(*split_job_key(job_key), job.state)[0]

    # --- commands --------------------------------------------------------------------------------

    def apply(self, txn: Transaction, record: Record, now_ms: int) -> None:
        """Decide one command: accept it, refuse it with all its problems, or forward it."""
        if record.value is None:
            raise PoisonRecord("a command without a value")
        try:
            command = read_command(record.value)
        except Undecodable as error:
            raise PoisonRecord(str(error)) from error
        except BadCommand as bad:
            self._refuse(txn, bad.reply_to, bad.command_id, bad.tenant, bad.job,
                         Refusal("invalid", bad.message, bad.problems))  # fmt: skip
            return
        key = key_of(command.tenant, command.job)
        home = partition_of(key, self._partitions)
        if home != txn.partition:
            self._forward(txn, record, command, key, home)
            return
        self._last_append_ms = at_ms = max(record.timestamp_ms, self._last_append_ms)
        job_key = key.encode()
        job = self._job(txn, job_key)
        job = self._settle(txn, key, job_key, job, min(at_ms, now_ms), now_ms)
        self._decide(txn, record, command, key, job_key, job, at_ms, now_ms)

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
        else:
            place = f"{COMMANDS_TOPIC}-{record.partition}-{record.offset}"
            wanted = command_ids.id_hash(place)
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
            case DeleteJob():
                decision = decide.delete(key, job, asked)
            case TriggerJob():
                decision = self._trigger(command, key, job, asked, wanted)
        if isinstance(decision, Refusal):
            self._refuse(txn, command.reply_to, command.command_id, command.tenant, command.job,
                         decision)  # fmt: skip
            return
        assert decision.state is not None
        execution_id = decision.fires[0].execution_id if decision.fires else ""
        if command.command_id:
            seen = CommandId(
                id=wanted, body=body, at_ms=at_ms, version=decision.state.version,
                sequence=decision.state.sequence, execution_id=execution_id,
            )  # fmt: skip
            topic = self._topics[JOB_STATE_TOPIC]
            state = command_ids.remember(txn, topic, job_key, decision.state, seen)
            if state is None:
                most = limits.COMMAND_IDS_MAX
                many = Refusal("too_many_commands", f"{most} commands with ids within an hour")
                self._refuse(txn, command.reply_to, command.command_id, command.tenant,
                             command.job, many)  # fmt: skip
                return
            decision = msgspec.structs.replace(decision, state=state)
        assert decision.state is not None
        if decision.state is not (job.state if job is not None else None):
            self._write(txn, key, job_key, job, decision, now_ms)
        self._accept(txn, command, decision.state.life, decision.state.version,
                     decision.state.sequence, execution_id, warnings=warnings)  # fmt: skip

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
            self._accept(txn, command, job.state.life, seen.version, seen.sequence,
                         seen.execution_id, repeated=True)  # fmt: skip
            return True
        problem = Problem("command_id", f"{command.command_id!r} was another command's id",
                          "a new id for a new command")  # fmt: skip
        self._refuse(txn, command.reply_to, command.command_id, command.tenant, command.job,
                     Refusal("id_reused", "the command id was used with another body",
                             (problem,)))  # fmt: skip
        return True

    def _put(
        self, command: PutJob, key: str, job: Job | None, asked: Asked
    ) -> tuple[Decision | Refusal, tuple[str, ...]]:
        admitted = admit(command.tenant, command.job, command.spec, accepted_ms=asked.at_ms,
                         namespace=self._namespace)  # fmt: skip
        if isinstance(admitted, tuple):
            refusal = Refusal("invalid", "the definition is not valid", admitted)
            return refusal, ()
        decision = decide.put(key, job, admitted.definition, admitted.plan, asked)
        return decision, admitted.warnings

    def _trigger(
        self, command: TriggerJob, key: str, job: Job | None, asked: Asked, wanted: bytes
    ) -> Decision | Refusal:
        scheduled_at_ms: int | None = None
        if command.scheduled_at is not None:
            try:
                scheduled_at_ms = int(parse_instant(command.scheduled_at))
            except Unreadable as error:
                problem = Problem("scheduled_at", f"{error.value!r} {error.message}", error.hint)
                return Refusal("invalid", "the command is not valid", (problem,))
        return decide.trigger(key, job, asked, wanted, scheduled_at_ms, command.payload)

    def _forward(
        self, txn: Transaction, record: Record, command: AnyCommand, key: str, home: int
    ) -> None:
        """Send a command that arrived in a foreign partition home, under the same id."""
        if command.hops:
            raise PoisonRecord(
                f"{key} belongs to partition {home} of {self._partitions}, and the command was "
                f"forwarded here: is there another partition count about?"
            )
        place = f"{COMMANDS_TOPIC}-{record.partition}-{record.offset}"
        moved = msgspec.structs.replace(
            command, hops=1, command_id=command.command_id or place
        )
        value = COMMANDS[type(command).__name__].encode(moved)
        txn.forward(Produced(self._topics[COMMANDS_TOPIC], home, key.encode(), value))

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
        topics, step = self._topics, self._step(txn)
        if definition is not None:
            encoded = JOB_DEFINITION.encode(definition)
            txn.put_state(topics[SCHEDULES], job_key, DEFINITION + job_key, encoded)
            after = Job(state, definition, plan_of(definition))
        elif decision.undefined:
            if job is not None and job.definition is not None:
                txn.put_state(topics[SCHEDULES], job_key, DEFINITION + job_key, None)
            after = Job(state, None, ())
        else:
            assert job is not None
            after = Job(state, job.definition, job.plan)
        txn.put_state(topics[JOB_STATE_TOPIC], job_key, STATE + job_key, JOB_STATE.encode(state))
        self._index(txn, step, job_key, job.state if job is not None else None, state)
        step.jobs[job_key] = after
        if decision.changed is not None:
            changed = decision.changed
            if definition is not None:  # the same bytes again, not encoded twice
                changed = msgspec.structs.replace(changed, definition=JOB_DEFINITION.embed(encoded))
            suffix = f"@{changed.life}.{changed.version}"
            if changed.change != "put":
                suffix += f"#{changed.sequence}"
            txn.append(topics[SCHEDULE_CHANGES], job_key + suffix.encode(),
                       JOB_CHANGED.encode(changed))  # fmt: skip
        for missed in decision.missed:
            span = f"{key}:{format_instant(missed.first)}#{missed.sequence}"
            txn.append(topics[EXECUTIONS], span.encode(), TICKS_MISSED.encode(missed))
        for fire in decision.fires:
            assert after.definition is not None
            self._firing.write(txn, job_key, after.definition, state.life, fire, now_ms)
            step.fires += 1
        return after

    def _index(
        self,
        txn: Transaction,
        step: _Step,
        job_key: bytes,
        before: JobState | None,
        after: JobState | None,
    ) -> None:
        """Replace the index entries that followed from one state by those of the next."""
        tenant, job = split_job_key(job_key)
        old = due_entries(tenant, job, before) if before is not None else []
        new = due_entries(tenant, job, after) if after is not None else []
        if old == new:
            return
        for entry in old:
            txn.put_index(entry, None)
        for entry in new:
            txn.put_index(entry, b"")
            step.due.append(entry)

    def _forget(self, txn: Transaction, job_key: bytes, job: Job) -> None:
        """The job is no longer remembered. Its changes stay in the log until they are collected."""
        topics, step = self._topics, self._step(txn)
        if job.definition is not None:
            txn.put_state(topics[SCHEDULES], job_key, DEFINITION + job_key, None)
        txn.put_state(topics[JOB_STATE_TOPIC], job_key, STATE + job_key, None)
        if txn.get(IDS + job_key) is not None:
            txn.put_state(topics[JOB_STATE_TOPIC], job_key + IDS_SUFFIX, IDS + job_key, None)
        self._index(txn, step, job_key, job.state, None)
        step.jobs[job_key] = None

    # --- answering -------------------------------------------------------------------------------

    def _accept(
        self,
        txn: Transaction,
        command: AnyCommand,
        life: int,
        version: int,
        sequence: int,
        execution_id: str,
        *,
        repeated: bool = False,
        warnings: tuple[str, ...] = (),
    ) -> None:
        if not command.reply_to:
            return
        accepted = Accepted(
            command_id=command.command_id, tenant=command.tenant, job=command.job, life=life,
            version=version, sequence=sequence, execution_id=execution_id, repeated=repeated,
            warnings=warnings,
        )  # fmt: skip
        self._reply(txn, command.reply_to, ACCEPTED.encode(accepted))

    def _refuse(
        self,
        txn: Transaction,
        reply_to: str,
        command_id: str,
        tenant: str,
        job: str,
        refusal: Refusal,
    ) -> None:
        if not reply_to:
            return
        refused = Refused(
            command_id=command_id, tenant=tenant, job=job, kind=refusal.kind,
            message=refusal.message, problems=refusal.problems,
        )  # fmt: skip
        self._reply(txn, reply_to, REFUSED.encode(refused))

    def _reply(self, txn: Transaction, reply_to: str, value: bytes) -> None:
        partition = partition_of(reply_to, REPLY_PARTITIONS)
        txn.send(Produced(self._topics[REPLIES], partition, reply_to.encode(), value))

    # --- memory ----------------------------------------------------------------------------------

    @staticmethod
    def _step(txn: Transaction) -> _Step:
        step = txn.memory
        if step is None:
            step = txn.memory = _Step()
        return step  # type: ignore[no-any-return]

    def _job(self, txn: Transaction, job_key: bytes) -> Job | None:
        """The job as this step left it, or as it is stored."""
        step = self._step(txn)
        if job_key in step.jobs:
            return step.jobs[job_key]
        found = self._jobs.get(job_key)
        if found is None:
            state = txn.get(STATE + job_key)
            if state is None:
                return None
            found = self._decode(state, txn.get(DEFINITION + job_key))
            if found is not None:
                self._hold(job_key, found)
        return found

    def _load(self, txn: Transaction, job_keys: Iterable[bytes]) -> None:
        """Read the jobs that are not in memory, all at once."""
        step, jobs = self._step(txn), self._jobs
        absent = [key for key in job_keys if key not in jobs and key not in step.jobs]
        if not absent:
            return
        wanted = [STATE + key for key in absent] + [DEFINITION + key for key in absent]
        values = txn.store.get_many(wanted)
        count = len(absent)
        for n, key in enumerate(absent):
            job = self._decode(values[n], values[count + n])
            if job is not None:
                self._hold(key, job)

    @staticmethod
    def _decode(state: bytes | None, definition: bytes | None) -> Job | None:
        if state is None:
            return None
        found = JOB_DEFINITION.decode(definition) if definition is not None else None
        return Job(JOB_STATE.decode(state), found, plan_of(found) if found is not None else ())

    def _hold(self, job_key: bytes, job: Job) -> None:
        jobs, budget = self._jobs, self._budget
        if job_key not in jobs:
            if budget.held >= budget.most and jobs:
                del jobs[next(iter(jobs))]
            else:
                budget.held += 1
        jobs[job_key] = job

    def _forget_jobs(self) -> None:
        self._budget.held -= len(self._jobs)
        self._jobs.clear()

