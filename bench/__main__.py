"""`python -m bench [NAME…]`: figures as JSON lines on stdout, everything else on stderr."""

import sys

from . import face, fire, full, heartbeats, http_worker, memory, restore, time, worker

FIGURES = {
    **fire.FIGURES,
    **restore.FIGURES,
    **memory.FIGURES,
    **full.FIGURES,
    **heartbeats.FIGURES,
    **http_worker.FIGURES,
    **worker.FIGURES,
    **time.FIGURES,
    **face.FIGURES,
}
GROUPS = {
    "spine": ("fire", "fire_lateness", "register", "restore"),
    "hands": ("full", "lateness", "http_worker", "heartbeats", "restore_dirty", "idle_memory"),
    "time": ("cron_memo", "cron_cold", "outage"),
    "face": ("gateway_writes", "gateway_reads"),
    "lateness_p50": ("lateness",),
    "lateness_p99": ("lateness",),
    "fire_lateness_p50": ("fire_lateness",),
    "fire_lateness_p99": ("fire_lateness",),
}


def main(names: list[str]) -> int:
    """Measure the named figures or groups, or all."""
    wanted = [f for name in names or FIGURES for f in GROUPS.get(name, (name,))]
    unknown = [name for name in wanted if name not in FIGURES]
    if unknown:
        known = ", ".join((*FIGURES, *GROUPS))
        print(f"error: no figure {', '.join(unknown)}\nhint: one of {known}", file=sys.stderr)
        return 2
    for name in dict.fromkeys(wanted):
        FIGURES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
