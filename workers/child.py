"""A child process of a worker: runs user code, so that nothing it does can stop a heartbeat.

Functions run on threads, coroutines on the main thread's event loop, which also reads what the
parent says. Threads write results themselves: a result needs no other thread to get out.
"""

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from .application import Unloadable, load
from .handlers import (
    BadArguments,
    Context,
    Handler,
    context_of,
    failure_of,
    heard,
    result_of,
    tell,
)
from .turns import Turn, Turns
from .wire import (
    BEGAN_BYTES,
    READ_BYTES,
    Done,
    Dropped,
    Frames,
    Hello,
    Kept,
    Progress,
    Ready,
    Run,
    Stop,
    ToParent,
    Unusable,
    decode_to_child,
    frame,
    read_frame,
)

LOOK_S: Final = 0.001
"""Delay before further threads are woken for runs that the first one does not get to."""
SHORT_NS: Final = 200_000
"""Runs that take less may delay the results of those before them."""
RESULTS_MAX: Final = 64
RESULTS_NS_MAX: Final = 2_000_000
ORPHAN_S: Final = 5.0
"""What still runs when the parent is gone has no lease; it is told, and gets this long."""
LEAVE_S: Final = 2.0
"""What users' modules do at exit gets this long."""


def main() -> None:
    """Serve the parent at the other end of the sockets named on the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    shared = mmap.mmap(int(sys.argv[2]), BEGAN_BYTES)
    frames = Frames()
    bodies = read_frame(connection, frames)
    if bodies is None:
        return
    (hello, *_) = decode_to_child(bodies[0])
    assert isinstance(hello, Hello)
    try:
        application = load(hello.application, hello.path)
        for handler in application.handlers.values():
            handler.resolve()
        declared = msgspec.json.encode(application.declared())
    except BaseException as error:  # noqa: BLE001 whatever a user's module raises
        told = str(error) if isinstance(error, Unloadable) else traceback.format_exc()
        connection.sendall(frame([Unusable(told)]))
        return
    connection.sendall(frame([Ready(tuple(application.handlers), declared)]))
    child = Child(connection, memoryview(shared).cast("q"), application.handlers, hello.places)
    asyncio.run(child.serve(bodies[1:], frames))


class _Sleeper:
    """Where a thread waits for its next turn."""

    __slots__ = ("_awake", "_turn")

    def __init__(self) -> None:
        self._awake = threading.Lock()
        self._awake.acquire()
        self._turn: Turn | None = None

    def wake(self, turn: Turn) -> None:
        """Let the thread go on with this turn."""
        self._turn = turn
        self._awake.release()

    def sleep(self) -> Turn | None:
        """Wait for a turn."""
        self._awake.acquire()
        return self._turn


class Child:
    """Runs what the parent sends, until the parent is gone."""

    def __init__(
        self, connection: socket.socket, began: "memoryview[int]", handlers: Mapping[str, Handler],
        places: int,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._began = began
        self._handlers = handlers
        self._turns = Turns(places)
        self._here: set[int] = set()
        """Runs that came and have not ended."""
        self._contexts: dict[int, Context] = {}
        """Of those that have begun."""
        self._stops: dict[int, str] = {}
        """Words to runs that are on their way between waiting and begun."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._results: deque[ToParent] = deque()
        self._sending = threading.Lock()
        self._sent_ns = 0
        self._idle: list[_Sleeper] = []
        self._threads = 0
        self._looking = False
        self._seen_finished = 0

    async def serve(self, bodies: list[bytes], frames: Frames) -> None:
        """Follow the parent until its end of the socket closes."""
        self._loop = asyncio.get_running_loop()
        gone = asyncio.Event()

        def readable() -> None:
            try:
                data = self._connection.recv(READ_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(self._connection)
                gone.set()
                return
            for body in frames.feed(data):
                self._follow(body)

        for body in bodies:
            self._follow(body)
        self._loop.add_reader(self._connection, readable)
        await gone.wait()
        await self._end()

    def _follow(self, body: bytes) -> None:
        turns: list[Turn] = []
        for message in decode_to_child(body):
            if isinstance(message, Run):
                turns.append((message, self._handlers[message.handler]))
                self._here.add(message.number)
            elif isinstance(message, Stop):
                self._turns.add(turns)
                turns = []
                self._stop(message)
        self._turns.add(turns)
        self._start_some()

    # --- who runs what ---------------------------------------------------------------------------

    def _start_some(self) -> None:
        """Begin runs: one thread at first, since it may be through with all of them before another
        one has woken up; `_look` wakes the others."""
        while (turn := self._turns.take()) is not None:
            if turn[1].is_async:
                self._start_task(turn)
                continue
            self._give_to_thread(turn)
            break
        if self._turns.waiting and not self._looking:
            self._looking = True
            self._seen_finished = self._turns.finished
            self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Wake threads for what waits, unless those that run are quick; send late results."""
        finished = self._turns.finished
        soon = 10 * (finished - self._seen_finished)
        self._seen_finished = finished
        for _ in range(self._turns.startable - soon):
            turn = self._turns.take()
            if turn is None:
                break
            if turn[1].is_async:
                self._start_task(turn)
            else:
                self._give_to_thread(turn)
        if self._results:
            self._send()
        self._looking = self._turns.waiting > 0
        if self._looking:
            self._loop.call_later(LOOK_S, self._look)

    def _give_to_thread(self, turn: Turn) -> None:
        try:
            thread = self._idle.pop()
        except IndexError:
            self._threads += 1
            name = f"run-{self._threads}"
            threading.Thread(target=self._run_thread, args=(turn,), name=name, daemon=True).start()
            return
        thread.wake(turn)

    def _run_thread(self, turn: Turn | None) -> None:
        sleeper = _Sleeper()
        while True:
            while turn is not None:
                if turn[1].is_async:
                    self._loop.call_soon_threadsafe(self._start_task, turn)
                    break
                self._run(turn)
                turn = self._turns.next()
            if self._results:
                self._send()
            self._idle.append(sleeper)
            turn = sleeper.sleep()

    # --- runs ------------------------------------------------------------------------------------

    def _run(self, turn: Turn) -> None:
        run, handler = turn
        if self._results and (
            # Behind a run that may be long, or the last one, no result is to wait.
            handler.usual_ns > SHORT_NS
            or not self._turns.waiting
            or len(self._results) >= RESULTS_MAX
            or time.monotonic_ns() - self._sent_ns > RESULTS_NS_MAX
        ):
            self._send()
        context, started_ns = self._begin(run)
        if context is None:
            return
        try:
            arguments = handler.arguments(run.payload, run.content_type)
            if handler.context_name is not None:
                arguments[handler.context_name] = context
            value = handler.function(**arguments)
        except BaseException as error:  # noqa: BLE001 whatever a handler raises
            self._failed(run, context, started_ns, error)
        else:
            self._succeeded(run, context, started_ns, value)
        handler.usual_ns = time.time_ns() - started_ns

    def _start_task(self, turn: Turn) -> None:
        run = turn[0]
        context, started_ns = self._begin(run)
        if context is None:
            self._after_task()
            return
        task = self._loop.create_task(self._run_async(turn, context, started_ns))
        self._tasks[run.number] = task

    async def _run_async(self, turn: Turn, context: Context, started_ns: int) -> None:
        run, handler = turn
        try:
            arguments = handler.arguments(run.payload, run.content_type)
            if handler.context_name is not None:
                arguments[handler.context_name] = context
            value = await handler.function(**arguments)
        except BaseException as error:  # noqa: BLE001 whatever a handler raises
            self._failed(run, context, started_ns, error)
        else:
            self._succeeded(run, context, started_ns, value)
        del self._tasks[run.number]
        self._after_task()

    def _after_task(self) -> None:
        turn = self._turns.next()
        if turn is not None and turn[1].is_async:
            # Through the loop, or a row of runs that are too late would recurse.
            self._loop.call_soon(self._start_task, turn)
        elif turn is not None:
            self._give_to_thread(turn)
        if self._results and (turn is None or len(self._results) >= RESULTS_MAX):
            self._send()

    def _begin(self, run: Run) -> tuple[Context | None, int]:
        """From here on the run has begun; None if it was stopped on its way, or is too late: the
        process may have stood still since it was sent."""
        number = run.number
        context = context_of(run, lambda text: self._progress(number, text))
        # First this, then the look at the stops, the other way round from `_stop`: one of the two
        # sees the other.
        self._contexts[number] = context
        late = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000 > run.before_ms
        if late or self._stops.pop(number, None) is not None:
            del self._contexts[number]
            self._here.discard(number)
            self._results.append(Dropped(number))
            return None, 0
        started_ns = time.time_ns()
        self._began[run.slot] = started_ns // 1_000_000
        return context, started_ns

    def _succeeded(self, run: Run, context: Context, started_ns: int, value: object) -> None:
        started_at, finished_at = started_ns // 1_000_000, time.time_ns() // 1_000_000
        number = run.number
        if context._stopped and heard(context):
            done = Done(number, state="CANCELLED", started_at=started_at, finished_at=finished_at)
        elif value is None:
            done = Done(number, state="SUCCEEDED", started_at=started_at, finished_at=finished_at)
        else:
            state, reason, detail, result = result_of(value)
            done = Done(
                number, state=state, reason=reason, detail=detail, retry=state == "SUCCEEDED",
                result=result, started_at=started_at, finished_at=finished_at,
            )  # fmt: skip
        self._done(run, done)

    def _failed(self, run: Run, context: Context, started_ns: int, error: BaseException) -> None:
        if context._stopped and (heard(context) or isinstance(error, asyncio.CancelledError)):
            state, told = "CANCELLED", ("", "", True)
        elif isinstance(error, BadArguments):
            state, told = "FAILED", ("arguments", str(error)[:4_000], False)
        else:
            state, told = "FAILED", failure_of(error)
        reason, detail, retry = told
        self._done(run, Done(
            run.number, state=state, reason=reason, detail=detail, retry=retry,
            started_at=started_ns // 1_000_000, finished_at=time.time_ns() // 1_000_000,
        ))  # fmt: skip

    def _done(self, run: Run, done: Done) -> None:
        del self._contexts[run.number]
        self._here.discard(run.number)
        self._results.append(done)

    def _progress(self, number: int, text: str) -> None:
        self._results.append(Progress(number, text))
        self._send()

    # --- stopping --------------------------------------------------------------------------------

    def _stop(self, stop: Stop) -> None:
        number = stop.number
        if number not in self._here:
            return
        if self._turns.withdraw(number):
            self._here.discard(number)
            self._results.append(Dropped(number))
            self._send()
            return
        self._stops[number] = stop.why
        context = self._contexts.get(number)
        if context is None:
            return
        self._stops.pop(number, None)
        if stop.why == "revoke":
            self._results.append(Kept(number))
            self._send()
        elif stop.why != "recall":
            tell(context)
            task = self._tasks.get(number)
            if task is not None and stop.why != "lease":
                # Behind its first step: a task cancelled before it would end without a word.
                self._loop.call_soon(task.cancel)

    async def _end(self) -> None:
        """The parent is gone, and with it every lease."""
        last = threading.Timer(ORPHAN_S + LEAVE_S, os._exit, (0,))
        last.daemon = True
        last.start()
        for context in list(self._contexts.values()):
            tell(context)
        for task in list(self._tasks.values()):
            task.cancel()
        until_s = time.monotonic() + ORPHAN_S
        while self._contexts and time.monotonic() < until_s:
            await asyncio.sleep(0.05)

    # --- results ---------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send what there is. The lock keeps frames whole and a run's words in order."""
        with self._sending:
            results = [self._results.popleft() for _ in range(len(self._results))]
            self._sent_ns = time.monotonic_ns()
            if not results:
                return
            # A parent that is gone is noticed by the reading side.
            with contextlib.suppress(OSError):
                self._connection.sendall(frame(results))
