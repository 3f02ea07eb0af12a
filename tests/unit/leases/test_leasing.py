"""Places, lost leases and what workers are told: a partition's side, step by step."""

from typing import Any

import pytest

from processors import topology
from processors.leasing import WORK_BATCH_BYTES_MAX
from schemas import bindings, limits
from schemas.commands import HttpTargetSpec, JobSpec, PutJob, ScheduleSpec
from streams.layout import topic_name
from tests.unit.leases.partition import LEASE_MS, T0, WORKER, Partition, instant, reported

RESEND_MS = limits.RESEND_MS


# --- who may say something ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forge",
    [
        lambda _: {"token": b""},
        lambda item: {"token": item.token[:-1] + bytes([item.token[-1] ^ 1])},
        lambda item: {"delivery": item.delivery + 1},
        lambda item: {"execution_id": item.execution_id[:-1] + "2"},
    ],
    ids=["none", "another", "of another delivery", "of another attempt"],
)
def test_a_report_without_its_leases_token_is_refused_and_counted(forge: Any) -> None:
    p = Partition()
    p.put()
    item = p.run()
    before = p.state()
    forged = reported(item, "outcome", **({"state": "SUCCEEDED"} | forge(item)))
    p.report_all([forged, forged])
    assert p.state() == before
    assert p.scheduler.figures()["forged_reports"] == 2
    assert p.alarms == ["reports_refused"]


def test_the_token_is_no_use_to_another_worker() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.report_all([reported(item, "outcome", state="SUCCEEDED")], worker="w-2")
    assert p.open().state == "RUNNING"
    assert p.scheduler.figures()["forged_reports"] == 1


def test_forged_reports_keep_no_genuine_ones_from_counting() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.report_all([
        reported(item, "outcome", state="FAILED", token=b"x"),
        reported(item, "outcome", state="SUCCEEDED"),
    ])  # fmt: skip
    assert p.history() == ["RUNNING", "SUCCEEDED"]


def test_a_report_that_is_repeated_changes_nothing_the_second_time() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.succeed(item)
    before, records = p.state(), len(p.records)
    p.succeed(item)
    p.report(item, "heartbeat")
    assert (p.state(), len(p.records)) == (before, records)
    assert p.scheduler.figures()["outdated_reports"] == 2


# --- places ---------------------------------------------------------------------------------------


def test_with_a_free_place_the_claim_is_a_lease() -> None:
    p = Partition()
    p.put(at=instant(T0 + 1_000))
    p.advance(1_000)
    (item,) = p.taken()
    assert p.history() == ["RUNNING"]
    assert (item.kind, item.delivery, item.lease_until) == ("work", 1, T0 + 1_000 + LEASE_MS)
    assert (p.open().worker, p.open().inbox, p.held) == (WORKER, 3, 1)
    (sent,) = [m for m in p.sent if m.topic == topic_name("h", topology.inbox_of("default"))]
    assert (sent.partition, sent.key) == (3, WORKER.encode())


def test_the_length_of_the_leases_it_gives_is_told_with_what_it_wants() -> None:
    p = Partition(lease_ms=9_000)
    p.settle()
    assert {wants.lease_ms for wants in p.wants} == {9_000}


def test_without_one_it_waits_and_is_wanted_at_once() -> None:
    p = Partition(places=0)
    p.put()
    p.put(job="k", handler="other")
    wanted = len(p.wants)
    p.trigger()
    p.trigger("k")
    p.advance(100)
    assert p.history() == ["QUEUED"]
    assert p.wants[-1].wanted == {"h": 1, "other": 1}
    assert len(p.wants) > wanted
    p.grant({WORKER: 5})
    assert p.history() == ["QUEUED", "RUNNING"]
    p.advance(100)
    assert (p.wants[-1].wanted, p.wants[-1].held) == ({"other": 1}, {WORKER: 1})


def test_what_comes_later_does_not_overtake_what_waits() -> None:
    p = Partition(places=1)
    for name in "abc":
        p.put(job=name)
    first = p.run("a")
    p.trigger("b")
    p.succeed(first)  # one place is free, and b waits for it
    (second,) = p.taken()
    assert second.job == "b"
    p.trigger("c")
    assert p.taken() == []
    p.succeed(second)
    assert [item.job for item in p.taken()] == ["c"]


def test_a_place_is_counted_from_the_lease_to_its_end() -> None:
    p = Partition(places=3)
    for n in range(5):
        p.put(job=f"j{n}")
        p.trigger(f"j{n}")
    items = p.taken()
    assert (len(items), p.held) == (3, 3)
    p.report(items[0], "outcome", state="FAILED")
    p.report(items[1], "returned", reason="full")
    # The place of the first is taken again; the worker said that it has no more than that.
    assert p.held == 1 + len(p.taken())
    p.advance(20 * LEASE_MS)
    assert p.held == 0


def test_a_worker_that_returns_something_is_left_alone_for_a_while() -> None:
    for reason in ("full", "clock", "lease", "drain"):
        p = Partition()
        p.put()
        item = p.run()
        waits = []
        for _ in range(3):
            p.report(item, "returned", reason=reason)
            assert p.taken() == [], reason
            since = p.now_ms
            while not p.items:
                p.advance(10)
            waits.append(p.now_ms - since)
            (item,) = p.taken()
        assert waits == [100, 200, 400], reason
        assert p.open().lost == 0


def test_nothing_is_leased_after_a_take_over_until_slots_answered() -> None:
    p = Partition()
    p.put()
    p.put(job="k")
    p.run("k")
    p.take_over(places=0)
    p.trigger()
    assert p.history() == ["QUEUED"]
    asked = [want for want in p.wants if want.limit == "pool:default"][-1]
    assert (asked.epoch, asked.held, asked.answers) == (p.epoch, {WORKER: 1}, 0)
    p.grant({WORKER: 1})  # which k has already
    assert p.history() == ["QUEUED"]
    p.grant({WORKER: 2})
    assert p.history() == ["QUEUED", "RUNNING"]


def test_a_grant_of_an_earlier_epoch_is_ignored() -> None:
    p = Partition()
    p.put()
    p.take_over(places=0)
    p.epoch -= 1
    p.grant({WORKER: 5})
    p.trigger()
    assert p.history() == ["QUEUED"]


def test_a_limit_that_is_no_pool_is_none_of_our_places() -> None:
    p = Partition()
    granted = bindings.SLOTS_GRANTED.kind(
        limit="tenant:t", partition=0, epoch=p.epoch, n=99, workers={}
    )
    p.apply(topology.SLOT_GRANTS, bindings.SLOTS_GRANTED.encode(granted))
    p.put()
    p.run()
    p.advance(60_000)
    assert {want.limit for want in p.wants} == {"pool:default", "pool:http"}


def test_a_place_drawn_for_what_is_nobodys_by_now_is_given_back() -> None:
    p = Partition(places=0)
    p.put()
    p.trigger()
    p.pause()  # its key still stands in memory
    p.grant({WORKER: 1})
    assert (p.history(), p.held) == (["QUEUED", "PENDING(paused)"], 0)
    p.resume()
    assert (p.history()[-1], p.held) == ("RUNNING", 1)


def test_a_busy_handler_leaves_places_to_the_others() -> None:
    p = Partition(places=0)
    handlers = ("x", "y")
    for n in range(40):
        p.put(job=f"x{n}", handler="x")
        p.trigger(f"x{n}")
    p.put(job="y", handler="y")
    p.trigger("y")
    p.grant({WORKER: 3}, handlers)
    done = []
    while "y" not in done:
        (*items,) = p.taken()
        assert items
        done += [item.job for item in items]
        for item in items:
            p.succeed(item)
    assert len(done) < 10


def test_while_much_is_due_what_waits_is_leased_too() -> None:
    p = Partition(places=0)
    for n in range(40):
        p.put(job=f"soon{n}", handler="x", at=instant(T0 + 1_000))
    p.put()
    p.trigger()
    p.grants += 1
    p.now_ms = T0 + 1_000
    p.grant({WORKER: 1})
    p.now_ms = T0 + 1_000
    p.succeed(p.taken()[0])
    p.step(limit=8)
    assert p.history() == ["QUEUED", "RUNNING", "SUCCEEDED"]


# --- lost leases ----------------------------------------------------------------------------------


def test_a_lease_is_not_given_up_before_every_report_up_to_its_end_is_read() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.report(item, "heartbeat")
    p.advance(LEASE_MS + 30_000, drained=False)
    assert p.open().state == "RUNNING"
    assert p.scheduler.wants_drained()
    # An answer to a question that was asked before the end proves nothing about it.
    p.drained(T0 + LEASE_MS - 1)
    assert p.open().state == "RUNNING"
    assert p.scheduler.wants_drained()
    # The heartbeat was in the log in time; it is read late, and counts.
    p.report(item, "heartbeat")
    p.drained(p.now_ms)
    assert p.open().state == "RUNNING"
    assert p.open().lease_until == p.now_ms + LEASE_MS
    assert not p.scheduler.wants_drained()
    p.advance(LEASE_MS)
    assert p.open().lost == 1


def test_an_outcome_that_was_in_the_log_before_the_end_is_found_before_it_is_decided() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.advance(LEASE_MS + 1_000, drained=False)
    p.succeed(item)
    p.drained()
    assert p.history() == ["RUNNING", "SUCCEEDED"]


def test_waiting_for_the_end_of_the_reports_keeps_nobody_busy() -> None:
    p = Partition()
    for n in range(5):
        p.put(job=f"j{n}")
        p.run(f"j{n}")
    p.advance(LEASE_MS, drained=False)
    for _ in range(50):  # nothing to do until the answer comes
        p.settle()
        deadline = p.scheduler.deadline_ms()
        assert deadline is None or deadline > p.now_ms
        p.advance(100, drained=False)
    p.drained()
    assert [e.lost for n in range(5) for e in p.state(f"j{n}").open] == [1] * 5


def test_a_lost_lease_is_delivered_again_as_the_same_attempt_with_a_higher_fence() -> None:
    p = Partition()
    p.put()
    first = p.run()
    p.report(first, "started")
    p.advance(LEASE_MS)
    (second,) = p.taken()
    assert second.execution_id == first.execution_id
    assert (second.attempt, second.delivery) == (1, 2)
    assert second.fence > first.fence
    assert (first.previous_outcome, second.previous_outcome) == ("", "unknown")
    assert second.token != first.token
    assert p.history() == ["RUNNING", "RUNNING", "QUEUED", "RUNNING"]


def test_an_outcome_after_the_loss_counts_until_somebody_else_has_it() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.grant({})  # the worker is gone from the slots' view
    p.advance(LEASE_MS + 5_000)
    assert (p.open().state, p.held) == ("QUEUED", 0)
    p.taken()
    p.succeed(item)
    assert p.history() == ["RUNNING", "QUEUED", "SUCCEEDED"]
    # Its key is still in memory; nothing comes of it.
    p.grant({WORKER: 1})
    assert (p.taken(), p.held, len(p.history())) == ([], 0, 3)


def test_leases_that_are_all_lost_give_one_dead_letter() -> None:
    p = Partition()
    p.put()
    p.run()
    p.advance(10 * LEASE_MS)
    assert p.history()[-1] == "DEAD(deliveries)"
    (letter,) = p.dead_letters()
    assert (letter.state, letter.lost, letter.delivery) == ("DEAD", 3, 3)
    assert (p.state().open, p.held) == ((), 0)


def test_many_lost_leases_are_given_up_in_steps_of_the_usual_size() -> None:
    p = Partition(places=50)
    for n in range(50):
        p.put(job=f"j{n}")
        p.trigger(f"j{n}")
    p.grant({})
    p.now_ms += LEASE_MS
    p.step(limit=1_000)
    p.scheduler.drained(p.now_ms)
    txn = p.step(limit=10)
    events = [r for r in txn.records if r.topic == topic_name("h", topology.EXECUTIONS)]
    assert len(events) == 10
    p.settle()
    assert all(p.open(f"j{n}").lost == 1 for n in range(50))


# --- owner changes --------------------------------------------------------------------------------


def test_a_gap_in_ownership_moves_what_was_leased_before_it_once() -> None:
    p = Partition()
    p.put()
    p.put(job="k")
    before = p.run()
    p.report(before, "started")
    p.advance(20_000)
    p.take_over(gap_ms=30_000)
    after = p.run("k")
    p.report(after, "started")
    # `before` would end 60 s after T0; nobody listened for 30 s.
    p.advance(T0 + LEASE_MS + 30_000 - 1 - p.now_ms)
    assert p.open().state == "RUNNING"
    p.advance(1)
    assert p.open().lost == 1
    # What is leased since then is not moved.
    p.advance(T0 + 50_000 + LEASE_MS - p.now_ms)
    assert p.open("k").lost == 1


def test_a_lease_that_was_renewed_since_the_gap_is_not_moved_again() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.take_over(gap_ms=30_000)
    p.advance(10_000)
    p.report(item, "heartbeat")
    p.advance(LEASE_MS)
    assert p.open().lost == 1


def test_the_gap_counts_for_at_most_one_lease_time() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.report(item, "started")
    p.take_over(gap_ms=10 * LEASE_MS)
    p.advance(0)
    assert p.open().lost == 1


def test_a_step_that_was_dropped_moves_nothing_once_more() -> None:
    """The machinery resumes in the same epoch, with the same gap."""
    p = Partition()
    p.put()
    item = p.run()
    p.take_over(gap_ms=30_000)
    p.report(item, "heartbeat")
    p.advance(10_000)
    p.scheduler.resume(p.store, epoch=p.epoch, now_ms=p.now_ms, gap_ms=30_000)
    p.advance(LEASE_MS - 10_000 - 1)
    assert p.open().state == "RUNNING"
    p.advance(1)
    assert p.open().lost == 1


# --- telling again --------------------------------------------------------------------------------


def test_what_no_report_has_named_is_sent_again_as_the_same_delivery() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.advance(RESEND_MS - 1)
    assert p.taken() == []
    p.advance(1)
    assert p.taken() == [item]
    p.advance(RESEND_MS)
    assert p.taken() == [item]
    p.report(item, "heartbeat")
    p.advance(3 * RESEND_MS)
    assert p.taken() == []


def test_what_is_closed_is_not_sent_again() -> None:
    p = Partition()
    p.put()
    p.succeed(p.run())
    p.advance(2 * RESEND_MS)
    assert p.taken() == []


def test_a_take_over_sends_what_was_never_named_again_and_only_that() -> None:
    p = Partition()
    p.put()
    p.put(job="k")
    item, named = p.run(), p.run("k")
    p.report(named, "started")
    p.take_over(gap_ms=2_000)
    assert p.taken() == [item]
    assert p.open().delivery == 1


def test_short_leases_are_sent_again_before_they_are_lost() -> None:
    p = Partition(lease_ms=3_000)
    p.put()
    item = p.run()
    p.advance(2_999)
    assert set(p.taken()) == {item}


def test_a_worker_that_speaks_of_what_was_cancelled_is_told_again() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.report(item, "started")
    p.cancel(item.execution_id)
    (told,) = p.taken()
    assert (told.kind, told.delivery, told.token) == ("cancel", 1, item.token)
    until = p.open().lease_until
    p.advance(1_000)
    p.report(item, "heartbeat")
    assert [i.kind for i in p.taken()] == ["cancel"]
    p.advance(2 * RESEND_MS)
    assert [i.kind for i in p.taken()] == ["cancel", "cancel"]
    assert p.open().lease_until == until, "and its lease is not renewed"
    assert p.history() == ["RUNNING", "RUNNING", "CANCELLED"]


def test_a_take_over_tells_again_what_was_cancelled() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.report(item, "started")
    p.cancel(item.execution_id)
    p.taken()
    p.take_over(gap_ms=1_000)
    assert [i.kind for i in p.taken()] == ["cancel"]


def test_what_a_pause_or_delete_asked_back_is_asked_back_again_not_begun() -> None:
    for act in ("pause", "delete"):
        p = Partition()
        p.put()
        p.run()
        p.advance(1)
        getattr(p, act)()
        assert [i.kind for i in p.taken()] == ["revoke"], act
        p.advance(2 * RESEND_MS)
        assert [i.kind for i in p.taken()] == ["revoke", "revoke"], act
        p.take_over()
        assert [i.kind for i in p.taken()] == ["revoke"], act


# --- what goes out --------------------------------------------------------------------------------


def test_large_payloads_go_out_in_records_that_a_broker_takes() -> None:
    p = Partition(places=0)
    for n in range(40):
        p.put(job=f"j{n}", payload=b"x" * limits.PAYLOAD_BYTES_MAX)
        p.trigger(f"j{n}")
    p.grant({WORKER: 40})
    batches = [m for m in p.sent if m.topic == topic_name("h", topology.inbox_of("default"))]
    assert len(batches) < 10
    assert all(len(m.value or b"") <= WORK_BATCH_BYTES_MAX for m in batches)
    items = p.taken()
    assert sorted(i.job for i in items) == sorted(f"j{n}" for n in range(40))
    assert {i.payload for i in items} == {b"x" * limits.PAYLOAD_BYTES_MAX}


def test_small_items_go_out_together_up_to_a_bound() -> None:
    p = Partition(places=0)
    for n in range(700):
        p.put(job=f"j{n}")
        p.trigger(f"j{n}")
    p.grant({WORKER: 700})
    assert len(p.taken()) == 700
    batches = [
        bindings.WORK_BATCH.decode(m.value)
        for m in p.sent
        if m.topic == topic_name("h", topology.inbox_of("default")) and m.value
    ]
    assert max(len(batch.items) for batch in batches) <= limits.WORK_BATCH_ITEMS_MAX
    assert len(batches) <= 4


def test_an_http_item_says_what_to_call() -> None:
    p = Partition(places=0)
    target = HttpTargetSpec(url="https://example.org/hook", headers={"X-A": "b"}, timeout="5s")
    spec = JobSpec(
        schedules=(ScheduleSpec(at="2099-01-01T00:00:00Z"),), http=target, payload=b'{"a":1}'
    )
    p.send(PutJob(tenant="t", job="j", spec=spec))
    p.grant({WORKER: 1}, ("http",), pool="http")
    item = p.run()
    assert item.http is not None
    assert (item.http.url, item.http.method) == ("https://example.org/hook", "POST")
    assert (item.http.timeout_ms, item.http.headers) == (5_000, {"X-A": "b"})
    assert (item.handler, item.payload) == ("http", b'{"a":1}')


def test_a_cancel_carries_no_payload() -> None:
    p = Partition()
    p.put(payload=b"secret")
    item = p.run()
    p.cancel(item.execution_id)
    (told,) = p.taken()
    assert (told.payload, told.http) == (b"", None)
