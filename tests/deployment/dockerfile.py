"""Reads a Dockerfile as far as ours goes, and follows its build stage outside of containers."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SHELL_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


class Instruction(NamedTuple):
    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Its arguments: a JSON list, or parted by blanks."""
        found = json.loads(self.rest) if self.rest.startswith("[") else self.rest.split()
        assert isinstance(found, list)
        return found


class Stage(NamedTuple):
    image: str
    name: str
    instructions: list[Instruction]

    def all(self, word: str) -> list[Instruction]:
        return [one for one in self.instructions if one.word == word]

    @property
    def environment(self) -> dict[str, str]:
        """What ENV and the defaults of ARG set, in order."""
        found: dict[str, str] = {}
        for one in self.instructions:
            if one.word in ("ENV", "ARG"):
                for pair in one.rest.split():
                    name, _, value = pair.partition("=")
                    found[name] = SHELL_VARIABLE.sub(lambda v: found.get(v[1], v[0]), value)
        return found


def read(path: Path = ROOT / "Dockerfile") -> list[Stage]:
    """Its stages."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            stages.append(Stage(image, name, []))
        else:
            stages[-1].instructions.append(Instruction(word, rest.strip()))
    return stages


def follow(stage: Stage, root: Path, python: Path, uv: Path) -> None:
    """Do what the stage does, with `root` in the place of `/`. uv is there already: of the steps
    that run something only its own are run."""
    environment = {
        name: f"{root}{value}" if value.startswith("/") else value
        for name, value in stage.environment.items()
    } | {"UV_PYTHON": str(python)}
    clean = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    here = root
    for one in stage.instructions:
        if one.word == "WORKDIR":
            here = root / one.rest.lstrip("/")
            here.mkdir(parents=True, exist_ok=True)
        elif one.word == "COPY":
            *sources, target = one.words
            for source in sources:
                _copy(ROOT / source, here / target, into=target.endswith("/"))
        elif one.word == "RUN" and one.rest.startswith("uv "):
            command = [str(uv), *one.rest.split()[1:]]
            done = subprocess.run(
                command, cwd=here, env=clean | environment, capture_output=True, text=True,
                timeout=170, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr


def _copy(source: Path, target: Path, *, into: bool) -> None:
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
        return
    if into:
        target.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
