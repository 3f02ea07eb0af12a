"""One figure as one JSON line, with the machine and the versions it was measured on."""

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

VERSIONS: Final = ("confluent-kafka", "rocksdict", "msgspec", "tzdata")

Run = Callable[[], tuple[float, dict[str, Any]]]


def say(text: str) -> None:
    """Progress, which is never on stdout."""
    print(text, file=sys.stderr, flush=True)


def emit(name: str, unit: str, values: Sequence[float], detail: dict[str, Any]) -> None:
    """Print the median of the runs. `runs` has each run's value."""
    line = {
        "name": name,
        "value": round(statistics.median(values), 3),
        "unit": unit,
        "runs": [round(value, 3) for value in values],
        "detail": detail,
        "machine": _machine(),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in VERSIONS}},
    }
    print(json.dumps(line), flush=True)


def _machine() -> dict[str, Any]:
    cpus = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next((line for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0 0")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpus[0].partition(":")[2].strip() if cpus else platform.processor(),
        "memory_gb": round(int(memory.split()[1]) / 1_048_576),
        "load": round(os.getloadavg()[0], 2),
    }


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
