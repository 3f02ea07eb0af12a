"""Every command of the Dockerfile and of docker-compose.yml, run for real outside of containers.

The build stage of the Dockerfile makes an environment in a temporary folder; each service runs in
it with the command, environment and folders that the file gives, on a Kafka with the settings of
the file. Ports, folders and the address of Kafka are other ones.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from horolog.broker import probe
from horolog.broker.jars import find_jars
from horolog.broker.java import find_java
from horolog.broker.launch import Program, java_env
from horolog.broker.settings import render_properties
from tests.deployment import composed, dockerfile

READY_S = 60.0
PARTITIONS = 2
AGAIN = (6, 70)
"""Exit codes after which a service may be started again: see docs/reference/cli.md."""
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of what the Dockerfile builds."""
    root = tmp_path_factory.mktemp("image")
    build, final = dockerfile.read()
    base = Path(sys.executable).resolve()
    dockerfile.follow(build, root, python=base, uv=BIN / "uv")
    (copied,) = final.all("COPY")
    assert copied.rest == f"--from={build.name} /app/.venv /app/.venv", "then nothing is to be done"
    shutil.rmtree(root / "build")  # it is not in the image
    return root


def environment(image: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a container: nothing of ours but what the image and the service say."""
    _, final = dockerfile.read()
    path = final.environment["PATH"].replace("/app/", f"{image}/app/").replace(":$PATH", "")
    folder = image / final.environment["HOROLOG_DATA_DIR"].lstrip("/")
    folder.mkdir(exist_ok=True)
    plain = {"PATH": f"{path}:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
    return plain | {"HOROLOG_DATA_DIR": str(folder)} | dict(given)


class Composition:
    """The services of the compose file, each a process in its own folder."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.image, self.folder = image, folder
        names = ("kafka", "host", "controller", "gateway", *composed.services())
        self.ports = _free_ports(names)
        self.services = composed.services({
            "kafka:19092": f"127.0.0.1:{self.ports['kafka']}",
            "0.0.0.0:19092": f"127.0.0.1:{self.ports['kafka']}",
            ":9092": f":{self.ports['host']}", ":9093": f":{self.ports['controller']}",
            "8765": str(self.ports["gateway"]), "/var/lib/kafka/data": str(folder / "kafka"),
        })  # fmt: skip
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._more = {
            "HOROLOG_NAMESPACE": f"compose-{uuid.uuid4().hex[:8]}",
            "HOROLOG_PARTITIONS": str(PARTITIONS),
        }

    def run_kafka(self) -> None:
        """Format the folder and start Kafka as the image does, with the settings of the file."""
        settings = composed.kafka_properties(self.services["kafka"]["environment"])
        file, quiet = self.folder / "server.properties", self.folder / "log4j2.properties"
        file.write_text(render_properties(settings))
        quiet.write_text(render_properties({"rootLogger.level": "ERROR"}))
        java = find_java(os.environ)
        program = Program(java=java, jars=find_jars(java, os.environ, print))
        options = [*self.services["kafka"]["environment"]["KAFKA_HEAP_OPTS"].split()]
        options.append(f"-Dlog4j2.configurationFile={quiet.as_uri()}")
        storage = ("kafka.tools.StorageTool", "format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c")
        done = subprocess.run(
            program.command(options, *storage, str(file)), env=java_env(), capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        command = program.command(options, "kafka.Kafka", str(file))
        self.running["kafka"] = self._open("kafka", command, java_env(), self.folder)
        alive = self.running["kafka"]
        for name in ("kafka", "host"):  # as containers reach it, and as this machine does
            probe.wait_ready(
                f"127.0.0.1:{self.ports[name]}", {}, READY_S, alive=lambda: alive.poll() is None
            )

    def start(self, name: str) -> None:
        """Start a service with the entry point of the image."""
        _, final = dockerfile.read()
        (entry,) = final.all("ENTRYPOINT")
        command = [*entry.words, *self.services[name]["command"]]
        command[0] = str(self.image / "app" / ".venv" / "bin" / command[0])
        self.running[name] = self._open(name, command, self.environment(name), self.home(name))

    def home(self, name: str) -> Path:
        """Where the service works: its own folder, or one that is mounted from the checkout."""
        service = self.services[name]
        for volume in service.get("volumes", []):
            source, inside = volume.split(":")[:2]
            if inside == service.get("working_dir"):
                return (composed.ROOT / source).resolve()
        return self.data(name)

    def data(self, name: str) -> Path:
        """The service's `/data`."""
        found = self.folder / name
        found.mkdir(exist_ok=True)
        return found

    def environment(self, name: str) -> dict[str, str]:
        """What the service is given, in a namespace of this test."""
        given = dict(self.services[name]["environment"])
        assert given["HOROLOG_DATA_DIR"] == "/data"
        given["HOROLOG_DATA_DIR"] = str(self.data(name))
        if "HOROLOG_MONITOR__PORT" in given:
            given["HOROLOG_MONITOR__PORT"] = str(self.ports[name])
        # The jobs' folder of the checkout is mounted read-only.
        more = {"PYTHONDONTWRITEBYTECODE": "1"}
        return environment(self.image, given | self._more | more)

    def healthy(self, name: str) -> bool:
        """What the health check of the file says."""
        _, *command = self.services[name]["healthcheck"]["test"]
        command = [word.replace("9464", str(self.ports[name])) for word in command]
        assert command[0] == "python"
        command[0] = str(self.image / "app" / ".venv" / "bin" / "python")
        done = subprocess.run(
            command, env=self.environment(name), capture_output=True, timeout=30, check=False
        )
        return done.returncode == 0

    def wait_healthy(self, name: str) -> None:
        """Wait for the health check, starting again what ended, as the restart policy says."""
        assert self.services[name]["restart"] == "unless-stopped"
        give_up_s = time.monotonic() + READY_S
        while not self.healthy(name):
            code = self.running[name].poll()
            # A refusal or a wrong setting would come again each time.
            assert code in (None, *AGAIN), self.log(name)
            assert time.monotonic() < give_up_s, self.log(name)
            if code is not None:
                self.start(name)

    def ask(self, name: str, *arguments: str) -> Any:
        """What the command line says where this service runs."""
        horolog = self.image / "app" / ".venv" / "bin" / "horolog"
        done = subprocess.run(
            [str(horolog), *arguments, "-o", "json"], env=self.environment(name), text=True,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def end(self, name: str) -> int:
        """The exit code after SIGTERM, which must come in the time that the file gives."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(composed.seconds(self.services[name]["stop_grace_period"]))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text("utf-8")

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def _open(
        self, name: str, command: list[str], env: dict[str, str], home: Path
    ) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=log)


@pytest.fixture
def composition(image: Path, tmp_path: Path) -> Iterator[Composition]:
    found = Composition(image, tmp_path)
    with contextlib.closing(found):
        yield found


@pytest.mark.timeout(300)
def test_everything_in_the_compose_file_comes_up_works_and_ends_by_sigterm(
    composition: Composition,
) -> None:
    composition.run_kafka()
    composition.start("topics")
    assert composition.running.pop("topics").wait(60) == 0, composition.log("topics")
    services = [name for name in composition.services if name not in ("kafka", "topics")]
    for name in services:
        composition.start(name)
    for name in services:
        composition.wait_healthy(name)

    # The example's functions are registered by the worker that runs them, and run.
    composition.ask("python-worker", "job", "trigger", "greet")
    give_up_s = time.monotonic() + READY_S
    wanted = ("execution", "list", "--job", "greet", "--state", "SUCCEEDED")
    while not composition.ask("python-worker", *wanted):
        assert time.monotonic() < give_up_s, composition.log("python-worker")
    page = f"http://127.0.0.1:{composition.ports['gateway']}/"
    with urllib.request.urlopen(page, timeout=30) as shown:
        assert "greet" in shown.read().decode()
    # A name of somebody else that leads to this machine is of no use to him.
    foreign = urllib.request.Request(page, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(foreign, timeout=30)
    with refused.value:
        assert refused.value.code == 403

    ends = {name: composition.end(name) for name in reversed(services)}
    assert ends == dict.fromkeys(ends, 0)
    logs = {name: composition.log(name) for name in services}
    assert not [name for name, log in logs.items() if "Traceback" in log]

    # Who has no volume at /data runs where nothing can be written.
    for name in services:
        mounted = [one for one in composition.services[name].get("volumes", ()) if ":/data" in one]
        assert bool(mounted) or not list(composition.data(name).iterdir()), name
    # Kafka's JVM tells by its exit code which signal ended it.
    assert composition.end("kafka") in (0, 128 + signal.SIGTERM)


def test_a_service_fails_its_health_check_when_it_does_not_answer(
    composition: Composition,
) -> None:
    assert not composition.healthy("scheduler")
    assert not composition.healthy("gateway")


def test_what_the_image_runs_by_default_explains_itself(image: Path) -> None:
    _, final = dockerfile.read()
    (entry,), (command,) = final.all("ENTRYPOINT"), final.all("CMD")
    words = [*entry.words, *command.words]
    words[0] = str(image / "app" / ".venv" / "bin" / words[0])
    done = subprocess.run(
        words, env=environment(image, {}), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: horolog" in done.stdout


def _free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """As many different ports as there are names."""
    with contextlib.ExitStack() as stack:
        taken = {}
        for name in names:
            probing = stack.enter_context(socket.socket())
            probing.bind(("127.0.0.1", 0))
            taken[name] = probing.getsockname()[1]
        return taken
