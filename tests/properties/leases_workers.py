"""Workers of the simulation: they keep to the protocol, as far as they are alive and hear.

They renew, give up in time, remember what they said, refuse what they have no place for; and they
die, freeze, drain, miss messages, and say things twice or late.
"""

from typing import Any, Protocol

import msgspec

from processors import topology
from schemas import bindings
from schemas.leases import Report, ReportBatch, ReportKind, WorkItem
from schemas.partition import partition_of
from tests.properties.leases_log import INBOX, INBOXES, POOL, Around, Topics, decoded


class Run(msgspec.Struct):
    """What a handler did, in monotonic time; `ended_ms` None: it is at it."""

    item: WorkItem
    worker: str
    begun_at: int
    begun_ms: int
    until_ms: int
    ended_ms: int | None = None


class Workplace(Around, Protocol):
    """Where workers work."""

    def begun(self, run: Run) -> None:
        """A run has begun."""


class Held:
    """A lease as its worker sees it, in monotonic time."""

    def __init__(self, item: WorkItem, ends_ms: int, renew_ms: int) -> None:
        self.item = item
        self.ends_ms = ends_ms
        self.renew_ms = renew_ms
        self.run: Run | None = None
        self.told = ""
        self.patience_ms = 0


class Worker:
    """Keeps to the protocol, as far as it is alive and hears."""

    def __init__(
        self, world: Workplace, label: str, places: int, handlers: tuple[str, ...]
    ) -> None:
        self.world = world
        self.name = label
        self.places = places
        self.handlers = handlers
        self.inbox = world.rng.randrange(INBOXES)
        self.ahead = world.rng.choice((0, 0, 2))
        self.deaf = 0.0
        self.chatty = 0.0
        self.frozen_until_ms = 0
        self.draining = False
        self.held: dict[str, Held] = {}
        self._said: dict[str, Report] = {}
        self._outgoing: list[tuple[int, int, Report]] = []
        self._items = Topics(world, [(INBOX, self.inbox)], from_end=True)
        self._offered_ms = -1
        self._n = 0

    # As in `workers.lease`.
    @property
    def _margin_ms(self) -> int:
        return min(5_000, self.world.lease_ms // 6)

    def believes(self, held: Held) -> bool:
        """Whether it counts on the lease now."""
        return self.world.mono_ms < held.ends_ms - self._margin_ms

    @property
    def frozen(self) -> bool:
        return self.world.mono_ms < self.frozen_until_ms

    def step(self) -> None:
        if self.frozen:
            return
        now_ms = self.world.mono_ms
        # Time first: a process that comes back from a long sleep gives up before it listens.
        for held in list(self.held.values()):
            self._look_at(held, now_ms)
        for record in self._items.read():
            batch = decoded(record.value or b"")
            if batch.worker != self.name or self.world.rng.random() < self.deaf:
                continue
            for item in batch.items:
                self._take(item, now_ms)
        for held in list(self.held.values()):
            self._begin_if_it_can(held, now_ms)
        self._speak(now_ms)

    def offer(self) -> None:
        self._n += 1
        offer = bindings.WORKER_OFFER.kind(
            pool=POOL,
            worker=self.name,
            inbox_partition=self.inbox,
            handlers=self.handlers,
            places=self.places,
            ahead=self.ahead,
            draining=self.draining,
            n=self._n,
        )
        home = partition_of(f"pool:{POOL}", self.world.partitions)
        value = bindings.WORKER_OFFER.encode(offer)
        self.world.produce(topology.SLOT_REQUESTS, home, value, lossy=True)

    def drain(self) -> None:
        """Take nothing new; what has not begun goes back."""
        self.draining = True
        self.offer()
        for held in list(self.held.values()):
            if held.run is None:
                self._close(held, "returned", reason="drain")

    def leave(self) -> None:
        """Hand everything back and say the rest."""
        for held in list(self.held.values()):
            self._end_run(held)
            self._close(held, "stopped" if held.told == "cancel" else "returned", reason="drain")
        self._speak(1 << 60)

    def die(self) -> None:
        """Runs end with the process, and what was not said is never said."""
        for held in self.held.values():
            self._end_run(held)
        self.held.clear()

    # --- items ---------------------------------------------------------------------------------

    def _take(self, item: WorkItem, now_ms: int) -> None:
        known = self.held.get(item.execution_id)
        if known is not None and known.item.delivery != item.delivery:
            if item.delivery < known.item.delivery:
                return
            self._lose(known)
            known = None
        said = self._said.get(item.execution_id)
        if known is None and said is not None and said.delivery >= item.delivery:
            if said.delivery == item.delivery:
                self._say(said, item.partition)
            return
        match item.kind:
            case "work":
                self._work(item, known, now_ms)
            case "cancel" if known is None:
                self._answer(item, "stopped")
            case "cancel":
                self._stop(known, now_ms)
            case "revoke" if known is None:
                self._answer(item, "revoked")
            case "revoke" if known.run is None:
                self._close(known, "revoked")
            case "revoke":
                self._report(known, "already_started")

    def _work(self, item: WorkItem, known: Held | None, now_ms: int) -> None:
        if known is not None:
            self._report(known, "heartbeat")
            return
        ends_ms = now_ms + item.lease_until - self.world.clock.wall_ms()
        if self.draining:
            self._answer(item, "returned", reason="drain")
        elif item.handler not in self.handlers:
            self._answer(item, "returned", reason="no_handler")
        elif len(self.held) >= self.places + self.ahead:
            self._answer(item, "returned", reason="full")
        elif ends_ms - now_ms < self.world.lease_ms // 6:
            self._answer(item, "returned", reason="lease")
        else:
            renew_ms = ends_ms - self.world.lease_ms * 2 // 3
            self.held[item.execution_id] = Held(item, ends_ms, renew_ms)

    def _begin_if_it_can(self, held: Held, now_ms: int) -> None:
        item, world = held.item, self.world
        running = sum(other.run is not None for other in self.held.values())
        if held.run is not None or running >= self.places or item.due_at > world.clock.wall_ms():
            return
        if held.ends_ms - now_ms < world.lease_ms // 6:
            self._close(held, "returned", reason="lease")
            return
        lease_ms = world.lease_ms
        run_ms = world.rng.choice((0, 50, 300, lease_ms // 2, 2 * lease_ms, 4 * lease_ms))
        wall_ms = world.clock.wall_ms()
        until_ms = now_ms + (run_ms if world.faulty else 20)
        held.run = Run(item, self.name, wall_ms, now_ms, until_ms)
        world.begun(held.run)

    def _look_at(self, held: Held, now_ms: int) -> None:
        run = held.run
        if run is not None and run.until_ms <= now_ms and not held.told:
            self._finish(held, run)
        elif held.told == "cancel" and now_ms >= held.patience_ms:
            self._end_run(held)
            self._close(held, self.world.rng.choice(("stopped", "abandoned")))
        elif not self.believes(held):
            self._lose(held)
        elif now_ms >= held.renew_ms:
            if run is not None:
                self._report(held, "started", started_at=run.begun_at)
            self._report(held, "heartbeat")
            held.renew_ms = now_ms + self.world.lease_ms // 3

    def _finish(self, held: Held, run: Run) -> None:
        rng = self.world.rng
        self._end_run(held)
        state = rng.choices(("SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED"), (80, 12, 4, 4))[0]
        self._close(
            held, "outcome", state=state, reason="status" if state == "FAILED" else "",
            started_at=run.begun_at, finished_at=self.world.clock.wall_ms(), result=b"r",
        )  # fmt: skip

    def _stop(self, held: Held, now_ms: int) -> None:
        if held.run is None:
            self._close(held, "stopped")
        elif held.told != "cancel":
            held.told = "cancel"
            held.patience_ms = now_ms + self.world.rng.choice((0, 100, 1_000))

    def _lose(self, held: Held) -> None:
        """Its time is over: stop the run and say that it is free, which may be old news."""
        self._end_run(held)
        self._close(held, "returned", reason="lease")

    def _end_run(self, held: Held) -> None:
        if held.run is not None:
            held.run.ended_ms = self.world.mono_ms

    # --- reports -------------------------------------------------------------------------------

    def _answer(self, item: WorkItem, kind: ReportKind, **fields: Any) -> None:
        self._said[item.execution_id] = self._say(report_of(item, kind, **fields), item.partition)

    def _report(self, held: Held, kind: ReportKind, **fields: Any) -> None:
        self._say(report_of(held.item, kind, **fields), held.item.partition)
        if kind == "heartbeat":
            held.ends_ms = max(held.ends_ms, self.world.mono_ms + self.world.lease_ms)

    def _close(self, held: Held, kind: ReportKind, **fields: Any) -> None:
        del self.held[held.item.execution_id]
        self._answer(held.item, kind, **fields)

    def _say(self, report: Report, partition: int) -> Report:
        """Heartbeats are in the log when they count; what else there is to say may come late."""
        rng, now_ms = self.world.rng, self.world.mono_ms
        late_ms = 0
        if report.kind != "heartbeat" and self.world.faulty:
            late_ms = rng.choices((0, 20, 400, self.world.lease_ms + 500), (45, 25, 18, 12))[0]
        self._outgoing.append((now_ms + late_ms, partition, report))
        if rng.random() < self.chatty:
            self._outgoing.append((now_ms + late_ms + rng.choice((10, 3_000)), partition, report))
        if report.kind == "heartbeat":
            self._speak(now_ms)
        return report

    def _speak(self, now_ms: int) -> None:
        batches: dict[int, list[Report]] = {}
        for entry in [entry for entry in self._outgoing if entry[0] <= now_ms]:
            self._outgoing.remove(entry)
            batches.setdefault(entry[1], []).append(entry[2])
        for partition, reports in batches.items():
            batch = ReportBatch(worker=self.name, reports=tuple(reports))
            self.world.produce(
                topology.REPORTS, partition, bindings.REPORT_BATCH.encode(batch), lossy=False
            )
        if now_ms - self._offered_ms >= 1_000 or self._offered_ms < 0:
            self._offered_ms = now_ms
            self.offer()


def report_of(item: WorkItem, kind: ReportKind, **fields: Any) -> Report:
    return Report(
        kind=kind,
        tenant=item.tenant,
        job=item.job,
        execution_id=item.execution_id,
        ordinal=item.ordinal,
        delivery=item.delivery,
        token=item.token,
        **fields,
    )
