"""From the entries of a crontab to jobs as `apply` reads them."""

import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.limits import JOB_CHARS_MAX

from .crontab import Crontab, CrontabEntry

_SLUG_CHARS: Final = 48
_NO_PART_OF_A_NAME: Final = re.compile(r"[^A-Za-z0-9]+", re.ASCII)


def jobs_of(
    crontab: Crontab, target: Mapping[str, Any], *, timezone: str, prefix: str = ""
) -> list[dict[str, Any]]:
    """A document for every entry: `kind`, `job` and `definition`.

    The payload is what cron would give to the command: `command`, `user`, `environment`, `stdin`.
    Entries under no CRON_TZ run on the clock of `timezone`. Ids follow from the commands, so that
    another schedule is a change of the job and no other job.
    """
    taken: set[str] = set()
    documents = []
    for entry in crontab.entries:
        job = _job_id(prefix, entry.command, taken)
        taken.add(job)
        definition = {
            "name": entry.command if len(entry.command) <= 100 else entry.command[:99] + "…",
            "schedules": [{"cron": entry.expression, "timezone": entry.timezone or timezone}],
            "target": dict(target),
            "payload": payload_of(entry),
        }
        documents.append({"kind": "job", "job": job, "definition": definition})
    return documents


def payload_of(entry: CrontabEntry) -> dict[str, Any]:
    """What cron would hand to the command; a personal table has no `user`, most have no `stdin`."""
    given: dict[str, Any] = {"command": entry.command}
    if entry.user is not None:
        given["user"] = entry.user
    given["environment"] = dict(entry.environment)
    if entry.stdin is not None:
        given["stdin"] = entry.stdin
    return given


def _job_id(prefix: str, command: str, taken: set[str]) -> str:
    slug = _NO_PART_OF_A_NAME.sub("-", command).strip("-").lower()[:_SLUG_CHARS].strip("-")
    base = f"{prefix}{slug or 'command'}"
    wanted, n = base[:JOB_CHARS_MAX], 1
    while wanted in taken:
        n += 1
        wanted = f"{base[: JOB_CHARS_MAX - len(str(n)) - 1]}-{n}"
    return wanted
