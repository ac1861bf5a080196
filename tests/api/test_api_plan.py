"""Plans of other bandwidths over HTTP: equal to epochs, one at a time, refused by name."""

import asyncio

import pytest
from support.live_server import Live, running

import recrawl_client as rc
from service.api.routes import plan as route


def fleet(api: Live) -> list[int]:
    """Two hosts of pages with two crawls each; one page has a tag, one a minimum."""
    ids = api.register(*(f"https://{h}.example/{i}" for h in "ab" for i in range(4)))
    api.register("https://a.example/0", tags=["news"], importance=20)
    api.register("https://b.example/0", min_crawl_rate=0.5)
    for hours in (30, 2):
        at = (api.clock.now.replace(hour=12) - hours * api.clock.now.resolution * 3.6e9).isoformat()
        crawls = [
            {"page_id": page_id, "observed_at": at, "digest": f"{hours * (page_id % 2)}"}
            for page_id in ids
        ]
        assert api.post("/observations", crawls).status_code == 200
    for _ in range(3):
        api.epoch()
    return ids


def test_a_plan_is_what_the_service_publishes_at_that_bandwidth(api: Live):
    ids = fleet(api)
    answer = api.get("/plan", bandwidth=[2, 16, 0.4])
    assert answer.status_code == 200
    plan = answer.json()
    latest = api.get("/epochs/latest").json()
    assert (plan["epoch"], plan["n_pages"], plan["n_hosts"]) == (latest["epoch"], 8, 2)
    assert plan["at"] == "2026-05-01T12:00:00Z"
    assert plan["min_bandwidth"] == 0.5
    figures = ("bandwidth", "bandwidth_used", "multiplier", "harmonic_cost", "binary_cost")
    for name in figures:
        assert plan["in_force"][name] == pytest.approx(latest[name], rel=1e-9), name
    for item in plan["items"][:2]:
        budget = {"budget": f"{item['bandwidth']} crawls"}
        assert api.client.put("/budget", json=budget).is_success
        epoch = api.epoch()
        for name in figures:
            assert item[name] == pytest.approx(epoch[name], rel=1e-9), name
        crawls = {row["page_id"]: row["crawl_rate"] for row in api.schedule()}
        by_host = {
            host: sum(crawls[page] for page in pages)
            for host, pages in (("a.example", ids[:4]), ("b.example", ids[4:]))
        }
        planned = {host["host"]: host["crawl_rate"] for host in item["hosts"]}
        assert planned == pytest.approx(by_host, rel=1e-6)
        (tag,) = item["tags"]
        assert (tag["tag"], tag["n_pages"]) == ("news", 1)
        assert tag["crawl_rate"] == pytest.approx(crawls[ids[0]], rel=1e-6)
    starving = plan["items"][2]
    assert (starving["feasible"], starving["n_starved"]) == (False, 1)
    assert starving["starved"] == [{"page_id": ids[4], "min_crawl_rate": 0.5}]
    assert starving["harmonic_cost"] is None


@pytest.mark.dear
def test_a_plan_writes_nothing(api: Live):
    fleet(api)
    before = api.get("/epochs").json(), api.schedule()
    api.get("/plan", bandwidth=[1, 2, 3])
    assert (api.get("/epochs").json(), api.schedule()) == before


def test_before_the_first_epoch_there_is_no_plan(sqlite_api: Live):
    answer = sqlite_api.get("/plan", bandwidth=1)
    assert answer.status_code == 404
    assert "POST /epochs" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "field", "remedy"),
    [
        ("", "bandwidth", "bandwidth is missing; send 1 to 10 values, each a number from 0.00"),
        ("bandwidth=", "bandwidth", 'bandwidth is ""; send 1 to 10 values, each a number'),
        ("bandwidth=1&bandwidth=x", "bandwidth", 'bandwidth is "x"; send'),
        ("bandwidth=0", "bandwidth", 'bandwidth is "0"; send'),
        ("bandwidth=-1", "bandwidth", 'bandwidth is "-1"; send'),
        ("bandwidth=nan", "bandwidth", 'bandwidth is "nan"; send'),
        ("bandwidth=inf", "bandwidth", 'bandwidth is "inf"; send'),
        ("bandwidth=1e16", "bandwidth", 'bandwidth is "1e16"; send'),
        ("bandwidth=1,2", "bandwidth", 'bandwidth is "1,2"; send'),
        (
            "&".join(["bandwidth=1"] * 11),
            "bandwidth",
            "bandwidth is a list of 11 items; send 1 to 10 values",
        ),
        ("bandwidth=1&limit=1001", "limit", 'limit is "1001"; send a whole number from 0 to 1,000'),
        ("bandwidth=1&host=a", "host", "host: no such parameter; remove it, there are bandwidth,"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(shared: Live, query, field, remedy):
    answer = shared.client.get(f"/plan?{query}")
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["field"] == field
    assert problem["detail"].startswith(remedy)


def test_one_plan_is_computed_at_a_time_and_a_request_that_waits_too_long_is_turned_away(
    sqlite_api: Live, monkeypatch
):
    fleet(sqlite_api)
    service = sqlite_api.service
    monkeypatch.setattr(route, "WAIT_S", 0.01)

    async def busy():
        async with service.planning:
            with pytest.raises(route.Overloaded, match="other plans"):
                await route.read_plan(service, [1.0], 1)
        return await route.read_plan(service, [1.0], 1)

    assert asyncio.run(busy()).items[0].bandwidth == 1.0
    assert not service.planning.locked()
    monkeypatch.setattr(service.what_if, "ask", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(route.read_plan(service, [1.0], 1))
    assert not service.planning.locked()


def test_a_store_with_more_pages_than_a_plan_takes_is_answered_501(sqlite_api: Live, monkeypatch):
    fleet(sqlite_api)
    monkeypatch.setattr(sqlite_api.service.what_if, "max_pages", 7)
    answer = sqlite_api.get("/plan", bandwidth=1)
    assert answer.status_code == 501
    assert answer.json()["type"].endswith("#plan-too-large")
    assert "8 pages" in answer.json()["detail"]


@pytest.mark.dear
def test_both_clients_ask_for_plans(sqlite_url):
    with running(sqlite_url) as live:
        fleet(live)
        with rc.Client(live.url) as client:
            answer = client.plan(2, 0.4, limit=1)

        async def ask():
            async with rc.AsyncClient(live.url) as client:
                return await client.plan(2, 0.4, limit=1)

        assert asyncio.run(ask()) == answer
    assert [item.feasible for item in answer.items] == [True, False]
    assert len(answer.items[0].hosts) == 1
