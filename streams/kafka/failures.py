"""What the client's errors mean for us, in one place."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from ..errors import Doubt, Fenced, Refuse, StreamError

_log = logging.getLogger("horolog.kafka")

REPORT_EVERY_S: Final = 10.0

FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
# Set-up that no retry changes.
_FORBIDDEN: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
# While one of these is going on, an answer may have been lost on the way.
_LINK: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
    }
)


Client = TypeVar("Client")


def made(client: Callable[[dict[str, object]], Client], config: dict[str, object]) -> Client:
    """A client. Raises `Refuse` for settings that it does not take."""
    try:
        return client(config)
    except (KafkaException, TypeError, ValueError) as error:
        reason = kafka_error(error).str() if isinstance(error, KafkaException) else str(error)
        raise Refuse(f"the settings of [kafka.client] are not accepted: {reason}") from error


def kafka_error(exception: KafkaException) -> KafkaError:
    error = exception.args[0]
    if isinstance(error, KafkaError):
        return error
    return KafkaError(KafkaError._FAIL, str(error))


def producer_failure(error: KafkaError, doing: str) -> StreamError:
    """The error to raise for a transactional call that failed and requires no abort."""
    message = f"{doing}: {error.name()}: {error.str()}"
    if error.code() in FENCED:
        return Fenced(message)
    if error.code() in _FORBIDDEN:
        return Refuse(message)
    return Doubt(message)


class Link:
    """Watches a client's connections. Given to it as error callback, which must never raise.

    Disconnects come in floods while a broker is away: each kind is logged once in ten seconds.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._reported_s: dict[int, float] = {}
        self.broken = False
        """Whether a connection failed since this was last set to False."""
        self._broken_s = -REPORT_EVERY_S
        self.fatal: str | None = None
        """Why the client is of no more use."""

    def quiet_s(self) -> float:
        """For how long no connection has failed."""
        return time.monotonic() - self._broken_s

    def __call__(self, error: KafkaError) -> None:
        code = error.code()
        if code in _LINK:
            self.broken = True
            self._broken_s = time.monotonic()
        if code == KafkaError._FATAL or error.fatal():
            self.fatal = error.str()
        now_s = time.monotonic()
        if now_s - self._reported_s.get(code, -REPORT_EVERY_S) >= REPORT_EVERY_S:
            self._reported_s[code] = now_s
            _log.warning("%s: %s: %s", self._client_id, error.name(), error.str())
