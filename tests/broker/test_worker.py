"""Workers as processes on a real Kafka, fed by a stand-in for the scheduler."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from horolog.broker import server
from schemas.bindings import REPORT_BATCH, WORK_BATCH, WORKER_OFFER
from schemas.leases import HttpCall, Report, WorkBatch, WorkItem
from schemas.slots import WorkerOffer
from streams.kafka import KafkaLog
from streams.ports import Produced

ROOT = Path(__file__).resolve().parents[2]
SETTLED_S = 40.0
PARTITIONS = 3
HANDLERS = """
    import time
    from pathlib import Path
    from horolog import App

    app = App()

    @app.task("add")
    def add(ctx, a: int, b: int = 1):
        return {"sum": a + b, "fence": ctx.fence, "id": ctx.execution_id}

    @app.task("hold-the-interpreter")
    def hold(seconds: float):
        # One call of C code that never lets another thread of this process run.
        import ctypes
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))

    @app.task("until-told")
    def until_told(ctx, file: str = ""):
        while not ctx.cancelled:
            time.sleep(0.01)
        if file:
            Path(file).touch()

    @app.task("deaf")
    def deaf():
        time.sleep(3600)

    @app.task("until-file")
    def until_file(file: str):
        while not Path(file).exists():
            time.sleep(0.01)

    @app.task("die")
    def die():
        import os
        os._exit(7)
"""
HTTP_WORKER = """
import sys
from horolog.http_worker_process import PERMISSIVE, run_http
from horolog.sdk_settings import find
from horolog.worker_process import WorkerOptions
run_http(find(), WorkerOptions(pool="http", places=200), PERMISSIVE, source="/horolog/test")
"""


class Scheduler:
    """Writes items to one worker and reads what it says. Closes nothing by itself."""

    def __init__(self, bootstrap: str, pool: str, lease_ms: int) -> None:
        self.namespace = f"worker-{uuid.uuid4().hex[:8]}"
        self.lease_ms = lease_ms
        self.inbox = f"{self.namespace}.inbox.{pool}"
        self.topics = [f"{self.namespace}.reports", f"{self.namespace}.slot-requests"]
        append = {"message.timestamp.type": "LogAppendTime"}
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        made = admin.create_topics(
            [NewTopic(self.inbox, 16, 1)]
            + [NewTopic(name, PARTITIONS, 1, config=append) for name in self.topics]
        )
        for one in made.values():
            one.result(20)
        log = KafkaLog(bootstrap)
        self._outbox = log.outbox("test-scheduler")
        self._reader = log.reader("test-scheduler", committed=False)
        self._reader.assign({(name, p): 0 for name in self.topics for p in range(PARTITIONS)})
        self.offers: list[WorkerOffer] = []
        self.reports: list[tuple[int, Report]] = []
        """With the partition each came by."""

    def item(self, name: str, handler: str, **changes: Any) -> WorkItem:
        now_ms = int(time.time() * 1000)
        payload = changes.pop("payload", {})
        values: dict[str, Any] = {
            "kind": "work", "tenant": "ada", "job": name, "execution_id": f"ada/{name}:t:1",
            "occurrence": f"ada/{name}:t", "ordinal": 0, "attempt": 1, "delivery": 1, "fence": 9,
            "partition": 2, "scheduled_at": now_ms, "due_at": now_ms,
            "lease_until": now_ms + self.lease_ms, "token": b"secret", "handler": handler,
            "payload": json.dumps(payload).encode(), "max_duration_ms": 1,
        }  # fmt: skip
        return WorkItem(**values | changes)

    def send(self, *items: WorkItem, worker: str | None = None) -> None:
        offer = self.offers[-1]
        name = worker or offer.worker
        value = WORK_BATCH.encode(WorkBatch(worker=name, sent_ms=0, items=items))
        self._outbox.send([Produced(self.inbox, offer.inbox_partition, name.encode(), value)])
        self._outbox.flush(10)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Read until it is so."""
        give_up_s = time.monotonic() + SETTLED_S
        while not condition():
            for record in self._reader.read(1_000, 0.05):
                assert record.value is not None
                if record.topic == self.topics[1]:
                    self.offers.append(WORKER_OFFER.decode(record.value))
                    continue
                batch = REPORT_BATCH.decode(record.value)
                self.reports += [(record.partition, report) for report in batch.reports]
            assert time.monotonic() < give_up_s, f"waited {SETTLED_S} s for {what}: {self.said()}"

    def said(self, job: str | None = None) -> list[tuple[str, str]]:
        """Kind, and state or reason, of what was said (of a job)."""
        return [
            (report.kind, report.state or report.reason)
            for _, report in self.reports
            if job in (None, report.job)
        ]

    def await_report(self, job: str, *kinds: str) -> Report:
        def found() -> list[Report]:
            return [r for _, r in self.reports if r.job == job and r.kind in kinds]

        self.until(lambda: bool(found()), f"{kinds} of {job}")
        return found()[0]

    def beats(self, job: str) -> int:
        return self.said(job).count(("heartbeat", ""))


class Here:
    """A scheduler's stand-in and the workers that were started for it."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        (folder / "handlers.py").write_text(textwrap.dedent(HANDLERS))

    def start(
        self, *options: str, lease_ms: int = 3_000, pool: str = "default", code: str | None = None
    ) -> "tuple[Scheduler, subprocess.Popen[bytes]]":
        """A worker that has made its first offer."""
        scheduler = Scheduler(self.bootstrap, pool, lease_ms)
        command = ["-m", "horolog.sdk_command", "worker", "handlers:app", *options]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HOROLOG_")}
        process = subprocess.Popen(
            [sys.executable, *(["-c", code] if code else command)],
            cwd=self.folder,
            env=clean | {
                "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap, "PYTHONPATH": str(ROOT),
                "HOROLOG_NAMESPACE": scheduler.namespace, "HOROLOG_LEASE_MS": str(lease_ms),
            },
        )  # fmt: skip
        self.processes.append(process)

        def offered() -> bool:
            assert process.poll() is None, "the worker ended"
            return bool(scheduler.offers)

        scheduler.until(offered, "an offer")
        return scheduler, process


@pytest.fixture
def here(broker: str, tmp_path: Path) -> Iterator[Here]:
    made = Here(broker, tmp_path)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait(20)


def test_a_worker_offers_itself_runs_an_item_and_reports_the_outcome(here: Here) -> None:
    scheduler, process = here.start("--concurrency", "7", "--name", "me")
    offer = scheduler.offers[0]
    assert offer.worker.startswith("me-")
    assert (offer.places, offer.draining, offer.pool) == (7, False, "default")
    assert offer.lease_ms == scheduler.lease_ms
    assert set(offer.handlers) >= {"add", "die"}
    scheduler.send(scheduler.item("other", "add", payload={"a": 1}), worker="somebody-else")
    scheduler.send(scheduler.item("mine", "add", payload={"a": 1, "b": 2}))
    report = scheduler.await_report("mine", "outcome")
    assert json.loads(report.result) == {"sum": 3, "fence": 9, "id": "ada/mine:t:1"}
    assert report.token == b"secret"
    assert {partition for partition, _ in scheduler.reports} == {2}
    assert scheduler.said("other") == []
    process.terminate()
    assert process.wait(20) == 0
    scheduler.until(lambda: scheduler.offers[-1].draining, "the last offer")
    assert scheduler.offers[-1].places == 0


def test_a_handler_that_holds_the_interpreter_keeps_its_lease(here: Here) -> None:
    scheduler, _ = here.start("--processes", "1", lease_ms=1_000)
    scheduler.send(scheduler.item("held", "hold-the-interpreter", payload={"seconds": 3}))
    assert scheduler.await_report("held", "outcome").state == "SUCCEEDED"
    # Three lengths of the lease: renewed each third, the last one may be cut off by the outcome.
    assert scheduler.beats("held") >= 7
    assert ("started", "") in scheduler.said("held")


def test_a_process_that_dies_fails_its_run_and_the_worker_goes_on(here: Here) -> None:
    scheduler, _ = here.start("--processes", "1")
    scheduler.send(scheduler.item("dying", "die"))
    report = scheduler.await_report("dying", "outcome")
    assert (report.state, report.reason) == ("FAILED", "error")
    assert "the process running it died" in report.detail
    assert "exit code 7" in report.detail
    scheduler.send(scheduler.item("next", "add", payload={"a": 1}))
    assert scheduler.await_report("next", "outcome").state == "SUCCEEDED"


def test_cancel_reaches_a_run_and_a_repeated_item_is_not_run_again(here: Here) -> None:
    scheduler, _ = here.start()
    item = scheduler.item("long", "until-told")
    scheduler.send(item, item)
    scheduler.await_report("long", "started")
    scheduler.send(scheduler.item("long", "until-told", kind="cancel"))
    report = scheduler.await_report("long", "stopped")
    assert report.state == "CANCELLED"
    scheduler.send(item)
    scheduler.until(lambda: scheduler.said("long").count(("stopped", "CANCELLED")) == 2, "a repeat")


def test_sigterm_lets_runs_finish_and_hands_back_what_does_not(here: Here, tmp_path: Path) -> None:
    scheduler, process = here.start("--drain-timeout", "2", lease_ms=60_000)
    go_on = tmp_path / "go on"
    scheduler.send(
        scheduler.item("finishing", "until-file", payload={"file": str(go_on)}),
        scheduler.item("endless", "until-told"),
    )
    scheduler.await_report("endless", "started")
    scheduler.await_report("finishing", "started")
    scheduler.send(
        scheduler.item("held", "add", due_at=int(time.time() * 1000) + 1_900, payload={"a": 1})
    )
    time.sleep(0.3)
    process.terminate()
    scheduler.until(lambda: scheduler.offers[-1].draining, "the offer that says so")
    scheduler.send(scheduler.item("new", "add", payload={"a": 1}))
    assert scheduler.await_report("new", "returned").reason == "drain"
    assert scheduler.await_report("held", "returned").reason == "drain"
    go_on.touch()
    assert scheduler.await_report("finishing", "outcome").state == "SUCCEEDED"
    assert scheduler.await_report("endless", "returned").reason == "drain"
    assert process.wait(20) == 0


def test_a_worker_that_stood_still_past_its_leases_starts_nothing_on_them(
    here: Here, tmp_path: Path
) -> None:
    scheduler, process = here.start(lease_ms=1_500)
    told = tmp_path / "told"
    scheduler.send(scheduler.item("running", "until-told", payload={"file": str(told)}))
    scheduler.await_report("running", "started")
    process.send_signal(signal.SIGSTOP)
    scheduler.send(*(scheduler.item(f"stale-{n}", "add", payload={"a": n}) for n in range(100)))
    time.sleep(2.0)
    process.send_signal(signal.SIGCONT)
    for n in range(100):
        assert scheduler.await_report(f"stale-{n}", "returned", "outcome").kind == "returned"
    # The run is told that its lease is lost, and what it did is no outcome.
    assert scheduler.await_report("running", "returned").reason == "lease"
    assert told.exists()
    scheduler.send(scheduler.item("fresh", "add", payload={"a": 1}))
    assert scheduler.await_report("fresh", "outcome").state == "SUCCEEDED"


def test_the_processes_of_a_killed_worker_end_too(here: Here) -> None:
    scheduler, process = here.start("--processes", "2", lease_ms=60_000)
    scheduler.send(scheduler.item("running", "until-told"))
    scheduler.await_report("running", "started")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.kill()
    scheduler.until(lambda: not any(_alive(int(pid)) for pid in children), "the children to end")


def test_a_worker_without_its_topics_says_so(here: Here) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HOROLOG_")}
    done = subprocess.run(
        [sys.executable, "-m", "horolog.sdk_command", "worker", "handlers:app"],
        cwd=here.folder, capture_output=True, text=True, timeout=60, check=False,
        env=clean | {"KAFKA_BOOTSTRAP_SERVERS": here.bootstrap, "PYTHONPATH": str(ROOT),
                     "HOROLOG_NAMESPACE": "nobody"},
    )  # fmt: skip
    assert done.returncode == 6
    assert "topic nobody.slot-requests does not exist" in done.stderr


def test_the_http_worker_calls_targets(here: Here) -> None:
    scheduler, process = here.start(pool="http", code=HTTP_WORKER)
    assert scheduler.offers[0].handlers == ("http",)
    assert scheduler.offers[0].places == 200
    url = "http://127.0.0.1:9/nobody-listens"
    call = HttpCall(method="POST", url=url, timeout_ms=5_000)
    scheduler.send(scheduler.item("call", "http", http=call))
    report = scheduler.await_report("call", "outcome")
    assert (report.state, report.reason, report.retry) == ("FAILED", "connection", True)
    process.terminate()
    assert process.wait(20) == 0


def test_while_the_log_is_away_nothing_starts_and_afterwards_nothing_is_lost(
    own_broker: Path, tmp_path: Path
) -> None:
    started = server.start(own_broker, log=print)
    here = Here(started.bootstrap, tmp_path)
    try:
        scheduler, process = here.start("--concurrency", "1", lease_ms=3_000)
        release, told = tmp_path / "release", tmp_path / "told"
        scheduler.send(
            scheduler.item("finishes", "until-file", payload={"file": str(release)}),
        )
        scheduler.await_report("finishes", "started")
        server.stop(own_broker)
        # Its result finds no log; its lease runs out; the place is free.
        release.touch()
        time.sleep(4)
        assert process.poll() is None
        server.start(own_broker, log=print)
        assert scheduler.await_report("finishes", "outcome").state == "SUCCEEDED"
        scheduler.send(scheduler.item("next", "until-told", payload={"file": str(told)}))
        scheduler.await_report("next", "started")
        server.stop(own_broker)
        scheduler_away_s = time.monotonic()
        while not told.exists():
            assert time.monotonic() - scheduler_away_s < SETTLED_S, "the run is told in time"
            time.sleep(0.05)
        server.start(own_broker, log=print)
        assert scheduler.await_report("next", "returned").reason == "lease"
        process.terminate()
        assert process.wait(30) == 0
    finally:
        for process in here.processes:
            process.kill()
            process.wait(20)


def _alive(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    except FileNotFoundError:
        return False
