"""Fetches what the embedded broker needs before anybody waits for it.

`python -m horolog.broker.prepare` is safe to repeat and quick when there is nothing to do. After it
a broker starts without the network, and in about half the time: Java keeps Kafka's classes in an
archive that is made here, by starting and stopping a broker that is thrown away.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from . import container
from .errors import BrokerError, NoJava
from .folder import choose_ports, prepare_folder
from .jars import find_jars
from .java import find_java
from .launch import Program, format_storage, java_env, server_command
from .probe import wait_ready

READY_S_MAX = 60.0
ARCHIVE_S_MAX = 60.0


def prepare(log: Callable[[str], None], env: Mapping[str, str] = os.environ) -> None:
    """Fetch the jars and make the class archive, if missing.

    Raises `BrokerError` when Java, Maven or the jars cannot be had, unless Docker can be used where
    there is no Java. An archive that cannot be made is only told: brokers start without it, slower.
    """
    try:
        java = find_java(env)
    except NoJava:
        if container.why_no_docker():
            raise
        log("no Java: Kafka will run in Docker")
        return
    program = Program(java=java, jars=find_jars(java, env, log))
    archive = program.class_archive()
    if archive.exists():
        return
    log("preparing Kafka for faster starts, once (50 MB)")
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent.parent, prefix="archive.") as folder:
            made = _make_archive(Path(folder), program)
            # Whole or not at all: Java trusts what it finds there.
            made.replace(archive)
    except (BrokerError, OSError, subprocess.SubprocessError) as error:
        log(f"no class archive was made; Kafka will start slower: {error}")


def _make_archive(folder: Path, program: Program) -> Path:
    made = folder / "classes.jsa"
    prepare_folder(folder)
    format_storage(folder, program, log=_say_nothing)
    ports = choose_ports(folder, log=_say_nothing)
    option = f"-XX:ArchiveClassesAtExit={made}"
    command = server_command(folder, program, ports, extra=[option])
    quiet = subprocess.DEVNULL
    with subprocess.Popen(  # noqa: S603 the user's own Java
        command, stdin=quiet, stdout=quiet, stderr=quiet, env=java_env()
    ) as server:
        try:
            wait_ready(
                f"127.0.0.1:{ports.broker}", {}, READY_S_MAX, alive=lambda: server.poll() is None
            )
            server.terminate()
            server.wait(ARCHIVE_S_MAX)
        finally:
            server.kill()
    return made


def main() -> int:
    """Prepare, telling each step on stderr; 1 with the reason if the broker could not start."""
    try:
        prepare(_tell)
    except BrokerError as error:
        _tell(str(error))
        return 1
    return 0


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _say_nothing(line: str) -> None:
    del line


if __name__ == "__main__":
    sys.exit(main())
