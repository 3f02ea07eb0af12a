"""The child processes of a worker: who runs what, who is replaced."""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Final

from schemas import limits

from .lease import Ended, Lease
from .ports import Alarm, Moment, Runs, Why
from .process import CannotLoad, ChildProcess
from .wire import Done, Dropped, Hello, Kept, Progress, Ready, ToParent

BACK_OFF_S_MIN: Final = 0.5
BACK_OFF_S_MAX: Final = 30.0
STABLE_S: Final = 10.0


class ChildPool:
    """Meets `Executor` with processes that run handlers. Used by one event loop.

    A process that dies takes its runs with it: those that had begun have failed, the others go to
    another one. One whose handler ignores that it was cancelled gets no more work, is replaced at
    once, and is killed when its other runs are done.
    """

    def __init__(
        self, *, application: str, worker: str, places: int, processes: int, alarm: Alarm,
        now: Callable[[], Moment],
    ) -> None:  # fmt: skip
        self._application = application
        self._worker = worker
        self._shares = _shares(places, processes)
        self._alarm = alarm
        self._now = now
        self._children: list[ChildProcess] = []
        self._retired: list[ChildProcess] = []
        self._homeless: dict[int, tuple[Lease, int]] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._closing = False
        self._failed_starts = 0

    async def open(self) -> Ready:
        """Start the processes. Raises `CannotLoad` if the application cannot be loaded."""
        children = [ChildProcess(places) for places in self._shares]
        started = await asyncio.gather(
            *(child.start(self._hello(child)) for child in children), return_exceptions=True
        )
        self._children = children
        for answer in started:
            if isinstance(answer, BaseException):
                self.kill()
                raise answer
        ready = started[0]
        assert isinstance(ready, Ready)
        return ready

    def listen(self, runs: Runs, settle: Callable[[], None]) -> None:
        """Tell `runs` what becomes of them; `settle` follows each handful of news."""
        self._runs = runs
        self._settle = settle
        for child in self._children:
            self._listen_to(child)

    # --- Executor --------------------------------------------------------------------------------

    def start(self, lease: Lease, *, before_ms: int) -> None:
        child = self._freest()
        if child is None:
            self._homeless[lease.number] = (lease, before_ms)
            return
        child.give(lease, before_ms)

    def stop(self, lease: Lease, why: Why) -> None:
        child = lease.home
        if isinstance(child, ChildProcess):
            child.stop(lease, why)
        elif self._homeless.pop(lease.number, None) is not None:
            number = lease.number
            # Not from within the call: whoever stops it is not done yet.
            asyncio.get_running_loop().call_soon(lambda: self._dropped(number))

    def began_at(self, lease: Lease) -> int:
        child = lease.home
        return child.began_at(lease) if isinstance(child, ChildProcess) else 0

    def abandon(self, lease: Lease) -> None:
        self._homeless.pop(lease.number, None)
        child = lease.home
        if not isinstance(child, ChildProcess):
            return
        child.forget(lease.number)
        if not child.retired:
            child.retired = True
            self._children.remove(child)
            self._retired.append(child)
            self._replace(child.places, 0.0)
        if not child.leases or len(self._retired) > limits.RETIRED_PROCESSES_MAX:
            self._retired[0 if child.leases else self._retired.index(child)].process.kill()

    def flush(self) -> None:
        for child in self._children:
            child.flush()
        for child in self._retired:
            child.flush()

    # --- the end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let the processes exit, and end those that do not."""
        self._closing = True
        for task in self._starting:
            task.cancel()
        children = [*self._children, *self._retired]
        for child in children:
            child.hang_up()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 2.0
        while loop.time() < until_s and any(c.process.poll() is None for c in children):
            await asyncio.sleep(0.02)
        self.kill()

    def kill(self) -> None:
        """End every process at once: nothing runs after this."""
        self._closing = True
        for child in [*self._children, *self._retired]:
            child.kill()
            child.release()
            for number in list(child.leases):
                child.forget(number)
        self._children, self._retired = [], []

    @property
    def pids(self) -> list[int]:
        """The processes that take work."""
        return [child.process.pid for child in self._children]

    # --- inside ----------------------------------------------------------------------------------

    def _hello(self, child: ChildProcess) -> Hello:
        path = tuple(dict.fromkeys((os.getcwd(), *filter(None, sys.path))))
        return Hello(self._application, path, child.places, self._worker)

    def _freest(self) -> ChildProcess | None:
        best, best_free = None, 0
        for child in self._children:
            free = child.places - len(child.leases)
            if best is None or free > best_free:
                best, best_free = child, free
        return best

    def _listen_to(self, child: ChildProcess) -> None:
        child.listen(lambda messages: self._heard(child, messages), lambda: self._died(child))

    def _heard(self, child: ChildProcess, messages: list[ToParent]) -> None:
        now, runs = self._now(), self._runs
        for message in messages:
            if isinstance(message, Done):
                if child.forget(message.number) is not None:
                    runs.ended(message.number, message, now)
            elif isinstance(message, Dropped):
                if child.forget(message.number) is not None:
                    runs.dropped(message.number, now)
            elif isinstance(message, Kept):
                runs.kept(message.number, now)
            elif isinstance(message, Progress):
                runs.progressed(message.number, message.text, now)
        if child.retired and not child.leases:
            child.process.kill()
        self._settle()

    def _died(self, child: ChildProcess) -> None:
        """Its runs that had begun have failed; the others have not, and go elsewhere."""
        if self._closing:
            return
        # Whoever closes its end without dying is of no use either.
        child.process.kill()
        manner = child.manner()
        now = self._now()
        began = {number: child.began_at(lease) for number, lease in child.leases.items()}
        if child.retired:
            self._retired.remove(child)
        else:
            self._alarm("child_died", pid=child.process.pid, manner=manner, runs=len(began))
            self._children.remove(child)
            self._replace(child.places, self._back_off_s())
        child.release()
        for number, began_at in began.items():
            child.forget(number)
            if not began_at:
                self._runs.dropped(number, now)
                continue
            self._runs.ended(
                number,
                Ended(
                    state="FAILED", reason="error", started_at=began_at, finished_at=now.wall_ms,
                    detail=f"the process running it died: it {manner}",
                ),
                now,
            )  # fmt: skip
        self._settle()

    def _dropped(self, number: int) -> None:
        self._runs.dropped(number, self._now())
        self._settle()

    def _replace(self, places: int, after_s: float) -> None:
        task = asyncio.get_running_loop().create_task(self._start_again(places, after_s))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def _back_off_s(self) -> float:
        """Nothing for the first death, then longer and longer while starts fail."""
        if self._failed_starts == 0:
            return 0.0
        return float(min(BACK_OFF_S_MIN * 2 ** (self._failed_starts - 1), BACK_OFF_S_MAX))

    async def _start_again(self, places: int, after_s: float) -> None:
        while True:
            await asyncio.sleep(after_s)
            child = ChildProcess(places)
            try:
                await child.start(self._hello(child))
            except (CannotLoad, OSError) as error:
                child.kill()
                child.release()
                self._failed_starts += 1
                after_s = self._back_off_s()
                self._alarm("child_cannot_start", error=str(error), again_after_s=after_s)
                continue
            except asyncio.CancelledError:
                child.kill()
                child.release()
                raise
            break
        self._failed_starts = 0
        self._children.append(child)
        self._listen_to(child)
        homeless, self._homeless = self._homeless, {}
        for lease, before_ms in homeless.values():
            self.start(lease, before_ms=before_ms)
        self.flush()
        self._settle()


def _shares(places: int, processes: int) -> list[int]:
    """Places of each process: as even as can be, none without."""
    count = max(1, min(processes, places))
    return [places // count + (n < places % count) for n in range(count)]
