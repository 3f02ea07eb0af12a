"""Jobs in memory: found, listed in the order of their ids, bounded."""

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.jobs import JOB_STATE_TOPIC, SCHEDULES
from projections.live_jobs import LiveJobs
from schemas.bindings import JOB_DEFINITION, JOB_STATE
from schemas.state import JobDefinition, JobState, Schedule, TopicTarget

PLENTY = 10_000_000


def put(
    live: LiveJobs, job: str, tenant: str = "t", sequence: int = 1, status: str = "ACTIVE"
) -> None:
    key = f"{tenant}/{job}".encode()
    definition = JobDefinition(
        txn=1, tenant=tenant, job=job, life=1, version=1, topic=TopicTarget(name="x"),
        schedules=(Schedule(kind="every", every_ms=1_000),),
    )  # fmt: skip
    state = JobState(txn=1, life=1, version=1, sequence=sequence, status=status)  # type: ignore[arg-type]
    live.fold(SCHEDULES, key, JOB_DEFINITION.encode(definition))
    live.fold(JOB_STATE_TOPIC, key, JOB_STATE.encode(state))


def forget(live: LiveJobs, job: str) -> None:
    live.fold(SCHEDULES, f"t/{job}".encode(), None)
    live.fold(JOB_STATE_TOPIC, f"t/{job}".encode(), None)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef")), max_size=40))
def test_the_index_has_what_is_there_in_order(steps: list[tuple[bool, str]]) -> None:
    live, there = LiveJobs(bytes_max=PLENTY), set[str]()
    for is_put, job in steps:
        if is_put:
            put(live, job)
            there.add(job)
        else:
            forget(live, job)
            there.discard(job)
    assert [job for job, _ in live.after("t", "")] == sorted(there)
    assert [job for job, _ in live.after("t", "c")] == sorted(job for job in there if job > "c")
    assert live.count("t") == len(live) == len(there)
    assert bool(live.bytes) == bool(there)
    assert live.tenants == (["t"] if there else [])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=400), st.integers(1, 200))
@settings(max_examples=30)
def test_many_at_once_are_put_in_order_as_one_by_one(
    steps: list[tuple[bool, int]], every: int
) -> None:
    live, there = LiveJobs(bytes_max=PLENTY), set[str]()
    for n, (is_put, number) in enumerate(steps):
        job = f"{number:03d}"
        (put if is_put else forget)(live, job)
        (there.add if is_put else there.discard)(job)
        if n % every == 0:
            assert [job for job, _ in live.after("t", "")] == sorted(there)
    assert [job for job, _ in live.after("t", "")] == sorted(there)


def test_a_deleted_job_is_not_shown_but_known_up_to_its_end() -> None:
    live = LiveJobs(bytes_max=PLENTY)
    put(live, "a", sequence=7, status="DELETED")
    assert live.job("t", "a") is None
    assert list(live.after("t", "")) == [("a", None)]
    assert live.seen("t", "a") == (1, 7)
    assert live.seen("t", "b") == (0, 0)


def test_jobs_beyond_the_bound_are_left_out_and_it_says_so() -> None:
    live = LiveJobs(bytes_max=1_000)
    n = 0
    while not live.full:
        put(live, f"j{n:03d}")
        n += 1
    assert live.bytes <= 1_000
    assert live.job("t", "j000") is not None
    put(live, "j000", sequence=2)
    assert live.seen("t", "j000") == (1, 2), "those that are held go on"


def test_marks_and_further_command_ids_are_no_jobs() -> None:
    live = LiveJobs(bytes_max=PLENTY)
    for key in (b"!mark", b"t/a#ids"):
        assert not live.fold(JOB_STATE_TOPIC, key, b"x")
    assert live.bytes == len(live) == 0
