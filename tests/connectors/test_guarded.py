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

from service.connectors.guarded import (
    USER_AGENT,
    AddressNotPublic,
    FetchLimits,
    Outgoing,
    guarded_client,
)
from service.connectors.inflating import AnswerTooLarge, gunzipped, inflated_within

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
    ("coding", "says"), [("zstd", "zstd was not requested"), ("gzip", "its gzip is broken")]
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


# -- hosts with several addresses


class Partly(Loopback):
    """A network on which some addresses are dead; `shares` has the time of each attempt."""

    def __init__(self, port: int, *dead: str, error: type[Exception]) -> None:
        super().__init__(port)
        self.dead = dead
        self.error = error
        self.shares: list[float] = []

    def connect_tcp(self, host, port, timeout=None, local_address=None, socket_options=None):
        self.shares.append(timeout)
        if host in self.dead:
            self.reached.append((host, port))
            raise self.error
        return super().connect_tcp(host, port, timeout, local_address, socket_options)


@pytest.mark.parametrize("error", [httpcore.ConnectTimeout, httpcore.ConnectError])
def test_a_dead_address_has_a_share_of_the_time_and_the_next_one_answers(site, error):
    site.answers["/"] = (200, {}, b"hello")
    addresses = ["2600::1", "2600::2", "8.8.8.8"]
    network = Partly(site.server.server_port, "2600::1", "2600::2", error=error)
    names = Names(a_example=" ".join(addresses))
    with guarded_client(FetchLimits(6.0, 100), look_up=names, network=network) as client:
        assert client.get("http://a.example/").text == "hello"
    assert [host for host, _ in network.reached] == ["2600::1", "8.8.8.8"]
    assert network.shares[0] == pytest.approx(1.5, abs=0.1)
    long = FetchLimits(120.0, 100)
    network.shares.clear()
    with guarded_client(long, look_up=names, network=network) as client:
        client.get("http://a.example/")
    assert network.shares == [5.0, 5.0], "the IPv4 address has another one behind it"


def test_all_addresses_are_tried_and_the_last_failure_counts(site):
    network = Partly(site.server.server_port, "8.8.8.8", "8.8.4.4", error=httpcore.ConnectTimeout)
    names = Names(a_example="8.8.8.8 8.8.4.4")
    with (
        guarded_client(FetchLimits(6.0, 100), look_up=names, network=network) as client,
        pytest.raises(httpx.ConnectTimeout, match="no complete answer after 6 s"),
    ):
        client.get("http://a.example/")
    assert network.reached == [("8.8.8.8", 80), ("8.8.4.4", 80)]


class Real(httpcore.SyncBackend):
    """Public addresses that lead to ports of this machine."""

    def __init__(self, **ports: int) -> None:
        self.ports = ports

    def connect_tcp(self, host, port, timeout=None, local_address=None, socket_options=None):
        return super().connect_tcp("127.0.0.1", self.ports[host], timeout)


@contextmanager
def dropping() -> Iterator[int]:
    """Yield a port whose queue is full, so that a connection gets no answer at all."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(server.getsockname())
        yield server.getsockname()[1]
        for each in waiting:
            each.close()


def test_a_host_whose_first_address_drops_all_packets_answers_in_time(site):
    site.answers["/"] = (200, {}, b"hello")
    with dropping() as port:
        network = Real(**{"8.8.8.8": port, "8.8.4.4": site.server.server_port})
        names = Names(a_example="8.8.8.8 8.8.4.4")
        with guarded_client(FetchLimits(3.0, 100), look_up=names, network=network) as client:
            begun = time.monotonic()
            assert client.get("http://a.example/").text == "hello"
            took = time.monotonic() - begun
    assert 0.9 < took < 2.5


# -- names and proxies


def test_every_client_names_itself_and_the_operator_may_choose_the_name(site):
    named = []
    hooks = {"request": [lambda request: named.append(request.headers["User-Agent"])]}
    site.answers["/"] = (200, {}, b"")
    names = Names(a_example=PUBLIC)
    for options in ({}, {"outgoing": Outgoing("mine/1")}, {"headers": {"User-Agent": "own"}}):
        with site.client(names, event_hooks=hooks, **options) as client:
            client.get("http://a.example/")
    assert named == [USER_AGENT, "mine/1", "own"]
    assert "(+https://" in USER_AGENT


class Proxy:
    """A proxy that answers all it is asked for, and writes down what that was."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                proxy.asked.append(f"{self.path} {self.headers['Proxy-Authorization']}")
                self.send_response(200)
                self.send_header("Content-Length", "5")
                self.end_headers()
                self.wfile.write(b"proxy")

            def do_CONNECT(self):
                proxy.asked.append(f"CONNECT {self.path}")
                self.send_response(403)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://user:pass@127.0.0.1:{self.server.server_port}"


@pytest.fixture
def proxy(monkeypatch) -> Iterator[Proxy]:
    proxy = Proxy()
    thread = threading.Thread(target=proxy.server.serve_forever, args=(0.01,))
    thread.start()
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", "direct.example")
    yield proxy
    proxy.server.shutdown()
    thread.join()
    proxy.server.server_close()


def test_a_proxy_of_the_environment_is_not_used_and_a_sentence_names_the_setting(site, proxy):
    site.answers["/"] = (200, {}, b"hello")
    with site.client(Names(a_example=PUBLIC)) as client:
        assert client.get("http://a.example/").text == "hello"
    assert proxy.asked == []
    assert "HTTP_PROXY and HTTPS_PROXY set a proxy that is not used" in Outgoing().notice()
    assert "RECRAWL_PROXY_GUARDS=true" in Outgoing().notice()
    assert Outgoing(proxy_guards=True).notice() is None


def test_without_a_proxy_there_is_no_sentence(monkeypatch):
    for name in ("http", "https", "all"):
        for spelt in (f"{name}_proxy", f"{name}_proxy".upper()):
            monkeypatch.delenv(spelt, raising=False)
    assert Outgoing().notice() is None


def test_a_proxy_that_guards_gets_the_requests_and_looks_up_the_names(site, proxy):
    site.answers["/"] = (200, {}, b"hello")
    names = Names(direct_example=PUBLIC, **{"127.0.0.1": "127.0.0.1"})
    through = guarded_client(
        BOUNDS,
        look_up=names,
        outgoing=Outgoing(proxy_guards=True),
        network=Real(**{"127.0.0.1": proxy.server.server_port, PUBLIC: site.server.server_port}),
    )
    with through as client:
        assert client.get("http://a.example/").text == "proxy"
        assert client.get("http://direct.example/").text == "hello"
        with pytest.raises(httpx.ProxyError, match="403"):
            client.get("https://a.example/")
        for address in ("10.0.0.1", "[::1]", "169.254.169.254"):
            with pytest.raises(AddressNotPublic, match="is not public"):
                client.get(f"http://{address}/")
    assert proxy.asked == ["http://a.example/ Basic dXNlcjpwYXNz", "CONNECT a.example:443"]
    assert names.looked_up == ["127.0.0.1", "direct.example", "127.0.0.1"]


@pytest.mark.parametrize("address", ["socks5://proxy.example", "gopher://x", "http://[", "::"])
def test_a_proxy_that_cannot_be_used_is_an_error_of_the_request(monkeypatch, proxy, address):
    monkeypatch.setenv("HTTP_PROXY", address)
    with (
        guarded_client(BOUNDS, outgoing=Outgoing(proxy_guards=True)) as client,
        pytest.raises(httpx.TransportError),
    ):
        client.get("http://a.example/")


def test_a_body_is_inflated_up_to_a_limit(site):
    site.answers["/"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(1_000_000)))
    with site.client(Names(a_example=PUBLIC)) as client:
        with client.stream("GET", "http://a.example/") as response:
            assert len(inflated_within(response, 1_000_000)) == 1_000_000
        with (
            client.stream("GET", "http://a.example/") as response,
            pytest.raises(AnswerTooLarge, match="over 999999 bytes"),
        ):
            inflated_within(response, 999_999)
