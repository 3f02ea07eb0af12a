"""Executions through the scheduler: what commands, ticks and crashes do to what is open."""

from typing import Any

import pytest

from processors import topology
from processors.core import executions as decide
from processors.core.keys import DUE, KIND_AT, owner_of
from schemas import limits
from schemas.commands import (
    CancelExecution,
    DeleteJob,
    JobSpec,
    PutJob,
    ScheduleSpec,
    TriggerJob,
    WorkerTargetSpec,
)
from schemas.replies import Accepted, Refused
from streams.binding import DueEntryCrashed
from streams.errors import PoisonRecord
from streams.layout import prefix_end, topic_name
from tests.unit.leases.partition import (
    CODECS,
    LEASE_MS,
    T0,
    WORKER,
    Partition,
    decoded,
    instant,
    shown,
)

HOUR_MS = 3_600_000


def all_sequences(p: Partition, job: str = "j") -> list[int]:
    """Of every event of the job, on both topics."""
    events = p.events() + p.events(topology.SCHEDULE_CHANGES)
    return sorted(event.sequence for event in events if event.job == job)


def assert_gapless(p: Partition, job: str = "j") -> None:
    sequences = all_sequences(p, job)
    assert sequences == list(range(1, len(sequences) + 1))


# --- forbid ---------------------------------------------------------------------------------------


def test_a_tick_is_skipped_while_an_execution_is_open_in_whatever_state() -> None:
    def running(p: Partition) -> None:
        """As it is."""

    def waiting(p: Partition) -> None:
        p.report(item, "returned", reason="drain")

    def paused_and_resumed(p: Partition) -> None:
        p.pause()
        p.report(item, "revoked")
        p.grant({})
        p.resume()

    def closing(p: Partition) -> None:
        p.cancel(p.open().execution_id)

    for before in (running, waiting, paused_and_resumed, closing):
        p = Partition()
        p.put(every="10s")
        p.advance(10_000)
        (item,) = p.taken()
        before(p)
        while not p.history()[-1].startswith("SKIPPED"):
            p.advance(1_000)
        assert p.history()[-1] == "SKIPPED(overlap)"
        p.advance(3 * LEASE_MS)
        p.grant({WORKER: 3})
        p.advance(10 * LEASE_MS)
        # Lost too often by its silent worker, or cancelled: then ticks run again.
        assert "RUNNING" in p.history()[p.history().index("SKIPPED(overlap)") :]
        assert_gapless(p)


def test_a_cancelled_execution_keeps_the_lock_until_its_worker_has_stopped() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.cancel(item.execution_id)
    assert (p.history(), p.held) == (["RUNNING", "CANCELLED"], 1)
    assert "skipped" in p.trigger().warnings[0]
    p.report(item, "stopped")
    assert p.history()[-1] == "CANCELLED(lease_closed)"
    assert (p.held, p.trigger().warnings) == (0, ())
    assert p.history()[-1] == "RUNNING"


def test_or_until_its_lease_is_over() -> None:
    p = Partition()
    p.put()
    p.cancel(p.run().execution_id)
    p.advance(LEASE_MS)
    assert p.history() == ["RUNNING", "CANCELLED", "CANCELLED(lease_closed)"]
    assert (p.held, p.dead_letters(), p.state().open) == (0, [], ())


def test_a_trigger_that_is_skipped_says_why_and_what_to_do() -> None:
    p = Partition()
    p.put()
    item = p.run()
    answer = p.trigger(command_id="again")
    assert isinstance(answer, Accepted)
    (why,) = answer.warnings
    assert item.execution_id in why
    assert "cancel" in why
    assert "skipped (overlap)" in why
    event = p.events()[-1]
    assert (event.execution_id, event.state, event.reason) == (
        answer.execution_id, "SKIPPED", "overlap",
    )  # fmt: skip
    # It took effect once, as the record of a skip: the same id does not run it later.
    p.succeed(item)
    repeated = p.trigger(command_id="again")
    assert (repeated.repeated, repeated.execution_id) == (True, answer.execution_id)
    assert p.taken() == []


def test_a_topic_target_waits_for_what_the_job_ran_before_it_was_edited() -> None:
    p = Partition()
    p.put(every="10s")
    p.advance(10_000)
    (item,) = p.taken()
    p.put_topic(every="10s")
    p.advance(10_000)
    assert p.history() == ["RUNNING", "SKIPPED(overlap)"]
    assert "skipped" in p.trigger().warnings[0]
    assert not [r for r in p.records if r.topic == "orders"]
    p.succeed(item)
    p.advance(10_000)
    assert p.history()[-1] == "SUCCEEDED"
    assert len([r for r in p.records if r.topic == "orders"]) == 1
    assert_gapless(p)


# --- edits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("leased", [False, True], ids=["queued", "leased"])
def test_what_is_open_keeps_the_definition_it_began_with(leased: bool) -> None:
    p = Partition(places=0)
    p.put(payload=b"old")
    p.trigger()
    if leased:
        p.grant({WORKER: 1})
        assert p.taken()[0].payload == b"old"
    p.put(payload=b"new", handler="other")
    p.put(payload=b"newer", handler="another")
    if leased:
        p.advance(LEASE_MS)
    else:
        p.grant({WORKER: 1})
    item = p.taken()[-1]
    assert (item.payload, item.handler) == (b"old", "h")
    assert p.open().version == 1
    p.succeed(item)
    assert {event.version for event in p.events()} == {1}
    p.grant({WORKER: 1}, ("another",))
    assert p.run().payload == b"newer"
    assert_gapless(p)


def test_a_triggers_own_payload_survives_a_redelivery_and_an_edit() -> None:
    p = Partition()
    p.put(payload=b"job's")
    p.send(TriggerJob(tenant="t", job="j", payload=b"own"))
    p.put(payload=b"new")
    p.take_over(gap_ms=LEASE_MS)
    p.advance(2 * LEASE_MS)
    assert {item.payload for item in p.taken()} == {b"own"}


# --- pause and resume -----------------------------------------------------------------------------


def test_a_pause_holds_what_waits_and_asks_back_what_has_not_begun() -> None:
    p = Partition(places=1)
    p.put(job="k")
    p.put()
    p.run("k")
    p.trigger()
    p.advance(1)
    p.pause("k")
    p.pause()
    (asked,) = p.taken()
    assert (asked.kind, asked.job) == ("revoke", "k")
    p.report(asked, "revoked")
    assert p.history("k")[-1] == p.history()[-1] == "PENDING(paused)"
    p.advance(HOUR_MS)
    assert (p.taken(), p.held) == ([], 0)
    p.resume("k")
    p.resume()
    assert p.history("k")[-1] == "RUNNING"
    assert p.history()[-1] == "QUEUED"
    assert (p.open("k").lost, p.held) == (0, 1)
    assert_gapless(p, "k")


def test_what_has_begun_when_its_job_is_paused_runs_to_its_end() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.advance(1)
    p.pause()
    p.report(item, "already_started")
    p.advance(LEASE_MS - 2)
    p.succeed(item)
    assert p.history() == ["RUNNING", "RUNNING", "SUCCEEDED"]


def test_triggers_of_a_paused_job_run_and_go_on_when_they_are_returned() -> None:
    p = Partition()
    p.put()
    p.pause()
    p.advance(5)
    item = p.run()
    p.report(item, "returned", reason="full")
    p.advance(100)
    (item,) = p.taken()
    assert p.history() == ["RUNNING", "QUEUED", "RUNNING"]
    # Pausing it once more changes nothing, under whatever command id.
    p.pause()
    assert p.taken() == []
    assert p.open().state == "RUNNING"
    p.succeed(item)


def test_a_second_pause_holds_nothing_that_the_first_let_go() -> None:
    p = Partition(places=0)
    p.put()
    p.pause()
    p.advance(5)
    p.trigger()
    p.pause()
    assert p.open().state == "QUEUED"


def test_what_a_paused_job_holds_goes_on_also_when_the_job_broke_meanwhile() -> None:
    p = Partition(places=0)
    p.put(at=instant(T0 + 60_000))
    p.trigger()
    p.advance(5)
    p.pause()
    assert p.open().reason == "paused"
    crash(p, key=b"t/j", kind=0)
    assert p.state().status == "BROKEN"
    p.put(at="2098-01-01T00:00:00Z")
    assert (p.state().status, p.open().state) == ("ACTIVE", "QUEUED")


# --- delete ---------------------------------------------------------------------------------------


def test_a_delete_cancels_what_waits() -> None:
    p = Partition(places=0)
    p.put()
    p.trigger()
    p.delete()
    assert p.history() == ["QUEUED", "CANCELLED"]
    p.grant({WORKER: 1})
    assert (p.taken(), p.held) == ([], 0)
    assert_gapless(p)


def test_a_delete_asks_back_what_has_not_begun_and_lets_the_rest_finish() -> None:
    p = Partition()
    p.put()
    p.put(job="k")
    begun, fresh = p.run(), p.run("k")
    p.report(begun, "started")
    p.delete()
    p.delete("k")
    (asked,) = p.taken()
    assert (asked.kind, asked.job) == ("revoke", "k")
    p.report(fresh, "revoked")
    assert p.history("k") == ["RUNNING", "CANCELLED"]
    p.succeed(begun)
    assert p.history() == ["RUNNING", "RUNNING", "SUCCEEDED"]
    assert p.held == 0
    assert_gapless(p)
    assert_gapless(p, "k")


@pytest.mark.parametrize("recreated", [False, True])
def test_what_is_lost_of_a_deleted_job_is_not_delivered_again(recreated: bool) -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.report(item, "started")
    p.delete()
    if recreated:
        p.put(payload=b"of the new life")
    p.advance(3 * LEASE_MS)
    assert p.history() == ["RUNNING", "RUNNING", "CANCELLED"]
    assert (p.taken(), p.held, p.state().open) == ([], 0, ())
    assert_gapless(p)


def test_a_new_life_waits_for_what_runs_of_the_former_one() -> None:
    p = Partition()
    p.put(every="10s")
    p.advance(10_000)
    (item,) = p.taken()
    p.report(item, "started")
    p.delete()
    p.put(every="10s", payload=b"new")
    assert (p.open().execution_id, p.open().definition is not None) == (item.execution_id, True)
    p.advance(10_000)
    assert p.history()[-1] == "SKIPPED(overlap)"
    p.succeed(item)
    p.advance(10_000)
    (new,) = p.taken()
    assert (new.payload, new.fence > item.fence, new.ordinal) == (b"new", True, 0)
    lives = [event.life for event in p.events()]
    assert lives == sorted(lives)
    assert_gapless(p)
    ids = [event.execution_id for event in p.events() if hasattr(event, "tz")]
    assert len(set(ids)) == len(ids)


def test_a_job_that_is_created_twice_in_one_transaction_has_two_lives() -> None:
    p = Partition()
    p.put(job="k")
    far = ScheduleSpec(at="2099-01-01T00:00:00Z")
    spec = JobSpec(schedules=(far,), worker=WorkerTargetSpec(handler="h"))
    put, delete = PutJob(tenant="t", job="j", spec=spec), DeleteJob(tenant="t", job="j")
    trigger = TriggerJob(tenant="t", job="j")
    replies = p.send_together(put, trigger, delete, put)
    lives = [reply.life for reply in replies]
    assert lives[0] == lives[1] == lives[2] < lives[3] == p.state().life
    items = p.taken()
    assert [item.kind for item in items] == ["work", "revoke"]
    p.report(items[0], "revoked")
    assert p.history() == ["RUNNING", "CANCELLED"]
    assert_gapless(p)


def test_an_execution_of_a_deleted_job_can_be_cancelled() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.delete()
    p.taken()
    assert isinstance(p.cancel(item.execution_id), Accepted)
    assert [i.kind for i in p.taken()] == ["cancel"]
    p.report(item, "stopped")
    assert p.history()[-2:] == ["CANCELLED", "CANCELLED(lease_closed)"]


# --- cancel ---------------------------------------------------------------------------------------


def test_what_is_not_open_cannot_be_cancelled() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.succeed(item)
    for execution_id in (item.execution_id, "t/j:nonsense:1"):
        answer = p.cancel(execution_id)
        assert isinstance(answer, Refused)
        assert answer.kind == "not_found"
    assert isinstance(p.cancel("t/j:x:1", "no-such-job"), Refused)


def test_a_cancel_takes_effect_once_and_is_answered_twice() -> None:
    p = Partition()
    p.put()
    item = p.run()
    command = CancelExecution(
        tenant="t", job="j", execution_id=item.execution_id, command_id="stop", note="enough"
    )
    first, second = p.send(command), p.send(command)
    assert (first.repeated, second.repeated) == (False, True)
    assert first.sequence == second.sequence
    assert p.history() == ["RUNNING", "CANCELLED"]
    assert p.events()[-1].detail == "enough"


def test_a_cancel_of_what_waits_is_final_at_once() -> None:
    p = Partition(places=0)
    p.put()
    answer = p.trigger()
    p.cancel(answer.execution_id)
    assert (p.history(), p.state().open) == (["QUEUED", "CANCELLED"], ())
    assert p.trigger().warnings == ()


def test_too_many_command_ids_refuse_a_cancel_before_it_takes_effect() -> None:
    p = Partition()
    p.put()
    item = p.run()
    for _ in range(2 * limits.COMMAND_IDS_MAX):
        if isinstance(p.put(), Refused):
            break
    answer = p.cancel(item.execution_id)
    assert isinstance(answer, Refused)
    assert answer.kind == "too_many_commands"
    assert p.open().state == "RUNNING"


# --- the end --------------------------------------------------------------------------------------


def test_a_failure_is_copied_to_the_dead_letters_once() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.report(item, "outcome", state="FAILED", reason="status", detail="503")
    p.report(item, "outcome", state="FAILED", reason="status", detail="503")
    (letter,) = p.dead_letters()
    assert (shown(letter), letter.detail) == ("FAILED(status)", "503")


def test_a_finished_job_is_remembered_from_the_end_of_its_last_execution() -> None:
    p = Partition()
    p.put(at=instant(T0 + 1_000))
    p.advance(1_000)
    (item,) = p.taken()
    assert p.state().status == "FINISHED"
    for _ in range(100):  # longer than what is finished is remembered
        p.advance(50_000)
        p.report(item, "heartbeat")
    p.succeed(item)
    ended_ms = p.now_ms
    p.advance(limits.KEEP_FINISHED_ONE_OFF_MS - 1)
    assert p.state().forget_ms == ended_ms + limits.KEEP_FINISHED_ONE_OFF_MS
    p.advance(1)
    assert p.store.get(b"s/t/j") is None
    assert p.history()[-1] == "SUCCEEDED"


def test_a_deleted_job_is_remembered_from_the_end_of_its_last_execution() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.report(item, "heartbeat")
    p.delete()
    p.advance(40_000)
    p.succeed(item)
    assert p.state().forget_ms == p.now_ms + limits.FORGET_DELETED_MS


def test_what_is_held_in_memory_does_not_grow_with_what_has_ended() -> None:
    p = Partition()
    p.put(every="30s")
    for _ in range(200):
        p.succeed(p.run())
    p.advance(20_000)
    figures = p.scheduler.figures()
    assert figures["wheel_keys"] <= 2
    assert (figures["waiting"], figures["unheard"], figures["lapsed"]) == (0, 0, 0)


def test_events_that_share_what_they_have_in_common_are_the_same_bytes() -> None:
    p = Partition(places=2)
    p.put(every="10s")
    p.put(job="k", every="10s")
    p.put(job="l", handler="other", every="10s")
    for _ in range(12):
        p.advance(5_000)
        for item in p.taken()[:1]:
            p.report(item, "outcome", state="FAILED", reason="status", started_at=p.now_ms)
    values = [r.value for r in p.records if r.topic == topic_name("h", topology.EXECUTIONS)]
    assert len({shown(decoded(value)) for value in values}) > 3
    for value in values:
        event = decoded(value)
        assert CODECS[type(event).__name__].encode(event) == value


# --- what goes wrong ------------------------------------------------------------------------------


def crash(p: Partition, key: bytes, kind: int) -> bool:
    """Deciding about the first index entry of this kind raises; what the task does then."""
    (entry,) = [
        e for e, _ in p.store.scan(DUE, prefix_end(DUE), 1_000)
        if e[KIND_AT] == kind and owner_of(e) == key
    ]  # fmt: skip
    return break_entry(p, entry)


def break_entry(p: Partition, entry: bytes) -> bool:
    p.scheduler.resume(p.store, epoch=p.epoch, now_ms=p.now_ms)
    txn = p._begin()
    broken = p.scheduler.break_entry(txn, DueEntryCrashed(entry, "ValueError('odd')"), p.now_ms)
    p._commit(txn)
    p.settle()
    return broken


def test_a_lease_that_cannot_be_decided_about_fails_alone() -> None:
    p = Partition()
    p.put()
    item = p.run()
    assert crash(p, b"t/j", kind=2)
    assert p.history() == ["RUNNING", "FAILED(error)"]
    assert [i.kind for i in p.taken()] == ["cancel"]
    (letter,) = p.dead_letters()
    assert letter.detail == "ValueError('odd')"
    assert (p.state().status, p.state().open, p.held) == ("ACTIVE", (), 0)
    p.succeed(item)  # nobody waits for it any more
    assert p.history()[-1] == "FAILED(error)"


def test_a_deleted_job_does_not_come_back_because_its_lease_cannot_be_decided_about() -> None:
    p = Partition()
    p.put()
    p.run()
    p.delete()
    assert crash(p, b"t/j", kind=2)
    assert p.state().status == "DELETED"


def test_what_waits_and_cannot_be_leased_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    p = Partition(places=0)
    p.put()
    p.put(job="k")
    p.trigger()
    p.trigger("k")

    real = decide.leased

    def leased(job_key: str, *rest: Any, **named: Any) -> Any:
        if job_key == "t/j":
            raise ValueError("odd")
        return real(job_key, *rest, **named)

    monkeypatch.setattr(decide, "leased", leased)
    with pytest.raises(DueEntryCrashed) as raised:
        p.grant({WORKER: 2})
    assert break_entry(p, raised.value.entry)
    assert p.history() == ["QUEUED", "FAILED(error)"]
    assert p.history("k") == ["QUEUED", "RUNNING"]
    assert p.held == 1


def test_an_entry_that_only_the_dropped_step_made_breaks_nothing() -> None:
    p = Partition(places=0)
    p.put()
    assert not break_entry(p, b"q/default\x00h\x00t\x00" + (T0).to_bytes(6, "big") + b"j\x00\x00")


def test_bytes_that_are_no_reports_are_poison_and_change_nothing() -> None:
    p = Partition()
    p.put()
    item = p.run()
    before = len(p.records)
    for value in (b"", b"\x00\x00\x00\x00\x01", b"{}"):
        with pytest.raises(PoisonRecord):
            p.apply(topology.REPORTS, value)
    assert len(p.records) == before
    p.succeed(item)


def test_reports_about_unknown_jobs_are_counted_and_change_nothing() -> None:
    p = Partition()
    p.put()
    item = p.run()
    p.report(item, "outcome", job="nobody", state="SUCCEEDED")
    p.report(item, "outcome", tenant="u", state="SUCCEEDED")
    assert p.scheduler.figures()["outdated_reports"] == 2
    assert p.open().state == "RUNNING"
