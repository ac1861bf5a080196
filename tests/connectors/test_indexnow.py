"""IndexNow: whose word is taken for which URLs, and how a key file is looked at."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from support.loopback import Loopback, Names

from service.connectors import indexnow
from service.connectors.guarded import AddressNotPublic, FetchLimits, guarded_client
from service.connectors.indexnow import KeyClaim, KeyFileAway, shows_key, submission
from service.model.errors import InvalidField

KEY = "0123abcd-4567-ef89"
URL = "http://a.example/news"


def test_the_key_file_is_expected_at_the_root_of_the_host():
    assert claim().location == f"http://a.example/{KEY}.txt"
    assert claim("https://a.example/").location == f"https://a.example/{KEY}.txt"


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"key": "short"}, "key", "8 to 128"),
        ({"key": "x" * 129}, "key", "8 to 128"),
        ({"key": "under_score_1"}, "key", "8 to 128"),
        ({"urls": ["/news"]}, "url", "absolute"),
        (
            {"urls": [URL, "http://b.example/"]},
            "urlList[1]",
            "b.example/ is not of the host a.example",
        ),
        ({"host": "b.example"}, "urlList[0]", "not of the host b.example"),
        ({"host": "b.example/?"}, "urlList[0]", "not of the host b.example"),
        ({"host": ""}, "host", "cannot be parsed"),
        ({"key_location": "http://b.example/key.txt"}, "keyLocation", "put it on a.example"),
        ({"key_location": "http://a.example:8080/key.txt"}, "keyLocation", "usual port"),
        ({"key_location": "key.txt"}, "keyLocation", "absolute"),
        ({"key_location": "http://a.example/blog/key.txt"}, "url", "outside of /blog/"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_field(given, field, says):
    whole = {"key": KEY, "urls": [URL], **given}
    with pytest.raises(InvalidField, match=says) as refused:
        submission(**whole)
    assert refused.value.field == field


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_no_host_of_our_own_network_is_asked(host):
    with pytest.raises(AddressNotPublic):
        shows_key(claim(f"http://{host}/"))


def claim(url: str = URL) -> KeyClaim:
    return submission(KEY, [url]).claim


def looking(server: ThreadingHTTPServer) -> Callable[[KeyClaim], bool]:
    """Look at the key file of a.example, whose address leads to this server."""

    def client() -> httpx.Client:
        bounds = FetchLimits(indexnow.FETCH_S, indexnow.MAX_KEY_FILE)
        network = Loopback(server.server_port)
        return guarded_client(bounds, look_up=Names(a_example="8.8.8.8"), network=network)

    return partial(shows_key, client=client)


@contextmanager
def site(
    *, status: int = 200, content: bytes = b"", location: str = "", retry_after: str = ""
) -> Iterator[list[str]]:
    """Serve one answer as the site a.example; gives what was asked for and how to ask."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(f"{self.headers['Host']} {self.path}")
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            if retry_after:
                self.send_header("Retry-After", retry_after)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield asked, looking(server)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"content": KEY.encode()}, True),
        ({"content": b"\xef\xbb\xbf" + KEY.encode() + b"\r\n"}, True),
        ({"content": KEY.encode() + b"0"}, False),
        ({"content": b""}, False),
        ({"content": KEY.encode(), "status": 404}, False),
        ({"content": KEY.encode() + b" " * 3000}, False),
        (
            {"content": KEY.encode(), "status": 302, "location": f"http://a.example/{KEY}.txt"},
            False,
        ),
    ],
)
def test_a_key_is_shown_by_a_small_file_that_holds_it(answer, shown):
    with site(**answer) as (asked, look):
        assert look(claim()) is shown
    assert asked == [f"a.example /{KEY}.txt"]


@pytest.mark.parametrize(
    ("answer", "wait_s"),
    [
        ({"status": 503, "retry_after": "7"}, 7.0),
        ({"status": 500}, 0.0),
        ({"status": 599, "content": KEY.encode()}, 0.0),
        ({"status": 429, "retry_after": "60"}, 60.0),
        ({"status": 408}, 0.0),
        ({"status": 425}, 0.0),
    ],
)
def test_a_site_that_is_busy_refuses_no_key(answer, wait_s):
    with site(**answer) as (_, look), pytest.raises(KeyFileAway) as away:
        look(claim())
    assert away.value.retry_after_s == wait_s


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451, 204, 304])
def test_any_other_answer_refuses_the_key(status):
    with site(status=status) as (_, look):
        assert not look(claim())


def test_a_site_that_is_silent_or_not_there_refuses_no_key(monkeypatch):
    monkeypatch.setattr(indexnow, "FETCH_S", 0.3)
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent,
        pytest.raises(KeyFileAway),
    ):
        looking(silent)(claim())
    with pytest.raises(KeyFileAway):
        looking(silent)(claim())
