"""The gateway over HTTP: what it takes, what it refuses, and what a read may rely on."""

import http.client
import json
import signal
import socket
import threading
import time
from typing import Any
from urllib.parse import quote

import pytest
from standing import Standing
from typer.testing import CliRunner

from horolog.cli.app import app

JOBS = "/v1/tenants/default/jobs"
PREVIEW = "/v1/tenants/default/schedules:preview"


def run_of(execution_id: str) -> str:
    return quote(execution_id.partition(":")[2], safe=":~")


def test_a_job_is_put_read_and_listed_with_every_default(face: Standing) -> None:
    answer = face.put("whole", name="Whole", payload={"n": 1})
    told = answer.json
    assert answer.headers["etag"] == '"1"'
    assert answer.headers["horolog-sequence"] == f"{told['life']}.{told['sequence']}"
    assert answer.headers["idempotency-key"] == told["command_id"]

    job = face.jobs("GET", f"whole?min_seq={answer.headers['horolog-sequence']}")
    assert job.headers["etag"] == '"1"'
    expected = {
        "tenant": "default", "job": "whole", "name": "Whole", "state": "ACTIVE", "version": 1,
        "payload": {"n": 1}, "concurrency": "forbid", "missed": "latest", "late_tolerance": "1m",
        "max_attempts": 1, "last": None,
    }  # fmt: skip
    assert expected.items() <= job.json.items()
    assert len(job.json["next_runs"]) == 5
    (row,) = face.http("GET", f"{JOBS}?q=WHOL").json["jobs"]
    assert (row["job"], row["state"]) == ("whole", "ACTIVE")


def test_a_list_comes_in_pages_that_miss_nothing_and_repeat_nothing(face: Standing) -> None:
    names = sorted(f"page-{n:02d}" for n in range(25))
    last = ""
    for name in names:
        last = face.put(name).headers["horolog-sequence"]
    face.jobs("GET", f"{names[-1]}?min_seq={last}")
    found: list[str] = []
    cursor, pages = "", 0
    while cursor is not None:
        page = face.http("GET", f"{JOBS}?q=page-&limit=10&cursor={quote(cursor)}").json
        found += [row["job"] for row in page["jobs"]]
        cursor, pages = page["next"], pages + 1
    assert found == names
    assert pages == 3


def test_executions_come_in_pages_the_newest_first(face: Standing) -> None:
    face.put("often")
    made = [face.jobs("POST", "often:trigger").json for _ in range(7)]
    seen = f"{made[-1]['life']}.{made[-1]['sequence']}"
    path = "/v1/tenants/default/executions?job=often&limit=3"
    first = face.http("GET", f"{path}&min_seq={seen}").json
    second = face.http("GET", f"{path}&cursor={first['next']}").json
    third = face.http("GET", f"{path}&cursor={second['next']}").json
    found = [row["execution_id"] for page in (first, second, third) for row in page["executions"]]
    assert found == [one["execution_id"] for one in reversed(made)]
    assert third["next"] is None


def test_a_read_waits_for_what_was_written_however_often(face: Standing) -> None:
    for n in range(30):
        seen = face.put("follows", name=f"n{n}").headers["horolog-sequence"]
        assert face.jobs("GET", f"follows?min_seq={seen}").json["name"] == f"n{n}"


def test_a_read_of_an_execution_waits_for_its_trigger(face: Standing) -> None:
    face.put("watched")
    for _ in range(10):
        told = face.jobs("POST", "watched:trigger").json
        seen, run = f"{told['life']}.{told['sequence']}", run_of(told["execution_id"])
        one = face.jobs("GET", f"watched/executions/{run}?min_seq={seen}")
        assert one.json["state"] == "SUCCEEDED"
        assert [event["state"] for event in one.json["events"]] == ["SUCCEEDED"]


def test_a_read_that_waits_in_vain_says_how_far_the_job_is_known(face: Standing) -> None:
    answer = face.put("ahead")
    life = answer.json["life"]
    face.jobs("GET", f"ahead?min_seq={life}.1")
    waited = face.jobs("GET", f"ahead?min_seq={life}.99&wait=0.2")
    assert (waited.status, waited.kind) == (504, "not_seen_yet")
    assert f"known up to {life}.1" in waited.json["detail"]


def test_an_execution_is_shown_and_cancelled(face: Standing) -> None:
    face.put("waits", target={"worker": {"handler": "nobody"}})
    told = face.jobs("POST", "waits:trigger").json
    run = run_of(told["execution_id"])
    (row,) = face.executions("waits", 1, "queued")
    assert row["execution_id"] == told["execution_id"]
    done = face.jobs("POST", f"waits/executions/{run}:cancel?note=too%20late")
    assert done.json["execution_id"] == told["execution_id"]
    seen = done.headers["horolog-sequence"]
    one = face.jobs("GET", f"waits/executions/{run}?min_seq={seen}").json
    assert (one["state"], one["detail"]) == ("CANCELLED", "too late")
    assert [event["state"] for event in one["events"]] == ["QUEUED", "CANCELLED"]
    # The occurrence, which stands for all attempts, is read from the log itself.
    occurrence = run.rpartition(":")[0]
    assert face.jobs("GET", f"waits/executions/{occurrence}").json["events"] == one["events"]
    again = face.jobs("POST", f"waits/executions/{run}:cancel")
    assert (again.status, again.kind) == (404, "not_found")


# --- patch ----------------------------------------------------------------------------------------


def test_a_patch_changes_what_it_names_and_moves_no_tick(face: Standing) -> None:
    face.put("patched", schedules=[{"every": "7h"}, {"in": "3h"}], payload={"a": 1, "b": 2})
    before = face.jobs("GET", "patched").json
    answer = face.jobs("PATCH", "patched", {"name": "New", "payload": {"b": None, "c": 3}},
                       If_Match='"1"')  # fmt: skip
    assert answer.headers["etag"] == '"2"'
    after = face.jobs("GET", f"patched?min_seq={answer.headers['horolog-sequence']}").json
    assert (after["name"], after["payload"]) == ("New", {"a": 1, "c": 3})
    for kept in ("schedules", "next_runs", "target", "late_tolerance"):
        assert after[kept] == before[kept]


def test_a_patch_is_refused_like_a_put_and_for_a_version_that_is_over(face: Standing) -> None:
    face.put("unpatched")
    wrong = face.jobs("PATCH", "unpatched", {"colour": 1, "schedules": [{"every": "x"}]})
    assert wrong.errors.keys() == {"colour", "schedules[0].every"}
    late = face.jobs("PATCH", "unpatched", {"name": "x"}, If_Match='"9"')
    assert (late.status, late.kind) == (412, "version_conflict")
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"a": deep}
    assert face.jobs("PATCH", "unpatched", {"payload": deep}).kind == "invalid"
    assert face.jobs("PATCH", "nobody", {"name": "x"}).status == 404
    assert face.jobs("GET", "unpatched").headers["etag"] == '"1"'


def test_patches_at_the_same_time_lose_nothing(face: Standing) -> None:
    face.put("crowded", payload={})
    statuses: list[int] = []

    def patch(n: int) -> None:
        statuses.append(face.jobs("PATCH", "crowded", {"payload": {f"k{n}": n}}).status)

    threads = [threading.Thread(target=patch, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 4
    assert face.jobs("GET", "crowded").headers["etag"] == '"5"'
    assert face.jobs("GET", "crowded").json["payload"] == {f"k{n}": n for n in range(4)}


def test_a_patch_under_the_same_key_takes_effect_once(face: Standing) -> None:
    face.put("repatched", payload={"n": 1})
    first = face.jobs("PATCH", "repatched", {"payload": {"n": 2}}, Idempotency_Key="p-1")
    seen = first.headers["horolog-sequence"]
    face.jobs("GET", f"repatched?min_seq={seen}")
    again = face.jobs("PATCH", "repatched", {"payload": {"n": 2}}, Idempotency_Key="p-1")
    assert (again.json["repeated"], again.json["version"]) == (True, first.json["version"])
    other = face.jobs("PATCH", "repatched", {"payload": {"n": 3}}, Idempotency_Key="p-1")
    assert other.kind == "id_reused"


# --- previews -------------------------------------------------------------------------------------


def test_a_preview_says_what_a_schedule_will_do_with_remarks(face: Standing) -> None:
    asked = "cron=30+2+*+*+*&timezone=Europe/Paris&after=2027-03-27T12:00:00Z&count=2"
    told = face.http("GET", f"{PREVIEW}?{asked}").json
    assert [run["at"] for run in told["runs"]] == [
        "2027-03-28T01:00:00.000Z", "2027-03-29T00:30:00.000Z",
    ]  # fmt: skip
    assert "does not exist" in told["runs"][0]["notes"][0]
    wrong = face.http(
        "GET", "/v1/tenants/default/schedules:preview?cron=99+*+*+*+*&timezone=Nowhere"
    )
    assert wrong.errors.keys() == {"cron", "timezone"}


# --- bad input ------------------------------------------------------------------------------------

PUT_HEADERS = {"Content-Type": "application/json"}
BAD_BODIES = [
    (b"", PUT_HEADERS, 400, "malformed"),
    (b"{", PUT_HEADERS, 400, "malformed"),
    (b"[]", PUT_HEADERS, 400, "malformed"),
    (b"null", PUT_HEADERS, 400, "malformed"),
    (b'{"a": NaN}', PUT_HEADERS, 400, "malformed"),
    (b"\xff\xfe", PUT_HEADERS, 400, "malformed"),
    (b'{"a": "\\ud800"}', PUT_HEADERS, 400, "malformed"),
    (b"[" * 100_000, PUT_HEADERS, 400, "malformed"),
    (b'{"a":' * 30_000 + b"1" + b"}" * 30_000, PUT_HEADERS, 400, "malformed"),
    (b"{}", {}, 415, "media_type"),
    (b"{}", {"Content-Type": "text/plain"}, 415, "media_type"),
    (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "media_type"),
    (b'{"x": "' + b"x" * 200_000 + b'"}', PUT_HEADERS, 413, "too_large"),
    (b'{"name": 123456789012345678901234567890123456789}', PUT_HEADERS, 422, "invalid"),
    (b'{"name": "\\u0000", "schedules": 1e400}', PUT_HEADERS, None, None),
    (b"{}", PUT_HEADERS, 422, "invalid"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind"), BAD_BODIES, ids=lambda x: str(x)[:20]
)
def test_a_body_that_cannot_be_used_is_refused_and_says_why(
    face: Standing, body: bytes, headers: dict[str, str], status: int | None, kind: str | None
) -> None:
    answer = face.http("PUT", f"{JOBS}/bad", raw=body, headers=headers)
    if status is None:  # either reading may be right; it is refused all the same
        assert answer.status in (400, 422)
        return
    assert (answer.status, answer.kind) == (status, kind)
    assert answer.json["detail"]
    assert face.jobs("GET", "bad").status == 404


BAD_REQUESTS = [
    ("GET", "/nothing", {}, 404, "no_such_route", ()),
    ("GET", "/v1/tenants/default/jobs/", {}, 404, "no_such_route", ()),
    ("GET", "/v1/tenants//jobs/x", {}, 404, "no_such_route", ()),
    ("POST", f"{JOBS}/x", {}, 405, "method_not_allowed", ()),
    ("POST", f"{JOBS}/x:explode", {}, 405, "method_not_allowed", ()),
    ("GET", f"{JOBS}/%00", {}, 422, "invalid", ("job",)),
    ("GET", f"{JOBS}/%ff", {}, 422, "invalid", ("job",)),
    ("GET", "/v1/tenants/A!/jobs", {}, 422, "invalid", ("tenant",)),
    ("GET", f"/v1/tenants/{'t' * 64}/jobs", {}, 422, "invalid", ("tenant",)),
    ("GET", f"{JOBS}?limit=0&state=odd", {}, 422, "invalid", ("limit", "state")),
    ("GET", f"{JOBS}?limit=1001", {}, 422, "invalid", ("limit",)),
    ("GET", f"{JOBS}?limit=many", {}, 422, "invalid", ("limit",)),
    ("GET", f"{JOBS}/x?min_seq=7&wait=99", {}, 422, "invalid", ("min_seq", "wait")),
    ("GET", f"{JOBS}/nobody", {}, 404, "not_found", ()),
    ("GET", f"{JOBS}/nobody/executions/2026-01-01T00:00:00.000Z:1", {}, 404, "not_found", ()),
    ("GET", f"{JOBS}/nobody/executions/nonsense", {}, 404, "not_found", ()),
    ("GET", "/v1/tenants/default/executions?cursor=%F0%9F%92%A9", {}, 422, "invalid", ("cursor",)),
    ("GET", "/v1/tenants/default/executions?cursor=AAAA", {}, 422, "invalid", ("cursor",)),
    ("GET", "/v1/tenants/default/executions?min_seq=1.1", {}, 422, "invalid", ("min_seq",)),
    ("GET", PREVIEW, {}, 422, "invalid", ("schedule",)),
    ("GET", f"{PREVIEW}?every=1s&count=0", {}, 422, "invalid", ("count",)),
    ("GET", f"{PREVIEW}?every=1s&after=now", {}, 422, "invalid",
     ("after",)),
    ("DELETE", f"{JOBS}/x", {"If-Match": "abc", "Idempotency-Key": "k" * 200}, 422, "invalid",
     ("If-Match", "Idempotency-Key")),
    ("DELETE", f"{JOBS}/x?wait=-1", {}, 422, "invalid", ("wait",)),
    ("DELETE", f"{JOBS}/nobody", {}, 404, "not_found", ()),
    ("DELETE", f"{JOBS}/x?note={'n' * 1_025}", {}, 422, "invalid", ("note",)),
    ("GET", f"/{'x' * 9_000}", {}, 414, "too_long", ()),
    ("GET", f"{JOBS}", {"Host": "evil.example"}, 403, "foreign_host", ()),
    ("GET", f"{JOBS}", {"Host": "localhost.evil.example:80"}, 403, "foreign_host", ()),
    ("POST", f"{JOBS}/x:trigger", {"Origin": "http://evil.example"}, 403, "foreign_origin", ()),
    ("POST", f"{JOBS}/x:trigger", {"Origin": "null"}, 403, "foreign_origin", ()),
    ("POST", f"{JOBS}/x:trigger", {"Origin": "http://127.0.0.1:1"}, 403, "foreign_origin", ()),
    ("POST", f"{JOBS}/x:trigger", {"Sec-Fetch-Site": "cross-site"}, 403, "foreign_origin", ()),
    ("POST", f"{JOBS}/x:trigger", {"Sec-Fetch-Site": "same-site"}, 403, "foreign_origin", ()),
    ("POST", "/t/default/jobs/x/trigger", {"Origin": "http://evil.example"}, 403, "foreign_origin",
     ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "kind", "fields"), BAD_REQUESTS,
    ids=[f"{method} {path[:40]} {list(headers)}" for method, path, headers, *_ in BAD_REQUESTS],
)  # fmt: skip
def test_a_request_that_cannot_be_used_is_refused_with_all_its_problems(
    face: Standing, method: str, path: str, headers: dict[str, str], status: int, kind: str,
    fields: tuple[str, ...],
) -> None:  # fmt: skip
    answer = face.http(method, path, headers=headers)
    assert (answer.status, answer.kind) == (status, kind)
    assert {name.lower() for name in answer.errors} == {name.lower() for name in fields}


def test_a_body_where_none_is_taken_is_refused_rather_than_ignored(face: Standing) -> None:
    face.put("bodied")
    assert face.jobs("POST", "bodied:pause", {"note": "x"}).errors.keys() == {"body"}
    assert face.jobs("POST", "bodied:pause", {}).status == 200
    both = {"If_Match": '"1"', "If_None_Match": "*"}
    definition = {"schedules": [{"every": "1h"}], "target": {"topic": {"name": face.topic}}}
    assert face.jobs("PUT", "bodied", definition, **both).errors.keys() == {"If-None-Match"}
    there = face.jobs("PUT", "bodied", definition, If_None_Match="*")
    assert (there.status, there.kind) == (412, "version_conflict")
    foreign = face.jobs("POST", "bodied:trigger", {"tenant": "a", "by": "b", "colour": 1})
    assert foreign.errors.keys() == {"tenant", "by"}
    assert face.jobs("POST", "bodied:trigger", {"colour": 1}).errors.keys() == {"colour"}


def test_a_request_that_is_no_http_does_not_hurt_others(face: Standing) -> None:
    with socket.create_connection(("127.0.0.1", face.port)) as line:
        line.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        line.settimeout(10)
        assert b"400" in line.recv(1_000)
    assert face.http("GET", "/livez").status == 200


# --- answers, documents, figures ------------------------------------------------------------------


def test_the_openapi_document_has_every_route_and_resolves(face: Standing) -> None:
    document = face.http("GET", "/openapi.json").json
    assert document["openapi"].startswith("3.1")
    assert document["paths"].keys() == {
        "/v1/tenants/{tenant}/jobs", "/v1/tenants/{tenant}/jobs/{job}",
        *(f"/v1/tenants/{{tenant}}/jobs/{{job}}:{verb}" for verb in ("pause", "resume", "trigger")),
        "/v1/tenants/{tenant}/executions", "/v1/tenants/{tenant}/jobs/{job}/executions/{run}",
        "/v1/tenants/{tenant}/jobs/{job}/executions/{run}:cancel",
        "/v1/tenants/{tenant}/schedules:preview", "/v1/tenants/{tenant}/changes",
        "/livez", "/readyz", "/startupz", "/metrics",
    }  # fmt: skip
    text = json.dumps(document)
    schemas = document["components"]["schemas"]
    for named in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert named in schemas
    operations = [op["operationId"] for path in document["paths"].values() for op in path.values()]
    assert len(operations) == len(set(operations))


def test_probes_and_figures_are_answered(face: Standing) -> None:
    for path in ("/livez", "/readyz", "/startupz"):
        assert face.http("GET", path).status == 200
    figures = face.http("GET", "/metrics").body.decode().splitlines()
    named = [line.split("{")[0].split(" ")[0] for line in figures if not line.startswith("#")]
    assert named[0].startswith("horolog_lateness_seconds"), "what matters most comes first"
    assert {"horolog_claim_lateness_seconds_count", "horolog_gateway_jobs_held",
            "horolog_gateway_requests_total"} <= set(named)  # fmt: skip


def test_every_answer_forbids_scripts_of_others_and_storing(face: Standing) -> None:
    for path in ("/t/default/jobs", JOBS, "/nothing"):
        headers = face.http("GET", path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"


def test_a_stream_tells_at_once_and_of_every_change(face: Standing) -> None:
    face.put("streamed")
    connection = http.client.HTTPConnection("127.0.0.1", face.port, timeout=30)
    connection.request("GET", "/v1/tenants/default/changes")
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    first = told(answer)
    face.jobs("POST", "streamed:trigger")
    assert told(answer) > first
    connection.close()
    # A page of a browser that is gone is not counted for ever.
    until_s = time.monotonic() + 30
    while watchers(face):
        face.jobs("POST", "streamed:trigger")
        assert time.monotonic() < until_s
        time.sleep(0.1)


def told(answer: http.client.HTTPResponse) -> int:
    while True:
        line = answer.readline().decode()
        if line.startswith("data: "):
            return int(line.removeprefix("data: "))


def watchers(face: Standing) -> float:
    figures = face.http("GET", "/metrics").body.decode().splitlines()
    (line,) = [line for line in figures if line.startswith("horolog_gateway_watchers ")]
    return float(line.split()[1])


# --- what breaks ----------------------------------------------------------------------------------


def test_who_repeats_a_write_after_the_gateway_was_killed_gets_its_first_answer(
    fragile: Standing,
) -> None:
    """The command is in the log, and the gateway dies before the scheduler answers."""
    scheduler = fragile.start("run", "scheduler", "--member", "one")
    gateway = fragile.start_gateway()
    fragile.put("lost")
    before = fragile.commands()
    # As long as the scheduler stands still, there can be no answer.
    scheduler.process.send_signal(signal.SIGSTOP)
    outcome: list[object] = []

    def write() -> None:
        try:
            outcome.append(fragile.jobs("POST", "lost:trigger", Idempotency_Key="k-9").status)
        except (OSError, http.client.HTTPException) as error:
            outcome.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    until_s = time.monotonic() + 30
    while fragile.commands() == before:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    gateway.kill()
    writing.join()
    assert isinstance(outcome[0], Exception), "the client must not have heard anything"
    scheduler.process.send_signal(signal.SIGCONT)

    fragile.start_gateway()
    repeat = fragile.jobs("POST", "lost:trigger", Idempotency_Key="k-9")
    assert (repeat.status, repeat.json["repeated"]) == (200, True)
    again = fragile.jobs("POST", "lost:trigger", Idempotency_Key="k-9")
    assert again.json == repeat.json
    (row,) = fragile.executions("lost", 1)
    assert row["execution_id"] == repeat.json["execution_id"]


def test_a_gateway_that_dies_with_the_answer_in_hand_loses_nothing_of_it(
    fragile: Standing,
) -> None:
    """The scheduler has accepted, and nobody was told."""
    fragile.start("run", "scheduler", "--member", "one")
    dying = fragile.start_gateway(HOROLOG_CRASH="CP20")
    definition = {"schedules": [{"every": "1h"}], "target": {"topic": {"name": fragile.topic}}}
    with pytest.raises((OSError, http.client.HTTPException)):
        fragile.jobs("PUT", "untold?wait=30", definition, Idempotency_Key="k-20")
    assert dying.process.wait(20) == -signal.SIGKILL
    fragile.start_gateway()
    repeat = fragile.jobs("PUT", "untold?wait=30", definition, Idempotency_Key="k-20")
    assert (repeat.status, repeat.json["version"], repeat.json["repeated"]) == (200, 1, True)


def test_without_a_scheduler_a_write_is_not_known_and_its_repeat_tells(fragile: Standing) -> None:
    fragile.start_gateway()
    definition = {"schedules": [{"every": "1h"}], "target": {"topic": {"name": fragile.topic}}}
    waited = fragile.jobs("PUT", "later?wait=0.3", definition)
    assert waited.status == 202
    key = waited.json["command_id"]
    assert waited.headers["idempotency-key"] == key
    fragile.start("run", "scheduler", "--member", "one")
    told = fragile.jobs("PUT", "later?wait=30", definition, Idempotency_Key=key)
    assert (told.status, told.json["version"]) == (200, 1)


def test_a_gateway_ends_within_its_time_although_pages_are_open(fragile: Standing) -> None:
    gateway = fragile.start_gateway()
    connection = http.client.HTTPConnection("127.0.0.1", fragile.port, timeout=30)
    connection.request("GET", "/v1/tenants/default/changes")
    told(connection.getresponse())
    began_s = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - began_s < 15
    connection.close()
    assert "gateway_stopped" in gateway.said
    assert "Traceback" not in gateway.said


def test_others_are_answered_only_where_that_is_said_in_plain_words(fragile: Standing) -> None:
    refused = fragile.start("run", "gateway", "--port", "0", "--host", "0.0.0.0")
    assert refused.process.wait(60) == 1
    assert "--insecure-without-auth" in refused.said
    warned = fragile.start_gateway("--host", "0.0.0.0", "--insecure-without-auth")
    assert "gateway_without_authentication" in warned.said
    assert "may change, run and end every job" in warned.said
    page = fragile.http("GET", "/t/default/jobs", headers={"Host": "jobs.example"})
    assert page.status == 200
    assert "No authentication." in page.body.decode()
    fragile.environment |= {
        "HOROLOG_GATEWAY__HOST": "0.0.0.0", "HOROLOG_GATEWAY__PORT": str(fragile.port),
        "HOROLOG_GATEWAY__INSECURE_WITHOUT_AUTH": "true",
    }  # fmt: skip
    (found,) = [one for one in doctor(fragile) if one["check"] == "gateway"]
    assert found["state"] == "warning"
    assert "anybody who reaches it may change, run and end jobs" in found["told"]


def doctor(standing: Standing) -> list[dict[str, str]]:
    done = CliRunner().invoke(app, ["doctor", "-o", "json"], env=standing.environment)
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def test_a_port_that_is_taken_is_said_so(fragile: Standing) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = fragile.start("run", "gateway", "--port", str(port))
        assert refused.process.wait(60) == 1
    assert f"cannot answer at 127.0.0.1:{port}" in refused.said
