"""What every group membership promises."""

from collections.abc import Iterator

import pytest

from streams.errors import Refuse
from streams.ports import Ownership
from tests.contracts.conftest import Cluster, until

PARTITIONS = 6
Told = tuple[str, str, tuple[int, ...], bool]


class Group:
    """Members of one group, and all that they were told, in order."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic = cluster.topic("commands", PARTITIONS)
        self.told: list[Told] = []
        self.members: list[Ownership] = []

    def join(self, name: str) -> Ownership:
        member = self.cluster.log.ownership(
            self.cluster.name("group"),
            self.topic,
            name,
            on_assigned=lambda numbers: self._tell(name, "assigned", numbers, lost=False),
            on_revoked=lambda numbers, lost: self._tell(name, "revoked", numbers, lost=lost),
        )
        self.members.append(member)
        return member

    def settle(self, *wanted: tuple[Ownership, int]) -> None:
        """Poll all until these members own so many partitions."""

        def is_settled() -> bool:
            for member in self.members:
                member.poll(0.02)
            return all(len(member.owned()) == count for member, count in wanted)

        until(is_settled, f"{[count for _, count in wanted]} partitions")

    def _tell(self, name: str, what: str, numbers: list[int], *, lost: bool) -> None:
        assert numbers, "nobody is told of nothing"
        self.told.append((name, what, tuple(numbers), lost))


@pytest.fixture
def group(cluster: Cluster) -> Iterator[Group]:
    group = Group(cluster)
    yield group
    for member in group.members:
        member.leave()


def test_the_only_member_owns_everything(group: Group) -> None:
    member = group.join("a")
    assert member.owned() == frozenset()
    group.settle((member, PARTITIONS))
    assert member.owned() == frozenset(range(PARTITIONS))
    assert group.told == [("a", "assigned", tuple(range(PARTITIONS)), False)]
    assert not member.members_beside_us()


def test_nobody_is_told_anything_outside_a_poll(group: Group) -> None:
    group.join("a")
    assert group.told == []


def test_a_second_member_gets_half_after_the_first_gave_it_up(group: Group) -> None:
    first = group.join("a")
    group.settle((first, PARTITIONS))
    second = group.join("b")
    group.settle((first, 3), (second, 3))
    assert first.owned() | second.owned() == frozenset(range(PARTITIONS))
    revoked = next(told for told in group.told if told[1] == "revoked")
    taken = next(told for told in group.told if told[:2] == ("b", "assigned"))
    assert revoked == ("a", "revoked", taken[2], False)
    assert group.told.index(revoked) < group.told.index(taken)
    until(lambda: _knows_another(group, first), "the first to hear of the second")


def _knows_another(group: Group, member: Ownership) -> bool:
    for each in group.members:
        each.poll(0.02)
    return member.members_beside_us()


def test_who_leaves_gives_everything_up_at_once(group: Group) -> None:
    first, second = group.join("a"), group.join("b")
    group.settle((first, 3), (second, 3))
    held = tuple(sorted(second.owned()))
    group.told.clear()
    second.leave()
    group.members.remove(second)
    assert group.told == [("b", "revoked", held, False)]
    assert second.owned() == frozenset()
    group.settle((first, PARTITIONS))


def test_who_left_may_come_back_under_its_name_and_gets_its_share(group: Group) -> None:
    first, second = group.join("a"), group.join("b")
    group.settle((first, 3), (second, 3))
    group.members.remove(first)
    first.leave()
    group.settle((second, PARTITIONS))
    again = group.join("a")
    group.settle((again, 3), (second, 3))


def test_who_comes_back_under_its_name_puts_the_other_out(group: Group) -> None:
    old = group.join("a")
    group.settle((old, PARTITIONS))
    group.members.remove(old)
    new = group.join("a")
    group.settle((new, PARTITIONS))

    def is_put_out() -> bool:
        new.poll(0.02)
        try:
            old.poll(0.02)
        except Refuse:
            return True
        return False

    until(is_put_out, "the old member to be put out")
    assert old.owned() == frozenset()
    assert ("a", "revoked", tuple(range(PARTITIONS)), True) in group.told
    group.settle((new, PARTITIONS))
    old.leave()


def test_positions_are_committed_without_a_word(group: Group) -> None:
    member = group.join("a")
    member.commit_positions({0: 5})
    group.settle((member, PARTITIONS))
    member.commit_positions({0: 5, 1: 7, 99: 1})
    member.commit_positions({})
    member.poll(0.02)
