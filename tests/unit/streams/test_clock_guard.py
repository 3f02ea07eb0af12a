"""Whether the wall clock may be trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.limits import CLOCK_ALONE_AGREEMENT_MS, CLOCK_SKEW_MS_MAX
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


def agree_for(guard: ClockGuard, clock: ManualClock, ms: int) -> None:
    """Marks that agree, a second apart, over so long."""
    until_ms = clock.boottime_ms() + ms
    while clock.boottime_ms() < until_ms:
        clock.advance(min(1_000, until_ms - clock.boottime_ms()))
        sample(guard, clock, 0, took_ms=0)


@pytest.mark.parametrize("ms", [2_100, -2_100, 86_400_000, -3_600_000])
def test_a_wall_clock_that_jumps_holds_until_it_is_set_right_and_agreed_for_a_while(
    ms: int,
) -> None:
    clock = ManualClock()
    guard = sampled(clock, 0)
    clock.jump(ms)
    assert not guard.agrees()
    sample(guard, clock, -ms)
    assert not guard.agrees(), "the mark says that we were right before"
    clock.jump(-ms)
    sample(guard, clock, 0)
    agree_for(guard, clock, CLOCK_ALONE_AGREEMENT_MS - 1)
    assert not guard.agrees()
    agree_for(guard, clock, 1)
    assert guard.agrees()


@pytest.mark.parametrize("ms", [60_000, -60_000])
def test_a_broker_that_went_along_with_the_jump_is_believed_after_thirty_seconds(ms: int) -> None:
    """On one machine both clocks are one."""
    alarms: list[tuple[str, dict[str, object]]] = []
    clock = ManualClock()
    guard = ClockGuard(clock, lambda event, **values: alarms.append((event, values)))
    sample(guard, clock, 0)
    clock.jump(ms)
    sample(guard, clock, 0)
    agree_for(guard, clock, CLOCK_ALONE_AGREEMENT_MS - 100)
    assert not guard.agrees() and guard.disagreed_ms() == 0
    agree_for(guard, clock, 1_000)
    assert guard.agrees()
    assert [event for event, _ in alarms] == ["clock_held", "clock_trusted_again"]
    assert alarms[0][1] == {"jump_ms": ms}


def test_a_jump_between_two_marks_is_seen_although_nobody_asked() -> None:
    clock = ManualClock()
    guard = sampled(clock, 0)
    clock.jump(10_000)
    sample(guard, clock, 0)
    assert not guard.agrees()


def test_the_thirty_seconds_begin_again_with_every_disagreement_and_every_jump() -> None:
    clock = ManualClock()
    guard = sampled(clock, 5_000)
    for disturb in (lambda: sample(guard, clock, 5_000), lambda: clock.jump(4_000)):
        agree_for(guard, clock, CLOCK_ALONE_AGREEMENT_MS - 2_000)
        disturb()
        agree_for(guard, clock, CLOCK_ALONE_AGREEMENT_MS - 2_000)
        assert not guard.agrees()
    agree_for(guard, clock, 3_000)
    assert guard.agrees()


def test_a_clock_that_is_wrong_at_the_start_holds_and_says_for_how_long() -> None:
    clock = ManualClock()
    guard = sampled(clock, -3_600_000)
    for _ in range(12):
        clock.advance(1_000)
        sample(guard, clock, -3_600_000, took_ms=0)
    assert not guard.agrees()
    assert guard.disagreed_ms() == 12_000
    sample(guard, clock, 0, took_ms=0)
    assert guard.disagreed_ms() == 0


@pytest.mark.parametrize("year_ms", [2_147_483_648_000, 4_294_967_296_000, 253_402_300_000_000])
def test_no_year_is_special(year_ms: int) -> None:
    """2038, 2106 and 9999."""
    clock = ManualClock(year_ms - 2)
    assert sampled(clock, 0).agrees()
    assert not sampled(clock, 2_003).agrees()


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
