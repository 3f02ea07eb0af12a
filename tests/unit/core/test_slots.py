"""Who may hold how many places: what follows from offers and wants, message by message."""

from collections.abc import Mapping

import pytest

from processors.core import slots
from schemas.slots import SlotsGranted, SlotState, SlotsWanted, WorkerOffer

NOW = 1_700_000_000_000


class Pool:
    """The owner's state, with what it said last to whom."""

    def __init__(self) -> None:
        self.state: SlotState = slots.unknown("pool:default")
        self.now_ms = NOW
        self.said: dict[int, SlotsGranted] = {}
        self._n = 0

    def offer(
        self,
        worker: str,
        places: int,
        *,
        ahead: int = 0,
        handlers: tuple[str, ...] = ("a",),
        draining: bool = False,
        inbox_partition: int = 0,
        n: int | None = None,
    ) -> None:
        self._n += 1
        self._follow(
            WorkerOffer(
                pool="default", worker=worker, inbox_partition=inbox_partition, handlers=handlers,
                places=places, ahead=ahead, draining=draining, n=self._n if n is None else n,
            )
        )  # fmt: skip

    def want(
        self,
        partition: int,
        wanted: Mapping[str, int] | int = 0,
        *,
        held: Mapping[str, int] | None = None,
        epoch: int = 1,
        answers: int | None = None,
        oldest_ms: int = 0,
        n: int | None = None,
    ) -> None:
        """A partition speaks; unless something else is said it acts on its newest grant."""
        self._n += 1
        if answers is None:
            said = self.said.get(partition)
            answers = said.n if said is not None and said.epoch == epoch else 0
        if isinstance(wanted, int):
            wanted = {"a": wanted} if wanted else {}
        self._follow(
            SlotsWanted(
                limit="pool:default", partition=partition, epoch=epoch, held=dict(held or {}),
                n=self._n if n is None else n, wanted=dict(wanted), oldest_ms=oldest_ms,
                answers=answers,
            )
        )  # fmt: skip

    def _follow(self, message: WorkerOffer | SlotsWanted) -> None:
        self.state = slots.evolve(self.state, message, self.now_ms)

    def grant(self, *, settle: bool = False) -> dict[int, int]:
        """Partition → places of the grants that changed."""
        self.state, changed = slots.grant(self.state, self.now_ms, settle=settle)
        for message in changed:
            self.said[message.partition] = message
        return {message.partition: places_of(message) for message in changed}

    def granted(self, partition: int) -> dict[str, int]:
        return dict(self.state.partitions[str(partition)].granted)

    def counted(self, partition: int) -> dict[str, int]:
        """What nobody else may have."""
        demand = self.state.partitions[str(partition)]
        workers = {*demand.granted, *demand.held}
        return {w: max(demand.granted.get(w, 0), demand.held.get(w, 0)) for w in workers}


def places_of(message: SlotsGranted) -> int:
    return sum(places.count for places in message.workers.values())


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_places_are_spread_over_all_partitions_before_anybody_wants_them(pool: Pool) -> None:
    for partition in range(4):
        pool.want(partition)
    assert pool.grant() == {0: 0, 1: 0, 2: 0, 3: 0}
    pool.offer("w", 20)
    assert pool.grant() == {0: 5, 1: 5, 2: 5, 3: 5}


def test_a_grant_says_where_its_workers_read_and_what_they_have(pool: Pool) -> None:
    pool.offer("w", 2, handlers=("a", "b"), inbox_partition=7)
    pool.want(0)
    pool.grant()
    places = pool.said[0].workers["w"]
    assert (places.count, places.inbox_partition, places.handlers) == (2, 7, ("a", "b"))


def test_what_may_wait_in_a_worker_counts_as_place(pool: Pool) -> None:
    pool.offer("w", 2, ahead=3)
    pool.want(0)
    assert pool.grant() == {0: 5}


def test_nothing_new_makes_no_message(pool: Pool) -> None:
    pool.offer("w", 20)
    pool.want(0, 3)
    pool.want(1)
    pool.grant()
    pool.offer("w", 20)
    pool.want(0, 3)
    pool.want(1)
    assert pool.grant() == {}
    assert pool.grant(settle=True) == {}


def test_work_within_what_was_granted_makes_no_message(pool: Pool) -> None:
    pool.offer("w", 20)
    for partition in range(4):
        pool.want(partition)
    pool.grant()
    pool.want(0, 2, held={"w": 3})
    assert pool.grant() == {}
    assert pool.grant(settle=True) == {}


def test_what_is_wanted_is_taken_from_those_who_do_not_use_it(pool: Pool) -> None:
    pool.offer("w", 12)
    for partition in range(3):
        pool.want(partition)
    pool.grant()
    pool.want(0, 10)
    assert pool.grant() == {1: 1, 2: 1}
    pool.want(1)
    assert pool.grant() == {0: 7}
    pool.want(2)
    assert pool.grant() == {0: 10}


def test_what_was_taken_back_is_given_to_nobody_until_that_is_answered(pool: Pool) -> None:
    pool.offer("w", 4)
    pool.want(0)
    pool.grant()
    pool.want(1, 4)
    assert pool.grant() == {0: 0, 1: 0}
    pool.want(0, answers=1)  # it has not read the lower grant, and may lease by the one before
    assert pool.grant() == {}
    assert pool.counted(0) == {"w": 4}
    pool.want(0, held={"w": 1})
    assert pool.grant() == {0: 1, 1: 3}


def test_nothing_is_taken_twice_while_an_answer_is_under_way(pool: Pool) -> None:
    pool.offer("w", 9)
    for partition in range(3):
        pool.want(partition)
    pool.grant()
    pool.want(0, 4)
    assert pool.grant() == {1: 2}
    pool.want(0, 4)
    assert pool.grant() == {}


def test_a_partition_that_has_not_answered_a_lower_grant_is_left_alone(pool: Pool) -> None:
    pool.offer("w", 4)
    pool.want(0)
    pool.grant()
    pool.want(1, 3)
    assert pool.grant() == {0: 1, 1: 0}
    pool.want(1, 4)
    pool.want(0, 2, answers=1)
    assert pool.grant() == {}


def test_scarce_places_are_shared_evenly_whatever_is_held(pool: Pool) -> None:
    pool.offer("w", 10)
    pool.want(0, 100)
    pool.grant()
    pool.want(0, 90, held={"w": 10})
    pool.want(1, 100)
    assert pool.grant() == {0: 5, 1: 0}
    pool.want(0, 90, held={"w": 10})
    assert pool.grant() == {}
    pool.want(0, 90, held={"w": 7})
    assert pool.grant() == {1: 3}


def test_with_fewer_places_than_partitions_the_oldest_goes_first(pool: Pool) -> None:
    pool.offer("w", 2)
    for partition in range(4):
        pool.want(partition, 1, oldest_ms=NOW - partition)
    assert pool.grant() == {0: 0, 1: 0, 2: 1, 3: 1}


@pytest.mark.parametrize("said", [True, False])
def test_one_place_goes_round_though_all_have_backlogs(pool: Pool, said: bool) -> None:
    def oldest(partition: int) -> int:
        return NOW - 1_000 * partition if said else 0

    pool.offer("w", 1)
    for partition in range(3):
        pool.want(partition, 50, oldest_ms=oldest(partition))
    pool.grant()
    turns = []
    for _ in range(9):
        (holder,) = [p for p in range(3) if pool.granted(p) == {"w": 1}]
        turns.append(holder)
        pool.want(holder, 50, held={"w": 1}, oldest_ms=oldest(holder))
        pool.grant()  # it is to go back after this execution
        pool.now_ms += 100
        pool.want(holder, 50, held={"w": 1}, oldest_ms=oldest(holder))
        pool.grant()
        pool.want(holder, 50, oldest_ms=oldest(holder))
        pool.grant()
    assert sorted(turns) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert all(turns[i : i + 3] == turns[:3] for i in (3, 6))


def test_a_place_that_is_not_contended_stays_where_it_is(pool: Pool) -> None:
    pool.offer("w", 1)
    pool.want(0, 1)
    pool.want(1)
    pool.grant()
    for _ in range(3):
        pool.want(0, 5, held={"w": 1})
        assert pool.grant() == {}


def test_what_does_not_go_round_stays_with_who_has_it(pool: Pool) -> None:
    pool.offer("w", 5)
    pool.want(1, 50, oldest_ms=NOW)
    pool.grant()
    pool.want(1, 50, held={"w": 5}, oldest_ms=NOW)
    pool.want(0, 50, oldest_ms=NOW - 1_000)
    assert pool.grant() == {0: 0, 1: 3}
    pool.want(1, 50, held={"w": 3}, oldest_ms=NOW)
    assert pool.grant() == {0: 2}
    for _ in range(3):
        pool.want(0, 50, held={"w": 2}, oldest_ms=NOW - 1_000)
        pool.want(1, 50, held={"w": 3}, oldest_ms=NOW)
        assert pool.grant() == {}


def test_a_place_goes_only_to_a_partition_that_wants_a_handler_of_the_worker(pool: Pool) -> None:
    pool.offer("w", 3, handlers=("a",))
    pool.offer("v", 3, handlers=("b",))
    pool.want(0, {"a": 9})
    pool.want(1, {"b": 9})
    pool.want(2, {"c": 9})
    assert pool.grant() == {0: 3, 1: 3, 2: 0}
    assert (pool.granted(0), pool.granted(1)) == ({"w": 3}, {"v": 3})


def test_a_handler_of_many_workers_does_not_take_the_only_place_of_another(pool: Pool) -> None:
    pool.offer("1-both", 2, handlers=("a", "b"))
    pool.offer("2-only-a", 2, handlers=("a",))
    pool.offer("3-b-and-c", 2, handlers=("b", "c"))
    pool.want(0, {"a": 4})
    pool.want(1, {"b": 2})
    pool.grant()
    assert pool.granted(0) == {"1-both": 2, "2-only-a": 2}
    assert pool.granted(1) == {"3-b-and-c": 2}


def test_many_leases_elsewhere_do_not_keep_a_partition_from_a_rare_handler(pool: Pool) -> None:
    pool.offer("a", 50, handlers=("a",))
    pool.offer("b", 2, handlers=("b",))
    pool.want(0, {"a": 50})
    pool.grant()
    pool.want(0, {"b": 5}, held={"a": 50})
    pool.want(1, {"b": 5})
    pool.grant()
    pool.want(0, {"b": 5}, held={"a": 50})
    pool.grant()
    assert pool.granted(0).get("b") == pool.granted(1).get("b") == 1


def test_the_first_offer_is_granted_to_who_waits(pool: Pool) -> None:
    pool.want(0, 1)
    pool.want(1)
    pool.grant()
    pool.offer("w", 1)
    assert pool.grant() == {0: 1}


def test_places_are_spread_over_the_workers_with_most_left(pool: Pool) -> None:
    pool.offer("big", 6)
    pool.offer("small", 2)
    pool.want(0, 4)
    pool.want(1, 4)
    pool.grant()
    assert pool.granted(0) == {"big": 4}
    assert pool.granted(1) == {"big": 2, "small": 2}


# --- workers that go ------------------------------------------------------------------------------


def test_a_silent_worker_gets_nothing_new(pool: Pool) -> None:
    pool.offer("w", 4)
    pool.want(0)
    pool.grant()
    pool.now_ms += slots.WORKER_SILENT_MS - 1
    pool.want(0, held={"w": 2})
    assert pool.grant() == {}
    assert slots.falls_silent_ms(pool.state, pool.now_ms) == pool.now_ms + 1
    pool.now_ms += 1
    assert pool.grant() == {0: 0}
    assert pool.said[0].workers == {}


def test_a_draining_worker_gets_nothing_new_and_is_kept_while_somebody_holds_it(pool: Pool) -> None:
    pool.offer("w", 4)
    pool.want(0)
    pool.grant()
    pool.offer("w", 4, draining=True)
    assert pool.grant() == {0: 0}
    pool.now_ms += 60_000
    pool.want(0, held={"w": 1})
    pool.grant()
    assert list(pool.state.workers) == ["w"]
    pool.want(0)
    pool.grant()
    assert pool.state.workers == {}


def test_a_silent_worker_that_speaks_again_is_offered_again(pool: Pool) -> None:
    pool.offer("w", 4)
    pool.want(0)
    pool.grant()
    pool.now_ms += slots.WORKER_SILENT_MS
    pool.want(0)
    pool.grant()
    pool.want(0)
    pool.offer("w", 4)
    assert pool.grant() == {0: 4}


def test_a_worker_that_offers_less_loses_unused_places_first(pool: Pool) -> None:
    pool.offer("w", 8)
    pool.want(0)
    pool.want(1)
    pool.grant()
    pool.want(0, held={"w": 4})
    pool.offer("w", 5)
    assert pool.grant() == {1: 1}
    pool.want(1)
    pool.offer("w", 3)
    assert pool.grant() == {0: 3, 1: 0}


def test_a_worker_that_offers_less_than_is_held_is_not_granted_beyond_that(pool: Pool) -> None:
    pool.offer("w", 8)
    pool.want(0, 8)
    pool.grant()
    pool.offer("w", 4)
    pool.want(0, 4, held={"w": 8})
    assert pool.grant() == {0: 4}
    pool.offer("v", 4)
    pool.want(0, 4, held={"w": 8})
    pool.grant()
    assert pool.granted(0) == {"w": 4, "v": 4}


def test_a_worker_that_reads_elsewhere_is_said_again(pool: Pool) -> None:
    pool.offer("w", 4, inbox_partition=1)
    pool.want(0)
    pool.grant()
    pool.want(0)
    pool.offer("w", 4, inbox_partition=2)
    assert pool.grant() == {0: 4}
    assert pool.said[0].workers["w"].inbox_partition == 2


def test_an_older_offer_changes_nothing(pool: Pool) -> None:
    pool.offer("w", 4, n=5)
    pool.want(0)
    pool.grant()
    before = pool.state
    pool.offer("w", 9, n=5)
    pool.offer("w", 9, n=4)
    assert pool.state is before


# --- partitions that change hands -----------------------------------------------------------------


def test_an_older_message_of_a_partition_changes_nothing(pool: Pool) -> None:
    pool.want(0, epoch=3, n=5)
    before = pool.state
    pool.want(0, 9, epoch=3, n=5)
    pool.want(0, 9, epoch=3, n=4)
    pool.want(0, 9, epoch=2, n=90)
    assert pool.state is before


def test_a_new_owner_of_a_partition_is_answered_at_once_with_numbers_from_one(pool: Pool) -> None:
    pool.offer("w", 4)
    pool.want(0, 2)
    pool.grant()
    pool.want(0, 2, held={"w": 2})
    pool.grant()
    pool.want(0, held={"w": 2}, epoch=9)
    assert pool.grant() == {0: 4}
    assert (pool.said[0].epoch, pool.said[0].n) == (9, 1)


def test_what_the_owner_before_was_granted_is_free_at_once(pool: Pool) -> None:
    pool.offer("w", 4)
    pool.want(0)
    pool.grant()
    pool.want(1, 3)
    pool.want(0, held={"w": 1}, epoch=2)
    assert pool.grant() == {0: 1, 1: 3}


def test_a_partition_that_acts_on_a_grant_nobody_knows_is_told_anew(pool: Pool) -> None:
    pool.offer("w", 4)
    pool.want(0, held={"w": 1}, answers=41)
    assert pool.grant() == {0: 4}
    assert pool.said[0].n == 42
    pool.want(0, held={"w": 2}, answers=77)
    assert pool.grant() == {0: 4}
    assert pool.said[0].n == 78


def test_a_silent_partition_keeps_what_it_holds_and_no_more(pool: Pool) -> None:
    pool.offer("w", 4)
    pool.want(0)
    pool.grant()
    pool.want(0, held={"w": 1})
    pool.now_ms += slots.PARTITION_SILENT_MS
    pool.offer("w", 4)
    pool.want(1, 4)
    assert pool.grant() == {0: 0, 1: 3}
    assert pool.counted(0) == {"w": 1}


def test_a_grant_counts_as_unanswered_until_the_partition_acts_on_it(pool: Pool) -> None:
    pool.offer("w", 4)
    pool.want(0)
    pool.grant()
    assert slots.unanswered(pool.state, pool.now_ms) == ["0"]
    assert slots.grant_of(pool.state, "0") == pool.said[0]
    pool.want(0)
    assert slots.unanswered(pool.state, pool.now_ms) == []


def test_unused_places_are_evened_out_only_when_asked(pool: Pool) -> None:
    pool.offer("w", 8)
    pool.want(0, 8)
    pool.grant()
    pool.want(0)
    pool.want(1)
    assert pool.grant() == {1: 0}
    assert pool.grant(settle=True) == {0: 4}
    pool.want(0)
    assert pool.grant() == {1: 4}
    pool.want(1)
    assert pool.grant(settle=True) == {}


def test_only_what_a_new_owner_cannot_do_without_must_be_kept(pool: Pool) -> None:
    offer = WorkerOffer(
        pool="default", worker="w", inbox_partition=0, handlers=("a",), places=1, ahead=0,
        draining=False, n=100,
    )  # fmt: skip
    assert slots.must_be_kept(pool.state, offer)
    pool.offer("w", 1)
    assert not slots.must_be_kept(pool.state, offer)
    pool.offer("w", 1, draining=True)
    assert slots.must_be_kept(pool.state, offer)
