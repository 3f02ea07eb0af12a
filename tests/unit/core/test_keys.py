"""Keys of store and index: their order, and taking them apart."""

from hypothesis import given
from hypothesis import strategies as st

from processors.core.admission import JOB_CHARS, TENANT_CHARS
from processors.core.keys import (
    DUE,
    KIND_AT,
    Kind,
    due_key,
    due_ms_of,
    occurrence_of_tick,
    occurrence_of_trigger,
    owner_of,
    second_and_tenant,
    second_prefix,
    split_job_key,
)
from processors.scheduler_topology import definition_key, state_key

TENANTS = st.text(sorted(TENANT_CHARS), min_size=1, max_size=63).map(str.encode)
JOBS = st.text(sorted(JOB_CHARS), min_size=1, max_size=128).map(str.encode)
MOMENTS = st.one_of(st.integers(1, 253_402_300_799_999), st.integers(1_000_000, 1_002_500))
KEYS = st.tuples(MOMENTS, TENANTS, JOBS, st.sampled_from(list(Kind)), st.integers(0, 65_535))
NEAR = st.tuples(
    st.integers(5_000, 7_000), st.sampled_from([b"a", b"a-", b"a0", b"b"]),
    st.sampled_from([b"j", b"j-", b"jj"]), st.sampled_from(list(Kind)), st.integers(0, 300),
)  # fmt: skip


@given(KEYS)
def test_a_key_gives_back_what_it_was_made_of(parts: tuple[int, bytes, bytes, Kind, int]) -> None:
    due_ms, tenant, job, kind, ordinal = parts
    key = due_key(*parts)
    assert due_ms_of(key) == due_ms
    assert owner_of(key) == tenant + b"/" + job
    assert second_and_tenant(key) == (due_ms // 1_000, tenant)
    assert key[KIND_AT] == kind
    assert int.from_bytes(key[-2:], "big") == ordinal
    assert split_job_key(owner_of(key)) == (tenant, job)
    assert key.startswith(DUE) and key.startswith(second_prefix(due_ms // 1_000))
    assert second_prefix(due_ms // 1_000) <= key < second_prefix(due_ms // 1_000 + 1)


@given(st.lists(st.one_of(KEYS, NEAR, NEAR), max_size=12))
def test_keys_stand_in_the_order_of_second_tenant_and_millisecond(
    parts: list[tuple[int, bytes, bytes, Kind, int]],
) -> None:
    def order(one: tuple[int, bytes, bytes, Kind, int]) -> tuple[object, ...]:
        due_ms, tenant, job, kind, ordinal = one
        return due_ms // 1_000, tenant, due_ms % 1_000, job, kind, ordinal

    assert [due_key(*one) for one in sorted(parts, key=order)] == sorted(
        due_key(*one) for one in parts
    )


@given(st.lists(st.one_of(KEYS, NEAR), max_size=8, unique=True))
def test_different_things_have_different_keys(
    parts: list[tuple[int, bytes, bytes, Kind, int]],
) -> None:
    assert len({due_key(*one) for one in parts}) == len(parts)


@given(st.tuples(TENANTS, JOBS), st.tuples(TENANTS, JOBS))
def test_record_keys_and_store_keys_are_one_to_one(
    one: tuple[bytes, bytes], other: tuple[bytes, bytes]
) -> None:
    keys = [
        make(tenant + b"/" + job + suffix)
        for tenant, job in {one, other}
        for make, suffix in ((definition_key, b""), (state_key, b""), (state_key, b"#ids"))
    ]
    assert len(set(keys)) == len(keys)


def test_a_manual_run_has_another_occurrence_than_the_tick_of_its_time() -> None:
    tick = occurrence_of_tick("t/j", 1_774_747_800_000)
    assert tick == "t/j:2026-03-29T01:30:00.000Z"
    runs = [occurrence_of_trigger("t/j", 1_774_747_800_000, bytes([n]) * 8) for n in (1, 2)]
    assert runs == [tick + "~m01010101", tick + "~m02020202"]
