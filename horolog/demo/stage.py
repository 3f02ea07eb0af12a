"""Everything that runs in a demonstration: an installation of its own, its topic, receivers."""

import contextlib
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from horolog.client import KafkaClient
from horolog.doctor import OFFERS_SILENT_MS
from horolog.installation import Installation
from horolog.settings import HttpSettings, Settings
from horolog.signs import pools
from horolog.supervised import Supervised, child_environment
from processors.topology import TOPICS
from projections.reading import LogReading
from schemas.commands import PauseJob
from schemas.limits import POOLS_BUILT
from schemas.replies import Refused
from streams import admin
from streams.errors import Unavailable
from streams.layout import topic_name
from streams.topics import TopicSet, TopicSpec

from .http_receiver import Listening
from .jobs import TENANT, Addresses, DemoFailed, DemoJob, register_by_cli, register_by_kafka
from .receipts import Receipts
from .receiving import Receiver

TARGET_PARTITIONS: Final = 4
LEASE_MS: Final = 3_000
"""A lost lease is to be seen within a demonstration; the default is a minute."""
OWN_CALLS: Final = HttpSettings(allowed_cidrs=("127.0.0.0/8",), allow_plain_http=True)
WORKER: Final = "python worker"
WORKER_S: Final = 30.0
_NOT_THERE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


class Stage:
    """An installation in a data folder and under a namespace of its own, a worker with Python
    functions, and the receivers of what is fired. A context manager: at its end everything is
    stopped and, unless the folder was named or something went wrong, removed; on a Kafka that was
    there before, its topics too."""

    def __init__(self, settings: Settings, data_dir: Path | None, say: Callable[[str], None]):
        run = uuid.uuid4().hex[:6]
        self.kept = data_dir is not None
        self._say = say
        folder = data_dir or Path(tempfile.mkdtemp(prefix="horolog-demo-"))
        folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = folder.resolve()
        self.settings = settings.model_copy(
            update={
                "namespace": f"horolog-demo-{run}", "data_dir": self.data_dir,
                "lease_ms": LEASE_MS, "http": OWN_CALLS,
            }
        )  # fmt: skip
        self._target = TopicSet(
            namespace=f"demo-{run}", partitions=TARGET_PARTITIONS,
            specs=(TopicSpec(suffix="ticks", partitions=TARGET_PARTITIONS, cleanup="delete"),),
        )  # fmt: skip
        self.topic = topic_name(self._target.namespace, "ticks")
        self._lines: IO[bytes] = (self.data_dir / "services.log").open("ab")
        self.installation = Installation(self.settings, say, lines=self._lines)
        self.receipts = Receipts()
        self._receivers: list[Receiver] = []
        self._url = ""

    def __enter__(self) -> "Stage":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for receiver in self._receivers:
                receiver.close()
            self._remove_topics()
        finally:
            self.installation.stop()
            self._lines.close()
            if isinstance(error, Exception):
                self.kept = True
            if self.kept:
                self._say(f"all data is kept in {self.data_dir}, with services.log")
            else:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def start(self) -> None:
        """Return when jobs can be registered and the receivers wait."""
        self.installation.start()
        admin.apply(self.installation.client_config(), self._target)
        self._receive("topic_receiver", self.topic).follow()
        calls = self._receive("http_receiver")
        self._url = msgspec.json.decode(calls.first_line(), type=Listening).url
        calls.follow()
        worker = self.installation.worker(
            "the Python worker", "worker", "horolog.demo.handlers:app", "--processes", "1"
        )
        self.installation.add(WORKER, worker)
        self._await_worker()

    def _receive(self, module: str, *arguments: str) -> Receiver:
        receiver = Receiver(
            module, arguments, receipts=self.receipts, environment=self.environment,
            errors=self._lines,
        )  # fmt: skip
        self._receivers.append(receiver)
        return receiver

    def _await_worker(self) -> None:
        """Return when somebody offers to run Python functions. Raises `Unavailable`."""
        settings, until_s = self.settings, time.monotonic() + WORKER_S
        with contextlib.closing(
            LogReading(self.installation.log(), settings.namespace, "horolog-demo-workers")
        ) as reading:
            while time.monotonic() < until_s:
                found = pools(
                    reading, POOLS_BUILT, settings.partitions,
                    now_ms=time.time_ns() // 1_000_000, silent_ms=OFFERS_SILENT_MS,
                )  # fmt: skip
                if all(pool.workers for pool in found.values()):
                    return
                self.installation.look()
                time.sleep(0.1)
        raise Unavailable(f"no worker offers itself after {WORKER_S:.0f} s")

    @property
    def addresses(self) -> Addresses:
        """Where jobs are to fire to."""
        return Addresses(topic=self.topic, url=self._url)

    @property
    def python_worker(self) -> Supervised:
        """The worker with the Python functions; there is one after `start`."""
        return self.installation.service(WORKER)

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
            register_by_kafka(by_kafka, self.addresses, client)
        by_cli = [one for one in jobs if one.way == "CLI"]
        register_by_cli(by_cli, self.addresses, self.environment)

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

    def finish_receipts(self) -> Path:
        """Let the receivers see what there is to see; a file with all receipts. Raises `DemoFailed`
        if they do not."""
        written = sum(receiver.finish() for receiver in self._receivers)
        if written != len(self.receipts):
            raise DemoFailed(f"of {written} receipts {len(self.receipts)} were read")
        path = self.data_dir / "receipts.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in self.receipts.all))
        return path

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
