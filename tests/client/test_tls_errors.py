"""Addresses with https:// where the handshake fails: one attempt, and a remedy of its own."""

import socket
import ssl
import threading

import httpx
import pytest
from support.certificates import certificate_authority
from support.live_server import Live, running

from recrawl_client import Client, Unavailable


@pytest.fixture
def api(sqlite_url) -> Live:
    with running(sqlite_url) as live:
        yield live


@pytest.fixture
def tls_server(tmp_path):
    """Give the address of a TLS server whose authority the client does not know."""
    certificate_authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    n_connections = []

    def serve(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            n_connections.append(1)
            try:
                context.wrap_socket(connection, server_side=True).close()
            except OSError:
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}", n_connections
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_https_at_a_service_of_plain_http_is_refused_at_once(api: Live):
    waited = []
    url = api.url.replace("http://", "https://")
    with Client(url, wait=waited.append) as client, pytest.raises(Unavailable, match="write http"):
        client.lease()
    assert waited == []


def test_a_certificate_of_an_unknown_authority_is_no_outage(tls_server):
    url, n_connections = tls_server
    waited = []
    with Client(url, wait=waited.append) as client, pytest.raises(Unavailable) as refused:
        client.lease()
    assert str(refused.value).endswith(
        "; name the certificate's authority by SSL_CERT_FILE, or correct the address"
    )
    assert (waited, len(n_connections)) == ([], 1)


def test_a_connection_that_breaks_is_still_waited_for():
    error = httpx.ConnectError("refused")
    error.__cause__ = ConnectionRefusedError(111, "refused")
    waited = []
    turns = iter([error, httpx.Response(200, json={"items": []})])

    def answer(_request):
        if isinstance(turn := next(turns), Exception):
            raise turn
        return turn

    with Client(transport=httpx.MockTransport(answer), wait=waited.append) as client:
        client.lease()
    assert len(waited) == 1


@pytest.mark.parametrize("command", ["epochs", "status"])
def test_a_command_ends_with_the_remedy_alone(api: Live, recrawl, command):
    ended = recrawl(command, url=api.url.replace("http://", "https://"))
    assert (ended.status, "is it running?" in ended.err) == (2, False)
    assert ended.err.rstrip().endswith("the service speaks no TLS: write http:// in its address")
