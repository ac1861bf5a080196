"""Junk of many kinds comes to a running service: few first crawls, then a sample.

Two workers crawl real pages, and among them a trap with 5,000 URLs. The kinds differ in their
URLs, in what the trap answers, and in how its URLs arrive.
"""

from datetime import date, timedelta

import pytest
from support.budget_cases import JunkFleet, filter_url, service

N, A_DAY = 5_000, 200
MOST = 40
"""Maximum first crawls of junk on its first day; later days have a hundredth of the budget."""
MOST_BELOW_HOST = 70
"""The same, for junk with directories of its own directly below a host with five good ones: each
good directory lets ten bad ones be opened."""
TARGET = "https://h0.example/login"


def a_date(i):
    return (date(2020, 1, 1) + timedelta(days=i)).isoformat()


def words(i):
    """Return a number in letters, as a session id has them."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(i))


URLS = {
    "parameters": filter_url,
    "values of one parameter": lambda i: f"https://h0.example/d0/list?session={words(i)}",
    "names of parameters": lambda i: f"https://h0.example/list?{words(i)}=1",
    "dates in the path": lambda i: f"https://h0.example/events/{a_date(i).replace('-', '/')}/",
    "dates in a name": lambda i: f"https://h0.example/d0/events-{a_date(i)}.html",
    "a session in the path": lambda i: f"https://h0.example/s-{words(i)}/d0/p1",
    "directories that repeat": lambda i: (
        f"https://h0.example/{'/'.join(['a', 'b'] * (i % 9))}/{i}x"
    ),
    "a host with one good page": lambda i: f"https://lonely.example/p{i}",
    "a host of its own": lambda i: f"https://new.example/{words(i)}/{words(i)}",
}


def one_content(_):
    return {"digest": "junk"}


def absent(_):
    return {"status": 404}


def redirected(_):
    return {"status": 302, "redirect_url": TARGET}


def caught(database_url, answer, arrive, days):
    """Return the first crawls of junk by day, from the day on that it arrives."""
    with service(database_url, bandwidth=A_DAY, admission="learned") as live:
        fleet = JunkFleet(live, answer)
        for day in range(days):
            arrive(fleet, day)
            fleet.play(days=1, every_h=1.0 if not day else 6.0)
        assert max(fleet.days()) <= A_DAY + 1
        first = fleet.first_by_day()
    return [first[1 + day] for day in range(days)]


def at_once(url_of):
    def arrive(fleet, day):
        if not day:
            fleet.register([url_of(i) for i in range(N)])

    return arrive


@pytest.mark.slow
@pytest.mark.parametrize("kind", URLS)
def test_junk_of_one_content_costs_few_crawls_in_any_urls(database_url, kind):
    first, *later = caught(database_url, one_content, at_once(URLS[kind]), 3)
    assert 1 <= first <= (MOST_BELOW_HOST if kind == "a session in the path" else MOST)
    assert max(later) <= 0.01 * A_DAY


@pytest.mark.slow
@pytest.mark.parametrize("answer", [absent, redirected])
@pytest.mark.parametrize("kind", ["parameters", "a host with one good page"])
def test_junk_without_content_costs_few_crawls(database_url, kind, answer):
    first, *later = caught(database_url, answer, at_once(URLS[kind]), 3)
    assert 1 <= first <= MOST
    assert max(later) <= 0.01 * A_DAY


@pytest.mark.dear
def test_redirects_of_many_pages_to_one_new_page_are_news_once(database_url):
    with service(database_url, bandwidth=A_DAY, admission="learned") as live:
        live.register(*(f"https://h0.example/go/list?id={i}" for i in range(100)))
        n = 0
        while items := live.client.post("/leases", json={"count": 50}).json()["items"]:
            n += len(items)
            at = live.clock().isoformat()
            report = [
                {"lease": one["lease"], "observed_at": at, **redirected(one)} for one in items
            ]
            assert live.post("/observations", report).json()["accepted"] == len(items)
    assert n <= 25


@pytest.mark.dear
def test_pages_that_redirect_to_new_pages_with_content_are_all_crawled(database_url):
    with service(database_url, bandwidth=A_DAY, admission="learned") as live:
        live.register(*(f"https://h0.example/go/list?id={i}" for i in range(60)))
        crawled = set()
        while items := live.client.post("/leases", json={"count": 50}).json()["items"]:
            crawled |= {each["url"] for each in items}
            report = []
            for each in items:
                found = {"digest": each["url"]}
                if "/go/" in each["url"]:
                    target = f"https://h0.example/pages/{each['page_id']}.html"
                    found = {"status": 301, "redirect_url": target}
                at = {"observed_at": live.clock().isoformat()}
                report.append({"lease": each["lease"], **at, **found})
            assert live.post("/observations", report).json()["accepted"] == len(items)
    assert len(crawled) == 120


@pytest.mark.slow
def test_junk_that_arrives_day_by_day_costs_no_more_than_at_once(database_url):
    """A hundred URLs a day for 50 days, each day in the same directory."""

    def arrive(fleet, day):
        fleet.register([f"https://h0.example/search/list?id={100 * day + i}" for i in range(100)])

    first, *later = caught(database_url, one_content, arrive, 50)
    assert 1 <= first <= MOST
    assert max(later) <= 0.01 * A_DAY


@pytest.mark.slow
def test_junk_that_arrives_in_new_directories_each_day_costs_few_crawls(database_url):
    def arrive(fleet, day):
        urls = [f"https://h0.example/t/{words(100 * day + i)}/list?id={i}" for i in range(100)]
        fleet.register(urls)

    first, *later = caught(database_url, one_content, arrive, 50)
    assert 1 <= first <= MOST
    assert max(later) <= 0.01 * A_DAY


@pytest.mark.slow
def test_a_sitemap_that_lists_junk_with_new_dates_each_day_costs_few_crawls(database_url):
    """Each lastmod is a ping, which must not admit a page."""

    def arrive(fleet, day):
        now = fleet.live.clock().isoformat()
        entries = "".join(
            f"<url><loc>https://h0.example/tags/list?id={i}</loc><lastmod>{now}</lastmod></url>"
            for i in range(N)
        )
        body = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'
        answer = fleet.live.client.post(
            "/sitemaps",
            content=body,
            headers={"Content-Type": "application/xml"},
            params={"url": "https://h0.example/sitemap.xml"},
        )
        assert answer.status_code == 200, answer.text

    first, *later = caught(database_url, one_content, arrive, 6)
    assert 1 <= first <= MOST
    assert max(later) <= 0.01 * A_DAY
