"""The documentation of the command line says what the command line does."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from horolog.cli.app import app
from horolog.cli.reference import render

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_reference_is_what_the_commands_say() -> None:
    """If not: python -m horolog.cli.reference > docs/reference/cli.md"""
    assert (DOCS / "reference" / "cli.md").read_text("utf-8") == render()


def console_lines() -> list[tuple[str, str]]:
    """Every command line that the documentation shows."""
    found = []
    for page in sorted(DOCS.rglob("*.md")):
        for block in re.findall(r"```console\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            joined = block.replace("\\\n", " ")
            found += [
                (page.name, line.removeprefix("$ ").partition("  #")[0])
                for line in joined.splitlines()
                if line.startswith("$ horolog ")
            ]
    return found


@pytest.mark.parametrize(("page", "line"), console_lines())
def test_every_command_line_in_the_documentation_is_understood(page: str, line: str) -> None:
    words = shlex.split(line)[1:]
    command = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    options = {name: p for p in command.params for name in p.opts}
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    given = 0
    while words:
        word = words.pop(0)
        if word.startswith("-") and word != "-":
            assert word in options, f"{page}: {line}"
            if not options[word].is_flag:
                words.pop(0)
        else:
            given += 1
    assert given <= len(arguments), f"{page}: {line}"
    assert given >= sum(p.required for p in arguments), f"{page}: {line}"


def test_help_is_there_for_every_group() -> None:
    for name in ("", "job", "execution", "cron", "run", "broker", "topics", "help"):
        done = CliRunner().invoke(app, [*filter(None, [name]), "--help"])
        assert done.exit_code == 0
