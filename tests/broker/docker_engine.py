"""A Docker engine as small as a test needs: its one image is Kafka, run from the embedded jars.

Answers the client library on a socket in a folder. What a container is given (environment, ports,
volumes, labels) is kept for the test to judge; started, it is a real Kafka with the settings that
its environment says, in a folder in the place of its volume.
"""

import json
import os
import re
import signal
import socketserver
import subprocess
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from horolog.broker.jars import find_jars
from horolog.broker.java import find_java
from horolog.broker.launch import Program, java_env
from horolog.broker.settings import render_properties

NOT_SETTINGS = ("KAFKA_HEAP_OPTS",)


class Engine(socketserver.ThreadingUnixStreamServer):
    """Listens at `address` until closed. `created` has every container that was asked for."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self.created: dict[str, dict[str, Any]] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        java = find_java(os.environ)
        self._program = Program(java=java, jars=find_jars(java, os.environ, print))
        super().__init__(str(folder / "docker.sock"), _Requests)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def start_container(self, name: str) -> None:
        """What the image does: write the settings, format an empty volume, run the server."""
        asked = self.created[name]
        told = dict(pair.split("=", 1) for pair in asked["Env"])
        (bind,) = asked["HostConfig"]["Binds"]
        volume, inside, _ = bind.split(":")
        settings = {
            key.removeprefix("KAFKA_").lower().replace("_", "."): value
            for key, value in told.items()
            if key.startswith("KAFKA_") and key not in NOT_SETTINGS
        }
        assert settings["log.dirs"] == inside
        # Here nothing stands between the container and this machine.
        settings["listeners"] = settings["listeners"].replace("0.0.0.0", "127.0.0.1")
        settings["log.dirs"] = str(self.folder / volume)
        file = self.folder / f"{name}.properties"
        file.write_text(render_properties(settings))
        options = [told["KAFKA_HEAP_OPTS"]]
        storage = ("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t")
        done = subprocess.run(
            self._program.command(options, *storage, told["CLUSTER_ID"], "-c", str(file)),
            env=java_env(), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                self._program.command(options, "kafka.Kafka", str(file)), env=java_env(),
                stdout=log, stderr=log,
            )  # fmt: skip

    def end_container(self, name: str, number: signal.Signals) -> None:
        process = self.running.pop(name, None)
        if process is not None:
            process.send_signal(number)
            process.wait(30)

    def close(self) -> None:
        for name in list(self.running):
            self.end_container(name, signal.SIGKILL)
        self.shutdown()
        self.server_close()


class _Requests(BaseHTTPRequestHandler):
    server: Engine

    def address_string(self) -> str:
        return "socket"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        path = self._path()
        if path == "/version":
            self._answer(200, {"ApiVersion": "1.45", "MinAPIVersion": "1.24", "Version": "27.0"})
        elif path == "/_ping":
            self._answer(200, "OK")
        elif path.startswith("/images/"):
            self._answer(200, {"Id": "sha256:kafka", "RepoTags": []})
        elif found := re.fullmatch(r"/containers/([^/]+)/json", path):
            name = found[1]
            if name not in self.server.created:
                self._answer(404, {"message": f"No such container: {name}"})
                return
            runs = name in self.server.running and self.server.running[name].poll() is None
            status = "running" if runs else "exited"
            self._answer(200, {
                "Id": name, "Name": f"/{name}", "Image": "sha256:kafka",
                "State": {"Status": status}, "Config": {"Image": "kafka", "Labels": {}},
            })  # fmt: skip
        else:
            self._answer(404, {"message": f"page not found: {path}"})

    def do_POST(self) -> None:
        path, engine = self._path(), self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == "/containers/create":
            name = self.path.partition("name=")[2].partition("&")[0]
            if name in engine.created:
                self._answer(409, {"message": f"the name {name} is in use"})
                return
            engine.created[name] = json.loads(body)
            self._answer(201, {"Id": name, "Warnings": []})
        elif found := re.fullmatch(r"/containers/([^/]+)/start", path):
            engine.start_container(found[1])
            self._answer(204, None)
        elif found := re.fullmatch(r"/containers/([^/]+)/stop", path):
            engine.end_container(found[1], signal.SIGTERM)
            self._answer(204, None)
        else:
            self._answer(404, {"message": f"page not found: {path}"})

    def do_DELETE(self) -> None:
        name = self._path().removeprefix("/containers/")
        self.server.end_container(name, signal.SIGKILL)
        del self.server.created[name]
        self._answer(204, None)

    def _path(self) -> str:
        return re.sub(r"^/v\d+\.\d+", "", self.path.partition("?")[0])

    def _answer(self, status: int, content: object) -> None:
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if data:  # who got everything may have gone
            self.wfile.write(data)
