"""`recrawl plan`: the plans of other bandwidths, as a table and as JSON."""

import json
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from support.live_server import START, Live, running


@pytest.fixture
def planned(sqlite_url) -> Live:
    """A service whose pages have copies, with an epoch in force, a tag and a minimum crawl rate."""
    with running(sqlite_url) as live:
        live.register("https://a.example/1", "https://a.example/2", tags=["news"])
        live.register("https://b.example/1", min_crawl_rate=0.25)
        at = (START - timedelta(days=2)).isoformat()
        crawls = [{"page_id": n, "observed_at": at, "digest": "a"} for n in (1, 2, 3)]
        assert live.post("/observations", crawls).json()["accepted"] == 3
        with capture_logs():
            live.epoch()
        yield live


def test_plans_are_shown_beside_that_in_force(recrawl, planned: Live):
    ended = recrawl("plan", "--bandwidth", "3", "--bandwidth", "0.125", url=planned.url)
    assert ended.status == 0
    lines = [line for line in ended.out.splitlines() if line.strip()]
    assert lines[0] == "3 pages of 2 hosts, by epoch 1; minimum crawl rates need 0.25 crawls a day"
    assert lines.pop(1) == "freshness is not known before a page is crawled a second time"
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line][1:]
    assert [row[0] for row in cells] == ["0.6 now", "3", "0.125"]
    assert [row[1] for row in cells] == ["0", "0", ""]
    assert [row[-1] for row in cells] == ["", "", "1"]
    assert any(
        line.startswith("at 3 a day, crawls by host: a.example 2, b.example 1") for line in lines
    )
    assert any(line.startswith("at 3 a day, crawls by tag: news 2") for line in lines)
    (starving,) = (line for line in lines if line.startswith("0.125: "))
    assert "an epoch would fail" in starving


@pytest.mark.parametrize(("amount", "unit"), [("50 GB", "GB"), ("7 kB", "kB"), ("900 TB", "TB")])
def test_a_budget_in_bytes_fits_into_eighty_columns(sqlite_url, recrawl, monkeypatch, amount, unit):
    with running(sqlite_url, budget=amount) as live:
        live.register(*(f"https://a.example/{n}" for n in range(5)), min_crawl_rate=1)
        at = [(START - timedelta(days=day)).isoformat() for day in (3, 2, 1)]
        crawls = [
            {"page_id": n, "observed_at": each, "digest": each, "bytes": 48_213}
            for n in range(1, 6)
            for each in at
        ]
        assert live.post("/observations", crawls).json()["accepted"] == 15
        with capture_logs():
            live.epoch()
        monkeypatch.setenv("COLUMNS", "80")
        ended = recrawl("plan", url=live.url)
    assert ended.status == 0
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert f"{unit} a day" in ended.out
    assert "…" not in ended.out
    assert f" {amount.split()[0]} now " in ended.out


def test_without_a_bandwidth_multiples_of_that_in_force_are_compared(recrawl, planned: Live):
    answer = json.loads(recrawl("plan", "--json", "--limit", "1", url=planned.url).out)
    bandwidths = [item["bandwidth"] for item in answer["items"]]
    assert bandwidths == pytest.approx([0.3, 0.6, 0.9, 1.2, 2.4])
    assert {len(item["hosts"]) for item in answer["items"]} == {1}
    assert answer == planned.get("/plan", bandwidth=bandwidths, limit=1).json()


def test_before_the_first_epoch_the_command_says_so(recrawl, sqlite_url):
    with running(sqlite_url) as live:
        ended = recrawl("plan", url=live.url)
    assert ended.status == 2
    assert "no epoch has been published yet" in ended.err


@pytest.mark.dear
def test_crawls_that_windows_take_are_printed(recrawl, planned: Live):
    opens = START.replace(minute=0)
    windows = [f"{opens + timedelta(hours=8):%H:%M}-{opens + timedelta(hours=9):%H:%M} UTC"]
    body = {"windows": windows, "min_delay_s": 3_600}
    assert planned.client.patch("/hosts/a.example", json=body).is_success
    planned.epoch()
    ended = recrawl("plan", "--bandwidth", "300", url=planned.url)
    assert "at 300 a day, crawls a day lost to windows: a.example " in ended.out
