"""Every codec against fastavro, which knows nothing of us, and against bytes from nowhere."""

import io
from random import Random
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.bindings import COMMANDS, EVENTS, JOB_CHANGED, JOB_DEFINITION, MARK, PUT_JOB, REFUSED
from schemas.codec import PREFIX_BYTES, Codec, Undecodable, describe, schema_name
from schemas.commands import JobSpec, PutJob, ScheduleSpec, TopicTargetSpec
from schemas.events import JobChanged
from schemas.registry import lock, registered
from schemas.replies import Problem, Refused
from schemas.state import JobDefinition, Mark, Position, Schedule
from tests.unit.schemas.values import CODECS, full_value, plain, values_of

PARSED = {name: fastavro.parse_schema(registered(name).schema) for name in CODECS}
NAMES = sorted(CODECS)
ANY_VALUE = st.sampled_from(NAMES).flatmap(
    lambda name: st.tuples(st.just(CODECS[name]), values_of(CODECS[name]))
)


def written_by_fastavro(codec: Codec[Any], value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED[codec.kind.__name__], plain(value))
    return codec.prefix + out.getvalue()


def read_by_fastavro(codec: Codec[Any], data: bytes) -> Any:
    body = io.BytesIO(data[PREFIX_BYTES:])
    found = fastavro.schemaless_reader(body, PARSED[codec.kind.__name__], None)
    assert not body.read(), "fastavro left bytes over"
    return found


def test_every_record_of_the_lock_file_has_a_codec() -> None:
    assert set(CODECS) == set(lock())


@given(ANY_VALUE)
@settings(max_examples=400, deadline=None)
def test_a_codec_writes_the_bytes_that_fastavro_writes_and_both_read_them(
    drawn: tuple[Codec[Any], Any],
) -> None:
    codec, value = drawn
    data = codec.encode(value)
    assert data == written_by_fastavro(codec, value)
    assert codec.decode(data) == value
    assert read_by_fastavro(codec, data) == plain(value)


def test_every_codec_takes_every_field_at_its_longest() -> None:
    """Lengths and counts of one, two and three bytes, which the encoder writes differently."""
    for size in (0, 1, 63, 64, 1_023, 1_024, 8_191, 8_192, 70_000):
        spec = JobSpec(
            schedules=tuple(ScheduleSpec(every=f"{n}s") for n in range(size % 1_500)),
            payload=b"x" * size, name="ü" * size,
            topic=TopicTargetSpec(name="t" * size, headers={f"{n}": "v" for n in range(size % 99)}),
        )  # fmt: skip
        value = PutJob(tenant="t", job="j", spec=spec)
        data = PUT_JOB.encode(value)
        assert data == written_by_fastavro(PUT_JOB, value)
        assert PUT_JOB.decode(data) == value


# --- how others may write the same value -------------------------------------------------------


def zigzag(value: int) -> bytes:
    number, out = (value << 1) ^ (value >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(value: str) -> bytes:
    return zigzag(len(value.encode())) + value.encode()


@given(st.lists(st.lists(st.tuples(st.text(max_size=5), st.integers(0, 2**40)), min_size=1)),
       st.data())  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_arrays_are_read_in_however_many_blocks_they_come_with_or_without_block_sizes(
    blocks: list[list[tuple[str, int]]], data: st.DataObject
) -> None:
    body = b"".join(zigzag(n) for n in (7, 1, 3, 0)) + text("me")
    for block in blocks:
        items = b"".join(text(topic) + zigzag(offset) for topic, offset in block)
        if data.draw(st.booleans()):
            body += zigzag(-len(block)) + zigzag(len(items)) + items
        else:
            body += zigzag(len(block)) + items
    body += zigzag(0)
    positions = tuple(Position(topic, offset) for block in blocks for topic, offset in block)
    expected = Mark(txn=7, epoch=1, records=3, wall_ms=0, owner="me", positions=positions)
    assert MARK.decode(MARK.prefix + body) == expected
    assert read_by_fastavro(MARK, MARK.prefix + body) == plain(expected)


def test_maps_are_read_in_blocks_with_their_sizes() -> None:
    value = PutJob(
        tenant="t", job="j",
        spec=JobSpec(schedules=(), topic=TopicTargetSpec(name="x", headers={"a": "1", "b": "2"})),
    )  # fmt: skip
    items = [text("a") + text("1"), text("b") + text("2")]
    one_block = zigzag(2) + b"".join(items) + zigzag(0)
    sized = b"".join(zigzag(-1) + zigzag(len(i)) + i for i in items) + zigzag(0)
    data = PUT_JOB.encode(value)
    assert data.count(one_block) == 1
    assert PUT_JOB.decode(data.replace(one_block, sized)) == value


def test_a_record_within_a_record_may_be_handed_over_encoded() -> None:
    definition = JobDefinition(
        txn=5, tenant="t", job="j", life=5, version=1,
        schedules=(Schedule(kind="every", every_ms=1_000, anchor_ms=17),), payload=b"{}",
    )  # fmt: skip
    changed = JobChanged(
        tenant="t", job="j", life=5, sequence=1, txn=5, version=1, change="put", at_ms=9,
        definition=definition,
    )  # fmt: skip
    embedded = JobChanged(
        tenant="t", job="j", life=5, sequence=1, txn=5, version=1, change="put", at_ms=9,
        definition=JOB_DEFINITION.embed(JOB_DEFINITION.encode(definition)),  # type: ignore[arg-type]
    )  # fmt: skip
    assert JOB_CHANGED.encode(embedded) == JOB_CHANGED.encode(changed)
    assert JOB_CHANGED.decode(JOB_CHANGED.encode(embedded)) == changed


# --- bytes that are no record ------------------------------------------------------------------


def decode_or_refuse(codec: Codec[Any], data: bytes) -> Any:
    """What was read, or None. Any other exception than `Undecodable` fails the test."""
    try:
        return codec.decode(data)
    except Undecodable:
        return None


@given(st.sampled_from(NAMES), st.binary(max_size=200))
@settings(max_examples=2_000, deadline=None)
def test_random_bytes_are_refused_or_read_as_a_value_that_can_be_written_again(
    name: str, body: bytes
) -> None:
    codec = CODECS[name]
    decode_or_refuse(codec, body)
    found = decode_or_refuse(codec, codec.prefix + body)
    if found is not None:
        assert codec.decode(codec.encode(found)) == found


@pytest.mark.parametrize("name", NAMES)
def test_a_record_that_is_cut_short_or_too_long_is_refused(name: str) -> None:
    codec = CODECS[name]
    whole = codec.encode(full_value(codec))
    assert codec.decode(whole) == full_value(codec)
    for cut in range(len(whole)):
        with pytest.raises(Undecodable):
            codec.decode(whole[:cut])
    for more in (b"\x00", b"\x02", whole):
        with pytest.raises(Undecodable, match="after the"):
            codec.decode(whole + more)


@given(st.sampled_from(NAMES), st.randoms(use_true_random=False), st.integers(1, 4))
@settings(max_examples=3_000, deadline=None)
def test_a_record_with_changed_bytes_is_refused_or_read_as_another_value(
    name: str, random: Random, changes: int
) -> None:
    codec = CODECS[name]
    garbled = bytearray(codec.encode(full_value(codec)))
    for _ in range(changes):
        at = random.randrange(PREFIX_BYTES, len(garbled) + 1)
        garbled[at : at + random.randrange(2)] = random.randbytes(random.randrange(3))
    found = decode_or_refuse(codec, bytes(garbled))
    if found is not None:
        assert codec.decode(codec.encode(found)) == found


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff" * 11, "ten bytes"),
        (b"\xff" * 9 + b"\x02", "64 bits"),
        (b"\xff" * 9 + b"\x7f", "64 bits"),
        (b"\x80" * 9, "cut short"),
        (b"", "cut short"),
        (b"\x00\x00\x00\x00\x04\xff\xfe\x00", "garbled"),
        (b"\x00\x00\x00\x00\x01", "beyond the end"),
        (b"\x00\x00\x00\x00\x80\x80\x80\x80\x10", "beyond the end"),
        (b"\x00\x00\x00\x00\x00" + zigzag(100_001), "too many"),
        (b"\x00\x00\x00\x00\x00" + zigzag(-(2**60)) + zigzag(3), "too many"),
    ],
)
def test_a_malformed_mark_is_refused_with_the_reason(body: bytes, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        MARK.decode(MARK.prefix + body)


def test_a_boolean_is_one_of_two_bytes_and_an_enum_one_of_its_symbols() -> None:
    missed = EVENTS["TicksMissed"]
    start = text("t") + text("j") + b"".join(zigzag(n) for n in (1, 2, 3, 4, 5, 6))
    end = text("policy") + text("") + zigzag(7) + zigzag(1) + text("MISSED")
    assert missed.decode(missed.prefix + start + b"\x01" + end).exact is True
    assert missed.decode(missed.prefix + start + b"\x00" + end).exact is False
    with pytest.raises(Undecodable, match="neither true nor false"):
        missed.decode(missed.prefix + start + b"\x02" + end)
    state = CODECS["JobState"]
    head = b"".join(zigzag(n) for n in (1, 1, 1, 1))
    for symbol in (zigzag(99), zigzag(-1)):
        with pytest.raises(Undecodable):
            state.decode(state.prefix + head + symbol + b"\x00" * 40)


def test_another_record_is_refused_by_name() -> None:
    mark = MARK.encode(Mark(txn=1, epoch=1, records=1, wall_ms=0, owner="", positions=()))
    with pytest.raises(Undecodable, match="expected PutJob, found Mark"):
        PUT_JOB.decode(mark)
    refused = Refused(command_id="", tenant="t", job="j", kind="invalid", message="m",
                      problems=(Problem("a", "b"),))  # fmt: skip
    with pytest.raises(Undecodable, match="expected Mark, found Refused"):
        MARK.decode(REFUSED.encode(refused))


@pytest.mark.parametrize(
    ("data", "told", "name"),
    [
        (b"", "an empty value", None),
        (b"{}", "first byte of 0x7b", None),
        (b"\x00\x00", "only 2 bytes", None),
        (b"\x00\x00\x00\x00\x01", "PutJob", "PutJob"),
        (b"\x00\x00\x00\x03\xe8rest", "schema id 1000", None),
    ],
)
def test_what_a_value_looks_like_is_told_from_its_first_bytes(
    data: bytes, told: str, name: str | None
) -> None:
    assert told in describe(data)
    assert schema_name(data) == name


def test_the_tables_of_codecs_are_keyed_by_the_names_of_their_records() -> None:
    for table in (COMMANDS, EVENTS):
        assert [codec.kind.__name__ for codec in table.values()] == list(table)
