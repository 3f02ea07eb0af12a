"""One child process as its parent sees it."""

import asyncio
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from schemas.leases import WorkItem

from .lease import Lease
from .ports import Why
from .wire import (
    BEGAN_BYTES,
    BEGAN_SLOTS,
    READ_BYTES,
    Frames,
    Hello,
    Ready,
    Run,
    Stop,
    ToChild,
    ToParent,
    Unusable,
    decode_to_parent,
    frame,
)

_ENTRY: Final = f"from {__package__}.child import main; main()"
_ROOT: Final = str(Path(__file__).resolve().parents[__package__.count(".") + 1])
EXIT_S: Final = 3.0


class CannotLoad(Exception):
    """The application cannot be loaded by a child process. Tell the user; its reason says why."""


class ChildProcess:
    """A process that runs handlers, and the leases that are with it. Used by one event loop."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.leases: dict[int, Lease] = {}
        self.retired = False
        """Whether it gets nothing more to do and ends once its runs have."""
        self._free = list(range(BEGAN_SLOTS))
        self._outbox: list[ToChild] = []
        self._buffer = bytearray()
        self._frames = Frames()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The process; there is one after `start`."""
        assert self._process is not None
        return self._process

    async def start(self, hello: Hello) -> Ready:
        """Start the process and let it load its handlers. Raises `CannotLoad`."""
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as shared:
            shared.truncate(BEGAN_BYTES)
            self._shared = mmap.mmap(shared.fileno(), BEGAN_BYTES)
            self.began = memoryview(self._shared).cast("q")
            known = [_ROOT, os.environ.get("PYTHONPATH", "")]
            fds = (theirs.fileno(), shared.fileno())
            self._socket = ours
            self._process = subprocess.Popen(  # noqa: S603 our own program
                [sys.executable, "-c", _ENTRY, *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, known))},
                # Ctrl-C on our terminal is for us.
                start_new_session=True,
            )
        theirs.close()
        ours.setblocking(False)
        await self._loop.sock_sendall(ours, frame([hello]))
        while True:
            data = await self._loop.sock_recv(ours, READ_BYTES)
            if not data:
                raise CannotLoad(f"the process that loads {hello.application} {self.manner()}")
            for body in self._frames.feed(data):
                (first, *_) = decode_to_parent(body)
                if isinstance(first, Unusable):
                    raise CannotLoad(first.reason)
                assert isinstance(first, Ready)
                return first

    def listen(
        self, on_messages: Callable[[list[ToParent]], None], on_death: Callable[[], None]
    ) -> None:
        """Hand over what it says from now on."""

        def readable() -> None:
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(self._socket)
                on_death()
                return
            for body in self._frames.feed(data):
                on_messages(decode_to_parent(body))

        self._loop.add_reader(self._socket, readable)

    # --- what it is told -------------------------------------------------------------------------

    def give(self, lease: Lease, before_ms: int) -> None:
        """Let it run, after `flush`."""
        slot = lease.slot = self._free.pop()
        lease.home = self
        self.began[slot] = 0
        self.leases[lease.number] = lease
        self._outbox.append(_run(lease.number, slot, before_ms, lease.item))

    def stop(self, lease: Lease, why: Why) -> None:
        """Tell the run to stop, after `flush`."""
        self._outbox.append(Stop(lease.number, why))

    def began_at(self, lease: Lease) -> int:
        """Wall time at which the run began; 0 while it waits."""
        began_at: int = self.began[lease.slot]
        return began_at

    def forget(self, number: int) -> Lease | None:
        """The run is over."""
        lease = self.leases.pop(number, None)
        if lease is not None:
            self._free.append(lease.slot)
            lease.home = None
        return lease

    def flush(self) -> None:
        """Send what it was told. Never blocks: what the socket does not take waits."""
        if not self._outbox:
            return
        data = frame(self._outbox)
        self._outbox = []
        if not self._buffer:
            try:
                taken = self._socket.send(data)
            except BlockingIOError:
                taken = 0
            except OSError:
                return  # it is gone; the reader says so
            if taken == len(data):
                return
            data = data[taken:]
            self._loop.add_writer(self._socket, self._write)
        self._buffer += data

    def _write(self) -> None:
        try:
            taken = self._socket.send(self._buffer)
        except BlockingIOError:
            return
        except OSError:
            self._buffer.clear()
            self._loop.remove_writer(self._socket)
            return
        del self._buffer[:taken]
        if not self._buffer:
            self._loop.remove_writer(self._socket)

    # --- its end ---------------------------------------------------------------------------------

    def hang_up(self) -> None:
        """Close our end: it tells its runs to stop, and exits."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(EXIT_S)

    def release(self) -> None:
        """Give up what was held for it; it has ended."""
        self.hang_up()
        self.began.release()
        self._shared.close()

    def manner(self) -> str:
        """How it ended, in words."""
        try:
            code = self.process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


def _run(number: int, slot: int, before_ms: int, item: WorkItem) -> Run:
    return Run(
        number, slot, before_ms, item.handler, item.tenant, item.job, item.execution_id,
        item.occurrence, item.attempt, item.delivery, item.fence, item.scheduled_at, item.payload,
        item.content_type, item.previous_outcome,
    )  # fmt: skip
