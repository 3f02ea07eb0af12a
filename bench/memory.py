"""How much memory the schedulers hold when nothing happens."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from horolog.installation import Installation

from .installed import create_topic, installation, producer, reader
from .jobs import Replies, puts, send
from .report import emit, say

JOBS: Final = 1_000_000
PART: Final = 50_000
REST_S: Final = 30.0
DAY_MS: Final = 86_400_000


def idle_memory() -> None:
    """1 M jobs registered through `commands`, due from tomorrow on: RSS of all schedulers."""
    with installation() as installed:
        create_topic(installed.bootstrap, "idle")
        due_ms = int(time.time() * 1000) + DAY_MS
        consumer = reader(installed.bootstrap)
        replies = Replies(consumer, installed)
        commands = producer(installed.bootstrap)
        for part in range(JOBS // PART):
            name = f"idle{part}"
            send(
                commands, installed,
                puts(name, PART, installed.settings.partitions, "idle", due_ms, DAY_MS),
            )  # fmt: skip
            replies.await_count(PART)
            say(f"{(part + 1) * PART:,} jobs, {_rss_mb(installed):,.0f} MB")
        consumer.close()
        time.sleep(REST_S)
        value = _rss_mb(installed)
    emit(
        "idle_memory", "MB", [value],
        {"jobs": JOBS, "schedulers": installed.settings.schedulers, "after_s": REST_S},
    )  # fmt: skip


def _rss_mb(installed: Installation) -> float:
    """Of all scheduler processes."""
    return sum(_process_mb(pid) for pid in installed.scheduler_pids)


def _process_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    rss = next(line for line in lines if line.startswith("VmRSS"))
    return int(rss.split()[1]) / 1024


FIGURES: Final[dict[str, Callable[[], None]]] = {"idle_memory": idle_memory}
