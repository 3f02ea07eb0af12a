"""Where croniter reads an expression as documented, both name the same local times.

croniter is a second opinion here: on naive local time, for five fields, without the forms in which
`docs/decisions/0003-cron-dialect.md` differs from it.
"""

from datetime import UTC, datetime, timedelta

from croniter import croniter
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from processors.core.cron import parse_cron
from processors.core.cron_match import count_matches, next_match, prev_match
from processors.core.problem import InvalidSchedule

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    # Not N-N or */1: croniter 7.0.0 reads the month 1-1 as every month, the day */1 as a bare star.
    pair = st.tuples(number, number).map(sorted).filter(lambda p: p[0] < p[1])
    item = st.one_of(
        number.map(str),
        pair.map(lambda p: f"{p[0]}-{p[1]}"),
        st.integers(2, high).map(lambda step: f"*/{step}"),
    )
    return st.one_of(st.just("*"), st.lists(item, min_size=1, max_size=3).map(",".join))


DAYS = st.one_of(plain(1, 31), st.sampled_from(["L", "1W", "15W", "28W"]))
WEEKDAYS = st.one_of(plain(0, 6), st.sampled_from(["MON#1", "FRI#5", "SUN", "MON-FRI", "SAT,7"]))
# Not both days where one of them is rare: there croniter 7.0.0 finds no next date.
DAY_PAIRS = st.one_of(
    st.tuples(DAYS, st.just("*")),
    st.tuples(st.just("*"), WEEKDAYS),
    st.tuples(plain(1, 31), plain(0, 6)),
)
EXPRESSIONS = st.tuples(plain(0, 59), plain(0, 23), DAY_PAIRS, plain(1, 12)).map(
    lambda f: f"{f[0]} {f[1]} {f[2][0]} {f[3]} {f[2][1]}"
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(EXPRESSIONS, st.integers(31_536_000, 4_070_908_800))
def test_both_name_the_same_local_times_in_both_directions(text: str, base_s: int) -> None:
    base = EPOCH + timedelta(seconds=base_s)
    try:
        cron = parse_cron(text)
    except InvalidSchedule:  # it never fires
        return
    rule = cron.days
    if rule.weekday_mask == 0b111_1111 or rule.day_mask == 2**32 - 2:
        # croniter 7.0.0 takes a list of all days for a bare star, so it joins both fields by AND.
        assume(not (rule.days_restricted and rule.weekdays_restricted))
    theirs, at_s = croniter(text, base), base_s
    for _ in range(3):
        match_s = next_match(cron, at_s + 1)
        assert match_s is not None
        assert EPOCH + timedelta(seconds=match_s) == theirs.get_next(datetime)
        assert count_matches(cron, at_s + 1, match_s + 1) == 1
        assert prev_match(cron, match_s) == match_s
        at_s = match_s
    before_s = prev_match(cron, base_s - 1)
    assert before_s is not None
    assert EPOCH + timedelta(seconds=before_s) == croniter(text, base).get_prev(datetime)
