"""The client against the live server: what is due, what was seen, what is known."""

from datetime import timedelta

import httpx
import msgspec
import pytest
from support.live_server import START, Live, running

import recrawl_client as rc
from recrawl_client import Client, Observation, Page, Ping


@pytest.fixture
def live(database_url, monkeypatch):
    """A service without politeness of its own, and two crawls an hour."""
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "48")
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(database_url) as live:
        yield live


@pytest.fixture
def client(live: Live):
    with Client(live.url, now=live.clock) as client:
        yield client


def test_a_crawl_is_leased_and_reported_and_nothing_is_due(client):
    (page_id,) = client.register("https://a.example/news").page_ids
    (crawl,) = client.lease(worker="w1", ttl_s=60).items
    assert (crawl.page_id, crawl.url, crawl.host) == (
        page_id,
        "https://a.example/news",
        "a.example",
    )
    assert (crawl.reason, crawl.last_crawl_at) == ("first", None)
    assert crawl.expires_at == START + timedelta(seconds=60)
    answer = client.report(crawl, status=200, digest="1")
    assert (answer.accepted, answer.leases_ended, answer.rejected) == (1, 1, [])
    again = client.lease()
    assert again.items == []
    assert again.retry_after_s >= 1


def test_only_the_hosts_asked_for_are_leased(client):
    client.register("https://a.example/", "https://b.example/")
    assert [crawl.host for crawl in client.lease(hosts=["b.example"]).items] == ["b.example"]


@pytest.mark.dear
def test_a_lease_is_extended_and_given_back_once(client):
    client.register("https://a.example/")
    (crawl,) = client.lease(ttl_s=60).items
    assert client.extend(crawl, 600).expires_at == START + timedelta(seconds=600)
    assert [client.release(crawl), client.release(crawl)] == [True, False]
    with pytest.raises(rc.LeaseNotHeld, match="ended"):
        client.extend(crawl, 60)


def test_a_page_is_reported_by_url_or_id_too(client, live):
    (page_id,) = client.register(Page(url="https://a.example/", importance=3)).page_ids
    client.report("https://a.example/", digest="1")
    live.clock.advance(days=1)
    client.report(page_id, digest="2")
    live.clock.advance(days=1)
    client.report(page_id, changed=False, observed_at=START + timedelta(days=1.5))
    shown = client.page(page_id)
    assert shown == client.page("https://a.example/")
    assert (shown.importance, shown.estimate.n_observations) == (3, 2)
    assert [crawl.changed for crawl in shown.last_crawls] == [False, True, None]


def test_what_cannot_be_reported_says_which_field(client):
    with pytest.raises(rc.Rejected, match="digest") as refused:
        client.report("https://a.example/", digest="1" * 300)
    assert (refused.value.status, refused.value.problem.field) == (422, "digest")
    with pytest.raises(rc.Refused) as malformed:
        client.lease(count=0)
    assert malformed.value.problem.field == "count"


def test_a_status_that_a_server_made_up_is_a_failure(client):
    client.report("https://a.example/", status=999)
    assert client.page(1).last_crawls[0].status == 599


@pytest.mark.dear
def test_many_pages_go_in_batches_whose_answers_are_summed_up(client):
    urls = [f"https://a.example/{i}" for i in range(2_100)]
    urls[1_500] = "ftp://a.example/"
    answer = client.register_many(urls)
    assert (answer.accepted, answer.created, len(answer.page_ids)) == (2_099, 2_099, 2_100)
    assert [(r.index, r.field) for r in answer.rejected] == [(1_500, "url")]
    assert answer.page_ids[1_500] is None
    assert client.page(answer.page_ids[2_099]).url == urls[2_099]


def test_a_batch_of_which_nothing_is_taken_is_an_answer(client):
    answer = client.register_many(["ftp://a.example/", "nonsense"])
    assert [r.index for r in answer.rejected] == [0, 1]
    assert answer.page_ids == [None, None]


def test_an_invalid_page_is_rejected_as_an_invalid_report_is_and_the_others_are_taken(client):
    pages = ("https://a.example/1", "ftp://a.example/", "nonsense")
    with pytest.raises(rc.Rejected, match=r"scheme ftp: .* \(and 1 more\)") as refused:
        client.register(*pages)
    problem = refused.value.problem
    assert (problem.field, problem.accepted, problem.n_rejected) == ("url", 1, 2)
    assert [rejection.index for rejection in problem.rejected] == [1, 2]
    assert client.page(pages[0]).page_id == 1
    with pytest.raises(rc.Rejected) as alone:
        client.register("nonsense")
    with pytest.raises(rc.Rejected) as reported:
        client.report("nonsense", digest="1")
    assert alone.value.problem.rejected == reported.value.problem.rejected
    answer = client.report_many([client.observation(url, digest="1") for url in pages])
    assert (answer.accepted, [r.index for r in answer.rejected]) == (1, [1, 2])


def test_reports_that_are_all_refused_tell_how_many_leases_they_ended(client):
    client.register("https://a.example/")
    (crawl,) = client.lease().items
    wrong = Observation(lease=crawl.lease, page_id=999, observed_at=START, digest="1")
    assert client.report_many([wrong]).leases_ended == 1
    assert client.report_many([wrong]).leases_ended == 0


def test_a_host_is_shown_and_set(client):
    client.register("https://a.example/")
    shown = client.set_host("a.example", min_delay_s=2.5, max_concurrency=3)
    assert shown == client.host("a.example")
    assert (shown.min_delay_s, shown.max_concurrency, shown.host_queue.delay_s) == (2.5, 3, 2.5)
    assert client.set_host("a.example", min_delay_s=None).min_delay_s is None
    until = START + timedelta(hours=1)
    assert client.set_host("a.example", blocked_until=until).host_queue.blocked_until == until
    assert [host.host for host in client.hosts()] == ["a.example"]
    with pytest.raises(rc.NotFound):
        client.host("b.example")


@pytest.mark.dear
def test_pings_are_decided_on(client, live):
    assert client.ping("https://a.example/") == rc.Decision(
        index=0, page_id=1, crawl=True, reason="never_crawled"
    )
    pings = [Ping(url=f"https://a.example/{i}", changed_at=START) for i in range(1_001)]
    assert [d.index for d in client.ping_many(pings).decisions] == list(range(1_001))
    with pytest.raises(rc.Rejected, match="changed_at"):
        client.ping(1, changed_at=START + timedelta(days=1))


def test_a_sitemap_is_passed_on(client):
    content = b"""<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
      <url><loc>https://a.example/1</loc><lastmod>2026-04-30</lastmod></url></urlset>"""
    answer = client.sitemap("https://a.example/sitemap.xml", content)
    assert (answer.kind, answer.created, answer.n_crawl_now) == ("urlset", 1, 1)


def test_the_schedule_and_epochs_are_gone_through_to_the_end(client, live):
    client.register(*(f"https://a.example/{i}" for i in range(5)))
    with pytest.raises(rc.NotFound):
        client.epoch()
    for _ in range(2):
        asked = client.request_epoch()
        assert asked.status == "requested"
        live.service.runner.run_once()
    assert [page.page_id for page in client.schedule(limit=2)] == [1, 2, 3, 4, 5]
    assert sum(page.crawl_rate for page in client.schedule()) == pytest.approx(48)
    assert [epoch.epoch for epoch in client.epochs()] == [2, 1]
    assert client.epoch() == client.epoch(2)
    assert client.epoch().n_pages == 5


def test_a_cursor_that_two_epochs_have_outrun_is_told(client, live):
    client.register(*(f"https://a.example/{i}" for i in range(3)))
    live.epoch()
    rows = client.schedule(limit=1)
    next(rows)
    for _ in range(3):
        live.epoch()
    with pytest.raises(rc.CursorExpired):
        list(rows)


def test_a_key_is_shown_and_missed(sqlite_url):
    with running(sqlite_url, api_keys=("k1",)) as live:
        with Client(live.url) as nobody, pytest.raises(rc.Unauthorized):
            nobody.lease()
        with Client(live.url, "k1") as client:
            assert client.lease().items == []


def test_crawls_are_reported_in_the_request_for_the_next_ones(client):
    client.register("https://a.example/1", "https://a.example/2")
    (first,) = client.lease(count=1).items
    seen = client.observation(first, status=200, digest="1")
    leased = client.lease(count=1, report=[seen, client.observation("ftp://a.example/")])
    assert [crawl.page_id for crawl in leased.items] != [first.page_id]
    assert (leased.reported.accepted, leased.reported.leases_ended) == (1, 1)
    assert [rejection.index for rejection in leased.reported.rejected] == [1]


def test_a_request_is_sent_again_with_its_key(live):
    sent = []
    lost = iter([True, False])

    class Losing(httpx.BaseTransport):
        """A transport that loses the first answer."""

        def __init__(self):
            self.real = httpx.HTTPTransport()

        def close(self):
            self.real.close()

        def handle_request(self, request):
            sent.append(request.headers["Idempotency-Key"])
            answer = self.real.handle_request(request)
            answer.read()
            if next(lost):
                raise httpx.ReadError("lost")
            return answer

    live.register("https://a.example/1", "https://a.example/2")
    with Client(live.url, transport=Losing()) as client:
        assert len(client.lease(count=2).items) == 2
    assert len(sent) == 2
    assert len(set(sent)) == 1


def test_a_leased_crawl_is_dated_by_its_request_or_else_by_the_service(client):
    """The time of the report would hide a ping that came while the page was fetched."""
    client.register("https://a.example/")
    (crawl,) = client.lease().items
    assert client.observation(crawl, status=200).observed_at is msgspec.UNSET
    sent_at = START + timedelta(seconds=3)
    assert client.observation(crawl, status=200, observed_at=sent_at).observed_at == sent_at
    assert client.observation(crawl.page_id, status=200).observed_at == START
