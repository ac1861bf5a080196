"""Sitemaps over HTTP: pages registered, lastmods taken as pings, nothing ever fetched."""

import gzip
from collections.abc import Iterable
from datetime import datetime, timedelta

import httpx
import pytest
import zstandard
from support.live_server import START, Live, running

from service.api.responses.problems import TYPES

AT = "https://a.example/sitemap.xml"
COUNTS = ("accepted", "duplicate", "late", "n_rejected")
YESTERDAY = "2026-04-30T12:00:00Z"


def urlset(*entries: tuple[str, str] | str) -> bytes:
    """Write a sitemap of URLs, each with a lastmod or without."""
    pairs = (entry if isinstance(entry, tuple) else (entry, "") for entry in entries)
    body = "".join(
        f"<url><loc>{loc}</loc>{lastmod and f'<lastmod>{lastmod}</lastmod>'}</url>"
        for loc, lastmod in pairs
    )
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{body}</urlset>'.encode()


def index(*children: str) -> bytes:
    return f"<sitemapindex>{''.join(children)}</sitemapindex>".encode()


def send(api: Live, content: bytes | Iterable[bytes], at: str = AT, **query) -> httpx.Response:
    headers = query.pop("headers", {"Content-Type": "application/xml"})
    return api.client.post(
        "/sitemaps", content=content, headers=headers, params={"url": at, **query}
    )


def taken(api: Live, content: bytes, at: str = AT, **query) -> dict:
    response = send(api, content, at, **query)
    assert response.status_code == 200, response.text
    return response.json()


def counts(answer: dict) -> tuple[int, ...]:
    return tuple(answer[name] for name in COUNTS)


def page(api: Live, url: str) -> dict:
    response = api.get("/pages", url=url)
    assert response.status_code == 200, response.text
    return response.json()


URLS = [f"https://a.example/{i}" for i in range(3)]


@pytest.mark.dear
def test_new_pages_are_registered_and_a_lastmod_is_a_ping_of_its_time(api: Live):
    answer = taken(api, urlset((URLS[0], YESTERDAY), URLS[1]))
    assert counts(answer) == (2, 0, 0, 0)
    assert (answer["kind"], answer["created"], answer["n_crawl_now"]) == ("urlset", 2, 2)
    assert (answer["children"], answer["warnings"], answer["rejected"]) == ([], [], [])
    first, second = page(api, URLS[0]), page(api, URLS[1])
    assert first["estimate"]["last_ping_at"] == YESTERDAY
    assert second["estimate"]["last_ping_at"] is None
    assert first["last_crawls"][0]["kind"] == "ping"


@pytest.mark.dear
def test_new_pages_are_handed_out_at_once(api: Live):
    taken(api, urlset(*URLS))
    leased = api.post("/leases", {"worker": "w"}).json()["items"]
    assert [item["url"] in URLS for item in leased] == [True]  # one, as the host has its delay


@pytest.mark.dear
def test_the_same_document_again_changes_nothing(api: Live):
    document = urlset((URLS[0], YESTERDAY), URLS[1])
    taken(api, document)
    before = [page(api, url) for url in URLS[:2]]
    again = taken(api, document)
    assert counts(again) == (0, 2, 0, 0)
    assert (again["created"], again["n_crawl_now"]) == (0, 0)
    assert [page(api, url) for url in URLS[:2]] == before


@pytest.mark.dear
def test_only_a_newer_lastmod_is_news(api: Live):
    taken(api, urlset((URLS[0], "2026-04-20"), (URLS[1], "2026-04-20"), (URLS[2], "2026-04-20")))
    answer = taken(
        api, urlset((URLS[0], "2026-04-21"), (URLS[1], "2026-04-20"), (URLS[2], "2026-04"))
    )
    assert counts(answer) == (1, 1, 1, 0)
    assert page(api, URLS[0])["estimate"]["last_ping_at"] == "2026-04-21T00:00:00Z"


def test_what_a_lastmod_is_worth_is_decided_as_for_any_ping(api: Live):
    complete, incomplete = api.register(URLS[0], observability="complete"), URLS[1]
    api.register(incomplete, observability="incomplete")
    crawls = [{"url": url, "observed_at": START.isoformat(), "digest": "a"} for url in URLS[:2]]
    assert api.post("/observations", crawls).json()["accepted"] == 2
    later = api.clock.advance(hours=2).isoformat()
    answer = taken(api, urlset((URLS[0], later), (URLS[1], later)))
    assert counts(answer) == (2, 0, 0, 0)
    assert answer["n_crawl_now"] == 1
    api.epoch()
    due = {row["page_id"]: row["next_crawl_at"] for row in api.schedule()}
    assert due[complete[0]] == later.replace("+00:00", "Z")


def test_an_old_lastmod_of_a_new_page_says_nothing_of_its_change_rate(api: Live):
    taken(api, urlset((URLS[0], YESTERDAY), URLS[1]))
    api.clock.advance(days=1)
    api.epoch()
    rows = api.schedule()
    assert rows[0]["change_rate"] == rows[1]["change_rate"]
    assert rows[0]["crawl_rate"] == rows[1]["crawl_rate"]
    taken(api, urlset((URLS[0], api.clock().isoformat())))
    assert page(api, URLS[0])["estimate"]["n_pings"] == 1


def test_a_page_listed_twice_counts_once_with_its_newest_lastmod(api: Live):
    answer = taken(
        api, urlset((URLS[0], "2026-04-02"), URLS[0], (URLS[0] + "#top", "2026-04-03"), URLS[1])
    )
    assert counts(answer) == (2, 2, 0, 0)
    first = page(api, URLS[0])
    assert first["estimate"]["last_ping_at"] == "2026-04-03T00:00:00Z"
    assert len(first["last_crawls"]) == 1


@pytest.mark.dear
def test_lastmods_that_cannot_be_are_left_out_and_told(api: Live):
    future = (api.clock() + timedelta(days=400)).isoformat()
    answer = taken(
        api, urlset((URLS[0], "yesterday"), (URLS[1], future), (URLS[2], "0001-01-01T00:00:00Z"))
    )
    assert counts(answer) == (3, 0, 0, 0)
    (warning,) = answer["warnings"]
    assert "3 lastmod were ignored" in warning
    assert "'yesterday' of entry 0" in warning
    assert page(api, URLS[1])["estimate"]["n_pings"] == 0


def test_an_index_is_answered_with_what_to_fetch(api: Live):
    answer = taken(
        api,
        index(
            "<sitemap><loc>https://a.example/1.xml</loc><lastmod>2026-04-30</lastmod></sitemap>",
            "<sitemap><loc>https://a.example/2.xml</loc></sitemap>",
            "<sitemap><loc>https://a.example/2.xml</loc></sitemap>",
            "<sitemap><lastmod>2026-04-30</lastmod></sitemap>",
            "<sitemap><loc>https://b.example/3.xml</loc></sitemap>",
        ),
    )
    assert counts(answer) == (2, 1, 0, 2)
    assert (answer["kind"], answer["created"], answer["n_crawl_now"]) == ("index", 0, 0)
    assert answer["children"] == [
        {"loc": "https://a.example/1.xml", "lastmod": "2026-04-30T00:00:00Z"},
        {"loc": "https://a.example/2.xml", "lastmod": None},
    ]
    assert [(r["index"], r["code"], r["field"]) for r in answer["rejected"]] == [
        (3, "no_loc", "loc"),
        (4, "cross_host", "loc"),
    ]
    assert api.get("/pages", url="https://a.example/1.xml").status_code == 404


def test_entries_of_other_hosts_are_taken_only_when_asked_for(sqlite_api: Live):
    document = urlset(URLS[0], "https://b.example/", "https://www.a.example/")
    answer = taken(sqlite_api, document)
    assert counts(answer) == (1, 0, 0, 2)
    rejected = answer["rejected"][0]
    assert (rejected["index"], rejected["code"], rejected["field"]) == (1, "cross_host", "loc")
    assert "b.example" in rejected["detail"]
    assert "cross_host=true" in rejected["detail"]
    assert counts(taken(sqlite_api, document, cross_host=True)) == (2, 1, 0, 0)


def test_unknown_pages_may_be_left_unregistered(sqlite_api: Live):
    sqlite_api.register(URLS[0])
    document = urlset((URLS[0], YESTERDAY), (URLS[1], YESTERDAY), URLS[2])
    answer = taken(sqlite_api, document, register=False)
    assert counts(answer) == (1, 0, 0, 2)
    assert [(r["index"], r["code"]) for r in answer["rejected"]] == [
        (1, "page_not_found"),
        (2, "page_not_found"),
    ]


def test_bad_entries_are_told_by_their_positions_and_touch_no_other(sqlite_api: Live):
    answer = taken(
        sqlite_api, urlset("not a link", URLS[0], "", "https://a.example/" + "x" * 3000, URLS[1])
    )
    assert counts(answer) == (2, 0, 0, 3)
    codes = [(r["index"], r["code"]) for r in answer["rejected"]]
    assert codes == [(0, "invalid_url"), (2, "no_loc"), (3, "invalid_url")]


def test_the_answer_tells_how_far_a_document_was_read(sqlite_api: Live):
    declared = b'<!DOCTYPE urlset [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>\n'
    whole = urlset("a?x=1&y=2", "//a.example/b", "https://a.example/&b;", (URLS[0], "soon"))
    answer = taken(sqlite_api, declared + whole)
    told = ("n_entries", "n_lines", "n_repaired", "n_undated", "broke_off", "complete")
    assert [answer[name] for name in told] == [4, 2, 2, 1, None, True]
    (rejected,) = answer["rejected"]
    assert (rejected["index"], rejected["code"]) == (2, "invalid_url")
    assert "cannot be read; correct the document" in rejected["detail"]
    for url in ("https://a.example/a?x=1&y=2", "https://a.example/b"):
        assert page(sqlite_api, url)["url"] == url
    broken = taken(sqlite_api, whole[:-20])
    assert [broken[name] for name in told[:4]] == [3, 1, 2, 0]
    assert "cut short or is broken after 3 entries" in broken["broke_off"]
    assert broken["complete"] is False


RSS = b"""<rss><channel>
<item><link>/0</link><pubDate>Thu, 30 Apr 26 08:00 EDT</pubDate></item>
<item><guid>https://a.example/1</guid></item></channel></rss>"""
ATOM = b"""<feed><entry><link href='0'/><updated>2026-04-30T12:00:00Z</updated></entry>
<entry><id>https://a.example/1</id></entry></feed>"""


@pytest.mark.parametrize(("content", "kind"), [(RSS, "rss"), (ATOM, "atom")], ids=["RSS", "Atom"])
def test_a_feed_is_read_like_a_sitemap(sqlite_api: Live, content, kind):
    answer = taken(sqlite_api, content)
    assert (answer["kind"], counts(answer)) == (kind, (2, 0, 0, 0))
    pinged = [page(sqlite_api, url)["estimate"]["last_ping_at"] for url in URLS[:2]]
    assert pinged == [YESTERDAY, None]


def test_the_host_with_and_without_www_is_one_if_asked_for(sqlite_api: Live):
    document = urlset("https://www.a.example/", "https://b.a.example/", URLS[0])
    answer = taken(sqlite_api, document)
    assert counts(answer) == (1, 0, 0, 2)
    assert "www=true" in answer["rejected"][0]["detail"]
    assert counts(taken(sqlite_api, document, www=True)) == (1, 1, 0, 1)
    back = taken(sqlite_api, document, at="https://www.a.example/s.xml", www=True)
    assert counts(back) == (0, 2, 0, 1)


def test_a_document_of_which_nothing_can_be_taken_is_refused(sqlite_api: Live):
    response = send(sqlite_api, urlset("https://b.example/"))
    assert response.status_code == 422
    problem = response.json()
    assert problem["type"] == f"{TYPES}batch-rejected"
    assert problem["rejected"][0]["code"] == "cross_host"


@pytest.mark.parametrize(
    ("headers", "pack"),
    [
        ({"Content-Type": "application/gzip"}, gzip.compress),
        ({"Content-Type": "application/octet-stream"}, gzip.compress),
        ({"Content-Type": "application/xml", "Content-Encoding": "gzip"}, gzip.compress),
        (
            {"Content-Type": "application/x-gzip", "Content-Encoding": "gzip"},
            lambda text: gzip.compress(gzip.compress(text)),
        ),
        ({"Content-Type": "text/xml", "Content-Encoding": "zstd"}, zstandard.compress),
        ({"Content-Type": "text/xml; charset=utf-8"}, bytes),
        ({"Content-Type": "application/rss+xml"}, bytes),
        ({"Content-Type": "text/html; charset=UTF-8"}, bytes),
        ({}, bytes),
    ],
)
def test_a_document_may_come_in_any_wrapping(sqlite_api: Live, headers, pack):
    assert counts(taken(sqlite_api, pack(urlset(*URLS)), headers=headers)) == (3, 0, 0, 0)


def test_a_text_sitemap_is_taken(sqlite_api: Live):
    text = b"\xef\xbb\xbf" + "\r\n".join(URLS).encode()
    answer = taken(sqlite_api, text, headers={"Content-Type": "text/plain"})
    assert (answer["kind"], counts(answer)) == ("text", (3, 0, 0, 0))


def test_what_is_readable_of_a_document_cut_short_is_taken_and_said(sqlite_api: Live):
    document = urlset(*(f"https://a.example/{i}" for i in range(2000)))
    answer = taken(sqlite_api, gzip.compress(document)[:-2000])
    assert 0 < answer["accepted"] < 2000
    assert any("cut short" in warning for warning in answer["warnings"])


@pytest.mark.slow
def test_fifty_thousand_pages_come_in_blocks(api: Live):
    document = urlset(*((f"https://a.example/{i}", YESTERDAY) for i in range(50_000)))
    answer = taken(api, gzip.compress(document, 1))
    assert (counts(answer), answer["created"]) == ((50_000, 0, 0, 0), 50_000)
    assert answer["n_crawl_now"] == 50_000
    assert counts(taken(api, document)) == (0, 50_000, 0, 0)


def test_a_lastmod_is_counted_by_the_metrics(sqlite_api: Live):
    taken(sqlite_api, urlset(URLS[0], "mailto:nobody"))
    metrics = sqlite_api.get("/metrics").text
    for outcome in ("accepted", "rejected"):
        assert f'recrawl_items_total{{kind="sitemap",outcome="{outcome}"}} 1.0' in metrics


def inflating(document: bytes, n_millions: int) -> bytes:
    """Compress a document and millions of blanks after it, as members of one gzip file."""
    return gzip.compress(document) + gzip.compress(b" " * 1_000_000) * n_millions


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"", 400, "empty"),
        (b"<html/>", 400, "urlset or sitemapindex"),
        (inflating(urlset(*URLS), 60), 413, "RECRAWL_MAX_BODY_BYTES"),
        (gzip.compress(inflating(b"", 200)), 413, "over 32000000 bytes"),
    ],
    ids=["empty", "HTML", "gzip bomb", "gzip bomb twice packed"],
)
def test_documents_that_are_no_sitemaps_or_traps_are_refused_whole(
    sqlite_api: Live, content, status, says
):
    response = send(sqlite_api, content)
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    assert says in response.json()["detail"]
    assert sqlite_api.get("/pages", url=URLS[0]).status_code == 404
    assert sqlite_api.alive()


@pytest.mark.parametrize(
    ("query", "headers", "status", "field"),
    [
        ({"at": "/sitemap.xml"}, None, 422, "url"),
        ({"at": "ftp://a.example/"}, None, 422, "url"),
        ({"cross_host": "perhaps"}, None, 422, "cross_host"),
        ({}, {"Content-Type": "application/zip"}, 415, None),
        ({}, {"Content-Type": "multipart/form-data"}, 415, None),
        ({}, {"Content-Encoding": "br", "Content-Type": "text/xml"}, 415, None),
    ],
)
def test_requests_that_cannot_be_taken_say_why(sqlite_api: Live, query, headers, status, field):
    given = {**query, **({"headers": headers} if headers else {})}
    response = send(sqlite_api, urlset(*URLS), **given)
    assert response.status_code == status, response.text
    assert response.json().get("field") == field


def test_where_a_document_comes_from_must_be_told(sqlite_api: Live):
    headers = {"Content-Type": "application/xml"}
    response = sqlite_api.client.post("/sitemaps", content=urlset(*URLS), headers=headers)
    assert (response.status_code, response.json()["field"]) == (422, "url")


def test_a_body_over_the_limit_is_refused_as_it_arrives(sqlite_url):
    with running(sqlite_url, max_body_bytes=10_000) as api:
        assert send(api, b" " * 11_000).status_code == 413
        assert send(api, urlset(*URLS)).status_code == 200


def test_a_key_is_asked_for_where_keys_are_set(sqlite_url):
    with running(sqlite_url, api_keys=("secret",)) as api:
        assert send(api, urlset(*URLS)).status_code == 200
        with httpx.Client(base_url=api.url) as stranger:
            refused = stranger.post("/sitemaps", content=urlset(*URLS), params={"url": AT})
        assert refused.status_code == 401


def n_crawl_now(api: Live, crawled_at: datetime, lastmod: str) -> int:
    """Count the crawls that a lastmod is worth of a page that announces all of its changes."""
    api.register(URLS[0], observability="complete")
    crawl = {"url": URLS[0], "observed_at": crawled_at.isoformat(), "digest": "a"}
    assert api.post("/observations", [crawl]).json()["accepted"] == 1
    answer = taken(api, urlset((URLS[0], lastmod)))
    assert answer["accepted"] == 1
    assert counts(taken(api, urlset((URLS[0], lastmod)))) == (0, 1, 0, 0)
    return answer["n_crawl_now"]


@pytest.mark.parametrize(
    ("hours", "lastmod", "n"),
    [
        (-2, "2026-05-01", 1),  # START is noon: changed after the crawl, for all that is known
        (-2, "2026-05", 1),
        (-2, "2026-05-01T09:00:00Z", 0),
        (-14, "2026-04-30", 1),  # that day was not over everywhere
        (-1, "2026-04-30", 1),
        (0, "2026-05-01", 0),
        (-2, "2026-04-29", 0),
    ],
)
def test_a_crawl_within_the_day_that_is_told_may_have_come_too_early(
    sqlite_api: Live, hours, lastmod, n
):
    assert n_crawl_now(sqlite_api, START + timedelta(hours=hours), lastmod) == n


def test_a_day_that_has_not_begun_here_counts_when_it_has(sqlite_api: Live):
    tomorrow = urlset((URLS[0], "2026-05-02"))
    answer = taken(sqlite_api, tomorrow)
    assert (answer["complete"], len(answer["warnings"])) == (False, 1)
    sqlite_api.clock.advance(hours=13)
    answer = taken(sqlite_api, tomorrow)
    assert (answer["complete"], answer["accepted"]) == (True, 1)
    assert page(sqlite_api, URLS[0])["estimate"]["last_ping_at"] == "2026-05-02T00:00:00Z"


@pytest.mark.parametrize(
    ("content", "complete"),
    [
        (urlset(*URLS), True),
        (urlset(*URLS)[:-30], False),
        (gzip.compress(urlset(*URLS), mtime=0)[:-4], False),
        (urlset((URLS[0], "2027-01-01")), True),  # a mistake, and no matter of waiting
        (urlset((URLS[0], "soon")), True),
    ],
)
def test_a_document_that_broke_off_is_not_complete(sqlite_api: Live, content, complete):
    assert taken(sqlite_api, content)["complete"] is complete


def test_sitemaps_beyond_what_an_index_may_have_are_rejected(sqlite_api: Live, monkeypatch):
    monkeypatch.setattr("service.api.routes.sitemaps.MAX_CHILDREN", 2)
    children = [f"<sitemap><loc>https://a.example/{i}.xml</loc></sitemap>" for i in (1, 1, 2, 3, 2)]
    answer = taken(sqlite_api, index(*children))
    assert counts(answer) == (2, 2, 0, 1)
    assert [(one["index"], one["code"]) for one in answer["rejected"]] == [(3, "too_many")]
    assert len(answer["children"]) == 2


def test_a_document_over_the_limit_is_told_what_to_do(sqlite_url):
    with running(sqlite_url, max_body_bytes=1_000) as live:
        response = send(live, b"https://a.example/\n" * 100)
    assert response.status_code == 413
    assert "split it under a sitemap index" in response.json()["detail"]
