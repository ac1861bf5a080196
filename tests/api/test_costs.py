"""Budgets of bytes and money through a service: reports, plans, and sites that ask a price."""

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from support.live_server import Live, running

import recrawl_client as rc

NEWS, OTHER = "https://a.example/news", "https://b.example/"


@pytest.fixture
def served(database_url, monkeypatch):
    """A function that starts a service with a budget, without politeness of its own."""
    running_now = []

    def serve(budget: str) -> Live:
        for name, value in {"BUDGET": budget, "HOST_DELAY_S": "0", "HOST_CONCURRENCY": "0"}.items():
            monkeypatch.setenv(f"RECRAWL_{name}", value)
        live = running(database_url)
        running_now.append(live)
        return live.__enter__()

    yield serve
    for live in running_now:
        live.__exit__(None, None, None)


def report(live: Live, url=NEWS, hours=2.0, **found):
    live.clock.advance(hours=hours)
    item = {"url": url, "observed_at": live.clock().isoformat(), "digest": "1", **found}
    answer = live.post("/observations", [item]).json()
    assert (answer["accepted"], answer["rejected"]) == (1, []), answer
    return answer.get("left_out", [])


def rates(live: Live):
    live.epoch()
    return {item["url"]: item["crawl_rate"] for item in live.schedule()}


def test_a_dear_page_is_crawled_less_often_within_the_budget(served):
    live = served("1 MB")
    live.register(NEWS, OTHER)
    for _ in range(3):
        report(live, NEWS, bytes=400_000)
        report(live, OTHER, bytes=10_000)
    found = rates(live)
    assert found[NEWS] * 4 < found[OTHER]
    assert found[NEWS] * 400_000 + found[OTHER] * 10_000 == pytest.approx(1e6, rel=1e-6)
    epoch = live.get("/epochs").json()["items"][0]
    assert (epoch["bandwidth"], epoch["unit"]) == (1e6, "bytes")
    assert epoch["bandwidth_used"] == pytest.approx(1e6, rel=1e-9)
    plan = live.get("/plan", bandwidth=2e6).json()
    assert plan["unit"] == "bytes"
    assert plan["items"][0]["bandwidth_used"] == pytest.approx(2e6, rel=1e-9)


@pytest.mark.parametrize(
    ("field", "value", "example"),
    [
        ("bytes", -1, "a number of bytes from 0, as in 48213"),
        ("bytes", "many", "a number of bytes from 0, as in 48213"),
        ("seconds", -0.5, "a number of seconds from 0, as in 0.8"),
        ("price", -1, "a price such as USD 0.01, or a number from 0"),
        ("price", "cheap", "a price such as USD 0.01, or a number from 0"),
        ("price", "EUR 0.01", "one such as USD 0.01"),
        ("price", "0.01 XYZ", "one such as USD 0.01"),
    ],
)
def test_a_wrong_cost_is_left_out_and_the_rest_counts(served, field, value, example):
    live = served("5 USD")
    (left,) = report(live, **{field: value})
    assert (left["index"], left["code"], left["field"]) == (0, "left_out", field)
    assert example in left["detail"]
    assert live.get("/pages", url=NEWS).json()["last_crawl_at"] is not None


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["bytes", "seconds", "price"])
def test_a_cost_that_is_no_number_is_left_out(served, field, value):
    live = served("5 USD")
    at = live.clock().isoformat()
    good = f'{{"url": "{OTHER}", "observed_at": "{at}", "digest": "1"}}'
    bad = f'{{"url": "{NEWS}", "observed_at": "{at}", "digest": "1", "{field}": {value}}}'
    headers = {"Content-Type": "application/json"}
    answer = live.client.post("/observations", content=f"[{good}, {bad}]", headers=headers).json()
    assert (answer["accepted"], answer["n_rejected"]) == (2, 0)
    assert [(each["index"], each["field"]) for each in answer["left_out"]] == [(1, field)]


@pytest.mark.parametrize(
    ("budget", "found"),
    [("1 MB", {"bytes": 50_000}), ("600 s", {"seconds": 5}), ("5 USD", {"price": 0.05})],
)
def test_a_cost_counts_once_and_only_on_its_own_day(served, budget, found):
    def spent():
        live.service.keeper.give_back()
        with live.service.store.begin(write=False) as tx:
            return tx.pace().spent

    live, (amount,) = served(budget), found.values()
    live.register(NEWS, OTHER)
    one, late = live.post("/leases", {"count": 2}).json()["items"]
    expected = spent() / 2
    at = live.clock().isoformat()
    for lease in (one, one, one):
        item = {"lease": lease["lease"], "observed_at": at, "digest": "1", **found}
        assert live.post("/observations", [item]).json()["n_rejected"] == 0
        assert spent() == pytest.approx(expected + amount)
    live.clock.advance(days=1)
    before = spent()
    item = {"lease": late["lease"], "observed_at": at, "digest": "2", **found}
    assert live.post("/observations", [item]).json()["accepted"] == 1
    assert spent() == before


ABSURD = {
    "1 MB": {"bytes": 1e15},
    "600 s": {"seconds": 1e9},
    "5 USD": {"price": 1_000_000},
    "4 USD": {"status": 402, "price": "USD 999999999"},
}


@pytest.mark.parametrize("budget", ABSURD)
def test_one_absurd_cost_stops_no_other_page(served, budget):
    """A site chooses the price that it asks, and a crawler may have a fault."""
    live = served(budget)
    known = {"1 MB": {"bytes": 10_000}, "600 s": {"seconds": 2.0}}.get(budget, {"price": 0.01})
    new = [f"https://a.example/{i}" for i in range(10)]
    live.register(NEWS, OTHER, *new)
    report(live, OTHER, **known)
    absurd = ABSURD[budget]
    if "status" in absurd:
        item = {"url": NEWS, "observed_at": live.clock().isoformat(), **absurd}
        assert live.post("/observations", [item]).json()["accepted"] == 1
    else:
        report(live, NEWS, **absurd)
    found = rates(live)
    assert found[OTHER] > 0
    live.clock.advance(days=1)
    leased = {item["url"] for item in live.post("/leases", {"count": 20}).json()["items"]}
    assert leased == {OTHER, *new}


@pytest.mark.parametrize("budget", ["50 kB", "0.3 s", "0.0004 USD"])
def test_a_budget_below_the_usual_cost_of_a_crawl_pays_for_one(served, budget):
    live = served(budget)
    live.register(NEWS, OTHER)
    live.epoch()
    assert len(live.post("/leases", {"count": 5}).json()["items"]) == 1


def test_a_price_under_another_budget_is_a_refusal(served):
    live = served("100 crawls")
    report(live, digest="1")
    live.clock.advance(hours=2)
    item = {"url": NEWS, "observed_at": live.clock().isoformat(), "status": 402, "price": "USD 1"}
    assert live.post("/observations", [item]).json()["accepted"] == 1
    assert live.get("/pages", url=NEWS).json()["n_failures"] == 1


# -- a site that asks for a price


class Shop(ThreadingHTTPServer):
    """A site with pages at prices, USD; it counts requests by path and whether they would pay."""

    def __init__(self, prices: dict[str, float]) -> None:
        super().__init__(("127.0.0.1", 0), Counterpart)
        self.prices, self.asked = prices, Counter()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Counterpart(BaseHTTPRequestHandler):
    """402 with a price, or content for those who pay."""

    server: Shop

    def do_GET(self) -> None:
        price = self.server.prices[self.path]
        offer = self.headers.get("crawler-max-price", "USD 0")
        pays = float(offer.removeprefix("USD ")) >= price
        self.server.asked[self.path, pays] += 1
        self.send_response(200 if pays else 402)
        self.send_header("crawler-charged" if pays else "crawler-price", f"USD {price}")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, *_: object) -> None:
        """Keep the output of tests clean."""


@pytest.fixture
def shop() -> Iterator[Shop]:
    site = Shop({"/cheap": 0.01, "/dear": 3.0, "/out-of-reach": 500.0})
    thread = threading.Thread(target=site.serve_forever, daemon=True)
    thread.start()
    yield site
    site.shutdown()
    thread.join()
    site.server_close()


def crawl_what_is_due(live: Live, web: httpx.Client) -> list[str]:
    """Lease, fetch and report all due pages; return the prices that were paid."""
    paid = []
    while items := live.post("/leases", {"count": 10}).json()["items"]:
        for item in items:
            own = {k: item.get(k) for k in ("etag", "last_modified", "note", "max_price")}
            crawl = rc.Crawl(**{k: v for k, v in item.items() if k not in own}, **own)
            answer = web.get(crawl.url, headers=rc.conditions(crawl))
            found = {"status": answer.status_code, "price": rc.price(answer)}
            if answer.is_success:
                found["digest"] = answer.text
                paid.append(rc.price(answer))
            body = [{"lease": crawl.lease, **found}]
            assert live.post("/observations", body).json()["accepted"] == 1
    return paid


@pytest.mark.dear
def test_a_site_that_asks_for_a_price_is_asked_once_until_the_price_is_accepted(served, shop):
    live = served("4 USD")
    live.register(*map(shop.url, shop.prices))
    with httpx.Client() as web:
        live.epoch()
        assert crawl_what_is_due(live, web) == []
        paid = []
        for _ in range(60):
            live.clock.advance(hours=4)
            live.epoch()
            paid += crawl_what_is_due(live, web)
    assert {path: shop.asked[path, False] for path in shop.prices} == dict.fromkeys(shop.prices, 1)
    assert shop.asked["/out-of-reach", True] == 0
    assert shop.asked["/cheap", True] > 2 * shop.asked["/dear", True] > 0
    # ten days at 4 USD; the first days learn
    assert sum(float(price.removeprefix("USD ")) for price in paid) <= 1.1 * 40
    why = live.get("/pages", url=shop.url("/out-of-reach")).json()["why"]["sentence"]
    assert "price" in why
    hosts = live.get("/hosts").json()["items"]
    assert all(host["host_queue"]["paused_until"] is None for host in hosts)


@pytest.mark.dear
def test_a_price_that_rises_at_each_visit_is_never_paid_and_costs_few_requests(served):
    live, price = served("4 USD"), 0.01
    live.register(NEWS, *(f"https://b.example/{i}" for i in range(5)))
    asked, paid = 0, Counter()
    for _ in range(8 * 4):
        live.epoch()
        for item in live.post("/leases", {"count": 10}).json()["items"]:
            most = float((item.get("max_price") or "USD 0").removeprefix("USD "))
            wants = 0.3
            if item["url"] == NEWS:
                asked, price = asked + 1, price * 1.5
                wants = price
                assert most < price
            found = {"digest": f"{live.clock()}"} if most >= wants else {"status": 402}
            if most >= wants:
                paid[live.clock().date()] += wants
            report = [{"lease": item["lease"], "price": f"USD {wants:.6f}", **found}]
            assert live.post("/observations", report).json()["accepted"] == 1
        live.clock.advance(hours=3)
    # beyond 4 USD after 15 visits, which no day can pay
    assert 2 <= asked <= 16
    assert max(paid.values()) <= 4.0 + 1e-9
    assert sorted(paid.values())[1] > 2.0, "the other pages are crawled"


def test_the_history_and_the_metrics_show_what_was_spent(served):
    live = served("4 USD")
    live.register(NEWS)
    live.epoch()
    for price in ("USD 0.25", 0.5):
        report(live, price=price)
    live.clock.advance(hours=1)
    item = {"url": NEWS, "observed_at": live.clock().isoformat(), "status": 402, "price": "USD 3"}
    assert live.post("/observations", [item]).json()["accepted"] == 1
    live.service.store.counter.write()
    answer = live.get("/history").json()
    assert answer["unit"] == "USD"
    assert sum(row["spent"] for row in answer["items"]) == pytest.approx(0.75, abs=1e-9)
    live.epoch()
    assert live.get("/history").json()["items"][-1]["bandwidth"] is None
    metrics = live.client.get("/metrics").text
    assert 'recrawl_budget_per_day{unit="USD"} 4.0' in metrics
    assert "recrawl_bandwidth_crawls_per_day" not in metrics


def test_a_budget_of_crawls_shows_no_spend(served):
    live = served("100 crawls")
    report(live, price="USD 0.25", bytes=10)
    live.epoch()
    live.service.store.counter.write()
    answer = live.get("/history").json()
    assert (answer["unit"], {row["spent"] for row in answer["items"]}) == ("crawls", {None})
    metrics = live.client.get("/metrics").text
    assert "recrawl_bandwidth_crawls_per_day 100.0" in metrics
    assert 'recrawl_budget_per_day{unit="crawls"} 100.0' in metrics


def test_what_was_spent_before_a_change_of_unit_is_in_no_other_unit(served):
    live = served("10 KB")
    live.register(NEWS)
    report(live, bytes=9_000)
    live.service.runner.run_once()
    order = {"budget": "0.05 USD", "change_unit": True}
    assert live.client.put("/budget", json=order).is_success
    report(live, hours=0.02, bytes=9_000)
    live.epoch()
    live.clock.advance(minutes=10)
    live.service.runner.run_once()
    state = live.get("/status").json()
    assert (state["today"]["spent"], state["today"]["n_reported"]) == (None, 2)
    assert [each["kind"] for each in state["needs_you"] if "budget" in each["kind"]] == []
    assert {row["spent"] for row in live.get("/history").json()["items"]} == {None}
    assert "recrawl_step_spent{" not in live.client.get("/metrics").text
    report(live, hours=0.5, price="USD 0.02")
    live.clock.advance(minutes=10)
    live.service.runner.run_once()
    items = live.get("/history").json()["items"]
    assert [row["spent"] for row in items if row["spent"]] == [0.02]
    assert live.get("/history", step_s=86_400).json()["items"][-1]["spent"] is None
    assert 'recrawl_step_spent{unit="USD"} 0.02' in live.client.get("/metrics").text
    report(live, hours=24, price="USD 0.01")
    live.service.store.counter.write()
    assert live.get("/status").json()["today"]["spent"] == 0.01
