"""The slots processor as a process on a real broker: offers in, grants out, whoever owns it."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from processors import topology
from processors.core.places import PoolPlaces, pool_limit
from schemas.bindings import (
    MARK,
    QUARANTINED,
    SLOT_STATE,
    SLOTS_GRANTED,
    SLOTS_WANTED,
    WORKER_OFFER,
)
from schemas.partition import partition_of
from schemas.slots import SlotsGranted, WorkerOffer
from streams import admin
from streams.kafka import KafkaLog
from streams.layout import MARK_KEY, topic_name
from streams.ports import Produced, Record

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 30.0
POOL = "default"
LIMIT = pool_limit(POOL)
RUN = """
import sys
from horolog import settings, slots_process
loaded = settings.load()
slots_process.run(loaded, loaded.kafka.bootstrap, member=sys.argv[1])
"""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class SlotsProcess:
    def __init__(self, bed: "Bed", member: str, crash: str) -> None:
        self.member = member
        environment = os.environ | {
            "KAFKA_BOOTSTRAP_SERVERS": bed.bootstrap,
            "HOROLOG_NAMESPACE": bed.namespace,
            "HOROLOG_PARTITIONS": str(bed.partitions),
            "HOROLOG_DATA_DIR": str(bed.folder),
            "PYTHONPATH": str(ROOT),
        }
        if crash:
            environment["HOROLOG_CRASH"] = crash
        self.log_file = bed.folder / f"{member}-{len(bed.processes)}.log"
        with self.log_file.open("wb") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN, member], env=environment, cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=lines, stderr=lines,
            )  # fmt: skip

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Bed:
    """A namespace with its topics, partitions and workers played by the test, slots processes."""

    def __init__(self, bootstrap: str, namespace: str, folder: Path, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.namespace = namespace
        self.folder = folder
        self.partitions = partitions
        folder.mkdir(parents=True, exist_ok=True)
        topics = topology.topic_set(namespace, partitions)
        admin.apply({"bootstrap.servers": bootstrap}, topics)
        self.home = partition_of(LIMIT, partitions)
        self.processes: list[SlotsProcess] = []
        self.places = [PoolPlaces(POOL, p) for p in range(partitions)]
        self.wanted: list[dict[str, int]] = [{} for _ in range(partitions)]
        self.grants: list[SlotsGranted] = []
        self.offers: dict[str, WorkerOffer] = {}
        self.log = KafkaLog(bootstrap)
        self._outbox = self.log.outbox("bed")
        self._grants = self.log.reader("bed-grants", committed=True)
        self._grants.assign({(self.name(topology.SLOT_GRANTS), p): 0 for p in range(partitions)})
        for number, places in enumerate(self.places):
            places.restore(number + 1, {})

    def name(self, suffix: str) -> str:
        return topic_name(self.namespace, suffix)

    def slots(self, member: str = "a", *, crash: str = "") -> SlotsProcess:
        started = SlotsProcess(self, member, crash)
        self.processes.append(started)
        return started

    def close(self) -> None:
        for process in self.processes:
            if process.process.poll() is None:
                process.process.send_signal(signal.SIGCONT)
                process.kill()
            sys.stderr.write(f"--- {process.log_file.name}\n{process.log_file.read_text()}")
        self._outbox.close()
        self._grants.close()

    # --- talking ---------------------------------------------------------------------------------

    def send(self, value: bytes) -> None:
        topic = self.name(topology.SLOT_REQUESTS)
        self._outbox.send([Produced(topic, self.home, LIMIT.encode(), value)])

    def offer(self, worker: str, places: int, *, draining: bool = False) -> None:
        known = self.offers.get(worker)
        offer = WorkerOffer(
            pool=POOL, worker=worker, inbox_partition=0, handlers=("a",), places=places, ahead=0,
            draining=draining, n=1 if known is None else known.n + 1,
        )  # fmt: skip
        self.offers[worker] = offer
        self.send(WORKER_OFFER.encode(offer))

    def pump(self) -> None:
        """Read grants, say what is wanted."""
        for record in self._grants.read(1_000, 0.005):
            grant = SLOTS_GRANTED.decode(record.value or b"")
            assert grant.partition == record.partition
            self.grants.append(grant)
            self.places[grant.partition].granted(grant)
        for places, wanted in zip(self.places, self.wanted, strict=True):
            message = places.wanted(now_ms(), wanted, {}, 0)
            if message is not None:
                self.send(SLOTS_WANTED.encode(message))

    def until(self, condition: Callable[[], bool], what: str, *, pump: bool = True) -> None:
        give_up_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < give_up_s, f"waited {WAIT_S} s for {what}"
            if pump:
                self.pump()
            else:
                time.sleep(0.05)

    def listen(self, seconds: float) -> None:
        """Talk on until nothing has come for so long."""
        heard, since_s = len(self.grants), time.monotonic()
        while time.monotonic() - since_s < seconds:
            self.pump()
            if len(self.grants) > heard:
                heard, since_s = len(self.grants), time.monotonic()

    def free(self) -> list[int]:
        return [places.free("a", now_ms()) for places in self.places]

    # --- looking ---------------------------------------------------------------------------------

    def records(self, suffix: str, partition: int) -> list[Record]:
        """Everything committed on one partition of a topic."""
        tp = (self.name(suffix), partition)
        end = self.log.offsets().stable_end([tp])[tp]
        reader = self.log.reader("bed-look", committed=True)
        found: list[Record] = []
        try:
            reader.assign({tp: 0})
            while reader.position(tp) < end:
                found += reader.read(10_000, 0.1)
        finally:
            reader.close()
        return found

    def owners(self) -> list[str]:
        """Who wrote the marks of the limit's partition, in their order."""
        marks = self.records(topology.SLOT_STATE, self.home)
        return [MARK.decode(r.value or b"").owner for r in marks if r.key == MARK_KEY]

    def await_owner(self, member: str) -> None:
        began = len(self.owners())
        self.until(lambda: member in self.owners()[began:], f"{member} to own", pump=False)

    def check(self) -> None:
        """A number of a grant stands for one content only, and no state that was committed gives
        more of a worker than it offered."""
        contents: dict[tuple[int, int, int], SlotsGranted] = {}
        for grant in self.grants:
            assert contents.setdefault((grant.partition, grant.epoch, grant.n), grant) == grant
        for record in self.records(topology.SLOT_STATE, self.home):
            if record.key == MARK_KEY or record.value is None:
                continue
            state = SLOT_STATE.decode(record.value)
            counted: Counter[str] = Counter()
            for demand in state.partitions.values():
                for worker in {*demand.granted, *demand.held}:
                    counts = demand.granted.get(worker, 0), demand.held.get(worker, 0)
                    counted[worker] += max(counts)
            for worker, count in counted.items():
                assert count <= self.offers[worker].places


MakeBed = Callable[..., Bed]


@pytest.fixture
def make_bed(broker: str, namespace: str, tmp_path: Path) -> Iterator[MakeBed]:
    made: list[Bed] = []

    def make(partitions: int = 3) -> Bed:
        made.append(Bed(broker, namespace, tmp_path / "data", partitions))
        return made[-1]

    yield make
    for bed in made:
        bed.close()


def test_offers_become_grants_and_go_where_work_waits(make_bed: MakeBed) -> None:
    bed = make_bed()
    bed.slots()
    bed.await_owner("a")
    bed.offer("w#1", 9)
    bed.until(lambda: bed.free() == [3, 3, 3], "an even spread")
    bed.wanted[1] = {"a": 8}
    bed.until(lambda: bed.free()[1] == 8, "places where they are wanted")
    bed.offer("w#1", 9, draining=True)
    bed.until(lambda: bed.free() == [0, 0, 0], "nothing at a worker that drains")
    bed.check()


def test_a_process_that_is_killed_goes_on_where_it_was(make_bed: MakeBed) -> None:
    bed = make_bed()
    first = bed.slots()
    bed.await_owner("a")
    bed.offer("w#1", 9)
    bed.until(lambda: bed.free() == [3, 3, 3], "an even spread")
    bed.listen(0.5)
    taken = [bed.places[0].take("a", now_ms()) for _ in range(3)]
    assert all(taken)
    first.kill()
    before = len(bed.grants)
    bed.wanted[0] = {"a": 2}
    bed.pump()  # nobody hears it
    bed.slots()
    bed.until(lambda: len(bed.grants) >= before + 3, "every grant again")
    assert {g.partition: g.n for g in bed.grants[before : before + 3]} == {
        g.partition: g.n for g in bed.grants[:before]
    }
    bed.until(lambda: bed.free()[0] == 2, "what was asked for meanwhile")
    bed.check()


def test_a_grant_that_was_committed_but_not_sent_is_sent_by_the_next_owner(
    make_bed: MakeBed,
) -> None:
    bed = make_bed(partitions=1)
    dying = bed.slots(crash="CP09:2")  # the first pass is the take-over's mark
    bed.await_owner("a")
    bed.pump()
    assert dying.process.wait(WAIT_S) == -signal.SIGKILL
    bed.pump()
    assert bed.grants == []
    bed.slots()
    bed.until(lambda: bed.places[0].answered, "the grant")
    assert (bed.grants[0].epoch, bed.grants[0].n) == (1, 1)


def test_of_two_owners_only_the_later_one_is_heard(make_bed: MakeBed) -> None:
    bed = make_bed()
    first = bed.slots("a")
    bed.await_owner("a")
    bed.offer("w#1", 6)
    bed.until(lambda: bed.free() == [2, 2, 2], "an even spread")
    first.process.send_signal(signal.SIGSTOP)
    bed.slots("b")
    bed.await_owner("b")
    bed.offer("w#1", 6)
    bed.wanted[2] = {"a": 6}
    bed.until(lambda: bed.free()[2] == 6, "the second one's grant")
    first.process.send_signal(signal.SIGCONT)
    bed.wanted[2], bed.wanted[0] = {}, {"a": 6}
    bed.until(lambda: bed.free()[0] == 6, "places somewhere else")
    owners = bed.owners()
    assert "a" not in owners[owners.index("b") :]
    bed.check()


def test_what_cannot_be_understood_is_set_aside_and_the_rest_goes_on(make_bed: MakeBed) -> None:
    bed = make_bed()
    bed.slots()
    bed.await_owner("a")
    bed.send(b"nonsense")
    bed.offer("w#1", 3)
    bed.send(WORKER_OFFER.encode(replace(bed.offers["w#1"], worker="w#2", places=-1)))
    bed.until(lambda: bed.free() == [1, 1, 1], "the grants")
    aside = [
        QUARANTINED.decode(record.value or b"")
        for record in bed.records(topology.QUARANTINE, bed.home)
    ]
    assert [event.topic for event in aside] == [topology.SLOT_REQUESTS] * 2
