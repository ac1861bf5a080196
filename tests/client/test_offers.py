"""A fleet beside a real nginx that asks for a price; from apt, so external."""

from collections import Counter

import httpx
import pytest
from support.live_server import running
from support.nginx import site

import recrawl_client as rc

pytestmark = pytest.mark.external

PRICES = {"cheap": "0.01", "dear": "3", "out-of-reach": "500"}
PAYS = {
    "cheap": r"(0\.0[1-9]|0\.[1-9]|[1-9])",
    "dear": "([3-9]|[1-9][0-9])",
    "out-of-reach": "[5-9]..[.]",
}
"""Prices that buy a page, as regular expressions."""
DAYS = 10
"""Length of a trial; the budget is 4 USD a day."""


def location(name):
    """Return the directives for a page that asks for its price."""
    return f"""
        location = /{name}.html {{
            if ($http_crawler_max_price !~ "^USD {PAYS[name]}") {{
                add_header crawler-price "USD {PRICES[name]}" always;
                return 402;
            }}
            add_header crawler-charged "USD {PRICES[name]}";
        }}
    """


def crawl_all(recrawl, web, asked, paid):
    """Crawl what is due; count the offers of each page, and note the prices that were paid."""
    with recrawl.reporter() as reporter:
        while crawls := reporter.lease(count=10).items:
            for crawl in crawls:
                answer = web.get(crawl.url, headers=rc.conditions(crawl))
                name = crawl.url.rpartition("/")[2].removesuffix(".html")
                asked[name] += answer.status_code == 402
                price = rc.price(answer)
                if answer.is_success:
                    paid.append((name, float(price.removeprefix("USD "))))
                digest = answer.text if answer.is_success else None
                reporter.report(crawl, status=answer.status_code, digest=digest, price=price)


def test_an_nginx_with_prices_is_asked_once_until_a_price_is_accepted(
    database_url, tmp_path, monkeypatch
):
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("0", *PRICES):
        (folder / f"{name}.html").write_text(name)
    for name, value in {"BUDGET": "4 USD", "HOST_DELAY_S": "0", "HOST_CONCURRENCY": "0"}.items():
        monkeypatch.setenv(f"RECRAWL_{name}", value)
    asked, paid = Counter(), []
    with (
        site(tmp_path, "".join(map(location, PRICES))) as url,
        running(database_url) as live,
        rc.Client(live.url) as recrawl,
        httpx.Client() as web,
    ):
        live.register(*(f"{url}/{name}.html" for name in PRICES))
        for _ in range(6 * DAYS):
            live.epoch()
            crawl_all(recrawl, web, asked, paid)
            live.clock.advance(hours=4)
    assert asked == dict.fromkeys(PRICES, 1)
    visits = Counter(name for name, _ in paid)
    assert visits["cheap"] > 2 * visits["dear"] > 0
    assert visits["out-of-reach"] == 0
    assert sum(price for _, price in paid) <= 1.1 * 4 * DAYS
