"""The loop of a process: one thread decides for all its partition tasks.

Everything that comes from other threads (input records, finished commits) arrives in one mailbox.
The loop sleeps until the next deadline or the next message, keeps group membership alive, and
takes over only what the last poll left with us.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Final

from schemas import limits

from .errors import StreamError
from .inputs import InputThread
from .layout import topic_name
from .ports import Clock, Log, Outbox, Ownership, Record
from .task import PartitionTask, Parts, Stage

POLL_EVERY_S: Final = 0.1
"""At least this often the group is polled; it also bounds how late a revocation is seen."""
LOOK_EVERY_S: Final = 1.0
"""How often the watchdog looks."""
SPIN_S: Final = 0.0005

Message = Callable[[], None]
Alarm = Callable[..., None]
MakeParts = Callable[[int, "TaskThread", InputThread, Outbox], Parts]


class TaskThread:
    """A task's own thread; results come back through the loop's mailbox."""

    def __init__(self, name: str, mailbox: "SimpleQueue[Message]") -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._mailbox = mailbox

    def submit(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        """Run `work` there, then `done(result or exception)` on the loop's thread."""

        def post(future: "Future[object]") -> None:
            error = future.exception()
            outcome = error if error is not None else future.result()
            self._mailbox.put(lambda: done(outcome))

        self._pool.submit(work).add_done_callback(post)

    def close(self) -> None:
        """Let the thread end once it has nothing left to do."""
        self._pool.shutdown(wait=False)


class Runner:
    """Runs the tasks of one processor in this process until `stop`."""

    def __init__(
        self,
        *,
        group: str,
        member: str,
        namespace: str,
        inputs: tuple[str, ...],
        log: Log,
        clock: Clock,
        make_parts: MakeParts,
        alarm: Alarm,
        crash: Callable[[str], None],
        urgent: frozenset[str] = frozenset(),
    ) -> None:
        self._clock = clock
        self._alarm = alarm
        self._crash = crash
        self._make_parts = make_parts
        self._mailbox: SimpleQueue[Message] = SimpleQueue()
        self.tasks: dict[int, PartitionTask] = {}
        self._threads: dict[int, TaskThread] = {}
        self._stopping = threading.Event()
        self.last_tick_s = clock.monotonic_s()
        self._last_poll_s = 0.0
        self._last_positions_s = 0.0
        self.fatal: StreamError | None = None
        self._namespace = namespace
        self._group_topic = inputs[-1]
        self._urgent = tuple(topic for topic in inputs if topic in urgent)
        self._offsets = log.offsets()
        self._ends_thread = TaskThread("ends", self._mailbox)
        self._asking_ends = False
        self._outbox = log.outbox(f"{member}-outbox")
        reader = log.reader(f"{member}-inputs", committed=True)
        self._inputs = InputThread(reader, namespace, self._received, self._input_lost)
        self._group, self._member, self._log = group, member, log
        self._ownership: Ownership | None = self._join()
        self._clock_failures = 0
        self._rejoin_at_s = 0.0

    def _join(self) -> Ownership:
        return self._log.ownership(
            topic_name(self._namespace, self._group),
            topic_name(self._namespace, self._group_topic), self._member,
            on_assigned=self._assigned, on_revoked=self._revoked,
        )  # fmt: skip

    def stop(self) -> None:
        """Ask the loop to drain and end; safe from any thread or signal handler."""
        self._stopping.set()
        self._mailbox.put(lambda: None)

    def run(self) -> None:
        """Loop until stopped; then finish commits, flush, hand partitions over at once."""
        try:
            while not self._stopping.is_set() and self.fatal is None:
                self._tick()
        finally:
            self._drain()
        if self.fatal is not None:
            raise self.fatal

    # --- one round -----------------------------------------------------------------------------

    def _tick(self) -> None:
        clock = self._clock
        self.last_tick_s = now_s = clock.monotonic_s()
        if now_s - self._last_poll_s >= POLL_EVERY_S:
            self._poll(now_s)
        for task in self.tasks.values():
            task.turn()
            if task.fatal is not None:
                self.fatal = task.fatal
        self._wait()

    def _poll(self, now_s: float) -> None:
        self._last_poll_s = now_s
        if self._ownership is None:
            if now_s < self._rejoin_at_s:
                return
            self._ownership = self._join()
        self._ownership.poll(0)
        self._heed_clock(now_s, self._ownership)
        if self._ownership is None:
            return
        owned = self._ownership.owned()
        for partition, task in list(self.tasks.items()):
            if task.wants_take_over and partition in owned:
                task.take_over()
        self._ask_ends()
        if self._inputs.failed is not None:
            self.fatal = StreamError(f"reading the inputs failed: {self._inputs.failed!r}")
        if (now_s - self._last_positions_s) * 1_000 >= limits.GROUP_OFFSETS_EVERY_MS:
            self._last_positions_s = now_s
            read = {
                p: task.positions[self._group_topic]
                for p, task in self.tasks.items()
                if self._group_topic in task.positions
            }
            if read:
                self._ownership.commit_positions(read)

    def _heed_clock(self, now_s: float, ownership: Ownership) -> None:
        """Leave the group for a while where our clock keeps on disagreeing with the brokers' and
        others can take our partitions. Back again, the first disagreement is enough."""
        disagreed = [task.guard.disagreed_ms() for task in self.tasks.values()]
        if not any(disagreed):
            if any(task.guard.agrees() for task in self.tasks.values()):
                self._clock_failures = 0
            return
        patience_ms = 1 if self._clock_failures else limits.CLOCK_GIVE_UP_MS
        if max(disagreed) < patience_ms or not ownership.members_beside_us():
            return
        stay_out_ms = min(
            limits.CLOCK_REJOIN_MS_MIN << self._clock_failures, limits.CLOCK_REJOIN_MS_MAX
        )
        self._alarm(
            "gave_partitions_up", reason="our clock disagrees with the brokers'",
            partitions=sorted(self.tasks), disagreed_ms=max(disagreed), stay_out_ms=stay_out_ms,
        )  # fmt: skip
        self._clock_failures = min(self._clock_failures + 1, 8)
        self._rejoin_at_s = now_s + stay_out_ms / 1_000
        ownership.leave()
        self._ownership = None

    def _ask_ends(self) -> None:
        """Read the ends of the urgent inputs for every task that waits for them, all at once."""
        wanting = [p for p, task in self.tasks.items() if task.wants_ends]
        if not wanting or self._asking_ends:
            return
        self._asking_ends = True
        asked_ms = self._clock.wall_ms()
        names = {t: topic_name(self._namespace, t) for t in self._urgent}
        places = [(name, p) for name in names.values() for p in wanting]

        def read() -> object:
            return self._offsets.end(places)

        def told(result: object) -> None:
            self._asking_ends = False
            if not isinstance(result, dict):  # not answered in time: asked again
                return
            for partition in wanting:
                task = self.tasks.get(partition)
                if task is not None:
                    ends = {topic: result[name, partition] for topic, name in names.items()}
                    task.ends_read(asked_ms, ends)

        self._ends_thread.submit(read, told)

    def _wait(self) -> None:
        """Sleep until a message comes or something is due; then take every message there is."""
        now_s = self._clock.monotonic_s()
        wake_s = self._last_poll_s + POLL_EVERY_S
        for task in self.tasks.values():
            at = task.next_turn_s()
            if at is not None and at < wake_s:
                wake_s = at
        mailbox = self._mailbox
        try:
            if wake_s - now_s > 0:
                mailbox.get(timeout=wake_s - now_s)()
            while True:
                mailbox.get_nowait()()
        except Empty:
            return

    # --- what the group and the inputs say -------------------------------------------------------

    def _assigned(self, partitions: list[int]) -> None:
        self._crash("CP16")
        for partition in partitions:
            if partition in self.tasks:
                continue
            thread = TaskThread(f"task-{partition}", self._mailbox)
            parts = self._make_parts(partition, thread, self._inputs, self._outbox)
            self.tasks[partition] = PartitionTask(partition, parts)
            self._threads[partition] = thread

    def _revoked(self, partitions: list[int], lost: bool) -> None:
        """Finish what is under way, unless it is lost anyway, and let go."""
        tasks = [self.tasks[p] for p in partitions if p in self.tasks]
        if not lost:
            self._finish(tasks)
        for task in tasks:
            task.close()
            self.tasks.pop(task.partition)
            self._threads.pop(task.partition).close()
        if not lost:
            self._outbox.flush(limits.OUTBOX_FLUSH_S)

    def _finish(self, tasks: list[PartitionTask]) -> None:
        until_s = self._clock.monotonic_s() + limits.DRAIN_S / 2
        while any(task.busy for task in tasks) and self._clock.monotonic_s() < until_s:
            try:
                self._mailbox.get(timeout=0.05)()
            except Empty:
                continue

    def _received(self, partition: int, token: int, records: list[Record], topic: str) -> None:
        def deliver() -> None:
            task = self.tasks.get(partition)
            if task is not None:
                task.receive(token, records, topic)

        self._mailbox.put(deliver)

    def _input_lost(self, partition: int, token: int, reason: str) -> None:
        def deliver() -> None:
            task = self.tasks.get(partition)
            if task is not None and task.stage is not Stage.CLOSED:
                task.lost_input(token, reason)

        self._mailbox.put(deliver)

    def _drain(self) -> None:
        """At most `DRAIN_S` in all."""
        self._finish(list(self.tasks.values()))
        if self._ownership is not None:
            self._ownership.leave()
        for partition in list(self.tasks):
            self.tasks.pop(partition).close()
            self._threads.pop(partition).close()
        self._ends_thread.close()
        self._inputs.close()
        self._outbox.flush(limits.OUTBOX_FLUSH_S / 2)
        self._outbox.close()


def watch(runner: Runner, clock: Clock, give_up: Callable[[str], None]) -> threading.Thread:
    """Start a thread that calls `give_up` when the loop, or a task with a commit under way, has
    stood still for `WATCHDOG_MS`: another process can do better. A process that stood still as a
    whole (stopped, suspended) first gets the time to go on."""

    def look() -> None:
        bound_s = limits.WATCHDOG_MS / 1_000
        pause = threading.Event()
        looked_s = clock.monotonic_s()
        while not pause.wait(LOOK_EVERY_S):
            slept_s, looked_s = clock.monotonic_s() - looked_s, clock.monotonic_s()
            if slept_s > 2 * LOOK_EVERY_S:
                continue
            now_s = looked_s
            if now_s - runner.last_tick_s > bound_s:
                give_up(f"the loop has stood still for {bound_s:.0f} s")
            for task in list(runner.tasks.values()):
                still_s = now_s - task.last_progress_s - limits.IDLE_MARK_MS / 1_000
                if task.stage is Stage.COMMITTING and still_s > bound_s:
                    give_up(f"partition {task.partition} has not committed for {bound_s:.0f} s")

    thread = threading.Thread(target=look, name="watchdog", daemon=True)
    thread.start()
    return thread
