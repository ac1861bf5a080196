"""`recrawl watch`: sites are fetched politely, and what has changed is passed on."""

import gzip
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from support.hubs import open_hub
from support.live_server import Live, lease_freely, running
from support.loopback import Loopback, Names

from recrawl_client import Client, Problem, Refused, Unavailable
from service.connectors import visits, watching
from service.connectors.feed_watch import FeedReader
from service.connectors.visits import Manners
from service.connectors.watch_rounds import RESTORED, rounds
from service.connectors.watch_state import WatchState
from service.connectors.watching import Watcher

pytestmark = pytest.mark.dear

YESTERDAY = "2026-04-30T12:00:00Z"
STATE = "recrawl-watch.db"


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
        return recrawl("watch", *arguments, *options, **given)

    return run


def test_a_sitemap_is_passed_on_and_fetched_again_only_when_it_has_changed(watch, site, api):
    at = f"{site.url}/sitemap.xml"
    headers = {"ETag": '"1"', "Last-Modified": "Thu, 30 Apr 2026 12:00:00 GMT"}
    site.pages["/sitemap.xml"] = Page(site.urlset("/a", "/b"), headers=headers)
    first = watch(at)
    assert first.status == 0, first.err
    assert (
        first.out == f"{at}: urlset, 2 new, 0 newer than the last ping, 0 rejected, "
        "2 to crawl as soon as the budget allows\n"
    )
    assert api.get("/pages", url=f"{site.url}/a").json()["estimate"]["last_ping_at"] == YESTERDAY
    assert watch(at).out == f"{at}: unchanged\n"
    (_, plain), (_, conditional) = site.asked
    assert "If-None-Match" not in plain
    assert plain["User-Agent"].startswith("recrawl/")
    assert conditional["If-None-Match"] == '"1"'
    assert conditional["If-Modified-Since"] == headers["Last-Modified"]
    newer = site.urlset("/a", "/b", lastmod="2026-05-01")
    site.pages["/sitemap.xml"] = Page(newer, headers={"ETag": '"2"'})
    assert (
        watch(at).out == f"{at}: urlset, 0 new, 2 newer than the last ping, 0 rejected, "
        "2 to crawl as soon as the budget allows\n"
    )


def test_dates_that_are_not_trusted_are_explained_by_a_sentence(watch, site, api):
    at = f"{site.url}/sitemap.xml"
    site.pages["/sitemap.xml"] = Page(site.urlset("/a", "/b"))
    assert "not_trusted" not in watch(at).out
    at_once = {"observed_at": api.clock().isoformat()}
    crawls = [{"url": f"{site.url}{path}", "digest": path, **at_once} for path in ("/a", "/b")]
    reported = api.post("/observations", crawls)
    assert reported.status_code == 200, reported.text
    site.pages["/sitemap.xml"] = Page(site.urlset("/a", "/b", lastmod="2026-05-01"))
    counts, sentence = watch(at).out.splitlines()
    assert counts.endswith(
        "0 new, 2 newer than the last ping, 0 rejected, 0 to crawl as soon as the budget allows"
    )
    assert sentence == (
        f"{at}: 2 pages not_trusted: crawls have not shown so far that such dates announce "
        "changes, so they are crawled as planned"
    )


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
    assert "1 sitemap, 1 rejected" in watch(f"{site.url}/index.xml").out
    assert site.paths() == ["/index.xml", "/2.xml"]


def test_a_document_sent_with_gzip_is_passed_on_as_it_is(watch, site):
    headers = {"Content-Encoding": "gzip"}
    site.pages["/sitemap.xml"] = Page(gzip.compress(site.urlset("/a")), headers=headers)
    assert "1 new" in watch(f"{site.url}/sitemap.xml").out


def test_redirects_are_followed_and_their_end_counts(watch, site):
    elsewhere = site.url.replace("127.0.0.1", "localhost")
    site.pages["/old.xml"] = Page(status=301, headers={"Location": f"{elsewhere}/new.xml"})
    site.pages["/new.xml"] = Page(site.urlset("/a").replace(b"127.0.0.1", b"localhost"))
    assert "1 new, 0 newer than the last ping, 0 rejected" in watch(f"{site.url}/old.xml").out


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
    ended = watch("http://127.0.0.1:1/sitemap.xml")
    assert ended.status == 1
    assert ended.err.count("the site cannot be reached") == 1


def test_a_tag_that_no_header_can_carry_is_not_sent_back(watch, site):
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"), headers={"ETag": '"\xe9"'})
    for _ in range(2):
        ended = watch(f"{site.url}/sitemap.xml")
        assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:21280", "a.example/sitemap.xml", "ftp://a.example/", "nowhere"],
)
def test_an_address_without_http_is_refused(watch, site, url):
    ended = watch(f"{site.url}/sitemap.xml", url)
    assert site.asked == []
    assert ended.status == 2
    assert "is no http:// or https:// address" in " ".join(ended.err.replace("│", " ").split())


def test_half_an_address_is_refused(watch):
    ended = watch("http://[half")
    assert (ended.status, "http://[half: it is no address" in ended.err) == (1, True)


def test_a_name_that_no_header_can_carry_is_refused(watch, site):
    ended = watch(f"{site.url}/sitemap.xml", "--user-agent", "b\xf6t")
    assert ended.status == 2
    assert "printable ASCII" in ended.err


def test_the_state_is_of_one_receiver_and_must_be_readable(watch, site, api, tmp_path):
    at = f"{site.url}/sitemap.xml"
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"), headers={"ETag": '"1"'})
    watch(at)
    assert "unchanged" in watch(at).out
    with closing(sqlite3.connect(tmp_path / STATE)) as state, state:
        state.execute("UPDATE meta SET receiver = 'http://other.example'")
    assert "1 rejected" not in (anew := watch(at).out)
    assert "unchanged" not in anew
    for broken in (b"[]", b"SQLite format 3\0", b"\0" * 4096):
        (tmp_path / STATE).write_bytes(broken)
        assert "is no state of recrawl watch" in watch(at).refusal()


def test_a_key_is_shown_where_one_is_needed(recrawl, site, sqlite_url):
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"))
    once = ("--once", "--delay", 0, "--private")
    arguments = ("watch", f"{site.url}/sitemap.xml", *once)
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
        state = WatchState(tmp_path / STATE, api.url)
        times = {"sleep": time.sleep, "clock": lambda: time.now, "now": lambda: api.clock.now}
        yield Watcher(client, state, Manners(2.5, private=True), **times), time


def test_between_two_fetches_lies_the_delay_and_rounds_count_from_their_start(timed, site):
    watcher, time = timed
    site.pages |= {f"/{i}.xml": Page(site.urlset("/a")) for i in range(3)}
    urls = [f"{site.url}/{i}.xml" for i in range(3)]
    steps = list(rounds(watcher, FeedReader(watcher), urls, interval_s=60, n=2))
    assert [step.outcome for step in steps] == ["taken"] * 6
    assert time.sleeps == [0.0, 2.5, 2.5, 55.0, 0.0, 2.5, 2.5]


def test_after_a_restore_all_documents_are_read_again(timed, site, api):
    """The backup may lack pages of documents whose addresses have not changed since."""
    watcher, _ = timed
    headers = {"ETag": '"same"'}
    site.pages["/s.xml"] = Page(site.urlset("/a"), headers=headers)

    def outcomes():
        steps = rounds(watcher, FeedReader(watcher), [f"{site.url}/s.xml"], interval_s=60, n=1)
        return [(step.outcome, step.reason) for step in steps]

    assert api.get("/readyz").json()["incarnation"] == api.service.watch.incarnation
    assert outcomes() == [("taken", "")]
    assert outcomes() == [("unchanged", "")]
    api.service.store.begin_incarnation()
    api.service.watch.poll()
    assert outcomes() == [("listed", RESTORED), ("taken", "")]
    assert outcomes() == [("unchanged", "")]


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
    monkeypatch.setattr("service.connectors.visits.LONGEST_S", -1.0)
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
    reader = FeedReader(watcher)
    steps = rounds(watcher, reader, [f"{site.url}/sitemap.xml"], interval_s=60)
    assert next(steps).outcome == "taken"
    with monkeypatch.context() as patch:
        patch.setattr(watcher, "client", Client("http://127.0.0.1:1", patience_s=0))
        away = next(steps)
    assert (away.outcome, "is it running?" in away.reason) == ("failed", True)
    assert next(steps).outcome == "taken"


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
        next(rounds(watcher, FeedReader(watcher), [f"{site.url}/sitemap.xml"], interval_s=60))


def test_a_site_leads_no_watcher_into_the_operators_network(recrawl, api: Live, site):
    """The host of the command line, too, must be public unless the operator says otherwise."""
    site.pages["/sitemap.xml"] = Page(site.urlset("/a"))
    ended = recrawl("watch", f"{site.url}/sitemap.xml", "--once", "--delay", 0, url=api.url)
    assert ended.status == 1
    assert "127.0.0.1 is not public; --private allows addresses" in ended.err
    assert site.paths() == []
    assert api.get("/pages", url=f"{site.url}/a").status_code == 404


def test_a_redirect_into_the_operators_network_is_not_followed(api: Live, site, monkeypatch):
    moved = Page(status=302, headers={"Location": f"{site.url}/secret.xml"})
    site.pages |= {"/sitemap.xml": moved, "/secret.xml": Page(site.urlset("/a"))}
    names = Names(**{"news.example": "8.8.8.8", "127.0.0.1": "127.0.0.1"})
    options = {"look_up": names, "network": Loopback(site.server.server_port)}
    guarded = partial(visits.guarded_client, **options)
    monkeypatch.setattr(visits, "guarded_client", guarded)
    with Client(api.url) as client:
        watcher = Watcher(client, WatchState(Path("/nowhere/state.db"), api.url), Manners(0))
        (step,) = watcher.look(["http://news.example/sitemap.xml"])
    assert (step.outcome, "is not public" in step.reason) == ("failed", True)
    assert site.paths() == ["/sitemap.xml"]


# -- sites, indexes, and addresses that leave


def test_a_site_is_read_by_its_robots_txt(watch, site):
    lines = f"Sitemap: {site.url}/a.xml\nUser-agent: *\nDisallow: /\nsitemap: /b.txt\n"
    elsewhere = "Sitemap: http://other.example/c.xml\n"
    site.pages |= {
        "/robots.txt": Page((lines + elsewhere).encode(), headers={"ETag": '"1"'}),
        "/a.xml": Page(site.urlset("/1", "/2")),
        "/b.txt": Page(f"{site.url}/3".encode()),
    }
    ended = watch(site.url)
    assert (ended.status, ended.err) == (0, "")
    assert f"{site.url}/robots.txt: 2 sitemaps, 1 on other hosts left out\n" in ended.out
    assert site.paths() == ["/robots.txt", "/a.xml", "/b.txt"]
    assert "robots.txt: unchanged" in watch(f"{site.url}/").out
    assert site.paths() == ["/robots.txt", "/a.xml", "/b.txt"]


def test_lines_of_a_robots_txt_beyond_the_maximum_are_counted(watch, site, monkeypatch):
    monkeypatch.setattr(watching, "MAX_NAMED", 2)
    lines = "".join(f"Sitemap: /{name}.xml\n" for name in "aabcd")
    site.pages |= {"/robots.txt": Page(lines.encode()), "/a.xml": Page(site.urlset("/1"))}
    ended = watch(site.url)
    assert f"{site.url}/robots.txt: 2 sitemaps, 2 more left out\n" in ended.out
    assert site.paths() == ["/robots.txt", "/a.xml", "/b.xml"]


def test_indexes_too_deep_are_left_out_by_name(watch, site):
    for level in range(1, 5):
        site.pages[f"/{level}.xml"] = Page(site.index(f"/{level + 1}.xml", "/1.xml"))
    ended = watch(f"{site.url}/1.xml")
    assert ended.status == 0
    assert site.paths() == ["/1.xml", "/2.xml", "/3.xml"]
    assert f"{site.url}/3.xml: sitemaps below level 3 are left out; name them" in ended.out
    site.pages["/3.xml"] = Page(site.index("/2.xml", "/1.xml"))
    assert "left out" not in watch(f"{site.url}/1.xml").out


def test_a_robots_txt_sent_with_gzip_is_read(watch, site):
    content = gzip.compress(b"User-agent: *\nDisallow: /\nSitemap: /a.xml\n")
    site.pages |= {
        "/robots.txt": Page(content, headers={"Content-Encoding": "gzip"}),
        "/a.xml": Page(site.urlset("/1")),
    }
    ended = watch(site.url)
    assert (ended.status, ended.err) == (0, "")
    assert site.paths() == ["/robots.txt", "/a.xml"]


def test_a_site_without_lines_has_its_sitemap_at_the_usual_place(watch, site):
    site.pages["/sitemap.xml"] = Page(site.urlset("/1"))
    assert watch(site.url).status == 0
    assert site.paths() == ["/robots.txt", "/sitemap.xml"]


def test_a_site_whose_robots_txt_is_away_keeps_the_sitemaps_of_the_round_before(watch, site):
    site.pages |= {
        "/robots.txt": Page(b"Sitemap: /s.xml"),
        "/s.xml": Page(site.urlset("/1")),
    }
    watch(site.url)
    site.pages["/robots.txt"] = Page(status=500)
    site.paths()
    ended = watch(site.url)
    assert (ended.status, "the site answered 500" in ended.err) == (1, True)
    assert site.paths() == ["/robots.txt", "/s.xml"]


def dated_index(site: Site, **lastmods: str) -> Page:
    entry = "<sitemap><loc>{}/{}.xml</loc><lastmod>{}</lastmod></sitemap>".format
    body = "".join(entry(site.url, name, lastmod) for name, lastmod in lastmods.items())
    return Page(f"<sitemapindex>{body}</sitemapindex>".encode())


class Dice:
    """Draws that a test sets."""

    def __init__(self, draw: float) -> None:
        self.draw = draw

    def random(self) -> float:
        return self.draw


def test_a_child_whose_index_names_the_date_of_the_last_read_is_skipped(timed, site, api):
    watcher, _ = timed
    watcher.rng = Dice(0.05)
    site.pages |= {
        "/index.xml": dated_index(site, a=YESTERDAY, b="2026-05-01", c="2026-04-30T12:00:01Z"),
        **{f"/{name}.xml": Page(site.urlset(f"/{name}")) for name in "abc"},
    }
    at = f"{site.url}/index.xml"
    first = [step.outcome for step in watcher.look([at])]
    assert first == ["taken"] * 4
    site.paths()
    # a date without a time may name a change later on that day
    assert [step.outcome for step in watcher.look([at])] == ["taken", "taken", "taken", "skipped"]
    assert site.paths() == ["/index.xml", "/a.xml", "/b.xml"]
    api.clock.advance(days=3)
    list(watcher.look([at]))  # reads the dates once more, after their days
    site.paths()
    assert [step.outcome for step in watcher.look([at])] == ["taken", *["skipped"] * 3]
    assert site.paths() == ["/index.xml"]
    site.pages["/index.xml"] = dated_index(site, a="2026-05-02T00:00:05Z", b="2026-05-01")
    assert [step.outcome for step in watcher.look([at])] == ["taken", "taken", "skipped"]
    watcher.rng = Dice(0.049)
    assert [step.outcome for step in watcher.look([at])] == ["taken", "taken", "taken"]


def test_a_child_that_failed_or_broke_off_is_not_skipped(timed, site, api):
    watcher, _ = timed
    watcher.rng = Dice(1.0)
    api.clock.advance(days=3)
    site.pages["/index.xml"] = dated_index(site, a=YESTERDAY, b=YESTERDAY)
    site.pages["/a.xml"] = Page(site.urlset("/1", "/2")[:-30])
    at = f"{site.url}/index.xml"
    assert [step.outcome for step in watcher.look([at])] == ["taken", "taken", "failed"]
    site.pages |= {f"/{name}.xml": Page(site.urlset("/1", "/2")) for name in "ab"}
    assert [step.outcome for step in watcher.look([at])] == ["taken"] * 3
    assert [step.outcome for step in watcher.look([at])] == ["taken", "skipped", "skipped"]


def requested(api: Live, url: str) -> bool:
    """Whether a page waits for a crawl that somebody has requested."""
    return api.get("/pages", url=url).json()["why"]["hold"] in ("ready", "host_busy", "no_crawler")


@pytest.fixture
def crawled(timed, site, api: Live):
    """A watcher after a round, all of whose pages were crawled since."""
    watcher, _ = timed
    site.pages["/s.xml"] = Page(site.urlset("/1", "/2", "/3"))
    list(watcher.look([f"{site.url}/s.xml"]))
    api.clock.advance(hours=1)
    urls = [f"{site.url}/{n}" for n in (1, 2, 3)]
    at = api.clock.now.isoformat()
    items = [{"url": url, "observed_at": at, "status": 200, "digest": "x"} for url in urls]
    assert api.post("/observations", items).json()["accepted"] == 3
    api.epoch()
    api.clock.advance(minutes=1)
    return watcher


def test_an_address_that_leaves_its_sitemap_is_looked_at_once(crawled, site, api):
    at = f"{site.url}/s.xml"
    site.pages["/s.xml"] = Page(site.urlset("/2"))
    *_, step = crawled.look([at])
    assert (step.outcome, step.reason) == (
        "asked",
        "2 addresses left their sitemaps, 2 to crawl as soon as the budget allows",
    )
    assert [requested(api, f"{site.url}/{n}") for n in (1, 2, 3)] == [True, False, True]
    assert [step.outcome for step in crawled.look([at])] == ["taken"]


@pytest.mark.parametrize(
    "page",
    [
        Page(status=404),
        Page(status=500),
        Page(b"<urlset></urlset>"),
        Page(b"<html>Sorry</html>"),
        Page(b"<urlset><url><loc>/2</loc></url>"),
    ],
)
def test_a_read_that_failed_or_is_empty_or_broke_off_shows_no_address_that_left(
    crawled, site, page
):
    at, whole = f"{site.url}/s.xml", site.pages["/s.xml"]
    site.pages["/s.xml"] = page
    assert "asked" not in [step.outcome for step in crawled.look([at])]
    site.pages["/s.xml"] = whole
    assert "asked" not in [step.outcome for step in crawled.look([at])]


def test_an_address_that_moves_to_another_sitemap_has_not_left(crawled, site):
    at, new = f"{site.url}/s.xml", f"{site.url}/t.xml"
    site.pages["/t.xml"] = Page(site.urlset("/4"))
    list(crawled.look([at, new]))
    site.pages |= {"/s.xml": Page(site.urlset("/1", "/2")), "/t.xml": Page(site.urlset("/3", "/4"))}
    assert "asked" not in [step.outcome for step in crawled.look([at, new])]


def test_an_address_that_was_never_registered_is_not_asked_for(crawled, site, api):
    at = f"{site.url}/s.xml"
    (page_id,) = [api.get("/pages", url=f"{site.url}/1").json()["page_id"]]
    assert api.client.delete(f"/pages/{page_id}").status_code == 204
    site.pages["/s.xml"] = Page(site.urlset("/2", "/3"))
    *_, step = crawled.look([at])
    assert step.reason == "1 addresses left their sitemaps, 0 to crawl as soon as the budget allows"
    assert api.get("/pages", url=f"{site.url}/1").status_code == 404


def test_a_key_that_may_only_report_announces_what_has_left(site, sqlite_url, tmp_path):
    with running(sqlite_url, api_keys=("secret",)) as api:
        key = api.post("/keys", {"name": "w", "role": "report"}).json()["key"]
        with Client(api.url, api_key=key) as client:
            state = WatchState(tmp_path / STATE, api.url)
            watcher = Watcher(client, state, Manners(0, private=True), now=lambda: api.clock.now)
            site.pages["/s.xml"] = Page(site.urlset("/1", "/2"))
            list(watcher.look([f"{site.url}/s.xml"]))
            api.clock.advance(days=1)
            site.pages["/s.xml"] = Page(site.urlset("/1"))
            *_, step = watcher.look([f"{site.url}/s.xml"])
        assert "1 addresses left their sitemaps" in step.reason
        shown = api.get("/pages", url=f"{site.url}/2").json()
        assert shown["estimate"]["last_ping_at"] == api.clock.now.isoformat().replace("+00:00", "Z")


# -- feeds


def feed_of(site: Site, *paths: str, head: str = "") -> bytes:
    entry = "<item><link>{}{}</link><pubDate>{}</pubDate></item>".format
    items = "".join(entry(site.url, path, "Thu, 30 Apr 2026 12:00 GMT") for path in paths)
    return f"<rss><channel>{head}{items}</channel></rss>".encode()


def test_a_feed_becomes_a_page_that_only_a_watch_leases(watch, site, api):
    lease_freely(api)
    at = f"{site.url}/feed"
    site.pages["/feed"] = Page(feed_of(site, "/1", head="<ttl>120</ttl>"), headers={"ETag": '"1"'})
    ended = watch(at)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == (
        f"{at}: a feed, which is read when it is due\n"
        f"{at}: rss, 1 new, 0 newer than the last ping, 0 rejected, "
        "1 to crawl as soon as the budget allows\n"
    )
    page = api.get("/pages", url=at).json()
    assert (page["kind"], page["etag"]) == ("feed", '"1"')
    assert page["max_crawl_rate"] == pytest.approx(12.0)
    api.clock.advance(seconds=2)  # the delay of the host
    leased = api.post("/leases", {"count": 10}).json()["items"]
    assert [crawl["url"] for crawl in leased] == [f"{site.url}/1"]
    site.paths()
    assert watch(at).out == ""  # it is not due yet
    assert site.paths() == []


def test_a_read_of_a_feed_is_a_change_if_it_has_new_entries(timed, site, api):
    lease_freely(api)
    watcher, _ = timed
    reader, at = FeedReader(watcher), f"{site.url}/feed"
    site.pages["/feed"] = Page(feed_of(site, "/1"), headers={"ETag": '"1"'})
    watcher.client.register({"url": at, "kind": "feed"})
    (first,) = reader.due()
    assert (first.outcome, first.answer.created) == ("taken", 1)

    def read():
        watcher.client.recrawl(at)
        api.clock.advance(hours=1)
        (step,) = reader.due()
        return step, api.get("/pages", url=at).json()["last_crawls"][0]["changed"]

    unchanged, changed = read()
    assert (unchanged.outcome, changed) == ("unchanged", False)
    assert site.asked[-1][1]["If-None-Match"] == '"1"'
    site.pages["/feed"] = Page(feed_of(site, "/2", "/1"), headers={"ETag": '"2"'})
    step, changed = read()
    assert (step.answer.created, changed) == (1, True)
    site.pages["/feed"] = Page(feed_of(site, "/2", "/1"), headers={"ETag": '"3"'})
    step, changed = read()
    assert (step.answer.accepted, changed) == (0, False)
    site.pages["/feed"] = Page(status=503, headers={"Retry-After": "7"})
    step, _ = read()
    assert step.reason == "the site answered 503"
    assert api.get("/pages", url=at).json()["n_failures"] == 1


def test_a_304_that_nobody_asked_for_is_no_read_of_a_feed(timed, site, api):
    watcher, _ = timed
    reader, at = FeedReader(watcher), f"{site.url}/feed"
    site.pages["/feed"] = Page(status=304)
    watcher.client.register({"url": at, "kind": "feed"})
    (step,) = reader.due()
    assert (step.outcome, step.reason) == ("failed", "the site answered 304")
    assert api.get("/pages", url=at).json()["n_failures"] == 1


def test_a_feed_whose_window_was_too_short_is_read_more_often(timed, site, api):
    lease_freely(api)
    watcher, _ = timed
    reader, at = FeedReader(watcher), f"{site.url}/feed"
    site.pages["/feed"] = Page(feed_of(site, "/1", "/2"))
    watcher.client.register({"url": at, "kind": "feed"})
    list(reader.due())
    api.epoch()
    site.pages["/feed"] = Page(feed_of(site, "/4", "/3"))
    watcher.client.recrawl(at)
    api.clock.advance(hours=12)
    assert "all its entries are new" in list(reader.due())[1].reason
    page = api.get("/pages", url=at).json()
    bandwidth = api.get("/epochs/latest").json()["bandwidth"]
    assert page["min_crawl_rate"] == pytest.approx(min(4.0, 0.1 * bandwidth))


def test_a_key_without_leases_reads_feeds_as_sitemaps(site, recrawl, sqlite_url):
    site.pages["/feed"] = Page(feed_of(site, "/1"))
    with running(sqlite_url, api_keys=("secret",)) as api:
        key = api.post("/keys", {"name": "w", "role": "report"}).json()["key"]
        arguments = ("watch", f"{site.url}/feed", "--once", "--delay", 0, "--private")
        for n_new in (1, 0, 0):
            ended = recrawl(*arguments, url=api.url, api_key=key)
            assert (ended.status, f"rss, {n_new} new" in ended.out) == (0, True)


def test_a_feed_is_subscribed_to_at_its_hub_once(recrawl, api: Live, site):
    with open_hub() as hub:
        head = f'<a:link xmlns:a="http://www.w3.org/2005/Atom" rel="hub" href="{hub.url}/hub"/>'
        site.pages["/feed"] = Page(feed_of(site, "/1", head=head))
        lease_freely(api)
        once = ("--once", "--delay", 0, "--private", "--callback", api.url)
        ended = recrawl("watch", f"{site.url}/feed", *once, url=api.url)
        assert (ended.status, ended.err) == (0, "")
        assert f"asked {hub.url}/hub for its pushes" in ended.out
        (subscription,) = api.get("/websub").json()["items"]
        assert (subscription["topic"], subscription["hub"]) == (
            f"{site.url}/feed",
            f"{hub.url}/hub",
        )
