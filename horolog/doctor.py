"""Looks an installation over: one finding for each thing that was looked at, none for others."""

import os
import queue
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import msgspec

from horolog import local_http
from horolog.broker import container, server
from horolog.broker.errors import BrokerError, NoJava
from horolog.broker.jars import find_maven, have_jars
from horolog.broker.java import find_java
from horolog.broker.probe import cluster_id_at
from horolog.broker.version import LOSES_MARKERS, release_at
from horolog.settings import Settings
from horolog.signs import Owner, owners, pools, set_aside
from processors.topology import JOB_STATE, QUARANTINE, REPORTS, SLOT_STATE, topic_set
from projections.reading import LogReading
from schemas import limits
from schemas.bindings import REPORT_BATCH
from schemas.leases import ReportBatch
from streams import admin
from streams.clock import SystemClock
from streams.errors import Refuse, Unavailable
from streams.kafka import KafkaLog
from streams.layout import topic_name
from streams.ports import Clock
from workers.kafka import KafkaReportLog
from workers.ports import Acknowledged

KAFKA_S: Final = 10.0
GATEWAY_S: Final = 2.0
OFFERS_SILENT_MS: Final = 15_000

State = Literal["ok", "warning", "wrong"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: how it is, and what to do if it is not as it should be."""

    check: str
    state: State
    told: str
    hint: str = ""


def examine(settings: Settings, clock: Clock | None = None) -> Iterator[Finding]:
    """Look at everything that can be looked at, in the order in which one thing needs another.

    Writes nothing but one empty report, whose append time is the broker's clock.
    """
    bootstrap = settings.kafka.bootstrap
    if not bootstrap:
        yield from _tools()
        status = server.status(settings.broker_dir)
        if not status.ready or status.bootstrap is None:
            how = "runs but does not answer" if status.running else "does not run"
            yield Finding("broker", "wrong", f"the embedded Kafka in {status.data_dir} {how}",
                          "`horolog up`, or name a Kafka in KAFKA_BOOTSTRAP_SERVERS")  # fmt: skip
            return
        bootstrap = status.bootstrap
    cluster = cluster_id_at(bootstrap, settings.kafka.client, timeout_s=KAFKA_S)
    if cluster is None:
        yield Finding("broker", "wrong", f"Kafka at {bootstrap} does not answer",
                      "is it up, and are address and credentials right?")  # fmt: skip
        return
    yield Finding("broker", "ok", f"Kafka at {bootstrap} answers, cluster {cluster}")
    yield from _release(bootstrap, settings)
    topics = list(_topics(bootstrap, settings))
    yield from topics
    if any(finding.state == "wrong" for finding in topics):
        return
    clock = clock or SystemClock()
    yield from _clock(bootstrap, settings, clock)
    log = KafkaLog(bootstrap, settings.kafka.client)
    reading = LogReading(log, settings.namespace, "horolog-doctor")
    looks: tuple[tuple[str, Callable[[LogReading, Settings, int], Iterator[Finding]]], ...] = (
        ("scheduler", _schedulers), ("slots", _slots), ("workers", _workers),
        ("quarantine", _quarantine),
    )  # fmt: skip
    yield _gateway(settings)
    try:
        for check, look in looks:
            try:
                yield from look(reading, settings, clock.wall_ms())
            except Unavailable as error:
                yield Finding(check, "wrong", str(error))
    finally:
        reading.close()


def _tools() -> Iterator[Finding]:
    """What the embedded Kafka needs."""
    try:
        java = find_java(os.environ)
    except NoJava as error:
        no_docker = container.why_no_docker()
        if no_docker:
            yield Finding("java", "wrong", f"{error} {no_docker}")
        else:
            yield Finding("docker", "ok", "there is no Java: Kafka runs in Docker")
        return
    except BrokerError as error:
        yield Finding("java", "wrong", str(error))
        return
    yield Finding("java", "ok", f"Java {java.version} at {java.binary}")
    if have_jars():
        yield Finding("maven", "ok", "not needed: Kafka's jars are here already")
        return
    maven = find_maven(os.environ)
    if maven is None:
        yield Finding("maven", "wrong", "neither Kafka's jars nor Maven, which fetches them",
                      "install Maven (Debian: apt install maven)")  # fmt: skip
        return
    yield Finding("maven", "ok", f"{maven} will fetch Kafka's jars")


def _release(bootstrap: str, settings: Settings) -> Iterator[Finding]:
    release = release_at(bootstrap, settings.kafka.client, timeout_s=KAFKA_S)
    if release is None:
        return
    if release in LOSES_MARKERS:
        told = f"Kafka {release}: 4.3.0 to 4.4.0 can lose the markers of transactions when a "
        told += "broker crashes (KAFKA-20734). Horolog repairs what it finds at a take-over"
        yield Finding("kafka release", "warning", told, "4.2 is free of it")
        return
    yield Finding("kafka release", "ok", f"Kafka {release}")


def _topics(bootstrap: str, settings: Settings) -> Iterator[Finding]:
    config = {**settings.kafka.client, "bootstrap.servers": bootstrap}
    wanted = topic_set(settings.namespace, settings.partitions)
    try:
        problems = admin.verify(config, wanted, timeout_s=KAFKA_S)
    except (Refuse, Unavailable) as error:
        yield Finding("topics", "wrong", str(error))
        return
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        more = f", and {len(fatal) - 1} more" if len(fatal) > 1 else ""
        yield Finding("topics", "wrong", f"{fatal[0]}{more}", "`horolog topics verify` lists all")
    elif problems:
        told = f"{len(problems)} settings of topics differ from the plan"
        yield Finding("topics", "warning", told, "`horolog topics verify` lists them")
    else:
        told = f"all {len(wanted.specs)} of {settings.namespace} are as they should be"
        yield Finding("topics", "ok", told)


def _clock(bootstrap: str, settings: Settings, clock: Clock) -> Iterator[Finding]:
    acknowledged: queue.Queue[Acknowledged] = queue.Queue()
    log = KafkaReportLog(
        bootstrap, settings.kafka.client, client_id="horolog-doctor", clock=clock,
        on_acknowledged=acknowledged.put,
    )  # fmt: skip
    value = REPORT_BATCH.encode(ReportBatch(worker="horolog-doctor", reports=()))
    try:
        before_ms = clock.wall_ms()
        log.send(topic_name(settings.namespace, REPORTS), 0, b"horolog-doctor", value, 1)
        told = acknowledged.get(timeout=KAFKA_S)
        after_ms = clock.wall_ms()
    except queue.Empty:
        return
    finally:
        log.close()
    if told.failed or told.broker_ms < 0:
        return
    # The broker read its clock somewhere in between.
    ahead_ms = max(before_ms - told.broker_ms, 0) or min(after_ms - told.broker_ms, 0)
    if abs(ahead_ms) <= limits.CLOCK_SKEW_MS_MAX:
        yield Finding("clock", "ok", f"within {max(abs(ahead_ms), 1)} ms of the broker's")
        return
    way = "ahead of" if ahead_ms > 0 else "behind"
    yield Finding(
        "clock", "wrong",
        f"this machine's clock is {abs(ahead_ms) / 1_000:.1f} s {way} the broker's; beyond "
        f"{limits.CLOCK_SKEW_MS_MAX / 1_000:.0f} s a scheduler here decides nothing",
        "set the clocks by NTP",
    )  # fmt: skip


def _schedulers(reading: LogReading, settings: Settings, now_ms: int) -> Iterator[Finding]:
    found = owners(reading, JOB_STATE, settings.partitions)
    yield _owned("scheduler", found, settings.partitions, now_ms, "`horolog run scheduler`")


def _slots(reading: LogReading, settings: Settings, now_ms: int) -> Iterator[Finding]:
    found = owners(reading, SLOT_STATE, settings.partitions)
    yield _owned("slots", found, settings.partitions, now_ms, "`horolog run slots`")


def _owned(check: str, found: dict[int, Owner], partitions: int, now_ms: int, how: str) -> Finding:
    """Whether every partition has an owner that showed itself lately."""
    alive = {p: one for p, one in found.items() if now_ms - one.seen_ms <= limits.UNOWNED_AFTER_MS}
    names = ", ".join(sorted({owner.name for owner in alive.values()}))
    if len(alive) == partitions:
        return Finding(check, "ok", f"all {partitions} partitions are owned, by {names}")
    lost = [str(p) for p in range(partitions) if p not in alive]
    shown = ", ".join(lost[:10]) + (" …" if len(lost) > 10 else "")
    told = f"nobody has owned partition {shown} for {limits.UNOWNED_AFTER_MS / 1_000:.0f} s"
    if not alive:
        ages = [now_ms - owner.seen_ms for owner in found.values()]
        last = f"; the last sign is {min(ages) / 1_000:.0f} s old" if ages else ""
        told = f"none is alive: no partition is owned{last}"
    return Finding(check, "wrong", told, f"start one with {how}")


def _workers(reading: LogReading, settings: Settings, now_ms: int) -> Iterator[Finding]:
    found = pools(
        reading, limits.POOLS_BUILT, settings.partitions, now_ms=now_ms,
        silent_ms=OFFERS_SILENT_MS,
    )  # fmt: skip
    for name, pool in found.items():
        check = f"workers of {name}"
        usable = dict(pool.workers)
        for worker, lease_ms in pool.leases.items():
            if worker in usable and lease_ms != settings.lease_ms:
                del usable[worker]
                told = f"{worker} gets nothing: it goes by leases of {lease_ms} ms, these settings "
                told += f"say {settings.lease_ms} ms"
                yield Finding(check, "wrong", told, "set HOROLOG_LEASE_MS to one value everywhere")
        if usable:
            places = sum(usable.values())
            told = f"{', '.join(usable)}: {places} places"
            yield Finding(check, "ok", told + (f", {pool.wanted} wanted" if pool.wanted else ""))
            continue
        how = "`horolog run worker`" if name == "http" else "`horolog worker module:app`"
        if pool.wanted:
            told = f"no worker offers, and {pool.wanted} executions wait for one"
            yield Finding(check, "wrong", told, f"start one with {how}")
        else:
            told = "no worker offers; nothing waits for one"
            yield Finding(check, "warning", told, f"start one with {how}")


def _gateway(settings: Settings) -> Finding:
    """Whether a gateway answers where the settings say, and whom."""
    at = settings.gateway
    open_to_all = "it asks nobody who he is: anybody who reaches it may change, run and end jobs"
    if not at.loopback and not at.insecure_without_auth:
        return Finding(
            "gateway", "wrong", f"it refuses to answer at {at.host}, which others reach",
            "HOROLOG_GATEWAY__HOST=127.0.0.1, or --insecure-without-auth if that is meant",
        )  # fmt: skip
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(at.host, at.host)  # noqa: S104 not bound here
    here = at.model_copy(update={"host": host})
    answer = local_http.ask(f"http://{here.address}/readyz", GATEWAY_S)
    try:
        told = msgspec.json.decode(answer[1], type=dict[str, Any]) if answer is not None else {}
    except msgspec.MsgspecError:
        told = {}
    if "ready" not in told:
        return Finding("gateway", "warning", f"none answers at {here.address}",
                       "start one with `horolog run gateway`")  # fmt: skip
    if not told["ready"]:
        why = told.get("why", "")
        return Finding("gateway", "warning", f"at {here.address} it is not ready: {why}")
    if told.get("notice") or not at.loopback:
        return Finding("gateway", "warning", f"answers at {at.address}; {open_to_all}",
                       "bind it to 127.0.0.1 unless everybody there is meant to")  # fmt: skip
    return Finding("gateway", "ok", f"answers at {here.address}, to this machine only")


def _quarantine(reading: LogReading, settings: Settings, now_ms: int) -> Iterator[Finding]:
    del now_ms
    found = set_aside(reading, settings.partitions)
    if not found.count:
        yield Finding("quarantine", "ok", "empty")
        return
    count = f"{'' if found.exact else 'at least '}{found.count}"
    records = "record" if found.count == 1 else "records"
    told = f"{count} {records} could not be used; the newest is {found.newest}"
    where = topic_name(settings.namespace, QUARANTINE)
    yield Finding("quarantine", "warning", told, f"topic {where} keeps them for 30 days")
