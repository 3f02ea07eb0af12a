"""Reading what the scheduler tells this worker, on a thread of its own."""

import threading
from collections.abc import Callable
from typing import Final

from schemas.bindings import WORK_BATCH
from schemas.codec import Undecodable
from schemas.leases import WorkItem
from streams.errors import OutOfRange, Unavailable
from streams.patience import until_answered
from streams.ports import Log, Reader, TopicPartition

from .ports import Alarm

READ_MAX: Final = 1_000
READ_S: Final = 0.25
AGAIN_S: Final = 0.5


class Inbox:
    """Hands over the items of one worker, in the order of its inbox partition. It is read from its
    end: what was sent to others, or before the worker was there, is nobody's here.

    `on_items` is called on the reading thread.
    """

    def __init__(
        self, log: Log, partition: TopicPartition, *, worker: str,
        on_items: Callable[[list[WorkItem]], None], alarm: Alarm,
    ) -> None:  # fmt: skip
        self._log = log
        self._partition = partition
        self._worker = worker
        self._key = worker.encode()
        self._on_items = on_items
        self._alarm = alarm
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._reader: Reader | None = None

    def open(self) -> None:
        """Find the end and read from there. Returns when the position is known, so that whatever
        is offered after this call is answered to us. Raises `Unavailable`."""
        end = until_answered(lambda: self._log.offsets().end([self._partition]))
        self._reader = self._log.reader(self._worker, committed=False)
        self._reader.assign(end)

    def start(self) -> None:
        """Begin to hand over."""
        self._thread = threading.Thread(target=self._run, name="inbox", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)
        if self._reader is not None:
            self._reader.close()

    def read_once(self, timeout_s: float = READ_S) -> None:
        """Hand over what is there, or wait for it. What the thread does again and again."""
        assert self._reader is not None
        try:
            records = self._reader.read(READ_MAX, timeout_s)
        except Unavailable as error:
            self._alarm("inbox_unavailable", error=str(error))
            self._stop.wait(AGAIN_S)
            return
        except OutOfRange as error:
            # Deleted before we read it: those leases run out and are delivered again.
            self._alarm("inbox_lost", error=str(error))
            self._from_the_end()
            return
        items: list[WorkItem] = []
        for record in records:
            if record.key != self._key or record.value is None:
                continue
            try:
                batch = WORK_BATCH.decode(record.value)
            except Undecodable as error:
                self._alarm("inbox_undecodable", offset=record.offset, error=str(error))
                continue
            if batch.worker == self._worker:
                items += batch.items
        if items:
            self._on_items(items)

    def _from_the_end(self) -> None:
        assert self._reader is not None
        try:
            self._reader.assign(self._log.offsets().end([self._partition]))
        except Unavailable as error:
            self._alarm("inbox_unavailable", error=str(error))
            self._stop.wait(AGAIN_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.read_once()
