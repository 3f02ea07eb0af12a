"""The scheduler as a service: every part wired together, once, here."""

import gc
import os
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import msgspec

from schemas import limits
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
from .targets import TopicTargets

Alarm = Callable[..., None]
STUCK_EXIT: int = 70


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """Where and as what a scheduler runs. `member` must be unique among running processes and
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
    """A runner that is ready to `run`, and the logic of each partition it comes to own."""
    stores = RocksStores(service.state_dir)
    budget, probe = Budget(), log.topics()
    logics: dict[int, Scheduler] = {}
    about = f"{service.cluster}/{service.namespace}".encode()
    key = service.cluster_key or blake2b(about, digest_size=32).digest()
    take_over = TakeOver(
        SCHEDULER, namespace=service.namespace, cluster=service.cluster,
        partitions=service.partitions, log=log, stores=stores, clock=clock, alarm=alarm,
        crash=crash,
    )  # fmt: skip

    def make_parts(
        partition: int, thread: TaskThread, inputs: InputThread, outbox: Outbox
    ) -> Parts:
        logics[partition] = logic = Scheduler(
            namespace=service.namespace, partition=partition, partitions=service.partitions,
            cluster=service.cluster, cluster_key=key, tz=PINNED.version,
            targets=TopicTargets(probe, alarm), budget=budget, alarm=alarm,
            lease_ms=service.lease_ms,
        )  # fmt: skip
        return Parts(
            topology=SCHEDULER, namespace=service.namespace, owner=service.member, logic=logic,
            take_over=take_over, executor=thread, inputs=inputs, outbox=outbox, clock=clock,
            alarm=alarm, crash=crash,
        )  # fmt: skip

    runner = Runner(
        group=SCHEDULER.name, member=service.member, namespace=service.namespace,
        inputs=SCHEDULER.inputs, urgent=SCHEDULER.urgent, log=log, clock=clock,
        make_parts=make_parts, alarm=alarm, crash=crash,
    )  # fmt: skip
    return runner, logics


def tune_process() -> None:
    """What a process that decides for many jobs wants of the interpreter.

    None of our values form cycles, so collections of the old generation, which walk every job
    held, find nothing; and a thread that comes back from a commit should not wait 5 ms for the
    interpreter.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)
    sys.setswitchinterval(0.001)


def guard(runner: Runner, clock: Clock, alarm: Alarm) -> None:
    """End the process when it is stuck, so that others take its partitions."""

    def give_up(reason: str) -> None:
        alarm("stuck", reason=reason)
        os._exit(STUCK_EXIT)

    watch(runner, clock, give_up)
