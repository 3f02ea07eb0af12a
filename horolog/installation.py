"""Everything that `up` runs on one machine: a Kafka, its topics, a scheduler."""

import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO

from horolog.broker import server
from horolog.settings import Settings
from horolog.supervised import Owners, SupervisedScheduler
from processors.topology import topic_set
from streams import admin
from streams.errors import Refuse
from streams.kafka import KafkaLog

Say = Callable[[str], None]


class Installation:
    """Starts its parts in order and ends them in the opposite one, also half-way.

    Uses the Kafka that the settings name, else the embedded one of the data folder, which is
    stopped at the end if it was started here. A context manager.
    """

    def __init__(self, settings: Settings, say: Say, *, lines: IO[bytes] | None = None) -> None:
        self.settings = settings
        self.bootstrap = settings.kafka.bootstrap
        self._say = say
        self._lines = lines
        self._broker: server.BrokerHandle | None = None
        self._scheduler: SupervisedScheduler | None = None

    def __enter__(self) -> "Installation":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def embedded(self) -> bool:
        """Whether the Kafka is the embedded one: one node, without replication."""
        return self._broker is not None

    @property
    def scheduler(self) -> SupervisedScheduler:
        """The scheduler; there is one after `start`."""
        assert self._scheduler is not None
        return self._scheduler

    def start(self) -> None:
        """Return when jobs are taken and fire. Raises what a part raises, with the reason."""
        settings = self.settings
        if not self.bootstrap:
            self._broker = server.start(settings.broker_dir, log=self._say)
            self.bootstrap = self._broker.bootstrap
        made = admin.apply(self.client_config(), topic_set(settings.namespace, settings.partitions))
        for warning in made.warnings:
            self._say(f"warning: {warning}")
        if made.created:
            self._say(f"created {len(made.created)} topics")
        self._scheduler = SupervisedScheduler(
            settings, self.bootstrap, member=f"{socket.gethostname()}-up", say=self._say,
            lines=self._lines,
        )  # fmt: skip
        owners = Owners(self.log(), settings)
        started_s = time.monotonic()
        self._scheduler.start()
        owners.wait(self._scheduler.member, self._look)
        self._say(f"the scheduler is ready after {time.monotonic() - started_s:.1f} s")

    def stop(self) -> None:
        """End what was started here."""
        if self._scheduler is not None:
            self._scheduler.stop()
        if self._broker is not None and self._broker.started:
            server.stop(self._broker.data_dir)

    def log(self) -> KafkaLog:
        """The Kafka, for making clients of it."""
        return KafkaLog(self.bootstrap, self.settings.kafka.client)

    def client_config(self) -> dict[str, str | int | float | bool]:
        """Settings for an administration client."""
        return {**self.settings.kafka.client, "bootstrap.servers": self.bootstrap}

    def _look(self) -> None:
        """A scheduler that refuses to start has said why; one that fails is started again."""
        if self.scheduler.gave_up():
            raise Refuse("the scheduler refuses to start; its log says why")
        self.scheduler.look()
