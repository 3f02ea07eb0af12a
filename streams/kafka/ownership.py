"""Membership in the group that says who owns which partition. It never reads a record."""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import ConsumerGroupDescription  # type: ignore[attr-defined]

from ..crash import CrashPoint
from ..errors import Refuse
from .admin import ANSWER_S, Admin
from .failures import Link, made

LOOK_AFTER_S: Final = 3.0
"""A partition that moves has no owner for about a second."""
LOOK_FOR_S: Final = 20.0
"""Who belongs to the group changes with an assignment of ours, so it is asked for after one, and
not for ever: the client aborts the process when a broker goes away under such a question."""
LEAVE_S: Final = 5.0
NAMESAKE_S: Final = 30.0
"""Put out twice within this time, it is by a process of the same name. Once may be by ourselves:
a broker that dies while we join may take us for our own successor."""
ORPHANED_LOOKS: Final = 2

_log = logging.getLogger("horolog.kafka")


class KafkaOwnership:
    """Meets `streams.ports.Ownership`."""

    def __init__(
        self,
        config: dict[str, object],
        link: Link,
        admin: Admin,
        group: str,
        topic: str,
        member: str,
        *,
        on_assigned: Callable[[list[int]], None],
        on_revoked: Callable[[list[int], bool], None],
        crash: CrashPoint,
    ) -> None:
        self._config = config
        self._link = link
        self._admin = admin
        self._group = group
        self._topic = topic
        self._member = member
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._crash = crash
        self._owned: frozenset[int] = frozenset()
        self._beside_us = False
        self._assigned_s = self._asked_s = time.monotonic()
        self._answer: Future[ConsumerGroupDescription] | None = None
        self._orphaned_looks = 0
        self._partitions = 0
        self._put_out_s = -NAMESAKE_S
        self._consumer = made(Consumer, config)
        self._subscribe()

    def poll(self, timeout_s: float) -> None:
        """Raises `Refuse` when a process of the same name has put this one out."""
        try:
            # Only errors come out of it: every partition is paused.
            message = self._consumer.poll(timeout_s)
        except KafkaException as exception:
            failure: str | None = str(exception)
        else:
            error = None if message is None else message.error()
            fatal = error is not None and (error.fatal() or error.code() == KafkaError._FATAL)
            failure = str(error) if fatal else self._link.fatal
        if failure is not None:
            self._put_out(failure)
        self._look_at_group()

    def owned(self) -> frozenset[int]:
        return self._owned

    def members_beside_us(self) -> bool:
        """As it was a few seconds after our last assignment; asked in the background."""
        return self._beside_us

    def commit_positions(self, positions: Mapping[int, int]) -> None:
        offsets = [
            TopicPartition(self._topic, partition, offset)
            for partition, offset in positions.items()
            if partition in self._owned
        ]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException:
            return

    def leave(self) -> None:
        # Closing alone would hide a static member's partitions for the session time-out.
        try:
            self._consumer.unsubscribe()
            until_s = time.monotonic() + LEAVE_S
            while self._owned and time.monotonic() < until_s:
                self._consumer.poll(0.05)
        except KafkaException:
            # Put out already.
            self._give_up(self._owned, lost=True)
        self._consumer.close()

    def _subscribe(self, *more: str) -> None:
        self._consumer.subscribe(
            [self._topic, *more],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    def _put_out(self, failure: str) -> None:
        """Join again, with nothing in hand; the second time in a while give up."""
        self._give_up(self._owned, lost=True)
        now_s = time.monotonic()
        if now_s - self._put_out_s < NAMESAKE_S:
            raise Refuse(
                f"member {self._member} of group {self._group} was put out: {failure}; "
                "no two processes may share a member name"
            )
        self._put_out_s = now_s
        _log.warning("%s: put out of its group, joins again: %s", self._member, failure)
        self._consumer.close()
        self._link.fatal = None
        self._consumer = made(Consumer, self._config)
        self._subscribe()

    def _look_at_group(self) -> None:
        answer = self._answer
        if answer is not None and answer.done():
            self._answer = None
            try:
                self._heed(answer.result())
            except KafkaException:
                self._admin.renew()
        now_s = time.monotonic()
        if self._answer is not None or now_s - self._asked_s < LOOK_AFTER_S:
            return
        if LOOK_AFTER_S <= now_s - self._assigned_s < LOOK_FOR_S and self._link.quiet_s() > LEAVE_S:
            self._asked_s = now_s
            futures = self._admin.client().describe_consumer_groups(
                [self._group], request_timeout=ANSWER_S
            )
            self._answer = futures[self._group]

    def _heed(self, group: ConsumerGroupDescription) -> None:
        """A member that dies while a partition moves away from it, and comes back under its name,
        finds the group settled: nobody has that partition, and nobody else will ask why."""
        names = [member.group_instance_id or "" for member in group.members]
        self._beside_us = any(name != self._member for name in names)
        held = {
            place.partition
            for member in group.members
            for place in member.assignment.topic_partitions
        }
        settled = group.state == ConsumerGroupState.STABLE
        orphaned = settled and len(held) < self._partition_count()
        self._orphaned_looks = self._orphaned_looks + 1 if orphaned else 0
        if self._orphaned_looks >= ORPHANED_LOOKS:
            _log.warning("%s: partitions without an owner: sharing out again", self._member)
            self._orphaned_looks = 0
            # Only a change of what we subscribe to makes the client ask for a new round.
            self._subscribe(f"{self._topic}.again")
            self._subscribe()

    def _partition_count(self) -> int:
        if not self._partitions:
            found = self._consumer.list_topics(self._topic, ANSWER_S).topics[self._topic]
            self._partitions = len(found.partitions)
        return self._partitions

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._crash("CP16")
        self._assigned_s = time.monotonic()
        numbers = sorted(p.partition for p in partitions)
        # An explicit offset keeps the client from asking for one; nothing is read from it.
        held = [TopicPartition(self._topic, number, 0) for number in numbers]
        consumer.incremental_assign(held)
        if not numbers:
            return
        consumer.pause(held)
        self._owned |= frozenset(numbers)
        self._on_assigned(numbers)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._crash("CP15")
        self._give_up(frozenset(p.partition for p in partitions), lost=False)
        consumer.incremental_unassign(partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._crash("CP15")
        self._give_up(frozenset(p.partition for p in partitions), lost=True)
        consumer.incremental_unassign(partitions)

    def _give_up(self, numbers: frozenset[int], *, lost: bool) -> None:
        gone = numbers & self._owned
        self._owned -= gone
        if gone:
            self._on_revoked(sorted(gone), lost)
