"""Which addresses an HTTP target may be at: checked on the address that is connected to.

Whoever may register a job decides what is called, from inside our network. So nothing private is
called unless the operator named it, and metadata services and link-local addresses never are.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

CIDRS_SETTING: Final = "HOROLOG_HTTP__ALLOWED_CIDRS"
PLAIN_SETTING: Final = "HOROLOG_HTTP__ALLOW_PLAIN_HTTP"


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


_NEVER: Final = _networks(
    # Link-local addresses, where clouds keep their metadata services, and those that are elsewhere.
    "169.254.0.0/16", "fe80::/10", "fec0::/10", "fd00:ec2::254/128", "100.100.100.200/32",
    "168.63.129.16/32", "192.0.0.192/32",
    # No single host.
    "224.0.0.0/4", "255.255.255.255/32", "ff00::/8",
)  # fmt: skip
_PRIVATE: Final = _networks(
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
    "203.0.113.0/24", "240.0.0.0/4", "::/96", "64:ff9b:1::/48", "100::/64", "2001::/23",
    "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7",
)  # fmt: skip
_EMBEDDED: Final = (
    # Prefix, and how far the IPv4 address in it stands from the end.
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)


class Blocked(Exception):
    """A target that must not be called; the message says which setting would allow it."""


class Guard:
    """What the operator allows. With nothing allowed: https to public addresses."""

    def __init__(
        self, allowed_cidrs: Iterable[str] = (), *, allow_plain_http: bool = False
    ) -> None:
        """Raises `ValueError` for what is no network."""
        self._allowed = tuple(ipaddress.ip_network(text, strict=False) for text in allowed_cidrs)
        self._allow_plain_http = allow_plain_http
        self._check = lru_cache(maxsize=4_096)(self._problem)

    def check_scheme(self, scheme: str) -> None:
        """Raises `Blocked` for anything but https, and http where it is allowed."""
        if scheme == "https" or (scheme == "http" and self._allow_plain_http):
            return
        if scheme == "http":
            raise Blocked(f"plain http is refused; {PLAIN_SETTING}=true allows it")
        raise Blocked(f"{scheme or 'no scheme'}: only https and http can be called")

    def check_address(self, host: str, address: str) -> None:
        """Raises `Blocked` if `address`, which `host` stands for, must not be connected to."""
        problem = self._check(address)
        if problem:
            about = host if host == address else f"{host} is at {address}, which"
            raise Blocked(f"{about} {problem}")

    def _problem(self, text: str) -> str:
        try:
            address = _unwrapped(ipaddress.ip_address(text.partition("%")[0]))
        except ValueError:
            return "is no address"
        if _in(address, _NEVER):
            return "is a link-local, metadata or multicast address: these are never called"
        if _in(address, _PRIVATE) and not _in(address, self._allowed):
            return f"is a private address; {CIDRS_SETTING} names networks that may be called"
        return ""


def _unwrapped(address: Address) -> Address:
    """The IPv4 address inside an IPv6 address that only stands for one."""
    if isinstance(address, ipaddress.IPv6Address):
        for network, shift in _EMBEDDED:
            if address in network:
                return ipaddress.IPv4Address((int(address) >> shift) & 0xFFFF_FFFF)
    return address


def _in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == n.version and address in n for n in networks)
