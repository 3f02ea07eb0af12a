"""Who reads the target topic: a process of its own that knows nothing of Horolog but the topic.

Run as `python -m horolog.demo.topic_receiver TOPIC`. Reads read_committed from the topic's start
and writes a receipt per record to stdout. When its standard input ends it reads on to what is
committed then, says so, and ends.
"""

import os
import select
import sys
import time

import msgspec

from horolog import settings
from horolog.demo.receipts import End, Receipt
from schemas.units import parse_instant
from streams.kafka import KafkaLog
from streams.ports import Record, TopicPartition

READ_MAX = 1_000
READ_S = 0.1


def main(topic: str) -> int:
    """Read until told to end; exit code 0 only after reading to the committed end."""
    found = settings.load()
    log = KafkaLog(found.kafka.bootstrap, found.kafka.client)
    partitions = [(topic, p) for p in range(log.topics().partitions(topic))]
    reader = log.reader("horolog-demo-receiver", committed=True)
    reader.assign(log.offsets().start(partitions))
    records = 0
    open_ends: dict[TopicPartition, int] | None = None
    while open_ends is None or open_ends:
        seen = reader.read(READ_MAX, READ_S)
        received_ms = time.time_ns() // 1_000_000
        for record in seen:
            _write(receipt_of(record, received_ms))
        records += len(seen)
        sys.stdout.flush()
        if open_ends is None:
            open_ends = log.offsets().stable_end(partitions) if _told_to_end() else None
        if open_ends is not None:
            open_ends = {key: end for key, end in open_ends.items() if reader.position(key) < end}
    _write(End(end=True, records=records))
    reader.close()
    return 0


def receipt_of(record: Record, received_ms: int) -> Receipt:
    """Who this record is for, by its headers alone."""
    headers = {name.lower(): value.decode() for name, value in record.headers}
    return Receipt(
        kind="topic",
        execution_id=headers["ce_id"],
        occurrence=headers["x-deduplication-key"],
        subject=headers["ce_subject"],
        scheduled_ms=parse_instant(headers["x-horolog-scheduled-at"]),
        received_ms=received_ms,
        fence=int(headers.get("x-horolog-fence", 0)),
    )


def _told_to_end() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable) and not os.read(sys.stdin.fileno(), 4_096)


def _write(line: msgspec.Struct) -> None:
    sys.stdout.write(f"{msgspec.json.encode(line).decode()}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
