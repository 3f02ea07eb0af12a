"""Workers in a world: their processes, what their handlers noted, what became of executions."""

import json
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from processors.core.executions import LEASE_CLOSED, TERMINAL
from schemas.commands import (
    HttpTargetSpec,
    JobSpec,
    PutJob,
    ScheduleSpec,
    TriggerJob,
    WorkerTargetSpec,
)
from schemas.events import ExecutionFired, ExecutionMoved
from tests.broker.scenarios import checks
from tests.broker.scenarios.service import ROOT, ServiceProcess
from tests.broker.scenarios.world import World, until

LEASE_MS: Final = 3_000
TENANT: Final = "acme"
HANDLERS = """
    import asyncio, json, os, time
    from pathlib import Path
    from horolog import App, Context

    app = App()
    folder = Path(os.environ["SCENARIO_FOLDER"])
    worker = os.environ["SCENARIO_WORKER"]

    def note(ctx):
        told = {"execution_id": ctx.execution_id, "delivery": ctx.delivery, "fence": ctx.fence,
                "worker": worker}
        line = json.dumps(told | {"at_ms": time.time_ns() // 1_000_000}) + "\\n"
        descriptor = os.open(folder / "receipts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line.encode())
        os.close(descriptor)
        return told

    @app.task("note")
    def only_note(ctx: Context):
        return note(ctx)

    @app.task("wait")
    async def wait(ctx: Context):
        told = note(ctx)
        while not (folder / "released").exists() and not ctx.cancelled:
            await asyncio.sleep(0.1)
        return told

    @app.task("hold-the-interpreter")
    def hold(ctx: Context, seconds: float):
        # One call of C code that never lets another thread of this process run.
        import ctypes
        told = note(ctx)
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
        return told
"""


class Receipt(msgspec.Struct, frozen=True):
    """A handler has begun."""

    execution_id: str
    delivery: int
    fence: int
    worker: str
    at_ms: int = 0


class Hands:
    """Services beside the schedulers of a world, with leases of one length."""

    def __init__(self, world: World, lease_ms: int = LEASE_MS) -> None:
        self.world = world
        self._receipts = world.folder / "receipts"
        self._receipts.touch()
        (world.folder / "handlers.py").write_text(textwrap.dedent(HANDLERS))
        world.environment["HOROLOG_LEASE_MS"] = str(lease_ms)

    def _start(self, name: str, command: Sequence[str], **more: str) -> ServiceProcess:
        crash = more.pop("crash", "")
        started = ServiceProcess(
            name, command, self.world.log_file(name), self.world.environment | more, crash=crash
        )
        self.world.processes.append(started)
        return started

    def slots(self) -> ServiceProcess:
        return self._start("slots", ["run", "slots", "--member", "slots"])

    def worker(self, name: str, places: int = 100, **environment: str) -> ServiceProcess:
        """A worker for the handlers above."""
        folder = self.world.folder
        return self._start(
            name, ["worker", "handlers:app", "--concurrency", str(places), "--processes", "1",
                   "--name", name],
            PYTHONPATH=f"{ROOT}:{folder}", SCENARIO_FOLDER=str(folder), SCENARIO_WORKER=name,
            **environment,
        )  # fmt: skip

    def http_worker(self, name: str, *, crash: str = "") -> ServiceProcess:
        """One that may call this machine."""
        return self._start(
            name, ["run", "worker", "--name", name], crash=crash,
            HOROLOG_HTTP__ALLOWED_CIDRS='["127.0.0.0/8"]', HOROLOG_HTTP__ALLOW_PLAIN_HTTP="true",
        )  # fmt: skip

    def release(self) -> None:
        """Let every handler that waits come to its end."""
        (self.world.folder / "released").touch()

    # --- jobs ------------------------------------------------------------------------------------

    def put(
        self, prefix: str, count: int = 1, *, handler: str = "", url: str = "", every: str = "",
        payload: Any = None,
    ) -> list[str]:  # fmt: skip
        """Register jobs that run a handler or call a URL; their ids."""
        jobs = [f"{prefix}-{n}" for n in range(count)]
        schedule = ScheduleSpec(every=every) if every else ScheduleSpec(at="2099-01-01T00:00:00Z")
        spec = JobSpec(
            schedules=(schedule,), payload=json.dumps(payload or {}).encode(),
            http=HttpTargetSpec(url=url) if url else None,
            worker=WorkerTargetSpec(handler=handler) if handler else None,
        )  # fmt: skip
        self.world.accepted(*(PutJob(tenant=TENANT, job=job, spec=spec) for job in jobs))
        return jobs

    def trigger(self, jobs: Iterable[str]) -> list[str]:
        """Run each job once; the execution ids."""
        commands = [TriggerJob(tenant=TENANT, job=job) for job in jobs]
        return [answer.execution_id for answer in self.world.accepted(*commands)]

    # --- what became of it -----------------------------------------------------------------------

    def receipts(self) -> list[Receipt]:
        """What the handlers noted, in their order. The last line may still be on its way."""
        lines = self._receipts.read_bytes().splitlines(keepends=True)
        return [msgspec.json.decode(line, type=Receipt) for line in lines if line.endswith(b"\n")]

    def receipts_of(self, execution_ids: Iterable[str]) -> dict[str, list[Receipt]]:
        found: dict[str, list[Receipt]] = {one: [] for one in execution_ids}
        for receipt in self.receipts():
            if receipt.execution_id in found:
                found[receipt.execution_id].append(receipt)
        return found

    def await_receipts(self, execution_ids: Iterable[str], delivery: int = 1) -> None:
        """Wait until each has begun under this delivery or a later one."""
        wanted = set(execution_ids)

        def begun() -> bool:
            seen = {r.execution_id for r in self.receipts() if r.delivery >= delivery}
            return wanted <= seen

        until(begun, f"delivery {delivery} of {len(wanted)} executions to begin")

    def leases(self) -> dict[str, list[ExecutionFired | ExecutionMoved]]:
        """By execution id, the events by which it was leased."""
        found: dict[str, list[ExecutionFired | ExecutionMoved]] = defaultdict(list)
        for event in (*checks.fired(self.world), *checks.moved(self.world)):
            if event.state == "RUNNING":
                known = found[event.execution_id]
                if not known or known[-1].delivery < event.delivery:
                    known.append(event)
        return found

    def ends(self) -> dict[str, list[ExecutionMoved]]:
        """By execution id, the events that ended it."""
        found: dict[str, list[ExecutionMoved]] = defaultdict(list)
        for event in checks.moved(self.world):
            if event.state in TERMINAL and event.reason != LEASE_CLOSED:
                found[event.execution_id].append(event)
        return found

    def await_ends(
        self, execution_ids: Iterable[str], alive: ServiceProcess | None = None
    ) -> dict[str, ExecutionMoved]:
        """Wait until each has ended; the one event by which it did."""
        wanted = set(execution_ids)
        until(lambda: wanted <= self.ends().keys(), f"{len(wanted)} executions to end", alive)
        ends = self.ends()
        assert {one: len(ends[one]) for one in wanted} == dict.fromkeys(wanted, 1)
        return {one: ends[one][0] for one in wanted}


def result_of(event: ExecutionMoved) -> Receipt:
    """What the handler returned."""
    return msgspec.json.decode(event.result, type=Receipt)


def deliveries(events: Iterable[ExecutionMoved]) -> set[tuple[str, int, int]]:
    """State, delivery and leases lost, of executions that ended."""
    return {(event.state, event.delivery, event.lost) for event in events}
