"""What the log does not show any more, or not yet, is counted and not held against it."""

import msgspec

from processors import topology
from projections.audit.history import NO_BEGINNING
from projections.audit.partition import NEWEST
from schemas.events import ExecutionFired
from streams.ports import Record
from tests.unit.audit.scribe import Scribe, found, violations


def fires(job: str = "cron") -> Scribe:
    scribe = Scribe()
    scribe.put_cron(job, "* * * * *")
    scribe.advance(600_000)
    return scribe


def test_a_transaction_whose_markers_are_still_under_way_is_left_out() -> None:
    scribe = fires()
    scribe.log[topology.EXECUTIONS].pop()
    assert violations(scribe.audit(), "I10"), "else it is torn"
    report = scribe.audit(settled=False)
    assert violations(report, "I10") == []
    assert report.unjudged[NEWEST] == 1


def test_of_a_log_that_was_cut_what_follows_the_cut_is_judged() -> None:
    scribe = fires()
    del scribe.log[topology.EXECUTIONS][:2]
    cut = frozenset({topology.EXECUTIONS})
    report = scribe.audit(cut=cut)
    assert found(report) == []
    assert report.unjudged[NO_BEGINNING] == 1
    del scribe.log[topology.EXECUTIONS][0]
    assert found(scribe.audit(cut=cut)) == [], "nobody can tell this from the cut"
    last = [b for b in scribe.events() if isinstance(b, ExecutionFired)][-2]
    scribe.drop(topology.EXECUTIONS, lambda b: b == last)
    assert violations(scribe.audit(cut=cut), "I12")


def test_a_hole_of_compaction_excuses_what_is_before_it_only() -> None:
    scribe = fires()
    states = scribe.log[topology.JOB_STATE]
    kept = len(states) // 2
    del states[1:kept]
    assert found(scribe.audit()) == []
    del scribe.log[topology.EXECUTIONS][-2]
    scribe.log[topology.EXECUTIONS][-1] = _moved_up(scribe)
    assert violations(scribe.audit(), "I10")


def _moved_up(scribe: Scribe) -> Record:
    """The last record, as if nothing had stood before it."""
    last = scribe.log[topology.EXECUTIONS][-1]
    return msgspec.structs.replace(last, offset=last.offset - 2)
