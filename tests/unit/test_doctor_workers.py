"""What `horolog doctor` says about workers."""

from horolog.doctor import _workers
from horolog.settings import load
from tests.unit.test_signs import PARTITIONS, Written


def test_a_worker_that_goes_by_other_leases_is_named_and_its_places_do_not_count() -> None:
    written = Written()
    written.offer("right", lease_ms=60_000)
    written.offer("silent about it")
    written.offer("other", lease_ms=3_000, places=500)
    settings = load({"namespace": "ns", "partitions": PARTITIONS, "lease_ms": 60_000})
    found = list(_workers(written.reading, settings, written.clock.wall_ms()))
    written.reading.close()
    told = [finding for finding in found if finding.check == "workers of default"]
    assert [finding.state for finding in told] == ["wrong", "ok"]
    assert told[0].told.startswith("other gets nothing")
    assert "3000 ms" in told[0].told
    assert "60000 ms" in told[0].told
    assert told[1].told.startswith("right, silent about it: 40 places")
