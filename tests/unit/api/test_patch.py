"""JSON merge patch, and what a job's definition is as its owner would write it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.patch import BadPatch, definition_form, merge, patched
from processors.core.admission import read_definition
from processors.core.spec import admit, digest
from projections.jobs import JobView
from schemas.state import JobState

NOW_MS = 1_800_000_000_000

RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7396)
def test_the_examples_of_the_standard_come_out(target: Any, patch: Any, result: Any) -> None:
    assert merge(target, patch) == result


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(JSON, JSON)
def test_a_patch_twice_is_the_patch_once(target: Any, patch: Any) -> None:
    once = merge(target, patch)
    assert merge(once, patch) == once


def test_a_patch_that_is_nested_too_deeply_is_refused() -> None:
    patch: Any = {}
    for _ in range(40):
        patch = {"a": patch}
    with pytest.raises(BadPatch, match="nested"):
        merge({}, patch)


def view_of(definition: dict[str, Any], **state: Any) -> JobView:
    spec = read_definition(definition)
    admitted = admit("t", "j", spec, accepted_ms=NOW_MS, namespace="n")
    assert not isinstance(admitted, tuple), admitted
    values = {"txn": 1, "life": 1, "version": 1, "sequence": 1, "status": "ACTIVE"} | state
    return JobView(definition=admitted.definition, state=JobState(**values))


TOPIC = {"topic": {"name": "x"}}
DEFINITIONS: list[dict[str, Any]] = [
    {"schedules": [{"every": "90m"}], "target": TOPIC},
    {"schedules": [{"cron": "30 2 * * *", "timezone": "Europe/Paris", "dst": {"gap": "skip"}}],
     "target": {"topic": {"name": "x", "key": "k", "headers": {"a": "b"}}}, "payload": {"a": [1]}},
    {"schedules": [{"in": "5m"}, {"at": "2099-01-01T00:00:00Z"}],
     "target": {"http": {"url": "https://example.org/", "timeout": "90s"}}, "name": "Näme"},
    {"schedules": [{"at": "2099-06-01T09:00:00", "timezone": "Asia/Tokyo"}],
     "target": {"worker": {"handler": "h"}}, "payload_base64": "AAEC"},
    {"schedules": [{"every": "1s"}], "target": TOPIC, "payload": "text", "late_tolerance": "5m"},
]  # fmt: skip


@pytest.mark.parametrize("definition", DEFINITIONS, ids=range(len(DEFINITIONS)))
def test_a_definition_read_back_and_put_again_means_the_same(definition: dict[str, Any]) -> None:
    view = view_of(definition)
    again = view_of(definition_form(view.definition, view.state))
    wanted = {"digest": b"", "schedules": ()}

    def bare(found: JobView) -> Any:
        return msgspec.structs.replace(found.definition, **wanted)

    assert bare(again) == bare(view)
    for one, other in zip(again.definition.schedules, view.definition.schedules, strict=True):
        assert (one.kind, one.written, one.cron) == (other.kind, other.written, other.cron)


def test_the_same_patch_of_nothing_is_the_same_content() -> None:
    view = view_of(DEFINITIONS[1])
    once = read_definition(patched(view, {}))
    assert digest(once) == digest(read_definition(patched(view, {"colour": None})))


def test_a_payload_of_one_kind_takes_the_place_of_one_of_the_other() -> None:
    bytes_ = view_of(DEFINITIONS[3])
    assert patched(bytes_, {"payload": 1})["payload"] == 1
    assert "payload_base64" not in patched(bytes_, {"payload": 1})
    json = view_of(DEFINITIONS[1])
    assert "payload" not in patched(json, {"payload_base64": "AA=="})


def test_one_offs_that_have_passed_are_left_out_as_long_as_something_remains() -> None:
    passed = {"at": "2027-01-15T08:00:01Z"}
    both = view_of({"schedules": [passed, {"every": "1h"}], "target": TOPIC},
                   cursor_ms=NOW_MS + 3_600_000)  # fmt: skip
    assert patched(both, {"name": "x"})["schedules"] == [{"every": "1h"}]
    assert patched(both, {"schedules": [passed]})["schedules"] == [passed]
    alone = view_of({"schedules": [passed], "target": TOPIC}, cursor_ms=NOW_MS + 3_600_000)
    assert patched(alone, {"name": "x"})["schedules"] == [passed]


def test_a_finished_one_off_does_not_count_from_now_once_more() -> None:
    view = view_of({"schedules": [{"in": "5m"}], "target": TOPIC}, status="FINISHED",
                   cursor_ms=NOW_MS + 300_000)  # fmt: skip
    (schedule,) = patched(view, {"name": "x"})["schedules"]
    assert schedule.keys() == {"at"}
