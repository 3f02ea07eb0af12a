"""Whether the wall clock may be trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.limits import CLOCK_SKEW_MS_MAX
from streams.clockguard import ClockGuard
from streams.memory import ManualClock


def sampled(clock: ManualClock, broker_minus_wall_ms: int, took_ms: int = 4) -> ClockGuard:
    """A guard that saw one mark, appended half-way through its commit."""
    guard = ClockGuard(clock)
    sample(guard, clock, broker_minus_wall_ms, took_ms)
    return guard


def sample(guard: ClockGuard, clock: ManualClock, ahead_ms: int, took_ms: int = 4) -> None:
    before = clock.wall_ms()
    clock.advance(took_ms)
    guard.sample(before, before + took_ms // 2 + ahead_ms, clock.wall_ms())


def test_nothing_is_trusted_before_the_first_mark() -> None:
    guard = ClockGuard(ManualClock())
    assert not guard.agrees() and guard.skew_ms is None


@pytest.mark.parametrize(("ahead_ms", "agrees"), [(0, True), (2_000, True), (-2_000, True),
                                                  (2_003, False), (-2_003, False),
                                                  (3_600_000, False)])  # fmt: skip
def test_clocks_may_differ_by_two_seconds(ahead_ms: int, agrees: bool) -> None:
    assert sampled(ManualClock(), ahead_ms).agrees() is agrees


@pytest.mark.parametrize("ms", [2_100, -2_100, 86_400_000])
def test_a_wall_clock_that_jumps_holds_until_the_next_mark_agrees(ms: int) -> None:
    clock = ManualClock()
    guard = sampled(clock, 0)
    clock.jump(ms)
    assert not guard.agrees()
    sample(guard, clock, -ms)
    assert not guard.agrees(), "the mark says that we were right before"
    clock.jump(-ms)
    sample(guard, clock, 0)
    assert guard.agrees()


def test_a_broker_that_went_along_with_the_jump_is_believed() -> None:
    clock = ManualClock()
    guard = sampled(clock, 0)
    clock.jump(60_000)
    sample(guard, clock, 0)
    assert guard.agrees()


def test_time_that_passes_awake_or_asleep_is_no_jump() -> None:
    clock = ManualClock()
    guard = sampled(clock, 0)
    clock.advance(10_000_000)
    assert guard.agrees()
    clock.suspend(10_000_000)
    assert guard.agrees()


def test_small_steps_add_up_to_a_jump() -> None:
    clock = ManualClock()
    guard = sampled(clock, 0)
    for _ in range(3):
        clock.jump(700)
    assert not guard.agrees()


@given(st.integers(-10_000, 10_000), st.integers(0, 20_000), st.integers(0, 1_000))
def test_the_skew_is_never_overstated(ahead_ms: int, took_ms: int, part: int) -> None:
    """However long a commit took, clocks that agree are not said to differ."""
    guard = ClockGuard(clock := ManualClock())
    before = clock.wall_ms()
    clock.advance(took_ms)
    appended = before + took_ms * part // 1_000
    guard.sample(before, appended + ahead_ms, clock.wall_ms())
    assert guard.skew_ms is not None
    assert 0 <= guard.skew_ms <= abs(ahead_ms)
    assert guard.agrees() == (guard.skew_ms <= CLOCK_SKEW_MS_MAX)
