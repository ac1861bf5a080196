"""Reports in batches: sent soon, sent again, never lost and never counted twice."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count, islice

import httpx
import pytest
from support.live_server import START, running, until
from support.processes import free_port, serving

from recrawl_client import (
    Client,
    Observation,
    Rejected,
    Unauthorized,
    Unavailable,
    Undelivered,
)

BASE = datetime.now(UTC).replace(microsecond=0) - timedelta(days=30)
URLS = [f"https://a.example/{i}" for i in range(10)]
NEVER_S = 3_600.0


@pytest.fixture
def live(sqlite_url):
    with running(sqlite_url) as live:
        yield live


@pytest.fixture
def client(live):
    with Client(live.url, now=live.clock) as client:
        client.register(*URLS)
        yield client


def test_a_full_batch_goes_out_at_once(client):
    with client.reporter(size=5, every_s=NEVER_S) as reporter:
        for url in URLS[:7]:
            reporter.report(url, digest="1")
        until(lambda: reporter.total.accepted == 5, "the full batch has been sent")
    assert reporter.total.accepted == 7


def test_a_batch_that_is_not_full_goes_out_in_time(client):
    with client.reporter(size=100, every_s=0.01) as reporter:
        reporter.report(URLS[0], digest="1")
        until(lambda: reporter.total.accepted == 1, "the observation has been sent")


def test_a_flush_sends_what_waits_and_nothing_that_comes_later(client):
    with client.reporter(size=100, every_s=NEVER_S) as reporter:
        reporter.flush()
        reporter.report(URLS[0], digest="1")
        until(lambda: reporter.total.accepted == 1, "a flush before the first item holds for it")
        reporter.report(URLS[1], digest="1")
        reporter.flush()
        until(lambda: reporter.total.accepted == 2, "the second one has been sent")
        reporter.report(URLS[2], digest="1")
        assert reporter.n_waiting == 1
    assert reporter.total.accepted == 3


def test_what_is_rejected_is_told_one_by_one_and_keeps_nothing_up(client):
    told = []
    with client.reporter(on_rejected=lambda *why: told.append(why)) as reporter:
        reporter.report(URLS[0], digest="1")
        reporter.report(URLS[1], digest="1" * 300)
        reporter.report(URLS[2], digest="1")
    assert reporter.total.accepted == 2
    ((observation, rejection),) = told
    assert observation == Observation(url=URLS[1], digest="1" * 300, observed_at=START)
    assert rejection.field == "digest"


@pytest.mark.parametrize("digest", [object(), "\ud800"])
def test_what_cannot_be_written_raises_where_it_is_made_and_takes_nothing_with_it(client, digest):
    with client.reporter(every_s=NEVER_S) as reporter:
        reporter.report(URLS[0], digest="1")
        with pytest.raises((TypeError, ValueError)):
            reporter.report(URLS[1], digest=digest)
        reporter.report(URLS[2], digest="1")
    assert reporter.total.accepted == 2


def test_a_service_that_takes_few_items_at_a_time_gets_few(sqlite_url):
    with running(sqlite_url, max_items=7) as live, Client(live.url, now=live.clock) as client:
        assert client.register(*URLS * 5).accepted == 50
        with client.reporter() as reporter:
            for url in URLS:
                reporter.report(url, digest="1")
        assert reporter.total.accepted == 10


def test_one_item_that_is_too_large_is_told_and_keeps_nothing_up(sqlite_url):
    told = []
    settings = {"max_body_bytes": 2_000}
    with running(sqlite_url, **settings) as live, Client(live.url, now=live.clock) as client:
        client.register(*URLS)
        with client.reporter(on_rejected=lambda *why: told.append(why)) as reporter:
            for i, url in enumerate(URLS):
                reporter.report(url, digest="1" * (3_000 if i == 4 else 1))
        assert reporter.total.accepted == 9
        with pytest.raises(Rejected, match=r"2000|2,000"):
            client.report(URLS[4], digest="1" * 3_000)
    ((observation, _),) = told
    assert observation.url == URLS[4]


def test_leases_end_with_their_reports(client, live):
    live.client.put("/hosts/a.example", json={"min_delay_s": 0})
    crawls = client.lease(count=1).items
    with client.reporter() as reporter:
        for crawl in crawls:
            reporter.report(crawl, status=200, digest="1")
    assert reporter.total.leases_ended == len(crawls) == 1


def test_who_may_not_report_is_told_and_keeps_the_observations(sqlite_url):
    with running(sqlite_url, api_keys=("k1",)) as live, Client(live.url, "wrong") as client:
        reporter = client.reporter(size=1).__enter__()
        reporter.report(URLS[0], digest="1")
        with pytest.raises(Unauthorized):
            until(lambda: reporter.report(URLS[1], digest="1"), "the refusal is told")
        with pytest.raises(Undelivered) as undelivered:
            reporter.close()
    assert undelivered.value.items[0].url == URLS[0]


def test_a_service_that_stays_away_leaves_the_observations_with_the_caller():
    def refuse(_request):
        raise httpx.ConnectError("refused")

    with Client(transport=httpx.MockTransport(refuse), patience_s=0) as client:
        reporter = client.reporter(every_s=NEVER_S).__enter__()
        reporter.report(URLS[0], digest="1")
        reporter.report(URLS[1], digest="1")
        with pytest.raises(Undelivered, match=r"2 items were not delivered: .* refused") as left:
            reporter.close()
    assert [observation.url for observation in left.value.items] == URLS[:2]


@pytest.mark.slow
def test_a_service_killed_in_between_and_started_again_gets_everything_once(tmp_path, database_url):
    port = free_port()
    client = Client(f"http://127.0.0.1:{port}", patience_s=1)
    minutes = count()

    def report_rounds(reporter, n_more):
        for minute in islice(minutes, n_more):
            for url in URLS:
                reporter.report(url, changed=True, observed_at=BASE + timedelta(minutes=minute))

    with client, client.reporter(size=25, every_s=0.05) as reporter:
        with serving(tmp_path, port=port, database_url=database_url) as server:
            report_rounds(reporter, 60)
            until(lambda: reporter.total.accepted > 50, "reports are under way")
            server.kill()
        report_rounds(reporter, 5)
        with serving(tmp_path, port=port, database_url=database_url):
            reporter.close()
            n_rounds = next(minutes)
            seen = {client.page(url).estimate.n_observations for url in URLS}
    assert seen == {n_rounds - 1}
    total = reporter.total
    assert total.accepted + total.duplicate + total.late == n_rounds * len(URLS)


def test_one_report_that_cannot_be_raises_where_it_is_made(client):
    with pytest.raises(Rejected):
        client.report(URLS[0], digest="1" * 300)


def test_a_lease_request_carries_the_reports_that_wait(client, live):
    live.client.put("/hosts/a.example", json={"min_delay_s": 0})
    with client.reporter(every_s=NEVER_S) as reporter:
        (crawl,) = reporter.lease(count=1).items
        reporter.report(crawl, status=200, digest="1")
        reporter.report(crawl, digest="1" * 300)
        leased = reporter.lease(count=1)
        assert leased.reported.leases_ended == 1
        assert (reporter.n_waiting, reporter.total.accepted, reporter.total.n_rejected) == (0, 1, 1)
        assert reporter.lease(count=1).reported is None


def test_reports_of_a_lease_request_that_failed_wait_again(client, live):
    with client.reporter(every_s=NEVER_S) as reporter:
        reporter.report(URLS[0], digest="1")
        with Client("http://127.0.0.1:1", patience_s=0) as away, pytest.raises(Unavailable):
            reporter.lease(client=away)
        assert reporter.n_waiting == 1
    assert reporter.total.accepted == 1


def test_a_report_after_the_end_raises_because_nobody_would_send_it(client):
    with client.reporter() as reporter:
        reporter.report(URLS[0], digest="1")
    with pytest.raises(RuntimeError, match="have ended and send nothing more; open new ones"):
        reporter.report(URLS[1], digest="1")
    assert (reporter.n_waiting, reporter.total.accepted) == (0, 1)


def test_the_end_waits_for_the_reports_of_a_lease_request(client):
    """A long poll still carries reports when the reporter is closed; its failure loses none."""
    asked, answer = threading.Event(), threading.Event()

    def hold(_request):
        asked.set()
        answer.wait()
        raise httpx.ConnectError("refused")

    with Client(transport=httpx.MockTransport(hold), patience_s=0) as away:
        reporter = client.reporter(every_s=NEVER_S).__enter__()
        reporter.report(URLS[0], digest="1")
        with ThreadPoolExecutor() as pool:
            failing = pool.submit(reporter.lease, client=away)
            asked.wait()
            closing = pool.submit(reporter.close)
            until(lambda: reporter._closing, "the reporter is being closed")
            answer.set()
            assert isinstance(failing.exception(), Unavailable)
            closing.result()
    assert reporter.total.accepted == 1
