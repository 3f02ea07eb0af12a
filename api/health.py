"""Is it alive, is it ready, and how does it do: for probes and for Prometheus."""

from collections.abc import Iterator
from typing import Final

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from starlette.responses import Response

from .gateway import Gateway, json

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OPEN: Final = (
    "without authentication: anybody who reaches this address may change, run and end every job"
)


class Figures:
    """What a gateway counts, behind what it holds."""

    def __init__(self, gateway: Gateway) -> None:
        self.registry = CollectorRegistry()
        """What is registered first is told first."""
        self.registry.register(_Held(gateway))
        self.requests = Counter(
            "horolog_gateway_requests", "Requests by method and status.", ("method", "status"),
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "horolog_gateway_request_seconds", "Time until the answer begins.", ("method",),
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip


class _Held:
    """What a gateway holds, asked when it is scraped."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        """The figures as they are now."""
        live = self._gateway.live
        yield from live.lateness.metrics()
        for name, told, value in (
            ("ready", "Whether everything was read that was there at the start.", live.ready),
            ("log_read", "Whether the log is being read.", not live.trouble),
            ("jobs_held", "Jobs held in memory.", len(live.jobs)),
            ("jobs_bytes", "Bytes of the jobs held.", live.jobs.bytes),
            ("jobs_left_out", "Whether jobs were left out for want of room.", live.jobs.full),
            ("executions_held", "Executions held in memory.", len(live.executions)),
            ("records_read", "Records read from the log since the start.", live.records),
            ("writes_waiting", "Commands that wait for their answers.",
             self._gateway.sending.in_flight),
            ("watchers", "Streams of changes that are open.", live.watchers),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"horolog_gateway_{name}", told, value=float(value))


def routes(gateway: Gateway, figures: Figures) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["health"])

    @router.get("/livez", summary="Whether the process is alive")
    async def livez() -> Response:
        return json({"alive": True})

    @router.get("/startupz", summary="Whether the start is over")
    async def startupz() -> Response:
        return json({"started": gateway.live.ready}, 200 if gateway.live.ready else 503)

    @router.get("/readyz", summary="Whether it can do its work, and what is in the way")
    async def readyz() -> Response:
        live = gateway.live
        why = "" if live.ready else "jobs and executions are still being read"
        why = "it ends" if gateway.ending.is_set() else why or live.trouble
        told = {"ready": not why, "why": why, "notice": OPEN if gateway.settings.open else ""}
        return json(told, 503 if why else 200)

    @router.get("/metrics", summary="Figures for Prometheus")
    async def metrics() -> Response:
        return Response(generate_latest(figures.registry), media_type=CONTENT_TYPE_LATEST)

    return router
