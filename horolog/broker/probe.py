"""Asks a Kafka whether it is there, which cluster it is, and whether transactions work."""

import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from .errors import BrokerError

ClientValue: TypeAlias = str | int | float | bool

INIT_S = 0.02


def cluster_id_at(
    bootstrap: str, client_config: Mapping[str, ClientValue], timeout_s: float
) -> str | None:
    """The cluster id of the Kafka that answers at this address; None if none answers in time."""
    admin = AdminClient(_quiet(bootstrap, client_config))
    try:
        metadata = admin.list_topics(timeout=timeout_s)
    except KafkaException:
        return None
    return metadata.cluster_id


def wait_ready(
    bootstrap: str,
    client_config: Mapping[str, ClientValue],
    deadline_s: float,
    *,
    transactional_id: str = "horolog-probe",
    alive: Callable[[], bool] = lambda: True,
) -> None:
    """Return when Kafka can begin transactions; raise `BrokerError` after `deadline_s` seconds.

    An open port says nothing: the first InitProducerId of a fresh broker meets "coordinator load
    in progress" for about a second. Gives up at once when `alive` says False.
    """
    deadline = time.monotonic() + deadline_s
    producer = Producer({**_quiet(bootstrap, client_config), "transactional.id": transactional_id})
    last = "no answer"
    while time.monotonic() < deadline:
        if not alive():
            raise BrokerError(f"Kafka at {bootstrap} ended before it was ready.")
        try:
            # One long call would wait 500 ms after each "not yet".
            producer.init_transactions(INIT_S)
            return
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            # Whoever is told that somebody else holds this id has heard from the coordinator.
            if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
                return
            if not error.retriable():
                raise BrokerError(f"Kafka at {bootstrap} refuses transactions: {error}") from None
            last = error.str()
    raise BrokerError(f"Kafka at {bootstrap} is not ready after {deadline_s:.0f} s: {last}.")


def _quiet(bootstrap: str, client_config: Mapping[str, ClientValue]) -> dict[str, ClientValue]:
    return {
        **client_config,
        "bootstrap.servers": bootstrap,
        # The client logs each refused connection; while a broker starts they mean nothing.
        "log_level": 0,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 10,
    }
