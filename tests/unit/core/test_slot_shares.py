"""Division of whole numbers, against one that gives unit after unit."""

from hypothesis import given
from hypothesis import strategies as st

from processors.core.slot_shares import Claim, deal, lower_highest, raise_lowest

LEVELS = st.lists(st.integers(0, 30), min_size=1, max_size=8)


def one_by_one(levels: list[int], amount: int, first: list[int]) -> list[int]:
    raised = list(levels)
    for _ in range(amount):
        lowest = min(range(len(raised)), key=lambda i: (raised[i], first[i], i))
        raised[lowest] += 1
    return raised


@given(LEVELS, st.integers(0, 200), st.randoms(use_true_random=False))
def test_raising_the_lowest_is_raising_them_one_by_one(levels, amount, random):  # type: ignore[no-untyped-def]
    first = [random.randrange(3) for _ in levels]
    assert raise_lowest(levels, amount, first) == one_by_one(levels, amount, first)


@given(LEVELS, st.integers(0, 300))
def test_lowering_takes_what_is_asked_for_from_the_highest(levels: list[int], amount: int) -> None:
    taken = lower_highest(levels, amount, [0] * len(levels))
    left = [level - gone for level, gone in zip(levels, taken, strict=True)]
    assert sum(taken) == min(amount, sum(levels))
    assert all(0 <= after <= before for after, before in zip(left, levels, strict=True))
    touched = [after for after, gone in zip(left, taken, strict=True) if gone]
    assert not touched or max(left) <= min(touched) + 1


CLAIMS = st.lists(
    st.builds(
        Claim,
        held=st.tuples(st.integers(0, 6), st.integers(0, 6)),
        granted=st.tuples(st.integers(0, 6), st.integers(0, 6)),
        wanted=st.dictionaries(st.sampled_from("abc"), st.integers(0, 12)),
        oldest_ms=st.integers(0, 9),
    ),
    min_size=1,
    max_size=6,
)
SERVING = {"a": [0], "b": [0, 1]}
CAPACITY = st.tuples(st.integers(0, 25), st.integers(0, 25))


def usable(claim: Claim, kind: int) -> int:
    """Most that a claim could use of a kind."""
    return claim.held[kind] + sum(
        count for handler, count in claim.wanted.items() if kind in SERVING.get(handler, [])
    )


@given(CAPACITY, CLAIMS)
def test_nobody_gets_more_than_there_is_or_than_they_can_use(
    capacity: tuple[int, int], claims: list[Claim]
) -> None:
    given_ = deal(capacity, SERVING, claims)
    for kind in (0, 1):
        assert sum(own[kind] for own in given_) <= capacity[kind]
        for own, claim in zip(given_, claims, strict=True):
            assert 0 <= own[kind] <= usable(claim, kind)
    for own, claim in zip(given_, claims, strict=True):
        wants = sum(claim.wanted.get(handler, 0) for handler in SERVING)
        assert sum(own) <= sum(claim.held) + wants


@given(CAPACITY, CLAIMS)
def test_no_place_is_left_while_somebody_misses_it(
    capacity: tuple[int, int], claims: list[Claim]
) -> None:
    given_ = deal(capacity, SERVING, claims)
    if sum(own[0] for own in given_) < capacity[0]:  # and those places have every handler
        for own, claim in zip(given_, claims, strict=True):
            wants = sum(claim.wanted.get(handler, 0) for handler in SERVING)
            held = claim.held[0] + min(claim.held[1], own[1])
            assert sum(own) == held + wants


def asking(**wanted: int) -> Claim:
    return Claim(held=[0, 0, 0], granted=[0, 0, 0], wanted=wanted, oldest_ms=0)


def test_what_can_go_nowhere_else_is_served_first() -> None:
    serving = {"a": [0, 1], "b": [0], "c": [1]}
    given_ = deal([4, 4, 0], serving, [asking(a=4, b=2), asking(c=4)])
    assert [own[:2] for own in given_] == [[4, 2], [0, 2]]


def test_what_could_have_gone_elsewhere_but_did_not_is_served_first_where_it_is_last() -> None:
    serving = {"z": [0, 1], "y": [1, 2], "w": [2]}
    given_ = deal([1, 2, 2], serving, [asking(z=4, y=2), asking(w=10)])
    assert given_ == [[1, 2, 1], [0, 0, 1]]


@given(st.integers(0, 40), CLAIMS)
def test_of_one_kind_all_that_ask_for_more_have_the_same_but_for_one(
    capacity: int, claims: list[Claim]
) -> None:
    claims = [
        Claim(c.held[:1], c.granted[:1], {"a": c.wanted.get("a", 0)}, c.oldest_ms) for c in claims
    ]
    shares = [own[0] for own in deal([capacity], {"a": [0]}, claims)]
    asked = [usable_of_one(claim) for claim in claims]
    assert sum(shares) == min(capacity, sum(asked))
    for share, ask in zip(shares, asked, strict=True):
        assert share == ask or share >= max(shares) - 1


def usable_of_one(claim: Claim) -> int:
    return claim.held[0] + claim.wanted["a"]
