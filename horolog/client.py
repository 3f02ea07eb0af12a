"""Sends commands to the scheduler through Kafka and waits for their answers.

A reply is sent once, so who hears nothing for two seconds asks again under the same command id;
the command takes effect once all the same.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final

import msgspec

from processors.topology import COMMANDS, REPLIES, REPLY_PARTITIONS
from schemas import limits
from schemas.bindings import ACCEPTED, REFUSED
from schemas.bindings import COMMANDS as COMMAND_CODECS
from schemas.codec import Undecodable
from schemas.commands import AnyCommand
from schemas.partition import job_key, partition_of
from schemas.replies import Accepted, Problem, Refused
from streams.clock import SystemClock
from streams.layout import topic_name
from streams.ports import Clock, Log, Produced

ASK_AGAIN_S: Final = 2.0
WAIT_S: Final = 30.0
IN_FLIGHT_MAX: Final = 2_000
"""Commands of one batch that wait for their answers at a time."""
READ_S: Final = 0.25

Answer = Accepted | Refused


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


class JsonPut(msgspec.Struct, frozen=True, kw_only=True):
    """A put whose definition is JSON as somebody wrote it: the scheduler says what is wrong."""

    tenant: str
    job: str
    definition: Any
    command_id: str = ""
    reply_to: str = ""
    by: str = ""
    note: str = ""
    if_match: int | None = None


Sendable = AnyCommand | JsonPut


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

    def _prepared(self, commands: Iterable[Sendable]) -> Iterator["Outgoing"]:
        for command in commands:
            command_id = command.command_id or uuid.uuid4().hex
            whole = msgspec.structs.replace(
                command, command_id=command_id, reply_to=self._reader_id,
                by=command.by or self._by,
            )  # fmt: skip
            yield self._outgoing(whole)

    def _outgoing(self, command: Sendable) -> "Outgoing":
        refused: Refused | None = None
        key, value = b"", b""
        try:
            key = job_key(command.tenant, command.job).encode()
            value = encode_command(command)
        except UnicodeEncodeError as error:
            problem = Problem("command", f"holds text that is no Unicode: {error.reason}")
            refused = _refused(command, "the command cannot be written", problem)
        if len(value) > limits.COMMAND_BYTES_MAX:
            most = limits.COMMAND_BYTES_MAX
            problem = Problem("command", f"{len(value)} bytes", f"at most {most}, payload included")
            refused = _refused(command, "the command is too large", problem)
        partition = partition_of(key.decode(), self._partitions)
        produced = Produced(self._topic, partition, key, value)
        return Outgoing(command.command_id, self._reader_id.encode(), produced, refused)


class Outgoing(msgspec.Struct, frozen=True):
    """A command ready to be sent; `refused` if it is not worth sending."""

    command_id: str
    reader: bytes
    produced: Produced
    refused: Refused | None = None


class Exchange:
    """Who of a batch was sent and answered, and who is to be asked again. Does no I/O."""

    def __init__(
        self, commands: Iterable[Outgoing], ask_again_s: float, in_flight_max: int
    ) -> None:
        self._rest = iter(commands)
        self._ask_again_s = ask_again_s
        self._in_flight_max = in_flight_max
        self._order: list[str] = []
        self._waiting: dict[str, tuple[float, Outgoing]] = {}
        """By command id: when it is to be asked again. In the order of these times."""
        self._ended = False
        self.answers: dict[str, Answer] = {}

    @property
    def done(self) -> bool:
        """Whether every command was sent and answered."""
        return self._ended and not self._waiting

    def to_send(self, now_s: float) -> list[Produced]:
        """What to send now: those that heard nothing for too long, then new ones."""
        records: list[Produced] = []
        while self._waiting:
            command_id, (at_s, again) = next(iter(self._waiting.items()))
            if at_s > now_s:
                break
            del self._waiting[command_id]
            self._waiting[command_id] = (now_s + self._ask_again_s, again)
            records.append(again.produced)
        while len(self._waiting) < self._in_flight_max and not self._ended:
            outgoing = next(self._rest, None)
            if outgoing is None:
                self._ended = True
                break
            if outgoing.command_id in self._waiting or outgoing.command_id in self.answers:
                raise ValueError(f"command id {outgoing.command_id!r} is given twice")
            self._order.append(outgoing.command_id)
            if outgoing.refused is not None:
                self.answers[outgoing.command_id] = outgoing.refused
                continue
            self._waiting[outgoing.command_id] = (now_s + self._ask_again_s, outgoing)
            records.append(outgoing.produced)
        return records

    def take(self, key: bytes | None, value: bytes | None) -> bool:
        """Take a record of the replies; True if it answers a command of ours for the first time."""
        answer = _decode(value) if value is not None else None
        waiting = self._waiting.get(answer.command_id) if answer is not None else None
        if answer is None or waiting is None or waiting[1].reader != key:
            return False
        del self._waiting[answer.command_id]
        self.answers[answer.command_id] = answer
        return True

    def unanswered(self) -> list[str]:
        """Ids that were sent and not answered."""
        return list(self._waiting)

    def in_order(self) -> list[Answer]:
        """The answers in the order in which the commands came."""
        return [self.answers[command_id] for command_id in self._order]


def encode_command(command: Sendable) -> bytes:
    """The value of the record: Avro, or JSON for a definition that came as JSON."""
    if not isinstance(command, JsonPut):
        return COMMAND_CODECS[type(command).__name__].encode(command)
    written = msgspec.structs.asdict(command)
    if command.if_match is None:
        del written["if_match"]
    return msgspec.json.encode({"type": "put", **written})


def _decode(value: bytes) -> Answer | None:
    for codec in (ACCEPTED, REFUSED):
        if value[:5] == codec.prefix:
            try:
                answer: Answer = codec.decode(value)
            except Undecodable:
                return None
            return answer
    return None


def _refused(command: Sendable, message: str, problem: Problem) -> Refused:
    return Refused(
        command_id=command.command_id, tenant=command.tenant, job=command.job, kind="invalid",
        message=message, problems=(problem,),
    )  # fmt: skip
