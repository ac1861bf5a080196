"""Readers of robots.txt: real HTTP on this machine, time that the tests set."""

import asyncio
import socket
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from support.live_server import PATIENCE_S, running
from support.local_site import page, redirect, serving

import recrawl_client.robots_fetch
from recrawl_client import AsyncClient, AsyncRobots, Client, Crawl, Robots
from recrawl_client.robots_flows import LONGEST_AWAY_S, TOLD_S, UNREACHABLE_S
from recrawl_client.robots_rules import LONGEST_DELAY_S, MAX_BYTES, Rules, product_token

AGENT = "NewsBot/2.1 (+https://example.com/bot)"
DAY_S = 86_400


class Hands:
    """A clock of seconds that moves by waits, and that tests move."""

    def __init__(self):
        self.at = 1_000.0
        self.waits = []

    def __call__(self):
        return self.at

    def wait(self, seconds):
        self.waits.append(seconds)
        self.at += seconds

    def instant(self):
        return datetime(2026, 5, 1, tzinfo=UTC) + timedelta(seconds=self.at)


@pytest.fixture
def hands():
    return Hands()


def reader(hands, client=None, **options):
    options = {"now": hands, "clock": hands.instant, "wait": hands.wait} | options
    return Robots(AGENT, client, **options)


def crawl_of(url, hands, lease="1-1", left_s=300.0):
    at = hands.instant()
    return Crawl(
        lease=lease,
        page_id=1,
        url=url,
        host=httpx.URL(url).host,
        reason="due",
        due_at=at,
        last_crawl_at=None,
        overdue=1.0,
        expires_at=at + timedelta(seconds=left_s),
    )


def robots_txt(text):
    return {"/robots.txt": (200, {"Content-Type": "text/plain"}, text.encode())}


# -- rules


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("NewsBot", "newsbot"),
        (AGENT, "newsbot"),
        ("Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)", "mj12bot"),
        ("Mozilla/5.0 (X11; Linux)", "mozilla"),
        ("", "*"),
        ("*", "*"),
        ("NewsBot*", "newsbot"),
    ],
)
def test_the_product_token_is_the_name_of_the_crawler(user_agent, token):
    assert product_token(user_agent) == token


@pytest.mark.parametrize(
    ("agents", "is_own"),
    [
        (["NewsBot"], True),
        (["newsBOT/3.0"], True),
        (["NewsBot*"], True),
        (["OtherBot", "NewsBot"], True),
        (["News"], False),
        (["Bot"], False),
        (["NewsBot-Image"], False),
        (["example"], False),
        ([""], False),
    ],
)
def test_a_group_is_for_the_crawler_whose_whole_token_it_names(agents, is_own):
    lines = "\n".join(f"User-agent: {agent}" for agent in agents)
    rules = Rules(f"{lines}\nDisallow: /own\n\nUser-agent: *\nDisallow: /all\n".encode(), AGENT)
    assert rules.allowed("https://a.example/own") is not is_own
    assert rules.allowed("https://a.example/all") is is_own


def test_groups_of_one_crawler_are_one_group():
    text = b"User-agent: newsbot\nDisallow: /a\n\nUser-agent: *\nDisallow: /\n\n"
    rules = Rules(text + b"User-agent: NewsBot\nDisallow: /b\nCrawl-delay: 3\n", AGENT)
    allowed = [rules.allowed(f"https://a.example/{path}") for path in "abc"]
    assert (allowed, rules.delay_s) == ([False, False, True], 3.0)


@pytest.mark.parametrize(
    ("lines", "delay_s"),
    [
        ("Crawl-delay: 5", 5.0),
        ("crawl-delay: 0.5", 0.5),
        ("Request-rate: 1/10s", 10.0),
        ("Request-rate: 2/1m", 30.0),
        ("Crawl-delay: 5\nRequest-rate: 1/10", 10.0),
        ("Crawl-delay: 20\nRequest-rate: 1/10", 20.0),
        ("Crawl-delay: 86401", LONGEST_DELAY_S),
        ("Crawl-delay: 1e300", LONGEST_DELAY_S),
        ("Request-rate: 1/" + "9" * 400, LONGEST_DELAY_S),
        ("Crawl-delay: -1", None),
        ("Crawl-delay: nan", None),
        ("Crawl-delay: inf", None),
        ("Crawl-delay: soon", None),
        ("Request-rate: 0/0", None),
        ("Disallow:", None),
    ],
)
def test_the_longer_delay_holds_and_is_cut_at_a_day(lines, delay_s):
    assert Rules(f"User-agent: *\n{lines}\n".encode(), AGENT).delay_s == delay_s


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfUser-agent: *\nDisallow: /no",
        "\ufeffUser-agent: *\nDisallow: /no".encode("utf-16-le"),
        "\ufeffUser-agent: *\nDisallow: /no".encode("utf-16-be"),
        b"# caf\xe9\nUser-agent: *\nDisallow: /no",
        b"User-agent: *\rDisallow: /no\r",
        b"User-agent: *\r\nDisallow: /no # why\r\n",
        b"\x00User-agent: *\n\xff\xfe\nDisallow: /no",
        b"<html>\nUser-agent: *\nDisallow: /no\n</html>",
        b"USER AGENT *\nDISALLOW /no",
    ],
)
def test_a_file_of_any_encoding_is_read(content):
    rules = Rules(content, AGENT)
    assert (rules.allowed("http://a.example/no"), rules.allowed("http://a.example/")) == (
        False,
        True,
    )


@pytest.mark.parametrize(
    "content", [b"", b"<!doctype html><title>No</title><p>Disallow: everything", b"\xff" * 99]
)
def test_what_is_no_robots_txt_allows_all(content):
    rules = Rules(content, AGENT)
    assert rules.allowed("http://a.example/")
    assert rules.delay_s is None


def test_a_line_that_the_limit_cuts_is_no_rule():
    start = b"User-agent: *\nDisallow: /no\n"
    cut = b"Disallow: /" + b"p" * 40 + b"\nDisallow: /late\n"
    filler = b"#" * (MAX_BYTES - len(start) - len(b"Disallow: /") - 1) + b"\n"
    rules = Rules(start + filler + cut, AGENT)
    assert not rules.allowed("http://a.example/no")
    assert rules.allowed("http://a.example/")
    assert rules.allowed("http://a.example/late")


# -- requests


@pytest.mark.dear
@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 418, 451])
def test_a_refused_robots_txt_allows_all(hands, status):
    with serving({"/robots.txt": (status, {}, b"User-agent: *\nDisallow: /")}) as site:
        robots = reader(hands)
        assert robots.allowed(site.url("/a"))
        assert robots.crawl_delay(site.url("/a")) is None
        assert robots.enter(crawl_of(site.url("/a"), hands)).allowed
        hands.at += DAY_S - 1
        assert robots.allowed(site.url("/b"))
        assert site.hits["/robots.txt"] == 1
        hands.at += 1
        assert robots.allowed(site.url("/b"))
        assert site.hits["/robots.txt"] == 2, "it is kept for a day"


@pytest.mark.dear
@pytest.mark.parametrize(
    ("status", "header", "evidence"),
    [
        (429, "7", {"status": 429, "retry_after_s": 30.0}),
        (429, "120", {"status": 429, "retry_after_s": 120.0}),
        (500, None, {"status": 503, "retry_after_s": 30.0}),
        (502, "soon", {"status": 503, "retry_after_s": 30.0}),
        (503, "3600", {"status": 503, "retry_after_s": 3_600.0}),
        (503, "9999999", {"status": 503, "retry_after_s": float(DAY_S)}),
        (999, None, {"status": 503, "retry_after_s": 30.0}),
    ],
)
def test_an_unreachable_robots_txt_denies_all_until_its_retry(hands, status, header, evidence):
    headers = {"Retry-After": header} if header else {}
    pages = {"/robots.txt": (status, headers, b""), "/a": page("a")}
    with serving(pages) as site:
        robots = reader(hands)
        entry = robots.enter(crawl_of(site.url("/a"), hands))
        assert (entry.allowed, entry.evidence) == (False, evidence)
        assert not robots.allowed(site.url("/b"))
        hands.at += evidence["retry_after_s"] - 1
        left = robots.enter(crawl_of(site.url("/a"), hands)).evidence["retry_after_s"]
        assert (left, site.hits["/robots.txt"]) == (1.0, 1)
        site.pages = robots_txt("")
        hands.at += 1
        assert robots.enter(crawl_of(site.url("/a"), hands)).allowed


def test_a_robots_txt_that_stays_unreachable_is_requested_ever_less_often(hands):
    def fails(url):
        raise httpx.ConnectError("no answer")

    robots = reader(hands, fetch=fails)
    waits = []
    for _ in range(9):
        evidence = robots.enter(crawl_of("http://a.example/", hands)).evidence
        assert evidence["status"] == 0
        waits.append(evidence["retry_after_s"])
        hands.at += waits[-1]
    assert waits == [30, 60, 120, 240, 480, 960, 1_920, LONGEST_AWAY_S, LONGEST_AWAY_S]


def no_answer(url):
    raise httpx.ConnectError("no answer")


def test_an_unreachable_robots_txt_allows_all_after_30_days_and_is_asked_on(hands):
    """RFC 9309, section 2.3.1.4; until then the crawls of the host wait."""
    answers = []

    def fetch(url):
        return answers[-1] if answers else no_answer(url)

    robots = reader(hands, fetch=fetch)
    began = hands.at
    while not (entry := robots.enter(crawl_of("http://a.example/x", hands))).allowed:
        assert hands.at < began + UNREACHABLE_S + 2 * LONGEST_AWAY_S
        hands.at += entry.evidence["retry_after_s"]
    assert began + UNREACHABLE_S <= hands.at <= began + UNREACHABLE_S + 2 * LONGEST_AWAY_S
    answers.append(httpx.Response(200, content=b"User-agent: *\nDisallow: /x"))
    hands.at += LONGEST_AWAY_S
    assert not robots.enter(crawl_of("http://a.example/x", hands)).allowed


def test_an_answer_ends_the_count_of_days(hands):
    answers = []

    def fetch(url):
        return answers.pop() if answers else no_answer(url)

    robots = reader(hands, fetch=fetch)
    for _ in range(2):
        assert not robots.enter(crawl_of("http://a.example/", hands)).allowed
        hands.at += UNREACHABLE_S - 10 * LONGEST_AWAY_S
    answers.append(httpx.Response(404))
    assert robots.enter(crawl_of("http://a.example/", hands)).allowed
    hands.at += DAY_S
    assert not robots.enter(crawl_of("http://a.example/", hands)).allowed


class Released:
    """A client that only returns leases."""

    def __init__(self):
        self.leases = []

    def release(self, crawl):
        self.leases.append(crawl.lease)


def test_one_crawl_reports_an_unreachable_robots_txt_and_the_others_return_their_leases(hands):
    client = Released()
    robots = reader(hands, client, fetch=no_answer)
    crawls = [crawl_of(f"http://a.example/{n}", hands, lease=f"{n}-1") for n in range(4)]
    entries = [robots.enter(crawl) for crawl in crawls]
    assert not any(entry.allowed for entry in entries)
    assert all(entry.reason for entry in entries)
    assert [entry.evidence for entry in entries[1:]] == [{}] * 3
    assert client.leases == ["1-1", "2-1", "3-1"], "no lease is held in silence"
    hands.at += TOLD_S
    later = robots.enter(crawl_of("http://a.example/9", hands, lease="9-1"))
    assert later.evidence == {"status": 0, "retry_after_s": 30.0 - TOLD_S}


def test_without_a_client_every_crawl_is_reported(hands):
    robots = reader(hands, fetch=no_answer)
    entries = [robots.enter(crawl_of("http://a.example/", hands)) for _ in range(3)]
    assert [entry.evidence["status"] for entry in entries] == [0] * 3


@pytest.mark.dear
@pytest.mark.parametrize("n", [1, 5, 6])
def test_five_redirects_are_followed_and_more_allow_all(hands, n):
    hops = {f"/{i}": redirect(302, f"/{i + 1}") for i in range(n - 1)}
    pages = {"/robots.txt": redirect(301, "/0"), **hops}
    pages[f"/{n - 1}"] = (200, {}, b"User-agent: *\nDisallow: /")
    with serving(pages) as site:
        assert reader(hands).allowed(site.url("/page")) is (n > 5)
    assert sum(site.hits.values()) == min(n, 5) + 1


@pytest.mark.dear
def test_a_redirect_leads_to_another_host_and_its_rules_hold_for_the_first(hands):
    with serving(robots_txt("User-agent: newsbot\nDisallow: /no")) as other:
        to = redirect(308, other.url("/robots.txt", host="localhost"))
        with serving({"/robots.txt": to}) as site:
            robots = reader(hands)
            assert not robots.allowed(site.url("/no"))
            assert robots.allowed(site.url("/yes"))


@pytest.mark.dear
@pytest.mark.parametrize("location", ["", "mailto:me@a.example", "http://:1/", "/robots.txt"])
def test_a_redirect_to_nowhere_allows_all(hands, location):
    with serving({"/robots.txt": redirect(301, location)}) as site:
        assert reader(hands).allowed(site.url("/"))


@pytest.mark.dear
def test_each_origin_has_its_own_file(hands):
    with serving(robots_txt("User-agent: *\nDisallow: /")) as one, serving({}) as other:
        robots = reader(hands)
        assert not robots.allowed(one.url("/"))
        assert robots.allowed(other.url("/"))
        assert not robots.allowed(one.url("/", host="localhost"))
    assert one.hits["/robots.txt"] == 2


def test_the_cache_is_bounded(hands, monkeypatch):
    monkeypatch.setattr("recrawl_client.robots_flows.MOST_SITES", 3)
    asked = []

    def fetch(url):
        asked.append(url)
        return httpx.Response(200, content=b"User-agent: *\nCrawl-delay: 1")

    robots = reader(hands, fetch=fetch)
    for name in "abcda":
        assert robots.enter(crawl_of(f"http://{name}.example/", hands)).allowed
    assert [url[7] for url in asked] == ["a", "b", "c", "d", "a"]
    assert len(robots.flows.sites) == len(robots.flows.gates) == 3
    monkeypatch.setattr("recrawl_client.robots_flows.MOST_KEPT", 40)
    assert robots.allowed("http://e.example/")
    assert list(robots.flows.sites) == ["http://e.example"]
    assert robots.flows.size == sum(site.size for site in robots.flows.sites.values()) > 0


@pytest.mark.dear
def test_threads_of_one_origin_read_once(hands):
    entered = threading.Barrier(8)
    with serving(robots_txt("User-agent: *\nDisallow: /no")) as site:
        robots = reader(hands)
        results = []

        def enter(k):
            entered.wait(PATIENCE_S)
            results.append(robots.allowed(site.url("/no" if k % 2 else "/yes")))

        threads = [threading.Thread(target=enter, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (sorted(results), site.hits["/robots.txt"]) == ([False] * 4 + [True] * 4, 1)


@contextmanager
def raw_site(answer):
    """Serve each connection by a function of its socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65_536)
                        answer(connection)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
ENDED = threading.Event()


def drips_its_head(connection):
    connection.sendall(HEAD)
    while not ENDED.wait(0.01):
        connection.sendall(b"X-More: 1\r\n")


def drips_its_body(connection):
    connection.sendall(HEAD + b"\r\nUser-agent: *\n")
    while not ENDED.wait(0.01):
        connection.sendall(b"#\n")


def is_silent(connection):
    ENDED.wait(PATIENCE_S)


def breaks_off(connection):
    connection.sendall(HEAD + b"Content-Length: 99\r\n\r\nUser-agent: *\nDisallow: /")


def is_no_http(connection):
    connection.sendall(b"SSH-2.0-OpenSSH\r\n")


@pytest.mark.parametrize(
    "answer", [drips_its_head, drips_its_body, is_silent, breaks_off, is_no_http]
)
def test_a_site_that_does_not_answer_in_time_is_unreachable(hands, monkeypatch, answer):
    monkeypatch.setattr(recrawl_client.robots_fetch, "DEADLINE_S", 0.2)
    ENDED.clear()
    with raw_site(answer) as site:
        try:
            entry = reader(hands).enter(crawl_of(f"{site}/", hands))
        finally:
            ENDED.set()
    assert (entry.allowed, entry.evidence["status"]) == (False, 0)


def test_an_endless_body_is_read_up_to_the_limit(hands):
    def endless(connection):
        connection.sendall(HEAD + b"\r\nUser-agent: *\nDisallow: /no\n")
        while True:
            connection.sendall(b"# more\n" * 9_000)

    with raw_site(endless) as site:
        robots = reader(hands)
        assert not robots.allowed(f"{site}/no")
        assert robots.allowed(f"{site}/yes")


@pytest.mark.parametrize("url", ["ftp://a.example/", "http://", "http://a.example:99999/"])
def test_what_is_no_url_of_the_web_is_not_fetched(hands, url):
    crawl = crawl_of("http://a.example/", hands)
    entry = reader(hands).enter(Crawl(**{**_fields(crawl), "url": url}))
    assert (entry.allowed, entry.evidence) == (False, {"status": 0})


def _fields(crawl):
    return {name: getattr(crawl, name) for name in crawl.__struct_fields__}


# -- delays


@pytest.mark.dear
def test_pages_of_a_host_wait_for_its_delay(hands):
    with serving(robots_txt("User-agent: *\nCrawl-delay: 5\nDisallow: /no")) as site:
        robots = reader(hands)
        assert robots.enter(crawl_of(site.url("/1"), hands)).allowed
        assert hands.waits == []
        hands.at += 2
        assert robots.enter(crawl_of(site.url("/2"), hands)).allowed
        assert hands.waits == [3.0]
        assert robots.enter(crawl_of(site.url("/no"), hands)).evidence == {"robots_denied": True}
        assert hands.waits == [3.0], "a page that is denied does not wait"
        hands.at += 6
        assert robots.enter(crawl_of(site.url("/3"), hands)).allowed
        assert hands.waits == [3.0]
        assert robots.crawl_delay(site.url("/")) == 5.0


@pytest.mark.dear
@pytest.mark.parametrize(("delay_s", "left_s"), [(3_600, 300), (5, 4)])
def test_a_lease_that_would_wait_too_long_is_returned(hands, delay_s, left_s):
    with serving(robots_txt(f"User-agent: *\nCrawl-delay: {delay_s}")) as site:
        robots = reader(hands)
        assert robots.enter(crawl_of(site.url("/1"), hands)).allowed
        entry = robots.enter(crawl_of(site.url("/2"), hands, left_s=left_s))
    assert (entry.allowed, entry.evidence, hands.waits) == (False, {}, [])


@pytest.mark.dear
def test_a_reader_that_is_stopped_returns_the_lease(hands):
    with serving(robots_txt("User-agent: *\nCrawl-delay: 5")) as site:
        robots = reader(hands, wait=lambda seconds: True)
        assert robots.enter(crawl_of(site.url("/1"), hands)).allowed
        assert not robots.enter(crawl_of(site.url("/2"), hands)).allowed


@pytest.mark.dear
def test_a_clock_that_is_wrong_does_not_end_the_wait(hands):
    with serving(robots_txt("User-agent: *\nCrawl-delay: 5")) as site:
        robots = reader(hands)
        for path in ("/1", "/2"):
            assert robots.enter(crawl_of(site.url(path), hands, left_s=-600)).allowed
    assert hands.waits == [5.0]


@pytest.fixture
def live(sqlite_url, monkeypatch):
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    with running(sqlite_url) as live:
        yield live


@pytest.mark.dear
def test_the_service_has_the_delay_before_the_second_page(live, hands):
    with (
        serving(robots_txt("User-agent: *\nCrawl-delay: 1e9")) as site,
        Client(live.url) as client,
    ):
        client.register(*(site.url(f"/{k}") for k in range(3)))
        robots = reader(hands, client, clock=live.clock)
        first, second = client.lease(2).items
        assert robots.enter(first).allowed
        assert client.host("127.0.0.1").robots_delay_s == 86_400
        assert robots.enter(second).evidence == {}, "its lease is returned"
        live.clock.advance(seconds=86_000)
        assert client.lease(9).items == []
        hands.at += DAY_S
        site.pages = {}
        live.clock.advance(seconds=400)
        (third,) = client.lease(9).items
        assert robots.enter(third).allowed
        assert client.host("127.0.0.1").robots_delay_s is None, "the site asks for none any more"


@pytest.mark.dear
def test_the_longest_delay_of_the_origins_of_a_host_holds(live, hands):
    with (
        serving(robots_txt("User-agent: *\nCrawl-delay: 7")) as slow,
        serving(robots_txt("User-agent: *\nCrawl-delay: 2")) as quick,
        Client(live.url) as client,
    ):
        robots = reader(hands, client)
        assert robots.enter(crawl_of(slow.url("/"), hands)).allowed
        assert robots.enter(crawl_of(quick.url("/"), hands)).allowed
        assert hands.waits == [7.0]
        assert client.host("127.0.0.1").robots_delay_s == 7.0


@pytest.mark.dear
def test_a_service_that_refuses_the_delay_leaves_it_to_the_crawler(sqlite_url, hands, caplog):
    with (
        running(sqlite_url, api_keys=("k1",)) as live,
        serving(robots_txt("User-agent: *\nCrawl-delay: 5")) as site,
        Client(live.url, "wrong") as client,
    ):
        robots = reader(hands, client)
        for path in ("/1", "/2"):
            assert robots.enter(crawl_of(site.url(path), hands)).allowed
    assert hands.waits == [5.0]
    assert caplog.text.count("the delay of 127.0.0.1 is kept here only: 401") == 1


@pytest.mark.dear
def test_a_reader_for_asyncio_has_the_same_answers(live, hands):
    waits = []

    async def wait(seconds):
        waits.append(seconds)
        hands.at += seconds

    async def main(site):
        async with AsyncClient(live.url) as client:
            robots = AsyncRobots(AGENT, client, now=hands, clock=hands.instant, wait=wait)
            crawls = [crawl_of(site.url(path), hands) for path in ("/1", "/no", "/2")]
            entries = await asyncio.gather(*map(robots.enter, crawls))
            assert await robots.crawl_delay(site.url("/")) == 5.0
            assert not await robots.allowed(site.url("/no"))
            host = await client.host("127.0.0.1")
            return [entry.evidence for entry in entries], host.robots_delay_s

    with serving(robots_txt("User-agent: *\nCrawl-delay: 5\nDisallow: /no")) as site:
        evidence, delay_s = asyncio.run(main(site))
    assert (evidence, delay_s, waits) == ([{}, {"robots_denied": True}, {}], 5.0, [5.0])
    assert site.hits["/robots.txt"] == 1


def test_a_task_that_is_cancelled_while_it_reads_leaves_the_reading_to_others(hands):
    async def main():
        began, go = asyncio.Event(), asyncio.Event()

        async def fetch(url):
            began.set()
            await go.wait()
            return httpx.Response(200, content=b"User-agent: *\nDisallow: /no")

        robots = AsyncRobots(AGENT, fetch=fetch, now=hands, clock=hands.instant)
        first = asyncio.create_task(robots.allowed("http://a.example/no"))
        await began.wait()
        joined = [asyncio.create_task(robots.allowed("http://a.example/no")) for _ in range(2)]
        await asyncio.sleep(0)
        joined[0].cancel()
        first.cancel()
        go.set()
        return await asyncio.wait_for(joined[1], PATIENCE_S)

    assert asyncio.run(main()) is False
