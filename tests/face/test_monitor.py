"""Probes and figures of the services that are not the gateway."""

import json
import socket
import time
import urllib.request

import pytest
from standing import Process, Standing

from horolog.local_http import ask


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def answered(port: int, path: str) -> tuple[int, dict[str, object]]:
    found = ask(f"http://127.0.0.1:{port}{path}", 5.0)
    assert found is not None
    return found[0], json.loads(found[1])


def await_ready(port: int, process: Process) -> None:
    until_s = time.monotonic() + 60
    while (found := ask(f"http://127.0.0.1:{port}/readyz", 5.0)) is None or found[0] != 200:
        assert process.process.poll() is None, process.said
        assert time.monotonic() < until_s, found
        time.sleep(0.05)


def figures(port: int) -> list[str]:
    found = ask(f"http://127.0.0.1:{port}/metrics", 5.0)
    assert found is not None
    return [line for line in found[1].decode().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("run", "scheduler"), "horolog_scheduler_overdue_seconds"),
        (("run", "slots"), "horolog_slots_overdue_seconds"),
        (("run", "worker"), "horolog_worker_lateness_seconds"),
        (("worker", "horolog.demo.handlers:app", "--no-register"),
         "horolog_worker_lateness_seconds"),
    ],
    ids=["scheduler", "slots", "http worker", "python worker"],
)  # fmt: skip
def test_a_service_answers_probes_and_tells_lateness_first(
    fragile: Standing, arguments: tuple[str, ...], first: str
) -> None:
    port = free_port()
    service = fragile.start(*arguments, HOROLOG_MONITOR__PORT=str(port))
    await_ready(port, service)
    assert answered(port, "/livez") == (200, {"alive": True, "why": ""})
    assert answered(port, "/startupz") == (200, {"started": True, "why": ""})
    assert answered(port, "/nothing")[0] == 404
    assert figures(port)[0].startswith(first)
    if first.startswith("horolog_scheduler"):
        until_s = time.monotonic() + 60
        while 'horolog_scheduler_partitions{ready="true"} 2.0' not in figures(port):
            assert time.monotonic() < until_s, figures(port)
            time.sleep(0.1)
        assert "horolog_scheduler_fired_total 0.0" in figures(port)
    assert service.stop() == 0
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=5)


def test_a_worker_counts_how_late_its_handlers_saw_their_work(fragile: Standing) -> None:
    port = free_port()
    fragile.start("run", "scheduler", "--member", "one")
    fragile.start("run", "slots", "--member", "one")
    worker = fragile.start("worker", "horolog.demo.handlers:app", "--no-register",
                           HOROLOG_MONITOR__PORT=str(port))  # fmt: skip
    fragile.start_gateway()
    await_ready(port, worker)
    nobody = {"url": f"http://127.0.0.1:{free_port()}/"}
    fragile.put("counted", target={"worker": {"handler": "report"}}, payload=nobody)
    fragile.jobs("POST", "counted:trigger")
    (row,) = fragile.executions("counted", 1, "failed")
    assert row["reason"] == "error"
    assert "horolog_worker_lateness_seconds_count 1.0" in figures(port)
    gateway = fragile.http("GET", "/metrics").body.decode().splitlines()
    assert "horolog_lateness_seconds_count 1.0" in gateway
    assert "horolog_claim_lateness_seconds_count 1.0" in gateway


def test_a_monitor_port_that_is_taken_is_said_so(fragile: Standing) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = fragile.start("run", "scheduler", HOROLOG_MONITOR__PORT=str(port))
        assert refused.process.wait(60) == 1
    assert f"127.0.0.1:{port}" in refused.said
