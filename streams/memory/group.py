"""Who owns which partition, in memory. Changes take effect when the members poll."""

from collections.abc import Callable, Mapping

from ..crash import CrashPoint
from ..errors import Refuse


class MemoryGroup:
    """One topic's partitions spread over the members, who keep what they have where they can."""

    def __init__(self, name: str, partition_count: Callable[[], int]) -> None:
        self.name = name
        self.positions: dict[int, int] = {}
        self._partition_count = partition_count
        self._members: dict[str, MemoryOwnership] = {}
        self._holders: dict[int, str] = {}
        """Who was last given a partition and has not handed it back."""
        self._targets: dict[int, str] = {}

    def expel(self, member: str) -> None:
        """The session timed out: others may take its partitions at once, and it learns of it at
        its next poll, when it joins again."""
        del self._members[member]
        self._holders = {p: holder for p, holder in self._holders.items() if holder != member}
        self.rebalance()

    def move(self, partition: int, member: str) -> None:
        """Let this member have the partition, until the next rebalance."""
        self._targets[partition] = member

    def rebalance(self) -> None:
        names = list(self._members)
        count = self._partition_count()
        if not names:
            self._targets = {}
            return
        share, rest = divmod(count, len(names))
        room = {name: share + (index < rest) for index, name in enumerate(names)}
        targets: dict[int, str] = {}
        homeless = []
        for partition in range(count):
            holder = self._holders.get(partition)
            if holder is not None and room.get(holder, 0) > 0:
                room[holder] -= 1
                targets[partition] = holder
            else:
                homeless.append(partition)
        for partition in homeless:
            name = next(name for name in names if room[name] > 0)
            room[name] -= 1
            targets[partition] = name
        self._targets = targets

    def join(self, name: str, member: "MemoryOwnership") -> None:
        # A member that comes back under its name has its partitions as before.
        returning = name in self._members
        self._members[name] = member
        if not returning:
            self.rebalance()

    def remove(self, name: str) -> None:
        del self._members[name]
        self._holders = {p: holder for p, holder in self._holders.items() if holder != name}
        self.rebalance()

    def current(self, name: str) -> "MemoryOwnership | None":
        return self._members.get(name)

    def others(self, name: str) -> bool:
        return any(member != name for member in self._members)

    def to_give_up(self, name: str, owned: frozenset[int]) -> list[int]:
        return sorted(p for p in owned if self._targets.get(p) != name)

    def hand_back(self, name: str, partitions: list[int]) -> None:
        for partition in partitions:
            if self._holders.get(partition) == name:
                del self._holders[partition]

    def to_take(self, name: str, owned: frozenset[int]) -> list[int]:
        taken = [
            partition
            for partition, target in sorted(self._targets.items())
            if target == name
            and self._holders.get(partition, name) == name
            and partition not in owned
        ]
        self._holders.update(dict.fromkeys(taken, name))
        return taken


class MemoryOwnership:
    """Meets `streams.ports.Ownership`."""

    def __init__(
        self,
        group: MemoryGroup,
        member: str,
        *,
        on_assigned: Callable[[list[int]], None],
        on_revoked: Callable[[list[int], bool], None],
        wait: Callable[[float], None],
        crash: CrashPoint,
    ) -> None:
        self._group = group
        self._member = member
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._wait = wait
        self._crash = crash
        self._owned: frozenset[int] = frozenset()
        group.join(member, self)

    def poll(self, timeout_s: float) -> None:
        current = self._group.current(self._member)
        if current is not self:
            self._give_up(sorted(self._owned), lost=True)
            if current is not None:
                raise Refuse(
                    f"member {self._member} of group {self._group.name} was put out; "
                    "no two processes may share a member name"
                )
            self._group.join(self._member, self)
        gone = self._group.to_give_up(self._member, self._owned)
        self._give_up(gone, lost=False)
        self._group.hand_back(self._member, gone)
        new = self._group.to_take(self._member, self._owned)
        if new:
            self._crash("CP16")
            self._owned |= frozenset(new)
            self._on_assigned(new)
        if not gone and not new:
            self._wait(timeout_s)

    def owned(self) -> frozenset[int]:
        return self._owned

    def members_beside_us(self) -> bool:
        return self._group.others(self._member)

    def commit_positions(self, positions: Mapping[int, int]) -> None:
        for partition, position in positions.items():
            if partition in self._owned:
                self._group.positions[partition] = position

    def leave(self) -> None:
        current = self._group.current(self._member)
        self._give_up(sorted(self._owned), lost=current is not self)
        if current is self:
            self._group.remove(self._member)

    def _give_up(self, partitions: list[int], *, lost: bool) -> None:
        if partitions:
            self._crash("CP15")
            self._owned -= frozenset(partitions)
            self._on_revoked(partitions, lost)
