"""What must hold of executions and leases, whatever happens on the way (invariants I1 to I16).

A failing seed is printed by its test's name. `HOROLOG_LONG=1` plays many more.
"""

import os
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest

from processors import topology
from processors.core.executions import LEASE_CLOSED, TERMINAL
from schemas import bindings, limits
from schemas.events import ExecutionFired, ExecutionMoved, JobChanged, TicksMissed
from streams.layout import MARK_KEY, META
from streams.memory import MemoryStores
from tests.properties.leases_log import decoded
from tests.properties.leases_owners import Owner
from tests.properties.leases_world import JOBS, World

PINNED = (57, 163, 184, 251)
"""Seeds that find bugs we had: two lives of a job from one transaction; a trigger taken to be given
after the pause, since it was claimed after the pause was appended."""
SEEDS = 5_000 if os.environ.get("HOROLOG_LONG") == "1" else 300
ROUNDS = 400
LOST, DELETED = "the lease was lost", "the job was deleted"
"""What events say of an execution that waits again because its lease expired, and of one that does
not because its job is gone."""


@pytest.mark.parametrize("seed", sorted({*range(SEEDS), *PINNED}))
def test_every_execution_comes_to_one_end_and_no_two_runs_of_a_job_overlap(seed: int) -> None:
    world = World(seed, real_slots=seed % 6 == 0)
    for _ in range(8):
        world.play(ROUNDS // 8)
        assert_memory_holds_what_is(world)
    world.heal()
    assert not world.busy(), "something is open, waits or holds a place for ever"
    events = executions_of(world)
    assert_everything_is_somebodys(events)
    assert_sequences_are_gapless(world, events)
    assert_each_occurrence_has_one_claim_and_one_end(world, events)
    assert_forbid_skips_what_it_must_and_nothing_else(events)
    assert_ticks_are_covered(events)
    assert_leases_follow_each_other(events)
    assert_workers_are_told_what_is_recorded(world, events)
    assert_runs_overlap_only_after_a_lost_lease(world, events)
    assert_epochs_grow(world)
    assert_the_log_gives_the_state(world)


def assert_everything_is_somebodys(events: dict[str, list[Any]]) -> None:
    """I13, as far as names show it: what is recorded of a tenant is about a job it has."""
    assert set(events) <= {f"{tenant}/{job}" for tenant, job in JOBS}


def executions_of(world: World) -> dict[str, list[Any]]:
    """Events of each job in order."""
    events: defaultdict[str, list[Any]] = defaultdict(list)
    for topic in (topology.EXECUTIONS, topology.SCHEDULE_CHANGES):
        for record in world.committed(topic):
            event = decoded(record.value or b"")
            events[f"{event.tenant}/{event.job}"].append(event)
    return {job: sorted(found, key=lambda e: e.sequence) for job, found in events.items()}


def assert_sequences_are_gapless(world: World, events: dict[str, list[Any]]) -> None:
    """I12, over all lives of a name; positions grow as (life, sequence)."""
    for job, found in events.items():
        assert [e.sequence for e in found] == list(range(1, len(found) + 1)), job
        assert [e.life for e in found] == sorted(e.life for e in found), job
        assert [e.txn for e in found] == sorted(e.txn for e in found), job
        for before, after in pairwise(found):
            if after.life != before.life:
                assert isinstance(after, JobChanged) and after.change == "put", job


def assert_each_occurrence_has_one_claim_and_one_end(
    world: World, events: dict[str, list[Any]]
) -> None:
    """I1, I2, I3, I5, I8, I16."""
    letters = Counter(
        decoded(r.value or b"").execution_id for r in world.committed(topology.DEAD_LETTERS)
    )
    for found in events.values():
        claimed: Counter[str] = Counter()
        ended: Counter[str] = Counter()
        lost: Counter[str] = Counter()
        deleted = False
        for event in found:
            match event:
                case JobChanged():
                    deleted = event.change == "delete"
                case ExecutionFired():
                    assert not deleted, f"I16: {event.execution_id} after the delete"
                    triggered = "~m" in event.execution_id  # due when appended, by another clock
                    assert triggered or event.claimed_at >= event.due_at, f"I1: {event}"
                    claimed[event.execution_id] += 1
                    if event.state in TERMINAL or event.state == "SKIPPED":
                        ended[event.execution_id] += 1
                case ExecutionMoved():
                    assert claimed[event.execution_id] == 1
                    if event.reason == LEASE_CLOSED:
                        assert ended[event.execution_id] == 1
                        continue
                    assert not ended[event.execution_id], f"I8: {event}"
                    assert event.attempt == 1
                    dead = event.state == "DEAD"
                    lost[event.execution_id] += dead or event.detail == LOST
                    counted = event.lost - lost[event.execution_id]
                    # That of a deleted job is cancelled, be its lease lost or given back.
                    gone = event.state == "CANCELLED" and event.detail == DELETED
                    assert 0 <= counted <= gone, f"I5: {event}"
                    assert dead == (event.lost == limits.MAX_DELIVERIES), f"I5: {event}"
                    if event.state in TERMINAL:
                        ended[event.execution_id] += 1
                        failed = event.state in ("FAILED", "DEAD")
                        assert letters.pop(event.execution_id, 0) == failed, f"I5: {event}"
                case _:
                    """Ticks that were passed over, checked elsewhere."""
        assert set(claimed.values()) <= {1}
        assert claimed == ended
    assert not +letters


def assert_forbid_skips_what_it_must_and_nothing_else(events: dict[str, list[Any]]) -> None:
    """What is claimed runs if nothing of the job is open, in this life or the former one: not even
    a lease of something that is cancelled."""
    for found in events.values():
        closing = {
            e.execution_id for e in found
            if isinstance(e, ExecutionMoved) and e.reason == LEASE_CLOSED
        }  # fmt: skip
        open_now: set[str] = set()
        for event in found:
            if isinstance(event, ExecutionFired):
                assert (event.state == "SKIPPED") == bool(open_now), event
                if event.state in ("QUEUED", "RUNNING"):
                    open_now.add(event.execution_id)
            elif (
                isinstance(event, ExecutionMoved)
                and event.state in TERMINAL
                and (event.execution_id not in closing or event.reason == LEASE_CLOSED)
            ):
                open_now.remove(event.execution_id)


def assert_ticks_are_covered(events: dict[str, list[Any]]) -> None:
    """I3: between two changes of a job its ticks follow each other without a hole."""
    for found in events.values():
        every_ms = last_ms = 0
        for event in found:
            match event:
                case JobChanged():
                    last_ms = 0
                    if event.definition is not None:
                        every_ms = event.definition.schedules[0].every_ms
                case ExecutionFired() if "~m" not in event.execution_id:
                    assert not last_ms or event.scheduled_at == last_ms + every_ms, event
                    last_ms = event.scheduled_at
                case TicksMissed() if every_ms:
                    assert not last_ms or event.first == last_ms + every_ms, event
                    assert event.count == (event.last - event.first) // every_ms + 1
                    last_ms = event.last
                case _:
                    """A trigger, or a tick of something else: nothing to compare it with."""


def assert_leases_follow_each_other(events: dict[str, list[Any]]) -> None:
    """I7 in the log: a lease is over before the next one is given, and only its holder's. Of what
    was claimed before a delete nothing is leased after it; nor while its job is paused."""
    for found in events.values():
        leases: dict[str, tuple[int, str]] = {}
        until_ms: dict[str, int] = {}
        gone: set[str] = set()
        held: set[str] = set()
        since_ms = 0
        for event in found:
            if isinstance(event, JobChanged):
                if event.change == "delete":
                    gone |= leases.keys()
                if event.change in ("pause", "resume", "delete"):
                    held = set(leases) if event.change == "pause" else set()
                    since_ms = event.at_ms
                continue
            if not isinstance(event, ExecutionFired | ExecutionMoved):
                continue
            delivery, worker = leases.get(event.execution_id, (0, ""))
            if event.state == "RUNNING" and not worker:
                assert event.delivery == delivery + 1, event
                assert event.execution_id not in gone, event
                # In the same millisecond nobody can tell which was first.
                assert event.execution_id not in held or event.due_at == since_ms, event
                leases[event.execution_id] = (event.delivery, event.worker)
                until_ms[event.execution_id] = event.lease_until
            elif event.state == "RUNNING":
                assert (event.delivery, event.worker) == (delivery, worker), event
                assert event.lease_until >= until_ms[event.execution_id], f"I7: {event}"
                until_ms[event.execution_id] = event.lease_until
            elif event.state in ("QUEUED", "PENDING"):
                assert event.delivery == delivery, event
                leases[event.execution_id] = (delivery, "")


def assert_runs_overlap_only_after_a_lost_lease(world: World, events: dict[str, list[Any]]) -> None:
    """I4."""
    runs = defaultdict(list)
    for run in world.runs:
        runs[f"{run.item.tenant}/{run.item.job}"].append(run)
    for job, found in runs.items():
        for n, first in enumerate(found):
            for second in found[n + 1 :]:
                if first.ended_ms is not None and first.ended_ms <= second.begun_ms:
                    continue
                lost = lost_at(events[job], first.item.execution_id, first.item.delivery)
                leased = leased_at(events[job], second.item.execution_id, second.item.delivery)
                assert lost is not None and lost < leased, (
                    f"I4: {second.item.execution_id} delivery {second.item.delivery} began at "
                    f"{second.begun_ms} while {first.item.execution_id} delivery "
                    f"{first.item.delivery} ran from {first.begun_ms} to {first.ended_ms}"
                )


def assert_workers_are_told_what_is_recorded(world: World, events: dict[str, list[Any]]) -> None:
    """I7: a worker counts on its lease no longer than the log says."""
    until_ms: Counter[tuple[str, int]] = Counter()
    for found in events.values():
        for event in found:
            if isinstance(event, ExecutionFired | ExecutionMoved) and event.state == "RUNNING":
                until_ms[event.execution_id, event.delivery] = event.lease_until
    for run in world.runs:
        item = run.item
        assert item.lease_until <= until_ms[item.execution_id, item.delivery], f"I7: {item}"


def leased_at(events: list[Any], execution_id: str, delivery: int) -> int:
    """Sequence of the event that leased this delivery."""
    return next(
        int(event.sequence)
        for event in events
        if getattr(event, "execution_id", "") == execution_id and event.delivery == delivery
    )


def lost_at(events: list[Any], execution_id: str, delivery: int) -> int | None:
    """Sequence of the event that ended this delivery's lease for its time being over, if any did.
    What it says otherwise is that the run ended before it did."""
    until_ms = 0
    for event in events:
        if getattr(event, "execution_id", "") != execution_id or event.delivery != delivery:
            continue
        if event.state == "RUNNING":
            until_ms = event.lease_until
        elif isinstance(event, ExecutionMoved) and event.at >= until_ms:
            return int(event.sequence)
    return None


def assert_epochs_grow(world: World) -> None:
    """I6: a transaction is that of the newest owner."""
    last: dict[int, tuple[int, int]] = {}
    for record in world.committed(topology.JOB_STATE):
        if record.key == MARK_KEY:
            mark = bindings.MARK.decode(record.value or b"")
            epoch, txn = last.get(record.partition, (0, 0))
            assert mark.txn > txn, "I6"
            assert mark.epoch == epoch or mark.epoch > txn, "I6: an epoch that is not new"
            last[record.partition] = (mark.epoch, mark.txn)


def assert_the_log_gives_the_state(world: World) -> None:
    """I11: who reads the changelogs from the start has the same state and index."""
    for owner in world.owners:
        stores = MemoryStores()
        taken = Owner(world, owner.task.partition, stores).task.parts.take_over.run(
            owner.task.partition
        )
        assert owner.task.store is not None
        live = dict(owner.task.store.scan(b"", b"\xff", 100_000))
        restored = dict(taken.restored.store.scan(b"", b"\xff", 100_000))
        assert {k: v for k, v in restored.items() if not k.startswith(META)} == {
            k: v for k, v in live.items() if not k.startswith(META)
        }


def assert_memory_holds_what_is(world: World) -> None:
    """I14, as far as a small world can show it; and no place is counted too often or too little."""
    for owner in world.owners:
        if not owner.task.ready or owner.task.busy:
            continue
        figures, states = owner.figures(), list(world.states(owner))
        leased = sum(execution.leased for state in states for execution in state.open)
        assert figures["held"] == leased
        assert figures["cached_jobs"] <= len(JOBS)
        assert all(len(state.open) <= 1 for state in states), "forbid"
        # A lease that was renewed or closed leaves its entry behind until that is due.
        assert figures["wheel_keys"] + figures["lapsed"] + figures["unheard"] <= 60
