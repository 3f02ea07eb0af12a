"""Which Horolog a program means, found with the standard library alone.

The same words as the server's settings: `KAFKA_BOOTSTRAP_SERVERS`, `HOROLOG_…` of the environment,
then `horolog.toml` (or the file that `HOROLOG_CONFIG` names), then the defaults.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas import limits

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
CONFIG_FILE: Final = "horolog.toml"

ClientValue = str | int | float | bool


class Unsettled(ValueError):
    """Settings that cannot be used; the message names where they came from."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """A Kafka, and a Horolog in it. `client` may hold credentials: it is never shown. `lease_ms` is
    the installation's: its schedulers and workers must agree on it."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    namespace: str = "horolog"
    tenant: str = "default"
    client: Mapping[str, ClientValue] = {}
    lease_ms: int = limits.LEASE_MS

    def __repr__(self) -> str:
        return f"Where({self.bootstrap!r}, namespace={self.namespace!r}, tenant={self.tenant!r})"


def find(
    *, bootstrap: str | None = None, namespace: str | None = None, tenant: str | None = None,
    client: Mapping[str, ClientValue] | None = None, env: Mapping[str, str] | None = None,
) -> Where:  # fmt: skip
    """What is given, else what the environment says, else the file. Raises `Unsettled`."""
    env = os.environ if env is None else env
    written = _file(env)
    kafka = written.get("kafka", {})
    if not isinstance(kafka, dict):
        raise Unsettled("kafka in the settings file: must be a table")
    found = {
        "bootstrap": bootstrap
        or env.get("KAFKA_BOOTSTRAP_SERVERS", "").strip()
        or env.get("HOROLOG_KAFKA__BOOTSTRAP")
        or kafka.get("bootstrap")
        or DEFAULT_BOOTSTRAP,
        "namespace": namespace
        or env.get("HOROLOG_NAMESPACE")
        or written.get("namespace")
        or "horolog",
        "tenant": tenant or env.get("HOROLOG_TENANT") or written.get("tenant") or "default",
        "lease_ms": env.get("HOROLOG_LEASE_MS") or written.get("lease_ms") or limits.LEASE_MS,
        "client": client if client is not None else _client(env, kafka),
    }
    try:
        return msgspec.convert(found, Where, strict=False)
    except msgspec.ValidationError as error:
        raise Unsettled(f"settings: {error}") from None


def _file(env: Mapping[str, str]) -> dict[str, Any]:
    named = env.get("HOROLOG_CONFIG")
    path = Path(named or CONFIG_FILE)
    if named is None and not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise Unsettled(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Unsettled(f"{path}: is no TOML: {error}") from error


def _client(env: Mapping[str, str], kafka: dict[str, Any]) -> Any:
    text = env.get("HOROLOG_KAFKA__CLIENT")
    if text is None:
        return kafka.get("client", {})
    try:
        return json.loads(text)
    except ValueError as error:
        raise Unsettled(f"HOROLOG_KAFKA__CLIENT: is no JSON: {error}") from error
