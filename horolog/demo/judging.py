"""The checker: a process of its own that is told nothing but where the receipts are.

Run as `python -m horolog.demo.judging RECEIPTS END_MS` in the environment of the installation.
Reads the log and writes its verdict, one JSON line, to stdout.
"""

import sys
from contextlib import closing
from pathlib import Path

import msgspec

from horolog import settings
from streams.kafka import KafkaLog

from .check import WANTED, judge
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
    sys.stdout.write(f"{msgspec.json.encode(verdict).decode()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
