"""The pace of a spider: reports go out when hosts wait for them. Rates are printed, not asserted.

`python -m benchmarks.spider` measured the rates; the benchmark stands at commit ea040270.
"""

import time
from datetime import UTC, datetime

import pytest
from support.live_server import running, until
from support.local_site import page, serving
from support.processes import running_python

N_PAGES = 12
SPIDER = """
import recrawl_client.scrapy
from scrapy import Spider

recrawl_client.scrapy.REPORTS_S = 3_600.0  # no report goes out by its age

class Plain(Spider):
    name = "plain"
    custom_settings = {"SCHEDULER": "recrawl_client.scrapy.Scheduler"}

    def parse(self, response):
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_host_that_allows_no_further_crawl_gets_its_reports_at_once(
    concurrency, tmp_path, sqlite_url, monkeypatch, record_property
):
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", str(concurrency))
    spider = tmp_path / "plain.py"
    spider.write_text(SPIDER)
    pages = {f"/{i}": page(str(i)) for i in range(N_PAGES)}
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live, serving(pages) as site:
        live.register(*(site.url(path) for path in pages))
        options = ("-s", f"RECRAWL_URL={live.url}", "-s", "ROBOTSTXT_OBEY=False")
        with running_python(tmp_path, "-m", "scrapy", "runspider", spider, *options):
            until(lambda: site.hits, "the first page is fetched")
            start = time.monotonic()
            until(lambda: len(site.hits) == N_PAGES, "all pages are fetched")
            rate = (N_PAGES - 1) / (time.monotonic() - start)
            until(lambda: not live.get("/hosts/127.0.0.1").json()["n_leased"], "all are reported")
        last = [live.get("/pages", url=site.url(path)).json()["last_crawls"] for path in pages]
    record_property("crawls_per_s", round(rate, 1))
    assert [[crawl["status"] for crawl in crawls] for crawls in last] == [[200]] * N_PAGES
    assert set(site.hits.values()) == {1}
