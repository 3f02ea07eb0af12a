"""Writes data to stdout: as a table for people, as one JSON document, or as JSON lines."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from .frame import Format

Row = Mapping[str, Any]


def write_rows(rows: Sequence[Row], columns: Iterable[str], output: Format) -> None:
    """Many things of a kind. Tables show `columns` (names of fields, `_` as a space)."""
    if output is Format.TABLE:
        _write_table(rows, list(columns))
    elif output is Format.JSON:
        _write(msgspec.json.format(msgspec.json.encode(rows), indent=2))
    else:
        for row in rows:
            _write(msgspec.json.encode(row))


def write_one(row: Row, output: Format) -> None:
    """One thing: its fields below each other, or as JSON."""
    if output is Format.TABLE:
        _write_fields(row)
    elif output is Format.JSON:
        _write(msgspec.json.format(msgspec.json.encode(row), indent=2))
    else:
        _write(msgspec.json.encode(row))


def _write_fields(row: Row) -> None:
    width = max(map(len, row), default=0) + 2
    for name, value in row.items():
        lines = value if isinstance(value, list | tuple) else [value]
        for n, line in enumerate(lines or [""]):
            label = f"{name.replace('_', ' ')}:" if n == 0 else ""
            sys.stdout.write(f"{label:<{width}}{_text(line)}\n")


def _write_table(rows: Sequence[Row], columns: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper().replace("_", " "), overflow="fold")
    for row in rows:
        # Text, not markup: a name may hold square brackets.
        table.add_row(*(Text(_text(row.get(column))) for column in columns))
    console = Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = 1_000
    with console.capture() as capture:
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _write(data: bytes) -> None:
    sys.stdout.write(f"{data.decode()}\n")
