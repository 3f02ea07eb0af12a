"""Keys of the state store and of the due index, and the ids that follow from them.

    j/tenant/job    definition          s/tenant/job    state
    i/tenant/job    further command ids d/…             due index
    q/…             what waits for a place

An index key is `d/` + second (5 bytes, big endian) + tenant + 0x00 + millisecond (2 bytes) + job
+ 0x00 + kind + ordinal (2 bytes), so that one ordered scan gives what is due, second by second and
tenant by tenant. Its value is empty: what is due follows from the state.
"""

from enum import IntEnum
from functools import lru_cache
from typing import Final

from schemas.units import format_instant

DEFINITION: Final = b"j/"
STATE: Final = b"s/"
IDS: Final = b"i/"
DUE: Final = b"d/"
QUEUE: Final = b"q/"
IDS_SUFFIX: Final = b"#ids"

_SECOND = slice(2, 7)
TENANT_AT: Final = 7
KIND_AT: Final = -3
"""Where an index key has its kind."""


class Kind(IntEnum):
    """Why an entry is due."""

    TICK = 0
    LEASE = 2
    FORGET = 5


def due_key(due_ms: int, tenant: bytes, job: bytes, kind: int, ordinal: int = 0) -> bytes:
    """Index key of something that `job` has due."""
    return due_form(due_ms, kind, ordinal) % (tenant, job)


@lru_cache(maxsize=4_096)
def due_form(due_ms: int, kind: int, ordinal: int = 0) -> bytes:
    """What becomes an index key by `% (tenant, job)`: many of a step differ in nothing else."""
    second, ms = (part.replace(b"%", b"%%") for part in due_stamp(due_ms))
    number = ordinal.to_bytes(2, "big").replace(b"%", b"%%")
    return b"%b%b%%b\x00%b%%b\x00%c%b" % (DUE, second, ms, kind, number)


def due_stamp(due_ms: int) -> tuple[bytes, bytes]:
    """Second and millisecond as index keys have them."""
    second, ms = divmod(due_ms, 1000)
    return second.to_bytes(5, "big"), ms.to_bytes(2, "big")


def owner_of(key: bytes) -> bytes:
    """Job key of an index key's job."""
    end = key.index(0, TENANT_AT)
    return b"%b/%b" % (key[TENANT_AT:end], key[end + 3 : -4])


def ordinal_of(key: bytes) -> int:
    """Which of the job's executions an index or queue key is about."""
    return int.from_bytes(key[-2:], "big")


def queue_key(
    pool: str, handler: str, tenant: bytes, due_ms: int, job: bytes, ordinal: int
) -> bytes:
    """Key of an execution that waits for a place: by pool and handler, then tenant, then time."""
    return b"%b%b\x00%b%b%b" % (
        _group_prefix(pool, handler), tenant, due_ms.to_bytes(6, "big"), job,
        ordinal.to_bytes(2, "big"),
    )  # fmt: skip


@lru_cache(maxsize=4_096)
def _group_prefix(pool: str, handler: str) -> bytes:
    return b"%b%b\x00%b\x00" % (QUEUE, pool.encode(), handler.encode())


def parse_queue(key: bytes) -> tuple[str, str, bytes, bytes]:
    """Pool, handler, tenant and job key of a queue key."""
    pool, handler, tenant, rest = key[len(QUEUE) :].split(b"\x00", 3)
    return pool.decode(), handler.decode(), tenant, b"%b/%b" % (tenant, rest[6:-2])


def due_ms_of(key: bytes) -> int:
    """When an index key is due, without taking the rest apart."""
    at = key.index(0, TENANT_AT) + 1
    return int.from_bytes(key[_SECOND], "big") * 1000 + int.from_bytes(key[at : at + 2], "big")


def second_and_tenant(key: bytes) -> tuple[int, bytes]:
    """The first two parts of an index key."""
    return int.from_bytes(key[_SECOND], "big"), key[TENANT_AT : key.index(0, TENANT_AT)]


def second_prefix(second: int) -> bytes:
    """What the index keys of one second begin with."""
    return DUE + second.to_bytes(5, "big")


def split_job_key(job_key: bytes) -> tuple[bytes, bytes]:
    """Tenant and job; a tenant id has no slash, and neither has a job id."""
    tenant, _, job = job_key.partition(b"/")
    return tenant, job


def occurrence_of_tick(job_key: str, scheduled_at_ms: int) -> str:
    """Occurrence key of a scheduled tick: the same for every attempt and delivery."""
    return f"{job_key}:{format_instant(scheduled_at_ms)}"


def occurrence_of_trigger(job_key: str, scheduled_at_ms: int, id_hash: bytes) -> str:
    """Occurrence key of a manual run: apart from the tick of the same time, even then."""
    return f"{job_key}:{format_instant(scheduled_at_ms)}~m{id_hash[:4].hex()}"
