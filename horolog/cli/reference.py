"""Writes the reference of the command line from the commands themselves.

`python -m horolog.cli.reference > docs/reference/cli.md`; a test keeps the page true.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final

from typer.main import get_command

from .app import app
from .frame import EXIT_CODES, WHICH, which_options

INTRO: Final = """\
# The command line

Generated from the commands by `python -m horolog.cli.reference`.

`horolog NOUN VERB` writes data to stdout and everything else to stderr. Commands that list or get
something take `-o table|json|jsonl`. `json` and `jsonl` are stable: fields may be added, never
renamed or removed. Instants are UTC with milliseconds, durations as `1h30m`.

## When something is wrong

A command ends with one `error: …` line, a line for every wrong field, and `hint: …` where there is
one. Under `-o json` and `-o jsonl` stderr holds one JSON object instead: `kind`, `message`,
`problems` (each with `field`, `message`, `hint`) and, where known, `hint`, `tenant`, `job`,
`command_id`.
"""

SETTINGS: Final = """\
## Which Horolog is meant

Commands that talk to an installation take these options, each those that count for it. They are
also settings: a flag comes before the environment, the environment before `horolog.toml` in the
current folder, that before the default. An unknown setting is an error.

| setting | in the environment | in the file | default |
|---|---|---|---|
| namespace | `HOROLOG_NAMESPACE` | `namespace` | `horolog` |
| partitions | `HOROLOG_PARTITIONS` | `partitions` | `12` |
| schedulers of `horolog up` | `HOROLOG_SCHEDULERS` | `schedulers` | `2` |
| data folder | `HOROLOG_DATA_DIR` | `data_dir` | `.horolog` |
| tenant | `HOROLOG_TENANT` | `tenant` | `default` |
| lease | `HOROLOG_LEASE_MS` | `lease_ms` | `60000`, the same on every scheduler and worker |
| Kafka | `KAFKA_BOOTSTRAP_SERVERS`, then `HOROLOG_KAFKA__BOOTSTRAP` | `[kafka] bootstrap` | the \
embedded one of the data folder |
| client settings | `HOROLOG_KAFKA__CLIENT` (JSON) | `[kafka.client]` | none |
| private networks that HTTP jobs may call | `HOROLOG_HTTP__ALLOWED_CIDRS` (with commas) | \
`[http] allowed_cidrs` | none; any under `horolog up` |
| plain http | `HOROLOG_HTTP__ALLOW_PLAIN_HTTP` | `[http] allow_plain_http` | `false`; `true` \
under `horolog up` |
| gateway | `HOROLOG_GATEWAY__HOST`, `HOROLOG_GATEWAY__PORT` | `[gateway] host`, `port` | \
`127.0.0.1`, `8765`; a free one under `horolog up` if that is taken |
| a gateway that others reach | `HOROLOG_GATEWAY__INSECURE_WITHOUT_AUTH` | \
`[gateway] insecure_without_auth` | `false` |
| names by which such a gateway is called | `HOROLOG_GATEWAY__NAMES` (with commas) | \
`[gateway] names` | any; a loopback one only by its own |
| probes and `/metrics` of other services | `HOROLOG_MONITOR__HOST`, `HOROLOG_MONITOR__PORT` | \
`[monitor] host`, `port` | `127.0.0.1`, `0`: nowhere |

`horolog up` allows HTTP jobs more only on a Kafka that this machine alone can reach, and only if \
nothing is set. `horolog config show --origin` tells which source each value came from.

What stands under `[kafka.client]` goes verbatim to every Kafka client, such as
`"sasl.password" = "…"` (names in quotes), and is never shown or logged. `HOROLOG_CONFIG` names
another file.
"""


def render() -> str:
    """The whole page."""
    parts = [INTRO, _exit_codes(), SETTINGS, _table(which_options()), "## Commands\n"]
    for path, command in _leaves(get_command(app), "horolog"):
        parts.append(_section(path, command))
    return "\n".join(parts)


def _exit_codes() -> str:
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(["| exit code | means |", "|---|---|", *rows, ""])


def _leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from _leaves(child, f"{path} {name}")


def _section(path: str, command: Any) -> str:
    parameters = [p for p in command.params if not getattr(p, "hidden", False)]
    which = [f"`{p.opts[0]}`" for p in parameters if p.name in WHICH]
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    options = [
        (", ".join(f"`{decl}`" for decl in [*p.opts, *p.secondary_opts]) + _value(p), _help(p))
        for p in parameters
        if p.param_type_name == "option" and p.name not in (*WHICH, "help")
    ]
    usage = " ".join([path, *(p.metavar for p in arguments), *(["[OPTIONS]"] if options else [])])
    lines = [f"### {path}\n", f"`{usage}`\n", command.help.replace("\n", " ").replace("  ", "\n\n")]
    parts = ["\n".join([*lines, ""])]
    parts += [_table(options)] if options else []
    parts += [f"Which Horolog: {', '.join(which)}.\n"] if which else []
    return "\n".join(parts)


def _table(options: list[tuple[str, str]]) -> str:
    rows = [f"| {names if '`' in names else f'`{names}`'} | {told} |" for names, told in options]
    return "\n".join(["| option | |", "|---|---|", *rows, ""])


def _value(parameter: Any) -> str:
    if parameter.is_flag:
        return ""
    shown = parameter.metavar.replace("|", "\\|")
    return f" {shown}" + (", may be repeated" if parameter.multiple else "")


def _help(parameter: Any) -> str:
    text: str = parameter.help.replace("  [", " [").replace("|", "\\|")
    default = parameter.default
    if default in (None, "", False) or callable(default) or "[default" in text:
        return text
    return f"{text} [default: {getattr(default, 'value', default)}]"


if __name__ == "__main__":
    sys.stdout.write(render())
