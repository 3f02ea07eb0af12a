"""The checker: a process of its own that is told nothing but where the receipts are.

Run as `python -m horolog.demo.judging RECEIPTS END_MS` in the environment of the installation.
Reads the log and writes its verdict, one JSON line, to stdout; what the auditor of the whole log
finds is part of it.
"""

import sys
from contextlib import closing
from pathlib import Path

import msgspec

from horolog import settings
from processors.core.zones import PINNED
from projections.audit.audit import audit
from projections.audit.finding import Report as AuditReport
from projections.audit.lines import read_receipts
from streams.kafka import KafkaLog

from .check import FINDINGS_SHOWN, WANTED, Verdict, judge
from .evidence import Evidence, spans_of
from .receipts import Receipt


def main(receipts: Path, end_ms: int) -> int:
    """Judge; exit code 0 whatever the verdict."""
    found = settings.load()
    log = KafkaLog(found.kafka.bootstrap, found.kafka.client)
    decoder = msgspec.json.Decoder(Receipt)
    seen = [decoder.decode(line) for line in receipts.read_bytes().splitlines()]
    with closing(Evidence(log, found.namespace, found.partitions)) as evidence:
        evidence.catch_up()
    verdict = judge(
        spans_of(evidence.changes, end_ms), evidence.fired, evidence.moved, evidence.missed, seen,
        wanted=WANTED,
    )  # fmt: skip
    report = audit(
        log, found.namespace, tz=PINNED.version,
        receipts=read_receipts("receipts", receipts.read_bytes().splitlines()),
    )  # fmt: skip
    told = audited(verdict, report)
    sys.stdout.write(f"{msgspec.json.encode(told).decode()}\n")
    return 0


def audited(verdict: Verdict, report: AuditReport) -> Verdict:
    """The verdict with what the auditor says."""
    shown = tuple(
        f"{one.check}: {one.where}: {one.what}" for result in report.results for one in result.shown
    )
    return msgspec.structs.replace(
        verdict, ok=verdict.ok and report.ok, audited=report.transactions,
        violated=sum(result.violations for result in report.results),
        findings=(*verdict.findings, *shown)[:FINDINGS_SHOWN],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
