"""One worker at work: an event loop around `Hands`, from the first offer to the last report."""

import asyncio
import contextlib
import gc
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import msgspec

from schemas import limits
from schemas.bindings import WORKER_OFFER
from schemas.leases import WorkItem
from schemas.partition import partition_of
from streams.layout import topic_name
from streams.ports import Clock, Log

from .brokerclock import BrokerClock
from .hands import Hands
from .inbox import Inbox
from .lease import times_of
from .offering import Offering
from .outgoing import Outgoing
from .ports import Acknowledged, Alarm, Executor, Moment, ReportLog, Runs
from .topics import (
    REPORTS,
    SLOT_REQUESTS,
    inbox_partition,
    inbox_topic,
    pool_limit,
)

CLOCK_JUMP_MS: Final = 1_000
SAMPLE_EVERY_MS: Final = 2 * limits.OFFER_EVERY_MS
FIRST_SAMPLE_S: Final = 30.0
DRAIN_LOOK_S: Final = 0.02


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker is: its pool and name, how much it does at once, how it ends."""

    namespace: str
    worker: str
    """Name and random start: no two processes ever have the same."""
    pool: str = "default"
    places: int = limits.PLACES_DEFAULT
    lease_ms: int = limits.LEASE_MS
    drain_ms: int = limits.WORKER_DRAIN_MS
    cancel_grace_ms: int = limits.CANCEL_GRACE_MS


class RunningExecutor(Executor, Protocol):
    """An executor that is told whom to tell, and is closed at the end."""

    def listen(self, runs: Runs, settle: Callable[[], None]) -> None:
        """Tell `runs` what becomes of them; `settle` follows each handful of news."""

    def close(self) -> Awaitable[None]:
        """End what runs, and give up what is held."""


class LogSilent(Exception):
    """The log acknowledged nothing at the start. Look at Kafka, then start again."""


class Worker:
    """Takes work from its inbox and reports what became of it, until it is told to drain."""

    def __init__(
        self, settings: WorkerSettings, *, handlers: tuple[str, ...], log: Log, partitions: int,
        report_log: Callable[[Callable[[Acknowledged], None]], ReportLog],
        executor: RunningExecutor, clock: Clock, alarm: Alarm,
    ) -> None:  # fmt: skip
        """`partitions` is the number of partitions of the topic `slot-requests`."""
        self._settings = settings
        self._clock = clock
        self._alarm = alarm
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._times = times_of(settings.lease_ms)
        self._broker_clock = BrokerClock()
        limit = pool_limit(settings.pool)
        self._requests = (
            topic_name(settings.namespace, SLOT_REQUESTS), partition_of(limit, partitions),
            limit.encode(),
        )  # fmt: skip
        self._report_log = report_log(self._on_acknowledged)
        self._outgoing = Outgoing(
            self._report_log, worker=settings.worker,
            topic=topic_name(settings.namespace, REPORTS), times=self._times,
            on_sample=self._on_sample,
        )  # fmt: skip
        inbox = inbox_partition(settings.worker)
        self._offering = Offering(
            pool=settings.pool, worker=settings.worker, inbox_partition=inbox, handlers=handlers,
            places=settings.places, lease_ms=settings.lease_ms, every_ms=self._times.offer_ms,
        )  # fmt: skip
        self.hands = Hands(
            handlers=handlers, times=self._times, offering=self._offering,
            outgoing=self._outgoing, executor=executor, clock=self._broker_clock,
            places=settings.places, alarm=alarm, cancel_grace_ms=settings.cancel_grace_ms,
        )  # fmt: skip
        self._inbox = Inbox(
            log, (inbox_topic(settings.namespace, settings.pool), inbox), worker=settings.worker,
            on_items=self._on_items, alarm=alarm,
        )  # fmt: skip
        self._news: deque[list[WorkItem] | Acknowledged] = deque()
        self._flush_planned = False
        self._due_planned: tuple[int, asyncio.TimerHandle] | None = None
        self._draining = asyncio.Event()
        self._hurry = False
        self._broken: BaseException | None = None
        executor.listen(self.hands, self._settle)

    def now(self) -> Moment:
        """This moment on the clocks a worker goes by."""
        return Moment(self._clock.wall_ms(), self._clock.boottime_ms())

    @property
    def offers(self) -> bool:
        """Whether it has come as far as to offer itself: it knows the broker's clock."""
        return self._broker_clock.known

    @property
    def draining(self) -> bool:
        """Whether it takes nothing new any more."""
        return self._draining.is_set()

    def drain(self) -> None:
        """Take nothing new, finish, end. Called again: do not wait for what runs."""
        self._hurry = self._draining.is_set()
        self._draining.set()

    async def run(self) -> None:
        """Work until `drain` was called and everything is finished or handed back.

        Raises `LogSilent`, `streams.errors.Unavailable` when it cannot even begin.
        """
        _tune()
        self._loop.set_exception_handler(self._on_exception)
        ticking: asyncio.Task[None] | None = None
        try:
            await asyncio.to_thread(self._inbox.open)
            await self._learn_clock()
            self._inbox.start()
            ticking = self._loop.create_task(self._tick())
            ticking.add_done_callback(self._on_tick_end)
            await self._draining.wait()
            if self._broken is None:
                await self._drain()
            if self._broken is not None:
                raise self._broken
        finally:
            if ticking is not None:
                ticking.cancel()
            self._inbox.close()
            await self._executor.close()
            self._report_log.close()

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error of ours: what is known about the leases may be wrong, so the process ends. The
        leases run out and are delivered again."""
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
            return
        self._broken = error
        self._draining.set()

    def _on_tick_end(self, ticking: asyncio.Task[None]) -> None:
        if not ticking.cancelled() and (error := ticking.exception()) is not None:
            self._on_exception(self._loop, {"exception": error})

    # --- beginning -------------------------------------------------------------------------------

    async def _learn_clock(self) -> None:
        """Without the broker's clock no lease can be judged, so nothing is offered before."""
        until_s = self._loop.time() + FIRST_SAMPLE_S
        asked_s = 0.0
        while not self._broker_clock.known:
            if self._loop.time() - asked_s > 1.0:
                asked_s = self._loop.time()
                self._outgoing.probe(self.now().local_ms)
            if self._loop.time() > until_s:
                raise LogSilent(f"Kafka acknowledged no record within {FIRST_SAMPLE_S:.0f} s")
            await asyncio.sleep(0.005)

    # --- what comes from other threads -----------------------------------------------------------

    def _on_items(self, items: list[WorkItem]) -> None:
        self._news.append(items)
        self._loop.call_soon_threadsafe(self._follow_news)

    def _on_acknowledged(self, ack: Acknowledged) -> None:
        # The loop is woken once for a burst of them.
        self._news.append(ack)
        if len(self._news) == 1:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._follow_news)

    def _follow_news(self) -> None:
        now = self.now()
        news = self._news
        while news:
            one = news.popleft()
            if isinstance(one, Acknowledged):
                self._outgoing.acknowledged(one)
            else:
                self.hands.take(one, now)
        self._settle()

    def _on_sample(self, sent_ms: int, heard_ms: int, broker_ms: int) -> None:
        jumped_ms = self._broker_clock.sample(sent_ms, heard_ms, broker_ms)
        if abs(jumped_ms) >= CLOCK_JUMP_MS:
            self._alarm("broker_clock_jumped", by_ms=jumped_ms)

    # --- after each handful of news --------------------------------------------------------------

    def _settle(self) -> None:
        """Start what can be started, say what there is to say, plan what comes next."""
        now = self.now()
        self.hands.advance(now)
        self._executor.flush()
        self._say(now)
        self._plan_due(now)
        if self._offering.due_ms() <= now.local_ms:
            self._offer(now)

    def _say(self, now: Moment) -> None:
        if not self._outgoing.waiting or self._flush_planned:
            return
        wait_ms = self._outgoing.flushed_ms + limits.REPORT_EVERY_MS - now.local_ms
        if wait_ms <= 0:
            self._outgoing.flush(now.local_ms)
            return
        self._flush_planned = True
        self._loop.call_later(wait_ms / 1_000, self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        self._outgoing.flush(self.now().local_ms)

    def _plan_due(self, now: Moment) -> None:
        """Be there when the next held item comes to its time, and not before."""
        due_ms = self.hands.next_due_wall_ms()
        planned = self._due_planned
        if due_ms is None or (planned is not None and planned[0] <= due_ms):
            return
        if planned is not None:
            planned[1].cancel()
        wait_s = max(0.0, (due_ms - now.wall_ms) / 1_000)
        self._due_planned = (due_ms, self._loop.call_later(wait_s, self._due))

    def _due(self) -> None:
        self._due_planned = None
        self._settle()

    def _offer(self, now: Moment) -> None:
        topic, partition, key = self._requests
        value = WORKER_OFFER.encode(self._offering.offer(now.local_ms))
        self._outgoing.send(topic, partition, key, value, now.local_ms)

    async def _tick(self) -> None:
        """Sweep the leases and offer, again and again."""
        while True:
            now = self.now()
            self.hands.sweep(now)
            if self._outgoing.sampled_ms + SAMPLE_EVERY_MS < now.local_ms:
                self._outgoing.probe(now.local_ms)
                self._outgoing.sampled_ms = now.local_ms
            self._settle()
            await asyncio.sleep(self._times.sweep_ms / 1_000)

    # --- the end ---------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Finish what runs within its time, then cancel it, then hand back what is left."""
        self._offering.drain()
        self.hands.drain(self.now())
        self._settle()
        self._offer(self.now())
        await self._until_idle(self._settings.drain_ms, hurry=True)
        self.hands.cancel_runs(self.now())
        self._settle()
        await self._until_idle(self._settings.cancel_grace_ms, hurry=False)
        if self.hands.open:
            # What does not stop is ended, so that nothing runs under a lease that is handed back.
            await self._executor.close()
            self.hands.hand_back(self.now())
        self._outgoing.flush(self.now().local_ms)
        self._offer(self.now())
        until_s = self._loop.time() + limits.WORKER_FLUSH_MS / 1_000
        while not self._outgoing.settled and self._loop.time() < until_s:
            await asyncio.sleep(0.005)
            if self._outgoing.waiting:
                self._outgoing.flush(self.now().local_ms)

    async def _until_idle(self, wait_ms: int, *, hurry: bool) -> None:
        until_s = self._loop.time() + wait_ms / 1_000
        while self.hands.open and self._loop.time() < until_s:
            if hurry and self._hurry:
                return
            await asyncio.sleep(DRAIN_LOOK_S)


def _tune() -> None:
    """Young objects are mostly leases on their way; looking for cycles among them at the default
    pace costs a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
