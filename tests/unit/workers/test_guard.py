"""Which addresses may be called: nothing private unless it was named, metadata never."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.guard import Blocked, Guard

PRIVATE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "100.64.0.1", "192.0.2.1", "198.18.0.1", "203.0.113.9", "240.0.0.1", "::1", "::", "fc00::1",
    "fd12:3456::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
    "2002:7f00:1::", "::127.0.0.1",
]  # fmt: skip
NEVER = [
    "169.254.169.254", "169.254.0.1", "169.254.170.2", "100.100.100.200", "fd00:ec2::254",
    "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::",
    "224.0.0.1", "255.255.255.255", "ff02::1", "168.63.129.16", "192.0.0.192",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "172.32.0.1", "100.128.0.1", "9.255.0.1"]
EVERYTHING = ("0.0.0.0/0", "::/0")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_called(address: str) -> None:
    Guard().check_address("example.org", address)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused_naming_the_setting(address: str) -> None:
    with pytest.raises(Blocked, match="HOROLOG_HTTP__ALLOWED_CIDRS"):
        Guard().check_address("example.org", address)


@pytest.mark.parametrize("address", NEVER)
def test_metadata_and_link_local_addresses_are_refused_whatever_is_allowed(address: str) -> None:
    for guard in (Guard(), Guard(EVERYTHING, allow_plain_http=True)):
        with pytest.raises(Blocked, match="never called"):
            guard.check_address("example.org", address)


@pytest.mark.parametrize("address", PRIVATE)
def test_everything_else_can_be_allowed(address: str) -> None:
    Guard(EVERYTHING).check_address("example.org", address)


def test_only_what_is_named_is_allowed() -> None:
    guard = Guard(("10.1.0.0/16", "::1/128"))
    guard.check_address("a", "10.1.2.3")
    guard.check_address("a", "::ffff:10.1.2.3")
    guard.check_address("a", "::1")
    for address in ("10.2.0.1", "127.0.0.1", "192.168.0.1"):
        with pytest.raises(Blocked):
            guard.check_address("a", address)


def test_plain_http_is_refused_naming_the_setting() -> None:
    Guard().check_scheme("https")
    with pytest.raises(Blocked, match="HOROLOG_HTTP__ALLOW_PLAIN_HTTP"):
        Guard().check_scheme("http")
    Guard(allow_plain_http=True).check_scheme("http")
    for scheme in ("ftp", "file", "gopher", "", "HTTPX"):
        with pytest.raises(Blocked, match="only https and http"):
            Guard(EVERYTHING, allow_plain_http=True).check_scheme(scheme)


@given(st.text(max_size=40))
def test_what_is_no_address_is_refused(text: str) -> None:
    try:
        Guard().check_address("host", text)
    except Blocked:
        return
    # What passes is an address that everybody may call.
    import ipaddress

    assert ipaddress.ip_address(text.partition("%")[0]).is_global


def test_a_network_that_is_none_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/99"):
        Guard(("10.0.0.0/99",))
