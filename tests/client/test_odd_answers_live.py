"""Odd answers of sites, byte by byte: what the example crawler makes of them, and the service."""

import importlib.util
import re
import socket
import threading
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import httpx
import pytest
from support.live_server import lease_freely, running

import recrawl_client as rc

pytestmark = pytest.mark.dear

EXAMPLE = Path(__file__).parents[2] / "examples" / "crawler.py"
NO_ROBOTS = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def answer(status_line: str, *headers: str, body: str = "<p>page</p>") -> bytes:
    """Return an answer whose end is that of the connection."""
    head = "\r\n".join([f"HTTP/1.1 {status_line}", *headers, "Connection: close", "", ""])
    return head.encode("latin-1") + body.encode()


@contextmanager
def serving(answers):
    """Answer every request by the number of the loopback address that it is for."""
    with closing(socket.create_server(("0.0.0.0", 0), backlog=64)) as listening:
        threading.Thread(target=_serve, args=(listening, answers), daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def _serve(listening, answers):
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with closing(connection), connection.makefile("rb") as lines:
            head = b"".join(iter(lines.readline, b"\r\n"))
            number = int(re.search(rb"Host: 127\.46\.0\.(\d+)", head)[1])
            asks_robots = head.startswith(b"GET /robots.txt")
            connection.sendall(NO_ROBOTS if asks_robots else answers[number - 1])
            connection.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("example_crawler", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = {
    # answer: status in the log, crawls without content, trouble of the host, pause in seconds
    "401": (answer("401 Unauthorized", "WWW-Authenticate: Basic"), 401, 1, 0, 0),
    "407": (answer("407 Proxy Authentication Required"), 407, 1, 0, 0),
    "418": (answer("418 I'm a teapot"), 418, 1, 0, 0),
    "425": (answer("425 Too Early"), 425, 1, 0, 0),
    "425 later": (answer("425 Too Early", "Retry-After: 300"), 425, 1, 0, 300),
    "429": (answer("429 Too Many Requests"), 429, 1, 1, 60),
    "429 in 0 s": (answer("429 x", "Retry-After: 0"), 429, 1, 1, 60),
    "429 before": (answer("429 x", "Retry-After: -5"), 429, 1, 1, 60),
    "429 no integer": (answer("429 x", "Retry-After: 1e9"), 429, 1, 1, 60),
    "429 in words": (answer("429 x", "Retry-After: soon"), 429, 1, 1, 60),
    "429 in digits of others": (answer("429 x", "Retry-After: \xb2"), 429, 1, 1, 60),
    "429 in 1970": (answer("429 x", "Retry-After: Thu, 01 Jan 1970 00:00:00 GMT"), 429, 1, 1, 60),
    "429 for ever": (answer("429 x", f"Retry-After: {'9' * 400}"), 429, 1, 1, 86_400),
    "429 twice": (answer("429 x", "Retry-After: 9", "Retry-After: 300"), 429, 1, 1, 60),
    "503": (answer("503 Service Unavailable"), 503, 1, 1, 60),
    "520": (answer("520 Web Server Returned an Unknown Error"), 520, 1, 1, 0),
    "521": (answer("521 Web Server Is Down"), 521, 1, 1, 0),
    "526": (answer("526 Invalid SSL Certificate"), 526, 1, 1, 0),
    "530": (answer("530 Origin DNS Error"), 530, 1, 1, 0),
    "599": (answer("599 x"), 599, 1, 1, 0),
    "999": (answer("999 Request denied"), 599, 1, 1, 0),
    "299": (answer("299 x"), 299, 0, 0, 0),
    "204": (answer("204 No Content", body=""), 204, 0, 0, 0),
    "206": (answer("206 Partial Content", "Content-Range: bytes 0-10/99"), 206, 0, 0, 0),
    "refresh": (answer("200 OK", "Refresh: 0; url=/x"), 200, 0, 0, 0),
    "meta refresh": (
        answer("200 OK", body="<meta http-equiv=refresh content='0; url=/x'>"),
        200,
        0,
        0,
        0,
    ),
    "no reason": (answer("200"), 200, 0, 0, 0),
    "HTTP/0.9": (b"<p>HTTP/0.9</p>", 0, 1, 1, 0),
    "an empty line": (b"\r\n\r\n", 0, 1, 1, 0),
    "nothing": (b"", 0, 1, 1, 0),
    "no number": (answer("abc OK"), 0, 1, 1, 0),
    "four digits": (answer("2000 OK"), 0, 1, 1, 0),
    "000": (answer("000 OK"), 0, 1, 1, 0),
    "101": (answer("101 Switching Protocols", "Upgrade: x"), 0, 1, 1, 0),
    "100 for ever": (b"HTTP/1.1 100 Continue\r\n\r\n" * 50, 0, 1, 1, 0),
    "103 before 200": (b"HTTP/1.1 103 Early Hints\r\n\r\n" + answer("200 OK"), 200, 0, 0, 0),
    "two lengths": (answer("200 OK", "Content-Length: 1", "Content-Length: 2"), 0, 1, 1, 0),
}


def test_an_odd_answer_means_what_the_table_of_outcomes_states(database_url, example):
    with running(database_url) as live, serving([case[0] for case in CASES.values()]) as port:
        lease_freely(live)
        urls = [f"http://127.46.0.{k + 1}:{port}/p" for k in range(len(CASES))]
        live.register(*urls)
        with (
            rc.Client(live.url, now=live.clock) as client,
            httpx.Client(timeout=5, event_hooks={"response": [example.keep_target]}) as web,
            client.reporter() as reporter,
        ):
            robots = rc.Robots("probe", client)
            crawls = {one.url: one for one in client.lease(count=100).items}
            for url in urls:
                example.visit(crawls[url], web, robots, reporter)
        found = {}
        for url, name in zip(urls, CASES, strict=True):
            page = live.get("/pages", url=url).json()
            queue = live.get(f"/hosts/{httpx.URL(url).host}").json()["host_queue"]
            until = queue["paused_until"]
            pause_s = (datetime.fromisoformat(until) - live.clock()).total_seconds() if until else 0
            # the pause after trouble is about a minute
            pause_s = 60 if 30 <= pause_s <= 90 else pause_s
            (crawl,) = page["last_crawls"]
            found[name] = (crawl["status"], page["n_failures"], queue["n_failures"], pause_s)
            assert not page["gone"]
    assert found == {name: case[1:] for name, case in CASES.items()}
