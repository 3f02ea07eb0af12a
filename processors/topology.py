"""The topics Horolog uses, as built now, and what each is for."""

from collections.abc import Iterable
from typing import Final

from schemas.limits import POOLS_BUILT
from streams.ports import Produced
from streams.topics import DAY_MS, PER_TASK, TopicSet, TopicSpec

COMMANDS: Final = "commands"
SCHEDULES: Final = "schedules"
JOB_STATE: Final = "job-state"
SCHEDULE_CHANGES: Final = "schedule-changes"
EXECUTIONS: Final = "executions"
DEAD_LETTERS: Final = "dead-letters"
REPLIES: Final = "replies"
QUARANTINE: Final = "quarantine"

REPORTS: Final = "reports"
INBOX: Final = "inbox"
SLOT_REQUESTS: Final = "slot-requests"
SLOT_GRANTS: Final = "slot-grants"
SLOT_STATE: Final = "slot-state"

REPLY_PARTITIONS: Final = 16
INBOX_PARTITIONS: Final = 16


def inbox_of(pool: str) -> str:
    """The topic, without the namespace, on which a pool's workers are told what to do."""
    return f"{INBOX}.{pool}"


def tells_workers(messages: Iterable[Produced]) -> bool:
    """Whether one of the messages goes to a worker's inbox."""
    return any(f".{INBOX}." in message.topic for message in messages)


_EXECUTIONS_MS = 30 * DAY_MS

# Markers of ended transactions live as long as tombstones. A store that was away for longer than
# half of this is wiped, since deletions it has not seen may be gone.
_TOMBSTONES: Final = {"delete.retention.ms": str(DAY_MS)}


def _kept_for(days: int) -> dict[str, str]:
    """Settings of a topic whose records go after so many days, whatever their size."""
    # Only whole segments go, so a segment covers a day at most.
    return {
        "retention.ms": str(days * DAY_MS),
        "retention.bytes": "-1",
        "segment.ms": str(DAY_MS),
    }


TOPICS: Final = (
    # What users ask for. Its append time decides which ticks a command comes before.
    TopicSpec(
        suffix=COMMANDS,
        partitions=PER_TASK,
        cleanup="delete",
        append_time=True,
        settings=_kept_for(7),
    ),
    # The current definition of each job; restores the scheduler.
    TopicSpec(suffix=SCHEDULES, partitions=PER_TASK, cleanup="compact", settings=_TOMBSTONES),
    # What changes with each fire, and the partition's mark, whose append time is the broker's
    # clock. Restoring reads all that is not compacted yet, so segments are small and soon clean.
    TopicSpec(
        suffix=JOB_STATE,
        partitions=PER_TASK,
        cleanup="compact",
        append_time=True,
        settings=_TOMBSTONES
        | {
            "segment.bytes": str(64 * 1024 * 1024),
            "segment.ms": "3600000",
            "min.cleanable.dirty.ratio": "0.1",
            "max.compaction.lag.ms": "3600000",
        },
    ),
    # Every version of every job: the key holds the version, so compaction keeps them all.
    TopicSpec(
        suffix=SCHEDULE_CHANGES, partitions=PER_TASK, cleanup="compact", settings=_TOMBSTONES
    ),
    # Every event of every execution. The compaction lag keeps them apart for as long as they live;
    # compaction only lets a record that is written again under its key replace itself.
    TopicSpec(
        suffix=EXECUTIONS,
        partitions=PER_TASK,
        cleanup="compact,delete",
        settings=_TOMBSTONES
        | {
            "retention.ms": str(_EXECUTIONS_MS),
            "retention.bytes": "-1",
            "min.compaction.lag.ms": str(_EXECUTIONS_MS),
            "segment.ms": str(DAY_MS),
        },
    ),
    # Copies of executions that failed for good, for whoever watches them.
    TopicSpec(suffix=DEAD_LETTERS, partitions=PER_TASK, cleanup="delete", settings=_kept_for(90)),
    # Answers to commands; a reader has one partition.
    TopicSpec(suffix=REPLIES, partitions=REPLY_PARTITIONS, cleanup="delete", settings=_kept_for(7)),
    # Records that cannot be decoded, with where they came from.
    # What workers say about their leases. Its append time is the broker's clock for workers.
    TopicSpec(
        suffix=REPORTS,
        partitions=PER_TASK,
        cleanup="delete",
        append_time=True,
        settings=_kept_for(7),
    ),
    # What workers are told. Read from the end, so it need not be kept.
    *(
        TopicSpec(
            suffix=inbox_of(pool),
            partitions=INBOX_PARTITIONS,
            cleanup="delete",
            settings=_kept_for(1),
        )
        for pool in POOLS_BUILT
    ),
    # Who may run how much: offers and wants, grants, and what the slots processor knows.
    TopicSpec(
        suffix=SLOT_REQUESTS,
        partitions=PER_TASK,
        cleanup="delete",
        append_time=True,
        settings=_kept_for(1),
    ),
    TopicSpec(suffix=SLOT_GRANTS, partitions=PER_TASK, cleanup="delete", settings=_kept_for(1)),
    TopicSpec(
        suffix=SLOT_STATE,
        partitions=PER_TASK,
        cleanup="compact",
        append_time=True,
        settings=_TOMBSTONES | {"segment.bytes": str(64 * 1024 * 1024), "segment.ms": "3600000"},
    ),
    TopicSpec(suffix=QUARANTINE, partitions=PER_TASK, cleanup="delete", settings=_kept_for(30)),
)


def topic_set(namespace: str, partitions: int) -> TopicSet:
    """All topics of an installation with so many partition tasks."""
    return TopicSet(namespace=namespace, partitions=partitions, specs=TOPICS)
