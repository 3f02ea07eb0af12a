"""Sends commands for many requests at a time and hands each its answer.

One thread does all the talking to Kafka; requests wait on the event loop.
"""

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from processors.exchange import (
    ASK_AGAIN_S,
    Answer,
    Outgoing,
    Sendable,
    decode_answer,
    outgoing,
)
from processors.topology import COMMANDS, REPLIES, REPLY_PARTITIONS
from schemas import limits
from schemas.partition import partition_of
from streams.clock import SystemClock
from streams.crash import CrashPoint, unarmed
from streams.errors import OutOfRange, StreamError
from streams.layout import topic_name
from streams.ports import Clock, Log, Outbox, Produced, Reader, TopicPartition

READ_MAX: Final = 2_000
READ_S: Final = 0.25
BACK_OFF_S: Final = 0.5


class Busy(Exception):
    """As many writes as there may be are under way. Ask the client to come back."""


class Unanswered(Exception):
    """The scheduler did not answer in time. The command may take effect: the same id tells."""

    def __init__(self, command_id: str) -> None:
        super().__init__(f"no answer yet to {command_id}")
        self.command_id = command_id


class Sending:
    """One sender of commands under one namespace, for a whole process.

    Raises `streams.errors.Unavailable` where Kafka does not answer at the start.
    """

    def __init__(
        self, log: Log, namespace: str, partitions: int, alarm: Callable[..., None],
        clock: Clock | None = None, crash: CrashPoint = unarmed,
    ) -> None:  # fmt: skip
        self._crash = crash
        self._alarm = alarm
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._topic = topic_name(namespace, COMMANDS)
        self._partitions = partitions
        self._reader_id = f"gateway-{uuid.uuid4().hex[:16]}"
        self._waiting: dict[str, _Waiting] = {}
        """By command id."""
        self._ended = threading.Event()
        replies = (topic_name(namespace, REPLIES), partition_of(self._reader_id, REPLY_PARTITIONS))
        self._outbox: Outbox = log.outbox(self._reader_id)
        self._reader: Reader = log.reader(self._reader_id, committed=False)
        # From here on: every reply to this reader comes after its first command.
        self._ends: Callable[[], dict[TopicPartition, int]] = partial(log.offsets().end, (replies,))
        self._reader.assign(self._ends())
        self._thread = threading.Thread(target=self._run, name="replies", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Give up the connections; what was sent stays sent."""
        self._ended.set()
        await asyncio.to_thread(self._thread.join)
        self._reader.close()
        await asyncio.to_thread(self._outbox.flush, limits.OUTBOX_FLUSH_S)
        self._outbox.close()

    @property
    def in_flight(self) -> int:
        """Commands that wait for their answers."""
        return len(self._waiting)

    async def send(self, command: Sendable, wait_s: float) -> Answer:
        """Send one command and wait for its answer; an id is made up where it has none.

        Raises `Busy`, and `Unanswered` when the time is over.
        """
        if len(self._waiting) >= limits.WRITES_IN_FLIGHT_MAX:
            raise Busy
        command_id = command.command_id or uuid.uuid4().hex
        whole = msgspec.structs.replace(command, command_id=command_id, reply_to=self._reader_id)
        made = outgoing(whole, self._topic, self._partitions)
        if made.refused is not None:
            return made.refused
        heard: asyncio.Future[Answer] = self._loop.create_future()
        waiting = _Waiting(made, heard)
        others = self._waiting.get(command_id)
        if others is not None:
            # The same id twice at a time: the answers may differ, so one after the other.
            await asyncio.wait((others.heard,), timeout=wait_s)
            if command_id in self._waiting:
                raise Unanswered(command_id)
        self._waiting[command_id] = waiting
        try:
            self._outbox.send((made.produced,))
            waiting.again_s = self._clock.monotonic_s() + ASK_AGAIN_S
            async with asyncio.timeout(wait_s):
                answer = await heard
            self._crash("CP20")
            return answer
        except TimeoutError:
            raise Unanswered(command_id) from None
        finally:
            self._waiting.pop(command_id, None)

    def _run(self) -> None:
        looked_s = 0.0
        while not self._ended.is_set():
            try:
                records = self._reader.read(READ_MAX, READ_S)
            except OutOfRange:
                # Nothing is lost by it: who hears nothing asks again.
                self._reader.assign(self._ends())
                continue
            except StreamError as error:
                self._alarm("replies_not_read", reason=str(error))
                self._ended.wait(BACK_OFF_S)
                continue
            ours = self._reader_id.encode()
            answers = [
                answer
                for record in records
                if record.key == ours and record.value is not None
                if (answer := decode_answer(record.value)) is not None
            ]
            if answers:
                self._post(lambda answers=answers: self._heard(answers))  # type: ignore[misc]
            now_s = self._clock.monotonic_s()
            if now_s - looked_s > READ_S:
                looked_s = now_s
                self._post(self._ask_again)

    def _post(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(work)

    def _heard(self, answers: list[Answer]) -> None:
        for answer in answers:
            waiting = self._waiting.get(answer.command_id)
            if waiting is not None and not waiting.heard.done():
                waiting.heard.set_result(answer)

    def _ask_again(self) -> None:
        now_s = self._clock.monotonic_s()
        records: list[Produced] = []
        for waiting in self._waiting.values():
            if waiting.again_s <= now_s:
                waiting.again_s = now_s + ASK_AGAIN_S
                records.append(waiting.made.produced)
        # Bounded by what is under way; a full queue is one of a log that is away.
        self._outbox.send(records)


class _Waiting:
    """A request that waits for its answer."""

    __slots__ = ("again_s", "heard", "made")

    def __init__(self, made: Outgoing, heard: "asyncio.Future[Answer]") -> None:
        self.made = made
        self.heard = heard
        self.again_s = float("inf")
