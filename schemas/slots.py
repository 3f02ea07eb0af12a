"""Who may run how much: offers of workers, wants of partitions, grants, and what is known.

Every message is absolute and numbered, so a lost one is made good by the next.
"""

import msgspec


class WorkerOffer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a worker can take. `worker` is its name and a random start, `lease_ms` the length of a
    lease that it goes by (0: not said)."""

    pool: str
    worker: str
    inbox_partition: int
    handlers: tuple[str, ...]
    places: int
    ahead: int
    draining: bool
    n: int
    lease_ms: int = 0


class SlotsWanted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a scheduler partition holds and wants of a limit, and the length of the leases that it
    gives (0: not said)."""

    limit: str
    partition: int
    epoch: int
    n: int
    held: dict[str, int]
    wanted: dict[str, int]
    oldest_ms: int
    answers: int
    lease_ms: int = 0


class Places(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Places of one worker."""

    count: int
    inbox_partition: int
    handlers: tuple[str, ...]


class SlotsGranted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a partition may hold of a limit: replaces every earlier grant."""

    limit: str
    partition: int
    epoch: int
    n: int
    workers: dict[str, Places]


class Offered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of one worker."""

    inbox_partition: int
    handlers: tuple[str, ...]
    places: int
    ahead: int
    draining: bool
    n: int
    seen_ms: int


class Demand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of one scheduler partition."""

    epoch: int
    n: int
    seen_ms: int
    held: dict[str, int]
    wanted: dict[str, int]
    oldest_ms: int
    granted: dict[str, int]
    grant: int
    answered: int


class SlotState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything about one limit; `partitions` by their number as text."""

    txn: int
    limit: str
    workers: dict[str, Offered]
    partitions: dict[str, Demand]
