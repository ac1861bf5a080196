"""`recrawl hosts` shows and sets the politeness of hosts, and reports what robots.txt asks."""

import io
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from support.live_server import Live, running

from service.connectors.robots import requested_delay

ROBOTS = b"""\xef\xbb\xbfUser-agent: *
Crawl-delay: 5
Disallow: /private

User-agent: newsbot
Crawl-delay: 0.5
Request-rate: 2/1m
"""


@pytest.fixture
def api(sqlite_url) -> Live:
    with running(sqlite_url) as live:
        yield live


@pytest.fixture
def elsewhere():
    """Another service that answers all calls alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(server.answer)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def delay_of(api: Live, host: str):
    return api.get(f"/hosts/{host}").json()["robots_delay_s"]


def test_the_delay_is_that_for_the_crawlers_own_name(api: Live, recrawl, tmp_path):
    path = tmp_path / "robots.txt"
    path.write_bytes(ROBOTS)
    answer = recrawl("hosts", "robots", path, "--host", "Example.org", "--to", api.url)
    assert (answer.status, answer.out) == (0, "Example.org: 5 s\n")
    assert delay_of(api, "example.org") == 5
    url = ("--url", "https://example.org/robots.txt")
    answer = recrawl(
        "hosts",
        "robots",
        path,
        *url,
        "--user-agent",
        "newsbot/2.0 (+https://news.example)",
        "--to",
        api.url,
    )
    assert answer.out == "example.org: 30 s\n"
    assert delay_of(api, "example.org") == 30


def test_settings_of_the_operator_stay_when_robots_txt_is_reported(api: Live, recrawl, tmp_path):
    api.client.put("/hosts/example.org", json={"min_delay_s": 2, "max_crawl_rate": 9})
    (tmp_path / "example.org.txt").write_bytes(ROBOTS)
    recrawl("hosts", "robots", "example.org.txt", url=api.url)
    host = api.get("/hosts/example.org").json()
    assert (host["min_delay_s"], host["max_crawl_rate"], host["robots_delay_s"]) == (2, 9, 5)
    assert host["host_queue"]["delay_s"] == 5


def test_many_files_name_their_hosts_and_one_without_a_delay_clears_it(
    api: Live, recrawl, tmp_path
):
    api.client.put("/hosts/b.example", json={"robots_delay_s": 8})
    (tmp_path / "a.example").mkdir()
    files = [tmp_path / "a.example" / "robots.txt", tmp_path / "b.example.txt"]
    for file, content in zip(files, (ROBOTS, b"User-agent: *\nDisallow:\n"), strict=True):
        file.write_bytes(content)
    answer = recrawl("hosts", "robots", *files, url=api.url)
    assert answer.out == "a.example: 5 s\nb.example: no delay\n"
    assert (delay_of(api, "a.example"), delay_of(api, "b.example")) == (5, None)


def test_a_file_may_come_from_a_pipe(api: Live, recrawl, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(ROBOTS)))
    recrawl("hosts", "robots", "-", "--host", "a.example", url=api.url)
    assert delay_of(api, "a.example") == 5


def test_a_file_of_no_host_or_that_is_not_there_sends_nothing(api: Live, recrawl, tmp_path):
    (tmp_path / "good.example.txt").write_bytes(ROBOTS)
    (tmp_path / "robots.txt").write_bytes(ROBOTS)
    answer = recrawl("hosts", "robots", "good.example.txt", "nowhere.example.txt", url=api.url)
    assert "nowhere.example.txt" in answer.refusal()
    answer = recrawl("hosts", "robots", "good.example.txt", "robots.txt", url=api.url)
    assert "--host" in answer.refusal()
    assert api.get("/hosts").json()["items"] == []


def test_hosts_are_set_shown_and_listed(sqlite_url, recrawl):
    with running(sqlite_url, api_keys=("secret",)) as api:
        at = {"url": api.url, "api_key": "secret"}
        answer = recrawl(
            "hosts", "set", "a.example", "min_delay_s=2.5", "group=shared", "--json", **at
        )
        shown = recrawl("hosts", "show", "a.example", **at)
        assert json.loads(answer.out) == json.loads(shown.out) == api.get("/hosts/a.example").json()
        cleared = recrawl("hosts", "set", "a.example", "group=null", **at)
        assert cleared.out == "a.example is set: group by default\n"
        assert api.get("/hosts/a.example").json()["group"] is None
        texts = ("windows", "blackouts", "delay", "max-delay")
        values = ("00:00-06:00 UTC", "2026-12-24 UTC", "2s", "30s")
        recrawl(
            *("hosts", "set", "a.example"),
            *(
                part
                for pair in zip(texts, values, strict=True)
                for part in (f"--{pair[0]}", pair[1])
            ),
            **at,
        )
        nulls = [part for name in texts for part in (f"--{name}", "null")]
        cleared = json.loads(recrawl("hosts", "set", "a.example", *nulls, "--json", **at).out)
        names = ("windows", "blackouts", "min_delay_s", "max_delay_s")
        assert {cleared[name] for name in names} == {None}
        recrawl("hosts", "set", "b.example", "blocked_until=2026-06-01T00:00:00Z", **at)
        listed = [json.loads(line) for line in recrawl("hosts", "list", **at).out.splitlines()]
        assert listed == api.get("/hosts").json()["items"]
        assert [host["host"] for host in listed] == ["a.example", "b.example"]
        refused = recrawl("hosts", "set", "a.example", "max_concurrency=0", **at)
        assert "1 to 10,000" in refused.refusal()
        assert "valid API key" in recrawl("hosts", "show", "a.example", url=api.url).refusal()
        assert "no page has the host" in recrawl("hosts", "show", "c.example", **at).refusal()
        with_port = recrawl("hosts", "pause", "127.0.0.1:18110", "2h", **at).refusal()
        assert '"127.0.0.1:18110" is not a host name' in with_port
        assert "without a port: all ports of a name are one host" in with_port
        for nonsense in ("../pages", "a.example?x=1", "a.example/../../epochs"):
            refused = recrawl("hosts", "show", nonsense, **at).refusal()
            assert "no such path" in refused or "is not a host name" in refused


def test_another_service_that_answers_json_is_not_taken_for_this(recrawl, elsewhere):
    for command in (("hosts", "list"), ("websub", "list")):
        for answer in (b"{}", b"[]", b"null", b'{"items": []}'):
            elsewhere.answer = answer
            refused = recrawl(*command, url=elsewhere.url).refusal()
            assert "not an answer of Recrawl" in refused or "is that the service" in refused


@pytest.mark.parametrize(
    ("lines", "delay_s"),
    [
        ("", None),
        ("Crawl-delay: 0", 0),
        ("Crawl-delay: 1e9", 86_400),
        ("Crawl-delay: inf", None),
        ("Crawl-delay: nan", None),
        ("Crawl-delay: -1", None),
        ("Crawl-delay: soon", None),
        ("Request-rate: 0/5s", None),
        ("Request-rate: 4/1m", 15),
        ("Request-rate: 1/2s 0800-1700", 2),
        ("Crawl-delay: 3\nRequest-rate: 1/1s", 3),
    ],
)
def test_delays_are_read_as_they_are_meant(lines, delay_s):
    assert requested_delay(f"User-agent: *\n{lines}\n".encode(), "bot") == delay_s


@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe", b"<html>" * 200_000, b"Crawl-delay: 5"])
def test_what_is_no_robots_txt_asks_for_nothing(content):
    assert requested_delay(content, "bot") is None


def test_a_host_without_a_page_is_set_with_a_notice(api: Live, recrawl):
    api.register("https://a.example/")
    ended = recrawl("hosts", "set", "a.exampel", "min_delay_s=2", url=api.url)
    assert (ended.status, ended.err.split()) == (
        0,
        ["a.exampel", "is", "set;", "no", "page", "has", "this", "host", "yet"],
    )
    assert recrawl("hosts", "set", "a.example", "min_delay_s=2", url=api.url).err == ""
