"""The index follows from the state: also when it is only changed where the state was."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from processors.core.job import index_changes, index_entries
from schemas.state import JobState, OpenExecution

EXECUTION = OpenExecution(
    ordinal=0, occurrence="t/j:x", attempt=1, delivery=0, lost=0, scheduled_at=1, due_at=2,
    claimed_at=3, version=1, state="QUEUED", pool="default", handler="h",
)  # fmt: skip
STATE = JobState(txn=1, life=1, version=1, sequence=1, status="ACTIVE")
TIMES = st.sampled_from([0, 1_772_445_600_000, 1_772_445_600_001, 1_772_445_601_000])


@st.composite
def executions(draw: st.DrawFn) -> tuple[OpenExecution, ...]:
    return tuple(
        msgspec.structs.replace(
            EXECUTION,
            ordinal=ordinal,
            state=draw(st.sampled_from(["QUEUED", "PENDING", "RUNNING", "CLOSING"])),
            due_at=draw(TIMES),
            lease_until=draw(TIMES),
            handler=draw(st.sampled_from(["h", "k"])),
        )
        for ordinal in draw(st.lists(st.integers(0, 7), unique=True, max_size=4).map(sorted))
    )


STATES = st.one_of(
    st.none(),
    st.builds(
        lambda due_ms, forget_ms, found: msgspec.structs.replace(
            STATE, due_ms=due_ms, forget_ms=forget_ms, open=found
        ),
        TIMES, TIMES, executions(),
    ),
)  # fmt: skip


def entries(state: JobState | None) -> set[bytes]:
    return set(index_entries(b"t", b"j", state)) if state is not None else set()


@given(STATES, STATES)
def test_what_goes_and_what_comes_is_the_difference_of_the_two(
    before: JobState | None, after: JobState | None
) -> None:
    gone, new = index_changes(b"t", b"j", before, after)
    assert set(gone) == entries(before) - entries(after)
    assert set(new) == entries(after) - entries(before)
    assert (len(set(gone)), len(set(new))) == (len(gone), len(new))


@given(STATES)
def test_nothing_changes_when_nothing_did(state: JobState | None) -> None:
    assert index_changes(b"t", b"j", state, state) == ([], [])
