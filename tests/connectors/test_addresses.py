"""Addresses: public or not, and looked up by a deadline."""

import socket
import subprocess
import sys
import threading
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connectors.addresses import Resolver, is_public

CLOSED = """
0.0.0.0 0.1.2.3 10.1.2.3 100.64.0.1 127.0.0.1 169.254.169.254 172.16.0.1 192.0.0.9 192.0.2.1
192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 233.252.0.1 240.0.0.1
255.255.255.255
:: ::1 ::2 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:224.0.0.1
::ffff:0:8.8.8.8 64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::1 100::1 2001:0:7f00:1::1 2001:2::1
2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1::1 2002:808:808::1 3fff::1 4000::1 5f00::1 fc00::1
fd12::1 fe80::1%eth0 fec0::1 feff::1 ff02::1 ff0e::1
"""
OPEN = ("8.8.8.8", "1.1.1.1", "::ffff:8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001::1")


@pytest.mark.parametrize("address", CLOSED.split())
def test_special_addresses_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", OPEN)
def test_addresses_of_the_open_internet_are_public(address):
    assert is_public(address)


ANY = st.one_of(
    st.integers(0, 2**32 - 1).map(IPv4Address),
    st.integers(0, 2**128 - 1).map(IPv6Address),
    st.integers(0, 2**32 - 1).map(IPv6Address),
    st.integers(0, 2**32 - 1).map(lambda n: IPv6Address(0xFFFF << 32 | n)),
    st.integers(0, 2**125 - 1).map(lambda n: IPv6Address(1 << 125 | n)),
)


@given(ANY)
def test_what_is_public_is_of_no_special_category(ip):
    if not is_public(str(ip)):
        return
    meant = getattr(ip, "ipv4_mapped", None) or ip
    for category in ("private", "multicast", "loopback", "link_local", "unspecified", "reserved"):
        assert not getattr(meant, f"is_{category}"), category
    assert meant.is_global
    if isinstance(meant, IPv6Address):
        assert not meant.is_site_local
        assert meant.sixtofour is None
        assert meant.teredo is None


@given(st.integers(0, 2**32 - 1))
def test_an_address_mapped_into_ipv6_is_judged_as_itself(n):
    assert is_public(f"::ffff:{ip_address(n)}") == is_public(str(ip_address(n)))


# -- look-ups


def entries(*addresses: str) -> list:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, 0)) for a in addresses]


def test_a_look_up_returns_all_addresses_in_order():
    resolver = Resolver(1, lambda *_, **__: entries("8.8.8.8", "1.1.1.1"))
    assert [resolver("a.example", 60.0) for _ in range(3)] == [["8.8.8.8", "1.1.1.1"]] * 3


@pytest.mark.parametrize("host", ["no.such.name.invalid", "a" * 64 + ".example", "a..example"])
def test_a_name_without_an_address_is_an_oserror(host):
    def nowhere(name, *_, **__):
        name.encode("idna")
        raise socket.gaierror("unknown")

    with pytest.raises(OSError, match=r"unknown|host name"):
        Resolver(1, nowhere)(host, 60.0)


def test_a_look_up_that_hangs_is_given_up_and_its_place_comes_back():
    going, done = threading.Event(), threading.Event()

    def hangs(host, *_, **__):
        if host == "hangs.example":
            going.wait(180)
            done.set()
        return entries("8.8.8.8")

    resolver = Resolver(1, hangs)
    with pytest.raises(TimeoutError):
        resolver("hangs.example", 0.05)
    with pytest.raises(TimeoutError):
        resolver("a.example", 0.05)
    assert not done.is_set()
    going.set()
    assert done.wait(180)
    assert resolver("a.example", 60.0) == ["8.8.8.8"]


@pytest.mark.dear
def test_a_look_up_that_hangs_does_not_keep_the_process_from_its_end():
    script = """
import threading
from service.connectors.addresses import Resolver
try:
    Resolver(1, lambda *_, **__: threading.Event().wait())("a.example", 0.05)
except TimeoutError:
    print("given up")
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=180, check=True
    )
    assert ended.stdout == "given up\n"
