"""Who may hold how many places: what offers and wants say, and the grants that follow.

`evolve` follows a message, `grant` divides what there is. Of every worker, the sum over partitions
of what each was granted, or holds if that is more, never grows beyond what the worker offers. What
is taken back counts as held until the partition says that it acts on the lower grant; until then
its grant is left as it is, so at most one lowering is under way per partition.

Grants are numbered within an epoch of the partition, which begins with its take-over.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from schemas.slots import (
    Demand,
    Offered,
    Places,
    SlotsGranted,
    SlotState,
    SlotsWanted,
    WorkerOffer,
)

from .slot_board import Board

WORKER_SILENT_MS: Final = 15_000
"""A worker that says nothing for so long gets nothing new. Where leases are shorter, so is this:
what a dead worker is given is lost once, not once again with each lease."""
PARTITION_SILENT_MS: Final = 30_000
"""Of a partition that says nothing for so long only what it holds counts."""
TOLD_NOTHING: Final = -1
"""In `answered`: no grant of this epoch has been made yet, or it must be made again."""


def unknown(limit: str) -> SlotState:
    """What is known of a limit that nobody has spoken of."""
    return SlotState(txn=0, limit=limit, workers={}, partitions={})


# --- following messages ---------------------------------------------------------------------------


def evolve(state: SlotState, message: WorkerOffer | SlotsWanted, now_ms: int) -> SlotState:
    """What is known after a message. One that is older than what is known changes nothing."""
    if isinstance(message, WorkerOffer):
        return _offered(state, message, now_ms)
    name = str(message.partition)
    before = state.partitions.get(name)
    after = _wanted(before, message, now_ms)
    if after is before:
        return state
    return replace(state, partitions={**state.partitions, name: after})


def must_be_kept(before: SlotState, message: WorkerOffer | SlotsWanted) -> bool:
    """Whether a message tells something that a new owner cannot do without. What partitions say
    is said again when it sends its grants; until then it believes them to hold what they may have
    held when it last wrote, which is too much, never too little."""
    if not isinstance(message, WorkerOffer):
        return False
    known = before.workers.get(message.worker)
    return known is None or _terms(known) != _terms(message)


def _terms(offer: WorkerOffer | Offered) -> tuple[object, ...]:
    return offer.inbox_partition, offer.handlers, offer.places, offer.ahead, offer.draining


def _offered(state: SlotState, offer: WorkerOffer, now_ms: int) -> SlotState:
    known = state.workers.get(offer.worker)
    if known is not None and offer.n <= known.n:
        return state
    now = Offered(
        inbox_partition=offer.inbox_partition, handlers=offer.handlers, places=offer.places,
        ahead=offer.ahead, draining=offer.draining, n=offer.n, seen_ms=now_ms,
    )  # fmt: skip
    partitions = state.partitions
    if known is not None and _terms(known)[:2] != _terms(now)[:2]:
        partitions = {
            name: replace(demand, answered=TOLD_NOTHING) if offer.worker in demand.granted
            else demand
            for name, demand in partitions.items()
        }  # fmt: skip
    return replace(state, workers={**state.workers, offer.worker: now}, partitions=partitions)


def _wanted(demand: Demand | None, message: SlotsWanted, now_ms: int) -> Demand:
    # A partition that acts on a grant we never made talked to an owner whose state is lost.
    if demand is None or message.epoch > demand.epoch or (
        message.epoch == demand.epoch and message.answers > demand.grant
    ):  # fmt: skip
        return Demand(
            epoch=message.epoch, n=message.n, seen_ms=now_ms, held=message.held,
            wanted=message.wanted, oldest_ms=_waits_since(None, message, now_ms),
            granted=message.held,
            grant=message.answers, answered=TOLD_NOTHING,
        )  # fmt: skip
    if message.epoch < demand.epoch or message.n <= demand.n:
        return demand
    held = message.held
    if is_lowering(demand) and message.answers < demand.grant:
        held = _highest(held, demand)
    answered = demand.answered
    if answered != TOLD_NOTHING:
        answered = max(answered, message.answers)
    return replace(
        demand, n=message.n, seen_ms=now_ms, held=held, wanted=message.wanted,
        oldest_ms=_waits_since(demand, message, now_ms), answered=answered,
    )  # fmt: skip


def _waits_since(before: Demand | None, message: SlotsWanted, now_ms: int) -> int:
    """Since when the partition waits. One that just had a place waits from then on, whatever is
    overdue there: where there are fewer places than partitions, a backlog keeps none for itself."""
    if not message.wanted:
        return 0
    if before is None:
        return message.oldest_ms or now_ms
    since_ms = message.oldest_ms or before.oldest_ms or now_ms
    if message.held:
        return since_ms
    return max(since_ms, now_ms if before.held else before.oldest_ms)


def is_lowering(demand: Demand) -> bool:
    """Whether the partition may still act on a grant that was higher than the newest."""
    granted = demand.granted
    return demand.answered < demand.grant and any(
        count > granted.get(worker, 0) for worker, count in demand.held.items()
    )


def _highest(held: Mapping[str, int], demand: Demand) -> dict[str, int]:
    """What the partition holds, or may hold by an earlier grant."""
    counts = dict(held)
    for worker, count in demand.held.items():
        if count > demand.granted.get(worker, 0):
            counts[worker] = max(count, counts.get(worker, 0))
    return counts


# --- granting -------------------------------------------------------------------------------------


def grant(
    state: SlotState, now_ms: int, *, settle: bool = False, silent_ms: int = WORKER_SILENT_MS
) -> tuple[SlotState, tuple[SlotsGranted, ...]]:
    """Divide the places: the state afterwards and the grants that changed.

    What is wanted is served first, from what is free, then from what others do not use. What is
    left goes to all partitions ahead of demand. With `settle`, what some partitions have beyond
    their use is taken back as far as others have less: to be done when nothing has been wanted
    for a while, since each move costs two messages.
    """
    board = Board(
        places={
            worker: offer.places + offer.ahead
            for worker, offer in state.workers.items()
            if is_offered(offer, now_ms, silent_ms)
        },
        handlers={worker: offer.handlers for worker, offer in state.workers.items()},
    )
    for name in sorted(state.partitions, key=int):
        demand = state.partitions[name]
        board.add(name, demand, speaks=is_speaking(demand, now_ms), fixed=is_lowering(demand))
    board.divide(settle=settle)
    partitions, changed = dict(state.partitions), []
    for row in board.rows:
        demand = row.demand
        again = demand.answered == TOLD_NOTHING and row.speaks
        if not again and row.granted == demand.granted:
            continue
        partitions[row.name] = replace(
            demand, granted=row.granted, held=row.held, grant=demand.grant + 1,
            answered=demand.grant if demand.answered == TOLD_NOTHING else demand.answered,
        )  # fmt: skip
        changed.append(row.name)
    workers = {
        worker: offer
        for worker, offer in state.workers.items()
        if worker in board.places
        or now_ms - offer.seen_ms < silent_ms
        or any(worker in row.granted or worker in row.held for row in board.rows)
    }
    if not changed and len(workers) == len(state.workers):
        return state, ()
    after = replace(state, workers=workers, partitions=partitions)
    return after, tuple(grant_of(after, name) for name in changed)


def grant_of(state: SlotState, name: str) -> SlotsGranted:
    """The newest grant of a partition, to be sent as often as one likes."""
    demand = state.partitions[name]
    workers = {}
    for worker, count in demand.granted.items():
        offer = state.workers.get(worker)
        if offer is not None and count:
            workers[worker] = Places(
                count=count, inbox_partition=offer.inbox_partition, handlers=offer.handlers
            )
    return SlotsGranted(
        limit=state.limit, partition=int(name), epoch=demand.epoch, n=demand.grant, workers=workers
    )


def is_offered(offer: Offered, now_ms: int, silent_ms: int = WORKER_SILENT_MS) -> bool:
    """Whether a worker may be given something new."""
    return not offer.draining and now_ms - offer.seen_ms < silent_ms


def is_speaking(demand: Demand, now_ms: int) -> bool:
    """Whether a partition has been heard lately."""
    return now_ms - demand.seen_ms < PARTITION_SILENT_MS


def unanswered(state: SlotState, now_ms: int) -> list[str]:
    """Partitions that were heard lately but do not act on their newest grant yet."""
    return [
        name
        for name, demand in state.partitions.items()
        if demand.answered < demand.grant and is_speaking(demand, now_ms)
    ]


def falls_silent_ms(state: SlotState, now_ms: int, silent_ms: int = WORKER_SILENT_MS) -> int | None:
    """When the next worker or partition counts as silent unless it speaks; None: all do."""
    times = [
        offer.seen_ms + silent_ms
        for offer in state.workers.values()
        if now_ms - offer.seen_ms < silent_ms
    ]
    times += [
        demand.seen_ms + PARTITION_SILENT_MS
        for demand in state.partitions.values()
        if is_speaking(demand, now_ms)
    ]
    return min(times, default=None)


def all_seen(state: SlotState, now_ms: int) -> SlotState:
    """As after a take-over: nobody was silent while there was nobody to listen."""
    return replace(
        state,
        workers={w: replace(offer, seen_ms=now_ms) for w, offer in state.workers.items()},
        partitions={n: replace(d, seen_ms=now_ms) for n, d in state.partitions.items()},
    )
