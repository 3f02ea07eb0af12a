"""What a worker takes, starts, renews, gives up and reports."""

import msgspec
import pytest

from schemas.leases import WorkItem, WorkKind
from tests.unit.workers.desk import TTL_MS, Desk
from workers.lease import Ended


def test_an_item_is_run_at_once_and_its_outcome_reported_to_its_partition() -> None:
    desk = Desk()
    desk.take(desk.item("a", partition=3))
    assert desk.lease().item.job == "a"
    desk.end(result=b'"done"')
    (report,) = desk.reports()
    assert (report.kind, report.state, report.result) == ("outcome", "SUCCEEDED", b'"done"')
    assert report.token == b"ta"
    assert desk.broker.partition("test.reports", 3).end == 1  # type: ignore[union-attr]


def test_never_more_runs_at_once_than_there_are_places() -> None:
    desk = Desk(places=2)
    desk.offering.ran(1.0)  # short runs may wait here
    desk.offering.offer(0)
    desk.take(*(desk.item(f"j{n}") for n in range(50)))
    assert len(desk.executor.started) == 42  # 2 places, and what is done in 20 ms beside them
    desk = Desk(places=2)
    desk.take(desk.item("a"), desk.item("b"), desk.item("c"))
    assert len(desk.executor.started) == 2
    assert desk.said() == [("returned", "c", "full")]


def test_a_place_that_becomes_free_is_used() -> None:
    desk = Desk(places=1)
    desk.offering.offer(0)
    desk.offering._offered[-1] = (0, 1)  # it had offered to keep one in memory
    desk.take(desk.item("a"), desk.item("b"))
    assert len(desk.executor.started) == 1
    desk.end("a")
    assert desk.lease("b").item.job == "b"


def test_an_unknown_handler_is_given_back() -> None:
    desk = Desk()
    desk.take(desk.item(handler="other"))
    assert desk.said() == [("returned", "a", "no_handler")]


def test_a_repeated_item_is_named_while_it_is_here_and_never_run_twice() -> None:
    desk = Desk()
    desk.take(desk.item(), desk.item())
    assert len(desk.executor.started) == 1
    assert [kind for kind, *_ in desk.said()] == ["heartbeat"]


def test_a_repeat_after_the_end_is_answered_with_the_same_report() -> None:
    desk = Desk()
    item = desk.item()
    desk.take(item)
    desk.end(result=b"1")
    first = desk.reports()
    desk.advance(TTL_MS)
    desk.take(item)
    assert desk.reports() == first
    assert len(desk.executor.started) == 1


def test_what_was_taken_is_forgotten_after_two_leases() -> None:
    desk = Desk()
    desk.take(desk.item())
    desk.end()
    desk.advance(2 * TTL_MS + 1_000)
    assert len(desk.hands._remembered) == 0


def test_a_lower_delivery_than_known_is_ignored() -> None:
    desk = Desk()
    desk.take(desk.item(delivery=2))
    desk.end()
    desk.reports()
    desk.take(desk.item(delivery=1))
    assert desk.said() == []
    assert desk.hands.counts.outdated == 1


def test_a_lower_delivery_does_not_disturb_the_run_of_a_higher_one() -> None:
    desk = Desk()
    desk.take(desk.item(delivery=2))
    desk.begin()
    desk.take(desk.item(delivery=1), _as(desk.item(delivery=1), "cancel"))
    assert desk.executor.stops == []
    assert desk.said() == []
    assert len(desk.executor.started) == 1


def test_a_higher_delivery_ends_the_run_of_the_lower_one_and_is_run() -> None:
    desk = Desk()
    desk.take(desk.item(delivery=1))
    old = desk.begin()
    desk.take(desk.item(delivery=2))
    assert desk.executor.stops == [(old.number, "lease")]
    assert [lease.item.delivery for lease in desk.executor.started.values()] == [1, 2]
    desk.hands.ended(old.number, _succeeded(), desk.now())
    assert [(r.kind, r.delivery) for r in desk.reports()] == [("outcome", 1)]


def test_nothing_is_started_on_a_lease_that_is_nearly_over() -> None:
    desk = Desk()
    soon = desk.broker_clock.wall_ms() + TTL_MS // 6 - 100
    desk.take(desk.item(lease_until=soon))
    assert desk.said() == [("returned", "a", "lease")]


@pytest.mark.parametrize("ahead_ms", [-90_000, -1_500, 1_500, 90_000])
def test_leases_are_judged_on_the_brokers_clock(ahead_ms: int) -> None:
    desk = Desk(broker_ahead_ms=ahead_ms)
    desk.take(desk.item("a"))
    desk.take(desk.item("b", lease_until=desk.broker_clock.wall_ms() + 5_000))
    assert [lease.item.job for lease in desk.executor.started.values()] == ["a"]


def test_nothing_starts_before_its_time() -> None:
    desk = Desk()
    desk.take(desk.item(due_at=desk.clock.wall_ms() + 1_500))
    desk.advance(1_499, sweeping=False)
    desk.hands.advance(desk.now())
    assert not desk.executor.started
    desk.advance(1, sweeping=False)
    desk.hands.advance(desk.now())
    assert desk.executor.started


def test_a_clock_that_is_set_back_makes_nothing_early() -> None:
    desk = Desk()
    desk.take(desk.item(due_at=desk.clock.wall_ms() + 1_000))
    desk.clock.jump(-10_000)
    desk.advance(10_500)
    assert not desk.executor.started
    desk.advance(500)
    assert desk.executor.started


def test_an_item_too_far_ahead_is_given_back_with_an_alarm() -> None:
    desk = Desk()
    desk.take(desk.item(due_at=desk.clock.wall_ms() + 2_001))
    assert desk.said() == [("returned", "a", "clock")]
    assert desk.alarms == ["item_too_early"]


def test_a_run_is_reported_as_started_once_it_takes_longer_than_a_second() -> None:
    desk = Desk()
    desk.take(desk.item())
    began_at = desk.clock.wall_ms()
    desk.begin()
    desk.advance(900)
    assert desk.said() == []
    desk.advance(400)
    reports = desk.reports()
    assert [(r.kind, r.started_at) for r in reports] == [("started", began_at), ("heartbeat", 0)]
    desk.advance(3_000)
    assert desk.said() == []


def test_every_lease_is_renewed_each_third_of_its_length_waiting_or_running() -> None:
    desk = Desk(places=3)
    desk.take(desk.item("a"), desk.item("b"))
    desk.begin("a")
    beats = {"a": 0, "b": 0}
    for _ in range(30):
        desk.advance(TTL_MS // 10)
        for kind, job, _ in desk.said():
            beats[job] += kind == "heartbeat"
    # Three lengths: nine renewals, and one more when the run was reported as started.
    assert 9 <= beats["a"] <= 10
    assert 8 <= beats["b"] <= 9
    assert desk.hands.counts.given_up == 0


def test_a_late_item_is_renewed_at_once() -> None:
    desk = Desk()
    desk.take(desk.item(lease_until=desk.broker_clock.wall_ms() + TTL_MS // 3))
    desk.advance(desk.times.sweep_ms)
    assert [kind for kind, *_ in desk.said()] == ["heartbeat"]


def test_a_run_whose_lease_cannot_be_renewed_is_told_and_its_result_still_reported() -> None:
    desk = Desk()
    desk.take(desk.item())
    lease = desk.begin()
    desk.report_log.away = True
    desk.advance(TTL_MS - desk.times.margin_ms - 2 * desk.times.sweep_ms)
    assert desk.executor.stops == []
    desk.advance(2 * desk.times.sweep_ms)
    assert desk.executor.stops == [(lease.number, "lease")]
    desk.end()
    desk.report_log.come_back()
    assert ("outcome", "a", "SUCCEEDED") in desk.said()


def test_a_run_that_stopped_because_its_lease_was_lost_has_no_outcome() -> None:
    desk = Desk()
    desk.take(desk.item())
    desk.begin()
    desk.report_log.away = True
    desk.advance(TTL_MS)
    desk.end(state="CANCELLED")
    desk.report_log.come_back()
    assert desk.said()[-1] == ("returned", "a", "lease")


def test_nothing_starts_while_the_log_is_silent_and_all_goes_on_afterwards() -> None:
    desk = Desk(places=1)
    desk.offering._offered.append((0, 5))
    desk.take(desk.item("a"), desk.item("b"))
    desk.begin("a")
    desk.report_log.away = True
    desk.outgoing.probe(desk.clock.boottime_ms())
    desk.advance(desk.times.silent_ms + 500)
    desk.end("a")
    assert len(desk.executor.started) == 1
    desk.report_log.come_back()
    desk.hands.advance(desk.now())
    assert desk.lease("b").item.job == "b"
    assert ("outcome", "a", "SUCCEEDED") in desk.said()


def test_an_outcome_that_the_log_lost_is_sent_until_it_arrives() -> None:
    desk = Desk()
    desk.take(desk.item())
    desk.report_log.away = True
    desk.end()
    for _ in range(3):
        desk.outgoing.flush(desk.clock.boottime_ms())
        desk.report_log.lose()
        desk.advance(1_000)
    desk.report_log.come_back()
    assert [(kind, state) for kind, _, state in desk.said()] == [("outcome", "SUCCEEDED")]
    assert desk.outgoing.settled


def test_what_waits_when_its_lease_runs_out_is_given_back_unstarted() -> None:
    desk = Desk(places=1)
    desk.offering._offered.append((0, 5))
    desk.take(desk.item("a"), desk.item("b"))
    desk.begin("a")
    desk.report_log.away = True
    desk.advance(TTL_MS)
    desk.end("a")
    assert [lease.item.job for lease in desk.executor.started.values()] == ["a"]
    desk.report_log.come_back()
    assert ("returned", "b", "lease") in desk.said()


def test_cancel_stops_a_run_and_says_so() -> None:
    desk = Desk()
    item = desk.item()
    desk.take(item)
    lease = desk.begin()
    desk.take(_as(item, "cancel"))
    assert desk.executor.stops == [(lease.number, "cancel")]
    desk.end(state="CANCELLED")
    assert desk.said() == [("stopped", "a", "CANCELLED")]


def test_a_run_that_ignores_cancel_is_abandoned_after_the_grace_and_its_place_is_free() -> None:
    desk = Desk(places=1)
    item = desk.item()
    desk.take(item)
    lease = desk.begin()
    desk.take(_as(item, "cancel"))
    desk.advance(9_500)
    assert "abandoned" not in [kind for kind, *_ in desk.said()]
    desk.advance(1_000)
    assert ("abandoned", "a", "") in desk.said()
    assert desk.executor.abandoned == [lease.number]
    desk.take(desk.item("b"))
    assert desk.lease("b").item.job == "b"
    # Whatever it says afterwards is nobody's.
    desk.hands.ended(lease.number, _succeeded(), desk.now())
    assert desk.said() == []


def test_cancel_of_what_has_not_begun_or_is_not_here_says_stopped() -> None:
    desk = Desk()
    held = desk.item("held", due_at=desk.clock.wall_ms() + 1_000)
    desk.take(held, _as(held, "cancel"), _as(desk.item("unknown"), "cancel"))
    assert desk.said() == [("stopped", "held", ""), ("stopped", "unknown", "")]
    desk.advance(1_500)
    assert not desk.executor.started


def test_cancel_after_the_end_is_answered_with_the_outcome() -> None:
    desk = Desk()
    item = desk.item()
    desk.take(item)
    desk.end()
    desk.reports()
    desk.take(_as(item, "cancel"))
    assert desk.said() == [("outcome", "a", "SUCCEEDED")]


def test_revoke_gives_back_what_has_not_begun() -> None:
    desk = Desk()
    held = desk.item("held", due_at=desk.clock.wall_ms() + 1_000)
    sent = desk.item("sent")
    desk.take(held, sent)
    desk.take(_as(held, "revoke"), _as(sent, "revoke"))
    assert desk.said() == [("revoked", "held", "")]
    assert desk.executor.stops == [(desk.lease("sent").number, "revoke")]
    desk.hands.dropped(desk.lease("sent").number, desk.now())
    assert desk.said() == [("revoked", "sent", "")]


def test_revoke_of_what_has_begun_says_so_and_lets_it_run() -> None:
    desk = Desk()
    begun, racing = desk.item("begun"), desk.item("racing")
    desk.take(begun, racing)
    desk.begin("begun")
    desk.take(_as(begun, "revoke"), _as(racing, "revoke"))
    desk.hands.kept(desk.lease("racing").number, desk.now())
    assert desk.said() == [("already_started", "begun", ""), ("already_started", "racing", "")]
    desk.end("racing")
    assert desk.said() == [("outcome", "racing", "SUCCEEDED")]


def test_an_item_that_comes_back_unbegun_is_started_again() -> None:
    desk = Desk()
    desk.take(desk.item())
    number = desk.lease().number
    desk.executor.started.clear()
    desk.hands.dropped(number, desk.now())
    desk.hands.advance(desk.now())
    assert list(desk.executor.started) == [number]


def test_what_waits_for_its_turn_too_long_is_taken_back_to_go_elsewhere() -> None:
    desk = Desk()
    desk.take(desk.item())
    desk.advance(500)
    assert set(desk.executor.stops) == {(desk.lease().number, "recall")}


def test_progress_is_told_at_once_and_then_at_most_once_a_second() -> None:
    desk = Desk()
    desk.take(desk.item())
    number = desk.begin().number
    desk.advance(1_500)
    desk.reports()
    desk.advance(1_000)
    for percent in range(5):
        desk.hands.progressed(number, f"{percent} %", desk.now())
    assert [r.progress for r in desk.reports()] == ["0 %"]
    desk.advance(1_000)
    desk.hands.progressed(number, "99 %", desk.now())
    assert [r.progress for r in desk.reports()] == ["99 %"]


def test_drain_gives_back_what_has_not_begun_and_lets_the_rest_finish() -> None:
    desk = Desk(places=1)
    desk.offering._offered.append((0, 5))
    desk.take(desk.item("a"), desk.item("b"))
    desk.begin("a")
    desk.hands.drain(desk.now())
    desk.take(desk.item("c"))
    assert desk.said() == [("returned", "b", "drain"), ("returned", "c", "drain")]
    desk.end("a")
    assert desk.said() == [("outcome", "a", "SUCCEEDED")]
    assert desk.hands.open == 0


def test_runs_cancelled_by_the_drain_are_given_back_but_a_finished_one_counts() -> None:
    desk = Desk(places=3)
    desk.take(desk.item("a"), desk.item("b"), desk.item("c"))
    for name in "abc":
        desk.begin(name)
    desk.hands.drain(desk.now())
    desk.hands.cancel_runs(desk.now())
    assert [why for _, why in desk.executor.stops] == ["drain"] * 3
    desk.end("a", state="CANCELLED")
    desk.end("b")
    desk.hands.hand_back(desk.now())
    assert desk.said() == [
        ("returned", "a", "drain"), ("outcome", "b", "SUCCEEDED"), ("returned", "c", "drain"),
    ]  # fmt: skip


def _as(item: WorkItem, kind: WorkKind) -> WorkItem:
    return msgspec.structs.replace(item, kind=kind)


def _succeeded() -> Ended:
    return Ended(state="SUCCEEDED", started_at=1, finished_at=2)
