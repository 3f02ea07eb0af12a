"""Horolog's Python SDK: handlers, declared jobs, and a client to put and follow jobs."""

from workers.handlers import Context, Fail

from .app import App

__all__ = ["App", "Client", "Context", "Fail"]


def __getattr__(name: str) -> object:
    # The client brings Kafka along, which a module of handlers has no need of.
    if name == "Client":
        from .sdk_client import Client

        return Client
    raise AttributeError(f"module 'horolog' has no attribute {name!r}")
