"""Names of the topics a worker reads and writes, without the namespace, and where in them."""

from typing import Final

from schemas.partition import partition_of
from streams.layout import topic_name

REPORTS: Final = "reports"
SLOT_REQUESTS: Final = "slot-requests"
INBOX: Final = "inbox"
INBOX_PARTITIONS: Final = 16


def inbox_topic(namespace: str, pool: str) -> str:
    """Full name of the topic from which workers of a pool read."""
    return topic_name(namespace, f"{INBOX}.{pool}")


def inbox_partition(worker: str) -> int:
    """The one partition of its inbox that a worker reads."""
    return partition_of(worker, INBOX_PARTITIONS)


def pool_limit(pool: str) -> str:
    """Key of a pool's limit: where its offers go."""
    return f"pool:{pool}"
