"""The distribution `horolog`, built and installed alone in an empty environment."""

import os
import subprocess
import sys
import textwrap
import tomllib
import venv
from pathlib import Path

import pytest

from tests.broker.test_worker import Scheduler

ROOT = Path(__file__).resolve().parents[2]
SERVER_ONLY = {
    "pydantic",
    "typer",
    "rocksdict",
    "structlog",
    "rich",
    "aiohttp",
    "prometheus_client",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the SDK and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("sdk")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT / "sdk"))
    (wheel,) = folder.glob("horolog-*.whl")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    run(str(python), *pip[1:], "install", str(wheel))
    return python


def run(*command: str, cwd: Path | None = None) -> str:
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=170, check=False, cwd=cwd, env=clean
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_only_the_name_horolog_comes_into_the_environment(installed: Path) -> None:
    listing = "import sys, os; print(*os.listdir(sys.path[-1]))"
    names = {name.partition(".")[0] for name in run(str(installed), "-c", listing).split()}
    assert "horolog" in names
    assert not names & {"schemas", "streams", "processors", "projections", "workers", "api"}
    assert not names & SERVER_ONLY


def test_what_users_import_is_there_and_typed(installed: Path) -> None:
    code = """
        import pathlib, horolog
        from horolog import App, Client, Context, Fail
        app = App()
        @app.task("x")
        def x(ctx: Context, n: int) -> int: return n
        assert x(Context(job="j"), 3) == 3
        assert (pathlib.Path(horolog.__file__).parent / "py.typed").exists()
        print(sorted(horolog.__all__))
    """
    out = run(str(installed), "-c", textwrap.dedent(code), cwd=installed.parent)
    assert out.strip() == "['App', 'Client', 'Context', 'Fail']"


def test_it_runs_a_worker(installed: Path, broker: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        textwrap.dedent("""
            from horolog import App
            app = App()
            @app.task("double")
            def double(n: int) -> int:
                return 2 * n
        """)
    )
    scheduler = Scheduler(broker, "default", 60_000)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOROLOG_", "PYTHONPATH"))}
    process = subprocess.Popen(
        [str(installed.parent / "horolog"), "worker", "jobs:app"], cwd=tmp_path,
        env=clean | {"KAFKA_BOOTSTRAP_SERVERS": broker, "HOROLOG_NAMESPACE": scheduler.namespace},
    )  # fmt: skip
    try:
        scheduler.until(lambda: bool(scheduler.offers), "an offer")
        scheduler.send(scheduler.item("j", "double", payload={"n": 21}))
        assert scheduler.await_report("j", "outcome").result == b"42"
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(10)


def test_the_sdk_has_the_servers_version_and_bounds() -> None:
    sdk = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]
    server = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sdk["version"] == server["version"]
    assert set(sdk["dependencies"]) <= {
        dependency.partition("#")[0].strip() for dependency in server["dependencies"]
    }
