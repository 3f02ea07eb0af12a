"""`horolog up`: everything on one machine, until Ctrl-C."""

import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING

import typer

from .frame import command, say

if TYPE_CHECKING:
    from horolog.installation import Installation
    from horolog.settings import Settings

LOOK_EVERY_S = 0.2


def add_to(app: typer.Typer) -> None:
    """Make `up` a command of `app`."""
    command(app, "up")(_up)


def _up(settings: "Settings") -> None:
    """Run everything on this machine until Ctrl-C: Kafka, topics, scheduler, slots,
    HTTP worker, gateway.

    With KAFKA_BOOTSTRAP_SERVERS or --bootstrap it uses that Kafka, else an embedded one. The data
    folder is kept. A service that dies is started again. On a Kafka of this machine alone HTTP jobs
    may call private addresses and plain http, unless settings say otherwise.
    """
    from horolog.installation import Installation

    ended = end_on_signals()
    with Installation(settings, say) as running:
        running.start()
        _introduce(running)
        while not ended.wait(LOOK_EVERY_S):
            running.look()
        say("ending …")
    say("ended; everything accepted is in the data folder, `horolog up` goes on with it")


def end_on_signals() -> threading.Event:
    """An event that is set by Ctrl-C or SIGTERM; the second Ctrl-C interrupts at once."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        if ended.is_set():
            raise KeyboardInterrupt
        ended.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    return ended


def _introduce(running: "Installation") -> None:
    settings = running.settings
    say("")
    say(f"  page       {running.page}")
    say(f"  Kafka      {running.kafka}")
    say(f"  namespace  {settings.namespace}, {settings.partitions} partitions")
    say(f"  data       {settings.data_dir.resolve()} (kept)")
    say("")
    if running.embedded:
        say("One broker, no replication: what was accepted survives the death of any process, but")
        say("a loss of power can take the last seconds with it.")
    if running.permissive:
        say("HTTP jobs may call private addresses and plain http: only this machine can register")
        say("them. HOROLOG_HTTP__ALLOWED_CIDRS and HOROLOG_HTTP__ALLOW_PLAIN_HTTP narrow that.")
    if not settings.gateway.loopback:
        say("The gateway asks nobody who he is: anybody who reaches it may change every job.")
    say("Try `horolog job put --help` in another terminal. Ctrl-C ends everything.")
