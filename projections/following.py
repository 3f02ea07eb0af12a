"""Follows topics of one namespace as they grow, read_committed, on a thread of its own."""

import threading
from collections.abc import Callable, Mapping
from typing import Final

from streams.errors import OutOfRange, StreamError, Unavailable
from streams.layout import topic_name
from streams.ports import Log, Reader, Record, TopicPartition

READ_MAX: Final = 500
"""Records handed over at a time: whoever takes them has other things to do as well."""
READ_S: Final = 0.25
BACK_OFF_S: Final = 1.0
UNDER_WAY_MAX: Final = 4
"""Portions handed over that are not dealt with yet."""

Deal = Callable[[list[Record], Callable[[], None]], None]
"""Gets records and what to call once it has dealt with them, from any thread."""


class Following:
    """Hands over every record of `topics`, then goes on as they come, until `close`.

    `topics` says how many of the newest records of each partition are read; None: all of them.
    `begin` is called before the first record, and again whenever everything is read anew because
    the log was cut short; `caught_up` when everything was handed over that was committed at the
    beginning. `failed` is told why reading does not go on at the moment.
    """

    def __init__(
        self,
        log: Log,
        namespace: str,
        client_id: str,
        topics: Mapping[str, int | None],
        partitions: int,
        *,
        begin: Callable[[], None],
        deal: Deal,
        caught_up: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._log = log
        self._client_id = client_id
        self._tails = {topic_name(namespace, name): tail for name, tail in topics.items()}
        self._partitions = partitions
        self._begin = begin
        self._deal = deal
        self._caught_up = caught_up
        self._failed = failed
        self._ended = threading.Event()
        self._under_way = threading.Semaphore(UNDER_WAY_MAX)
        self._thread = threading.Thread(target=self._run, name="following", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._ended.set()
        self._under_way.release()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            reader: Reader | None = None
            try:
                offsets = self._log.offsets()
                places = [(t, p) for t in self._tails for p in range(self._partitions)]
                ends, starts = offsets.stable_end(places), offsets.start(places)
                reader = self._log.reader(self._client_id, committed=True)
                reader.assign({place: self._from(place, starts, ends) for place in places})
                self._begin()
                self._follow(reader, ends, starts)
            except StreamError as error:
                self._failed(str(error))
                self._ended.wait(BACK_OFF_S)
            finally:
                if reader is not None:
                    reader.close()

    def _from(
        self, place: TopicPartition, starts: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> int:  # fmt: skip
        tail = self._tails[place[0]]
        return starts[place] if tail is None else max(starts[place], ends[place] - tail)

    def _follow(
        self, reader: Reader, ends: dict[TopicPartition, int], starts: dict[TopicPartition, int]
    ) -> None:
        behind = {place for place, end in ends.items() if self._from(place, starts, ends) < end}
        told = False
        while not self._ended.is_set():
            try:
                records = reader.read(READ_MAX, READ_S)
            except OutOfRange:
                raise
            except Unavailable as error:
                self._failed(str(error))
                self._ended.wait(BACK_OFF_S)
                continue
            if records:
                self._under_way.acquire()
                self._deal(records, self._under_way.release)
            if behind:
                behind = {place for place in behind if reader.position(place) < ends[place]}
            if not behind and not told:
                told = True
                self._caught_up()
