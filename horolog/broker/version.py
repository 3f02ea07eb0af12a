"""Which release a Kafka is, by what it says it supports.

No client library tells. A broker names the newest metadata version that it supports in its answer
to ApiVersions, the one request that is answered before anybody has to say who they are.
"""

import contextlib
import io
import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Final

ClientValue = str | int | float | bool

_API_VERSIONS: Final = 18
_REQUEST_VERSION: Final = 3
_FEATURE: Final = "metadata.version"
_SUPPORTED_FEATURES: Final = 0
_ANSWER_BYTES_MAX: Final = 65_536

RELEASES: Final = {25: "4.0", 27: "4.1", 29: "4.2", 30: "4.3", 33: "4.4"}
"""Newest metadata version that a release supports → the release."""
LOSES_MARKERS: Final = frozenset({"4.3", "4.4"})
"""Of these 4.3.0 to 4.4.0 lose transaction markers when a broker crashes (KAFKA-20734)."""


def release_at(
    bootstrap: str, client_config: Mapping[str, ClientValue], *, timeout_s: float
) -> str | None:
    """The release, such as 4.2, of the first broker that answers; None if none does or it is
    unknown to us."""
    for address in bootstrap.split(","):
        # It may want credentials that only librdkafka understands: then we do not know.
        with contextlib.suppress(OSError, ValueError, struct.error):
            return RELEASES.get(_supported_at(address.strip(), client_config, timeout_s))
    return None


def _supported_at(address: str, client_config: Mapping[str, ClientValue], timeout_s: float) -> int:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with (
        socket.create_connection((host, int(port)), timeout_s) as plain,
        _secured(plain, host, client_config) as connection,
    ):
        return _ask(connection)


def _secured(
    plain: socket.socket, host: str, client_config: Mapping[str, ClientValue]
) -> socket.socket:
    if not str(client_config.get("security.protocol", "")).upper().endswith("SSL"):
        return plain
    authority = client_config.get("ssl.ca.location")
    context = ssl.create_default_context(cafile=str(authority) if authority else None)
    certificate = client_config.get("ssl.certificate.location")
    if certificate:
        key, password = (client_config.get(f"ssl.key.{name}") for name in ("location", "password"))
        context.load_cert_chain(
            str(certificate), str(key) if key else None, str(password) if password else None
        )
    return context.wrap_socket(plain, server_hostname=host)


def _ask(connection: socket.socket) -> int:
    """The newest metadata version that the broker supports; 0 if it names none."""
    name = b"horolog"
    header = struct.pack(">hhih", _API_VERSIONS, _REQUEST_VERSION, 1, len(name)) + name + b"\0"
    compact = bytes([len(name) + 1]) + name
    request = header + compact + b"\x02" + b"1" + b"\0"
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 0 < size <= _ANSWER_BYTES_MAX:
        raise ValueError("this is no Kafka")
    return newest_metadata_version(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise ValueError("the answer is cut short")
        found += part
    return found


def newest_metadata_version(answer: bytes) -> int:
    """What a body of an ApiVersions answer says, header included; 0 if it names none. Raises
    `ValueError` or `struct.error` for anything else."""
    data = io.BytesIO(answer)
    _, error = struct.unpack(">ih", data.read(6))
    if error:
        raise ValueError(f"Kafka answers with error {error}")
    for _ in range(_number(data) - 1):
        data.read(6)
        _skip_tags(data)
    data.read(4)
    for _ in range(_number(data)):
        tag, size = _number(data), _number(data)
        if tag != _SUPPORTED_FEATURES:
            data.read(size)
            continue
        for _ in range(_number(data) - 1):
            name = data.read(_number(data) - 1).decode()
            _, newest = struct.unpack(">hh", data.read(4))
            _skip_tags(data)
            if name == _FEATURE:
                return int(newest)
    return 0


def _skip_tags(data: io.BytesIO) -> None:
    for _ in range(_number(data)):
        _number(data)
        data.read(_number(data))


def _number(data: io.BytesIO) -> int:
    """An unsigned number of variable length."""
    value = shift = 0
    while True:
        byte = data.read(1)
        if not byte or shift > 28:
            raise ValueError("the answer is cut short or garbled")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
        shift += 7
