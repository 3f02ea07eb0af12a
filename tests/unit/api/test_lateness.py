"""Which events count as lateness, and how they are told."""

from typing import Any

import pytest

from api.lateness import Lateness
from projections.executions import Execution


def event(**changes: Any) -> Execution:
    values: dict[str, Any] = {
        "tenant": "t", "job": "j", "life": 1, "sequence": 1, "state": "SUCCEEDED", "reason": "",
        "detail": "", "scheduled_at": 1_000, "last_scheduled_at": 1_000, "due_at": 1_000,
        "claimed_at": 1_004, "at": 1_100, "version": 1, "execution_id": "t/j:x:1", "attempt": 1,
        "delivery": 1, "started_at": 1_020,
    }  # fmt: skip
    return Execution(**(values | changes))


def counted(*events: Execution) -> dict[str, float]:
    lateness = Lateness()
    for one in events:
        lateness.take(one)
    return {
        f"{sample.name}{sample.labels.get('le', '')}": sample.value
        for metric in lateness.metrics()
        for sample in metric.samples
    }


def test_an_outcome_counts_from_the_time_of_the_run_to_its_start() -> None:
    told = counted(event())
    assert told["horolog_lateness_seconds_count"] == 1
    assert told["horolog_lateness_seconds_sum"] == 0.02
    assert told["horolog_lateness_seconds_bucket0.015"] == 0
    assert told["horolog_lateness_seconds_bucket0.031"] == 1
    assert told["horolog_claim_lateness_seconds_count"] == 0


def test_a_claim_is_another_figure() -> None:
    told = counted(event(at=1_004, state="QUEUED", delivery=0, started_at=0))
    assert told["horolog_lateness_seconds_count"] == 0
    assert told["horolog_claim_lateness_seconds_sum"] == 0.004


@pytest.mark.parametrize(
    "changes",
    [
        {"delivery": 2}, {"lost": 1}, {"attempt": 2}, {"state": "RUNNING"},
        {"reason": "lease_closed"}, {"execution_id": ""}, {"count": 5}, {"started_at": 0},
    ],
    ids=str,
)  # fmt: skip
def test_repeats_and_what_did_not_run_do_not_count(changes: dict[str, Any]) -> None:
    assert counted(event(**changes))["horolog_lateness_seconds_count"] == 0


def test_what_began_early_by_another_clock_counts_as_in_time() -> None:
    assert counted(event(started_at=990))["horolog_lateness_seconds_bucket0.0"] == 1
