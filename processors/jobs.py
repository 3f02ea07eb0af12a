"""Decoded jobs of one partition, kept in memory up to a bound that the process shares."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from schemas import limits
from schemas.bindings import JOB_DEFINITION, JOB_STATE
from schemas.state import OpenExecution
from streams.transaction import Transaction

from .core.executions import at
from .core.job import Job
from .core.keys import DEFINITION, STATE
from .core.spec import plan_of

EVICTED_AT_ONCE: Final = 1_024


class Budget:
    """How many decoded jobs a process may hold, over all its partitions."""

    def __init__(self, most: int = limits.JOB_CACHE_MAX) -> None:
        self.most = most
        self.held = 0


class Step:
    """What a step will have changed in memory once it is committed."""

    __slots__ = ("fires", "index", "jobs", "queued")

    def __init__(self) -> None:
        self.jobs: dict[bytes, Job | None] = {}
        self.index: list[bytes] = []
        """New keys of the due index."""
        self.queued: list[bytes] = []
        """New keys of executions that wait for a place."""
        self.fires = 0

    @staticmethod
    def of(txn: Transaction) -> "Step":
        """The step that fills this transaction."""
        step = txn.memory
        if step is None:
            step = txn.memory = Step()
        return step  # type: ignore[no-any-return]


class Jobs:
    """Reads jobs through the step, the memory and the store, in this order."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._held: dict[bytes, Job] = {}

    @property
    def held(self) -> Mapping[bytes, Job]:
        """Jobs in memory, as they are committed."""
        return self._held

    def get(self, txn: Transaction, job_key: bytes) -> Job | None:
        """The job as this step left it, or as it is stored; None: it is not known."""
        step = Step.of(txn)
        if job_key in step.jobs:
            return step.jobs[job_key]
        found = self._held.get(job_key)
        if found is None:
            state = txn.get(STATE + job_key)
            if state is None:
                return None
            found = decode(state, txn.get(DEFINITION + job_key))
            self._hold(job_key, found)
        return found

    def load(self, txn: Transaction, job_keys: Iterable[bytes]) -> None:
        """Read those that are not in memory, all at once."""
        step, held = Step.of(txn), self._held
        absent = [key for key in job_keys if key not in held and key not in step.jobs]
        if not absent:
            return
        wanted = [STATE + key for key in absent] + [DEFINITION + key for key in absent]
        values = txn.store.get_many(wanted)
        for n, key in enumerate(absent):
            state = values[n]
            if state is not None:
                self._hold(key, decode(state, values[len(absent) + n]))

    def committed(self, step: Step, now_ms: int) -> None:
        """Let memory follow what is committed: jobs that will soon be asked for are kept."""
        held, soon_ms = self._held, now_ms + limits.JOB_CACHE_AHEAD_MS
        for key, job in step.jobs.items():
            if job is not None and (0 < job.state.due_ms <= soon_ms or job.state.open):
                if key in held:
                    held[key] = job
                else:
                    self._hold(key, job)
            elif held.pop(key, None) is not None:  # gone, or at rest for a while
                self._budget.held -= 1

    def clear(self) -> None:
        """Forget everything; the store knows."""
        self._budget.held -= len(self._held)
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)

    def _hold(self, job_key: bytes, job: Job) -> None:
        held, budget = self._held, self._budget
        if job_key not in held:
            if budget.held >= budget.most:
                # Many at once: to find the first key of a dict is to pass over all those deleted.
                oldest = list(islice(held, EVICTED_AT_ONCE))
                for key in oldest:
                    del held[key]
                budget.held -= len(oldest)
            budget.held += 1
        held[job_key] = job


def decode(state: bytes, definition: bytes | None) -> Job:
    """A job from its stored records."""
    found = JOB_DEFINITION.decode(definition) if definition is not None else None
    return Job(JOB_STATE.decode(state), found, plan_of(found) if found is not None else ())


def stored_execution(state: bytes | None, ordinal: int) -> OpenExecution | None:
    """An open execution out of a stored state record."""
    return at(JOB_STATE.decode(state), ordinal) if state is not None else None
