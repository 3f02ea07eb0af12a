"""Which partition a job belongs to: the same on every process, for ever.

`(murmur2(utf-8 of "tenant/job") & 0x7fffffff) mod P`, as Kafka's own default partitioner for
keyed records. Vectors for other languages stand in `partition_vectors.json`.
"""

from confluent_kafka import murmur2


def job_key(tenant: str, job: str) -> str:
    """Key of a job on every topic and in the state store: `tenant/job`."""
    return f"{tenant}/{job}"


def partition_of(key: str, partitions: int) -> int:
    """Partition of a key among `partitions`."""
    return murmur2(key.encode(), partitions)
