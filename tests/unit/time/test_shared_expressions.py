"""Schedules nobody here wrote: what public projects schedule can be scheduled here.

The files are not part of the project, so these tests run only where they lie beside it.
"""

import csv
import json
import os
from pathlib import Path

import pytest

from processors.core.cron import parse_cron
from processors.core.cron_dialects import explain_dialect
from processors.core.cron_text import describe_cron
from processors.core.problem import InvalidSchedule
from processors.core.schedule import CronSchedule, next_tick

DATA = Path(os.environ.get("HOROLOG_SHARED", Path(__file__).parents[4] / "shared")) / "data"
EXPRESSIONS = DATA / "cron_expressions.tsv"
NEVER_FIRING = {"0 0 31 2 *", "0 0 30 2 *"}
REFUSED = NEVER_FIRING | {"@reboot", "H * * * *", "0 24 * * *"}  # no boot, hash, out of range
OTHER_NOTATIONS = ("aws_eventbridge", "cloud_scheduler_words")

pytestmark = pytest.mark.skipif(
    not EXPRESSIONS.exists(), reason="the collected schedules are not there"
)


def rows() -> list[dict[str, str]]:
    with EXPRESSIONS.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def in_another_notation(row: dict[str, str]) -> bool:
    """AWS puts the year last; Google also takes English words."""
    words = row["expression"].startswith("every ")
    return row["kinds"].startswith(OTHER_NOTATIONS) and (words or "?" in row["expression"])


def test_every_expression_is_accepted_but_the_reviewed_ones() -> None:
    refused = set()
    for row in rows():
        try:
            parse_cron(row["expression"])
        except InvalidSchedule:
            if not in_another_notation(row):
                refused.add(row["expression"])
    assert refused == REFUSED


def test_the_aws_expressions_among_them_can_be_converted() -> None:
    found = [r["expression"] for r in rows() if in_another_notation(r) and "?" in r["expression"]]
    assert sorted(explain_dialect(one, "aws").expression for one in found) == [
        "*/10 * * * *",
        "*/5 * * * *",
    ]


def test_every_accepted_pair_of_expression_and_zone_has_a_next_tick_and_a_text() -> None:
    for row in rows():
        if row["expression"] in REFUSED or in_another_notation(row):
            continue
        zone = row["tz"] or "UTC"
        tick = next_tick((CronSchedule(cron=row["expression"], timezone=zone),), 0)
        assert tick is not None
        assert describe_cron(row["expression"], zone).endswith(f"({zone})")


def test_debians_own_entries_are_all_accepted_but_reboot() -> None:
    for line in (DATA / "debian_cron_d.jsonl").read_text("utf-8").splitlines():
        expression = json.loads(line)["expression"]
        if expression != "@reboot":
            parse_cron(expression)
