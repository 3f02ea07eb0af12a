"""The client's transactional calls, with its errors mapped to what the caller does next.

A fenced producer may raise SystemError, without an error, from calls that run callbacks. The next
call says what it is. After that it answers to further calls with whatever its state happens to be.
"""

import time
from collections.abc import Callable
from typing import Final, NoReturn

from confluent_kafka import KafkaError, KafkaException, Producer

from ..errors import Doubt, Fenced, StreamError
from .failures import Link, kafka_error, made, producer_failure

INIT_CALL_S: Final = 0.02
"""One long call waits a fixed 500 ms for the predecessor's markers; short ones ask at once."""
ABORT_S: Final = 5.0
FLUSH_S: Final = 5.0


class TransactionalClient:
    """One client with a transactional id. Every call may raise `Fenced` and `Doubt`."""

    def __init__(self, config: dict[str, object], link: Link) -> None:
        self.producer = made(Producer, config)
        self.link = link
        self._fenced: Fenced | None = None

    def check_epoch(self) -> None:
        """Raise `Fenced` if it was raised before."""
        if self._fenced is not None:
            raise self._fenced

    def init_once(self) -> bool:
        """Ask for the epoch; False if it is to be asked for again."""
        try:
            self.producer.init_transactions(INIT_CALL_S)
        except KafkaException as exception:
            error = kafka_error(exception)
            if not error.retriable():
                raise self._failure(error, "taking the epoch") from exception
            return False
        return True

    def begin(self) -> None:
        self.poll("before a transaction")
        self.link.broken = False
        try:
            self.producer.begin_transaction()
        except KafkaException as exception:
            raise self._failure(kafka_error(exception), "beginning") from exception

    def commit(self, until_s: float) -> KafkaError | None:
        """Commit; the error if the transaction must be aborted instead."""
        try:
            self._finish("committing", self.producer.commit_transaction, until_s)
        except KafkaException as exception:
            error = kafka_error(exception)
            if error.txn_requires_abort():
                return error
            raise self._failure(error, "committing") from exception
        self._check_link("committing")
        return None

    def abort(self, until_s: float) -> None:
        try:
            self._finish("aborting", self.producer.abort_transaction, until_s)
        except KafkaException as exception:
            raise self._failure(kafka_error(exception), "aborting") from exception
        self._check_link("aborting")

    def flush(self) -> None:
        """Wait until what was handed over is in the log, or has failed."""
        try:
            self.producer.flush(FLUSH_S)
        except SystemError:
            self._tell_fenced("flushing")
        except KafkaException as exception:
            raise self._failure(kafka_error(exception), "flushing") from exception

    def poll(self, doing: str) -> None:
        """Let the client run callbacks that are due."""
        try:
            self.producer.poll(0)
        except SystemError:
            self._tell_fenced(doing)
        except KafkaException as exception:
            raise self._failure(kafka_error(exception), doing) from exception

    def _finish(self, doing: str, call: Callable[[float], None], until_s: float) -> None:
        """Commit or abort, resuming as often as the client asks for it."""
        while True:
            try:
                call(max(until_s - time.monotonic(), 0.001))
            except SystemError:
                self._tell_fenced(doing)
            except KafkaException as exception:
                error = kafka_error(exception)
                if not error.retriable():
                    raise
                if time.monotonic() >= until_s:
                    raise Doubt(f"{doing}: no answer in time: {error.str()}") from exception
            else:
                return

    def _check_link(self, doing: str) -> None:
        # The client goes on by itself after a disconnect, so what it calls a success may have
        # ended a transaction of which we do not know the whole story.
        self.poll(doing)
        if self.link.broken:
            raise Doubt(f"{doing}: the connection was lost meanwhile")

    def _failure(self, error: KafkaError, doing: str) -> StreamError:
        failure = producer_failure(error, doing)
        if isinstance(failure, Fenced):
            self._fenced = failure
        return failure

    def _tell_fenced(self, doing: str) -> NoReturn:
        try:
            self.producer.abort_transaction(ABORT_S)
        except KafkaException as exception:
            raise self._failure(kafka_error(exception), doing) from exception
        except SystemError as error:
            raise Doubt(f"{doing}: the client failed without saying why") from error
        raise Doubt(f"{doing}: the client failed without saying why")
