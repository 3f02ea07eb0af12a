"""The worker's view of a lease ends before the scheduler's, whatever clocks and networks do."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.desk import Desk
from workers.brokerclock import BrokerClock
from workers.lease import times_of

AWAY, SLOW, MUTE, FAST = "away", "slow", "mute", "fast"


@given(
    ttl_ms=st.sampled_from([1_000, 3_000, 60_000]),
    ahead_ms=st.integers(-100_000, 100_000),
    steps=st.lists(
        st.tuples(st.sampled_from([AWAY, SLOW, MUTE, FAST]), st.floats(0.01, 0.6)), min_size=1,
        max_size=25,
    ),
)  # fmt: skip
def test_the_worker_gives_a_lease_up_before_the_scheduler_can_see_its_end(
    ttl_ms: int, ahead_ms: int, steps: list[tuple[str, float]]
) -> None:
    """The scheduler reads a heartbeat no earlier than it stands in the log, counts from there, and
    lets a lease expire only when it has read what was in the log by then."""
    desk = Desk(ttl_ms=ttl_ms, broker_ahead_ms=ahead_ms)
    item = desk.item()
    desk.take(item)
    lease = desk.begin()
    scheduler_ends_ms = item.lease_until
    for network, share in steps:
        desk.report_log.away = network in (AWAY, SLOW)
        desk.report_log.mute = network == MUTE
        desk.advance(round(share * ttl_ms))
        if network == MUTE:
            desk.report_log.speak()
        if network == SLOW:
            desk.report_log.come_back()
        for appended_ms, report in desk.appended():
            if report.kind == "heartbeat" and appended_ms < scheduler_ends_ms:
                scheduler_ends_ms = appended_ms + ttl_ms
        if desk.broker_clock.wall_ms() >= scheduler_ends_ms:
            assert lease.told == "lease", "the scheduler sees the end of it, the worker does not"
            return
        worker_counts_on_ms = lease.given_up_ms(desk.times) - desk.clock.boottime_ms()
        scheduler_left_ms = scheduler_ends_ms - desk.broker_clock.wall_ms()
        assert worker_counts_on_ms < scheduler_left_ms


def test_a_heartbeat_that_arrives_after_the_end_revives_no_lease() -> None:
    """The worker was stopped between making a heartbeat and sending it, and goes on too late."""
    desk = Desk()
    desk.take(desk.item())
    lease = desk.begin()
    ends_ms = lease.ends_ms
    desk.report_log.away = True
    desk.advance(desk.times.renew_ms + desk.times.sweep_ms)
    desk.advance(desk.times.length_ms - desk.times.renew_ms, sweeping=False)
    desk.report_log.come_back()
    assert "heartbeat" in [report.kind for report in desk.reports()]
    assert desk.clock.boottime_ms() > ends_ms
    assert lease.ends_ms == ends_ms
    desk.advance(desk.times.sweep_ms)
    assert lease.told == "lease"


@given(
    offset_ms=st.integers(-1_000_000, 1_000_000),
    trips=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 500), st.integers(0, 500))),
)
def test_the_brokers_time_is_never_underestimated(
    offset_ms: int, trips: list[tuple[int, int, int]]
) -> None:
    clock, now_ms = BrokerClock(), 10_000_000
    for pause_ms, there_ms, back_ms in trips:
        now_ms += pause_ms
        sent_ms, at_broker_ms = now_ms, now_ms + there_ms
        now_ms = at_broker_ms + back_ms
        jumped_ms = clock.sample(sent_ms, now_ms, at_broker_ms + offset_ms)
        assert jumped_ms == 0
        ahead_ms = clock.ahead_ms(now_ms)
        assert ahead_ms is not None
        assert ahead_ms >= offset_ms


def test_a_quick_answer_narrows_what_a_slow_one_left_open() -> None:
    clock = BrokerClock()
    clock.sample(0, 1_000, 500)
    wide_ms = clock.ahead_ms(1_000)
    clock.sample(1_000, 1_002, 1_001)
    narrow_ms = clock.ahead_ms(1_002)
    assert wide_ms is not None
    assert narrow_ms is not None
    assert narrow_ms <= 2 < wide_ms


def test_a_jump_of_the_brokers_clock_is_noticed_and_followed() -> None:
    clock = BrokerClock()
    clock.sample(0, 2, 1)
    assert clock.sample(1_000, 1_002, 61_001) >= 59_000
    ahead_ms = clock.ahead_ms(1_002)
    assert ahead_ms is not None
    assert 60_000 <= ahead_ms <= 60_003


def test_every_distance_leaves_room_for_the_next() -> None:
    for ttl_ms in (1_000, 3_000, 60_000, 600_000):
        times = times_of(ttl_ms)
        assert times.sweep_ms < times.margin_ms <= times.to_start_ms < times.renew_ms
        assert times.renew_ms + times.margin_ms < ttl_ms
