"""Settings of every Horolog process, read once at its start.

A flag comes before the environment (`HOROLOG_…`, nested by `__`), the environment before
`horolog.toml` (or the file that `HOROLOG_CONFIG` names), that before the defaults.
`KAFKA_BOOTSTRAP_SERVERS` is the environment's word for `kafka.bootstrap` that comes first. What
stands under `kafka.client` goes verbatim to every Kafka client and is never shown.
"""

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from schemas import limits
from schemas.replies import Problem
from streams.topics import check_namespace

PREFIX: Final = "HOROLOG_"
BOOTSTRAP_VARIABLE: Final = "KAFKA_BOOTSTRAP_SERVERS"
CONFIG_FILE: Final = "horolog.toml"
PARTITIONS_MAX: Final = 1_024
SCHEDULERS_MAX: Final = 32
LEASE_MS_MIN: Final = 2_000
LEASE_MS_MAX: Final = 600_000

_NOT_SETTINGS: Final = frozenset({"HOROLOG_CONFIG", "HOROLOG_JAVA", "HOROLOG_CRASH"})
# Kubernetes puts these into the environment of every container beside a service named `horolog`.
_SERVICE_LINKS: Final = ("HOROLOG_PORT", "HOROLOG_SERVICE_")
_FILE: Final = "file_"

ClientValue = str | int | float | bool


class BadSettings(Exception):
    """Settings that cannot be used. Tell the operator all `problems` and end."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{p.field}: {p.message}" for p in problems))
        self.problems = problems


class KafkaSettings(BaseModel):
    """The Kafka that is used. `client` may hold credentials: it is in no repr, dump or error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    bootstrap: str = ""
    client: dict[str, ClientValue] = Field(default={}, repr=False, exclude=True)

    @field_validator("client")
    @classmethod
    def _one_address(cls, client: dict[str, ClientValue]) -> dict[str, ClientValue]:
        if "bootstrap.servers" in client:
            raise ValueError("bootstrap.servers is set by kafka.bootstrap")
        return client


def _parted(value: object) -> object:
    """A list as the environment has it: with commas, or as JSON."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return json.loads(value)
    return [part.strip() for part in value.split(",") if part.strip()]


class HttpSettings(BaseModel):
    """What HTTP targets may be called. Unless named here: https to public addresses only."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    allowed_cidrs: Annotated[tuple[str, ...], NoDecode] = ()
    allow_plain_http: bool = False

    @field_validator("allowed_cidrs", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return _parted(value)

    @field_validator("allowed_cidrs")
    @classmethod
    def _networks(cls, cidrs: tuple[str, ...]) -> tuple[str, ...]:
        for cidr in cidrs:
            ip_network(cidr, strict=False)
        return cidrs


class GatewaySettings(BaseModel):
    """Where the gateway answers. Nobody proves who he is yet, so beyond this machine it answers
    only where `insecure_without_auth` says that this is known."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65_535)
    """0: any that is free."""
    insecure_without_auth: bool = False
    names: Annotated[tuple[str, ...], NoDecode] = ()
    """Names by which one that others reach is called; none: any. Pages of other sites that a
    browser has open could otherwise come to it by a name of theirs."""

    @field_validator("names", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return _parted(value)

    @property
    def address(self) -> str:
        """Host and port as they stand in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback_host(self.host)


class MonitorSettings(BaseModel):
    """Where a service answers probes and Prometheus; the gateway does so on its own port."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    """0: nowhere."""


class Settings(BaseSettings):
    """Which Horolog this is, where its data is, and which Kafka it uses."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    namespace: str = "horolog"
    partitions: int = Field(default=12, ge=1, le=PARTITIONS_MAX)
    schedulers: int = Field(default=2, ge=1, le=SCHEDULERS_MAX)
    """Processes that `horolog up` decides with: they share the partitions, and while one is gone
    the others go on with theirs."""
    data_dir: Path = Path(".horolog")
    tenant: str = "default"
    lease_ms: int = Field(default=limits.LEASE_MS, ge=LEASE_MS_MIN, le=LEASE_MS_MAX)
    """How long a worker may be silent before its work is given to another: the same on every
    scheduler and worker of an installation."""
    kafka: KafkaSettings = KafkaSettings()
    http: HttpSettings = HttpSettings()
    gateway: GatewaySettings = GatewaySettings()
    monitor: MonitorSettings = MonitorSettings()
    _config_file: Path | None = PrivateAttr(default=None)
    _given: Mapping[str, Any] = PrivateAttr(default={})

    @field_validator("namespace")
    @classmethod
    def _usable(cls, namespace: str) -> str:
        return check_namespace(namespace)

    @property
    def broker_dir(self) -> Path:
        """Where the embedded broker keeps its data."""
        return self.data_dir / "broker"

    @property
    def config_file(self) -> Path | None:
        """The settings file that was read, if any."""
        return self._config_file

    @property
    def given(self) -> Mapping[str, Any]:
        """What was given by flags, nested as in the file."""
        return self._given

    def state_dir(self, member: str) -> Path:
        """Where one scheduler keeps its stores; they can be rebuilt from the log."""
        return self.data_dir / "state" / self.namespace / member

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del dotenv_settings, file_secret_settings
        assert isinstance(init_settings, InitSettingsSource)
        from_file = init_settings.init_kwargs.pop(_FILE, {})
        servers = os.environ.get(BOOTSTRAP_VARIABLE, "").strip()
        first = {"kafka": {"bootstrap": servers}} if servers else {}
        return (
            init_settings,
            InitSettingsSource(settings_cls, first),
            env_settings,
            InitSettingsSource(settings_cls, from_file),
        )


def is_loopback_host(host: str) -> bool:
    """Whether this address is the machine's own, which nobody else reaches."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def load(flags: Mapping[str, Any] | None = None, config: Path | None = None) -> Settings:
    """The settings of this process. `flags` are nested as in the file; None means not given.

    Raises `BadSettings` with every problem, each naming where the value came from.
    """
    path = _config_path(config)
    written = read_file(path) if path is not None else {}
    problems = list(_unknown_variables(os.environ))
    given = _given(flags or {})
    try:
        settings = Settings.model_validate(given | {_FILE: written})
    except ValidationError as invalid:
        found = invalid.errors(include_url=False, include_context=False, include_input=False)
        problems += [_told(error, written, path) for error in found]
    except SettingsError as error:
        problems.append(Problem("environment", str(error), "write lists and tables as JSON"))
    if problems:
        raise BadSettings(tuple(dict.fromkeys(problems)))
    settings._config_file, settings._given = path, given
    return settings


def _config_path(config: Path | None) -> Path | None:
    """The file to read: one that was named must be there, the default one need not."""
    named = config or (Path(text) if (text := os.environ.get("HOROLOG_CONFIG", "")) else None)
    if named is not None:
        return named
    return Path(CONFIG_FILE) if Path(CONFIG_FILE).is_file() else None


def read_file(path: Path) -> dict[str, Any]:
    """What a settings file says. Raises `BadSettings` if it cannot be read."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadSettings((Problem(str(path), f"cannot be read: {error.strerror}"),)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings((Problem(str(path), f"is no TOML: {error}"),)) from error


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    given = {
        name: _given(value) if isinstance(value, Mapping) else value
        for name, value in flags.items()
        if value is not None
    }
    return {name: value for name, value in given.items() if value != {}}


def _unknown_variables(env: Mapping[str, str]) -> Iterator[Problem]:
    """Variables with our prefix that name no setting: a typing error must not pass in silence."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in env:
        top = name.upper().partition("__")[0]
        if not top.startswith(PREFIX) or top in known or top in _NOT_SETTINGS:
            continue
        if top.startswith(_SERVICE_LINKS):
            continue
        yield Problem(name, "is no setting", _did_you_mean(top, known | _NOT_SETTINGS))


def _told(error: Any, written: Mapping[str, Any], path: Path | None) -> Problem:
    """A validation error in the words of whoever wrote the value, without the value."""
    parts = [str(part) for part in error["loc"]]
    field = _field_of(parts)
    origin = _origin(parts, written, path)
    if error["type"] == "extra_forbidden":
        siblings = KafkaSettings.model_fields if parts[0] == "kafka" else Settings.model_fields
        prefix = "kafka." if parts[0] == "kafka" and len(parts) > 1 else ""
        hint = _did_you_mean(field, {f"{prefix}{name}" for name in siblings})
        return Problem(field, f"is no setting{origin}", hint)
    if field.startswith("kafka.client."):
        hint = 'write the whole name in quotes: "queue.buffering.max.ms" = 5'
        return Problem(field, f"is no text, number or boolean{origin}", hint)
    message = error["msg"].removeprefix("Value error, ")
    return Problem(field, f"{message[:1].lower()}{message[1:]}{origin}")


def _field_of(parts: list[str]) -> str:
    """Path of a setting; of a client setting without the kinds that were tried in vain."""
    return ".".join(parts[:3] if parts[:2] == ["kafka", "client"] else parts)


def _origin(parts: list[str], written: Mapping[str, Any], path: Path | None) -> str:
    variable = PREFIX + "__".join(parts).upper()
    for name in os.environ:
        if variable == name.upper() or variable.startswith(f"{name.upper()}__"):
            return f" (environment: {name})"
    found: Any = written
    for part in parts[:2]:
        found = found.get(part) if isinstance(found, Mapping) else None
    return f" (in {path})" if found is not None else ""


def _did_you_mean(name: str, known: "set[str] | frozenset[str]") -> str:
    close = get_close_matches(name, sorted(known), n=1)
    return f"did you mean {close[0]}?" if close else "known are " + ", ".join(sorted(known))
