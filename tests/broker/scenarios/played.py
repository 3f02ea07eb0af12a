"""Scenarios mostly wait, so several of them are played at a time, each in a world of its own.

A test that is marked as `scenario` is written like any other; what runs in its place waits for
the outcome of the play, which began earlier, and fails as the play did.
"""

import inspect
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.broker.scenarios.world import World

AT_A_TIME = 4

Play = Callable[..., None]


def scenario(*, partitions: int = 1) -> Callable[[Play], Play]:
    """Play this test, whose first argument is its world, beside others."""

    def mark(play: Play) -> Play:
        def test(request: pytest.FixtureRequest, plays: Plays, **_: Any) -> None:
            plays.outcome(request.node)

        rest = list(inspect.signature(play).parameters.values())[1:]
        own = list(inspect.signature(test).parameters.values())[:2]
        test.__signature__ = inspect.Signature(own + rest)  # type: ignore[attr-defined]
        test.__name__, test.__doc__, test.__module__ = play.__name__, play.__doc__, play.__module__
        test.play, test.partitions = play, partitions  # type: ignore[attr-defined]
        return test

    return mark


def is_scenario(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "function", None), "play")


class Plays:
    """The plays of all scenarios of a session, begun in the order in which their tests stand."""

    def __init__(self, items: Iterable[pytest.Item], bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._outcomes: dict[str, Future[None]] = {
            item.nodeid: self._pool.submit(self._play, item)
            for item in items
            if isinstance(item, pytest.Function) and is_scenario(item)
        }

    def outcome(self, item: pytest.Item) -> None:
        self._outcomes[item.nodeid].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _play(self, item: pytest.Function) -> None:
        namespace = f"test-{uuid.uuid4().hex[:12]}"
        function: Any = item.function
        world = World(self._bootstrap, namespace, self._folder / namespace, function.partitions)
        arguments = item.callspec.params if hasattr(item, "callspec") else {}
        try:
            function.play(world, **arguments)
        except BaseException as error:
            error.add_note(world.newest_lines())
            raise
        finally:
            world.close()
