"""Finding the user's application: the object that `module:name` stands for."""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from .handlers import Handler


class Application(Protocol):
    """What a worker is started for: named handlers, and jobs declared beside them."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...

    def declared(self) -> list[dict[str, Any]]:
        """Jobs to register, as JSON: each has `job` and `definition`."""


class Unloadable(Exception):
    """The user's application cannot be loaded, with the reason for people."""


def load(application: str, path: tuple[str, ...] = ()) -> Application:
    """The object that `module:name` means. Raises `Unloadable`."""
    module_name, colon, name = application.partition(":")
    if not colon or not module_name or not name:
        raise Unloadable(f"{application!r}: write it as module:name, as in jobs:app")
    sys.path[:0] = [folder for folder in path if folder not in sys.path]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if f"{module_name}.".startswith(f"{error.name}."):
            where = os.getcwd()
            raise Unloadable(f"there is no module {module_name!r}, looked for in {where}") from None
        raise
    found = getattr(module, name, None)
    if found is None:
        raise Unloadable(f"module {module_name} has no {name!r}")
    if not hasattr(found, "handlers") or not hasattr(found, "declared"):
        kind = type(found).__name__
        raise Unloadable(f"{application} is a {kind}, no App: `app = App()` makes one")
    loaded: Application = found
    return loaded
