"""Horolog's Python SDK: handlers, declared jobs, and a client to put and follow jobs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.handlers import Context, Fail

    from .app import App
    from .sdk_client import Client

__all__ = ["App", "Client", "Context", "Fail"]


def __getattr__(name: str) -> object:
    """Import what is asked for, and not the Kafka client for a module of handlers."""
    match name:
        case "App":
            from .app import App

            return App
        case "Context" | "Fail":
            from workers import handlers

            return getattr(handlers, name)
        case "Client":
            from .sdk_client import Client

            return Client
        case _:
            raise AttributeError(f"module 'horolog' has no attribute {name!r}")
