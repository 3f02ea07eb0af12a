"""Streams of changes (server-sent events), for pages and for whoever polls otherwise."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from schemas import limits

from .gateway import Gateway, check_ids
from .problems import Refusing

RETRY_MS: Final = 500
MEDIA_TYPE: Final = "text/event-stream"
HELLO: Final = f"retry: {RETRY_MS}\n\n"
ALIVE: Final = ": alive\n\n"


def routes(gateway: Gateway) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1/tenants/{tenant}", tags=["executions"])

    @router.get(
        "/changes",
        summary="Tells that something changed, as server-sent events",
        responses={200: {"content": {MEDIA_TYPE: {}}, "description": "`changed`, again and again"}},
    )
    async def changes(tenant: str) -> Response:
        check_ids(tenant)
        if gateway.live.watchers >= limits.WATCHERS_MAX:
            raise Refusing("busy", f"{limits.WATCHERS_MAX} streams are open already")
        return StreamingResponse(stream(gateway, tenant), media_type=MEDIA_TYPE)

    return router


async def stream(gateway: Gateway, tenant: str) -> AsyncIterator[str]:
    """One `changed` at once, since whoever connects may have missed some, then one for whatever
    happens, a few a second at most. Ends when the gateway does."""
    live, told = gateway.live, -1
    event = live.watch()
    try:
        yield HELLO
        while not gateway.ending.is_set():
            event.clear()
            now = live.changed(tenant)
            if now != told and live.ready:
                told = now
                yield f"event: changed\ndata: {now}\n\n"
                await asyncio.sleep(limits.WATCH_EVERY_S)
                continue
            await live.any_change(event, limits.WATCH_ALIVE_S)
            if not event.is_set():
                yield ALIVE
    finally:
        live.unwatch(event)
