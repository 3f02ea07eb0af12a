"""Twins in memory of what a worker needs from the world."""

from collections.abc import Callable

from streams.memory import MemoryBroker
from streams.memory.broker import Refused
from streams.ports import Clock, Produced

from .lease import Lease
from .ports import Acknowledged, Why


class MemoryReportLog:
    """Meets `ReportLog` over a log in memory. While `away`, records wait; `come_back` lets them
    in, `lose` fails them. While `mute`, they come in but nobody is told before `speak`."""

    def __init__(
        self, broker: MemoryBroker, clock: Clock, on_acknowledged: Callable[[Acknowledged], None]
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._on_acknowledged = on_acknowledged
        self._waiting: list[tuple[Produced, int]] = []
        self._unsaid: list[tuple[int, int]] = []
        self.away = False
        self.mute = False

    def send(self, topic: str, partition: int, key: bytes, value: bytes, number: int) -> bool:
        self._waiting.append((Produced(topic, partition, key, value), number))
        if not self.away:
            self._append()
        return True

    def come_back(self) -> None:
        """The log answers again."""
        self.away = False
        self._append()

    def speak(self) -> None:
        """Tell what came in meanwhile."""
        self.mute = False
        unsaid, self._unsaid = self._unsaid, []
        for number, appended_ms in unsaid:
            self._tell(number, appended_ms)

    def lose(self) -> None:
        """What waits has waited too long."""
        waiting, self._waiting = self._waiting, []
        for _, number in waiting:
            self._on_acknowledged(
                Acknowledged(number, self._clock.boottime_ms(), failed="timed out")
            )

    def flush(self, timeout_s: float) -> bool:
        del timeout_s
        return not self._waiting

    def close(self) -> None:
        self._waiting.clear()

    def _append(self) -> None:
        waiting, self._waiting = self._waiting, []
        for record, number in waiting:
            try:
                with self._broker.lock:
                    _, appended_ms = self._broker.append(record)
            except Refused as error:
                failed = Acknowledged(number, self._clock.boottime_ms(), failed=str(error))
                self._on_acknowledged(failed)
                continue
            if self.mute:
                self._unsaid.append((number, appended_ms))
            else:
                self._tell(number, appended_ms)

    def _tell(self, number: int, appended_ms: int) -> None:
        self._on_acknowledged(Acknowledged(number, self._clock.boottime_ms(), appended_ms))


class MemoryExecutor:
    """Meets `Executor`: remembers what it was told; whoever holds it says how runs go on."""

    def __init__(self) -> None:
        self.started: dict[int, Lease] = {}
        self.before_ms: dict[int, int] = {}
        self.stops: list[tuple[int, Why]] = []
        self.began: dict[int, int] = {}
        self.abandoned: list[int] = []

    def start(self, lease: Lease, *, before_ms: int) -> None:
        self.started[lease.number] = lease
        self.before_ms[lease.number] = before_ms

    def stop(self, lease: Lease, why: Why) -> None:
        self.stops.append((lease.number, why))

    def began_at(self, lease: Lease) -> int:
        return self.began.get(lease.number, 0)

    def abandon(self, lease: Lease) -> None:
        self.abandoned.append(lease.number)

    def flush(self) -> None:
        return
