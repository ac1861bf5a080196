"""What holds pages, over HTTP, in the command and in the console."""

import json
import re
from datetime import timedelta

import pytest
from support.live_server import Live, running

A, B = "https://a.example/", "https://b.example/"
ADMIN = "an-administrator-of-the-tests"


@pytest.fixture
def live(database_url):
    with running(database_url) as live:
        yield live


@pytest.fixture
def guarded(database_url):
    """A service with keys."""
    with running(database_url, api_keys=(ADMIN,)) as live:
        yield live


def why(live: Live, url=A):
    return live.get("/pages", url=url).json()["why"]


def explained(live: Live, headers=None, **asked):
    answer = live.client.get("/leases", params={"explain": True, **asked}, headers=headers)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["items"], body["next_cursor"]) == ([], None)
    return body["explanation"]


def lease(live: Live, **asked):
    return live.client.post("/leases", json=asked).json()["items"]


def kinds(explanation):
    return {held["hold"]: (held["n_pages"], held["n_hosts"]) for held in explanation["holds"]}


def pause(live: Live, host: str, until: str | None):
    answer = live.client.patch(f"/hosts/{host}", json={"blocked_until": until})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("days", [[2], [4, 3], [9, 4, 3, 1]])
def test_past_crawls_in_one_report_wait_for_the_next_epoch(live, days):
    """Shareless because the page had no copy when the epoch began: nothing is to be done."""
    urls = [f"{A}news/{n}" for n in range(60)]
    live.register(*urls)
    live.epoch()
    held = next(url for url in urls if "URL group" in why(live, url)["sentence"])
    now = live.clock()
    crawls = [
        {"url": held, "observed_at": (now - timedelta(days=day)).isoformat(), "digest": f"{day}"}
        for day in days
    ]
    assert live.post("/observations", crawls).json()["accepted"] == len(days)
    assert why(live, held)["sentence"].startswith("Nothing to do: ")
    live.epoch()
    assert "no share" not in why(live, held)["sentence"]


def test_pages_beyond_the_queue_ask_for_nothing_to_do(live):
    live.register(A)
    (crawl,) = lease(live, worker="w7")
    report = {"lease": crawl["lease"], "observed_at": live.clock().isoformat(), "digest": "1"}
    assert live.post("/observations", [report]).json()["accepted"] == 1
    live.clock.advance(minutes=1)
    live.service.runner.run_once()
    assert explained(live)["sentence"].startswith("Nothing to do: no page within reach is due")
    assert explained(live, hosts="a.example")["sentence"].startswith("Nothing to do")
    assert explained(live, hosts="other.example")["sentence"].startswith("Register pages, or name")
    settings = {"windows": ["Mon-Sun 23:00-24:00 UTC"]}
    assert live.client.put("/hosts/a.example", json=settings).is_success
    sentence = explained(live)["sentence"]
    assert "the first closed window opens in 11 hours, at 2026-05-01 23:00 UTC" in sentence
    assert "may begin now" not in sentence


def test_a_page_goes_from_no_crawler_over_its_lease_to_its_next_crawl(live, recrawl):
    nothing = explained(live)
    assert nothing["sentence"] == (
        "Register pages, or name other hosts: no page within reach is due."
    )
    live.register(A)
    assert why(live)["hold"] == "no_crawler"
    assert why(live)["sentence"].startswith("Start a crawler: no crawler has ever")
    assert explained(live)["sentence"].startswith("Start a crawler: 1 page is ready; no crawler")
    (crawl,) = lease(live, worker="w7")
    held = why(live)
    assert (held["hold"], held["by"], held["until"]) == ("leased", "w7", crawl["expires_at"])
    leased = explained(live)
    assert (leased["n_due"], leased["n_leased"], leased["holds"]) == (0, 1, [])
    assert "no page within reach is due; the next crawl may begin in" in leased["sentence"]
    report = {"lease": crawl["lease"], "observed_at": live.clock().isoformat(), "status": 503}
    assert live.post("/observations", [report]).json()["accepted"] == 1
    held = why(live)
    assert (held["hold"], held["until"]) == ("not_due", "2026-05-01T13:00:00Z")
    sentence = (
        "Nothing to do: its last crawl failed with status 503; it has had no content yet, and is "
        "tried again in 60 minutes, at 2026-05-01 13:00 UTC."
    )
    assert held["sentence"] == sentence
    shown = recrawl("why", A, url=live.url).out
    assert sentence in " ".join(shown.split())
    assert "next crawl  2026-05-01 13:00:00Z" in shown
    assert "assumed" in shown
    assert sentence in live.get(f"/console/pages/{crawl['page_id']}").text


def test_pages_behind_others_ask_for_a_crawler_too_if_none_comes(live):
    live.register(*(f"{A}{n}" for n in range(5)))
    explanation = explained(live)
    assert kinds(explanation) == {"no_crawler": (1, 1), "host_busy": (4, 1)}
    assert all(each["sentence"].startswith("Start a crawler: ") for each in explanation["holds"])
    assert explanation["sentence"].startswith("Start a crawler: 1 page is ready")


def test_a_lease_that_runs_for_long_names_its_worker(live):
    live.register(*(f"{A}{n}" for n in range(3)))
    (crawl,) = lease(live, worker="w7")
    live.clock.advance(seconds=120)
    assert lease(live, worker="w8") == []
    others = [f"{A}{n}" for n in range(3) if f"{A}{n}" != crawl["url"]]
    answers = [why(live, url) for url in others]
    answers.append(explained(live, hosts="a.example"))
    for each in answers:
        assert each["sentence"].startswith(
            "End its lease by `recrawl leases release --worker w7` if the worker w7 is gone: "
        )
        assert "under a lease that ends in 3 minutes, at 2026-05-01 12:05 UTC" in each["sentence"]
    assert [each["until"] for each in answers[:2]] == [
        "2026-05-01T12:05:01Z",
        "2026-05-01T12:05:02Z",
    ]
    live.client.delete("/leases", params={"worker": "w7"})
    assert all(why(live, url)["sentence"].startswith("Nothing to do: ") for url in others)


def test_pages_of_a_host_are_held_by_their_turn_and_by_pauses(live, recrawl):
    live.register(*(f"{A}{n}" for n in range(5)), B)
    assert len(lease(live, hosts=["c.example"])) == 0
    assert {hold: n for hold, (n, _) in kinds(explained(live)).items()} == {
        "ready": 2,
        "host_busy": 4,
    }
    by_turn = {each["n_before"]: each for each in (why(live, f"{A}{n}") for n in range(5))}
    held = [by_turn[n] for n in range(5)]
    assert [each["hold"] for each in held] == ["ready", *["host_busy"] * 4]
    assert held[3]["sentence"].startswith(
        "Nothing to do: 3 pages of a.example are before it, once every second, so its turn is in "
        "3 seconds, at 2026-05-01 12:00:03 UTC, or later."
    )
    pause(live, "a.example", "2026-05-01T14:00:00Z")
    until = "2026-05-01 14:00 UTC, 2 hours from now"
    sentence = (
        "End the pause by `recrawl hosts resume a.example` if its pages shall be crawled: "
        "an operator has paused a.example until "
        f"{until}"
    )
    assert why(live, f"{A}3")["sentence"].startswith(sentence)
    both, ours, theirs = (
        explained(live, **asked) for asked in ({}, {"hosts": "a.example"}, {"hosts": "b.example"})
    )
    assert kinds(both) == {"host_paused": (5, 1), "ready": (1, 1)}
    assert kinds(ours) == {"host_paused": (5, 1)}
    assert kinds(theirs) == {"ready": (1, 1)}
    assert ours["holds"][0]["by"] == "operator"
    assert ours["sentence"] == (
        "End the pause by `recrawl hosts resume a.example` if its pages shall be crawled: "
        "5 due pages wait, because an operator has "
        f"paused a.example until {until}."
    )
    assert (both["n_due"], both["complete"], both["next_at"]) == (6, True, "2026-05-01T12:00:00Z")
    slices = [explained(live, slice=n, slices=2) for n in (0, 1)]
    assert sorted(each["n_due"] for each in slices) == [1, 5]
    shown = recrawl("leases", "explain", "--host", "a.example", url=live.url)
    assert "host_paused (operator) 5 pages of 1 host: End the pause" in shown.out
    told = recrawl("leases", "explain", "--json", url=live.url).out
    assert json.loads(told) == both


def test_a_host_with_a_cap_and_a_site_that_asks_for_a_pause_are_named(live):
    live.register(A, f"{A}1")
    live.client.patch("/hosts/a.example", json={"max_crawl_rate": 1.0})
    (crawl,) = lease(live)
    live.clock.advance(minutes=1)
    assert why(live, f"{A}1" if crawl["url"] == A else A)["hold"] == "cap"
    assert kinds(explained(live)) == {"cap": (1, 1)}
    report = {"lease": crawl["lease"], "observed_at": live.clock().isoformat(), "status": 429}
    live.post("/observations", [{**report, "retry_after_s": 600}])
    held = why(live, crawl["url"])
    assert (held["hold"], held["by"]) == ("not_due", None)  # the retry comes after the pause
    held = why(live, f"{A}1" if crawl["url"] == A else A)
    assert (held["hold"], held["by"], held["until"]) == (
        "host_paused",
        "site",
        "2026-05-01T12:11:00Z",
    )


def test_a_limited_key_is_told_about_its_own_hosts_only(guarded):
    guarded.register(A, B)
    wish = {"name": "limited", "role": "crawl", "hosts": ["a.example"]}
    headers = {"Authorization": f"Bearer {guarded.post('/keys', wish).json()['key']}"}
    assert explained(guarded, headers, hosts="a.example")["n_due"] == 1
    for query in ({}, {"explain": True}, {"explain": True, "hosts": "b.example"}):
        refused = guarded.client.get("/leases", params=query, headers=headers)
        assert refused.status_code == 403, refused.text
    assert "send explain=true" in guarded.client.get("/leases", headers=headers).json()["detail"]
    wrong = guarded.client.get("/leases", params={"explain": True, "slice": 2, "slices": 2})
    assert wrong.status_code == 422
    assert re.search("slice 2 is not one of 2", wrong.text)


def test_a_requested_page_that_waits_for_a_window_is_named(live):
    live.register(A, B)
    for each in lease(live, count=5):
        report = {"lease": each["lease"], "observed_at": live.clock().isoformat(), "digest": "1"}
        assert live.post("/observations", [report]).json()["accepted"] == 1
    live.clock.advance(minutes=1)
    windows = {"windows": ["Mon-Sun 23:00-24:00 UTC"]}
    assert live.client.put("/hosts/a.example", json=windows).is_success
    assert live.post("/pages/recrawl", {"urls": [A]}).json()["changed"] == 1
    for _ in range(2):
        explanation = explained(live)
        assert kinds(explanation) == {"window_closed": (1, 1)}
        assert (
            "1 due page waits, because window closed until 2026-05-01 23:00 UTC"
            in (explanation["sentence"])
        )
        assert kinds(explained(live, hosts="a.example")) == {"window_closed": (1, 1)}
        assert lease(live) == []
        live.service.runner.run_once()
    live.clock.advance(hours=11)
    live.service.runner.run_once()
    assert [each["url"] for each in lease(live)] == [A]


def test_a_host_that_no_crawler_asks_for_is_named_with_its_wait(live):
    """Crawlers go on with another host, so none is missed."""
    live.register(A)
    live.clock.advance(minutes=9)
    for minutes in (0, 2):
        live.clock.advance(minutes=minutes)
        live.register(f"{B}{minutes}")
        lease(live, hosts=["b.example"])
        sentence = explained(live, hosts=["a.example"])["sentence"]
        if not minutes:
            assert sentence == "Nothing to do: 1 page is ready, and the next request gets it."
    assert sentence == (
        "See whether a crawler asks for a.example: 1 page is ready, and no crawler has taken the "
        "first for 11 minutes."
    )
    live.post("/pages/recrawl", {"urls": [A]})  # its bound is no time since which it waits
    assert "the next request gets it" in explained(live, hosts=["a.example"])["sentence"]
