"""Savings over HTTP: numbers of a log, and what a short log lacks."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.live_server import START, Live, running
from support.savings_cases import FAST, URLS, crawl, crawled, play, report

from service.api.responses.savings import sentence
from service.core.savings import Ratio
from service.history.savings import Compared, Savings, _missing


def test_a_fleet_that_crawls_what_changes_saves(api: Live):
    play(api, 61)
    answer = api.get("/savings").json()
    assert answer["missing"] is None
    assert answer["n_pages"] == 20
    assert answer["n_crawls"] == FAST * 60 + 15 * 6
    assert answer["n_changes"] == FAST * 60
    assert answer["crawl_interval"] == pytest.approx(20 * 60 / answer["n_crawls"])
    for name in ("harmonic", "stale"):
        compared = answer[name]
        assert compared["saved"] == pytest.approx(1 - compared["fleet"] / compared["uniform"])
        assert 0 < compared["low"] <= compared["saved"] <= compared["high"]
    # a change at a random time of each day: stale half of it, a quarter of the pages
    assert answer["stale"]["fleet"] == pytest.approx(0.25 * 0.5, abs=0.04)
    assert answer["sentence"].startswith("In 60 days this fleet's copies had")
    short = api.get("/savings", since=(api.clock.now - timedelta(days=45)).isoformat()).json()
    assert short["sentence"].startswith("In 45 days this fleet's copies had")
    assert answer["sentence"].endswith(
        "By the log and the estimated change rates; importance equal."
    )
    assert answer["equal_importance"] is True


def test_an_answer_is_given_again_for_ten_minutes(api: Live):
    play(api, 31)
    first = api.get("/savings").json()
    api.clock.advance(minutes=9)
    crawl(api, URLS, 99)
    assert api.get("/savings").json() == first
    api.clock.advance(minutes=2)
    assert api.get("/savings").json()["at"] != first["at"]


def test_a_short_log_is_no_comparison(api: Live):
    empty = api.get("/savings").json()
    assert (empty["n_pages"], empty["harmonic"], empty["crawl_interval"]) == (0, None, None)
    assert "no page has a copy in this window" in empty["sentence"]
    api.clock.advance(minutes=11)
    api.register(*URLS)
    crawl(api, URLS, 0)
    api.clock.advance(days=2)
    crawl(api, URLS, 1)
    answer = api.get("/savings").json()
    assert answer["missing"] == (
        "the log has 1.0 crawls a page in this window, and 3 are needed: wait for 4 days more"
    )
    since = (api.clock() - timedelta(days=1)).isoformat()
    assert api.get("/savings", since=since).json()["missing"].endswith(" more, or begin earlier")
    assert answer["sentence"] == f"Not enough log yet: {answer['missing']}."
    assert answer["stale"] is None


def test_pages_that_are_gone_or_without_content_are_left_out(api: Live):
    play(api, 31)
    before = api.get("/savings").json()["n_pages"]
    for hours in (1, 30, 60):
        at = api.clock.advance(hours=hours).isoformat()
        lost = {"url": URLS[0], "observed_at": at, "status": 404}
        refused = {"url": URLS[9], "observed_at": at, "status": 403}
        api.post("/observations", [lost, refused])
    answer = api.get("/savings").json()
    assert (before, answer["n_pages"]) == (20, 18)


@pytest.mark.parametrize(
    "since", ["2026-05-01T11:30:00Z", "2027-01-01T00:00:00Z", "1990-01-01T00:00:00Z"]
)
def test_a_window_has_an_hour_to_ten_years(api: Live, since):
    refused = api.get("/savings", since=since)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("since is ")


def test_importance_weighs(api: Live):
    api.post("/pages", [{"url": URLS[0], "importance": 1000.0}])
    play(api, 61)
    answer = api.get("/savings").json()
    assert answer["equal_importance"] is False
    assert answer["sentence"].endswith("importance as set.")
    # nearly all of the weight is on a page that changes at least once a day, and is crawled daily
    assert answer["stale"]["fleet"] == pytest.approx(0.6, abs=0.12)
    assert np.isfinite(answer["harmonic"]["low"])


def saved(compared: Compared, **fields) -> Savings:
    """Return savings of 20 pages in 90 days, with other fields."""
    usual = Savings(
        at=START,
        since=START - timedelta(days=90),
        begun_at=START - timedelta(days=90),
        n_pages=20,
        n_crawls=240,
        n_changes=150,
        crawl_interval=0.001,
        equal_importance=True,
        sampled_share=1.0,
        harmonic=compared,
        stale=compared,
        missing=None,
    )
    return replace(usual, **fields)


def test_a_difference_that_may_be_chance_is_a_whole_sentence():
    compared = Compared(0.2, 0.19, Ratio(1.14, 0.9, 1.3))
    savings = saved(compared, begun_at=START - timedelta(minutes=12))
    assert sentence(savings).startswith(
        "In 12 minutes this fleet's copies had 14% more staleness than if every page had been "
        "crawled equally often, with the same 240 crawls (which may be chance); copies"
    )


def played(live: Live, fast: list[str], slow: list[str], prices=(None, None), days=61):
    """Crawl fast pages daily and slow ones every tenth day, at prices."""
    live.register(*fast, *slow)
    at = [START + timedelta(days=day) for day in range(days)]
    live.clock.now = at[-1]
    for day, now in enumerate(at):
        items = crawled(now, [*fast, *slow], day)[: None if day % 10 == 0 else len(fast)]
        priced = zip(items, [prices[0]] * len(fast) + [prices[1]] * len(slow), strict=False)
        report(live, [item | ({} if cost is None else {"price": cost}) for item, cost in priced])
    return live.get("/savings").json()


def test_uniform_crawling_spends_the_same_money(database_url):
    with running(database_url, budget="60 USD", host_delay_s=0) as live:
        answer = played(live, URLS[:FAST], URLS[FAST:], prices=(0, 1.0))
        page = live.client.get("/console/savings").text
    assert (answer["unit"], answer["n_crawls"], answer["n_cut"]) == ("USD", 390, 0)
    assert answer["spent"] == pytest.approx(15 * 6)
    assert answer["n_uniform"] == pytest.approx(20 * 6, abs=1)
    assert answer["crawl_interval"] == pytest.approx(10.0, rel=0.01)
    assert "for the same 90 USD, with 120 in place of 390 crawls; copies" in answer["sentence"]
    assert answer["sentence"].split(";")[0].partition("than")[2] in page


def test_uniform_crawling_keeps_the_delays_of_hosts(database_url):
    slow = [f"https://slow.example/{n}" for n in range(15)]
    with running(database_url, bandwidth=1000.0, host_delay_s=0) as live:
        live.client.put("/hosts/slow.example", json={"min_delay_s": 86_400.0})
        answer = played(live, URLS[:FAST], slow)
    assert answer["n_cut"] == 15
    assert answer["n_uniform"] == answer["n_crawls"] == 390
    # the other host has the rest, which is what the fleet gave it
    assert answer["harmonic"]["saved"] == pytest.approx(0.0, abs=0.1)
    assert (
        "equally often, as far as the delays, windows and caps of hosts allow, with the"
        in (answer["sentence"])
    )


@pytest.mark.parametrize(
    ("crawls", "changes", "wait"),
    [
        (150, 0, "the log has 150 crawls, and 200 are needed: wait for 10 hours more"),
        (
            400,
            80,
            "crawls found 80 changes, and 100 are needed to compare: wait for 7.5 hours more",
        ),
        (400, 0, "crawls found 0 changes, and 100 are needed to compare"),
    ],
)
def test_what_a_log_lacks_has_the_time_until_it_has_it(crawls, changes, wait):
    assert _missing(20, crawls, changes, 25.0, 1.25, crawled_before=False) == wait


def test_a_log_that_grows_too_slowly_has_no_time_of_years():
    begun = _missing(20, 400, 1, 1_800.0, 90.0, crawled_before=True)
    needed = "crawls found 1 change, and 100 are needed to compare"
    assert begun == f"{needed}: at this rate it takes more than a year; begin earlier"


def test_the_sentence_of_a_sample_names_its_share():
    compared = Compared(0.1, 0.2, Ratio(0.5, 0.4, 0.6))
    same = "with the same 132,156 crawls"
    sample = saved(compared, n_crawls=132_156, sampled_share=0.4)
    assert f"{same} (in a sample of 40% of the pages); copies" in sentence(sample)
    assert f"{same}; copies" in sentence(replace(sample, sampled_share=1.0))


def test_what_another_crawler_saved_before_the_registration_does_not_count(api: Live):
    at = [START - timedelta(days=40 - day) for day in range(40)]
    report(api, [item for k, now in enumerate(at) for item in crawled(now, URLS, k)])
    answer = api.get("/savings").json()
    assert (answer["n_crawls"], answer["harmonic"]) == (0, None)
    assert (
        "no page has been crawled again since its registration in this window" in answer["sentence"]
    )
