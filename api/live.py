"""What a gateway knows: jobs and recent executions, followed on a thread, folded on the event loop.

Everything here runs on the loop but the reading itself, so nothing needs a lock.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from projections.executions import EXECUTIONS
from projections.following import Following
from projections.jobs import JOB_STATE_TOPIC, SCHEDULES
from projections.live_jobs import LiveJobs, Seen
from projections.recent import RecentExecutions
from schemas import limits
from streams.ports import Log, Record

from .lateness import Lateness

Alarm = Callable[..., None]
Key = tuple[str, str]
"""Tenant and job."""

SAID_EVERY_S: Final = 30.0


class Live:
    """Jobs and executions as the log tells them, seconds behind it at most while `current`."""

    def __init__(self, log: Log, namespace: str, partitions: int, alarm: Alarm) -> None:
        self._alarm = alarm
        self._skip = len(namespace) + 1
        self._loop = asyncio.get_running_loop()
        self.jobs, self.executions = _nothing()
        self._next: tuple[LiveJobs, RecentExecutions] = (self.jobs, self.executions)
        self.ready = False
        """Whether everything that was there at the start has been read."""
        self.trouble = ""
        """Why the log is not being read at the moment."""
        self.records = 0
        self.lateness = Lateness()
        self._changes: dict[str, int] = {}
        self._waiting: dict[Key, set[asyncio.Future[None]]] = {}
        self._watching: set[asyncio.Event] = set()
        self._said_s = -SAID_EVERY_S
        self._following = Following(
            log, namespace, "horolog-gateway",
            {SCHEDULES: None, JOB_STATE_TOPIC: None, EXECUTIONS: limits.VIEW_TAIL_RECORDS},
            partitions,
            begin=lambda: self._post(self._begin),
            deal=lambda records, done: self._post(lambda: self._deal(records, done)),
            caught_up=lambda: self._post(self._caught_up),
            failed=lambda why: self._post(lambda: self._failed(why)),
        )  # fmt: skip

    def start(self) -> None:
        """Begin to follow the log."""
        self._following.start()

    async def close(self) -> None:
        """End it."""
        await asyncio.to_thread(self._following.close)

    def changed(self, tenant: str) -> int:
        """Grows with everything that happens to the tenant's jobs and executions."""
        return self._changes.get(tenant, 0)

    async def job_seen(self, tenant: str, job: str, wanted: Seen, wait_s: float) -> bool:
        """Wait until the job is known up to there; False when the time is over."""
        return await self._until(
            (tenant, job), lambda: self.jobs.seen(tenant, job) >= wanted, wait_s
        )

    async def executions_seen(self, tenant: str, job: str, wanted: Seen, wait_s: float) -> bool:
        """Wait until the job's executions are known up to there; False when the time is over."""
        return await self._until(
            (tenant, job), lambda: self.executions.seen(tenant, job) >= wanted, wait_s
        )

    async def any_change(self, event: asyncio.Event, wait_s: float) -> None:
        """Wait until anything happened since the event was cleared, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await event.wait()

    def watch(self) -> asyncio.Event:
        """An event that is set whenever anything happens; give it back to `unwatch`."""
        event = asyncio.Event()
        self._watching.add(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        """It is not watched any more."""
        self._watching.discard(event)

    def wake(self) -> None:
        """Let everybody who watches look, whatever for."""
        for event in self._watching:
            event.set()

    @property
    def watchers(self) -> int:
        """How many watch."""
        return len(self._watching)

    @property
    def waiting(self) -> int:
        """Reads that wait for something to be seen."""
        return sum(len(waiting) for waiting in self._waiting.values())

    async def _until(self, key: Key, is_so: Callable[[], bool], wait_s: float) -> bool:
        until_s = self._loop.time() + wait_s
        while not is_so():
            left_s = until_s - self._loop.time()
            if left_s <= 0:
                return False
            changed: asyncio.Future[None] = self._loop.create_future()
            self._waiting.setdefault(key, set()).add(changed)
            await asyncio.wait((changed,), timeout=left_s)
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.discard(changed)
                if not waiting:
                    del self._waiting[key]
        return True

    # --- what the thread hands over --------------------------------------------------------------

    def _post(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(work)

    def _begin(self) -> None:
        # What is known stays until as much is known again.
        self._next = _nothing()
        if not self.ready:
            self.jobs, self.executions = self._next

    def _caught_up(self) -> None:
        self.jobs, self.executions = self._next
        self.ready = True
        self.trouble = ""

    def _failed(self, why: str) -> None:
        self.trouble = why
        now_s = self._loop.time()
        if now_s - self._said_s >= SAID_EVERY_S:
            self._said_s = now_s
            self._alarm("log_not_read", reason=why)

    def _deal(self, records: list[Record], done: Callable[[], None]) -> None:
        jobs, executions = self._next
        changed: set[Key] = set()
        for record in records:
            key = record.key
            if key is None:
                continue
            topic = record.topic[self._skip :]
            if topic == EXECUTIONS:
                event = executions.fold(key, record.value)
                if event is not None:
                    if self.ready:
                        self.lateness.take(event)
                    changed.add((event.tenant, event.job))
            elif jobs.fold(topic, key, record.value):
                tenant, _, job = key.decode("utf-8", "replace").partition("/")
                changed.add((tenant, job))
        self.records += len(records)
        self.trouble = ""
        done()
        if changed:
            self._tell(changed)

    def _tell(self, changed: set[Key]) -> None:
        for tenant in {tenant for tenant, _ in changed}:
            self._changes[tenant] = self._changes.get(tenant, 0) + 1
        self.wake()
        for key in changed & self._waiting.keys():
            for waiting in self._waiting[key]:
                if not waiting.done():
                    waiting.set_result(None)


def _nothing() -> tuple[LiveJobs, RecentExecutions]:
    return LiveJobs(bytes_max=limits.VIEW_BYTES_MAX), RecentExecutions(
        executions_max=limits.VIEW_EXECUTIONS_MAX,
        events_max=limits.VIEW_EVENTS_PER_EXECUTION_MAX,
        detail_max=limits.VIEW_DETAIL_CHARS_MAX,
    )
