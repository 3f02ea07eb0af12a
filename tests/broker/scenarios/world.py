"""What the scenarios are played on: a namespace of a real Kafka, and schedulers as processes."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from horolog.client import KafkaClient
from processors import topology
from processors.topology import topic_set
from schemas.bindings import COMMANDS, MARK
from schemas.commands import AnyCommand, JobSpec, PutJob, ScheduleSpec, TopicTargetSpec
from schemas.partition import job_key, partition_of
from schemas.replies import Accepted, Refused
from schemas.state import Mark
from streams import admin
from streams.errors import Refuse, Unavailable
from streams.kafka import KafkaLog
from streams.layout import MARK_KEY
from streams.ports import Offsets, Record
from tests.broker.scenarios.service import WAIT_S, ServiceProcess

OWN_TOPICS = (
    topology.JOB_STATE,
    topology.SCHEDULES,
    topology.SCHEDULE_CHANGES,
    topology.EXECUTIONS,
    topology.DEAD_LETTERS,
    topology.QUARANTINE,
)
LINES_SHOWN = 40

Answer = Accepted | Refused


class Tail:
    """Everything committed on one topic so far; `refresh` reads on."""

    def __init__(
        self, log: KafkaLog, offsets: Offsets, name: str, partitions: int, *, since_end: bool
    ) -> None:
        self.records: list[Record] = []
        self._offsets = offsets
        self._reader = log.reader(f"scenario-{name}", committed=True)
        self._keys = [(name, partition) for partition in range(partitions)]
        at = self._offsets.stable_end if since_end else self._offsets.start
        self._at = at(self._keys)
        self._reader.assign(self._at)

    def refresh(self) -> list[Record]:
        """Read up to what is committed at this moment."""
        ends = self._offsets.stable_end(self._keys)
        until_s = time.monotonic() + WAIT_S
        while behind := [k for k in self._keys if self._reader.position(k) < ends[k]]:
            self.records += self._reader.read(10_000, 0.1)
            assert time.monotonic() < until_s, f"{behind} cannot be read to {ends}"
        return self.records

    def close(self) -> None:
        self._reader.close()


class SchedulerProcess(ServiceProcess):
    """`horolog run scheduler`."""

    def __init__(self, world: "World", member: str, crash: str, patch: str, data_dir: Path) -> None:
        self.state_dir = data_dir / "state" / world.namespace / member
        self._world = world
        self._marks = world.tail(topology.JOB_STATE, since_end=True)
        super().__init__(
            member, ["run", "scheduler", "--member", member], world.log_file(member),
            {**world.environment, "HOROLOG_DATA_DIR": str(data_dir)}, crash=crash, patch=patch,
        )  # fmt: skip

    def await_owner(self, *partitions: int) -> "SchedulerProcess":
        """Wait until its first mark stands in these partitions; without any: in all."""
        wanted = set(partitions or range(self._world.partitions))
        until(lambda: wanted <= self.owned(), f"{self.member} to own {wanted}", self)
        return self

    def owned(self) -> set[int]:
        """Partitions in which it has written a mark since it was started."""
        return {
            record.partition
            for record in self._marks.refresh()
            if record.key == MARK_KEY and mark_of(record).owner == self.member
        }

    def marks(self) -> int:
        """How many marks there are since it was started."""
        return sum(record.key == MARK_KEY for record in self._marks.refresh())

    def owned_lately(self) -> set[int]:
        """Partitions whose newest mark is its."""
        newest = {
            record.partition: mark_of(record).owner
            for record in self._marks.refresh()
            if record.key == MARK_KEY
        }
        return {partition for partition, owner in newest.items() if owner == self.member}


class World:
    """One namespace: its topics, the services on it, and what became of it all. What `environment`
    holds, every service that is started later gets."""

    def __init__(self, bootstrap: str, namespace: str, folder: Path, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.namespace = namespace
        self.folder = folder
        self.partitions = partitions
        self.log = KafkaLog(bootstrap)
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.environment = {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap, "HOROLOG_NAMESPACE": namespace,
            "HOROLOG_PARTITIONS": str(partitions), "HOROLOG_DATA_DIR": str(folder),
        }  # fmt: skip
        self.processes: list[ServiceProcess] = []
        self.user_topics: dict[str, int] = {}
        self._offsets = self.log.offsets()
        self._tails: list[Tail] = []
        self._whole: dict[str, Tail] = {}
        self._client: KafkaClient | None = None
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        folder.mkdir(parents=True, exist_ok=True)
        self.apply_topics()

    def apply_topics(self) -> None:
        """Create those of our own topics that are missing."""
        config = {"bootstrap.servers": self.bootstrap}
        until(lambda: self._applied(config), "Horolog's topics")

    def _applied(self, config: Mapping[str, str]) -> bool:
        try:
            admin.apply(config, topic_set(self.namespace, self.partitions))
        except Refuse:
            # One that is being deleted is still there for a moment.
            return False
        return True

    def newest_lines(self) -> str:
        """The end of each service's log, for whoever wonders what went wrong."""
        lines: list[str] = []
        for service in self.processes:
            lines += [f"--- {service.log_file.name}: exit code {service.process.poll()}"]
            lines += service.log_file.read_text("utf-8").splitlines()[-LINES_SHOWN:]
        return "\n".join(lines)

    def close(self) -> None:
        for service in self.processes:
            if service.alive:
                service.go_on()
                service.kill()
        for tail in self._tails:
            tail.close()
        if self._client is not None:
            self._client.close()
        names = [self.name(spec.suffix) for spec in topology.TOPICS]
        # Not awaited: the broker gets to it in its own time.
        self.admin.delete_topics([*names, *self.user_topics])

    def name(self, suffix: str) -> str:
        return f"{self.namespace}.{suffix}"

    # --- services --------------------------------------------------------------------------------

    def log_file(self, name: str) -> Path:
        """Where the next service, which has this name, logs."""
        return self.folder / f"{name}-{len(self.processes)}.log"

    def scheduler(
        self,
        member: str = "a",
        *,
        crash: str = "",
        patch: str = "",
        data_dir: Path | None = None,
    ) -> SchedulerProcess:
        """Start one; it is not ready yet."""
        started = SchedulerProcess(self, member, crash, patch, data_dir or self.folder)
        self.processes.append(started)
        return started

    # --- topics ----------------------------------------------------------------------------------

    def topic(self, suffix: str = "orders", partitions: int = 1, **settings: str) -> str:
        """A user's topic; its name."""
        name = f"{self.namespace}-{suffix}"
        made = NewTopic(name, partitions, 1, config={k.replace("_", "."): v
                                                     for k, v in settings.items()})  # fmt: skip
        until(lambda: self._created(made), f"{name} to be created")
        self.user_topics[name] = partitions

        def answers() -> bool:
            try:
                return bool(self._offsets.end([(name, p) for p in range(partitions)]))
            except Unavailable:
                return False

        until(answers, f"{name} to have leaders")
        return name

    def _created(self, made: NewTopic) -> bool:
        try:
            self.admin.create_topics([made])[made.topic].result(10)
        except KafkaException as error:
            # One that is being deleted is still there for a moment.
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(10)
        topics = self.log.topics()

        def is_gone() -> bool:
            topics.forget(name)
            return topics.partitions(name) == 0

        until(is_gone, f"{name} to be gone")
        del self.user_topics[name]
        self._whole.pop(name, None)

    def tail(self, topic: str, *, since_end: bool = False) -> Tail:
        """Reads one of our own topics, by suffix, or a user's topic, by name."""
        if topic in self.user_topics:
            name, count = topic, self.user_topics[topic]
        else:
            name = self.name(topic)
            count = topology.REPLY_PARTITIONS if topic == topology.REPLIES else self.partitions
        tail = Tail(self.log, self._offsets, name, count, since_end=since_end)
        self._tails.append(tail)
        return tail

    def records(self, topic: str) -> list[Record]:
        """Everything committed on the topic until now."""
        if topic not in self._whole:
            self._whole[topic] = self.tail(topic)
        return self._whole[topic].refresh()

    def look_again(self) -> None:
        """Read everything anew: what stood in the log may have been changed by hand."""
        self._offsets = self.log.offsets()
        self._whole.clear()
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- commands --------------------------------------------------------------------------------

    def ask(self, *commands: Any, wait_s: float = WAIT_S) -> list[Answer]:
        """Send commands and wait for the answers, asking again as any client would."""
        if self._client is None:
            self._client = KafkaClient(self.log, namespace=self.namespace)
        return self._client.send_all(commands, wait_s=wait_s)

    def accepted(self, *commands: AnyCommand) -> list[Accepted]:
        answers = self.ask(*commands)
        assert all(isinstance(answer, Accepted) for answer in answers), answers
        return answers  # type: ignore[return-value]

    def produce(self, value: bytes | None, key: str = "", partition: int | None = None) -> None:
        """Put a raw record on `commands`."""
        if partition is None:
            partition = partition_of(key, self.partitions)
        self._producer.produce(self.name(topology.COMMANDS), value, key.encode() or None, partition)

    def send(self, *commands: AnyCommand, partition: int | None = None) -> None:
        """Put commands on the log as they are, Avro, and have them acknowledged."""
        for command in commands:
            value = COMMANDS[type(command).__name__].encode(command)
            self.produce(value, job_key(command.tenant, command.job), partition)
        self.flush()

    def send_json(self, command: Mapping[str, object], partition: int | None = None) -> None:
        key = f"{command.get('tenant')}/{command.get('job')}"
        self.produce(json.dumps(command).encode(), key, partition)
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S) == 0

    def job_on(self, partition: int, prefix: str = "job", tenant: str = "acme") -> str:
        """A job id that belongs to this partition."""
        ids = (f"{prefix}-{n}" for n in range(10_000))
        return next(i for i in ids if partition_of(f"{tenant}/{i}", self.partitions) == partition)


def put(
    job: str,
    topic: str,
    *,
    tenant: str = "acme",
    every: str | None = None,
    at: str | None = None,
    cron: str | None = None,
    payload: bytes = b"{}",
    **more: Any,
) -> PutJob:
    """A put with one schedule; one that never comes unless something else is said."""
    if every is None and at is None and cron is None:
        at = "2099-01-01T00:00:00Z"
    spec = JobSpec(
        schedules=(ScheduleSpec(every=every, at=at, cron=cron),),
        topic=TopicTargetSpec(name=topic), payload=payload,
    )  # fmt: skip
    return PutJob(tenant=tenant, job=job, spec=spec, **more)


def mark_of(record: Record) -> Mark:
    assert record.value is not None
    return MARK.decode(record.value)


def until(
    condition: Callable[[], bool],
    what: str,
    alive: ServiceProcess | None = None,
    timeout_s: float = WAIT_S,
) -> None:
    """Wait for something that happens in its own time."""
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert alive is None or alive.alive, f"{alive.member} ended while we waited for {what}"
        assert time.monotonic() < give_up_s, f"waited {timeout_s} s for {what}"
        time.sleep(0.02)


def headers_of(record: Record) -> dict[str, str]:
    return {name: value.decode() for name, value in record.headers}


def ids_of(records: Iterable[Record]) -> list[str]:
    """Execution ids of records on a user's topic."""
    return [headers_of(record)["ce_id"] for record in records]
