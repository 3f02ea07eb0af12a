"""Opens a gateway's parts in order, and closes them in the opposite one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from streams.crash import CrashPoint, unarmed
from streams.ports import Log

from .gateway import Gateway, Settings
from .live import Live
from .sending import Sending


@asynccontextmanager
async def gateway(
    settings: Settings, log: Log, alarm: Callable[..., None], crash: CrashPoint = unarmed
) -> AsyncIterator[Gateway]:
    """A gateway that begins to read. Raises `streams.errors.Unavailable` when Kafka does not
    answer."""
    sending = Sending(log, settings.namespace, settings.partitions, alarm, crash=crash)
    live = Live(log, settings.namespace, settings.partitions, alarm)
    live.start()
    try:
        yield Gateway(
            settings=settings, live=live, sending=sending, log=log, ending=asyncio.Event(),
            alarm=alarm,
        )  # fmt: skip
    finally:
        await live.close()
        await sending.close()
