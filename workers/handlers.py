"""User code as a worker sees it: handlers, what they are called with, how they say no."""

import inspect
import traceback
import typing
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from schemas import limits

from .wire import Run

CONTEXT: Final = "ctx"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_Kind = inspect.Parameter


class Fail(Exception):
    """Raise it to end a run as failed, with a message for people instead of a traceback.

    With `retry=False` the job is not tried again, whatever its retry policy says.
    """

    def __init__(self, message: str, *, retry: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.retry = retry


class Context:
    """What a handler knows about its run.

    `execution_id` is the same whenever this attempt is delivered again, `occurrence` also for
    later attempts: use one of them to do a thing once. `fence` grows with every delivery of the
    job; a store that refuses lower ones is safe from a run that was given up. Make one yourself
    to call a handler in a test: `Context(tenant="acme", job="report")`.
    """

    __slots__ = (
        "_heard", "_report", "_scheduled_ms", "_stopped", "attempt", "delivery", "execution_id",
        "fence", "job", "occurrence", "previous_outcome", "tenant",
    )  # fmt: skip

    def __init__(
        self,
        *,
        tenant: str = "default",
        job: str = "",
        scheduled_at: datetime | None = None,
        attempt: int = 1,
        delivery: int = 1,
        fence: int = 0,
        occurrence: str = "",
        execution_id: str = "",
        previous_outcome: str = "",
    ) -> None:
        self.tenant: Final = tenant
        self.job: Final = job
        self.attempt: Final = attempt
        self.delivery: Final = delivery
        self.fence: Final = fence
        self.occurrence: Final = occurrence
        self.execution_id: Final = execution_id
        self.previous_outcome: Final = previous_outcome
        """`unknown` when the last delivery or attempt may have had its effect; else empty."""
        at = scheduled_at or _EPOCH
        self._scheduled_ms = (at - _EPOCH) // timedelta(milliseconds=1)
        self._stopped = False
        self._heard = False
        self._report: Callable[[str], None] | None = None

    @property
    def scheduled_at(self) -> datetime:
        """The nominal time of this run, in UTC."""
        return _EPOCH + timedelta(milliseconds=self._scheduled_ms)

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the execution was cancelled, the worker is ending, or the lease is
        lost. A long handler asks now and then, cleans up and returns; it is not taken as done."""
        if self._stopped:
            self._heard = True
        return self._stopped

    def heartbeat(self, progress: str = "") -> None:
        """Say how far the run is; seen in its history. The lease needs no help: it is renewed as
        long as the worker lives. What is longer than 1,024 bytes is cut."""
        if self._report is not None:
            self._report(cut(progress, limits.PROGRESS_BYTES_MAX))


def context_of(run: Run, report: Callable[[str], None]) -> Context:
    """The context of a run. Made for each, so without the detour over keyword arguments."""
    context = Context.__new__(Context)
    context.tenant = run.tenant  # type: ignore[misc]
    context.job = run.job  # type: ignore[misc]
    context.attempt = run.attempt  # type: ignore[misc]
    context.delivery = run.delivery  # type: ignore[misc]
    context.fence = run.fence  # type: ignore[misc]
    context.occurrence = run.occurrence  # type: ignore[misc]
    context.execution_id = run.execution_id  # type: ignore[misc]
    context.previous_outcome = run.previous_outcome  # type: ignore[misc]
    context._scheduled_ms = run.scheduled_at
    context._stopped = context._heard = False
    context._report = report
    return context


def tell(context: Context) -> None:
    """Let the run know that it is to stop."""
    context._stopped = True


def heard(context: Context) -> bool:
    """Whether the run asked after it was told to stop."""
    return context._heard


class BadHandler(TypeError):
    """A function that cannot be a handler, with the reason. Change the function."""


class BadArguments(Exception):
    """The payload does not fit the handler's parameters; `str` of it names all that is wrong."""


class Handler:
    """A function of the user's under its name, with parameters known by their type hints.

    Raises `BadHandler` for a function that cannot be called with a JSON object.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.usual_ns = 1_000_000_000
        """How long its last run took; at first taken to be long."""
        self._where = f"handler {name!r} ({getattr(function, '__qualname__', function)})"
        self._parameters = self._read_parameters()
        self.context_name = CONTEXT if self._has(CONTEXT) else None
        """The parameter that takes the context, once the type hints were read."""
        self._arguments: type[msgspec.Struct] | None = None
        self._decode: Callable[[bytes], Any] | None = None
        self._open = any(p.kind is _Kind.VAR_KEYWORD for p in self._parameters)

    def resolve(self) -> None:
        """Read the type hints. At the latest when a worker starts: hints may name what is defined
        below the function. Raises `BadHandler`."""
        try:
            hints = typing.get_type_hints(self.function, include_extras=True)
        except Exception as error:
            raise BadHandler(f"{self._where}: a type hint cannot be read: {error}") from error
        if self.context_name is None:
            named = (name for name, hint in hints.items() if hint is Context)
            self.context_name = next((name for name in named if self._has(name)), None)
        fields: list[tuple[Any, ...]] = []
        for parameter in self._parameters:
            if parameter.name == self.context_name or parameter.kind is _Kind.VAR_KEYWORD:
                continue
            kind = hints.get(parameter.name, Any)
            if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
                raise BadHandler(
                    f"{self._where}: nothing in JSON becomes a {kind!r} for parameter "
                    f"{parameter.name!r}; use a dataclass or a type of the standard library"
                )
            if parameter.default is _Kind.empty:
                fields.append((parameter.name, kind))
            else:
                default = parameter.default
                fields.append((parameter.name, kind, msgspec.field(default_factory=_same(default))))
        try:
            self._arguments = msgspec.defstruct(
                "Arguments", fields, kw_only=True, forbid_unknown_fields=not self._open
            )
            self._decode = msgspec.json.Decoder(self._arguments).decode
        except TypeError as error:
            raise BadHandler(f"{self._where}: {error}") from error

    def arguments(self, payload: bytes, content_type: str) -> dict[str, Any]:
        """Keyword arguments from a JSON object, converted by the type hints. Raises
        `BadArguments`, which names everything that is wrong."""
        if self._decode is None:
            self.resolve()
        assert self._decode is not None and self._arguments is not None
        if not payload and not self._open:
            payload = b"{}"
        if not self._open:
            try:
                return msgspec.structs.asdict(self._decode(payload))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return self._slowly(payload, content_type)
        return self._slowly(payload or b"{}", content_type)

    def _slowly(self, payload: bytes, content_type: str) -> dict[str, Any]:
        """As `arguments`, one by one: with further keywords, or to tell all that is wrong."""
        assert self._arguments is not None
        try:
            given = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            told = f" (content type {content_type})" if content_type else ""
            raise BadArguments(f"the payload is no JSON{told}: {error}") from None
        if not isinstance(given, dict):
            found = type(given).__name__
            raise BadArguments(f"the payload must be a JSON object, one key a parameter: {found}")
        fields = {f.name: f for f in msgspec.structs.fields(self._arguments)}
        problems: list[str] = []
        values: dict[str, Any] = {}
        for name, field in fields.items():
            if name not in given:
                if field.required:
                    problems.append(f"{name}: is missing")
                elif field.default_factory is not msgspec.NODEFAULT:
                    values[name] = field.default_factory()
                continue
            try:
                values[name] = msgspec.convert(given[name], field.type)
            except msgspec.ValidationError as error:
                problems.append(f"{name}: {error}")
        extra = [name for name in given if name not in fields]
        if self._open:
            values |= {name: given[name] for name in extra}
        else:
            known = ", ".join(fields) or "none"
            problems += [f"{name}: is no parameter; there are: {known}" for name in extra]
        if problems:
            raise BadArguments("; ".join(problems))
        return values

    def _read_parameters(self) -> list[inspect.Parameter]:
        if not callable(self.function):
            raise BadHandler(f"{self._where}: is no function")
        if inspect.isasyncgenfunction(self.function) or inspect.isgeneratorfunction(self.function):
            raise BadHandler(f"{self._where}: is a generator; return the result instead")
        try:
            parameters = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError) as error:
            raise BadHandler(f"{self._where}: its parameters cannot be read: {error}") from error
        for parameter in parameters:
            if parameter.kind in (_Kind.POSITIONAL_ONLY, _Kind.VAR_POSITIONAL):
                raise BadHandler(
                    f"{self._where}: parameter {parameter.name!r} takes no name, and arguments "
                    "come by name: they are the keys of the payload"
                )
        return parameters

    def _has(self, name: str) -> bool:
        return any(p.name == name and p.kind is not _Kind.VAR_KEYWORD for p in self._parameters)


def _same(value: Any) -> Callable[[], Any]:
    """The parameter's default, as Python gives it to every call."""
    return lambda: value


def failure_of(error: BaseException) -> tuple[str, str, bool]:
    """Reason, detail and whether to try again, of what a handler raised."""
    if isinstance(error, Fail):
        return "error", cut(error.message, limits.DETAIL_BYTES_MAX), error.retry
    text = "".join(traceback.format_exception(error))
    return "error", cut_front(text, limits.DETAIL_BYTES_MAX), True


def result_of(value: Any) -> tuple[str, str, str, bytes]:
    """State, reason, detail and result of a handler that returned `value`: JSON of at most 4,096
    bytes."""
    try:
        result = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        return "FAILED", "error", f"the result is no JSON: {error}", b""
    if len(result) > limits.RESULT_BYTES_MAX:
        detail = (
            f"the result is {len(result)} bytes of JSON, at most {limits.RESULT_BYTES_MAX} are "
            "kept; store it elsewhere and return where it is"
        )
        return "FAILED", "too_large", detail, b""
    return "SUCCEEDED", "", "", result


def cut(text: str, bytes_max: int) -> str:
    """The beginning of the text, within the bytes; broken characters are left out."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= bytes_max else data[:bytes_max].decode("utf-8", "ignore")


def cut_front(text: str, bytes_max: int) -> str:
    """The end of the text, within the bytes."""
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= bytes_max else data[-bytes_max:].decode("utf-8", "ignore")
