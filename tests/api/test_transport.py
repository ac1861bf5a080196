"""The transport of a connection: what it sends together, and what it drops."""

from unittest.mock import Mock, call

import pytest

from service.api.transport import JoiningTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Turns:
    """A loop whose turns are run by hand."""

    def __init__(self):
        self.called = []

    def call_soon(self, function):
        self.called.append(function)

    def turn(self):
        while self.called:
            self.called.pop(0)()


@pytest.fixture
def below():
    return Mock(is_closing=Mock(return_value=False))


@pytest.fixture
def turns():
    return Turns()


@pytest.fixture
def transport(below, turns):
    return JoiningTransport(below, turns)


def sent(below):
    """Return the writes and closings of the transport below."""
    return [each for each in below.method_calls if each != call.is_closing()]


def test_head_and_body_are_sent_together(below, turns, transport):
    transport.write(HEAD)
    transport.write(b"{}")
    turns.turn()
    transport.write(b"more")
    assert sent(below) == [call.writelines((HEAD, b"{}")), call.write(b"more")]


def test_a_head_without_a_body_is_sent_at_the_next_turn(below, turns, transport):
    transport.write(HEAD)
    turns.turn()
    transport.write(b"{}")
    assert sent(below) == [call.write(HEAD), call.write(b"{}")]


def test_a_closing_sends_the_head_first(below, turns, transport):
    transport.write(HEAD)
    transport.close()
    turns.turn()
    assert sent(below) == [call.write(HEAD), call.close()]


@pytest.mark.parametrize("waits", [False, True])
def test_a_connection_that_is_gone_is_not_written_to(below, turns, transport, waits):
    if waits:
        transport.write(HEAD)
    below.is_closing.return_value = True
    transport.write(b"{}" if waits else HEAD)
    turns.turn()
    assert sent(below) == []


def test_other_attributes_are_those_of_the_transport_below(below, transport):
    transport.abort()
    assert sent(below) == [call.abort()]
