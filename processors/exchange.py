"""The asker's half of a conversation with the scheduler: commands out, answers in. Does no I/O.

A reply is sent once, so who hears nothing for a while asks again under the same command id; the
command takes effect once all the same.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from schemas import limits
from schemas.bindings import ACCEPTED, REFUSED
from schemas.bindings import COMMANDS as COMMAND_CODECS
from schemas.codec import Undecodable
from schemas.commands import AnyCommand
from schemas.partition import job_key, partition_of
from schemas.replies import Accepted, Problem, Refused
from streams.ports import Produced

ASK_AGAIN_S: Final = 2.0

Answer = Accepted | Refused


class JsonCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command as somebody wrote it in JSON: the scheduler says what is wrong with its `fields`.
    `kind` is its type."""

    kind: str
    tenant: str
    job: str
    fields: dict[str, Any] = {}
    command_id: str = ""
    reply_to: str = ""
    by: str = ""
    note: str = ""
    if_match: int | None = None


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


Sendable = AnyCommand | JsonPut | JsonCommand


class Outgoing(msgspec.Struct, frozen=True):
    """A command ready to be sent; `refused` if it is not worth sending."""

    command_id: str
    reader: bytes
    produced: Produced
    refused: Refused | None = None


def outgoing(command: Sendable, topic: str, partitions: int) -> Outgoing:
    """The command as a record of `topic`; it has its id and whom to answer."""
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
    produced = Produced(topic, partition_of(key.decode(), partitions), key, value)
    return Outgoing(command.command_id, command.reply_to.encode(), produced, refused)


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
        answer = decode_answer(value) if value is not None else None
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
    """The value of the record: Avro, or JSON for what came as JSON."""
    if not isinstance(command, JsonPut | JsonCommand):
        return COMMAND_CODECS[type(command).__name__].encode(command)
    written = msgspec.structs.asdict(command)
    if command.if_match is None:
        del written["if_match"]
    kind, fields = written.pop("kind", "put"), written.pop("fields", {})
    return msgspec.json.encode({**fields, "type": kind, **written})


def decode_answer(value: bytes) -> Answer | None:
    """The answer in a record of the replies; None for anything else."""
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
