"""What a worker offers, and when."""

import pytest

from workers.offering import Offering


def made(places: int = 20) -> Offering:
    return Offering(pool="p", worker="w", inbox_partition=3, handlers=("a",), places=places)


@pytest.mark.parametrize(
    ("run_ms", "ahead"), [(0, 4_000), (0.1, 4_000), (1, 400), (20, 20), (20.1, 0), (5_000, 0)]
)
def test_ahead_is_what_is_finished_in_20_ms(run_ms: float, ahead: int) -> None:
    offering = made()
    assert offering.ahead == 0, "nothing is known before the first run"
    offering.ran(run_ms)
    assert offering.ahead == ahead


def test_a_single_long_run_among_short_ones_does_not_change_much_but_many_do() -> None:
    offering = made()
    for _ in range(200):
        offering.ran(0.5)
    offering.ran(100)
    assert offering.ahead > 0
    for _ in range(200):
        offering.ran(100)
    assert offering.ahead == 0


def test_offers_are_numbered_and_come_every_five_seconds() -> None:
    offering = made()
    offering.offer(1_000)
    assert offering.due_ms() == 6_000
    second = offering.offer(6_000)
    assert (second.n, second.places, second.ahead, second.draining) == (2, 20, 0, False)


def test_a_change_is_offered_soon_but_not_at_every_step() -> None:
    offering = made()
    offering.offer(1_000)
    offering.ran(1)
    assert offering.due_ms() == 1_100
    assert offering.offer(1_100).ahead == 400
    assert offering.due_ms() == 6_100
    offering.drain()
    assert offering.due_ms() == 1_200
    last = offering.offer(1_200)
    assert (last.places, last.ahead, last.draining) == (0, 0, True)


def test_what_was_offered_lately_may_still_come() -> None:
    offering = made(places=2)
    offering.ran(1)
    offering.offer(1_000)
    for _ in range(500):
        offering.ran(1_000)
    offering.offer(2_000)
    assert offering.room(2_000) == 42
    assert offering.room(13_000) == 2
