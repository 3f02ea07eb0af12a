"""From matches on the local clock to instants: the daylight-saving rules.

Within one stretch of a zone's clock a match is an instant at a fixed distance. The rules only say
which part of a stretch counts (`repeat`) and what becomes of the gap before it (`gap`).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from schemas.units import EPOCH_MS_MAX, EPOCH_MS_MIN

from .cron import Cron
from .cron_match import DAY_S, count_matches, matches, next_match, prev_match
from .zones import Stretch, Zone

GAPS: Final = ("auto", "next", "skip", "shift")
REPEATS: Final = ("auto", "first", "second", "both")
_FIRST_S: Final = EPOCH_MS_MIN // 1000
_LAST_S: Final = EPOCH_MS_MAX // 1000


class Rules(NamedTuple):
    """What to do at clock changes, with `auto` resolved."""

    gap: str
    repeat: str


_ELAPSED: Final = Rules("skip", "both")
_WALL: Final = Rules("next", "first")


def resolve_rules(cron: Cron, gap: str, repeat: str) -> Rules:
    """`auto` keeps the step of starred expressions and lets every other local time fire once."""
    auto = _ELAPSED if cron.starred else _WALL
    return Rules(auto.gap if gap == "auto" else gap, auto.repeat if repeat == "auto" else repeat)


def next_instant(cron: Cron, zone: Zone, rules: Rules, after_s: int) -> int | None:
    """The first instant strictly after `after_s` (UTC seconds), None beyond the year 9999."""
    after_s = max(after_s, _FIRST_S - 1)
    if after_s >= _LAST_S:
        return None
    stretch = zone.stretch(after_s + 1)
    while True:
        low_s, high_s = _window(stretch, rules)
        low_s = max(low_s, after_s + 1 + stretch.offset_s)
        match_s = next_match(cron, low_s)
        found = made_up = None
        if match_s is not None and match_s < high_s:
            found = match_s - stretch.offset_s
        if stretch.offset_s > stretch.before_s:
            made_up = next(
                (at_s for at_s in _made_up(cron, stretch, rules) if at_s > after_s), None
            )
        if found is None or (made_up is not None and made_up < found):
            found = made_up
        if found is not None:
            return found if found <= _LAST_S else None
        if stretch.end_s > _LAST_S:
            return None
        resume_s = stretch.end_s
        if match_s is None:
            match_s = _LAST_S + DAY_S
        # Nothing matches between low_s and match_s, so the stretches between need no look, unless
        # the clock is put back behind low_s at the end of this one. No offset exceeds a day.
        if low_s + 2 * DAY_S < stretch.end_s:
            resume_s = max(resume_s, match_s - 2 * DAY_S)
        if resume_s > _LAST_S:
            return None
        stretch = zone.stretch(resume_s)


def prev_instant(cron: Cron, zone: Zone, rules: Rules, at_s: int, floor_s: int) -> int | None:
    """The last instant in (floor_s, at_s], or None."""
    at_s = min(at_s, _LAST_S)
    floor_s = max(floor_s, _FIRST_S - 1)
    if at_s <= floor_s:
        return None
    stretch = zone.stretch(at_s)
    while True:
        low_s, high_s = _window(stretch, rules)
        match_s = prev_match(cron, min(high_s - 1, at_s + stretch.offset_s))
        found = None
        if match_s is not None and match_s >= low_s:
            found = match_s - stretch.offset_s
        if stretch.offset_s > stretch.before_s:
            made_up = [m for m in _made_up(cron, stretch, rules) if m <= at_s]
            if made_up and (found is None or made_up[-1] > found):
                found = made_up[-1]
        if found is not None:
            return found if found > floor_s else None
        if stretch.start_s <= floor_s:
            return None
        stretch = zone.stretch(stretch.start_s - 1)


def count_instants(cron: Cron, zone: Zone, rules: Rules, after_s: int, until_s: int) -> int:
    """How many instants lie in (after_s, until_s]. Costs a step per month, however dense."""
    after_s, until_s = max(after_s, _FIRST_S - 1), min(until_s, _LAST_S)
    count = 0
    at_s = after_s + 1
    while at_s <= until_s:
        stretch = zone.stretch(at_s)
        low_s, high_s = _window(stretch, rules)
        low_s = max(low_s, at_s + stretch.offset_s)
        high_s = min(high_s, until_s + 1 + stretch.offset_s)
        count += count_matches(cron, low_s, high_s)
        if stretch.offset_s > stretch.before_s:
            count += sum(
                after_s < made_up <= until_s and not matches(cron, made_up + stretch.offset_s)
                for made_up in _made_up(cron, stretch, rules)
            )
        at_s = stretch.end_s
    return count


def _window(stretch: Stretch, rules: Rules) -> tuple[int, int]:
    """The local seconds [low, high) of a stretch that count."""
    low_s = stretch.start_s + stretch.offset_s
    high_s = stretch.end_s + stretch.offset_s
    if rules.repeat == "first" and stretch.before_s > stretch.offset_s:
        low_s = stretch.start_s + stretch.before_s
    if rules.repeat == "second" and stretch.after_s < stretch.offset_s:
        high_s = stretch.end_s + stretch.after_s
    return low_s, high_s


def _made_up(cron: Cron, stretch: Stretch, rules: Rules) -> Iterator[int]:
    """The instants that stand for the matches in the gap before a stretch, in order."""
    if rules.gap == "skip":
        return
    gap_end_s = stretch.start_s + stretch.offset_s
    match_s = next_match(cron, stretch.start_s + stretch.before_s)
    while match_s is not None and match_s < gap_end_s:
        if rules.gap == "next":
            yield stretch.start_s
            return
        yield match_s - stretch.before_s
        match_s = next_match(cron, match_s + 1)
