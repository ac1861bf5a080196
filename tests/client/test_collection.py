"""Both clients on many pages: lists, bulk acts, freshness."""

import asyncio
from datetime import timedelta

import pytest
from support.live_server import START, running

import recrawl_client as rc
from recrawl_client import AsyncClient, Client, Copy

URLS = [f"https://a.example/{i}" for i in range(5)]


@pytest.fixture
def client(sqlite_url):
    with running(sqlite_url) as live, Client(live.url, now=live.clock) as client:
        client.live = live
        yield client


def test_pages_are_listed_counted_changed_and_deleted_by_filters(client):
    client.register(*({"url": url, "tags": ["t"]} for url in URLS))
    client.register("https://b.example/")
    assert sorted(page.url for page in client.pages(tag="t")) == URLS
    counted = client.count_pages(tag="t", exact=True)
    assert (counted.count, counted.count_is) == (5, "exact")
    patch = {"importance": 3.0, "remove_tags": ["t"]}
    dry = client.change_pages(patch, dry_run=True, host="a.example")
    assert (dry.matched, dry.changed) == (5, 0)
    assert client.change_pages(patch, host="a.example").changed == 5
    assert list(client.pages(tag="t")) == []
    assert {page.importance for page in client.pages(host="a.example")} == {3.0}
    with pytest.raises(rc.Refused, match="nothing is selected"):
        client.delete_pages()
    assert client.delete_pages(url_prefix="https://a.example/").changed == 5
    client.delete_host("a.example")
    assert [host.host for host in client.hosts()] == ["b.example"]


def test_an_act_goes_on_by_its_cursor_to_the_end(client, monkeypatch):
    monkeypatch.setattr("service.ingest.bulk.BLOCK", 2)
    monkeypatch.setattr("service.api.routes.bulk.BULK_S", 0.0)
    client.register(*URLS)
    done = client.change_pages({"importance": 2.0}, all_pages=True)
    assert (done.matched, done.changed, done.next_cursor) == (5, 5, None)


def test_pages_are_crawled_again_by_name_and_by_filter(client):
    ids = client.register(*URLS).page_ids
    answer = client.recrawl(URLS[0], ids[1], "https://a.example/none")
    assert (answer.matched, answer.changed, answer.n_rejected) == (2, 2, 1)
    assert client.recrawl(host="a.example").changed == 3
    assert [lease.page_id for lease in client.running_leases()] == []


def test_a_log_and_groups_are_listed(client):
    (page_id,) = client.register(URLS[0]).page_ids
    client.report(URLS[0], digest="1", observed_at=START)
    assert [entry.observed_at for entry in client.page_log(page_id)] == [START]
    client.set_host("a.example", group="g")
    assert [(group.group, group.n_members) for group in client.groups()] == [("g", 1)]
    client.delete_group("g")
    assert list(client.groups()) == []


def test_copies_are_judged_in_batches_by_position(client):
    ids = client.register(*URLS).page_ids
    client.report(URLS[0], digest="1", observed_at=START)
    client.live.clock.advance(days=3)
    client.batch = 2
    old = Copy(url=URLS[0], fetched_at=START, max_stale=0.0)
    answer = client.freshness([old, ids[0], 999, "https://new.example/", URLS[1]])
    stale = [verdict and verdict.stale for verdict in answer.verdicts]
    assert stale[0] == stale[1] > 0
    assert [verdict and verdict.fetch for verdict in answer.verdicts] == [
        True,
        False,
        None,
        True,
        True,
    ]
    assert (answer.n_fetch, answer.n_rejected, answer.rejected[0].index) == (3, 1, 2)
    assert client.freshness([]).verdicts == []


def test_tasks_ask_the_same_of_the_same_service(client):
    client.register(*URLS)
    at = START - timedelta(days=1)
    copies = [Copy(url=url, fetched_at=at) for url in URLS]

    async def both():
        async with AsyncClient(client.live.url, now=client.live.clock) as other:
            listed = [page.url async for page in other.pages(host="a.example")]
            return listed, await other.freshness(copies), await other.recrawl(URLS[0])

    listed, verdicts, done = asyncio.run(both())
    assert listed == [page.url for page in client.pages(host="a.example")]
    assert verdicts == client.freshness(copies)
    assert (done.matched, client.recrawl(URLS[0]).changed) == (1, 0)
