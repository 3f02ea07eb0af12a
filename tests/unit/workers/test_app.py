"""Declaring handlers and jobs: what can be one, what it is called with."""

import dataclasses
import datetime as dt
from typing import Any, Literal

import pytest

from horolog import App, Context, Fail
from workers.handlers import BadArguments, BadHandler, Handler
from workers.handlers import Context as SameContext


@dataclasses.dataclass
class Region:
    name: str
    size: int = 1


def arguments(function: Any, payload: bytes) -> dict[str, Any]:
    return Handler("h", function).arguments(payload, "application/json")


def test_a_handler_stays_an_ordinary_function() -> None:
    app = App()

    @app.task("close-day")
    def close_day(ctx: Context, region: str) -> str:
        return f"{ctx.tenant}/{region}/{ctx.cancelled}"

    assert close_day(Context(tenant="ada", job="x"), "uk") == "ada/uk/False"
    assert Context is SameContext
    assert list(app.handlers) == ["close-day"]


def test_arguments_are_converted_by_their_type_hints() -> None:
    def handler(
        day: dt.date, at: dt.datetime, region: Region, kind: Literal["a", "b"], ratio: float = 0.5,
        tags: list[str] | None = None,
    ) -> None: ...  # fmt: skip

    found = arguments(
        handler,
        b'{"day": "2026-03-29", "at": "2026-03-29T01:30:00Z", "region": {"name": "uk"},'
        b' "kind": "a", "ratio": 1}',
    )
    assert found == {
        "day": dt.date(2026, 3, 29), "at": dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC),
        "region": Region("uk"), "kind": "a", "ratio": 1.0, "tags": None,
    }  # fmt: skip


def test_the_context_is_no_argument_under_its_name_or_annotation() -> None:
    def named(ctx, n: int) -> None: ...  # type: ignore[no-untyped-def]
    def annotated(run: Context, n: int) -> None: ...
    def neither(n: int) -> None: ...

    for function, name in ((named, "ctx"), (annotated, "run"), (neither, None)):
        handler = Handler("h", function)
        assert handler.arguments(b'{"n": 1}', "") == {"n": 1}
        assert handler.context_name == name


def test_further_keywords_are_taken_where_the_function_takes_them() -> None:
    def handler(n: int, **rest: object) -> None: ...

    assert arguments(handler, b'{"n": 1, "x": [2]}') == {"n": 1, "x": [2]}


def test_no_payload_is_an_empty_object() -> None:
    def handler(n: int = 3) -> None: ...

    assert arguments(handler, b"") == {"n": 3}


def test_defaults_are_given_as_they_are() -> None:
    marker = object()

    def handler(n: Any = marker, m: dict[str, int] = {}) -> None: ...  # noqa: B006

    assert arguments(handler, b"{}")["n"] is marker


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b'{"n": "x", "extra": 1}', ["n: ", "m: is missing", "extra: is no parameter"]),
        (b"[1]", ["must be a JSON object"]),
        (b"{", ["is no JSON"]),
        (b"\xff", ["is no JSON"]),
    ],
)
def test_everything_wrong_with_a_payload_is_told(payload: bytes, told: list[str]) -> None:
    def handler(n: int, m: int) -> None: ...

    with pytest.raises(BadArguments) as caught:
        arguments(handler, payload)
    for part in told:
        assert part in str(caught.value)


def test_functions_that_cannot_be_called_by_name_are_refused() -> None:
    def positional(n: int, /) -> None: ...
    def star(*n: int) -> None: ...
    def generator() -> Any:
        yield 1

    for function in (positional, star, generator, "text"):
        with pytest.raises(BadHandler):
            Handler("h", function)  # type: ignore[arg-type]


def test_a_name_is_taken_once() -> None:
    app = App()
    app.task("a")(lambda: None)
    with pytest.raises(ValueError, match="twice"):
        app.task("a")(lambda: None)
    with pytest.raises(ValueError, match="128 characters"):
        app.task("")


def test_a_declared_job_runs_the_handler_it_stands_on() -> None:
    app = App(pool="reports")

    @app.schedule(cron="0 18 * * 1-5", timezone="Europe/London", payload={"region": "uk"})
    @app.schedule(every="1h", timezone=None, payload={"region": "uk"})
    @app.task("close-day")
    def close_day(region: str) -> None: ...

    assert app.declared() == [
        {
            "job": "close-day",
            "definition": {
                "schedules": [
                    {"every": "1h"}, {"cron": "0 18 * * 1-5", "timezone": "Europe/London"}
                ],
                "target": {"worker": {"handler": "close-day", "pool": "reports"}},
                "payload": {"region": "uk"},
            },
        }
    ]  # fmt: skip


def test_schedule_asks_for_a_handler_and_for_one_time() -> None:
    app = App()
    with pytest.raises(TypeError, match=r"above @app\.task"):
        app.schedule(every="1h")(lambda: None)
    with pytest.raises(ValueError, match="exactly one"):
        app.schedule()
    with pytest.raises(ValueError, match="exactly one"):
        app.schedule(every="1h", cron="* * * * *")


def test_a_job_declared_twice_and_differently_is_refused() -> None:
    app = App()

    @app.task("a")
    def one() -> None: ...

    app.schedule(every="1h", job="j")(one)
    with pytest.raises(ValueError, match="differently"):
        app.schedule(every="2h", job="j", payload={"x": 1})(one)


def test_fail_says_whether_to_try_again() -> None:
    assert Fail("x").retry
    assert not Fail("x", retry=False).retry
    assert str(Fail("no such region")) == "no such region"
