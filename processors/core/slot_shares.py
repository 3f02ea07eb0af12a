"""Dividing whole numbers fairly: who gets how many places, and of which kind of worker."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_NEVER_MS: Final = 1 << 62


class Claim(msgspec.Struct, frozen=True):
    """What one partition asks for: places it holds, by kind, and wants, by handler. `granted` is
    what it may hold now, by kind; `oldest_ms` since when the oldest waits, 0 for none."""

    held: Sequence[int]
    granted: Sequence[int]
    wanted: Mapping[str, int]
    oldest_ms: int


def waits_since(oldest_ms: int) -> int:
    """For sorting by age: what waits for nothing comes last."""
    return oldest_ms or _NEVER_MS


def raise_lowest(levels: Sequence[int], amount: int, first: Sequence[int]) -> list[int]:
    """The levels after `amount` units were added, each to what was then the lowest; among equals
    those with the lowest `first` get what does not go round."""
    raised = list(levels)
    if amount <= 0:
        return raised
    ranked = sorted(range(len(levels)), key=levels.__getitem__)
    below, line, rest = 0, 0, 0
    for count, i in enumerate(ranked, 1):
        below += levels[i]
        line, rest = divmod(below + amount, count)
        if count == len(ranked) or line < levels[ranked[count]]:
            ranked = ranked[:count]
            break
    for i in ranked:
        raised[i] = line
    for i in sorted(ranked, key=lambda i: (first[i], i))[:rest]:
        raised[i] += 1
    return raised


def lower_highest(levels: Sequence[int], amount: int, first: Sequence[int]) -> list[int]:
    """How much to take from each so that `amount` is taken, each unit from what is then the
    highest; never more than there is."""
    mirrored = [-level for level in levels]
    lowered = raise_lowest(mirrored, min(amount, sum(levels)), first)
    return [after - before for before, after in zip(mirrored, lowered, strict=True)]


def deal(
    capacity: Sequence[int], serving: Mapping[str, Sequence[int]], claims: Sequence[Claim]
) -> list[list[int]]:
    """Places for each claim, by kind: everything that is asked for if there is enough, else as
    even as can be, what they hold included.

    `capacity` says how many places of each kind there are, `serving` which kinds have a handler.
    Where there are not enough for one place each, those that hold none come first, the longest
    waiting first among them: so few places go round. A claim that was granted more than others
    keeps what does not go round.
    """
    given = [[0] * len(capacity) for _ in claims]
    wanted = [{h: n for h, n in claim.wanted.items() if n and h in serving} for claim in claims]
    choices = {handler: len(kinds) for handler, kinds in serving.items()}
    handlers: list[list[str]] = [[] for _ in capacity]
    for handler in sorted(serving):
        for kind in serving[handler]:
            handlers[kind].append(handler)
    for kind in _least_pressed_first(capacity, serving, wanted):
        # What can still go elsewhere is served last.
        own = sorted(handlers[kind], key=choices.__getitem__)
        asked = [
            claim.held[kind] + sum(left.get(handler, 0) for handler in own)
            for claim, left in zip(claims, wanted, strict=True)
        ]
        for i, share in enumerate(_shares(max(0, capacity[kind]), asked, claims, kind)):
            given[i][kind] = share
            _spend(wanted[i], own, share - claims[i].held[kind])
        for handler in own:
            choices[handler] -= 1
    return given


def _least_pressed_first(
    capacity: Sequence[int],
    serving: Mapping[str, Sequence[int]],
    wanted: Sequence[Mapping[str, int]],
) -> list[int]:
    """The kinds of worker in the order in which to fill them: a handler that many kinds have must
    not take the places of one that few have."""
    pressure = [0.0] * len(capacity)
    if len(capacity) > 1:
        for handler, kinds in serving.items():
            asked = sum(one.get(handler, 0) for one in wanted)
            share = asked / max(1, sum(capacity[kind] for kind in kinds))
            for kind in kinds:
                pressure[kind] += share
    return sorted(range(len(capacity)), key=lambda kind: (pressure[kind], kind))


def _shares(
    capacity: int, asked: Sequence[int], claims: Sequence[Claim], kind: int
) -> Sequence[int]:
    """As much as is asked for, but nobody more than one above another who asked for more."""
    if sum(asked) <= capacity:
        return asked
    line, rest, left = 0, capacity, len(asked)
    for count in sorted(asked):
        if (count - line) * left > rest:
            line, rest = line + rest // left, rest % left
            break
        rest -= (count - line) * left
        line, left = count, left - 1
    shares = [min(count, line) for count in asked]

    def rank(i: int) -> tuple[bool, bool, int, int]:
        claim = claims[i]
        holds = line == 0 and claim.held[kind] > 0
        return holds, line >= claim.granted[kind], waits_since(claim.oldest_ms), i

    for i in sorted((i for i, count in enumerate(asked) if count > line), key=rank)[:rest]:
        shares[i] += 1
    return shares


def _spend(wanted: dict[str, int], handlers: Sequence[str], count: int) -> None:
    for handler in handlers:
        if count <= 0:
            return
        taken = min(count, wanted.get(handler, 0))
        if taken:
            wanted[handler] -= taken
            count -= taken
