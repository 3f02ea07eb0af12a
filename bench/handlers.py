"""The user's code that is run: nothing at all, and a stamp of when it began."""

import os
import time

from horolog import App, Context

app = App()
_receipts = None


@app.task("no-op")
def no_op(n: int) -> None:
    """What every worker can do."""
    del n


@app.task("stamp")
def stamp(ctx: Context, n: int) -> None:
    """Append to the receipts how late it began, in ms."""
    global _receipts  # noqa: PLW0603 one file a process, kept open
    late_ms = time.time() * 1000 - ctx.scheduled_at.timestamp() * 1000
    if _receipts is None:
        path = f"{os.environ['BENCH_RECEIPTS']}.{os.getpid()}"
        _receipts = open(path, "a", buffering=1)  # noqa: SIM115
    _receipts.write(f"{n} {late_ms:.3f}\n")
