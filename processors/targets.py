"""Topic targets: where a fire is written, and whether it can be.

A user's topic takes part in the partition's transaction, so one that cannot take a record must be
known before: its partitions are looked up, and a topic that refused is left out for a while
(`TOPIC_SUSPENDED_MS_MIN`, doubling), then asked again.
"""

from collections.abc import Callable
from typing import NamedTuple

from schemas import limits
from schemas.partition import partition_of
from schemas.state import TopicTarget
from streams.errors import Unavailable
from streams.ports import TopicProbe


class _Suspended(NamedTuple):
    until_ms: int
    back_off_ms: int
    reason: str


class TopicTargets:
    """What one partition knows of its users' topics."""

    def __init__(self, probe: TopicProbe, alarm: Callable[..., None]) -> None:
        self._probe = probe
        self._alarm = alarm
        self._suspended: dict[str, _Suspended] = {}
        self._refused: dict[str, str] = {}
        self._turn = 0
        self._step: dict[str, tuple[int, int, str]] = {}

    def begin_step(self) -> None:
        """Ask again about topics, and move on to the next partition for records without key."""
        self._step.clear()
        self._turn += 1

    def suspend(self, topic: str, reason: str, now_ms: int) -> None:
        """Leave the topic out for a while."""
        before = self._suspended.get(topic)
        back_off_ms = limits.TOPIC_SUSPENDED_MS_MIN
        if before is not None:
            back_off_ms = min(before.back_off_ms * 2, limits.TOPIC_SUSPENDED_MS_MAX)
        self._suspended[topic] = _Suspended(now_ms + back_off_ms, back_off_ms, reason)
        self._probe.forget(topic)

    def refuse(self, execution_id: str, reason: str) -> None:
        """The topic refused this execution's record: decide it as failed next time."""
        self._refused[execution_id] = reason

    def place(self, target: TopicTarget, execution_id: str, now_ms: int) -> tuple[int, str]:
        """(partition, "") where the record goes, or (-1, why it cannot be written)."""
        if self._refused:
            refused = self._refused.pop(execution_id, None)
            if refused is not None:
                return -1, refused
        known = self._step.get(target.name)
        if known is None:
            known = self._step[target.name] = self._look(target.name, now_ms)
        partitions, unkeyed, problem = known
        if problem:
            return -1, problem
        if target.key is None:
            return unkeyed, ""
        return partition_of(target.key.decode(), partitions), ""

    @property
    def refused_any(self) -> bool:
        """Whether a topic refused some record that is not decided yet."""
        return bool(self._refused)

    def unkeyed(self, topic: str, now_ms: int) -> tuple[int, str]:
        """(partition, "") for this step's records without key, or (-1, why there is none)."""
        known = self._step.get(topic)
        if known is None:
            known = self._step[topic] = self._look(topic, now_ms)
        return known[1:]

    def _look(self, topic: str, now_ms: int) -> tuple[int, int, str]:
        """(partitions, the one for records without key in this transaction, problem)"""
        suspended = self._suspended.get(topic)
        if suspended is not None and now_ms < suspended.until_ms:
            return 0, -1, f"topic {topic} is left out for now: {suspended.reason}"
        try:
            partitions = self._probe.partitions(topic)
        except Unavailable as error:
            return 0, -1, f"topic {topic} could not be looked up: {error}"
        if not partitions:
            return 0, -1, f"topic {topic} does not exist"
        if suspended is not None and now_ms > suspended.until_ms + suspended.back_off_ms:
            del self._suspended[topic]
            self._alarm("topic_resumed", topic=topic)
        return partitions, self._turn % partitions, ""
