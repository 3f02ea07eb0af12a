"""Which source each setting's value came from, asked of the same sources that made it."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import BaseModel
from pydantic_settings import EnvSettingsSource

from .settings import BOOTSTRAP_VARIABLE, PREFIX, Settings, read_file

MASK: Final = "***"
DEFAULT: Final = "default"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: its path, its value with secrets masked, and where the value came from."""

    name: str
    value: Any
    origin: str


def explain(settings: Settings) -> list[Setting]:
    """Every setting that counts here, in the order of the settings."""
    sources = list(_sources(settings))
    return [
        Setting(name=".".join(path), value=value, origin=_origin(path, sources))
        for path, value in _leaves(settings, ())
    ]


Source = tuple[Mapping[str, Any], str]
"""Nested values, and what the source is called; empty: the environment, which names variables."""


def _sources(settings: Settings) -> Iterator[Source]:
    """In the order in which they win."""
    yield settings.given, "flag"
    servers = os.environ.get(BOOTSTRAP_VARIABLE, "").strip()
    if servers:
        yield {"kafka": {"bootstrap": servers}}, f"environment: {BOOTSTRAP_VARIABLE}"
    yield EnvSettingsSource(Settings)(), ""
    path = settings.config_file
    if path is not None:
        yield read_file(path), f"file: {path}"


def _leaves(model: BaseModel, at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, (*at, name))
        elif isinstance(value, Mapping):
            # Client settings: any of them may be a secret, so none is shown.
            yield from (((*at, name, key), MASK) for key in sorted(value))
        elif isinstance(value, Path):
            yield (*at, name), str(value)
        else:
            yield (*at, name), list(value) if isinstance(value, tuple) else value


def _origin(path: tuple[str, ...], sources: list[Source]) -> str:
    for values, called in sources:
        if _has(values, path):
            return called or f"environment: {_variable(path)}"
    return DEFAULT


def _has(values: Any, path: tuple[str, ...]) -> bool:
    for part in path:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _variable(path: tuple[str, ...]) -> str:
    """The variable that is set for this setting, or holds what it is a part of as JSON."""
    found = {name.upper(): (name, text) for name, text in os.environ.items()}
    for length in range(len(path), 0, -1):
        name, text = found.get((PREFIX + "__".join(path[:length])).upper(), ("", ""))
        if name and (length == len(path) or _has(json.loads(text), path[length:])):
            return name
    return PREFIX + "__".join(path).upper()
