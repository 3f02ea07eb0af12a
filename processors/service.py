"""The processors as services: every part wired together, once, here."""

import gc
import os
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import msgspec

from schemas import limits
from streams.binding import Logic, Topology
from streams.crash import CrashPoint
from streams.inputs import InputThread
from streams.ports import Clock, Log, Outbox
from streams.rocks import RocksStores
from streams.runner import Runner, TaskThread, watch
from streams.takeover import TakeOver
from streams.task import Parts

from .core.zones import PINNED
from .jobs import Budget
from .scheduler import Scheduler
from .scheduler_topology import SCHEDULER
from .slots import Slots
from .slots_topology import SLOTS
from .targets import TopicTargets

Alarm = Callable[..., None]
STUCK_EXIT: int = 70


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """Where and as what a processor runs. `member` must be unique among running processes and
    stable over restarts: a restart under the same name takes its partitions back at once."""

    namespace: str
    cluster: str
    partitions: int
    member: str
    state_dir: Path
    cluster_key: bytes = b""
    """Proves that reports are about leases we gave; empty: derived from cluster and namespace,
    which only guards against mistakes."""
    lease_ms: int = limits.LEASE_MS
    """The same on every scheduler and worker of an installation."""


def build(
    service: Service, *, log: Log, clock: Clock, alarm: Alarm, crash: CrashPoint
) -> tuple[Runner, dict[int, Scheduler]]:
    """A scheduler that is ready to `run`, and the logic of each partition it comes to own."""
    budget, probe = Budget(), log.topics()
    logics: dict[int, Scheduler] = {}
    about = f"{service.cluster}/{service.namespace}".encode()
    key = service.cluster_key or blake2b(about, digest_size=32).digest()

    def make_logic(partition: int) -> Scheduler:
        logics[partition] = logic = Scheduler(
            namespace=service.namespace, partition=partition, partitions=service.partitions,
            cluster=service.cluster, cluster_key=key, tz=PINNED.version,
            targets=TopicTargets(probe, alarm), budget=budget, alarm=alarm,
            lease_ms=service.lease_ms, crash=crash,
        )  # fmt: skip
        return logic

    runner = _runner(SCHEDULER, service, make_logic, log=log, clock=clock, alarm=alarm, crash=crash)
    return runner, logics


def build_slots(
    service: Service, *, log: Log, clock: Clock, alarm: Alarm, crash: CrashPoint
) -> tuple[Runner, dict[int, Slots]]:
    """A slots processor that is ready to `run`, and the logic of each partition it comes to own."""
    logics: dict[int, Slots] = {}

    def make_logic(partition: int) -> Slots:
        logics[partition] = logic = Slots(
            namespace=service.namespace, partition=partition, partitions=service.partitions,
            alarm=alarm, lease_ms=service.lease_ms,
        )  # fmt: skip
        return logic

    runner = _runner(SLOTS, service, make_logic, log=log, clock=clock, alarm=alarm, crash=crash)
    return runner, logics


def _runner(
    topology: Topology,
    service: Service,
    make_logic: Callable[[int], Logic],
    *,
    log: Log,
    clock: Clock,
    alarm: Alarm,
    crash: CrashPoint,
) -> Runner:
    take_over = TakeOver(
        topology, namespace=service.namespace, cluster=service.cluster,
        partitions=service.partitions, log=log, stores=RocksStores(service.state_dir),
        clock=clock, alarm=alarm, crash=crash,
    )  # fmt: skip

    def make_parts(
        partition: int, thread: TaskThread, inputs: InputThread, outbox: Outbox
    ) -> Parts:
        return Parts(
            topology=topology, namespace=service.namespace, owner=service.member,
            logic=make_logic(partition), take_over=take_over, executor=thread, inputs=inputs,
            outbox=outbox, clock=clock, alarm=alarm, crash=crash,
        )  # fmt: skip

    return Runner(
        group=topology.name, member=service.member, namespace=service.namespace,
        inputs=topology.inputs, urgent=topology.urgent, log=log, clock=clock,
        make_parts=make_parts, alarm=alarm, crash=crash,
    )  # fmt: skip


def tune_process() -> None:
    """What a process that decides for many jobs wants of the interpreter.

    None of our values form cycles, so collections of the old generation, which walk every job
    held, find nothing; and a thread that comes back from a commit should not wait 5 ms for the
    interpreter.
    """
    gc.freeze()
    gc.set_threshold(500_000, 20, 1_000)
    sys.setswitchinterval(0.001)


def guard(runner: Runner, clock: Clock, alarm: Alarm) -> None:
    """End the process when it is stuck, so that others take its partitions."""

    def give_up(reason: str) -> None:
        alarm("stuck", reason=reason)
        os._exit(STUCK_EXIT)

    watch(runner, clock, give_up)
