"""Answers to commands: sent after the commit, once; who hears nothing asks again."""

from schemas.bindings import ACCEPTED, REFUSED
from schemas.commands import AnyCommand
from schemas.partition import partition_of
from schemas.replies import Accepted, Problem, Refused
from streams.ports import Produced
from streams.transaction import Transaction

from .core.admission import BadCommand
from .core.job import Refusal
from .topology import REPLY_PARTITIONS


class Answers:
    """Writes replies to the topic `replies`."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def accept(
        self,
        txn: Transaction,
        command: AnyCommand,
        *,
        life: int,
        version: int,
        sequence: int,
        execution_id: str = "",
        repeated: bool = False,
        warnings: tuple[str, ...] = (),
    ) -> None:
        """The command took effect, now or before."""
        if command.reply_to:
            accepted = Accepted(
                command_id=command.command_id, tenant=command.tenant, job=command.job, life=life,
                version=version, sequence=sequence, execution_id=execution_id, repeated=repeated,
                warnings=warnings,
            )  # fmt: skip
            self._send(txn, command.reply_to, ACCEPTED.encode(accepted))

    def refuse(self, txn: Transaction, command: AnyCommand, refusal: Refusal) -> None:
        """The command took no effect at all."""
        self._refuse(txn, command.reply_to, command.command_id, command.tenant, command.job,
                     refusal)  # fmt: skip

    def refuse_bad(self, txn: Transaction, bad: BadCommand, problems: tuple[Problem, ...]) -> None:
        """It could not even be read as a command."""
        refusal = Refusal("invalid", bad.message, problems)
        self._refuse(txn, bad.reply_to, bad.command_id, bad.tenant, bad.job, refusal)

    def _refuse(
        self,
        txn: Transaction,
        reply_to: str,
        command_id: str,
        tenant: str,
        job: str,
        refusal: Refusal,
    ) -> None:
        if reply_to:
            refused = Refused(
                command_id=command_id, tenant=tenant, job=job, kind=refusal.kind,
                message=refusal.message, problems=refusal.problems,
            )  # fmt: skip
            self._send(txn, reply_to, REFUSED.encode(refused))

    def _send(self, txn: Transaction, reply_to: str, value: bytes) -> None:
        partition = partition_of(reply_to, REPLY_PARTITIONS)
        txn.send(Produced(self._topic, partition, reply_to.encode(), value))
