"""The README's first hour, done line by line: what it says happens, happens.

In an empty folder that has the checkout's `.venv`, with other ports. A comment above each block
says how it is run; in what is shown, `…` stands for anything.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from horolog.broker import server

ROOT = Path(__file__).resolve().parents[2]
SECTION = "## The first hour"
SHOWN_S = 60.0
COMMAND_S = 90.0
BLOCK = re.compile(r"(?:<!-- ([^\n]*?) -->\n)?```(\w*)\n(.*?)```", re.DOTALL)
KEEP = re.compile(r'keep running until "(.*)"')


class Block(NamedTuple):
    how: str
    language: str
    text: str

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Commands, each with what is shown of its output."""
        found = []
        for step in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command = re.match(r"(?:\\\n|'[^']*'|[^'\n])*", step)
            assert command is not None
            found.append((command[0], step[command.end() :].strip()))
        return found


def blocks() -> list[Block]:
    """The blocks of the section, in order."""
    text = (ROOT / "README.md").read_text("utf-8")
    _, _, rest = text.partition(f"\n{SECTION}\n")
    section, _, _ = rest.partition("\n## ")
    return [Block(*found) for found in BLOCK.findall(section)]


def shows(output: str, shown: str) -> bool:
    """Whether this is what the README shows; `…` is anything, and so is all that follows."""
    pattern = ".*".join(re.escape(part) for part in shown.split("…"))
    return re.match(pattern, output, re.DOTALL) is not None


class Reader:
    """Somebody at a terminal who types what the README says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = _free_ports(2)
        self.replaced = {"127.0.0.1:8765": f"127.0.0.1:{ports[0]}", "8000": str(ports[1])}
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HOROLOG_") or name == "HOROLOG_JAVA"
        }
        clean.pop("KAFKA_BOOTSTRAP_SERVERS", None)
        self.environment = clean | {
            "HOROLOG_GATEWAY__PORT": str(ports[0]), "HOROLOG_PARTITIONS": "3",
        }  # fmt: skip
        self.running: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def follow(self, block: Block) -> None:
        """Do what the block says."""
        kept = KEEP.fullmatch(block.how)
        if block.how.startswith("file "):
            (self.folder / block.how.removeprefix("file ")).write_text(block.text)
        elif kept is not None:
            ((command, _),) = block.steps
            self._keep(command, kept[1])
        else:
            assert block.how in ("run", "repeat"), f"how is this to be run? {block}"
            for command, shown in block.steps:
                self._run(command, shown, repeat=block.how == "repeat")

    def _run(self, command: str, shown: str, *, repeat: bool) -> None:
        give_up_s = time.monotonic() + SHOWN_S
        while True:
            done = subprocess.run(
                ["bash", "-c", self._here(command)], cwd=self.folder, env=self.environment,
                capture_output=True, text=True, timeout=COMMAND_S, check=False,
            )  # fmt: skip
            told = f"$ {command}\n{done.stdout}{done.stderr}"
            assert done.returncode == 0, told
            if shows(done.stdout, shown):
                return
            assert repeat, told
            assert time.monotonic() < give_up_s, told
            time.sleep(0.1)

    def _keep(self, command: str, until: str) -> None:
        log = self.folder / f"{len(self.running)}.log"
        with log.open("wb") as lines:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self._here(command)}"], cwd=self.folder,
                env=self.environment, stdout=lines, stderr=lines,
            )  # fmt: skip
        self.running.append((command, process, log))
        give_up_s = time.monotonic() + SHOWN_S
        while until not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < give_up_s, log.read_text()
            time.sleep(0.05)
        found = re.search(r"^ *Kafka +(\S+) \(embedded\)$", log.read_text(), re.MULTILINE)
        if found is not None:
            self.replaced["KAFKA"] = found[1]

    def _here(self, command: str) -> str:
        for old, new in self.replaced.items():
            command = command.replace(old, new)
        return command

    def end(self) -> dict[str, int]:
        """Ctrl-C in every terminal, the last one first; the exit codes."""
        ends = {}
        while self.running:
            command, process, _ = self.running.pop()
            process.send_signal(signal.SIGINT)
            ends[command.strip()] = process.wait(60)
        return ends

    def close(self) -> None:
        for _, process, _ in self.running:
            process.kill()
            process.wait()
        server.stop(self.folder / ".horolog" / "broker")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    found = Reader(tmp_path)
    yield found
    found.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README asks by curl: install it")
@pytest.mark.timeout(420)
def test_the_first_hour_of_the_readme_is_true(reader: Reader) -> None:
    for block in blocks():
        reader.follow(block)
    ends = reader.end()
    up = ".venv/bin/horolog up"
    assert ends.pop(up) == 0
    assert ends.pop(".venv/bin/horolog worker jobs:app") == 0
    assert (reader.folder / ".horolog").is_dir(), "the data folder is kept"


def test_the_first_hour_has_every_way_to_register_a_job_and_every_kind_of_target() -> None:
    text = "".join(block.text for block in blocks())
    for way in ("horolog job put", "curl -sS -X PUT", "@app.schedule", "producer.produce"):
        assert way in text
    for target in ("--topic", "--http", "@app.task"):
        assert target in text


def test_commands_are_parted_from_what_they_show() -> None:
    block = Block("run", "console", "$ one \\\n    'a\n b' \\\n  -c\nshown\n…\n$ two # why\n")
    assert block.steps == [("one \\\n    'a\n b' \\\n  -c", "shown\n…"), ("two # why", "")]


@pytest.mark.parametrize(
    ("output", "shown", "same"),
    [
        ("a\nb\n", "", True), ("a\nb\n", "a", True), ("a\nb\n", "b", False),
        ("a\nb\n", "…b", True), ("a (x)\n", "a (…)", True), ("a\n", "a…c", False),
    ],
)  # fmt: skip
def test_what_is_shown_may_leave_things_out_but_says_nothing_else(
    output: str, shown: str, same: bool
) -> None:
    assert shows(output, shown) is same


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
