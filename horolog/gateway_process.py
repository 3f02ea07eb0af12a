"""One gateway as a process: checks, wiring, signals, the end."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

import structlog
import uvicorn
import uvloop

from api import app as api
from api import health, serving
from api.gateway import Settings as GatewaySettings
from horolog import logs
from horolog.processor_process import check_topics
from horolog.settings import GatewaySettings as Where
from horolog.settings import Settings
from schemas import limits
from streams.crash import from_environment
from streams.errors import Refuse
from streams.kafka import KafkaLog

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
KEEP_ALIVE_S: Final = 30
END_S: Final = 5
BACKLOG: Final = 512


def run(settings: Settings, bootstrap: str) -> None:
    """Answer requests until SIGTERM or SIGINT. Raises `Refuse` with the reason when it must not
    answer at this address, `Unavailable` when Kafka does not answer at the start."""
    at = settings.gateway
    if not at.loopback and not at.insecure_without_auth:
        raise Refuse(
            f"the gateway asks nobody who he is, and {at.host} is reached by others: anybody there "
            "could change, run and end every job; --insecure-without-auth says that this is meant"
        )
    logs.configure(service="gateway", namespace=settings.namespace)
    log = structlog.stdlib.get_logger("horolog.gateway")
    check_topics(settings, bootstrap, log)
    listening = _listen(at.host, at.port)
    port = listening.getsockname()[1]
    if not at.loopback:
        log.warning("gateway_without_authentication", address=f"{at.host}:{port}",
                    meaning=health.OPEN)  # fmt: skip
    wanted = GatewaySettings(
        namespace=settings.namespace, partitions=settings.partitions, tenant=settings.tenant,
        open=not at.loopback, hosts=hosts_of(at),
        version=version("horolog-server"),
    )  # fmt: skip
    kafka = KafkaLog(bootstrap, settings.kafka.client)
    # Values here form no cycles; walking all jobs for some would stop every request.
    gc.set_threshold(50_000, 20, 1_000)
    sys.setswitchinterval(0.001)
    with listening:
        log.info("gateway_started", page=f"http://{_written(at.host)}:{port}/")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(wanted, kafka, log, listening))
    log.info("gateway_stopped")


async def _serve(
    settings: GatewaySettings, kafka: KafkaLog, log: structlog.stdlib.BoundLogger,
    listening: socket.socket,
) -> None:  # fmt: skip
    def alarm(event: str, **values: object) -> None:
        log.warning(event, **values)

    crash = from_environment(os.environ)
    async with serving.gateway(settings, kafka, alarm, crash) as gateway:
        server = _Server(
            uvicorn.Config(
                api.application(gateway), http="httptools", ws="none", lifespan="off",
                log_config=None, access_log=False, server_header=False,
                limit_concurrency=limits.CONNECTIONS_MAX, timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=END_S, backlog=BACKLOG,
            )
        )  # fmt: skip
        loop = asyncio.get_running_loop()

        def end(number: int) -> None:
            log.info("gateway_stopping", signal=signal.Signals(number).name)
            gateway.ending.set()
            gateway.live.wake()  # streams end by themselves
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end, number)
        await server.serve(sockets=[listening])


class _Server(uvicorn.Server):
    """One that leaves the signals to us: its own handler would raise them again at the end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise Refuse(
            f"the gateway cannot answer at {host}:{port}: {error.strerror}; --port or "
            "HOROLOG_GATEWAY__PORT names another port, 0 any that is free"
        ) from error


def hosts_of(at: Where) -> frozenset[str] | None:
    """Names by which the gateway may be called; None: any."""
    if not at.loopback and not at.names:
        return None
    return LOOPBACK | {_written(at.host), *(_written(name) for name in at.names)}


def _written(host: str) -> str:
    """The address as it stands in a URL."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()
