"""A receiver as a child process whose receipts are followed."""

import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from .jobs import DemoFailed
from .receipts import End, Receipts

END_S = 20.0


class Receiver:
    """Starts `python -m horolog.demo.MODULE`; it ends when it is told to, or with us."""

    def __init__(
        self, module: str, arguments: Sequence[str], *, receipts: Receipts,
        environment: Mapping[str, str], errors: IO[bytes],
    ) -> None:  # fmt: skip
        self._module = module
        self._receipts = receipts
        self._ended: End | None = None
        self._process = subprocess.Popen(  # noqa: S603 our own program
            [sys.executable, "-m", f"horolog.demo.{module}", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment,
            start_new_session=True,
        )  # fmt: skip
        self._follower = threading.Thread(target=self._follow, daemon=True)

    def first_line(self) -> bytes:
        """What it writes before its receipts. Raises `DemoFailed` if it ends instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise DemoFailed(f"{self._module} ended with exit code {self._process.wait()}")
        return line

    def follow(self) -> None:
        """Take its receipts from now on."""
        self._follower.start()

    def finish(self) -> int:
        """Let it see what there is to see and end; how many receipts it wrote. Raises `DemoFailed`
        if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"{self._module} did not come to an end") from None
        self._follower.join(END_S)
        if code != 0 or self._ended is None:
            raise DemoFailed(f"{self._module} ended with exit code {code} before it was done")
        return self._ended.records

    def close(self) -> None:
        """End it in any case."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        if self._follower.is_alive():
            self._follower.join(END_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        self._ended = self._receipts.follow(self._process.stdout)
