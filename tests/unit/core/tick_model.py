"""Which ticks of a job must be covered, worked out by listing them one by one.

Knows schedules only as they are written here and shares nothing with the product. Times are
milliseconds on a grid of half seconds.
"""

from dataclasses import dataclass, field

MINUTE = 60_000


@dataclass(frozen=True)
class Written:
    """A schedule: `every` (step, perhaps an anchor), `cron` (each minute), `at`, `in` or `now`."""

    kind: str
    ms: int = 0
    anchor: int | None = None


@dataclass
class Plan:
    """Schedules as they were resolved at an acceptance."""

    written: tuple[Written, ...] = ()
    anchors: dict[Written, int] = field(default_factory=dict)
    """Of an `every` its anchor, of a one-off its instant."""

    def recurring(self, after: int, upto: int) -> set[int]:
        found: set[int] = set()
        for one in self.written:
            if one.kind == "cron":
                found |= set(range((after // MINUTE + 1) * MINUTE, upto + 1, MINUTE))
            elif one.kind == "every":
                anchor = self.anchors[one]
                n = max(0, (after - anchor) // one.ms + 1)
                found |= set(range(anchor + n * one.ms, upto + 1, one.ms))
        return {t for t in found if after < t <= upto}

    def one_offs(self) -> set[int]:
        return {self.anchors[one] for one in self.written if one.kind in ("at", "in", "now")}

    def ends(self) -> bool:
        return all(one.kind in ("at", "in", "now") for one in self.written)


class Model:
    """What is to be covered, and by which kind of record, as time passes and commands act."""

    def __init__(self) -> None:
        self.status = ""  # "" stands for: there is no such job
        self.plan = Plan()
        self.version = 0
        self.since = 0
        """Recurring ticks count after this."""
        self.waiting: set[int] = set()
        """One-offs that are still to come, or late and not decided yet."""
        self.cursor = 0
        self.accepted: dict[int, int] = {}
        """When a late one-off was accepted: it is not due before."""

    def due(self, upto: int) -> list[int]:
        """Ticks that must be covered by `upto` and are not yet."""
        if self.status not in ("ACTIVE", "PAUSED"):
            return []
        ready = {t for t in self.waiting if max(t, self.accepted.get(t, 0)) <= upto}
        if self.status == "ACTIVE":
            ready |= self.plan.recurring(max(self.since, self.cursor), upto)
        return sorted(ready)

    def covered(self, ticks: list[int], now: int) -> None:
        """These are done; without any to follow the job is finished."""
        self.waiting -= set(ticks)
        self.cursor = max([self.cursor, *ticks])
        if self.status == "ACTIVE" and self.plan.ends() and not self.waiting:
            self.status = "FINISHED"

    def put(self, written: tuple[Written, ...], at: int, tolerance: int) -> None:
        """An accepted put of other content."""
        alive = self.status in ("ACTIVE", "PAUSED", "BROKEN")
        before = self.plan.anchors if alive else {}
        plan = Plan(written)
        for one in written:
            resolved = {
                "every": at if one.anchor is None else one.anchor, "at": one.ms, "cron": 0,
                "now": max(at, self.cursor + 1), "in": max(at + one.ms, self.cursor + 1),
            }[one.kind]  # fmt: skip
            plan.anchors[one] = before.get(one, resolved)
        same = alive and self._resolved(plan) == self._resolved(self.plan)
        self.version += 1
        if not same:
            self.since = max(at, self.cursor)
            lowest = max(at - tolerance, self.cursor + 1)
            self.waiting = {t for t in plan.one_offs() if t >= lowest}
            self.accepted = dict.fromkeys((t for t in self.waiting if t <= at), at)
        self.plan = plan
        if self.status != "PAUSED":
            self.status = "ACTIVE"
        if self.status == "ACTIVE" and plan.ends() and not self.waiting:
            self.status = "FINISHED"

    @staticmethod
    def _resolved(plan: Plan) -> list[tuple[str, int, int]]:
        return [
            ("at" if one.kind in ("in", "now") else one.kind,
             one.ms if one.kind == "every" else 0, plan.anchors[one])
            for one in plan.written
        ]  # fmt: skip

    def refuses(self, written: tuple[Written, ...], at: int, tolerance: int) -> bool:
        """Whether a one-off is too old, or not after the last decided tick."""
        alive = self.status not in ("", "DELETED")
        known = self.plan.written if alive else ()
        return any(
            one.ms < at - tolerance or (one.ms <= self.cursor and one not in known)
            for one in written
            if one.kind == "at"
        )

    def pause(self) -> None:
        self.status = "PAUSED"

    def resume(self, at: int) -> None:
        self.status = "ACTIVE"
        self.since = max(at, self.cursor)
        if self.plan.ends() and not self.waiting:
            self.status = "FINISHED"

    def delete(self) -> None:
        self.status, self.plan, self.waiting = "DELETED", Plan(), set()

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]
