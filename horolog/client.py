"""Sends commands to the scheduler through Kafka and waits for their answers.

A reply is sent once, so who hears nothing for two seconds asks again under the same command id;
the command takes effect once all the same.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final

import msgspec

from processors.exchange import ASK_AGAIN_S, Answer, Exchange, Outgoing, Sendable, outgoing
from processors.topology import COMMANDS, REPLIES, REPLY_PARTITIONS
from schemas.partition import partition_of
from streams.clock import SystemClock
from streams.layout import topic_name
from streams.ports import Clock, Log

WAIT_S: Final = 30.0
IN_FLIGHT_MAX: Final = 2_000
"""Commands of one batch that wait for their answers at a time."""
READ_S: Final = 0.25


class NoTopics(Exception):
    """Horolog's topics are not there. Create them, or look at the namespace."""


class NoReply(Exception):
    """Nobody answered in time. The commands may have been accepted: repeat them under the same
    ids to know. `answers` holds what was answered before, by command id."""

    def __init__(self, unanswered: Sequence[str], waited_s: float, answers: dict[str, Answer]):
        shown = unanswered[0] if len(unanswered) == 1 else f"{len(unanswered)} commands"
        super().__init__(f"no reply from a scheduler within {waited_s:.0f} s to {shown}")
        self.unanswered = tuple(unanswered)
        self.answers = answers


class KafkaClient:
    """One sender of commands under one namespace. Not thread-safe; close it, or use `with`.

    Raises `NoTopics` at once when there is nothing to send to, `streams.errors.Unavailable` when
    Kafka does not answer.
    """

    def __init__(
        self, log: Log, *, namespace: str, by: str = "", clock: Clock | None = None
    ) -> None:
        self._by = by
        self._clock = clock or SystemClock()
        self._topic = topic_name(namespace, COMMANDS)
        self._partitions = log.topics().partitions(self._topic)
        if not self._partitions:
            raise NoTopics(f"topic {self._topic} does not exist")
        self._reader_id = f"client-{uuid.uuid4().hex[:16]}"
        replies = (topic_name(namespace, REPLIES), partition_of(self._reader_id, REPLY_PARTITIONS))
        self._outbox = log.outbox(self._reader_id)
        self._reader = log.reader(self._reader_id, committed=False)
        # From here on: every reply to this reader comes after its first command.
        self._reader.assign(log.offsets().end([replies]))

    def __enter__(self) -> "KafkaClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the connections; what was sent stays sent."""
        self._reader.close()
        self._outbox.close()

    def send(self, command: Sendable, *, wait_s: float = WAIT_S) -> Answer:
        """Send one command and wait for its answer. Raises `NoReply` after `wait_s`."""
        return self.send_all((command,), wait_s=wait_s)[0]

    def send_all(self, commands: Iterable[Sendable], *, wait_s: float = WAIT_S) -> list[Answer]:
        """Send many commands, many under way at a time; the answers in the commands' order.

        An id is made up where a command has none; ids must differ. Raises `NoReply` once nothing
        was answered for `wait_s`.
        """
        exchange = Exchange(self._prepared(commands), ASK_AGAIN_S, IN_FLIGHT_MAX)
        heard_s = self._clock.monotonic_s()
        while not exchange.done:
            now_s = self._clock.monotonic_s()
            self._outbox.send(exchange.to_send(now_s))
            if exchange.done:
                break
            records = self._reader.read(IN_FLIGHT_MAX, READ_S)
            # One by one, not as a generator: every reply is to be taken.
            answered = [exchange.take(record.key, record.value) for record in records]
            if any(answered):
                heard_s = self._clock.monotonic_s()
            elif self._clock.monotonic_s() - heard_s > wait_s:
                raise NoReply(exchange.unanswered(), wait_s, exchange.answers)
        return exchange.in_order()

    def _prepared(self, commands: Iterable[Sendable]) -> Iterator[Outgoing]:
        for command in commands:
            command_id = command.command_id or uuid.uuid4().hex
            whole = msgspec.structs.replace(
                command, command_id=command_id, reply_to=self._reader_id,
                by=command.by or self._by,
            )  # fmt: skip
            yield outgoing(whole, self._topic, self._partitions)
