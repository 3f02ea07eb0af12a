"""What users write, against everything: an App, a worker, the client."""

import os
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from horolog import Client
from horolog.installation import Installation
from horolog.sdk_client import NotAccepted, StillRunning
from horolog.settings import load

ROOT = Path(__file__).resolve().parents[2]
SETTLED_S = 40.0
JOBS = """
    import time
    from datetime import UTC
    from horolog import App, Context, Fail

    app = App()

    @app.schedule(cron="0 9 * * 1-5", timezone="Europe/London", job="declared",
                  payload={"region": "uk"})
    @app.task("close-day")
    def close_day(ctx: Context, region: str, days: int = 1) -> dict[str, object]:
        if region == "nowhere":
            raise Fail("no such region", retry=False)
        return {"closed": region, "days": days, "tenant": ctx.tenant, "job": ctx.job,
                "attempt": ctx.attempt, "aware": ctx.scheduled_at.tzinfo is UTC}

    @app.task("endless")
    async def endless(ctx: Context) -> None:
        import asyncio
        await asyncio.sleep(3600)
"""


@pytest.fixture(scope="module")
def client(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of an installation with one worker, whose declared job is registered."""
    folder = tmp_path_factory.mktemp("sdk")
    (folder / "jobs.py").write_text(textwrap.dedent(JOBS))
    namespace = f"sdk-{uuid.uuid4().hex[:8]}"
    settings = load({
        "namespace": namespace, "partitions": 2, "data_dir": folder,
        "kafka": {"bootstrap": broker},
    })  # fmt: skip
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HOROLOG_")}
    with Installation(settings, print) as running:
        running.start()
        worker = subprocess.Popen(
            [sys.executable, "-m", "horolog", "worker", "jobs:app"], cwd=folder,
            env=clean | {"KAFKA_BOOTSTRAP_SERVERS": broker, "HOROLOG_NAMESPACE": namespace,
                         "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            with Client(broker, namespace=namespace) as made:
                give_up_s = time.monotonic() + SETTLED_S
                while made.get("declared") is None:
                    assert worker.poll() is None, "the worker ended"
                    assert time.monotonic() < give_up_s, "the declared job is not there"
                    time.sleep(0.1)
                yield made
        finally:
            worker.terminate()
            assert worker.wait(60) == 0


def test_the_declared_job_was_put_and_a_trigger_runs_it(client: Client) -> None:
    job = client.get("declared")
    assert job is not None
    assert job.definition.worker is not None
    assert (job.definition.worker.handler, job.state.version) == ("close-day", 1)
    outcome = client.wait(client.trigger("declared"), timeout_s=SETTLED_S)
    assert outcome.state == "SUCCEEDED"
    assert outcome.result == {
        "closed": "uk", "days": 1, "tenant": "default", "job": "declared", "attempt": 1,
        "aware": True,
    }  # fmt: skip
    assert outcome.started_at is not None
    assert outcome.finished_at is not None
    assert outcome.started_at <= outcome.finished_at <= datetime.now(UTC)


def test_wait_finds_what_has_ended_before(client: Client) -> None:
    execution = client.trigger("declared", payload={"region": "fr", "days": 3})
    first = client.wait(execution, timeout_s=SETTLED_S)
    assert client.wait(execution, timeout_s=1.0) == first
    assert first.result["days"] == 3


def test_failures_are_told_with_their_reason(client: Client) -> None:
    said = client.wait(client.trigger("declared", payload={"region": "nowhere"}))
    assert (said.state, said.reason, said.detail) == ("FAILED", "error", "no such region")
    wrong = client.wait(client.trigger("declared", payload={"days": "x"}))
    assert (wrong.state, wrong.reason) == ("FAILED", "arguments")
    assert "region: is missing" in wrong.detail
    assert "days: " in wrong.detail


def test_put_pause_resume_list_and_delete(client: Client) -> None:
    assert client.put("mine", task="close-day", every="1h", payload={"region": "x"}).version == 1
    again = client.put("mine", task="close-day", every="1h", payload={"region": "x"})
    assert again.version == 1, "the same content makes no new version"
    assert [view.definition.job for view in client.list()] == ["declared", "mine"]
    client.pause("mine", note="holiday")
    assert client.get("mine").state.status == "PAUSED"  # type: ignore[union-attr]
    client.resume("mine")
    client.delete("mine")
    assert client.get("mine") is None
    with pytest.raises(NotAccepted) as refused:
        client.put("bad", task="close-day", cron="every day")
    assert refused.value.problems


def test_cancel_ends_a_run(client: Client) -> None:
    client.put("endless", task="endless", at=datetime(2030, 1, 1, tzinfo=UTC))
    execution = client.trigger("endless")
    with pytest.raises(StillRunning):
        client.wait(execution, timeout_s=1.5)
    client.cancel(execution)
    assert client.wait(execution, timeout_s=SETTLED_S).state == "CANCELLED"
