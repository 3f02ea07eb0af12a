"""Declaring handlers and jobs beside the code they run.

    from horolog import App, Context

    app = App()

    @app.schedule(cron="0 9 * * 1-5", timezone="Europe/London", payload={"region": "uk"})
    @app.task("close-day")
    def close_day(ctx: Context, region: str) -> dict[str, str]:
        ...

`horolog worker jobs:app` runs it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from workers.handlers import BadHandler, Handler

Function = TypeVar("Function", bound=Callable[..., Any])

HANDLER_CHARS_MAX: Final = 128
_PARTS: Final = ("cron", "every", "at")


class App:
    """Handlers by name, and jobs declared beside them. Holds nothing open and starts nothing."""

    def __init__(self, *, pool: str = "default") -> None:
        """`pool` is where declared jobs send their work; start the worker with the same."""
        self.pool: Final = pool
        self._handlers: dict[str, Handler] = {}
        self._declared: list[dict[str, Any]] = []

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Every handler by its name."""
        return self._handlers

    def task(self, name: str) -> Callable[[Function], Function]:
        """Make a function the handler `name`; it stays as callable as it was.

        Its parameters are the keys of the job's payload, a JSON object: checked and converted by
        their type hints before the function is called. One named `ctx`, or annotated `Context`,
        gets the context. What it returns is the result: JSON of at most 4,096 bytes. Raise `Fail`
        to fail with a message; any other exception fails with its traceback. Coroutine functions
        run on an event loop, others on threads.

        Raises `TypeError` for a function that cannot be called by name, `ValueError` for a name
        that is taken.
        """
        if not name or len(name) > HANDLER_CHARS_MAX or not name.isprintable():
            raise ValueError(f"handler name {name!r}: 1 to {HANDLER_CHARS_MAX} characters")

        def register(function: Function) -> Function:
            if name in self._handlers:
                raise ValueError(f"handler {name!r} is registered twice")
            self._handlers[name] = Handler(name, function)
            return function

        return register

    def schedule(
        self,
        *,
        cron: str | None = None,
        every: str | None = None,
        at: str | None = None,
        timezone: str | None = None,
        job: str | None = None,
        payload: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Callable[[Function], Function]:
        """Declare a job that runs this handler; stands above `@app.task(…)`.

        `job` is the job's id, the handler's name unless given. `more` goes into the definition as
        it is (`concurrency="allow"`, `late_tolerance="5m"` …). The job is put when a worker
        starts: once more changes nothing, and the scheduler says what is wrong with it.
        """
        given = {"cron": cron, "every": every, "at": at}
        schedule = {key: value for key, value in given.items() if value is not None}
        if len(schedule) != 1:
            raise ValueError(f"give exactly one of {', '.join(_PARTS)}; here: {list(schedule)}")
        if timezone is not None:
            schedule["timezone"] = timezone

        def declare(function: Function) -> Function:
            handler = self._handler_of(function)
            definition: dict[str, Any] = {
                "schedules": [schedule],
                "target": {"worker": {"handler": handler.name, "pool": self.pool}},
                **more,
            }
            if payload is not None:
                definition["payload"] = dict(payload)
            self._declare(job or handler.name, definition)
            return function

        return declare

    def declared(self) -> list[dict[str, Any]]:
        """The declared jobs: each a dictionary with `job` and `definition`."""
        return [dict(one) for one in self._declared]

    def _declare(self, job: str, definition: dict[str, Any]) -> None:
        """A second schedule of the same job and handler joins the first."""
        for known in self._declared:
            if known["job"] != job:
                continue
            rest = {key: value for key, value in definition.items() if key != "schedules"}
            if rest != {k: v for k, v in known["definition"].items() if k != "schedules"}:
                raise ValueError(f"job {job!r} is declared twice, and differently")
            known["definition"]["schedules"] += definition["schedules"]
            return
        self._declared.append({"job": job, "definition": definition})

    def _handler_of(self, function: Callable[..., Any]) -> Handler:
        for handler in self._handlers.values():
            if handler.function is function:
                return handler
        raise BadHandler(
            f"{getattr(function, '__qualname__', function)} is no handler yet: "
            "put @app.schedule(…) above @app.task(…)"
        )
