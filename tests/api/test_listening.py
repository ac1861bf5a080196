"""Addresses that a server listens on: both families, one port, and what is printed."""

import errno
import socket

import pytest

from service.api import server
from service.api.server import address_of, bind
from service.model.errors import AddressUnavailable


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture
def ipv6():
    """Return whether this machine has IPv6; without it, check that all addresses are refused."""
    if has_ipv6():
        return True
    with pytest.raises(AddressUnavailable, match=r"choose --host 0\.0\.0\.0"):
        bind("::", 0)
    return False


@pytest.fixture
def bound():
    """Return a function that listens on a host; the sockets are closed at the end."""
    opened = []

    def listen(host, port=0):
        sockets = bind(host, port)
        opened.extend(sockets)
        for each in sockets:
            each.listen()
        return sockets

    yield listen
    for each in opened:
        each.close()


@pytest.mark.parametrize("host", ["::", "0:0:0:0:0:0:0:0"])
def test_all_addresses_are_those_of_both_families_on_one_port(bound, host, ipv6):
    if not ipv6:
        return
    sockets = bound(host)
    assert address_of(sockets[0]) == f"http://[::1]:{sockets[0].getsockname()[1]}"
    assert len({each.getsockname()[1] for each in sockets}) == 1
    for own, each in zip(("::1", "127.0.0.1"), sockets, strict=True):
        with socket.create_connection((own, sockets[0].getsockname()[1])):
            peer, address = each.accept()
        peer.close()
        assert address[0] == own  # no mapped address such as ::ffff:127.0.0.1


def test_all_addresses_of_ipv4_are_printed_as_one_that_can_be_opened(bound):
    (one,) = bound("0.0.0.0")
    assert address_of(one) == f"http://127.0.0.1:{one.getsockname()[1]}"


@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_free_port_is_the_same_for_all_addresses_of_a_host(bound, host):
    assert len({each.getsockname()[1] for each in bound(host)}) == 1


def test_a_port_that_ipv4_uses_is_refused_for_all_addresses(bound, ipv6):
    if not ipv6:
        return
    (used,) = bound("127.0.0.1")
    with pytest.raises(AddressUnavailable, match="the port is in use"):
        bind("::", used.getsockname()[1])


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_without_ipv6_the_error_names_the_address_of_ipv4(monkeypatch, number):
    real = server._bound

    def without(family, address):
        if family == socket.AF_INET6:
            raise OSError(number, "not here")
        return real(family, address)

    monkeypatch.setattr(server, "_bound", without)
    with pytest.raises(AddressUnavailable) as refused:
        bind("::", 0)
    assert str(refused.value) == (
        "the server cannot listen on [::]:0: IPv6 is off on this machine; choose --host 0.0.0.0"
    )


def test_without_ipv4_the_addresses_of_ipv6_remain(monkeypatch, ipv6):
    if not ipv6:
        return
    real = server._bound

    def without(family, address):
        if family == socket.AF_INET:
            raise OSError(errno.EAFNOSUPPORT, "not here")
        return real(family, address)

    monkeypatch.setattr(server, "_bound", without)
    (one,) = bind("::", 0)
    one.close()
    assert one.family == socket.AF_INET6


@pytest.mark.parametrize(
    "host", ["[::1]", "127.0.0.1:80", "http://127.0.0.1", "a..b", "x" * 300, "fe80::1%none"]
)
def test_what_is_no_address_is_refused_with_what_one_is(host):
    with pytest.raises(AddressUnavailable) as refused:
        bind(host, 0)
    assert str(refused.value).startswith(f"the server cannot listen on {host}:0: no address has")
    assert str(refused.value).endswith("without brackets, scheme or port")
