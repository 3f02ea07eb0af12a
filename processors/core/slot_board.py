"""One division of a pool's places among partitions, from what they have to what they should have.

Rows are partitions, columns are workers; workers with the same handlers are of one kind, and a
place at one of them is as good as at another.
"""

from collections.abc import Iterable, Mapping, Sequence

from schemas.slots import Demand

from .slot_shares import Claim, deal, lower_highest, raise_lowest, waits_since


class Row:
    """One partition: what it may hold and what counts as held, by worker, as it will be."""

    __slots__ = ("demand", "fixed", "granted", "held", "lowered", "name", "speaks")

    def __init__(self, name: str, demand: Demand, *, speaks: bool, fixed: bool) -> None:
        self.name = name
        self.demand = demand
        self.speaks = speaks
        self.fixed = fixed and speaks
        self.lowered = self.fixed
        self.granted = {worker: count for worker, count in demand.granted.items() if count}
        self.held = {worker: count for worker, count in demand.held.items() if count}

    def counted(self, worker: str) -> int:
        """Places of a worker that nobody else may have."""
        return max(self.granted.get(worker, 0), self.held.get(worker, 0))

    def unused(self, worker: str) -> int:
        """Places granted and, as far as it was said, not used."""
        return max(0, self.granted.get(worker, 0) - self.demand.held.get(worker, 0))

    def lower(self, worker: str, count: int) -> None:
        """Take back; it counts as held until the partition says that it knows."""
        if not count:
            return
        before = self.granted[worker]
        self.held[worker] = max(self.held.get(worker, 0), before)
        self.lowered = True
        if before == count:
            del self.granted[worker]
        else:
            self.granted[worker] = before - count


class Board:
    """Divides `places`, by worker, among the rows. `handlers` knows every worker's."""

    def __init__(
        self, *, places: Mapping[str, int], handlers: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.places = places
        self.rows: list[Row] = []
        self.kinds: list[list[str]] = []
        self.serving: dict[str, list[int]] = {}
        by_handlers: dict[tuple[str, ...], int] = {}
        for worker in sorted(places):
            kind = by_handlers.setdefault(handlers[worker], len(self.kinds))
            if kind == len(self.kinds):
                self.kinds.append([])
                for handler in set(handlers[worker]):
                    self.serving.setdefault(handler, []).append(kind)
            self.kinds[kind].append(worker)
        self._used: dict[str, int] = {}

    def add(self, name: str, demand: Demand, *, speaks: bool, fixed: bool) -> None:
        """Add a partition. A `fixed` one is left as it is, one that does not speak loses what it
        does not hold."""
        self.rows.append(Row(name, demand, speaks=speaks, fixed=fixed))

    def divide(self, *, settle: bool) -> None:
        """Change what rows are granted, as `slots.grant` says."""
        for row in self.rows:
            if not row.speaks:
                row.granted = {}
        active = [row for row in self.rows if row.speaks and not row.fixed]
        for row in active:
            for worker in [w for w in row.granted if w not in self.places]:
                row.lower(worker, row.granted[worker])
        self._shrink(active)
        self._used = {
            worker: sum(row.counted(worker) for row in self.rows) for worker in self.places
        }
        if not active:
            return
        targets = deal(self._capacity(), self.serving, [self._claim(row) for row in active])
        for kind in range(len(self.kinds)):
            wanted = [target[kind] for target in targets]
            if self._serve(kind, active, wanted) and settle:
                self._settle(kind, active, wanted)

    def _shrink(self, active: Sequence[Row]) -> None:
        """Take back what a worker no longer offers."""
        for worker, places in self.places.items():
            excess = sum(row.granted.get(worker, 0) for row in self.rows) - places
            if excess > 0:
                having = [row for row in active if worker in row.granted]
                taken = _take(
                    [row.granted[worker] for row in having],
                    [row.unused(worker) for row in having], excess,
                )  # fmt: skip
                for row, count in zip(having, taken, strict=True):
                    row.lower(worker, count)

    def _capacity(self) -> list[int]:
        """By kind, what there will be for the active rows once every lowering is answered."""
        others = [row for row in self.rows if row.fixed or not row.speaks]
        return [
            sum(self.places[worker] for worker in workers)
            - sum(
                (row.granted if row.fixed else row.held).get(worker, 0)
                for row in others
                for worker in workers
            )
            for workers in self.kinds
        ]

    def _claim(self, row: Row) -> Claim:
        held = row.demand.held
        return Claim(
            held=[sum(held.get(worker, 0) for worker in workers) for workers in self.kinds],
            granted=[self._has(row, workers) for workers in self.kinds],
            wanted=row.demand.wanted,
            oldest_ms=row.demand.oldest_ms,
        )

    # --- one kind of worker ----------------------------------------------------------------------

    def _serve(self, kind: int, active: Sequence[Row], wanted: Sequence[int]) -> bool:
        """Give each row what it should have, as far as it is free, and take from the others what
        is missing. If nothing is, give what is left to all: whether nothing is missing."""
        workers = self.kinds[kind]
        has = [self._has(row, workers) for row in active]
        ages = [waits_since(row.demand.oldest_ms) for row in active]
        missing = 0
        needy = [i for i, row in enumerate(active) if wanted[i] > has[i]]
        for i in sorted(needy, key=lambda i: (has[i], ages[i])):
            count = wanted[i] - has[i]
            count -= self._give_back(active[i], workers, count)
            missing += count - self._give(active[i], workers, count)
        if missing:
            spare = [max(0, h - w) for h, w in zip(has, wanted, strict=True)]
            missing -= self._under_way(workers)
            for row, count in zip(active, lower_highest(spare, missing, has), strict=True):
                self._lower(row, workers, count)
            return False
        free = sum(self._free(worker) for worker in workers)
        if free:
            has = [self._has(row, workers) for row in active]
            raised = raise_lowest(has, free, ages)
            for row, before, after in zip(active, has, raised, strict=True):
                self._give(row, workers, after - before)
        return True

    def _settle(self, kind: int, active: Sequence[Row], wanted: Sequence[int]) -> None:
        """Take from rows with more than their share what others have less than theirs."""
        workers = self.kinds[kind]
        has = [self._has(row, workers) for row in active]
        # A row keeps what does not go round if it has it: nothing moves for its own sake.
        first = [-count for count in has]
        shares = raise_lowest(wanted, sum(has) - sum(wanted), first)
        for row, count, share in zip(active, has, shares, strict=True):
            self._lower(row, workers, max(0, count - share))

    def _has(self, row: Row, workers: Iterable[str]) -> int:
        return sum(row.granted.get(worker, 0) for worker in workers)

    def _free(self, worker: str) -> int:
        return max(0, self.places[worker] - self._used[worker])

    def _under_way(self, workers: Sequence[str]) -> int:
        """Places that will be free once what was taken back is answered."""
        return sum(
            row.counted(worker) - row.granted.get(worker, 0)
            for row in self.rows
            if row.lowered and row.speaks
            for worker in workers
        )

    def _give_back(self, row: Row, workers: Sequence[str], most: int) -> int:
        """Grant what the row holds beyond its grant: nobody else could have it."""
        left = most
        for worker in workers:
            granted = row.granted.get(worker, 0)
            count = min(left, row.held.get(worker, 0) - granted)
            if count > 0:  # as long as the worker still offers as much as is granted
                everybody = sum(other.granted.get(worker, 0) for other in self.rows)
                count = min(count, self.places[worker] - everybody)
            if count > 0:
                row.granted[worker] = granted + count
                left -= count
        return most - left

    def _give(self, row: Row, workers: Sequence[str], most: int) -> int:
        """Grant free places, at the workers that have most; how many it were."""
        if most <= 0:
            return 0
        free = [self._free(worker) for worker in workers]
        given = lower_highest(free, most, [row.granted.get(worker, 0) for worker in workers])
        for worker, count in zip(workers, given, strict=True):
            if count:
                before = row.counted(worker)
                row.granted[worker] = row.granted.get(worker, 0) + count
                self._used[worker] += row.counted(worker) - before
        return sum(given)

    def _lower(self, row: Row, workers: Sequence[str], count: int) -> None:
        if count <= 0:
            return
        having = [worker for worker in workers if worker in row.granted]
        taken = _take(
            [row.granted[worker] for worker in having], [row.unused(worker) for worker in having],
            count,
        )  # fmt: skip
        for worker, amount in zip(having, taken, strict=True):
            row.lower(worker, amount)


def _take(granted: Sequence[int], unused: Sequence[int], amount: int) -> list[int]:
    """How much to take of each of several grants: first what is not used."""
    order = range(len(granted))
    taken = lower_highest(unused, amount, order)
    left = [have - gone for have, gone in zip(granted, taken, strict=True)]
    more = lower_highest(left, amount - sum(taken), order)
    return [a + b for a, b in zip(taken, more, strict=True)]
