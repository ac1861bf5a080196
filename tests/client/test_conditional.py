"""A fleet that starts again with an empty disk, against a real nginx; from apt, so external."""

import os
from collections import Counter
from hashlib import blake2b

import httpx
import pytest
from support.live_server import running
from support.nginx import site

import recrawl_client as rc

pytestmark = pytest.mark.external

N_PAGES, N_CHANGED = 400, 40


def crawl_all(recrawl: rc.Client, web: httpx.Client) -> Counter[int]:
    """Crawl what is due, as a worker without memory; return the statuses."""
    statuses: Counter[int] = Counter()
    with recrawl.reporter() as reporter:
        while crawls := reporter.lease(count=100).items:
            for crawl in crawls:
                answer = web.get(crawl.url, headers=rc.conditions(crawl))
                statuses[answer.status_code] += 1
                content = blake2b(answer.content).hexdigest() if answer.is_success else None
                reporter.report(
                    crawl,
                    status=answer.status_code,
                    digest=content,
                    etag=rc.etag(answer),
                    last_modified=rc.last_modified(answer),
                )
    return statuses


@pytest.mark.parametrize(
    "options", ["", "etag off;", "add_header Last-Modified '';"], ids=["both", "date", "etag"]
)
def test_unchanged_pages_are_not_sent_again_to_a_fleet_with_an_empty_disk(
    tmp_path, database_url, monkeypatch, options
):
    """Workers end after the first crawls; others begin with nothing but the service."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    monkeypatch.setenv("RECRAWL_BANDWIDTH", str(24 * N_PAGES))
    files = [tmp_path / "site" / f"{i}.html" for i in range(N_PAGES)]
    files[0].parent.mkdir()
    for i, file in enumerate(files):
        file.write_text(f"page {i}")
        os.utime(file, (1_700_000_000 + i, 1_700_000_000 + i))
    with site(tmp_path, options) as url, running(database_url) as live:
        with rc.Client(live.url, now=live.clock) as recrawl, httpx.Client() as web:
            recrawl.register(*(f"{url}/{file.name}" for file in files))
            assert crawl_all(recrawl, web) == {200: N_PAGES}
        live.epoch()
        live.clock.advance(days=30)
        live.epoch()
        for file in files[:N_CHANGED]:
            file.write_text(f"a new text of {file.name}")
        with rc.Client(live.url, now=live.clock) as recrawl, httpx.Client() as web:
            statuses = crawl_all(recrawl, web)
            pages = [recrawl.page(f"{url}/{file.name}") for file in files]
    assert statuses == {200: N_CHANGED, 304: N_PAGES - N_CHANGED}
    assert [page.last_crawls[0].changed for page in pages] == [
        *[True] * N_CHANGED,
        *[False] * (N_PAGES - N_CHANGED),
    ]
