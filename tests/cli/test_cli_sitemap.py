"""`recrawl sitemap watch`: sites are fetched politely, and what has changed is passed on."""

import gzip
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from support.live_server import Live, running
from support.loopback import Loopback, Names

from recrawl_client import Client, Problem, Refused, Unavailable
from service.connectors import watching
from service.connectors.watching import Manners, State, Watcher

YESTERDAY = "2026-04-30T12:00:00Z"
STATE = "recrawl-sitemaps.json"


class Page(NamedTuple):
    """What a site answers to one path."""

    content: bytes = b""
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - never written to


class Site:
    """A web site on a free port of this machine that remembers what it was asked for."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.asked.append((self.path, dict(self.headers)))
                page = site.pages.get(self.path, Page(status=404))
                tags = (("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since"))
                same = any(
                    tag in page.headers and page.headers[tag] == self.headers[condition]
                    for tag, condition in tags
                )
                self.send_response(304 if same else page.status)
                for header in page.headers.items():
                    self.send_header(*header)
                content = b"" if same else page.content
                if not same:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def paths(self) -> list[str]:
        """Give what was asked for since the last time."""
        paths = [path for path, _ in self.asked]
        self.asked.clear()
        return paths

    def urlset(self, *paths: str, lastmod: str = YESTERDAY) -> bytes:
        entry = "<url><loc>{}{}</loc><lastmod>{}</lastmod></url>".format
        body = "".join(entry(self.url, path, lastmod) for path in paths)
        return f"<urlset>{body}</urlset>".encode()

    def index(self, *paths: str) -> bytes:
        entry = "<sitemap><loc>{}</loc></sitemap>".format
        body = "".join(entry(p if "://" in p else self.url + p) for p in paths)
        return f"<sitemapindex>{body}</sitemapindex>".encode()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, args=(0.01,))
    thread.start()
    yield site
    site.server.shutdown()
    thread.join()
    site.server.server_close()


@pytest.fixture
def api(sqlite_url) -> Iterator[Live]:
    with running(sqlite_url) as live:
        yield live


@pytest.fixture
def watch(recrawl, api: Live):
    """Run one round of the command."""

    def run(*arguments: object, **settings: object):
        given = {"url": api.url, **settings}
        options = ("--once", "--delay", 0, "--private")
        return recrawl("sitemap", "watch", *arguments, *options, **given)

    return run


def test_a_sitemap_is_passed_on_and_fetched_again_only_when_it_has_changed(watch, site, api):
    at = f"{site.url}/sitemap.xml"
    headers = {"ETag": '"1"', "Last-Modified": "Thu, 30 Apr 2026 12:00:00 GMT"}
    site.pages["/sitemap.xml"] = Page(site.urlset("/a", "/b"), headers=headers)
    first = watch(at)
    assert first.status == 0, first.err
    assert first.out == f"{at}: urlset, 2 new, 0 changed, 0 rejected, 2 to crawl now\n"
    assert api.get("/pages", url=f"{site.url}/a").json()["estimate"]["last_ping_at"] == YESTERDAY
    assert watch(at).out == f"{at}: unchanged\n"
    (_, plain), (_, conditional) = site.asked
    assert "If-None-Match" not in plain
    assert plain["User-Agent"].startswith("recrawl/")
    assert conditional["If-None-Match"] == '"1"'
    assert conditional["If-Modified-Since"] == headers["Last-Modified"]
    newer = site.urlset("/a", "/b", lastmod="2026-05-01")
    site.pages["/sitemap.xml"] = Page(newer, headers={"ETag": '"2"'})
    assert watch(at).out == f"{at}: urlset, 0 new, 2 changed, 0 rejected, 2 to crawl now\n"


def test_children_of_an_index_are_fetched_even_when_the_index_has_not_changed(watch, site):
    tag = {"ETag": '"1"'}
    site.pages |= {
        "/index.xml": Page(site.index("/1.xml", "/2.xml.gz", "/index.xml"), headers=tag),
        "/1.xml": Page(site.urlset("/a"), headers=tag),
        "/2.xml.gz": Page(gzip.compress(site.urlset("/b"))),
    }
    first = watch(f"{site.url}/index.xml")
    assert (first.status, first.err) == (0, "")
    assert "index.xml: index, 3 sitemaps, 0 rejected" in first.out
    assert site.paths() == ["/index.xml", "/1.xml", "/2.xml.gz"]
    again = watch(f"{site.url}/index.xml")
    assert again.out.count("unchanged") == 2
    assert site.paths() == ["/index.xml", "/1.xml", "/2.xml.gz"]


def test_indexes_that_name_indexes_come_to_an_end(watch, site):
    for i in range(9):
        site.pages[f"/{i}.xml"] = Page(site.index(f"/{i + 1}.xml"))
    watch(f"{site.url}/0.xml")
    assert site.paths() == ["/0.xml", "/1.xml", "/2.xml"]


def test_children_on_other_hosts_are_not_fetched(watch, site):
    elsewhere = site.url.replace("127.0.0.1", "localhost")
    site.pages["/index.xml"] = Page(site.index(f"{elsewhere}/1.xml", "/2.xml"))
    site.pages["/2.xml"] = Page(site.urlset("/a"))
    assert "1 sitemaps, 1 rejected" in watch(f"{site.url}/index.xml").out
    assert site.paths() == ["/index.xml", "/2.xml"]


def test_a_document_sent_with_gzip_is_passed_on_as_it_is(watch, site):
    headers = {"Content-Encoding": "gzip"}
    site.pages["/sitemap.xml"] = Page(gzip.compress(site.urlset("/a")), headers=headers)
    assert "1 new" in watch(f"{site.url}/sitemap.xml").out


def test_redirects_are_followed_and_their_end_counts(watch, site):
    elsewhere = site.url.replace("127.0.0.1", "localhost")
    site.pages["/old.xml"] = Page(status=301, headers={"Location": f"{elsewhere}/new.xml"})
    site.pages["/new.xml"] = Page(site.urlset("/a").replace(b"127.0.0.1", b"localhost"))
    assert "1 new, 0 changed, 0 rejected" in watch(f"{site.url}/old.xml").out


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("page", "says"),
    [
        (Page(status=404), "the site answered 404"),
        (Page(b"<html/>"), "400 the document's root is <html>"),
        (Page(b"x" * 2_000), "over 1000 bytes; raise --max-bytes"),
        (Page(b"<urlset/>", headers={"Content-Encoding": "br"}), "415 Content-Encoding br"),
        (Page(status=500), "the site answered 500"),
        (Page(status=304), "the site answered 304"),
    ],
)
def test_a_sitemap_that_fails_is_told_and_keeps_no_other(watch, site, page, says):
    site.pages |= {"/bad.xml": page._replace(headers={"ETag": '"1"', **page.headers})}
    site.pages["/good.xml"] = Page(site.urlset("/a"))
    for _ in range(2):
        ended = watch(f"{site.url}/bad.xml", f"{site.url}/good.xml", "--max-bytes", 1_000)
        assert ended.status == 1
        assert says in ended.err
        assert "Traceback" not in ended.err
        assert f"{site.url}/good.xml: urlset" in ended.out
    assert not any("If-None-Match" in headers for _, headers in site.asked)


def test_warnings_of_the_service_are_told(watch, site):
    site.pages["/sitemap.xml"] = Page(site.urlset("/a", "/b")[:-30])
    ended = watch(f"{site.url}/sitemap.xml")
    assert ended.status == 1
    assert "cut short" in ended.err


def test_a_fault_that_was_repaired_is_told_and_is_no_failure(watch, site):
    site.pages["/sitemap.xml"] = Page(site.urlset("/a?x=1&y=2", "/b"))
    ended = watch(f"{site.url}/sitemap.xml")
    assert (ended.status, "2 new" in ended.out) == (0, True)
    assert "faults repaired: 1" in ended.err


def test_a_site_that_is_not_there_is_told(watch):
    ended = watch("http://127.0.0.1:1/sitemap.xml", "nowhere", "http://[half")
    assert ended.status == 1
    assert ended.err.count("the site cannot be reached") == 2
    assert "http://[half: it is no address" in ended.err


def test_a_tag_that_no_header_can_carry_is_not_sent_back(watch, site):
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"), headers={"ETag": '"\xe9"'})
    for _ in range(2):
        ended = watch(f"{site.url}/sitemap.xml")
        assert (ended.status, ended.err) == (0, "")


def test_a_name_that_no_header_can_carry_is_refused(watch, site):
    ended = watch(f"{site.url}/sitemap.xml", "--user-agent", "b\xf6t")
    assert ended.status == 2
    assert "printable ASCII" in ended.err


def test_the_state_is_of_one_receiver_and_must_be_readable(watch, site, api, tmp_path):
    at = f"{site.url}/sitemap.xml"
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"), headers={"ETag": '"1"'})
    watch(at)
    state = json.loads((tmp_path / STATE).read_text())
    assert state == {"receiver": api.url, "sitemaps": {at: {"etag": '"1"', "children": []}}}
    (tmp_path / STATE).write_text(json.dumps({**state, "receiver": "http://other.example"}))
    assert "unchanged" not in watch(at).out
    for broken in ("[]", "{", json.dumps({**state, "sitemaps": {at: 1}})):
        (tmp_path / STATE).write_text(broken)
        assert "is no state of sitemaps" in watch(at).refusal()


def test_a_key_is_shown_where_one_is_needed(recrawl, site, sqlite_url):
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"))
    once = ("--once", "--delay", 0, "--private")
    arguments = ("sitemap", "watch", f"{site.url}/sitemap.xml", *once)
    with running(sqlite_url, api_keys=("secret",)) as api:
        assert "401" in recrawl(*arguments, url=api.url).refusal()
        assert recrawl(*arguments, url=api.url, api_key="secret").status == 0


def test_what_answers_but_is_no_recrawl_is_told(watch, site):
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"))
    refusal = watch(f"{site.url}/sitemap.xml", url=site.url).refusal()
    assert "is that the service" in refusal


# -- pacing, by a clock that stands still until somebody sleeps


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(round(seconds, 6))
        self.now += seconds


@pytest.fixture
def timed(api: Live, tmp_path):
    """A watcher and its time."""
    time = Time()
    with Client(api.url) as client:
        state = State(tmp_path / STATE, api.url)
        yield (
            Watcher(
                client, state, Manners(2.5, private=True), sleep=time.sleep, clock=lambda: time.now
            ),
            time,
        )


def test_between_two_fetches_lies_the_delay_and_rounds_count_from_their_start(timed, site):
    watcher, time = timed
    site.pages |= {f"/{i}.xml": Page(site.urlset("/a")) for i in range(3)}
    urls = [f"{site.url}/{i}.xml" for i in range(3)]
    steps = list(watcher.rounds(urls, interval_s=60, n=2))
    assert [step.outcome for step in steps] == ["taken"] * 6
    assert time.sleeps == [0.0, 2.5, 2.5, 55.0, 0.0, 2.5, 2.5]


@pytest.mark.parametrize("status", [429, 503])
def test_a_site_that_asks_to_be_left_alone_is(timed, site, status):
    watcher, time = timed
    urls = [f"{site.url}/{i}.xml" for i in range(2)]
    site.pages["/0.xml"] = Page(status=status, headers={"Retry-After": "100"})
    site.pages["/1.xml"] = Page(site.urlset("/a"))
    first = list(watcher.look(urls))
    assert [step.reason for step in first] == [
        f"the site answered {status}",
        "the site asked to be left alone for another 100 s",
    ]
    assert site.paths() == ["/0.xml"]
    time.now += 99
    assert [step.outcome for step in watcher.look(urls)] == ["failed", "failed"]
    assert site.paths() == []
    site.pages["/0.xml"] = site.pages["/1.xml"]
    time.now += 1
    assert [step.outcome for step in watcher.look(urls)] == ["taken", "taken"]


def test_who_is_left_alone_is_who_asked_for_it_and_hops_keep_the_delay(timed, site):
    """A redirect to a busy site: that one is waited for, not the one that pointed there."""
    watcher, time = timed
    other = site.url.replace("127.0.0.1", "localhost")
    moved = Page(status=302, headers={"Location": f"{other}/busy.xml"})
    site.pages |= {"/0.xml": moved, "/1.xml": moved, "/2.xml": Page(site.urlset("/a"))}
    site.pages["/busy.xml"] = Page(status=429, headers={"Retry-After": "100"})
    steps = list(watcher.look(f"{site.url}/{i}.xml" for i in range(3)))
    assert [step.outcome for step in steps] == ["failed", "failed", "taken"]
    assert [step.reason for step in steps[:2]] == [
        "the site answered 429",
        "the site asked to be left alone for another 98 s",
    ]
    assert site.paths() == ["/0.xml", "/busy.xml", "/1.xml", "/2.xml"]
    assert time.sleeps == [0.0, 2.5, 2.5, 2.5]


def test_a_document_that_never_comes_to_its_end_is_given_up(timed, site, monkeypatch):
    monkeypatch.setattr("service.connectors.watching.LONGEST_S", -1.0)
    site.pages["/0.xml"] = Page(site.urlset("/a"))
    (step,) = timed[0].look([f"{site.url}/0.xml"])
    assert (step.outcome, "no complete answer after" in step.reason) == ("failed", True)


def test_a_document_that_broke_off_is_fetched_again_though_it_has_not_changed(watch, site):
    at, tag = f"{site.url}/sitemap.xml", {"ETag": '"1"'}
    site.pages["/sitemap.xml"] = Page(site.urlset("/a", "/b")[:-30], headers=tag)
    assert "1 new" in watch(at).out
    site.pages["/sitemap.xml"] = Page(site.urlset("/a", "/b"), headers=tag)
    assert "1 new" in watch(at).out
    assert "unchanged" in watch(at).out


def test_what_was_left_out_as_of_another_host_is_taken_once_asked_for(watch, site):
    at = f"{site.url}/sitemap.xml"
    elsewhere = site.urlset("/a").replace(b"127.0.0.1", b"localhost")
    site.pages["/sitemap.xml"] = Page(elsewhere, headers={"ETag": '"1"'})
    watch(at)
    assert "1 new" not in watch(at, "--www").out
    assert "1 new" in watch(at, "--cross-host").out
    assert "unchanged" in watch(at, "--cross-host").out


def test_what_is_no_coding_is_not_passed_on_as_one(watch, site):
    headers = {"Content-Encoding": "utf-8"}
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"), headers=headers)
    assert "1 new" in watch(f"{site.url}/sitemap.xml").out


@pytest.mark.parametrize(("told", "wait_s"), [({"Retry-After": "0"}, 0), ({}, 600)])
def test_a_busy_site_that_asks_for_no_rest_gets_none(timed, site, told, wait_s):
    watcher, time = timed
    at = f"{site.url}/sitemap.xml"
    site.pages["/sitemap.xml"] = Page(status=503, headers=told)
    list(watcher.look([at]))
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"))
    if wait_s:
        assert [step.outcome for step in watcher.look([at])] == ["failed"]
        time.now += wait_s
    assert [step.outcome for step in watcher.look([at])] == ["taken"]


def test_who_watches_on_outlives_a_service_that_is_away(timed, site, monkeypatch):
    watcher, _ = timed
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"))
    rounds = watcher.rounds([f"{site.url}/sitemap.xml"], interval_s=60)
    assert next(rounds).outcome == "taken"
    with monkeypatch.context() as patch:
        patch.setattr(watcher, "client", Client("http://127.0.0.1:1", patience_s=0))
        away = next(rounds)
    assert (away.outcome, "is it running?" in away.reason) == ("failed", True)
    assert next(rounds).outcome == "taken"


class Behind:
    """A client whose service, or a proxy before it, fails at large documents."""

    def __init__(self, client, error) -> None:
        self.client, self.error = client, error

    def sitemap(self, url, content, **options):
        if len(content) > 1_000:
            raise self.error
        return self.client.sitemap(url, content, **options)


TOO_LARGE = Problem(
    type="about:blank", title="Request Entity Too Large", status=413, detail="<html>"
)


def slow() -> Unavailable:
    error = Unavailable("POST /sitemaps: timed out; is it running?")
    error.__cause__ = httpx.ReadTimeout("timed out")
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Refused(413, TOO_LARGE), "413 <html>"),
        (slow(), "took too long to read it"),
    ],
)
def test_one_document_that_is_too_much_keeps_no_other(timed, site, error, says):
    watcher, _ = timed
    watcher.client = Behind(watcher.client, error)
    site.pages["/large.xml"] = Page(site.urlset(*(f"/{n}" for n in range(100))))
    site.pages["/small.xml"] = Page(site.urlset("/a"))
    large, small = watcher.look([f"{site.url}/large.xml", f"{site.url}/small.xml"])
    assert (large.outcome, small.outcome) == ("failed", "taken")
    assert says in large.reason


def test_a_service_that_is_away_from_the_start_is_told_at_once(timed, site):
    watcher, _ = timed
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"))
    watcher.client = Client("http://127.0.0.1:1", patience_s=0)
    with pytest.raises(Unavailable):
        next(watcher.rounds([f"{site.url}/sitemap.xml"], interval_s=60))


def test_a_site_leads_no_watcher_into_the_operators_network(recrawl, api: Live, site):
    """The host of the command line, too, must be public unless the operator says otherwise."""
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"))
    ended = recrawl(
        "sitemap", "watch", f"{site.url}/sitemap.xml", "--once", "--delay", 0, url=api.url
    )
    assert ended.status == 1
    assert "127.0.0.1 is not public; --private allows addresses" in ended.err
    assert site.paths() == []
    assert api.get("/pages", url=f"{site.url}/a").status_code == 404


def test_a_redirect_into_the_operators_network_is_not_followed(api: Live, site, monkeypatch):
    moved = Page(status=302, headers={"Location": f"{site.url}/secret.xml"})
    site.pages |= {"/sitemap.xml": moved, "/secret.xml": Page(site.urlset("/a"))}
    names = Names(**{"news.example": "8.8.8.8", "127.0.0.1": "127.0.0.1"})
    options = {"look_up": names, "network": Loopback(site.server.server_port)}
    guarded = partial(watching.guarded_client, **options)
    monkeypatch.setattr(watching, "guarded_client", guarded)
    with Client(api.url) as client:
        watcher = Watcher(client, State(Path("/nowhere/state.json"), api.url), Manners(0))
        (step,) = watcher.look(["http://news.example/sitemap.xml"])
    assert (step.outcome, "is not public" in step.reason) == ("failed", True)
    assert site.paths() == ["/sitemap.xml"]
