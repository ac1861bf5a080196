"""The guarded client: which addresses it connects to, and what it reads."""

import gzip
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpcore
import httpx
import pytest
import zstandard
from support.loopback import Loopback, Names

from service.connectors.guarded import AnswerTooLarge, FetchLimits, guarded_client, gunzipped

BOUNDS = FetchLimits(seconds=60.0, max_bytes=100_000, max_redirects=3)
PUBLIC = "93.184.215.14"


class Site:
    """A server whose answers are set by path."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.hosts: list[str] = []
        self.gone = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.hosts.append(self.headers["Host"])
                if self.path == "/trickle":
                    self.trickle()
                    return
                status, headers, content = site.answers[self.path]
                self.send_response(status)
                for header in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(content)

            def trickle(self):
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                while not site.gone.wait(0.01):
                    try:
                        self.wfile.write(b".")
                    except OSError:
                        return

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.network = Loopback(self.server.server_port)

    def client(self, names: Names, bounds: FetchLimits = BOUNDS, **options) -> httpx.Client:
        return guarded_client(bounds, look_up=names, network=self.network, **options)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield site
    finally:
        site.gone.set()
        site.server.shutdown()
        thread.join()
        site.server.server_close()


def test_the_address_that_was_checked_is_the_one_connected_to(site):
    site.answers["/"] = (200, {}, b"hello")
    names = Names(a_example=PUBLIC)
    with site.client(names) as client:
        assert client.get("http://a.example/").text == "hello"
    assert names.looked_up == ["a.example"]
    assert site.network.reached == [(PUBLIC, 80)]
    assert site.hosts == ["a.example"]


@pytest.mark.parametrize("addresses", ["10.0.0.1", f"{PUBLIC} 10.0.0.1", "::127.0.0.1", "fec0::1"])
def test_a_host_with_an_address_that_is_not_public_is_refused(site, addresses):
    with (
        site.client(Names(a_example=addresses)) as client,
        pytest.raises(httpx.ConnectError, match="is not public; --private allows"),
    ):
        client.get("http://a.example/")
    assert site.network.reached == []


def test_private_addresses_are_connected_to_where_they_are_allowed(site):
    site.answers["/"] = (200, {}, b"hello")
    with site.client(Names(a_example="10.0.0.1"), private=True) as client:
        assert client.get("http://a.example/").text == "hello"
    assert site.network.reached == [("10.0.0.1", 80)]


def test_a_redirect_is_followed_to_public_hosts_only(site):
    site.answers |= {
        "/": (302, {"Location": "http://b.example/moved"}, b""),
        "/moved": (302, {"Location": "http://localhost/latest/meta-data"}, b""),
    }
    names = Names(a_example=PUBLIC, b_example="8.8.8.8", localhost="127.0.0.1")
    with (
        site.client(names) as client,
        pytest.raises(httpx.ConnectError, match=r"127\.0\.0\.1, an address of localhost, is not"),
    ):
        client.get("http://a.example/")
    assert site.network.reached == [(PUBLIC, 80), ("8.8.8.8", 80)]


def test_redirects_come_to_an_end_and_lead_to_no_other_scheme(site):
    site.answers |= {
        "/": (302, {"Location": "/"}, b""),
        "/file": (302, {"Location": "file:///etc/passwd"}, b""),
    }
    with site.client(Names(a_example=PUBLIC)) as client:
        with pytest.raises(httpx.TooManyRedirects):
            client.get("http://a.example/")
        with pytest.raises(httpx.UnsupportedProtocol):
            client.get("http://a.example/file")
    assert len(site.hosts) == 5


def test_the_body_of_a_redirect_is_never_inflated(site):
    bomb = zstandard.compress(bytes(1_000_000))
    headers = {"Location": "/end", "Content-Encoding": "zstd"}
    site.answers |= {"/": (302, headers, bomb), "/end": (200, {}, b"end")}
    with site.client(Names(a_example=PUBLIC)) as client:
        response = client.get("http://a.example/")
    assert response.text == "end"
    assert response.history[0].content == b""


def test_a_second_address_is_tried_where_the_first_does_not_answer(site):
    class FirstIsAway(Loopback):
        def connect_tcp(self, host, *rest, **options):
            if host == PUBLIC:
                raise httpcore.ConnectError("refused")
            return super().connect_tcp(host, *rest, **options)

    site.answers["/"] = (200, {}, b"hello")
    network = FirstIsAway(site.server.server_port)
    names = Names(a_example=f"{PUBLIC} 8.8.8.8", b_example=PUBLIC)
    with guarded_client(BOUNDS, look_up=names, network=network) as client:
        assert client.get("http://a.example/").text == "hello"
        with pytest.raises(httpx.ConnectError, match="refused"):
            client.get("http://b.example/")


@pytest.mark.parametrize("host", ["b.example", "c.example"])
def test_a_host_without_an_address_cannot_be_reached(site, host):
    with (
        site.client(Names(c_example="")) as client,
        pytest.raises(httpx.ConnectError, match=f"{host} has no address"),
    ):
        client.get(f"http://{host}/")


def test_more_bytes_than_allowed_end_the_answer(site):
    site.answers |= {"/fits": (200, {}, b"." * 100_000), "/over": (200, {}, b"." * 100_001)}
    with site.client(Names(a_example=PUBLIC)) as client:
        assert len(client.get("http://a.example/fits").content) == 100_000
        with pytest.raises(AnswerTooLarge, match="over 100000 bytes"):
            client.get("http://a.example/over")


def test_an_answer_that_trickles_ends_at_the_deadline(site):
    started = time.monotonic()
    with (
        site.client(Names(a_example=PUBLIC), FetchLimits(0.3, 100_000)) as client,
        pytest.raises(httpx.ReadTimeout, match=r"no complete answer after 0\.3 s"),
    ):
        client.get("http://a.example/trickle")
    assert time.monotonic() - started < 30


def test_a_name_look_up_that_hangs_ends_at_the_deadline(site):
    def hangs(_: str, timeout_s: float) -> list[str]:
        assert timeout_s <= 0.3
        raise TimeoutError

    client = guarded_client(FetchLimits(0.3, 1), look_up=hangs, network=site.network)
    with client, pytest.raises(httpx.ConnectTimeout, match=r"no complete answer after 0\.3 s"):
        client.get("http://a.example/")


def test_a_connection_is_used_again_and_has_a_new_deadline(site):
    site.answers["/"] = (200, {}, b"hello")
    names = Names(a_example=PUBLIC)
    with site.client(names) as client:
        for _ in range(3):
            assert client.get("http://a.example/").text == "hello"
        assert client._transport.deadline.left() > 50


def test_proxies_of_the_environment_are_not_used(site, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9/")
    site.answers["/"] = (200, {}, b"hello")
    with site.client(Names(a_example=PUBLIC)) as client:
        assert client.get("http://a.example/").text == "hello"


def test_the_certificate_must_be_that_of_the_name(site):
    steps = []

    class Stream(httpcore.MockStream):
        def start_tls(self, ssl_context, server_hostname=None, timeout=None):
            steps.append((server_hostname, ssl_context.check_hostname, ssl_context.verify_mode))
            return self

    class Network(httpcore.NetworkBackend):
        def connect_tcp(self, host, *_, **__):
            steps.append(host)
            return Stream([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])

    names = Names(a_example=PUBLIC)
    with guarded_client(BOUNDS, look_up=names, network=Network()) as client:
        assert client.get("https://a.example/").status_code == 200
    assert steps == [PUBLIC, ("a.example", True, ssl.CERT_REQUIRED)]


# -- bodies


@pytest.mark.parametrize("coding", ["", "identity", "gzip", "X-GZIP"])
def test_gzip_is_undone_in_pieces_of_bounded_size(site, coding):
    content = bytes(5_000_000) if "gzip" in coding.lower() else bytes(50_000)
    sent = gzip.compress(content) if "gzip" in coding.lower() else content
    site.answers["/"] = (200, {"Content-Encoding": coding}, sent)
    with (
        site.client(Names(a_example=PUBLIC)) as client,
        client.stream("GET", "http://a.example/") as response,
    ):
        pieces = list(gunzipped(response))
    assert b"".join(pieces) == content
    assert max(map(len, pieces)) <= 65_536


@pytest.mark.parametrize(
    ("coding", "says"), [("zstd", "zstd was not requested"), ("gzip", "not gzip")]
)
def test_other_codings_and_broken_gzip_are_refused(site, coding, says):
    site.answers["/"] = (200, {"Content-Encoding": coding}, b"no coding at all")
    with (
        site.client(Names(a_example=PUBLIC)) as client,
        client.stream("GET", "http://a.example/") as response,
        pytest.raises(httpx.DecodingError, match=says),
    ):
        list(gunzipped(response))


@pytest.mark.dear
def test_a_server_that_reads_slowly_does_not_hold_a_request_beyond_its_deadline():
    """It takes a part every 50 ms, so no single write waits for long; all would take 50 s."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def read_slowly():
        connection, _ = listening.accept()
        with connection:
            while not over.wait(0.05):
                connection.recv(65_536)

    thread = threading.Thread(target=read_slowly)
    thread.start()
    network = Loopback(listening.getsockname()[1])
    names = Names(a_example=PUBLIC)
    begun = time.monotonic()
    with (
        guarded_client(FetchLimits(0.5, 1), look_up=names, network=network) as client,
        pytest.raises(httpx.TransportError, match=r"after 0\.5 s"),
    ):
        client.post("http://a.example/", content=bytes(64 << 20))
    assert time.monotonic() - begun < 25
    over.set()
    thread.join()
    listening.close()
