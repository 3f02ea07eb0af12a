"""One division of a pool's places among partitions, from what they have to what they should have.

Rows are partitions, columns are workers; workers with the same handlers are of one kind, and a
place at one of them is as good as at another.
"""

from collections.abc import Mapping, Sequence

from schemas.slots import Demand

from .slot_shares import Claim, deal, lower_highest, raise_lowest, waits_since


class Row:
    """One partition: what it may hold and what counts as held, by worker, as it will be."""

    __slots__ = ("demand", "fixed", "granted", "has", "held", "lowered", "name", "speaks")

    def __init__(self, name: str, demand: Demand, *, speaks: bool, fixed: bool) -> None:
        self.name = name
        self.demand = demand
        self.speaks = speaks
        self.fixed = fixed and speaks
        self.lowered = self.fixed
        self.granted = {worker: count for worker, count in demand.granted.items() if count}
        self.held = {worker: count for worker, count in demand.held.items() if count}
        self.has: list[int] = []
        """What it was granted, by kind of worker."""

    def counted(self, worker: str) -> int:
        """Places of a worker that nobody else may have."""
        return max(self.granted.get(worker, 0), self.held.get(worker, 0))

    def unused(self, worker: str) -> int:
        """Places granted and, as far as it was said, not used."""
        return max(0, self.granted.get(worker, 0) - self.demand.held.get(worker, 0))


class Board:
    """Divides `places`, by worker, among the rows. `handlers` knows every worker's."""

    def __init__(
        self, *, places: Mapping[str, int], handlers: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.places = places
        self.rows: list[Row] = []
        self._kinds: list[list[str]] = []
        self._kind_of: dict[str, int] = {}
        self._serving: dict[str, list[int]] = {}
        by_handlers: dict[tuple[str, ...], int] = {}
        for worker in sorted(places):
            kind = by_handlers.setdefault(handlers[worker], len(self._kinds))
            if kind == len(self._kinds):
                self._kinds.append([])
                for handler in set(handlers[worker]):
                    self._serving.setdefault(handler, []).append(kind)
            self._kinds[kind].append(worker)
            self._kind_of[worker] = kind
        self._granted = dict.fromkeys(places, 0)
        self._used = dict.fromkeys(places, 0)

    def add(self, name: str, demand: Demand, *, speaks: bool, fixed: bool) -> None:
        """Add a partition. A `fixed` one is left as it is, one that does not speak loses what it
        does not hold."""
        self.rows.append(Row(name, demand, speaks=speaks, fixed=fixed))

    def divide(self, *, settle: bool) -> None:
        """Change what rows are granted, as `slots.grant` says."""
        active = [row for row in self.rows if row.speaks and not row.fixed]
        self._withdraw()
        self._count()
        self._shrink(active)
        if not active:
            return
        targets = deal(self._capacity(), self._serving, [self._claim(row) for row in active])
        for kind in range(len(self._kinds)):
            wanted = [target[kind] for target in targets]
            if self._serve(kind, active, wanted) and settle:
                self._settle(kind, active, wanted)

    # --- before anything is given ----------------------------------------------------------------

    def _withdraw(self) -> None:
        """Nothing is granted to partitions that are silent, and of workers that offer nothing."""
        for row in self.rows:
            if not row.speaks:
                row.granted = {}
            elif not row.fixed:
                for worker in [worker for worker in row.granted if worker not in self.places]:
                    self._keep_as_held(row, worker)
                    del row.granted[worker]

    def _count(self) -> None:
        for row in self.rows:
            row.has = self._by_kind(row.granted)
            for worker, count in row.granted.items():
                if worker in self.places:
                    self._granted[worker] += count
                    self._used[worker] += count
            for worker, count in row.held.items():
                if worker in self.places:
                    self._used[worker] += max(0, count - row.granted.get(worker, 0))

    def _shrink(self, active: Sequence[Row]) -> None:
        """Take back what a worker no longer offers."""
        for worker, places in self.places.items():
            excess = self._granted[worker] - places
            if excess > 0:
                having = [row for row in active if worker in row.granted]
                granted = [row.granted[worker] for row in having]
                taken = _take(granted, [row.unused(worker) for row in having], excess)
                for row, count in zip(having, taken, strict=True):
                    self._lower(row, worker, count)

    def _capacity(self) -> list[int]:
        """By kind, what there will be for the active rows once every lowering is answered."""
        capacity = self._by_kind(self.places)
        for row in self.rows:
            if row.fixed or not row.speaks:
                others = row.has if row.fixed else self._by_kind(row.held)
                capacity = [all_ - own for all_, own in zip(capacity, others, strict=True)]
        return capacity

    def _claim(self, row: Row) -> Claim:
        demand = row.demand
        return Claim(
            held=self._by_kind(demand.held),
            granted=list(row.has),
            wanted=demand.wanted,
            oldest_ms=demand.oldest_ms,
        )

    def _by_kind(self, counts: Mapping[str, int]) -> list[int]:
        sums, kind_of = [0] * len(self._kinds), self._kind_of
        for worker, count in counts.items():
            kind = kind_of.get(worker)
            if kind is not None:
                sums[kind] += count
        return sums

    # --- one kind of worker ----------------------------------------------------------------------

    def _serve(self, kind: int, active: Sequence[Row], wanted: Sequence[int]) -> bool:
        """Give each row what it should have, as far as it is free, and take from the others what
        is missing. If nothing is, give what is left to all: whether nothing is missing."""
        ages = [waits_since(row.demand.oldest_ms) for row in active]
        has = [row.has[kind] for row in active]
        missing = 0
        needy = [i for i, count in enumerate(has) if wanted[i] > count]
        for i in sorted(needy, key=lambda i: (has[i], ages[i])):
            count = wanted[i] - has[i]
            count -= self._give_back(active[i], kind, count)
            missing += count - self._give(active[i], kind, count)
        if missing:
            spare = [max(0, have - want) for have, want in zip(has, wanted, strict=True)]
            taken = lower_highest(spare, max(0, missing - self._under_way(kind)), has)
            for row, count in zip(active, taken, strict=True):
                self._take_back(row, kind, count)
            return False
        free = sum(self._free(worker) for worker in self._kinds[kind])
        if free:
            has = [row.has[kind] for row in active]
            for row, before, after in zip(active, has, raise_lowest(has, free, ages), strict=True):
                self._give(row, kind, after - before)
        return True

    def _settle(self, kind: int, active: Sequence[Row], wanted: Sequence[int]) -> None:
        """Take from rows with more than their share what others have less than theirs."""
        has = [row.has[kind] for row in active]
        # A row keeps what does not go round if it has it: nothing moves for its own sake.
        first = [-count for count in has]
        shares = raise_lowest(wanted, sum(has) - sum(wanted), first)
        for row, count, share in zip(active, has, shares, strict=True):
            self._take_back(row, kind, count - share)

    def _under_way(self, kind: int) -> int:
        """Places that will be free once what was taken back is answered."""
        return sum(
            max(0, count - row.granted.get(worker, 0))
            for row in self.rows
            if row.lowered
            for worker, count in row.held.items()
            if self._kind_of.get(worker) == kind
        )

    def _free(self, worker: str) -> int:
        return max(0, self.places[worker] - self._used[worker])

    def _give_back(self, row: Row, kind: int, most: int) -> int:
        """Grant what the row holds beyond its grant, which nobody else could have, as long as the
        worker still offers as much as is granted; how many it were."""
        left = most
        for worker, held in row.held.items():
            if self._kind_of.get(worker) == kind:
                count = held - row.granted.get(worker, 0)
                count = min(left, count, self.places[worker] - self._granted[worker])
                if count > 0:
                    self._raise(row, worker, count)
                    left -= count
        return most - left

    def _give(self, row: Row, kind: int, most: int) -> int:
        """Grant free places, at the workers that have most; how many it were."""
        if most <= 0:
            return 0
        free = {worker: count for worker in self._kinds[kind] if (count := self._free(worker))}
        given = lower_highest([*free.values()], most, [row.granted.get(w, 0) for w in free])
        for worker, count in zip(free, given, strict=True):
            if count:
                self._raise(row, worker, count)
        return sum(given)

    def _take_back(self, row: Row, kind: int, count: int) -> None:
        if count <= 0:
            return
        having = [worker for worker in row.granted if self._kind_of.get(worker) == kind]
        granted = [row.granted[worker] for worker in having]
        taken = _take(granted, [row.unused(worker) for worker in having], count)
        for worker, amount in zip(having, taken, strict=True):
            self._lower(row, worker, amount)

    # --- one place after the other ---------------------------------------------------------------

    def _raise(self, row: Row, worker: str, count: int) -> None:
        before = row.counted(worker)
        row.granted[worker] = row.granted.get(worker, 0) + count
        row.has[self._kind_of[worker]] += count
        self._granted[worker] += count
        self._used[worker] += row.counted(worker) - before

    def _lower(self, row: Row, worker: str, count: int) -> None:
        if not count:
            return
        self._keep_as_held(row, worker)
        row.granted[worker] -= count
        if not row.granted[worker]:
            del row.granted[worker]
        row.has[self._kind_of[worker]] -= count
        self._granted[worker] -= count

    def _keep_as_held(self, row: Row, worker: str) -> None:
        """What is taken back counts as held until the partition says that it knows."""
        row.held[worker] = max(row.held.get(worker, 0), row.granted[worker])
        row.lowered = True


def _take(granted: Sequence[int], unused: Sequence[int], amount: int) -> list[int]:
    """How much to take of each of several grants: first what is not used."""
    order = range(len(granted))
    taken = lower_highest(unused, amount, order)
    rest = amount - sum(taken)
    if not rest:
        return taken
    left = [have - gone for have, gone in zip(granted, taken, strict=True)]
    more = lower_highest(left, rest, order)
    return [first + then for first, then in zip(taken, more, strict=True)]
