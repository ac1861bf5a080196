"""The comparisons of the page on weights, run as they stand against a service."""

from collections import Counter

import pytest
from scrapy.http import HtmlResponse
from support.live_server import lease_freely, running
from support.pages import DOCS, blocks

import recrawl_client as rc

URL = "https://shop.example/item"


@pytest.fixture(scope="module")
def page():
    """The names that the blocks of the page define."""
    names = {}
    for block in blocks((DOCS / "how-to" / "weigh-changes.md").read_text(), "python"):
        exec(block.text, names)
    return names


@pytest.fixture
def live(sqlite_url):
    with running(sqlite_url) as live:
        lease_freely(live)
        live.register(URL)
        yield live


@pytest.fixture
def client(live):
    with rc.Client(live.url, now=live.clock) as client:
        yield client


def crawl(live, client):
    """Lease the page, a day after its last crawl."""
    live.clock.advance(days=1)
    client.recrawl(URL)
    (leased,) = client.lease(1).items
    return leased


def passed_on(client):
    part = client.changes(min_weight=0.5)
    return [change for change in part.items if change.kind == "changed"]


def test_a_price_that_flickers_is_not_passed_on_and_a_jump_is(live, client, page):
    for day in range(12):
        leased = crawl(live, client)
        price = 20.0 * (1.001 if day % 2 else 1.0) + (5.0 if day >= 9 else 0.0)
        client.report(leased, **page["price_evidence"](URL, price, leased.note))
    (jump,) = passed_on(client)
    assert jump.weight == 1.0
    assert len(client.changes().items) == 12


@pytest.mark.dear
def test_a_price_that_creeps_is_passed_on_when_the_steps_have_added_up(live, client, page):
    for day in range(60):
        leased = crawl(live, client)
        client.report(leased, **page["price_evidence"](URL, 20.0 * 1.001**day, leased.note))
    changes = passed_on(client)
    assert len(changes) == 2  # 2.5 % each
    assert all(change.weight >= page["LEAST"] for change in changes)


def test_a_text_is_compared_with_the_text_that_readers_know(live, client, page):
    words, known = [f"word{n}" for n in range(100)], None
    for day in range(12):
        if day:
            words[day] = f"new{day}"  # a hundredth of the text a day
        leased = crawl(live, client)
        evidence, known = page["text_evidence"](" ".join(words), known)
        client.report(leased, **evidence)
    assert len(passed_on(client)) == 2


def answer(price):
    text = "" if price is None else f"<b class='price'>{price}</b>"
    return HtmlResponse(URL, body=text.encode(), encoding="utf-8")


def weigh(page, path, *prices):
    """Return the weights of a page's prices in one process of the spider."""
    spider = page["Shop"](prices=path)
    weights = [spider.recrawl_change_weight(answer(price)) for price in prices]
    spider.closed("finished")
    return weights


def test_the_spider_weighs_against_the_known_price_also_after_a_restart(page, tmp_path):
    first = weigh(page, tmp_path / "prices.db", 20, 20.02, None, 22, 22.022)
    assert first == [None, pytest.approx(0.02), None, 1.0, pytest.approx(0.02)]
    assert weigh(page, tmp_path / "prices.db", 44, 44) == [1.0, 0.0]
    assert weigh(page, tmp_path / "lost.db", 44, 0, 0, 44) == [None, 1.0, 0.0, 1.0]


def test_a_killed_spider_has_kept_its_prices(page, tmp_path):
    killed = page["Shop"](prices=tmp_path / "prices.db")
    killed.recrawl_change_weight(answer(20))
    assert weigh(page, tmp_path / "prices.db", 40) == [1.0]  # `closed` was never called
    killed.closed("finished")


def test_the_spider_starts_at_the_page_of_its_argument(page):
    assert page["Shop"](prices=":memory:", start=URL).start_urls == [URL]


def test_products_of_one_price_are_no_copies_and_a_sale_of_all_is_passed_on(live, client, page):
    urls = [URL, *(f"{URL}/{n}" for n in range(19))]
    live.register(*urls)
    for price in (20.0, 30.0, 9.99, 9.99):
        live.clock.advance(days=1)
        client.recrawl(*urls)
        for _ in urls:
            live.clock.advance(seconds=5)
            (leased,) = client.lease(1).items
            own = price if price < 10 else price + urls.index(leased.url) / 8
            client.report(leased, **page["price_evidence"](leased.url, own, leased.note))
    assert len({page["price_evidence"](url, 9.99, None)["digest"] for url in urls}) == len(urls)
    assert live.get("/hosts/shop.example").json().get("incident") is None
    assert Counter(change.url for change in passed_on(client)) == dict.fromkeys(urls, 2)


def test_a_text_without_a_word_is_no_content(page):
    assert page["text_evidence"](" \n", "known") == ({"status": 200}, "known")
