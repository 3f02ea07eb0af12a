"""Reading the inbox: only what is ours, in order, from its end."""

from schemas.bindings import WORK_BATCH
from schemas.leases import WorkBatch, WorkItem
from streams.memory import ManualClock, MemoryBroker, MemoryLog
from streams.ports import Produced
from tests.unit.workers.desk import Desk
from workers.inbox import Inbox

TOPIC = "test.inbox.default"


class Reading:
    def __init__(self) -> None:
        self.broker = MemoryBroker(ManualClock())
        self.broker.create_topic(TOPIC, 16)
        self.items: list[WorkItem] = []
        self.alarms: list[str] = []
        self.inbox = Inbox(
            MemoryLog(self.broker), (TOPIC, 5), worker="w-1", on_items=self.items.extend,
            alarm=lambda event, **_: self.alarms.append(event),
        )  # fmt: skip

    def write(self, *names: str, worker: str = "w-1", key: str | None = None) -> None:
        items = tuple(Desk().item(name) for name in names)
        value = WORK_BATCH.encode(WorkBatch(worker=worker, sent_ms=0, items=items))
        self.put(value, (key or worker).encode())

    def put(self, value: bytes, key: bytes = b"w-1") -> None:
        with self.broker.lock:
            self.broker.append(Produced(TOPIC, 5, key, value))

    def read(self) -> list[str]:
        self.items.clear()
        self.inbox.read_once(0)
        return [item.job for item in self.items]


def test_what_stood_there_before_is_not_ours() -> None:
    reading = Reading()
    reading.write("old")
    reading.inbox.open()
    reading.write("a", "b")
    reading.write("c")
    assert reading.read() == ["a", "b", "c"]


def test_records_of_others_are_passed_over() -> None:
    reading = Reading()
    reading.inbox.open()
    reading.write("theirs", worker="w-2")
    reading.write("forged", worker="w-2", key="w-1")
    reading.write("mine")
    assert reading.read() == ["mine"]


def test_what_cannot_be_decoded_is_told_and_passed_over() -> None:
    reading = Reading()
    reading.inbox.open()
    reading.put(b"nonsense")
    reading.write("mine")
    assert reading.read() == ["mine"]
    assert reading.alarms == ["inbox_undecodable"]


def test_a_position_that_was_deleted_is_told_and_reading_goes_on_at_the_end() -> None:
    reading = Reading()
    reading.inbox.open()
    reading.write("a")
    reading.write("b")
    reading.broker.trim(TOPIC, 5, 2)
    assert reading.read() == []
    assert reading.alarms == ["inbox_lost"]
    reading.write("c")
    assert reading.read() == ["c"]
