"""The files the broker's JVM reads: server.properties and the configuration of its log."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

HEAP_MB_MAX = 512


class Ports(Struct, frozen=True, kw_only=True):
    """The two ports of a broker on 127.0.0.1; clients use `broker`, Kafka itself `controller`."""

    broker: int
    controller: int


def server_settings(kafka_dir: Path, ports: Ports) -> Mapping[str, str]:
    """Settings of a single node that is broker and controller, reachable from this machine only."""
    listeners = f"BROKER://127.0.0.1:{ports.broker},CONTROLLER://127.0.0.1:{ports.controller}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "listeners": listeners,
        "advertised.listeners": f"BROKER://127.0.0.1:{ports.broker}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(kafka_dir),
        # A misspelt topic is an error, not a new topic.
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        # After a crash the node waits until its own old registration has expired: 9 s by default.
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "300",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # A transaction of a dead process hides what others wrote behind it until this sweep.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # 128 MB by default, a quarter of the heap; 64 MB map 2.5 million keys in one pass.
        "log.cleaner.dedupe.buffer.size": str(64 * 1024 * 1024),
    }


def render_properties(settings: Mapping[str, str]) -> str:
    """The text of a Java properties file; it is ASCII whatever the values hold."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in settings.items())


def _escape(value: str) -> str:
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    pairs = (units[i] << 8 | units[i + 1] for i in range(0, len(units), 2))
    return "".join(chr(unit) if 32 <= unit < 127 else f"\\u{unit:04x}" for unit in pairs)


def log_settings(log_file: Path) -> str:
    """A log4j2 configuration: Kafka's log in one file, at most four times 10 MB."""
    return render_properties(
        {
            "appender.file.type": "RollingFile",
            "appender.file.name": "file",
            "appender.file.fileName": str(log_file),
            "appender.file.filePattern": f"{log_file}.%i",
            "appender.file.layout.type": "PatternLayout",
            "appender.file.layout.pattern": "%d %p %m (%c)%n",
            "appender.file.policies.type": "SizeBasedTriggeringPolicy",
            "appender.file.policies.size": "10MB",
            "appender.file.strategy.type": "DefaultRolloverStrategy",
            "appender.file.strategy.max": "3",
            "rootLogger.level": "INFO",
            "rootLogger.appenderRef.file.ref": "file",
        }
    )


def jvm_options(data_dir: Path, log_configuration: Path) -> list[str]:
    """Options of the broker's JVM; the data folder is among them, so `ps` tells brokers apart."""
    return [
        f"-Xmx{HEAP_MB_MAX}m",
        "-Xms256m",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-Djava.awt.headless=true",
        f"-Dhorolog.data={data_dir}",
        f"-Dlog4j2.configurationFile={log_configuration.as_uri()}",
    ]
