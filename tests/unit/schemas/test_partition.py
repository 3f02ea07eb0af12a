"""The partition of a job, against murmur2 written down once more."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import schemas
from schemas.partition import job_key, partition_of

VECTORS = Path(schemas.__file__ or "").parent / "partition_vectors.json"
KEYS = (
    "", "a", "ab", "abc", "abcd", "abcde", "default/nightly-report", "default/0",
    "tenant-1/job.with_all~the-characters", "t/j", "acme/Zürich", "acme/東京", "acme/🕰",
    "acme/" + "x" * 128, "a" * 63 + "/" + "~" * 128, "default/" + "é" * 100,
)  # fmt: skip
PARTITIONS = (1, 12, 64, 1_000)


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2 with Kafka's seed, as an unsigned number of 32 bits."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def vectors() -> list[dict[str, object]]:
    return [
        {"key": key, "partitions": count, "hash": murmur2(key.encode()),
         "partition": (murmur2(key.encode()) & 0x7FFFFFFF) % count}
        for key in KEYS
        for count in PARTITIONS
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "hashed"),
    # From Kafka's own tests, which have them signed.
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
     (b"a-little-bit-longer-string", -1486304829),
     (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971), (b"abc", 479470107)],
)  # fmt: skip
def test_the_hash_is_the_one_that_kafka_uses(data: bytes, hashed: int) -> None:
    assert murmur2(data) == hashed & 0xFFFFFFFF


def test_the_vectors_for_other_languages_are_right_and_there() -> None:
    assert json.loads(VECTORS.read_text("utf-8"))["vectors"] == vectors()


def test_the_vectors_tell_masking_from_taking_the_number_as_unsigned() -> None:
    telling = [
        vector
        for vector in vectors()
        if murmur2(str(vector["key"]).encode()) % int(str(vector["partitions"]))
        != vector["partition"]
    ]
    assert len(telling) >= 5


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: f"{v['key'][:20]}%{v['partitions']}")
def test_a_vector_names_the_partition_that_we_compute(vector: dict[str, object]) -> None:
    assert partition_of(str(vector["key"]), int(str(vector["partitions"]))) == vector["partition"]


@given(st.text(max_size=300), st.integers(1, 5_000))
def test_any_key_goes_where_the_masked_hash_says(key: str, partitions: int) -> None:
    assert partition_of(key, partitions) == (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def test_jobs_spread_evenly() -> None:
    spread = Counter(partition_of(job_key("default", f"job-{n}"), 12) for n in range(12_000))
    assert set(spread) == set(range(12))
    assert max(spread.values()) < 1.2 * 1_000
