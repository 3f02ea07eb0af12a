"""Reports on their way: gathered, bounded, followed."""

from schemas import limits
from schemas.bindings import REPORT_BATCH
from streams.topics import BATCH_BYTES_MAX
from tests.unit.workers.desk import REPORTS, Desk
from workers.lease import Ended, outcome_of


def test_reports_of_a_partition_go_in_one_record_in_their_order() -> None:
    desk = Desk()
    ended = Ended(state="SUCCEEDED")
    for name in "abc":
        desk.outgoing.add(1, outcome_of(desk.item(name), "outcome", ended), 0)
    desk.outgoing.add(2, outcome_of(desk.item("d"), "outcome", ended), 0)
    assert [report.job for report in desk.reports()] == ["a", "b", "c", "d"]
    ends = [desk.broker.partition(REPORTS, p).end for p in (1, 2)]  # type: ignore[union-attr]
    assert ends == [1, 1]


def test_however_much_is_said_every_record_fits() -> None:
    desk = Desk()
    ended = Ended(
        state="FAILED", result=b"r" * limits.RESULT_BYTES_MAX, detail="é" * (4_096 // 2)
    )  # fmt: skip
    for n in range(500):
        desk.outgoing.add(1, outcome_of(desk.item(f"j{n}"), "outcome", ended), 0)
    sizes = []
    send = desk.report_log.send

    def measured(topic: str, partition: int, key: bytes, value: bytes, number: int) -> bool:
        sizes.append(len(value))
        return send(topic, partition, key, value, number)

    desk.report_log.send = measured  # type: ignore[method-assign]
    assert [report.job for report in desk.reports()] == [f"j{n}" for n in range(500)]
    assert max(sizes) < BATCH_BYTES_MAX
    assert len(sizes) < 25


def test_an_empty_batch_tells_the_brokers_time() -> None:
    desk = Desk(broker_ahead_ms=7_000)
    assert desk.known_clock.known
    desk.outgoing.probe(desk.clock.boottime_ms())
    value = desk.broker.partition(REPORTS, 0).read(0, 10, committed=False)[0][-1].value  # type: ignore[union-attr]
    assert value is not None
    assert REPORT_BATCH.decode(value).reports == ()


def test_what_does_not_fit_into_the_queue_is_sent_later() -> None:
    desk = Desk()
    desk.outgoing.add(1, outcome_of(desk.item(), "outcome", Ended(state="SUCCEEDED")), 0)
    send, desk.report_log.send = desk.report_log.send, lambda *_: False  # type: ignore[method-assign]
    desk.outgoing.flush(0)
    assert desk.outgoing.waiting
    desk.report_log.send = send  # type: ignore[method-assign]
    assert desk.said() == [("outcome", "a", "SUCCEEDED")]
