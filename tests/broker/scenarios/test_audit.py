"""The auditor on the log of a real broker: clean after kills, and it tells what does not belong."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from confluent_kafka import Producer

from processors import topology
from schemas.bindings import EXECUTION_FIRED
from schemas.commands import DeleteJob, PauseJob, ResumeJob, TriggerJob
from tests.broker.scenarios import checks
from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.service import ROOT
from tests.broker.scenarios.test_crash_points import await_crash
from tests.broker.scenarios.world import World, put, until

KILLS = ("CP03:9", "CP04:7", "CP05:5", "CP06:6", "CP07:8")
"""With a transaction open, before and after its commit."""


@scenario(partitions=2)
def test_the_log_is_clean_after_kills_and_a_foreign_record_is_named(world: World) -> None:
    orders = world.topic(partitions=2)
    answers = []
    for n, point in enumerate(KILLS):
        scheduler = world.scheduler(crash=point)
        world.send(*(put(f"j{n}-{i}", orders, every="1s", command_id=f"{n}-{i}") for i in range(6)))
        await_crash(scheduler)
    scheduler = world.scheduler().await_owner()
    answers += world.accepted(
        put("daily", orders, cron="0 0 * * *", command_id="daily"),
        put("often", orders, cron="*/2 * * * * *", command_id="often"),
        TriggerJob(tenant="acme", job="j0-0", command_id="run"),
        PauseJob(tenant="acme", job="j1-0", command_id="pause"),
        DeleteJob(tenant="acme", job="j2-0", command_id="delete"),
    )
    time.sleep(2.5)
    answers += world.accepted(ResumeJob(tenant="acme", job="j1-0", command_id="resume"))
    arrived = world.tail(orders, since_end=True)
    until(lambda: len(arrived.refresh()) >= 60, "more fires", scheduler)
    live = audited(world)
    assert live["shown"] == [], "beside a scheduler that is at work"
    scheduler.kill()

    receipts = world.folder / "receipts.jsonl"
    write(receipts, checks.receipts(world))
    log = world.folder / "client.jsonl"
    write(log, answers)
    clean = audited(world, "--receipts", str(receipts), "--client-log", str(log))
    assert clean["shown"] == []
    assert clean["ok"] and clean["code"] == 0
    silent = {r["check"] for r in clean["results"] if r["state"] != "ok"}
    assert silent == {"I7", "I8"}, "without workers nothing is leased"
    assert clean["unjudged"] == {}

    event = checks.fired(world)[-1]
    offset = foreign(world, event)
    told = audited(world, "--receipts", str(receipts))
    assert told["code"] == 1 and not told["ok"]
    where = f"executions-{partition_of(world, event)}@{offset}"
    assert ("I2", where) in [(v["check"], v["where"]) for v in told["shown"]]


def foreign(world: World, event: EXECUTION_FIRED.kind) -> int:  # type: ignore[name-defined]
    """Somebody writes an event a second time; its offset. The next owner's mark follows."""
    partition = partition_of(world, event)
    again = msgspec.structs.replace(event, sequence=event.sequence + 1)
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": world.bootstrap, "log_level": 0})
    producer.produce(
        world.name(topology.EXECUTIONS), EXECUTION_FIRED.encode(again),
        f"{again.execution_id}#{again.sequence}".encode(), partition,
        on_delivery=lambda _, message: offsets.append(message.offset()),
    )  # fmt: skip
    assert producer.flush(10) == 0
    return offsets[0]


def partition_of(world: World, event: EXECUTION_FIRED.kind) -> int:  # type: ignore[name-defined]
    return next(
        record.partition
        for record in world.records(topology.EXECUTIONS)
        if (record.key or b"").startswith(f"{event.execution_id}#".encode())
    )


def write(path: Path, values: list[msgspec.Struct]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(value) + b"\n" for value in values))


def audited(world: World, *options: str) -> dict[str, object]:
    """`horolog audit -o json`, with its exit code and all violations that it shows."""
    environment = os.environ | {
        "KAFKA_BOOTSTRAP_SERVERS": world.bootstrap,
        "HOROLOG_NAMESPACE": world.namespace,
        "HOROLOG_DATA_DIR": str(world.folder),
    }
    done = subprocess.run(
        [sys.executable, "-m", "horolog", "audit", "-o", "json", *options],
        env=environment, cwd=ROOT, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr.decode()
    report = json.loads(done.stdout)
    shown = [one for result in report["results"] for one in result["shown"]]
    return report | {"code": done.returncode, "shown": shown}
