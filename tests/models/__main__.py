"""`make model`: every model as it is and without each of its defences; NAME… for some of them."""

import sys
import time

from tests.models.checking import check, java
from tests.models.models import MODELS

TIMEOUT_S = 600
STATES_MIN = 100_000


def main(names: list[str]) -> int:
    if java() is None:
        print("TLC needs Java 11 or newer.")
        return 1
    wrong = 0
    for model in MODELS:
        if names and model.spec not in names:
            continue
        began_s = time.monotonic()
        result = check(model, {}, timeout_s=TIMEOUT_S)
        holds = result.complete and result.distinct >= STATES_MIN
        wrong += not holds
        print(
            f"{model.spec}: {result.distinct:,} distinct states of {result.generated:,}, depth "
            f"{result.depth}, {time.monotonic() - began_s:.0f} s: "
            + ("all invariants hold" if holds else result.output[-6_000:]),
            flush=True,
        )
        for variant in model.variants:
            result = check(model, variant.constants, timeout_s=TIMEOUT_S)
            fails = result.broken == variant.breaks
            wrong += not fails
            print(
                f"  {variant.name}: breaks {result.broken or 'nothing'}"
                + (f", not {variant.breaks}" if not fails else "")
                + f" ({result.distinct:,} states)",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
