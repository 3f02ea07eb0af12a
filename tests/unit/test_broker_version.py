"""Which release a broker is, from what a broker sends, and from bytes that mean nothing."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.broker.version import LOSES_MARKERS, RELEASES, newest_metadata_version, release_at


def answer(newest: int, *, error: int = 0, feature: bytes = b"metadata.version") -> bytes:
    """A body of ApiVersions, version 3: two requests, an unknown tag, two features."""
    apis = (
        b"\x03" + struct.pack(">hhh", 0, 0, 9) + b"\x00" + struct.pack(">hhh", 18, 0, 4) + b"\x00"
    )
    features = b"\x03"
    for name, high in ((b"group.version", 1), (feature, newest)):
        features += bytes([len(name) + 1]) + name + struct.pack(">hh", 1, high) + b"\x00"
    tags = b"\x02" + b"\x00" + bytes([len(features)]) + features + b"\x03\x01\xff"
    return struct.pack(">ih", 1, error) + apis + struct.pack(">i", 0) + tags


def test_the_newest_metadata_version_is_found_among_other_features() -> None:
    assert newest_metadata_version(answer(29)) == 29
    assert newest_metadata_version(answer(29, feature=b"kraft.version")) == 0


def test_the_releases_that_lose_markers_are_known() -> None:
    assert set(RELEASES.values()) > LOSES_MARKERS == {"4.3", "4.4"}


def test_an_error_is_no_answer() -> None:
    with pytest.raises(ValueError, match="error 35"):
        newest_metadata_version(answer(29, error=35))


@given(st.binary(max_size=60) | st.integers(0, 70).map(lambda n: answer(29)[:n]))
def test_anything_else_is_told_and_nothing_worse(data: bytes) -> None:
    with contextlib.suppress(ValueError, struct.error):
        assert newest_metadata_version(data) >= 0


class Pretender:
    """Listens, reads, and says what it was told to say."""

    def __init__(self, says: bytes) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._says = says
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            connection.recv(1_000)
            connection.sendall(self._says)

    def close(self) -> None:
        self._thread.join(5)
        self._server.close()


@pytest.fixture
def pretend() -> Iterator[list[Pretender]]:
    made: list[Pretender] = []
    yield made
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("says", "release"),
    [
        (struct.pack(">i", len(answer(30))) + answer(30), "4.3"),
        (struct.pack(">i", len(answer(77))) + answer(77), None),
        (struct.pack(">i", 2_000_000), None),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", None),
        (b"", None),
    ],
)
def test_a_broker_is_asked_and_others_are_not_taken_for_one(
    pretend: list[Pretender], says: bytes, release: str | None
) -> None:
    pretend.append(Pretender(says))
    assert release_at(pretend[0].address, {}, timeout_s=5) == release


def test_the_next_address_is_asked_when_one_does_not_answer(pretend: list[Pretender]) -> None:
    pretend.append(Pretender(struct.pack(">i", len(answer(33))) + answer(33)))
    assert release_at(f"127.0.0.1:1, {pretend[0].address}", {}, timeout_s=5) == "4.4"
    assert release_at("nonsense", {}, timeout_s=5) is None
