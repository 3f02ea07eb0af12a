"""A processor small enough to hold in the head, to run the machinery with.

Inputs are texts: `set k due` keeps a record that is due at that time, `del k` leaves a stub,
`forget k` removes it, `fire topic k` writes to a user's topic, `reply k` answers after the
commit, `forward k` sends on before it; `poison` and `crash` are what they say. An entry that
comes due fires into the topic `out`; one whose key begins with `bad` crashes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from schemas.bindings import INPUT_LOST, MARK, QUARANTINED
from streams.binding import Changelog, DueEntryCrashed, Topology
from streams.errors import PoisonRecord
from streams.ports import Produced, Record, Store
from streams.transaction import Transaction

NAMESPACE = "h"
STATE, DEFS, EVENTS, QUARANTINE, IN = "state", "defs", "events", "quarantine", "in"
OURS = {codec.prefix: codec for codec in (MARK, INPUT_LOST, QUARANTINED)}


def encode(**values: Any) -> bytes:
    return msgspec.json.encode(values)


def index(store_key: bytes, value: bytes) -> Iterable[tuple[bytes, bytes]]:
    due = msgspec.json.decode(value)["due"]
    return [(b"d/" + due.to_bytes(8, "big") + store_key[2:], b"")] if due else []


def transaction_of(value: bytes) -> int:
    codec = OURS.get(value[:5])
    if codec is not None:
        return int(codec.decode(value).txn)
    return int(msgspec.json.decode(value)["txn"])


def targets_of(value: bytes) -> Iterable[tuple[str, int]]:
    if value[:5] in OURS:
        return ()
    return [(topic, partition) for topic, partition in msgspec.json.decode(value)["targets"]]


TOY = Topology(
    name="toy",
    inputs=(IN,),
    changelogs=(
        Changelog(STATE, lambda key: b"s/" + key),
        Changelog(DEFS, lambda key: b"j/" + key),
    ),
    events=(EVENTS,),
    events_topic=EVENTS,
    quarantine=QUARANTINE,
    index_prefixes=(b"d/",),
    indexed_prefix=b"s/",
    index=index,
    transaction_of=transaction_of,
    targets_of=targets_of,
)


def name(topic: str) -> str:
    return f"{NAMESPACE}.{topic}"


class Toy:
    """Meets `streams.binding.Logic`."""

    def __init__(self) -> None:
        self.store: Store | None = None
        self.resumed = 0
        self.epochs: list[int] = []
        self.done: list[int] = []
        """Sequences of committed transactions."""
        self.suspended: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.steps: list[tuple[str, int]] = []
        """What was decided in each step, dropped ones included: (`apply` or `due`, sequence)."""

    def resume(self, store: Store, *, epoch: int, now_ms: int, gap_ms: int = 0) -> None:
        self.store = store
        self.resumed += 1
        self.epochs.append(epoch)

    def deadline_ms(self) -> int | None:
        assert self.store is not None
        first = self.store.scan(b"d/", b"d0", 1)
        return int.from_bytes(first[0][0][2:10], "big") if first else None

    def apply(self, txn: Transaction, record: Record, now_ms: int) -> None:
        self.steps.append(("apply", txn.seq))
        words = (record.value or b"").decode().split()
        match words:
            case ["set", key, due]:
                self._set(txn, key, int(due))
            case ["del", key]:
                txn.put_state(name(DEFS), key.encode(), b"j/" + key.encode(), None)
                self._state(txn, key, due=0, deleted=True)
                self._event(txn, f"deleted {key}")
            case ["forget", key]:
                for entry, _ in index(b"s/" + key.encode(), txn.get(b"s/" + key.encode()) or b""):
                    txn.put_index(entry, None)
                txn.put_state(name(DEFS), key.encode(), b"j/" + key.encode(), None)
                txn.put_state(name(STATE), key.encode(), b"s/" + key.encode(), None)
            case ["fire", topic, key]:
                self._fire(txn, topic, key)
            case ["reply", key]:
                txn.send(Produced("replies", 0, key.encode(), b"reply"))
            case ["forward", key]:
                txn.forward(Produced("elsewhere", 0, key.encode(), b"forwarded"))
            case ["poison"]:
                raise PoisonRecord("poison")
            case _:
                self._state(txn, "half-written", due=0)
                raise ZeroDivisionError("crash")

    def due(self, txn: Transaction, now_ms: int, limit: int) -> int:
        assert self.store is not None
        until = b"d/" + (now_ms + 1).to_bytes(8, "big")
        entries = [key for key, _ in self.store.scan(b"d/", until, limit)]
        for entry in entries:
            self.steps.append(("due", txn.seq))
            key = entry[10:].decode()
            if key.startswith("bad"):
                raise DueEntryCrashed(entry, f"{key} crashed")
            txn.put_index(entry, None)
            self._state(txn, key, due=0)
            self._fire(txn, "out", key)
        return len(entries)

    def break_entry(self, txn: Transaction, crash: DueEntryCrashed, now_ms: int) -> bool:
        if txn.get(crash.entry) is None:
            return False
        txn.put_index(crash.entry, None)
        key = crash.entry[10:].decode()
        self._state(txn, key, due=0, broken=crash.reason)
        self._event(txn, f"broken {key}")
        return True

    def finish(self, txn: Transaction, now_ms: int) -> None:
        """Nothing is told."""

    def wants_drained(self) -> bool:
        return False

    def drained(self, asked_ms: int) -> None:
        """Nobody waits."""

    def committed(self, txn: Transaction) -> None:
        self.done.append(txn.seq)

    def suspend(self, topic: str, reason: str, now_ms: int) -> None:
        self.suspended[topic] = reason

    def refuse(self, tag: str, reason: str) -> None:
        self.refused[tag] = reason

    def figures(self) -> Mapping[str, int]:
        return {}

    def _set(self, txn: Transaction, key: str, due: int) -> None:
        before = txn.get(b"s/" + key.encode())
        for entry, _ in index(b"", before) if before is not None else ():
            txn.put_index(entry + key.encode(), None)
        txn.put_state(name(DEFS), key.encode(), b"j/" + key.encode(), encode(txn=txn.seq))
        self._state(txn, key, due=due)
        self._event(txn, f"set {key}")

    @staticmethod
    def _state(txn: Transaction, key: str, *, due: int, **more: Any) -> None:
        store_key, value = b"s/" + key.encode(), encode(txn=txn.seq, due=due, **more)
        before = txn.get(store_key)
        if before is not None:
            for entry, _ in index(store_key, before):
                txn.put_index(entry, None)
        txn.put_state(name(STATE), key.encode(), store_key, value)
        for entry, _ in index(store_key, value):
            txn.put_index(entry, b"")

    def _fire(self, txn: Transaction, topic: str, key: str) -> None:
        problem = self.suspended.get(topic) or self.refused.pop(key, None)
        if problem:
            self._event(txn, f"failed {key}")
            return
        self._event(txn, f"fired {key}", [[topic, 0]])
        txn.target(topic, 0, None, f"run {key} #{txn.seq}".encode(), (), key)

    @staticmethod
    def _event(txn: Transaction, what: str, targets: list[list[Any]] | None = None) -> None:
        value = encode(txn=txn.seq, what=what, targets=targets or [])
        txn.append(name(EVENTS), f"{txn.seq}.{len(txn.records)}".encode(), value)
