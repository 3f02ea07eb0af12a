"""Everything that runs in a demonstration: an installation of its own, its topic, its receiver."""

import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from horolog.client import KafkaClient
from horolog.installation import Installation
from horolog.settings import Settings
from horolog.supervised import child_environment
from processors.topology import TOPICS
from schemas.commands import PauseJob
from schemas.replies import Refused
from streams import admin
from streams.layout import topic_name
from streams.topics import TopicSet, TopicSpec

from .jobs import TENANT, DemoFailed, DemoJob, register_by_cli, register_by_kafka
from .receipts import Receipts

TARGET_PARTITIONS: Final = 4
RECEIVER_END_S: Final = 20.0
_NOT_THERE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


class Stage:
    """An installation in a data folder and under a namespace of its own, and who reads the target
    topic. A context manager: at its end everything is stopped and, unless the folder was named
    or something went wrong, removed; on a Kafka that was there before, its topics too."""

    def __init__(self, settings: Settings, data_dir: Path | None, say: Callable[[str], None]):
        run = uuid.uuid4().hex[:6]
        self.kept = data_dir is not None
        self._say = say
        folder = data_dir or Path(tempfile.mkdtemp(prefix="horolog-demo-"))
        folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = folder.resolve()
        self.settings = settings.model_copy(
            update={"namespace": f"horolog-demo-{run}", "data_dir": self.data_dir}
        )
        self._target = TopicSet(
            namespace=f"demo-{run}", partitions=TARGET_PARTITIONS,
            specs=(TopicSpec(suffix="ticks", partitions=TARGET_PARTITIONS, cleanup="delete"),),
        )  # fmt: skip
        self.topic = topic_name(self._target.namespace, "ticks")
        self._lines: IO[bytes] = (self.data_dir / "scheduler.log").open("ab")
        self.installation = Installation(self.settings, say, lines=self._lines)
        self.receipts = Receipts()
        self._receiver: subprocess.Popen[bytes] | None = None
        self._follower: threading.Thread | None = None

    def __enter__(self) -> "Stage":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._end_receiver()
            self._remove_topics()
        finally:
            self.installation.stop()
            self._lines.close()
            if isinstance(error, Exception):
                self.kept = True
            if self.kept:
                self._say(f"all data is kept in {self.data_dir}, with scheduler.log")
            else:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def start(self) -> None:
        """Return when jobs can be registered and the receiver waits."""
        self.installation.start()
        admin.apply(self.installation.client_config(), self._target)
        command = [sys.executable, "-m", "horolog.demo.receiver", self.topic]
        self._receiver = subprocess.Popen(  # noqa: S603 our own program
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._lines,
            env=self.environment,
            start_new_session=True,
        )
        assert self._receiver.stdout is not None
        self._follower = threading.Thread(
            target=self.receipts.follow, args=(self._receiver.stdout,), daemon=True
        )
        self._follower.start()

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which commands mean this installation."""
        return dict(child_environment(self.settings, self.installation.bootstrap))

    def client(self) -> KafkaClient:
        """A sender of commands."""
        return KafkaClient(
            self.installation.log(), namespace=self.settings.namespace, by="horolog demo"
        )

    def register(self, jobs: tuple[DemoJob, ...]) -> None:
        """Register the jobs, each in its way."""
        with self.client() as client:
            by_kafka = [one for one in jobs if one.way != "CLI"]
            register_by_kafka(by_kafka, self.topic, client)
        register_by_cli([one for one in jobs if one.way == "CLI"], self.topic, self.environment)

    def pause(self, jobs: tuple[DemoJob, ...]) -> int:
        """Pause every job: what is due until then is decided, nothing follows. Returns an instant
        after all pauses. Raises `DemoFailed` if one is refused for another reason than that the
        job has finished."""
        commands = [PauseJob(tenant=TENANT, job=one.job, note="the check ends") for one in jobs]
        with self.client() as client:
            for answer in client.send_all(commands):
                if isinstance(answer, Refused) and answer.kind != "finished":
                    raise DemoFailed(f"job {answer.job} cannot be paused: {answer.message}")
        return time.time_ns() // 1_000_000

    def finish_receipts(self) -> None:
        """Let the receiver read to the committed end. Raises `DemoFailed` if it does not."""
        receiver, follower = self._receiver, self._follower
        assert receiver is not None and receiver.stdin is not None and follower is not None
        receiver.stdin.close()
        try:
            code = receiver.wait(RECEIVER_END_S)
        except subprocess.TimeoutExpired:
            raise DemoFailed("the receiver did not come to the end of its topic") from None
        follower.join(RECEIVER_END_S)
        ended = self.receipts.ended
        if code != 0 or ended is None or ended.records != len(self.receipts):
            raise DemoFailed(f"the receiver ended with exit code {code} before it was done")

    def _end_receiver(self) -> None:
        receiver = self._receiver
        if receiver is None:
            return
        if receiver.poll() is None:
            receiver.terminate()
            receiver.wait()
        for pipe in (receiver.stdin, receiver.stdout):
            if pipe is not None:
                pipe.close()

    def _remove_topics(self) -> None:
        if self.installation.embedded or not self.installation.bootstrap:
            return
        names = [topic_name(self.settings.namespace, spec.suffix) for spec in TOPICS]
        self._say("removing the demonstration's topics")
        self.installation.stop()
        # Its answers are lost when the client goes.
        client = AdminClient({**self.installation.client_config(), "log_level": 0})
        removed = client.delete_topics([*names, self.topic], request_timeout=10)
        for name, answer in removed.items():
            error = answer.exception(timeout=10)
            if isinstance(error, KafkaException) and error.args[0].code() in _NOT_THERE:
                continue
            if error is not None:
                self._say(f"topic {name} stays behind: {error}")


def cli_hint(stage: Stage) -> str:
    """How to give commands to this installation from another terminal."""
    which = f"--namespace {stage.settings.namespace}"
    if not stage.installation.embedded:
        return f"horolog job list {which} --bootstrap {stage.installation.bootstrap}"
    return f"horolog job list {which} --data {stage.data_dir}"
