"""What lies outside the log: receipts of instrumented targets, and logs of clients, as JSON lines.

A line may have more fields than are read here. Lines of a client's log that are no acknowledgement
say nothing and are passed over.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from schemas.units import Unreadable, parse_instant

from .causes import Acknowledged
from .receipts import Receipt


class BadLine(ValueError):
    """A line that cannot be read: says which, what is wrong, and what would be right."""


def read_receipts(name: str, lines: Iterable[bytes]) -> Iterator[Receipt]:
    """One receipt a line: `execution_id` and `received_ms` (UTC ms) or `received_at` (an instant),
    and where noted `delivery` and `fence`. A line with `end` ends a receiver's output. Raises
    `BadLine`."""
    for where, raw in _objects(name, lines):
        if "end" in raw:
            continue
        execution_id = raw.get("execution_id")
        if not isinstance(execution_id, str) or "/" not in execution_id.partition(":")[0]:
            raise BadLine(f"{where}: execution_id is {execution_id!r}; such as "
                          "default/job:2026-03-29T01:30:00.000Z:1")  # fmt: skip
        yield Receipt(
            execution_id=execution_id, received_ms=_received_ms(where, raw),
            delivery=_whole(where, raw, "delivery", 1), fence=_whole(where, raw, "fence", 0),
            where=where,
        )  # fmt: skip


def read_client_log(name: str, lines: Iterable[bytes]) -> Iterator[Acknowledged]:
    """Each line with `tenant`, `job` and `sequence` is an acknowledged command, as
    `horolog job … -o jsonl` writes it; `execution_id` names a run that it asked for. Raises
    `BadLine`."""
    for where, raw in _objects(name, lines):
        tenant, job = raw.get("tenant"), raw.get("job")
        if "sequence" not in raw or not isinstance(tenant, str) or not isinstance(job, str):
            continue
        execution_id = raw.get("execution_id") or ""
        if not isinstance(execution_id, str):
            raise BadLine(f"{where}: execution_id is {execution_id!r}, not a text")
        yield Acknowledged(
            job=f"{tenant}/{job}", sequence=_whole(where, raw, "sequence", 0),
            execution_id=execution_id, where=where,
        )  # fmt: skip


def _objects(name: str, lines: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{name}:{n}"
        try:
            raw = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise BadLine(f"{where}: not JSON: {error}; one object a line is read") from error
        if not isinstance(raw, dict):
            raise BadLine(f"{where}: not an object; one object a line is read")
        yield where, raw


def _received_ms(where: str, raw: dict[str, Any]) -> int:
    at = raw.get("received_at")
    if "received_ms" in raw or at is None:
        return _whole(where, raw, "received_ms", None)
    if isinstance(at, int):
        return at
    try:
        return int(parse_instant(at))
    except (Unreadable, TypeError) as error:
        raise BadLine(f"{where}: received_at is {at!r}; such as 2026-03-29T01:30:00.000Z, or "
                      "milliseconds since 1970") from error  # fmt: skip


def _whole(where: str, raw: dict[str, Any], field: str, default: int | None) -> int:
    value = raw.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadLine(f"{where}: {field} is {value!r}; a whole number, 0 or above")
    return value
