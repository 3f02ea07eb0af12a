"""Formats a broker's storage, starts its JVM, and has it end with its starter."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from .errors import BrokerError
from .folder import PORT_MIN, jvm_output, kafka_dir, kafka_log
from .java import Java
from .process import lock_file, pid_file, take_lock
from .settings import (
    Ports,
    jvm_options,
    log_settings,
    render_properties,
    server_settings,
)

# The shell ends at once, so the program belongs to nobody's process tree and leaves no zombie.
_WRITE_PID = '{ exec "$@"; } & echo $! > "$0"'
_NO_PID = '{ exec "$@"; } &'


class Program(Struct, frozen=True, kw_only=True):
    """Kafka as something to run: a Java and the jars."""

    java: Java
    jars: Sequence[Path]

    def command(self, options: Sequence[str], main: str, *arguments: str) -> list[str]:
        """The command line that runs one of Kafka's main classes."""
        class_path = os.pathsep.join(str(jar) for jar in self.jars)
        archive = self.class_archive()
        # Java checks that it fits this Java and these jars, and goes on without it if not.
        shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
        return [str(self.java.binary), *shared, *options, "-cp", class_path, main, *arguments]

    def class_archive(self) -> Path:
        """Where Kafka's classes are kept as this Java loads them fastest, if they were prepared."""
        identity = hashlib.sha256(f"{self.java.home} {self.java.build}".encode()).hexdigest()[:12]
        return self.jars[0].parent / f"{identity}.jsa"


def format_storage(data_dir: Path, program: Program, log: Callable[[str], None]) -> None:
    """Format the folder for a new cluster. It is formatted whole or not at all."""
    final, fresh = kafka_dir(data_dir), data_dir / "kafka.new"
    if final.exists() and any(final.iterdir()):
        raise BrokerError(f"{final} holds files but no meta.properties: move it away.")
    log("formatting the storage of a new Kafka cluster")
    shutil.rmtree(fresh, ignore_errors=True)
    properties, log4j = (
        data_dir / "format.properties",
        data_dir / "format.log4j2.properties",
    )
    # The ports of a formatted node are not stored; the tool only wants to see some.
    ports = Ports(broker=PORT_MIN, controller=PORT_MIN + 1)
    properties.write_text(render_properties(server_settings(fresh, ports)))
    log4j.write_text(render_properties({"rootLogger.level": "ERROR"}))
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"]
    options.append(f"-Dlog4j2.configurationFile={log4j.as_uri()}")
    arguments = [
        "format",
        "--cluster-id",
        new_cluster_id(),
        "--config",
        str(properties),
    ]
    command = program.command(options, "kafka.tools.StorageTool", *arguments)
    done = subprocess.run(  # noqa: S603 the user's own Java
        command, capture_output=True, text=True, timeout=120, check=False, env=java_env()
    )
    if done.returncode != 0:
        raise BrokerError(f"Kafka could not format {fresh}:\n{done.stdout}{done.stderr}".strip())
    properties.unlink()
    log4j.unlink()
    if final.exists():
        final.rmdir()
    fresh.rename(final)


def server_command(
    data_dir: Path, program: Program, ports: Ports, *, extra: Sequence[str] = ()
) -> list[str]:
    """The command line of the server, whose files are written anew; `extra` goes to the JVM."""
    properties, log4j = data_dir / "server.properties", data_dir / "log4j2.properties"
    properties.write_text(render_properties(server_settings(kafka_dir(data_dir), ports)))
    log4j.write_text(log_settings(kafka_log(data_dir)))
    options = [*jvm_options(data_dir, log4j), *extra]
    return program.command(options, "kafka.Kafka", str(properties))


def launch(data_dir: Path, program: Program, ports: Ports) -> None:
    """Start the JVM in a session of its own, with the folder's lock in its hands."""
    command = server_command(data_dir, program, ports)
    pid_file(data_dir).unlink(missing_ok=True)
    # Those who only ask hold it too, for some microseconds.
    lock = take_lock(lock_file(data_dir), timeout_s=2)
    try:
        _detach([_WRITE_PID, str(pid_file(data_dir)), *command], jvm_output(data_dir), lock)
    finally:
        os.close(lock)


def end_with_caller(data_dir: Path, pid: int) -> None:
    """Have this broker stopped when the calling process ends, by whatever cause."""
    read_end, write_end = os.pipe()
    guard = [
        sys.executable,
        "-m",
        "horolog.broker.guard",
        str(data_dir),
        str(pid),
        str(read_end),
    ]
    _detach([_NO_PID, "guard", *guard], data_dir / "logs" / "guard.out", read_end)
    os.close(read_end)
    # The write end stays open on purpose: that it closes is how the guard learns of our end.
    os.set_inheritable(write_end, False)


def java_env() -> dict[str, str]:
    """The environment of a JVM that can open any path: in the C locale Java knows ASCII only."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def _detach(script: Sequence[str], output: Path, descriptor: int) -> None:
    """Run a shell script that leaves a program behind, which alone inherits the descriptor."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with output.open("wb") as file:
        subprocess.run(  # noqa: S603 arguments reach the shell as such, not as text
            ["/bin/sh", "-c", *script],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            pass_fds=(descriptor,),
            start_new_session=True,
            cwd=output.parent,
            env={**java_env(), "PYTHONPATH": path},
            check=True,
        )


def new_cluster_id() -> str:
    """An id that no other cluster has, as Kafka writes them."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # The tool would take a leading dash for an option.
    return f"h{text[1:]}" if text.startswith("-") else text
