"""The short way for plain ticks writes, record for record, what the general one does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from processors.core.job import Job
from processors.plain import PlainFires
from schemas.commands import (
    DeleteJob,
    JobSpec,
    PauseJob,
    PutJob,
    ResumeJob,
    ScheduleSpec,
    TopicTargetSpec,
    TriggerJob,
    WorkerTargetSpec,
)
from streams.transaction import Transaction
from tests.unit.core.owner import Owner

START_MS = 1_780_000_000_000
SCHEDULES = (
    (ScheduleSpec(every="1s"),),
    (ScheduleSpec(every="7s"),),
    (ScheduleSpec(cron="* * * * *", timezone="Europe/Berlin"),),
    (ScheduleSpec(at="2026-05-28T20:26:43.250Z"),),
    (ScheduleSpec(at="2026-05-28T20:26:41Z"), ScheduleSpec(every="3s")),
    (ScheduleSpec(in_="2s"),),
)
TARGETS = (
    {"topic": TopicTargetSpec(name="orders")},
    {"topic": TopicTargetSpec(name="gone")},
    {"topic": TopicTargetSpec(name="orders", key="k%")},
    {"topic": TopicTargetSpec(name="orders", headers={"a": "b", "c": "d%"})},
    {"worker": WorkerTargetSpec(handler="h")},
)
POLICIES: tuple[dict[str, Any], ...] = (
    {}, {}, {"missed": "skip"}, {"jitter": "2s"}, {"max_runs": 2}, {"end": "2026-05-28T20:26:50Z"},
)  # fmt: skip
TENANTS, JOBS = ("ada", "g-d"), ("one", "two.x", "three")


class General(PlainFires):
    """Finds nothing plain."""

    def fire(
        self, txn: Transaction, entries: Sequence[bytes], job_keys: Sequence[bytes],
        held: Mapping[bytes, Job], now_ms: int, decide: Callable[[bytes, bytes], None],
    ) -> None:  # fmt: skip
        for entry, job_key in zip(entries, job_keys, strict=True):
            decide(entry, job_key)


puts = st.builds(
    lambda tenant, job, schedules, target, policy, payload, command_id: PutJob(
        tenant=tenant, job=job, command_id=command_id,
        spec=JobSpec(schedules=schedules, payload=payload, **target, **policy),
    ),
    st.sampled_from(TENANTS), st.sampled_from(JOBS), st.sampled_from(SCHEDULES),
    st.sampled_from(TARGETS), st.sampled_from(POLICIES), st.sampled_from((b"", b"{}")),
    st.sampled_from(("", "c1", "c2")),
)  # fmt: skip
others = st.builds(
    lambda kind, tenant, job: kind(tenant=tenant, job=job),
    st.sampled_from((PauseJob, ResumeJob, DeleteJob, TriggerJob)),
    st.sampled_from(TENANTS), st.sampled_from(JOBS),
)  # fmt: skip
passing = st.sampled_from((0, 1, 250, 999, 1_000, 1_003, 5_000, 61_000, 120_000))
plays = st.lists(st.tuples(passing, st.one_of(puts, puts, others, st.none())), max_size=25)


@given(plays)
def test_the_short_way_writes_what_the_general_one_does(
    play: list[tuple[int, PutJob | None]],
) -> None:
    plain, general = Owner(), Owner()
    general.scheduler._plain.__class__ = General
    now_ms = START_MS
    for owner in (plain, general):
        owner.topics.missing = {"gone"}
        owner.pass_time(now_ms)
    for passed_ms, command in play:
        now_ms += passed_ms
        for owner in (plain, general):
            if command is not None:
                owner.send(command, now_ms)
            owner.pass_time(now_ms)
        assert plain.records == general.records
    assert plain.store.scan(b"\x00", b"\xff", 10_000) == general.store.scan(
        b"\x00", b"\xff", 10_000
    )
    assert plain.fold() == general.fold()


def test_a_tick_on_time_goes_the_short_way() -> None:
    """Or the test above would compare the general way with itself."""
    owner = Owner()
    left: list[bytes] = []
    owner.pass_time(START_MS)
    spec = JobSpec(schedules=(ScheduleSpec(every="1s"),), topic=TopicTargetSpec(name="orders"))
    owner.send(PutJob(tenant="ada", job="one", command_id="c", spec=spec), START_MS)

    class Watched(PlainFires):
        def fire(
            self, txn: Transaction, entries: Sequence[bytes], job_keys: Sequence[bytes],
            held: Mapping[bytes, Job], now_ms: int, decide: Callable[[bytes, bytes], None],
        ) -> None:  # fmt: skip
            super().fire(txn, entries, job_keys, held, now_ms, lambda entry, _: left.append(entry))

    owner.scheduler._plain.__class__ = Watched
    for second in range(1, 5):
        owner.pass_time(START_MS + second * 1_000 + 3)
    assert len(owner.fires()) >= 3
    assert not left
