"""Membership in the group that says who owns which partition. It never reads a record."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription  # type: ignore[attr-defined]

from ..crash import CrashPoint
from ..errors import Refuse
from .admin import ANSWER_S, Admin
from .failures import Link, made

MEMBERS_EVERY_S: Final = 5.0
LEAVE_S: Final = 5.0


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
        self._asked_s = -MEMBERS_EVERY_S
        self._answer: Future[ConsumerGroupDescription] | None = None
        self._consumer = made(Consumer, config)
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

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
            self._give_up(self._owned, lost=True)
            raise Refuse(
                f"member {self._member} of group {self._group} was put out: {failure}; "
                "no two processes may share a member name"
            )

    def owned(self) -> frozenset[int]:
        return self._owned

    def members_beside_us(self) -> bool:
        """As it was known at most about five seconds ago; asked in the background."""
        answer = self._answer
        if answer is not None and answer.done():
            self._answer = None
            try:
                members = answer.result().members
            except KafkaException:
                self._admin.renew()
            else:
                self._beside_us = any(m.group_instance_id != self._member for m in members)
        now_s = time.monotonic()
        if self._answer is None and now_s - self._asked_s >= MEMBERS_EVERY_S:
            self._asked_s = now_s
            futures = self._admin.client().describe_consumer_groups(
                [self._group], request_timeout=ANSWER_S
            )
            self._answer = futures[self._group]
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

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._crash("CP16")
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
