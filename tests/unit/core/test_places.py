"""What a partition does with the places it was granted, and what it says about them."""

from collections import Counter
from collections.abc import Mapping

from processors.core.places import (
    ASK_AGAIN_MS,
    MISS_AGAIN_MS,
    REFUSED_MS_MAX,
    REPEAT_MS,
    SAY_CALMLY_MS,
    SAY_MS,
    Place,
    PoolPlaces,
    pool_limit,
)
from schemas.slots import Places, SlotsGranted, SlotsWanted

NOW = 1_700_000_000_000
NOTHING: Mapping[str, int] = {}


def grant(
    n: int, epoch: int = 5, handlers: tuple[str, ...] = ("a",), **counts: int
) -> SlotsGranted:
    workers = {
        worker: Places(count=count, inbox_partition=int(worker[1:]), handlers=handlers)
        for worker, count in counts.items()
    }
    return SlotsGranted(limit=pool_limit("default"), partition=3, epoch=epoch, n=n, workers=workers)


def restored(epoch: int = 5, **held: int) -> PoolPlaces:
    places = PoolPlaces("default", 3)
    places.restore(epoch, held)
    return places


def said(places: PoolPlaces, now_ms: int, wanted: Mapping[str, int] = NOTHING) -> SlotsWanted:
    message = places.wanted(now_ms, wanted, {}, 0)
    assert message is not None
    return message


def quiet(places: PoolPlaces, now_ms: int, wanted: Mapping[str, int] = NOTHING) -> bool:
    return places.wanted(now_ms, wanted, {}, 0) is None


# --- taking places --------------------------------------------------------------------------------


def test_nothing_is_leased_after_a_take_over_until_a_grant_answers() -> None:
    places = restored(w1=1)
    assert places.take("a", NOW) is None
    assert not places.answered
    assert places.granted(grant(1, w1=2))
    assert places.answered
    assert places.take("a", NOW) == Place("w1", 1)
    assert places.take("a", NOW) is None


def test_leases_counted_at_the_take_over_use_places() -> None:
    places = restored(w1=2)
    places.granted(grant(1, w1=2))
    assert places.take("a", NOW) is None
    places.release("w1")
    assert places.take("a", NOW) == Place("w1", 1)


def test_work_goes_to_the_worker_with_most_free_places_and_in_turn_among_equals() -> None:
    places = restored(w1=3)
    places.granted(grant(1, w1=4, w2=3, w3=3))
    taken = [places.take("a", NOW) for _ in range(6)]
    assert Counter(place.worker for place in taken if place) == {"w2": 3, "w3": 3}
    first_two = [place.worker for place in taken[:2] if place]
    assert sorted(first_two) == ["w2", "w3"]


def test_work_goes_only_to_a_worker_that_has_its_handler() -> None:
    places = restored()
    places.granted(grant(1, handlers=("b",), w1=2))
    assert places.take("a", NOW) is None
    assert places.take("b", NOW) == Place("w1", 1)


def test_a_grant_replaces_the_one_before() -> None:
    places = restored()
    places.granted(grant(1, w1=2))
    assert places.granted(grant(2, w2=1))
    assert places.take("a", NOW) == Place("w2", 2)
    assert places.take("a", NOW) is None


def test_a_lower_grant_ends_no_lease_but_stops_new_ones() -> None:
    places = restored()
    places.granted(grant(1, w1=2))
    places.take("a", NOW)
    places.take("a", NOW)
    assert not places.granted(grant(2, w1=1))
    places.release("w1")
    assert places.take("a", NOW) is None
    places.release("w1")
    assert places.take("a", NOW) is not None


def test_grants_of_another_epoch_and_older_ones_change_nothing() -> None:
    places = restored()
    places.granted(grant(2, w1=1))
    assert not places.granted(grant(3, epoch=4, w1=9))
    assert not places.granted(grant(9, epoch=6, w1=9))
    assert not places.granted(grant(1, w1=9))
    assert places.free("a", NOW) == 1


def test_a_new_epoch_begins_without_places_and_the_same_one_keeps_them() -> None:
    places = restored()
    places.granted(grant(4, w1=2))
    places.take("a", NOW)
    places.restore(5, {})
    assert places.free("a", NOW) == 2
    places.restore(6, {})
    assert places.free("a", NOW) == 0
    assert places.granted(grant(1, epoch=6, w1=1))


# --- workers that refuse --------------------------------------------------------------------------


def test_a_worker_that_refuses_is_left_alone_for_longer_each_time() -> None:
    places = restored()
    places.granted(grant(1, w1=1))
    now, waits = NOW, []
    for _ in range(8):
        assert places.take("a", now) is not None
        places.release("w1")
        places.refuse("w1", now)
        again = places.retry_ms(now)
        assert again is not None
        assert places.take("a", again - 1) is None
        waits.append(again - now)
        now = again
    assert waits == [100, 200, 400, 800, 1_600, 3_200, REFUSED_MS_MAX, REFUSED_MS_MAX]


def test_several_refusals_that_were_under_way_together_count_as_one() -> None:
    places = restored()
    places.granted(grant(1, w1=3))
    for _ in range(3):
        places.refuse("w1", NOW)
    assert places.retry_ms(NOW) == NOW + 100


def test_a_refusal_long_ago_is_forgotten() -> None:
    places = restored()
    places.granted(grant(1, w1=1))
    places.refuse("w1", NOW)
    later = NOW + 100 + REFUSED_MS_MAX
    places.refuse("w1", later)
    assert places.retry_ms(later) == later + 100


def test_others_are_used_while_one_refuses() -> None:
    places = restored()
    places.granted(grant(1, w1=5, w2=1))
    places.refuse("w1", NOW)
    assert places.free("a", NOW) == 1
    assert places.take("a", NOW) == Place("w2", 2)


# --- what is said ---------------------------------------------------------------------------------


def test_a_take_over_asks_at_once_and_says_everything() -> None:
    places = restored(epoch=8, w1=2)
    message = places.wanted(NOW, {"a": 3}, {"a": 1, "b": 2}, NOW - 50)
    assert message == SlotsWanted(
        limit="pool:default", partition=3, epoch=8, n=1, held={"w1": 2}, wanted={"a": 4, "b": 2},
        oldest_ms=NOW - 50, answers=0,
    )  # fmt: skip


def test_a_question_is_asked_again_until_a_grant_answers() -> None:
    places = restored()
    said(places, NOW)
    assert places.deadline_ms() == NOW + ASK_AGAIN_MS
    assert quiet(places, NOW + ASK_AGAIN_MS - 1)
    waits, now = [], NOW
    for _ in range(5):
        again = places.deadline_ms()
        assert again is not None
        waits.append(again - now)
        now = again
        said(places, now)
    assert waits == [1_000, 2_000, 4_000, MISS_AGAIN_MS, MISS_AGAIN_MS]
    places.granted(grant(1, w1=1))
    assert said(places, now + SAY_MS).answers == 1
    assert places.deadline_ms() == now + SAY_MS + REPEAT_MS


def test_changes_are_said_at_most_every_20_ms_while_places_are_missing() -> None:
    places = restored()
    places.granted(grant(1, w1=1))
    said(places, NOW, {"a": 5})
    assert quiet(places, NOW + SAY_MS - 1, {"a": 6})
    assert places.deadline_ms() == NOW + SAY_MS
    assert said(places, NOW + SAY_MS, {"a": 6}).wanted == {"a": 6}


def test_that_nothing_is_missing_any_more_is_said_within_20_ms() -> None:
    places = restored()
    places.granted(grant(1, w1=1))
    said(places, NOW, {"a": 5})
    assert said(places, NOW + SAY_MS).wanted == {}


def test_changes_are_said_less_often_while_there_are_places_enough() -> None:
    places = restored()
    places.granted(grant(1, w1=9))
    said(places, NOW)
    places.take("a", NOW)
    assert quiet(places, NOW + SAY_CALMLY_MS - 1, {"a": 2})
    assert places.deadline_ms() == NOW + SAY_CALMLY_MS
    assert said(places, NOW + SAY_CALMLY_MS, {"a": 2}).held == {"w1": 1}


def test_a_grant_is_answered_within_20_ms() -> None:
    places = restored()
    places.granted(grant(1, w1=9))
    said(places, NOW)
    places.granted(grant(2, w1=5))
    assert said(places, NOW + SAY_MS).answers == 2


def test_leases_beyond_a_lower_grant_are_said_to_end_within_20_ms() -> None:
    places = restored(w1=3)
    places.granted(grant(1, w1=1))
    said(places, NOW)
    places.release("w1")
    assert said(places, NOW + SAY_MS).held == {"w1": 2}


def test_the_newest_grant_again_is_answered_again() -> None:
    places = restored()
    places.granted(grant(1, w1=1))
    said(places, NOW)
    places.granted(grant(1, w1=1))
    assert said(places, NOW + SAY_CALMLY_MS).answers == 1


def test_what_is_missing_is_said_again_after_5_s_and_that_it_is_there_after_10() -> None:
    missing = restored()
    missing.granted(grant(1, w1=1))
    said(missing, NOW, {"a": 2})
    assert quiet(missing, NOW + MISS_AGAIN_MS - 1, {"a": 2})
    said(missing, NOW + MISS_AGAIN_MS, {"a": 2})
    content = restored()
    content.granted(grant(1, w1=1))
    said(content, NOW, {"a": 1})
    assert quiet(content, NOW + REPEAT_MS - 1, {"a": 1})
    said(content, NOW + REPEAT_MS, {"a": 1})


def test_after_a_dropped_step_everything_is_said_again_under_a_new_number() -> None:
    places = restored()
    places.granted(grant(1, w1=2))
    first = said(places, NOW)
    places.take("a", NOW)
    places.restore(5, {})
    again = said(places, NOW + 1)
    assert (again.epoch, again.n, again.held, again.answers) == (5, first.n + 1, {}, 1)


def test_a_clock_that_was_set_back_delays_nothing() -> None:
    places = restored()
    said(places, NOW)
    assert said(places, NOW - 60_000).n == 2
