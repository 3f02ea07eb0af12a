"""One reader for all inputs of a process, on a thread of its own.

Requests to start, stop, pause and resume are carried out by that thread between two reads, so a
record handed on always belongs to the token of the start that asked for it.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Final

from .errors import OutOfRange, Unavailable
from .layout import topic_name
from .ports import Reader, Record

READ_RECORDS: Final = 2_000
READ_S: Final = 0.05
IDLE_S: Final = 0.05

Receive = Callable[[int, int, list[Record], str], None]
"""(partition, token, records, topic)"""
Lost = Callable[[int, int, str], None]
"""(partition, token, reason): an input can no longer be read from its position."""


class InputThread:
    """Feeds `receive` until `close`."""

    def __init__(self, reader: Reader, namespace: str, receive: Receive, lost: Lost) -> None:
        self._reader = reader
        self._namespace = namespace
        self._receive = receive
        self._lost = lost
        self._requests: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._tokens: dict[int, int] = {}
        self._topics: dict[int, tuple[str, ...]] = {}
        self._closing = False
        self.failed: Exception | None = None
        """Why nothing will come any more, if so."""
        self._thread = threading.Thread(target=self._run, name="inputs", daemon=True)
        self._thread.start()

    def start(self, partition: int, token: int, positions: Mapping[str, int]) -> None:
        """Send records from these positions on, marked with the token."""
        starts = {(self._name(topic), partition): at for topic, at in positions.items()}

        def work() -> None:
            self._tokens[partition] = token
            self._topics[partition] = tuple(positions)
            self._reader.assign(starts)

        self._requests.put(work)

    def stop(self, partition: int) -> None:
        """Send nothing more for this partition."""

        def work() -> None:
            if self._tokens.pop(partition, None) is not None:
                topics = self._topics.pop(partition)
                self._reader.unassign([(self._name(t), partition) for t in topics])

        self._requests.put(work)

    def pause(self, partition: int, topic: str) -> None:
        """Hold this input back for a while."""
        self._requests.put(lambda: self._if_started(self._reader.pause, partition, topic))

    def resume(self, partition: int, topic: str) -> None:
        """Let it come again."""
        self._requests.put(lambda: self._if_started(self._reader.resume, partition, topic))

    def close(self) -> None:
        """Stop the thread and close the reader."""
        self._closing = True
        self._thread.join()
        self._reader.close()

    def _if_started(
        self, act: Callable[[list[tuple[str, int]]], None], partition: int, topic: str
    ) -> None:
        if partition in self._tokens:
            act([(self._name(topic), partition)])

    def _name(self, topic: str) -> str:
        return topic_name(self._namespace, topic)

    def _run(self) -> None:
        try:
            self._feed()
        except Exception as error:  # noqa: BLE001 - nobody would hear of it, and nothing would come
            self.failed = error

    def _feed(self) -> None:
        while not self._closing:
            self._serve()
            if not self._tokens:
                self._wait()
                continue
            try:
                records = self._reader.read(READ_RECORDS, READ_S)
            except OutOfRange as error:
                for partition, token in list(self._tokens.items()):
                    if error.partition is None or error.partition[1] == partition:
                        self._lost(partition, token, str(error))
                        self.stop(partition)
                continue
            except Unavailable:
                continue
            self._hand_on(records)

    def _hand_on(self, records: list[Record]) -> None:
        groups: dict[tuple[str, int], list[Record]] = defaultdict(list)
        for record in records:
            groups[record.topic, record.partition].append(record)
        skip = len(self._namespace) + 1
        for (topic, partition), batch in groups.items():
            token = self._tokens.get(partition)
            if token is not None:
                self._receive(partition, token, batch, topic[skip:])

    def _serve(self) -> None:
        while True:
            try:
                self._requests.get_nowait()()
            except Empty:
                return

    def _wait(self) -> None:
        try:
            self._requests.get(timeout=IDLE_S)()
        except Empty:
            return
