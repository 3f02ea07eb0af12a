"""Everything that `up` runs on one machine: a Kafka, its topics, the services."""

import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import IO, Final

from horolog import local_http, supervised
from horolog.broker import server
from horolog.broker.order import Kind
from horolog.owners import Owners
from horolog.settings import GatewaySettings, HttpSettings, Settings, is_loopback_host
from horolog.supervised import Supervised
from processors.topology import JOB_STATE, SLOT_STATE, topic_set
from streams import admin
from streams.errors import Refuse
from streams.kafka import KafkaLog

Say = Callable[[str], None]

PERMISSIVE: Final = HttpSettings(allowed_cidrs=("0.0.0.0/0", "::/0"), allow_plain_http=True)
"""What HTTP jobs may call on a machine of one's own. Link-local and metadata addresses are refused
all the same."""

SCHEDULER: Final = "scheduler"
SLOTS: Final = "slots"
HTTP_WORKER: Final = "http-worker"
GATEWAY: Final = "gateway"
READY_S: Final = 1.0
"""How long a gateway may take to say whether it is ready."""
READY_EVERY_S: Final = 0.05


class Installation:
    """Starts its parts in order and ends them in the opposite one, also half-way.

    Uses the Kafka that the settings name, else the embedded one of the data folder, which is
    stopped at the end if it was started here. A context manager.
    """

    def __init__(self, settings: Settings, say: Say, *, lines: IO[bytes] | None = None) -> None:
        self.settings = settings
        self.bootstrap = settings.kafka.bootstrap
        self.member = f"{socket.gethostname()}-up"
        self._say = say
        self._lines = lines
        self._broker: server.BrokerHandle | None = None
        self._services: dict[str, Supervised] = {}
        self._gateway_at = settings.gateway

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
        """Whether the Kafka is one of Horolog's own: one node, without replication."""
        return self._broker is not None

    @property
    def kafka(self) -> str:
        """The Kafka for people: its address, and what it runs in if it is Horolog's own."""
        if self._broker is None:
            return self.bootstrap
        within = "embedded" if self._broker.kind is Kind.EMBEDDED else "in Docker"
        return f"{self.bootstrap} ({within})"

    @property
    def permissive(self) -> bool:
        """Whether HTTP jobs may call anything: only where nobody said otherwise, and nobody else
        can register them."""
        return "http" not in self.settings.model_fields_set and is_loopback(self.bootstrap)

    @property
    def members(self) -> list[str]:
        """Names under which the schedulers own partitions."""
        more = range(2, self.settings.schedulers + 1)
        return [self.member, *(f"{self.member}-{n}" for n in more)]

    @property
    def scheduler(self) -> Supervised:
        """The first scheduler; there is one after `start`."""
        return self.service(SCHEDULER)

    @property
    def scheduler_pids(self) -> list[int]:
        """Processes that decide now."""
        names = [SCHEDULER, *self.members[1:]]
        return [pid for name in names if (pid := self.service(name).pid) is not None]

    @property
    def http_worker(self) -> Supervised:
        """The HTTP worker; there is one after `start`."""
        return self.service(HTTP_WORKER)

    @property
    def page(self) -> str:
        """Address of the page; it answers after `start`."""
        return f"http://{self._gateway_at.address}/"

    def service(self, name: str) -> Supervised:
        """What was added under this name."""
        return self._services[name]

    @property
    def restarts(self) -> int:
        """How often a service was started again."""
        return sum(service.restarts for service in self._services.values())

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
        started_s = time.monotonic()
        schedulers, slots = (Owners(self.log(), settings, t) for t in (JOB_STATE, SLOT_STATE))
        self._add_services()
        schedulers.wait(self.members, self._await)
        slots.wait([self.member], self._await)
        while not self._answers():
            self._await()
            time.sleep(READY_EVERY_S)
        took_s = time.monotonic() - started_s
        count = f"{settings.schedulers} schedulers" if settings.schedulers > 1 else "scheduler"
        self._say(f"{count}, slots, HTTP worker and gateway run after {took_s:.1f} s")

    def worker(self, name: str, *arguments: str, settings: Settings | None = None) -> Supervised:
        """A worker of this installation, which messages call `name`; not started yet."""
        return supervised.worker(
            name, (*arguments, "--name", self.member), settings or self._unmonitored,
            self.bootstrap, say=self._say, lines=self._lines,
        )  # fmt: skip

    @property
    def _unmonitored(self) -> Settings:
        """For services that have no port of their own to be asked at."""
        at = self.settings.monitor.model_copy(update={"port": 0})
        return self.settings.model_copy(update={"monitor": at})

    def add(self, name: str, service: Supervised) -> None:
        """Start a service, to be looked after and ended with the others."""
        self._services[name] = service
        service.start()

    def end(self, name: str) -> None:
        """End a service for good, while the others go on."""
        self._services.pop(name).stop()

    def look(self) -> None:
        """Start again what died. Raises `Refuse` when something does not stay alive."""
        for service in self._services.values():
            service.look()

    def stop(self) -> None:
        """End what was started here."""
        # Workers before the schedulers, so that what they say in the end is heard.
        for service in reversed(self._services.values()):
            service.stop()
        if self._broker is not None and self._broker.started:
            server.stop(self._broker.data_dir)

    def log(self) -> KafkaLog:
        """The Kafka, for making clients of it."""
        return KafkaLog(self.bootstrap, self.settings.kafka.client)

    def client_config(self) -> dict[str, str | int | float | bool]:
        """Settings for an administration client."""
        return {**self.settings.kafka.client, "bootstrap.servers": self.bootstrap}

    def _add_services(self) -> None:
        settings = self.settings
        alone = settings.schedulers == 1
        for n, member in enumerate(self.members, 1):
            called = "the scheduler" if alone else f"scheduler {n}"
            self._add_processor(SCHEDULER if n == 1 else member, called, SCHEDULER, member)
        self._add_processor(SLOTS, "the slots processor", SLOTS, self.member)
        calling = settings.model_copy(update={"http": PERMISSIVE}) if self.permissive else settings
        calling = self._monitored(calling)
        self.add(HTTP_WORKER, self.worker("the HTTP worker", "run", "worker", settings=calling))
        self._gateway_at = at = _free(settings.gateway, settings)
        gateway = supervised.gateway(
            "the gateway", settings.model_copy(update={"gateway": at}), self.bootstrap,
            say=self._say, lines=self._lines,
        )  # fmt: skip
        self.add(GATEWAY, gateway)

    def _add_processor(self, name: str, called: str, kind: str, member: str) -> None:
        processor = supervised.processor(
            called, kind, self._monitored(self.settings), self.bootstrap, member=member,
            say=self._say, lines=self._lines,
        )  # fmt: skip
        self.add(name, processor)

    def _monitored(self, settings: Settings) -> Settings:
        """Services of one machine are asked at ports that follow on each other."""
        at = settings.monitor
        port = at.port + len(self._services) if at.port else 0
        return settings.model_copy(update={"monitor": at.model_copy(update={"port": port})})

    def _answers(self) -> bool:
        """Whether the gateway is ready."""
        answer = local_http.ask(f"{self.page}readyz", READY_S)
        return answer is not None and answer[0] == HTTPStatus.OK

    def _await(self) -> None:
        """A service that refuses to start has said why; one that fails is started again."""
        for service in self._services.values():
            if service.gave_up():
                raise Refuse(f"{service.name} refuses to start; its log says why")
        self.look()


def _free(at: GatewaySettings, settings: Settings) -> GatewaySettings:
    """Where the gateway is to answer: as the settings say, or at a free port where nobody chose one
    and the usual one is taken."""
    chosen = "gateway" in settings.model_fields_set and "port" in at.model_fields_set
    if chosen and at.port:
        return at
    for port in (at.port, 0):
        try:
            with socket.create_server((at.host, port)) as found:
                return at.model_copy(update={"port": found.getsockname()[1]})
        except OSError:
            continue
    return at


def is_loopback(bootstrap: str) -> bool:
    """Whether all these addresses are this machine's own, which nobody else reaches."""
    hosts = [address.strip().rpartition(":")[0].strip("[]") for address in bootstrap.split(",")]
    return all(is_loopback_host(host) for host in hosts)
