"""Figures before there is evidence: nobody sees a freshness, and sums keep to the budget."""

import pytest
from support.live_server import Live, running

import recrawl_client as rc
from service.cli.state import lines, state_of

URLS = [f"https://{host}.example/{n}" for host in "ab" for n in range(3)]
GAUGES = (
    *("fresh_share", "fresh_share_plain"),
    *("harmonic_staleness", "harmonic_staleness_plain"),
)


def crawl(api: Live, *urls: str, digest: str = "a") -> None:
    """Report a crawl of pages now."""
    at = api.clock.advance(hours=1).isoformat()
    items = [{"url": url, "observed_at": at, "digest": f"{digest} of {url}"} for url in urls]
    assert api.post("/observations", items).json()["n_rejected"] == 0


def told(api: Live) -> dict[str, float | None]:
    """Return each freshness that the service tells."""
    state, plan = api.get("/status").json(), api.get("/plan", bandwidth=2).json()
    api.service.runner.history.keep()
    gauges = [row for row in api.get("/history").json()["items"] if row["measured_at"]][-1]
    return (
        {f"status.{name}": state[name] for name in GAUGES[:3]}
        | {f"plan.{name}": plan["items"][0][name] for name in ("fresh_share", "binary_cost")}
        | {f"history.{name}": gauges[name] for name in GAUGES}
    )


def fresh_line(api: Live) -> str:
    """Return what `recrawl status` says about freshness."""
    with rc.Client(api.url) as client:
        return dict(lines(state_of(client)))["fresh"]


def test_no_freshness_is_told_before_a_page_is_crawled_a_second_time(api: Live):
    api.register(*URLS)
    api.epoch()
    assert set(told(api).values()) == {None}
    assert fresh_line(api) == "no page has a copy yet"
    assert "recrawl_expected_fresh_ratio{" not in api.get("/metrics").text
    crawl(api, *URLS)
    api.clock.advance(minutes=10)
    api.epoch()
    assert set(told(api).values()) == {None}
    assert fresh_line(api) == "not known before a page is crawled a second time"
    pings = [{"url": URLS[1], "changed_at": api.clock().isoformat()}]
    assert api.post("/pings", pings).json()["accepted"] == 1
    assert set(told(api).values()) == {None}, "a ping shows no change until a crawl has found it"
    crawl(api, URLS[0])
    api.clock.advance(minutes=10)
    api.epoch()
    assert None not in told(api).values()
    n = len(URLS)
    assert api.get("/status").json()["n_assumed"] == n - 1
    rest = f"% of pages, by importance; the change rates of {n - 1} of {n} pages are assumed"
    assert fresh_line(api).endswith(rest)
    assert f"the change rates of {n - 1} of {n} pages are assumed" in api.get("/console").text


def test_a_page_without_a_copy_is_not_fresh_in_any_view(api: Live):
    api.register(*URLS)
    for _ in range(2):
        crawl(api, *URLS[:2])
    api.clock.advance(minutes=10)
    api.epoch()
    shares = [share for name, share in told(api).items() if "fresh_share" in name]
    assert len(shares) == 5
    assert all(share is not None and 0.2 < share < 1 / 3 for share in shares)


def test_held_pages_are_not_fresh_in_a_plan_either(database_url):
    with running(database_url, admission="learned") as api:
        api.register(*(f"https://a.example/x/{n}" for n in range(100)))
        for _ in range(2):
            crawl(api, *(f"https://a.example/x/{n}" for n in range(10)))
        api.clock.advance(minutes=10)
        api.epoch()
        state, plan = api.get("/status").json(), api.get("/plan", bandwidth=30).json()
        assert api.get("/url-groups").json()["items"][0]["n_waiting"] > 50
        shares = state["fresh_share"], plan["items"][0]["fresh_share"]
        assert all(0.08 < share < 0.1 for share in shares), shares


def test_before_the_first_copy_a_plan_spends_the_budget_on_first_crawls(api: Live):
    api.register(*URLS)
    api.epoch()
    plan = api.get("/plan", bandwidth=4).json()
    item = plan["items"][0]
    assert (plan["n_copies"], plan["n_assumed"]) == (0, 6)
    assert (item["planned"], item["bandwidth_used"], item["first_crawls"]) == (0, 0, 4)
    assert {host["crawl_rate"] for host in item["hosts"]} == {0}


def test_crawls_a_day_of_hosts_are_those_of_the_plan_and_within_the_budget(api: Live):
    """New pages have a rate too, which holds from their first crawls on."""
    assert api.client.put("/budget", json={"budget": "3 crawls"}).is_success
    api.register(*URLS)
    for _ in range(2):
        crawl(api, *URLS[:1], *URLS[3:5])
    api.clock.advance(minutes=10)
    api.epoch()
    in_force = api.get("/plan", bandwidth=3).json()["in_force"]
    planned = {host["host"]: host["crawl_rate"] for host in in_force["hosts"]}
    rows = {row["url"]: row["crawl_rate"] for row in api.schedule()}
    assert all(rate > 0 for rate in rows.values())

    def of_hosts() -> dict[str, float]:
        return {host: api.get(f"/hosts/{host}").json()["crawl_rate"] for host in planned}

    assert of_hosts() == pytest.approx(planned, rel=1e-6)
    assert sum(planned.values()) == pytest.approx(in_force["bandwidth_used"], rel=1e-6)
    assert sum(planned.values()) < 3
    crawl(api, *URLS)  # until the next epoch, first copies have no part of the budget
    assert of_hosts() == pytest.approx(planned, rel=1e-6)


@pytest.mark.parametrize("rule", ["stop", None])
def test_pages_of_a_stopped_group_count_in_no_freshness(database_url, rule):
    with running(database_url, admission="learned", host_delay_s=0, host_concurrency=0) as api:
        good = [f"https://a.example/x/{n}" for n in range(40)]
        api.register(*good)
        for _ in range(2):
            crawl(api, *good)
        api.register(*(f"https://a.example/s/list?id={n}" for n in range(100)))
        if rule is None:
            while leased := api.post("/leases", {"count": 100}).json()["items"]:
                for each in leased:
                    at = api.clock.advance(seconds=1).isoformat()
                    item = {"lease": each["lease"], "observed_at": at, "digest": "one of the trap"}
                    assert api.post("/observations", [item]).json()["accepted"] == 1
        else:
            body = {"group": "https://a.example/s/", "rule": rule}
            assert api.client.put("/url-groups", json=body).is_success
        api.clock.advance(minutes=10)
        api.epoch()
        group = api.get("/url-groups", prefix="a.example/s/list").json()["items"][0]
        assert group["n_waiting"] > 60
        state, plan = api.get("/status").json(), api.get("/plan", bandwidth=30).json()
        assert state["n_stopped"] == group["n_waiting"]
        assert state["n_never_crawled"] == group["n_waiting"] + group["n_in_flight"]
        row = api.get("/history").json()["items"][-1]
        assert row["n_stopped"] == group["n_waiting"], "also where more than 20,000 are counted"
        shares = state["fresh_share"], state["fresh_share_plain"], plan["items"][0]["fresh_share"]
        assert all(share > 0.8 for share in shares), shares


def test_status_and_plan_count_the_same_assumed_rates_beside_stopped_pages(database_url):
    with running(database_url, admission="learned") as api:
        urls = [f"https://a.example/x/{n}" for n in range(100)]
        api.register(*urls)
        crawl(api, *urls[:40])
        stop = {"group": "https://a.example/x/", "rule": "stop"}
        assert api.client.put("/url-groups", json=stop).status_code == 200
        crawl(api, urls[0])
        api.clock.advance(minutes=10)
        api.epoch()
        plan = api.get("/plan", bandwidth=2).json()
        assert (api.get("/status").json()["n_assumed"], plan["n_assumed"]) == (99, 99)
