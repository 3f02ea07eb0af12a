"""Kafka goes away while workers hold leases, and comes back."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from horolog.broker import server
from schemas import limits
from tests.broker.scenarios import checks
from tests.broker.scenarios.hands import TENANT, Hands, deliveries
from tests.broker.scenarios.world import World, until

HELD = 30
TICKING = 10
TOLD_S = 1.0
"""What the worker was told before has begun by then."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def sure_ms(lease_ms: int) -> float:
    """For so long at least after the log was heard last a worker counts on its leases."""
    return lease_ms * (1 - 1 / limits.RENEWALS_PER_LEASE) - limits.LEASE_MARGIN_MS_MAX


def check_while_the_log_is_away(
    folder: Path, namespace: str, away_s: float, *, hangs: bool = False,
    lease_ms: int = limits.LEASE_MS,
) -> None:  # fmt: skip
    """Hold leases while Kafka is stopped for so long and started again, or hangs for so long,
    beside runs that come and go."""
    broker = folder / "broker"
    started = server.start(broker, log=print)
    world = World(started.bootstrap, namespace, folder / "data", partitions=2)
    try:
        hands = Hands(world, lease_ms)
        scheduler = world.scheduler().await_owner()
        slots, worker = hands.slots(), hands.worker("w", HELD + TICKING)
        held = hands.trigger(hands.put("held", HELD, handler="wait"))
        hands.await_receipts(held)
        ticking = hands.put("tick", TICKING, handler="note", every="1s")
        until(lambda: len(hands.receipts()) >= HELD + 3 * TICKING, "runs that come and go")

        if hangs:
            os.kill(started.pid, signal.SIGSTOP)
        else:
            server.stop(broker)
        gone_ms = now_ms()
        time.sleep(away_s)
        back_ms = now_ms()
        if hangs:
            os.kill(started.pid, signal.SIGCONT)
        else:
            server.start(broker, log=print)
        away_ms = now_ms() - gone_ms
        assert away_ms < sure_ms(lease_ms), "Kafka took too long to start: this shows nothing"

        before = len(hands.receipts())
        until(lambda: len(hands.receipts()) >= before + 3 * TICKING, "runs to come again")
        hands.release()
        ends = hands.await_ends(held, scheduler)
        assert deliveries(ends.values()) == {("SUCCEEDED", 1, 0)}
        assert {len(receipts) for receipts in hands.receipts_of(held).values()} == {1}

        begun = [receipt.at_ms for receipt in hands.receipts()]
        away = [at_ms - gone_ms for at_ms in begun if gone_ms < at_ms < back_ms]
        again = [receipt for receipt in hands.receipts() if receipt.delivery > 1]
        sys.stderr.write(
            f"Kafka away for {away_ms / 1_000:.1f} s: {len(away)} runs began in that time, "
            f"{len(again)} of {len(begun)} deliveries were repeats\n"
        )
        assert max(away, default=0) < TOLD_S * 1_000
        assert len(away) <= TICKING
        assert again == []
        assert all(service.alive for service in (scheduler, slots, worker))
        assert worker.terminate() == 0
        time.sleep(1.0)  # until its last reports are decided
        assert scheduler.terminate() == 0
        ended = hands.ends()
        for job in ticking:
            checks.check_every_second(world, job, tenant=TENANT)
            runs = [e for e in checks.fired(world) if e.job == job and e.state != "SKIPPED"]
            *earlier, _ = sorted(runs, key=lambda event: event.scheduled_at)
            assert {event.execution_id for event in earlier} <= ended.keys()
        checks.check_log(world)
        checks.check_stores(world, scheduler)
    except BaseException as error:
        error.add_note(world.newest_lines())
        raise
    finally:
        world.close()
        server.stop(broker)


def test_while_the_log_is_away_nothing_starts_and_nothing_is_delivered_again(
    tmp_path: Path, namespace: str
) -> None:
    check_while_the_log_is_away(tmp_path, namespace, 6.0)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_while_the_log_is_away_for_thirty_seconds_nothing_starts_or_is_delivered_again(
    tmp_path: Path, namespace: str
) -> None:
    # Its start takes time, too, and on a busy machine much: the leases are longer by that.
    check_while_the_log_is_away(tmp_path, namespace, 30.0, lease_ms=2 * limits.LEASE_MS)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_while_the_log_hangs_for_thirty_seconds_nothing_starts_or_is_delivered_again(
    tmp_path: Path, namespace: str
) -> None:
    check_while_the_log_is_away(tmp_path, namespace, 30.0, hangs=True)
