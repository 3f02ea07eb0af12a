"""Child processes, for real: what runs where, what is told, what becomes of the dead."""

import asyncio
import os
import signal
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.leases import WorkItem
from streams.clock import SystemClock
from workers.children import ChildPool
from workers.lease import Ended, Lease, times_of
from workers.ports import Moment, Why
from workers.process import CannotLoad

SETTLED_S = 20.0
CLOCK = SystemClock()
HANDLERS = """
    import asyncio, os, threading, time
    from pathlib import Path
    from horolog import App, Context, Fail

    app = App()
    meet = threading.Barrier(3)

    @app.task("echo")
    def echo(ctx, text: str = "", times: int = 1):
        return {"text": text * times, "job": ctx.job, "pid": os.getpid()}

    @app.task("async-echo")
    async def async_echo(text: str):
        await asyncio.sleep(0)
        return text

    @app.task("together")
    def together():
        meet.wait(20)

    @app.task("async-together")
    async def async_together():
        await asyncio.sleep(0.05)

    @app.task("until-told")
    def until_told(ctx):
        while not ctx.cancelled:
            time.sleep(0.01)

    @app.task("async-forever")
    async def async_forever(ctx: Context):
        await asyncio.sleep(3600)

    @app.task("deaf")
    def deaf(file: str):
        while not Path(file).exists():
            time.sleep(0.01)

    @app.task("progress")
    def progress(ctx: Context):
        ctx.heartbeat("half way")
        while not ctx.cancelled:
            time.sleep(0.01)

    @app.task("fail")
    def fail(retry: bool):
        raise Fail("no such region", retry=retry)

    @app.task("raise")
    def raises():
        raise KeyError("nowhere")

    @app.task("exit")
    def exits():
        raise SystemExit(3)

    @app.task("large")
    def large(size: int):
        return "x" * size

    @app.task("odd")
    def odd():
        return object()

    @app.task("die")
    def die():
        os.kill(os.getpid(), 9)
"""


class Heard:
    """Hears what becomes of runs."""

    def __init__(self) -> None:
        self.ends: dict[int, Ended] = {}
        self.drops: list[int] = []
        self.keeps: list[int] = []
        self.progress: list[tuple[int, str]] = []

    def ended(self, number: int, ended: Ended, now: Moment) -> None:
        assert number not in self.ends, "a run ended twice"
        self.ends[number] = ended

    def dropped(self, number: int, now: Moment) -> None:
        self.drops.append(number)

    def kept(self, number: int, now: Moment) -> None:
        self.keeps.append(number)

    def progressed(self, number: int, progress: str, now: Moment) -> None:
        self.progress.append((number, progress))


class Bench:
    """A pool of real processes, and the leases given to it."""

    def __init__(self, folder: Path, places: int, processes: int) -> None:
        (folder / "bench_handlers.py").write_text(textwrap.dedent(HANDLERS))
        self.heard = Heard()
        self.alarms: list[str] = []
        self.leases: dict[int, Lease] = {}
        self.pool = ChildPool(
            application="bench_handlers:app", worker="w", places=places, processes=processes,
            alarm=lambda event, **_: self.alarms.append(event),
            now=lambda: Moment(CLOCK.wall_ms(), CLOCK.boottime_ms()),
        )  # fmt: skip

    def start(self, handler: str, *, before_ms: int | None = None, **payload: Any) -> int:
        number = len(self.leases) + 1
        item = WorkItem(
            kind="work", tenant="ada", job=f"job-{number}", execution_id=f"e{number}",
            occurrence="o", ordinal=0, attempt=1, delivery=1, fence=1, partition=0,
            scheduled_at=0, due_at=0, lease_until=0, token=b"", handler=handler,
            payload=msgspec.json.encode(payload), max_duration_ms=1,
        )  # fmt: skip
        lease = self.leases[number] = Lease(item, number, 0, times_of(60_000))
        late_ms = CLOCK.boottime_ms() + 60_000 if before_ms is None else before_ms
        self.pool.start(lease, before_ms=late_ms)
        self.pool.flush()
        return number

    def stop(self, number: int, why: Why) -> None:
        self.pool.stop(self.leases[number], why)
        self.pool.flush()

    async def ends(self, *numbers: int) -> list[Ended]:
        await until(lambda: all(n in self.heard.ends for n in numbers), f"{numbers} to end")
        return [self.heard.ends[n] for n in numbers]

    async def began(self, number: int) -> None:
        await until(lambda: self.pool.began_at(self.leases[number]) > 0, f"{number} to begin")


async def until(condition: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + SETTLED_S
    while not condition():
        assert time.monotonic() < give_up_s, f"waited {SETTLED_S} s for {what}"
        await asyncio.sleep(0.005)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a coroutine function against a bench, and ends the processes."""
    monkeypatch.chdir(tmp_path)

    def run(test: Callable[[Bench], Awaitable[None]], places: int = 4, processes: int = 1) -> None:
        async def around() -> None:
            made = Bench(tmp_path, places, processes)
            await made.pool.open()
            made.pool.listen(made.heard, lambda: None)
            try:
                await test(made)
            finally:
                await made.pool.close()

        asyncio.run(around())

    return run


def test_functions_get_their_arguments_and_what_they_return_comes_back(bench: Any) -> None:
    async def test(b: Bench) -> None:
        numbers = b.start("echo", text="a", times=3), b.start("async-echo", text="b")
        first, second = await b.ends(*numbers)
        assert first.state == second.state == "SUCCEEDED"
        assert msgspec.json.decode(first.result) | {"pid": 0} == {
            "text": "aaa", "job": "job-1", "pid": 0,
        }  # fmt: skip
        assert msgspec.json.decode(first.result)["pid"] in b.pool.pids
        assert second.result == b'"b"'
        assert 0 < first.started_at <= first.finished_at

    bench(test)


def test_wrong_arguments_fail_without_retry_naming_all_of_them(bench: Any) -> None:
    async def test(b: Bench) -> None:
        (ended,) = await b.ends(b.start("echo", text=7, times="x", colour="red"))
        assert (ended.state, ended.reason, ended.retry) == ("FAILED", "arguments", False)
        for word in ("text: ", "times: ", "colour: "):
            assert word in ended.detail

    bench(test)


def test_as_many_run_at_once_as_there_are_places_and_no_more(bench: Any) -> None:
    async def test(b: Bench) -> None:
        # Three meet only if all three run at the same time.
        ends = await b.ends(*(b.start("together") for _ in range(3)))
        assert {ended.state for ended in ends} == {"SUCCEEDED"}
        waiting = [b.start("until-told") for _ in range(5)]
        await b.began(waiting[3])
        await asyncio.sleep(0.1)
        assert sum(b.pool.began_at(b.leases[n]) > 0 for n in waiting) == 4

    bench(test, places=4)


def test_places_are_shared_by_functions_and_coroutines(bench: Any) -> None:
    async def test(b: Bench) -> None:
        numbers = [b.start(name) for name in ("until-told", "async-forever") * 2]
        await b.began(numbers[1])
        await asyncio.sleep(0.1)
        assert sum(b.pool.began_at(b.leases[n]) > 0 for n in numbers) == 2
        b.stop(numbers[0], "cancel")
        await b.ends(numbers[0])
        await b.began(numbers[2])
        b.stop(numbers[1], "cancel")
        await b.ends(numbers[1])
        await b.began(numbers[3])

    bench(test, places=2)


def test_a_thousand_short_runs_of_both_kinds_each_end_once(bench: Any) -> None:
    async def test(b: Bench) -> None:
        numbers = [
            b.start("echo", text="x") if n % 2 else b.start("async-echo", text="y")
            for n in range(1_000)
        ]
        ends = await b.ends(*numbers)
        assert {ended.state for ended in ends} == {"SUCCEEDED"}

    bench(test, places=20, processes=2)


def test_failures_say_what_happened_and_whether_to_try_again(bench: Any) -> None:
    async def test(b: Bench) -> None:
        numbers = [
            b.start("fail", retry=False), b.start("fail", retry=True), b.start("raise"),
            b.start("exit"), b.start("large", size=5_000), b.start("odd"),
        ]  # fmt: skip
        final, again, raised, exited, large, odd = await b.ends(*numbers)
        assert (final.reason, final.detail, final.retry) == ("error", "no such region", False)
        assert again.retry
        assert raised.reason == "error"
        assert raised.retry
        assert raised.detail.rstrip().endswith("KeyError: 'nowhere'")
        assert "SystemExit" in exited.detail
        assert (large.reason, large.retry, large.result) == ("too_large", False, b"")
        assert "5002 bytes" in large.detail
        assert "no JSON" in odd.detail

    bench(test, places=6)


def test_cancel_is_seen_by_functions_and_ends_coroutines(bench: Any) -> None:
    async def test(b: Bench) -> None:
        numbers = b.start("until-told"), b.start("async-forever")
        for number in numbers:
            await b.began(number)
            b.stop(number, "cancel")
        assert {ended.state for ended in await b.ends(*numbers)} == {"CANCELLED"}

    bench(test)


def test_a_lost_lease_is_told_and_a_coroutine_may_finish(bench: Any) -> None:
    async def test(b: Bench) -> None:
        told, patient = b.start("until-told"), b.start("async-together")
        await b.began(told)
        await b.began(patient)
        b.stop(told, "lease")
        b.stop(patient, "lease")
        first, second = await b.ends(told, patient)
        assert (first.state, second.state) == ("CANCELLED", "SUCCEEDED")

    bench(test)


def test_what_waits_can_be_taken_back_and_what_has_begun_cannot(bench: Any) -> None:
    async def test(b: Bench) -> None:
        running, waiting = b.start("until-told"), b.start("echo")
        await b.began(running)
        b.stop(waiting, "revoke")
        b.stop(running, "revoke")
        b.stop(running, "recall")
        await until(lambda: b.heard.keeps == [running], "the run to be kept")
        assert b.heard.drops == [waiting]
        b.stop(running, "cancel")
        await b.ends(running)
        assert list(b.heard.ends) == [running]

    bench(test, places=1)


def test_a_run_that_comes_too_late_never_begins(bench: Any) -> None:
    async def test(b: Bench) -> None:
        late = b.start("echo", before_ms=CLOCK.boottime_ms() - 1)
        late_too = b.start("async-echo", before_ms=CLOCK.boottime_ms() - 1, text="")
        await until(lambda: b.heard.drops == [late, late_too], "both to be dropped")

    bench(test)


def test_progress_is_heard(bench: Any) -> None:
    async def test(b: Bench) -> None:
        number = b.start("progress")
        await until(lambda: b.heard.progress == [(number, "half way")], "progress")
        b.stop(number, "cancel")
        await b.ends(number)

    bench(test)


def test_a_process_that_dies_fails_what_it_ran_and_passes_on_what_it_had_not_begun(
    bench: Any,
) -> None:
    async def test(b: Bench) -> None:
        running, dying, waiting = b.start("until-told"), b.start("die"), b.start("echo")
        first, second = await b.ends(running, dying)
        for ended in (first, second):
            assert (ended.state, ended.reason, ended.retry) == ("FAILED", "error", True)
            assert "the process running it died: it was killed by SIGKILL" in ended.detail
        if waiting not in b.heard.ends:
            await until(lambda: b.heard.drops == [waiting], "the waiting one to come back")
        assert b.alarms == ["child_died"]
        (after,) = await b.ends(b.start("echo", text="again"))
        assert after.state == "SUCCEEDED"

    bench(test, places=2)


def test_an_abandoned_run_costs_nobody_elses_and_its_process_goes_when_they_are_done(
    bench: Any, tmp_path: Path
) -> None:
    async def test(b: Bench) -> None:
        (old,) = b.pool.pids
        deaf = b.start("deaf", file=str(tmp_path / "never"))
        other = b.start("deaf", file=str(tmp_path / "go on"))
        await b.began(deaf)
        await b.began(other)
        b.pool.abandon(b.leases[deaf])
        (ended,) = await b.ends(b.start("echo", text="next"))
        assert msgspec.json.decode(ended.result)["pid"] != old
        (tmp_path / "go on").touch()
        (ended,) = await b.ends(other)
        assert ended.state == "SUCCEEDED"
        await until(lambda: not _alive(old), "the old process to end")
        assert deaf not in b.heard.ends

    bench(test)


def test_processes_end_with_their_parent_and_tell_their_runs(bench: Any, tmp_path: Path) -> None:
    async def test(b: Bench) -> None:
        (pid,) = b.pool.pids
        number = b.start("until-told")
        await b.began(number)
        b.pool._children[0].hang_up()
        await until(lambda: b.pool._children[0].process.poll() is not None, f"{pid} to end")
        assert b.pool._children[0].process.poll() == 0

    bench(test)


@pytest.mark.parametrize(
    ("application", "told"),
    [
        ("bench_handlers", "write it as module:name"),
        ("nothing_here:app", "there is no module 'nothing_here'"),
        ("bench_handlers:wrong", "has no 'wrong'"),
        ("bench_handlers:meet", "no App"),
        ("broken_handlers:app", "ZeroDivisionError"),
        ("unreadable:app", "nothing in JSON becomes"),
    ],
)
def test_an_application_that_cannot_be_loaded_is_refused_with_the_reason(
    application: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_handlers.py").write_text("1 / 0")
    (tmp_path / "unreadable.py").write_text(
        "import threading\nfrom horolog import App\napp = App()\n"
        "@app.task('x')\ndef x(lock: threading.Thread): ...\n"
    )

    async def load() -> None:
        b = Bench(tmp_path, 1, 1)
        b.pool._application = application
        await b.pool.open()

    with pytest.raises(CannotLoad, match=told):
        asyncio.run(load())


def test_ctrl_c_and_sigterm_are_not_for_the_children(bench: Any) -> None:
    async def test(b: Bench) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(b.pool.pids[0], number)
        (ended,) = await b.ends(b.start("echo", text="still here"))
        assert ended.state == "SUCCEEDED"

    bench(test)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
