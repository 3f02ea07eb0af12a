"""Records that cannot be used and decisions that raise are set aside; everybody else goes on."""

import time

import msgspec
from confluent_kafka import Producer

from processors import topology
from schemas.bindings import JOB_DEFINITION, MARK, PUT_JOB, TRIGGER_JOB
from schemas.commands import AnyCommand, ResumeJob, TriggerJob
from schemas.limits import COMMAND_BYTES_MAX
from schemas.units import format_instant
from streams.layout import MARK_KEY
from tests.broker.scenarios import checks
from tests.broker.scenarios.world import World, mark_of, put, until

TRIGGER = TriggerJob(tenant="acme", job="any")
NESTED = b'{"type": "put", "tenant": ' + b"[" * 100_000
UNDECODABLE: dict[str, bytes | None] = {
    "no value": None,
    "empty": b"",
    "bad magic": b"\x01" + TRIGGER_JOB.encode(TRIGGER)[1:],
    "an unknown schema id": b"\x00\x00\x00\x27\x0f" + TRIGGER_JOB.encode(TRIGGER)[5:],
    "a schema that is no command": b"\x00\x00\x00\x00\x0b" + TRIGGER_JOB.encode(TRIGGER)[5:],
    "only a prefix": TRIGGER_JOB.encode(TRIGGER)[:5],
    "half a prefix": b"\x00\x00",
    "truncated": PUT_JOB.encode(put("any", "orders"))[:-3],
    "longer than it says": TRIGGER_JOB.encode(TRIGGER) + b"\x00",
    "a length beyond the end": TRIGGER_JOB.encode(TRIGGER)[:5] + b"\xfe\xff\xff\xff\x0f",
    "no UTF-8": TRIGGER_JOB.encode(TRIGGER).replace(b"acme", b"\xff\xfe\xfd\xfc"),
    "malformed JSON": b'{"type": "put", "tenant": "acme", ',
    "JSON that is no object": b"[1, 2, 3]",
    "JSON nested without end": NESTED,
    "text": b"put acme/any",
    "JSON with a text that is no UTF-8": b'{"type": "put", "tenant": "\xff"}',
    "too large": b"{" + b" " * COMMAND_BYTES_MAX + b"}",
}


def test_what_cannot_be_decoded_goes_to_quarantine_and_the_next_record_is_applied(
    world: World,
) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    for value in UNDECODABLE.values():
        world.produce(value, "acme/any", 0)
    world.flush()
    started_s = time.monotonic()
    world.send(put("next", orders, reply_to="me"))
    replies = world.tail(topology.REPLIES)
    until(lambda: bool(replies.refresh()), "the next command's answer", scheduler)
    assert time.monotonic() - started_s < 1.0

    aside = checks.quarantined(world)
    assert [(q.topic, q.partition, q.offset) for q in aside] == [
        ("commands", 0, offset) for offset in range(len(UNDECODABLE))
    ]
    for found, (name, value) in zip(aside, UNDECODABLE.items(), strict=True):
        assert found.key == b"acme/any", name
        assert found.value == (value and value[: len(found.value or b"")]), name
        assert found.error, name
    assert scheduler.events().count("quarantined") == len(UNDECODABLE)
    assert [change.job for change in checks.changes(world)] == ["next"]
    scheduler.kill()
    scheduler = world.scheduler().await_owner()
    world.accepted(TriggerJob(tenant="acme", job="next"))
    assert scheduler.terminate() == 0
    assert len(checks.quarantined(world)) == len(UNDECODABLE)
    checks.check_log(world)
    checks.check_stores(world, scheduler)


def mixed_batch(orders: str) -> list[AnyCommand]:
    """Good commands with a crashing one at the start, in the middle and at the end."""
    good = [put(f"good-{n}", orders, every="1s") for n in range(60)]
    crash = [put(f"crash-{n}", orders) for n in range(3)]
    return [crash[0], *good[:30], crash[1], *good[30:], crash[2]]


def test_a_record_that_crashes_the_step_goes_to_quarantine_alone(world: World) -> None:
    orders = world.topic()
    scheduler = world.scheduler(patch="crash_on_command").await_owner()
    world.send(*mixed_batch(orders))
    wanted = {f"good-{n}" for n in range(60)}
    until(lambda: wanted <= checks.states(world).keys(), "its neighbours", scheduler)
    until(lambda: len(checks.quarantined(world)) == 3, "the quarantine", scheduler)
    check_crashes(world)
    arrived = world.tail(orders, since_end=True)
    until(lambda: len(arrived.refresh()) >= 2 * 60, "fires", scheduler)
    assert scheduler.terminate() == 0
    for job in wanted:
        checks.check_every_second(world, job)
    checks.check_log(world)
    checks.check_stores(world, scheduler)


def test_a_record_that_crashes_the_step_is_found_while_something_is_always_due(
    world: World,
) -> None:
    orders = world.topic()
    scheduler = world.scheduler(patch="crash_on_command").await_owner()
    start_ms = int(time.time() * 1000) + 4_000
    dense = [put(f"at-{n}", orders, at=format_instant(start_ms + 3 * n)) for n in range(2_000)]
    world.accepted(*dense)
    arrived = world.tail(orders)
    until(lambda: len(arrived.refresh()) >= 100, "the dense part", scheduler)
    started_s = time.monotonic()
    world.send(*mixed_batch(orders))
    wanted = {f"good-{n}" for n in range(60)}
    until(lambda: len(checks.quarantined(world)) == 3, "the quarantine", scheduler)
    assert time.monotonic() - started_s < 2.0
    assert wanted <= checks.states(world).keys()
    check_crashes(world)
    until(lambda: len(arrived.refresh()) >= 2_000, "all of them", scheduler)
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


def check_crashes(world: World) -> None:
    aside = checks.quarantined(world)
    assert [q.key for q in aside] == [b"acme/crash-0", b"acme/crash-1", b"acme/crash-2"]
    assert all("a bug in a command's decision" in q.error for q in aside)


def test_a_due_entry_that_crashes_breaks_its_job_and_no_other(world: World) -> None:
    orders = world.topic()
    good = [f"good-{n}" for n in range(20)]
    sane = world.scheduler().await_owner()
    world.accepted(
        *(put(job, orders, every="1s") for job in good), put("crash", orders, every="1s")
    )
    until(lambda: "crash" in {e.job for e in checks.fired(world)}, "its first fire", sane)
    sane.kill()
    soon_ms = int(time.time() * 1000) + 500
    world.send(put("crash-once", orders, at=format_instant(soon_ms)))

    scheduler = world.scheduler(patch="crash_on_tick").await_owner()
    until(lambda: _broken(world) == {"crash", "crash-once"}, "the jobs to be broken", scheduler)
    state = checks.states(world)["crash"]
    assert state.hold is not None
    assert state.hold.reason == "decision"
    assert "a bug in a tick's decision" in state.hold.note
    assert (state.due_ms, state.next_ms) == (0, 0)
    [span] = [span for span in checks.missed(world) if span.job == "crash-once"]
    assert (span.reason, span.first, span.last, span.count) == ("error", soon_ms, soon_ms, 1)
    assert {s.reason for s in checks.missed(world) if s.job == "crash"} >= {"error"}
    broken = [change for change in checks.changes(world) if change.change == "break"]
    assert {change.reason for change in broken} == {"decision"}
    assert sorted(change.job for change in broken) == ["crash", "crash-once"]
    assert scheduler.events().count("due_entry_crashed") == 2
    fires = len(checks.fired(world))
    until(lambda: len(checks.fired(world)) >= fires + 2 * len(good), "the others", scheduler)
    assert scheduler.terminate() == 0

    sane = world.scheduler().await_owner()
    world.accepted(ResumeJob(tenant="acme", job="crash"))
    assert checks.states(world)["crash"].status == "ACTIVE"
    assert checks.states(world)["crash"].hold is None
    fires = len([e for e in checks.fired(world) if e.job == "crash"])
    until(lambda: len([e for e in checks.fired(world) if e.job == "crash"]) > fires, "a fire")
    assert sane.terminate() == 0
    for job in good:
        checks.check_every_second(world, job)
    checks.check_log(world)
    checks.check_stores(world, sane)


def test_a_herd_in_which_every_tenth_tick_crashes_fires_the_others(world: World) -> None:
    orders = world.topic()
    soon_ms = int(time.time() * 1000) // 1000 * 1000 + 5_000
    scheduler = world.scheduler(patch="crash_on_tick").await_owner()
    jobs = [f"crash-{n}" if n % 10 == 0 else f"good-{n}" for n in range(1_000)]
    world.accepted(*(put(job, orders, at=format_instant(soon_ms)) for job in jobs))
    until(lambda: len(checks.fired(world)) >= 900, "the others", scheduler)
    until(lambda: len(_broken(world)) == 100, "the broken ones", scheduler)
    assert scheduler.terminate() == 0
    assert len(checks.fired(world)) == 900
    assert _broken(world) == {job for job in jobs if job.startswith("crash")}
    checks.check_log(world)
    checks.check_stores(world, scheduler)


def test_a_command_to_a_job_whose_tick_crashes_is_answered(world: World) -> None:
    """A command settles the job's undecided ticks first; it is not to blame for what they do."""
    orders = world.topic()
    sane = world.scheduler().await_owner()
    world.accepted(put("crash", orders, every="1s"))
    sane.kill()
    time.sleep(1.5)  # a tick is due before anybody decides again
    world.send(put("crash", orders, every="2s", command_id="other", reply_to="me"))
    replies = world.tail(topology.REPLIES, since_end=True)
    scheduler = world.scheduler(patch="crash_on_tick").await_owner()
    until(lambda: bool(replies.refresh()), "the answer", scheduler)
    assert checks.quarantined(world) == []
    [answer] = checks.answers(replies.records)
    assert answer.command_id == "other"
    assert [c.change for c in checks.changes(world)][:3] == ["put", "break", "put"]
    assert scheduler.terminate() == 0
    checks.check_log(world)


def test_a_definition_that_cannot_be_planned_breaks_its_job_and_no_other(world: World) -> None:
    """As after a zone was taken out of the data: the record decodes, its schedule does not run."""
    orders = world.topic()
    scheduler = world.scheduler().await_owner()
    world.accepted(put("good", orders, every="1s"), put("bad", orders, every="1s"))
    world.accepted(put("bad", orders, cron="*/2 * * * * *"))
    assert scheduler.terminate() == 0
    spoil_zone(world, "acme/bad")
    scheduler = world.scheduler().await_owner()
    until(lambda: _broken(world) == {"bad"}, "the job to be broken", scheduler)
    fires = len(checks.fired(world))
    until(lambda: len(checks.fired(world)) >= fires + 2, "the other", scheduler)
    world.accepted(put("bad", orders, every="1s"))
    until(lambda: len([e for e in checks.fired(world) if e.job == "bad"]) >= 2, "its fires")
    assert scheduler.terminate() == 0
    checks.check_every_second(world, "good")
    checks.check_sequences(world)
    checks.check_stores(world, scheduler)


def spoil_zone(world: World, key: str) -> None:
    """Write the job's definition again, with a zone that is not in the data, as its owner would."""
    found = [r for r in world.records(topology.SCHEDULES) if r.key == key.encode()][-1]
    definition = JOB_DEFINITION.decode(found.value or b"")
    [schedule] = definition.schedules
    mark = mark_of([r for r in world.records(topology.JOB_STATE) if r.key == MARK_KEY][-1])
    txn = mark.txn + 1
    spoiled = msgspec.structs.replace(
        definition, txn=txn,
        schedules=(msgspec.structs.replace(schedule, timezone="Mars/Olympus"),),
    )  # fmt: skip
    producer = Producer(
        {"bootstrap.servers": world.bootstrap,
         "transactional.id": f"{world.namespace}-scheduler-0"}
    )  # fmt: skip
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(world.name(topology.SCHEDULES), JOB_DEFINITION.encode(spoiled), key, 0)
    producer.produce(
        world.name(topology.JOB_STATE),
        MARK.encode(msgspec.structs.replace(mark, txn=txn, records=2)), MARK_KEY, 0,
    )  # fmt: skip
    producer.commit_transaction(10)


def _broken(world: World) -> set[str]:
    return {job for job, state in checks.states(world).items() if state.status == "BROKEN"}
