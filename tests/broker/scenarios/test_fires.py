"""A job that is accepted fires on time, once, and everything about it can be looked up."""

import time

import msgspec

from processors import topology
from schemas.commands import DeleteJob, PauseJob, ResumeJob, TriggerJob
from schemas.partition import partition_of
from schemas.replies import Accepted
from schemas.units import format_instant, parse_instant
from tests.broker.scenarios import checks
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import World, headers_of, put, until


@scenario()
def test_a_job_fires_into_its_topic_once_with_its_identity_in_the_headers(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    due_ms = int(time.time() * 1000) + 1_500
    job = put("invoice", orders, at=format_instant(due_ms), payload=b'{"n": 1}')
    [accepted] = world.accepted(job)
    assert (accepted.version, accepted.sequence, accepted.repeated) == (1, 1, False)

    arrived = world.tail(orders)
    until(lambda: bool(arrived.refresh()), "the fire", scheduler)
    [record] = arrived.records
    headers = headers_of(record)
    occurrence = f"acme/invoice:{format_instant(due_ms)}"
    assert record.value == b'{"n": 1}'
    assert record.timestamp_ms >= due_ms  # never early
    assert headers["ce_specversion"] == "1.0"
    assert headers["ce_id"] == headers["Idempotency-Key"] == f"{occurrence}:1"
    assert headers["X-Deduplication-Key"] == occurrence
    assert headers["ce_type"] == "io.horolog.execution.due.v1"
    assert headers["ce_subject"] == "acme/invoice"
    assert headers["ce_source"].startswith("/horolog/")
    assert headers["content-type"] == "application/json"
    assert (headers["X-Horolog-Attempt"], headers["X-Horolog-Delivery"]) == ("1", "1")
    assert headers["X-Horolog-Scheduled-At"] == format_instant(due_ms)
    assert int(headers["X-Horolog-Fence"]) > 0
    assert due_ms <= parse_instant(headers["ce_time"]) <= record.timestamp_ms + 2_000

    [event] = checks.executions(world)
    assert event in checks.fired(world)
    assert checks.fired(world)[0].execution_id == headers["ce_id"]
    assert (checks.fired(world)[0].state, checks.fired(world)[0].topic) == ("SUCCEEDED", orders)
    assert (event.version, event.sequence, event.life) == (1, 2, accepted.life)
    assert checks.states(world)["invoice"].status == "FINISHED"
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario(partitions=3)
def test_every_change_and_event_of_many_jobs_counts_up_without_gaps(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic(partitions=2)
    jobs = [f"job-{n}" for n in range(40)]
    world.accepted(*(put(job, orders, every="1s") for job in jobs))
    arrived = world.tail(orders)
    until(lambda: len(arrived.refresh()) >= 80, "two fires each", scheduler)
    some = jobs[:20]
    world.accepted(*(PauseJob(tenant="acme", job=job) for job in some))
    world.accepted(*(TriggerJob(tenant="acme", job=job) for job in some))
    world.accepted(*(ResumeJob(tenant="acme", job=job) for job in some[:10]))
    world.accepted(*(put(job, orders, every="2s") for job in some))
    world.accepted(*(DeleteJob(tenant="acme", job=job) for job in some[5:]))
    world.accepted(*(put(job, orders, every="1s") for job in some[10:]))
    seen = len(arrived.refresh())
    until(lambda: len(arrived.refresh()) >= seen + 60, "more fires", scheduler)
    assert scheduler.terminate() == 0
    assert len(checks.changes(world)) == 40 + 20 + 10 + 20 + 15 + 10
    checks.check_log(world)
    checks.check_stores(world, scheduler)
    for job in jobs[20:]:
        checks.check_every_second(world, job)


@scenario(partitions=4)
def test_a_command_in_a_foreign_partition_is_forwarded_and_takes_effect_once(
    world: World,
) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    job = world.job_on(2)
    replies = world.tail(topology.REPLIES)
    command = put(job, orders, command_id="strayed", reply_to="somebody")
    world.send(command, partition=0)
    world.send(command, partition=1)
    until(lambda: len(replies.refresh()) >= 2, "both answers", scheduler)

    answers = checks.answers(replies.records)
    assert all(isinstance(answer, Accepted) for answer in answers)
    assert [answer.command_id for answer in answers] == ["strayed", "strayed"]
    assert [isinstance(a, Accepted) and a.repeated for a in answers] == [False, True]
    [change] = checks.changes(world)
    assert (change.job, change.version, change.command_id) == (job, 1, "strayed")
    assert checks.commands(world, 2) == [msgspec.structs.replace(command, hops=1)] * 2
    assert checks.quarantined(world) == []
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario(partitions=2)
def test_a_command_without_an_id_is_forwarded_under_the_place_it_came_from(
    world: World,
) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    job = world.job_on(1)
    world.accepted(put(job, orders))
    world.send(TriggerJob(tenant="acme", job=job), partition=0)
    arrived = world.tail(orders)
    until(lambda: bool(arrived.refresh()), "the triggered run", scheduler)
    moved = checks.commands(world, 1)[-1]
    assert isinstance(moved, TriggerJob)
    assert moved.command_id.startswith("commands-0-")
    scheduler.kill()
    scheduler = world.scheduler().await_owner()
    world.accepted(TriggerJob(tenant="acme", job=job))
    assert len(arrived.refresh()) == 2
    checks.check_log(world)


@scenario(partitions=4)
def test_a_command_whose_forwarding_failed_is_forwarded_again(world: World) -> None:
    scheduler = world.scheduler(patch="drop_the_first_forward").await_owner()
    orders = world.topic()
    world.send(put(world.job_on(2), orders), partition=0)
    until(lambda: len(checks.changes(world)) == 1, "the command to take effect", scheduler)
    assert "take_over_again" in scheduler.events()
    assert scheduler.terminate() == 0
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario(partitions=2)
def test_a_command_forwarded_twice_goes_to_quarantine(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    job = world.job_on(1)
    world.send(put(job, orders, command_id="lost", hops=1), partition=0)
    until(lambda: bool(checks.quarantined(world)), "the quarantine", scheduler)
    [found] = checks.quarantined(world)
    assert (found.topic, found.partition, found.offset) == ("commands", 0, 0)
    assert "belongs to partition 1 of 2" in found.error
    assert checks.changes(world) == []
    checks.check_log(world)


@scenario(partitions=4)
def test_a_job_lives_in_the_partition_of_its_key_only(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    jobs = [f"job-{n}" for n in range(50)]
    answers = world.ask(*(put(job, orders, every="1s") for job in jobs))
    assert all(isinstance(answer, Accepted) for answer in answers)
    arrived = world.tail(orders)
    until(lambda: len(arrived.refresh()) >= 50, "a fire each", scheduler)
    scheduler.terminate()
    for topic in (topology.SCHEDULES, topology.SCHEDULE_CHANGES, topology.EXECUTIONS):
        for record in world.records(topic):
            job = (record.key or b"").decode().partition("@")[0].partition(":")[0]
            assert record.partition == partition_of(job, 4)
