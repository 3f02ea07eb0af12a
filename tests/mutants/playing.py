"""Plays the seeded worlds in the code of the current folder until an invariant fails, and says
so on the last line: `killed: …`, or `raised: …` if something else came up, or `survived`."""

import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial

from tests.properties import test_leases_simulated as leases
from tests.properties import test_slots_world as slots

RAISED_MAX = 10
ALARMS = ("task_failed", "due_entry_crashed", "quarantined", "reports_refused")
"""With these a world only passes on that something raised."""

LEASES = leases.test_every_execution_comes_to_one_end_and_no_two_runs_of_a_job_overlap
SLOTS = slots.test_no_worker_ever_has_more_leases_than_it_offers


def games(seeds: int, *, slots_first: bool) -> Iterator[tuple[int, Callable[[], None]]]:
    """Seed and world, those of both kinds."""
    leases_ = [(seed, partial(LEASES, seed)) for seed in range(seeds)]
    slots_ = [(seed, partial(SLOTS, seed)) for seed in range(min(seeds, 50))]
    yield from slots_ + leases_ if slots_first else leases_ + slots_


def judge(error: Exception) -> tuple[bool, str]:
    """Whether an invariant of the worlds has failed, and what to call it."""
    frames = traceback.extract_tb(error.__traceback__)
    said = " ".join(str(error).split()) or (frames[-1].line or "")
    ours = frames[-1].filename.replace("\\", "/").rpartition("/tests/")[1] != ""
    alarm = any(alarm in said for alarm in ALARMS)
    if isinstance(error, AssertionError) and ours and not alarm:
        return True, f"{frames[-1].name}: {said}"[:150]
    return False, f"{type(error).__name__} in {frames[-1].name}: {said}"[:150]


def main(seeds: int, *, slots_first: bool) -> str:
    raised: list[str] = []
    for seed, game in games(seeds, slots_first=slots_first):
        try:
            game()
        except Exception as error:  # noqa: BLE001 - whatever a mutant does
            invariant, told = judge(error)
            if invariant:
                return f"killed: seed {seed}: {told}"
            raised.append(told)
            if len(raised) == RAISED_MAX:
                break
    return f"raised: {raised[0]}" if raised else "survived"


if __name__ == "__main__":
    print(main(int(sys.argv[1]), slots_first="slots" in sys.argv))
