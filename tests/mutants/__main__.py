"""`make mutants`: every patch beside this file is a bug made by hand. Each is applied to a copy,
and the seeded worlds are played until one of their invariants says so. NAME… for some of the
mutants, a number for how many seeds.

A bug that only makes something raise is not counted as killed: an invariant has to name it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COPIED = ("api", "horolog", "processors", "projections", "schemas", "streams", "tests", "workers")
PROPERTIES = {
    "workers/": "tests/unit/workers/test_lease_clock.py",
    "streams/repair.py": "tests/unit/streams/test_repair.py",
}
"""What the worlds do not play, with the properties that watch it."""
AFTERWARDS = (
    "tests/unit/core/test_job_life.py", "tests/unit/streams/test_task.py",
    "tests/unit/leases/test_running.py",
)  # fmt: skip
"""Tried on what no world has found."""
SEEDS = 300
TIMEOUT_S = 900


def patches(names: list[str]) -> list[Path]:
    """The mutants, all or those whose name begins with one of these."""
    found = sorted(HERE.glob("*.patch"))
    return [p for p in found if not names or any(p.name.startswith(name) for name in names)]


def apply(patch: Path, folder: Path) -> None:
    """Change the copy in `folder`. Raises `CalledProcessError` when the patch no longer fits."""
    command = ["patch", "--strip=1", "--forward", "--batch", "--quiet"]
    with patch.open() as lines:
        subprocess.run(command, cwd=folder, stdin=lines, check=True, capture_output=True)


def copy(folder: Path) -> None:
    """What the worlds need, in a folder of its own."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def play(patch: Path, folder: Path, seeds: int) -> str:
    """What became of the mutant: `killed: …`, `raised: …` or `survived`."""
    changed = patch.read_text()
    for part, properties in PROPERTIES.items():
        if f"b/{part}" in changed:
            return _check((properties,), folder)
    order = "slots" if "/core/slot" in changed or "/core/places" in changed else "leases"
    said = _run([sys.executable, "-m", "tests.mutants.playing", str(seeds), order], folder)
    told = said.splitlines()[-1] if said else "raised: the worlds did not begin"
    if told.startswith("killed"):
        return told
    again = _check(AFTERWARDS, folder)
    return f"{again}, by no world" if again.startswith("killed") else told


def _check(properties: tuple[str, ...], folder: Path) -> str:
    said = _run(
        [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider",
         *properties],
        folder,
    )  # fmt: skip
    failed = [line for line in said.splitlines() if line.startswith("FAILED")]
    if not failed:
        return "survived" if " passed" in said else "raised: the properties did not begin"
    name = failed[0].removeprefix("FAILED ").split(" - ")[0].rpartition("::")[2]
    return f"killed: {name}" if "AssertionError" in said or "assert" in said else f"raised: {name}"


def _run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"}
    try:
        run = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"raised: no end within {TIMEOUT_S} s"
    return run.stdout.strip()


def main(arguments: list[str]) -> int:
    seeds = next((int(one) for one in arguments if one.isdigit()), SEEDS)
    chosen = patches([one for one in arguments if not one.isdigit()])
    killed = 0
    for patch in chosen:
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            copy(Path(folder))
            apply(patch, Path(folder))
            told = play(patch, Path(folder), seeds)
        killed += told.startswith("killed")
        print(f"{patch.stem}: {told} [{time.monotonic() - began_s:.0f} s]", flush=True)
    print(f"{killed} of {len(chosen)} mutants killed, with {seeds} seeds")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
