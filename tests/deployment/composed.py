"""Reads docker-compose.yml as Compose does, and moves it onto this machine."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
OURS = "horolog:local"
_UNITS_S = {"m": 60, "s": 1}


def read(replaced: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The file, with the defaults of its variables, and other words in the place of some."""
    text = VARIABLE.sub(lambda found: found[2], FILE.read_text("utf-8"))
    loaded = yaml.safe_load(text)
    moved = _moved(loaded, replaced or {})
    assert isinstance(moved, dict)
    return moved


def services(replaced: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """The services by name."""
    found = read(replaced)["services"]
    assert isinstance(found, dict)
    return found


def kafka_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """The server.properties that the image of Kafka makes of its environment."""
    prefix = "KAFKA_"
    return {
        name.removeprefix(prefix).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(prefix) and name != "KAFKA_HEAP_OPTS"
    }


def seconds(duration: str) -> int:
    """A duration such as 45s or 1m."""
    return int(duration[:-1]) * _UNITS_S[duration[-1]]


def _moved(value: Any, replaced: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _moved(one, replaced) for key, one in value.items()}
    if isinstance(value, list):
        return [_moved(one, replaced) for one in value]
    if isinstance(value, str):
        for old, new in replaced.items():
            value = value.replace(old, new)
    return value
