"""Brings the broker's jars from Maven into a cache folder, once."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import platformdirs

from .errors import BrokerError, ToolMissing
from .java import Java

MAVEN_TIMEOUT_S = 900
_LIST = "jars.txt"


def find_pom() -> Path:
    """The file that names the broker's jars: shipped in the package, else in the checkout."""
    here = Path(__file__).resolve().parent
    for pom in (here / "pom.xml", here.parents[1] / "deploy" / "broker" / "pom.xml"):
        if pom.is_file():
            return pom
    raise BrokerError(f"This installation lacks pom.xml beside {here}: install Horolog again.")


def find_jars(java: Java, env: Mapping[str, str], log: Callable[[str], None]) -> list[Path]:
    """The class path of the broker, fetched with Maven if this pom's jars are not cached yet.

    A folder of jars appears whole or not at all, also when two processes fetch at once.
    """
    pom = find_pom()
    folder = _folder(pom)
    jars = _cached(folder)
    if jars is None:
        _fetch(pom, folder, java, env, log)
        jars = _cached(folder)
    if jars is None:
        raise BrokerError(f"{folder} does not hold what Maven put there: delete it and try again.")
    return jars


def have_jars() -> bool:
    """Whether the jars are cached, so that neither Maven nor the network is needed."""
    return _cached(_folder(find_pom())) is not None


def find_maven(env: Mapping[str, str]) -> str | None:
    """The program that fetches the jars."""
    return shutil.which("mvn", path=env.get("PATH", os.defpath))


def _folder(pom: Path) -> Path:
    name = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    return platformdirs.user_cache_path("horolog") / "broker" / name


def _cached(folder: Path) -> list[Path] | None:
    try:
        names = (folder / _LIST).read_text().split()
    except FileNotFoundError:
        return None
    jars = [folder / name for name in names]
    # Programs that clean up caches remove single files.
    return jars if jars and all(jar.is_file() for jar in jars) else None


def _fetch(
    pom: Path,
    folder: Path,
    java: Java,
    env: Mapping[str, str],
    log: Callable[[str], None],
) -> None:
    maven = find_maven(env)
    if maven is None:
        raise ToolMissing(
            "Maven (mvn) is not in PATH; it fetches the broker's jars, once. Install it (Debian: "
            "`apt install maven`), or set KAFKA_BOOTSTRAP_SERVERS to use a Kafka that already runs."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    log(f"fetching Kafka with Maven, once (about 50 MB) into {folder}")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as temporary:
        work = Path(temporary)
        shutil.copyfile(pom, work / "pom.xml")
        _run_maven(maven, work, {**env, "JAVA_HOME": str(java.home)})
        jars = sorted((work / "jars").glob("*.jar"))
        (work / "jars" / _LIST).write_text("".join(f"{jar.name}\n" for jar in jars))
        if folder.exists() and _cached(folder) is None:
            shutil.rmtree(folder)
        try:
            (work / "jars").rename(folder)
        except OSError:
            # Another process was faster; what it put there came from the same pom.
            if _cached(folder) is None:
                raise
    log(f"fetched {len(jars)} jars")


def _run_maven(maven: str, work: Path, env: Mapping[str, str]) -> None:
    command = [maven, "-q", "-B", "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", "-DoutputDirectory=jars"]
    try:
        done = subprocess.run(  # noqa: S603 the user's own Maven
            command,
            cwd=work,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MAVEN_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerError(f"Maven did not finish within {MAVEN_TIMEOUT_S} s.") from error
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise BrokerError(f"Maven could not fetch the broker's jars; it said:\n{last}")
