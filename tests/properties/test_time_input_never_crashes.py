"""Whatever is written, the answer is a schedule or a list of problems, never another exception."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from horolog.importers.crontab import parse_crontab
from processors.core.cron import parse_cron
from processors.core.cron_dialects import explain_dialect
from processors.core.cron_text import describe_cron
from processors.core.preview import cron_next_line
from processors.core.problem import InvalidSchedule, Problem
from processors.core.schedule import CronSchedule, next_tick
from schemas.units import Unreadable, parse_duration_ms, parse_instant

CRON_LIKE = st.text(alphabet="0123456789*/,-?#LW @MONFRIJANH\t\u00a0٣", max_size=30)
FIELD = st.text(alphabet="0123456789*/,-?LW#", min_size=1, max_size=6)
FIVE_OR_SIX = st.lists(FIELD, min_size=5, max_size=6).map(" ".join)
VALUE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | CRON_LIKE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = ("cron", "timezone", "dst", "every", "anchor", "at", "in", "now", "start", "schedules", "x")
QUESTION = st.fixed_dictionaries(
    {"after": st.just("2026-03-29T00:00:00Z") | VALUE},
    optional=dict.fromkeys(KEYS, VALUE) | {"count": st.integers(0, 5) | VALUE},
)


def problems_of(read: Callable[..., object], *arguments: object) -> tuple[Problem, ...]:
    """Why it is refused; never empty for a refusal, always for a success."""
    try:
        read(*arguments)
    except InvalidSchedule as refused:
        return refused.problems
    return ()


@settings(max_examples=1_000, deadline=None)
@given(CRON_LIKE | FIVE_OR_SIX | st.text(max_size=40))
def test_any_text_is_an_expression_that_fires_or_is_refused(text: str) -> None:
    if problems_of(parse_cron, text):
        return
    assert next_tick((CronSchedule(cron=text, timezone="Europe/Berlin"),), 0) is not None
    assert describe_cron(text, "UTC").endswith("(UTC)")


@settings(max_examples=300, deadline=None)
@given(CRON_LIKE | FIVE_OR_SIX | st.text(max_size=40), st.sampled_from(["quartz", "aws"]))
def test_any_text_in_another_dialect_is_converted_or_refused(text: str, dialect: Any) -> None:
    if not problems_of(explain_dialect, text, dialect):
        parse_cron(explain_dialect(text, dialect).expression)


@settings(max_examples=500, deadline=None)
@given(QUESTION.map(json.dumps) | st.text(max_size=60))
def test_any_line_is_answered(line: str) -> None:
    answer = json.loads(cron_next_line(line))
    assert list(answer) in (["next"], ["error"])


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40) | st.text(alphabet="0123456789-:.TZ+PTDHMSdhms", max_size=30))
def test_any_text_is_a_duration_and_an_instant_or_is_refused(text: str) -> None:
    for parse in (parse_duration_ms, parse_instant):
        with suppress(Unreadable):
            assert isinstance(parse(text), int)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text(max_size=40) | FIVE_OR_SIX.map("{} cmd%x".format)).map("\n".join),
    st.booleans(),
)
def test_any_file_is_read_as_a_crontab_line_by_line(text: str, user_column: bool) -> None:
    crontab = parse_crontab(text, user_column=user_column)
    told = [entry.line_no for entry in crontab.entries]
    told += [variable.line_no for variable in crontab.environment]
    told += [problem.line_no for problem in crontab.problems]
    assert len(told) == len(set(told))
    assert set(told) <= set(range(1, text.count("\n") + 2))
