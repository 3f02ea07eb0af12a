"""A user's topic that is gone, never was, or refuses a message hurts its own fires only."""

import itertools
import sys
import time
from collections import Counter

from processors import topology
from schemas import limits
from schemas.bindings import EXECUTION_FIRED
from schemas.commands import TriggerJob
from schemas.events import ExecutionFired
from schemas.units import format_instant
from tests.broker.scenarios import checks
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import SchedulerProcess, World, headers_of, ids_of, put, until

GAP_S_MAX = 10.0
"""No partition stands still for longer, whatever its users do."""


def good_jobs(world: World, orders: str, count: int = 20) -> list[str]:
    """Jobs of other tenants in the same partition, at many different instants of each second."""
    jobs = [f"good-{n}" for n in range(count)]
    for n, job in enumerate(jobs):
        world.accepted(put(job, orders, tenant=f"t{n % 4}", every="1s"))
    return jobs


def of_job(world: World, job: str) -> list[ExecutionFired]:
    return [event for event in checks.fired(world) if event.job == job]


def check_dead_letters(world: World) -> None:
    """Each failed fire has a copy for whoever watches."""
    copies = [EXECUTION_FIRED.decode(r.value or b"") for r in world.records(topology.DEAD_LETTERS)]
    failed = [event for event in checks.fired(world) if event.state == "FAILED"]
    assert copies == failed
    assert all((event.reason, event.partition) == ("target", -1) for event in failed)


def check_others(world: World, jobs: list[str]) -> None:
    """They fired each second, or the seconds in which they did not are accounted for."""
    for n, job in enumerate(jobs):
        checks.check_every_second(world, job, tenant=f"t{n % 4}")
    assert {e.state for e in checks.fired(world) if e.job in jobs} == {"SUCCEEDED"}


def longest_gap_s(world: World, topic: str) -> float:
    at_ms = sorted(record.timestamp_ms for record in world.records(topic))
    gap_s = max(b - a for a, b in itertools.pairwise(at_ms)) / 1000
    sys.stderr.write(f"longest gap of the others' fires: {gap_s} s\n")
    return gap_s


def finish(world: World, scheduler: SchedulerProcess) -> None:
    assert scheduler.terminate() == 0
    check_dead_letters(world)
    checks.check_log(world)
    checks.check_stores(world, scheduler)


@scenario()
def test_a_topic_that_is_deleted_fails_its_fires_until_it_is_there_again(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders, doomed = world.topic(message_timestamp_type="LogAppendTime"), world.topic("doomed")
    others = good_jobs(world, orders)
    world.accepted(put("sad", doomed, every="1s"))
    until(lambda: len(of_job(world, "sad")) >= 2, "its first fires", scheduler)
    before = ids_of(world.records(doomed))
    world.delete_topic(doomed)
    until(lambda: _states(world, "sad")[-2:] == ["FAILED"] * 2, "failed fires", scheduler)
    assert scheduler.alive
    failed = [event for event in of_job(world, "sad") if event.state == "FAILED"]
    assert all("does not exist" in event.detail for event in failed)

    doomed = world.topic("doomed")
    until(lambda: bool(world.records(doomed)), "fires into the new topic", scheduler)
    finish_without(world, scheduler, doomed, before)
    check_others(world, others)
    assert longest_gap_s(world, orders) < GAP_S_MAX


def finish_without(
    world: World, scheduler: SchedulerProcess, topic: str, before: list[str]
) -> None:
    """The topic was created again: what stood in the old one cannot be read any more."""
    assert scheduler.terminate() == 0
    check_dead_letters(world)
    checks.check_sequences(world)
    checks.check_ticks(world)
    checks.check_marks(world)
    checks.check_stores(world, scheduler)
    told = [e.execution_id for e in checks.fired(world) if e.topic == topic and e.partition >= 0]
    now = ids_of(world.records(topic))
    assert [one for one in told if one in now] == now
    lost = [one for one in told if one not in now]
    assert lost[: len(before)] == before


@scenario()
def test_a_trigger_into_a_deleted_topic_fails_and_the_next_command_is_applied(
    world: World,
) -> None:
    """No due entry comes in between: commands alone have to find out, too."""
    scheduler = world.scheduler().await_owner()
    doomed = world.topic("doomed")
    world.accepted(put("manual", doomed))
    trigger = TriggerJob(tenant="acme", job="manual")
    world.accepted(trigger)
    until(lambda: len(world.records(doomed)) == 1, "the first run", scheduler)
    world.delete_topic(doomed)
    # The broker may take records for a moment after it said that the topic is gone.
    until(lambda: _state_of_next(world, trigger) == "FAILED", "a run to fail", scheduler)
    world.accepted(put("next", world.topic()))

    doomed = world.topic("doomed")
    until(
        lambda: _state_of_next(world, trigger) == "SUCCEEDED", "a run in the new topic", scheduler
    )
    assert scheduler.terminate() == 0
    check_dead_letters(world)
    checks.check_marks(world)


def _state_of_next(world: World, trigger: TriggerJob) -> str:
    world.accepted(trigger)
    return _states(world, "manual")[-1]


@scenario()
def test_a_topic_that_never_was_fails_its_fires_until_it_is_created(world: World) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic(message_timestamp_type="LogAppendTime")
    others = good_jobs(world, orders)
    later = f"{world.namespace}-later"
    world.accepted(put("early", later, every="1s"))
    until(lambda: len(of_job(world, "early")) >= 2, "its first fires", scheduler)
    assert {(e.state, e.detail) for e in of_job(world, "early")} == {
        ("FAILED", f"topic {later} does not exist")
    }
    world.topic("later")
    until(lambda: bool(world.records(later)), "fires into the topic", scheduler)
    finish(world, scheduler)
    check_others(world, others)
    assert longest_gap_s(world, orders) < GAP_S_MAX


@scenario()
def test_a_topic_that_finds_messages_too_large_fails_those_and_takes_the_others(
    world: World,
) -> None:
    scheduler = world.scheduler().await_owner()
    orders = world.topic(message_timestamp_type="LogAppendTime")
    narrow = world.topic("narrow", max_message_bytes="1500")
    others = good_jobs(world, orders)
    soon = format_instant(int(time.time() * 1000) // 1000 * 1000 + 3_000)
    world.accepted(
        *(put(f"small-{n}", narrow, at=soon, payload=b"x") for n in range(30)),
        *(put(f"large-{n}", narrow, at=soon, payload=b"x" * 2_000) for n in range(30)),
        put("every", narrow, every="1s", payload=b"x" * 2_000),
    )
    until(lambda: len(of_job(world, "every")) >= 4, "the fires", scheduler)
    until(lambda: sum(e.scheduled_at % 1000 == 0 for e in checks.fired(world)) >= 60, "all 60")
    states = {e.job: e.state for e in checks.fired(world)}
    assert {states[f"small-{n}"] for n in range(30)} == {"SUCCEEDED"}
    assert {states[f"large-{n}"] for n in range(30)} == {"FAILED"}
    finish(world, scheduler)
    check_others(world, others)
    assert longest_gap_s(world, orders) < GAP_S_MAX


@scenario()
def test_a_topic_that_loses_partitions_takes_what_fits_into_those_it_has(world: World) -> None:
    """Created again with fewer: the partition that a keyed message went to is gone."""
    scheduler = world.scheduler().await_owner()
    shrinking = world.topic("shrinking", partitions=8)
    world.accepted(*(put(f"job-{n}", shrinking, every="1s") for n in range(8)))
    until(lambda: len(world.records(shrinking)) >= 16, "fires", scheduler)
    world.delete_topic(shrinking)
    shrinking = world.topic("shrinking", partitions=1)
    until(lambda: len(world.records(shrinking)) >= 16, "fires into what is left", scheduler)
    assert scheduler.alive


@scenario()
def test_a_herd_with_the_largest_payloads_fires_in_portions(world: World) -> None:
    """So that no transaction takes longer than the time a topic has for its answer."""
    scheduler = world.scheduler().await_owner()
    orders = world.topic()
    soon = format_instant(int(time.time() * 1000) // 1000 * 1000 + 4_000)
    payload = b"x" * limits.PAYLOAD_BYTES_MAX
    world.send(*(put(f"job-{n}", orders, at=soon, payload=payload) for n in range(1_500)))
    until(lambda: len(checks.fired(world)) >= 1_500, "the herd", scheduler)
    assert {event.state for event in checks.fired(world)} == {"SUCCEEDED"}
    bytes_of: Counter[int] = Counter()
    for record in world.records(orders):
        bytes_of[int(headers_of(record)["X-Horolog-Fence"]) >> 16] += len(record.value or b"")
    assert max(bytes_of.values()) < 3 * limits.TRANSACTION_BYTES_MAX
    finish(world, scheduler)


def _states(world: World, job: str) -> list[str]:
    return [event.state for event in of_job(world, job)]
