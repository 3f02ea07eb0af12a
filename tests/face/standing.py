"""An installation for the tests of the face: processes of their own on the embedded broker."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec
from typer.testing import CliRunner

from horolog.cli.app import app
from processors.exchange import decode_answer
from processors.topology import COMMANDS, REPLIES, REPLY_PARTITIONS
from schemas.partition import job_key, partition_of
from streams.kafka import KafkaLog
from streams.layout import topic_name
from streams.ports import Produced

PARTITIONS = 2
START_S = 60.0
ANSWER_S = 30.0


class Process:
    """A service, with what it said so far."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, env=environment, stderr=file)

    @property
    def said(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def wait_for(self, text: str) -> None:
        until_s = time.monotonic() + START_S
        while text not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until_s, f"no {text!r} in: {self.said}"
            time.sleep(0.02)

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(30)


class Answer:
    """What came back over HTTP."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        """Of a problem document."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        told = self.json
        assert told["status"] == self.status
        return str(told["type"].removeprefix("urn:horolog:problem:"))

    @property
    def errors(self) -> dict[str, str]:
        return {one["field"]: one["message"] for one in self.json.get("errors", [])}


class Standing:
    """Topics, a scheduler, a slots processor and a gateway under a namespace of its own."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        run = uuid.uuid4().hex[:8]
        self.bootstrap, self.folder = bootstrap, folder
        self.namespace = f"face-{run}"
        self.topic = f"face-target-{run}"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HOROLOG_")}
        self.environment = clean | {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap, "HOROLOG_NAMESPACE": self.namespace,
            "HOROLOG_PARTITIONS": str(PARTITIONS), "HOROLOG_DATA_DIR": str(folder),
        }  # fmt: skip
        self.log = KafkaLog(bootstrap)
        self.port = 0
        self.scheduler: Process | None = None
        self.gateway: Process | None = None
        self._started: list[Process] = []

    def start(self, *arguments: str, **environment: str) -> Process:
        """`horolog` with these arguments as a process."""
        log = self.folder / f"{len(self._started)}-{arguments[1]}.log"
        command = [sys.executable, "-m", "horolog", *arguments]
        started = Process(command, self.environment | environment, log)
        self._started.append(started)
        return started

    def start_gateway(self, *arguments: str, **environment: str) -> Process:
        """A gateway; `port` is where it answers. The first gets any port, those after it the
        same."""
        found = self.start("run", "gateway", "--port", str(self.port), *arguments, **environment)
        found.wait_for("gateway_started")
        line = next(line for line in found.said.splitlines() if "gateway_started" in line)
        self.port = int(json.loads(line)["page"].rstrip("/").rpartition(":")[2])
        self.await_ready()
        return found

    def await_ready(self) -> None:
        until_s = time.monotonic() + START_S
        while self.http("GET", "/readyz").status != 200:
            assert time.monotonic() < until_s, "the gateway is not ready"
            time.sleep(0.02)

    def stop(self) -> None:
        for one in self._started:
            if one.process.poll() is None:
                one.stop()

    # --- three doors -----------------------------------------------------------------------------

    def http(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:  # fmt: skip
        """One request. A body is sent as JSON, a raw one as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        sent = dict(headers or {})
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def jobs(self, method: str, rest: str, body: Any = None, **headers: str) -> Answer:
        """A request about jobs of the tenant `default`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http(method, f"/v1/tenants/default/jobs/{rest}", body, named)

    def put(self, job: str, **definition: Any) -> Answer:
        """Put a job that fires into the topic, once an hour unless it is said."""
        whole = {"schedules": [{"every": "1h"}], "target": {"topic": {"name": self.topic}}}
        answer = self.jobs("PUT", job, whole | definition)
        assert answer.status == 200, answer.body
        return answer

    def cli(self, *arguments: str, stdin: str | None = None) -> tuple[int, Any]:
        """Exit code, and the JSON that the command wrote: to stdout, or to stderr if it failed."""
        done = CliRunner().invoke(app, [*arguments, "-o", "json"], env=self.environment,
                                  input=stdin)  # fmt: skip
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        told = done.stdout if done.exit_code == 0 else done.stderr.splitlines()[-1]
        return done.exit_code, json.loads(told)

    def kafka(self, command: dict[str, Any]) -> dict[str, Any]:
        """Write a JSON command into the log; the reply."""
        reader_id = f"test-{uuid.uuid4().hex}"
        replies = (topic_name(self.namespace, REPLIES), partition_of(reader_id, REPLY_PARTITIONS))
        reader, outbox = self.log.reader(reader_id, committed=False), self.log.outbox(reader_id)
        reader.assign(self.log.offsets().end([replies]))
        key = job_key(str(command["tenant"]), str(command["job"]))
        topic = topic_name(self.namespace, COMMANDS)
        value = json.dumps(command | {"reply_to": reader_id}).encode()
        outbox.send([Produced(topic, partition_of(key, PARTITIONS), key.encode(), value)])
        until_s = time.monotonic() + ANSWER_S
        try:
            while time.monotonic() < until_s:
                for record in reader.read(100, 0.25):
                    if record.key == reader_id.encode():
                        answer = decode_answer(record.value or b"")
                        assert answer is not None
                        found = msgspec.to_builtins(answer)
                        assert isinstance(found, dict)
                        return found
            raise AssertionError("no reply")
        finally:
            reader.close()
            outbox.close()

    def commands(self) -> int:
        """How many commands are in the log."""
        topic = topic_name(self.namespace, COMMANDS)
        ends = self.log.offsets().end([(topic, p) for p in range(PARTITIONS)])
        return sum(ends.values())

    def executions(self, job: str, count: int, state: str = "") -> list[dict[str, Any]]:
        """The job's executions, once there are so many."""
        until_s = time.monotonic() + ANSWER_S
        while True:
            path = f"/v1/tenants/default/executions?job={job}"
            path += f"&state={state}" if state else ""
            found: list[dict[str, Any]] = self.http("GET", path).json["executions"]
            if len(found) >= count:
                return found
            assert time.monotonic() < until_s, f"{len(found)} of {count} executions"
            time.sleep(0.02)
