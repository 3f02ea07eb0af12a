"""The auditor's own reading of schedules and the scheduler's agree, tick for tick."""

from hypothesis import given
from hypothesis import strategies as st

from processors.core.schedule import (
    AtSchedule,
    CronSchedule,
    EverySchedule,
    Schedule,
    count_ticks,
    next_tick,
)
from projections.audit.windows import Plan, Windows
from schemas import state

BASE_MS = 1_774_742_400_000  # some hours before clocks in Europe go forward
CRONS = ("* * * * *", "*/7 1-4 * * *", "0 2 * * *", "30 1,2,3 * * SUN", "@daily", "*/20 * * * * *")
ZONES = ("UTC", "Europe/Paris", "America/Havana", "Asia/Kathmandu")

crons = st.builds(
    lambda cron, zone, gap, repeat: (
        state.Schedule(kind="cron", cron=cron, timezone=zone, gap=gap, repeat=repeat),
        CronSchedule(cron=cron, timezone=zone, gap=gap, repeat=repeat),
    ),
    st.sampled_from(CRONS), st.sampled_from(ZONES),
    st.sampled_from(("auto", "next", "skip", "shift")),
    st.sampled_from(("auto", "first", "second", "both")),
)  # fmt: skip
everys = st.builds(
    lambda every_ms, anchor_ms: (
        state.Schedule(kind="every", every_ms=every_ms, anchor_ms=BASE_MS + anchor_ms),
        EverySchedule(every_ms=every_ms, anchor_ms=BASE_MS + anchor_ms),
    ),
    st.integers(1_000, 10_000_000), st.integers(-(10**9), 10**9),
)  # fmt: skip
ats = st.builds(
    lambda at_ms: (
        state.Schedule(kind="at", at_ms=BASE_MS + at_ms), AtSchedule(at_ms=BASE_MS + at_ms)
    ),
    st.integers(-(10**7), 10**8),
)  # fmt: skip
plans = st.lists(st.one_of(crons, everys, ats), min_size=1, max_size=3)


@given(plans, st.lists(st.integers(0, 10**8), min_size=1, max_size=8))
def test_next_ticks_and_counts_agree(
    plan: list[tuple[state.Schedule, Schedule]], asked: list[int]
) -> None:
    mine = Plan(tuple(stored for stored, _ in plan))
    theirs = tuple(schedule for _, schedule in plan)
    windows = Windows()
    for after_ms in asked:
        after_ms += BASE_MS
        expected = next_tick(theirs, after_ms)
        found = windows.next(mine, after_ms)
        assert found == (expected.at_ms if expected is not None else None)
        if found is not None:
            assert windows.asks_for(mine, found)
            assert windows.asks_for(mine, found + 1) == (
                (tick := next_tick(theirs, found)) is not None and tick.at_ms == found + 1
            )
            upto_ms = found + 7_200_000
            count, _, _ = count_ticks(theirs, after_ms, upto_ms, limit=500)
            assert windows.count(mine, after_ms, upto_ms, 500) == count
