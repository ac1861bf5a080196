"""Pages without content, moved pages and pages that robots.txt forbids, over HTTP."""

import csv
import json
from datetime import timedelta

import pytest
from support.live_server import Live, lease_freely, running

PAGE = "https://a.example/members"
OTHER = "https://b.example/"
NEW = "https://a.example/new"


@pytest.fixture
def live(database_url, monkeypatch):
    """A service that has no politeness of its own, and two crawls a day."""
    for name, value in {"BANDWIDTH": "2", "HOST_DELAY_S": "0", "HOST_CONCURRENCY": "0"}.items():
        monkeypatch.setenv(f"RECRAWL_{name}", value)
    with running(database_url) as served:
        lease_freely(served)  # the plan has two crawls a day
        yield served


def report(live: Live, url=PAGE, hours=6.0, **found):
    """Report a crawl some hours after the last one."""
    live.clock.advance(hours=hours)
    item = {"url": url, "observed_at": live.clock().isoformat(), **found}
    answer = live.post("/observations", [item]).json()
    assert answer["accepted"] == 1, answer
    return answer


def page(live: Live, url=PAGE):
    return live.get("/pages", url=url).json()


def why(live: Live, url=PAGE):
    return page(live, url)["why"]["sentence"]


def listed(live: Live, **filters):
    return [item["url"] for item in live.get("/pages", **filters).json()["items"]]


def lose_content(live: Live, n=3, *, had=True, **found):
    """Two pages, one of which has no content in its last n crawls."""
    live.register(PAGE, OTHER)
    report(live, OTHER, digest="1")
    if had:
        report(live, digest="1")
    live.epoch()
    for _ in range(n):
        report(live, **(found or {"status": 403}))
    live.epoch()


def test_lists_know_pages_without_content(live):
    lose_content(live)
    assert listed(live, state="no_content") == [PAGE]
    assert listed(live, state="failing") == []
    assert listed(live, state="active") == [OTHER]
    assert live.get("/pages", state="no_content", count="exact").json()["count"] == 1
    assert [item["state"] for item in live.get("/pages").json()["items"]] == [
        "no_content",
        "active",
    ]
    report(live, digest="2")
    assert listed(live, state="no_content") == []
    assert listed(live, state="active") == [PAGE, OTHER]


def test_two_crawls_without_content_are_failures(live):
    lose_content(live, 2)
    assert listed(live, state="failing") == [PAGE]
    assert (page(live)["no_content"], page(live)["schedule"]["crawl_rate"] > 0) == (False, True)


def test_the_share_goes_to_the_others_and_comes_back(live):
    lose_content(live)
    rates = {item["url"]: item["crawl_rate"] for item in live.schedule()}
    # three crawls a day that teach nothing leave a tenth of the bandwidth of 2
    assert rates == {PAGE: 0, OTHER: pytest.approx(0.2)}
    assert page(live)["no_content"] is True
    assert page(live)["schedule"]["next_crawl_at"] is not None
    report(live, digest="2")
    back = page(live)
    assert (back["no_content"], back["n_failures"]) == (False, 0)
    assert back["schedule"]["crawl_rate"] == 0
    assert back["schedule"]["next_crawl_at"] is not None
    assert "It has content again" in why(live)
    live.epoch()
    assert page(live)["schedule"]["crawl_rate"] > 0.1


@pytest.mark.dear
@pytest.mark.parametrize(
    ("found", "begin", "because"),
    [
        ({"status": 403}, "Have your crawler let in", "because the site refuses it"),
        ({"status": 402}, "Set a budget of money", "because the site asks for payment (402)"),
        ({"robots_denied": True}, "Ask its site for leave", "because robots.txt forbids it"),
        (
            {"status": 302},
            "Register the page behind the redirect",
            "because it redirects elsewhere",
        ),
        ({"status": 503}, "Look after the site", "failed with status 503"),
    ],
)
@pytest.mark.parametrize("had", [True, False])
def test_why_begins_with_what_to_do_and_says_nothing_about_changes(
    live, found, begin, because, had
):
    lose_content(live, had=had, **found)
    sentence = why(live)
    assert sentence.startswith(begin)
    assert f"its last 3 crawls {because}" in sentence or because in sentence
    assert "changes" not in sentence
    assert page(live)["why"]["next_change_expected_in_days"] is None


@pytest.mark.dear
@pytest.mark.parametrize("n_pings", [1, 40])
def test_why_names_robots_txt_however_many_pings_follow_the_crawl(live, n_pings):
    lose_content(live, robots_denied=True)
    for _ in range(n_pings):
        at = live.clock.advance(minutes=1).isoformat()
        assert live.post("/pings", [{"url": PAGE, "changed_at": at}]).is_success
    assert "because robots.txt forbids it" in why(live)
    shown = page(live)["last_crawls"]
    assert [entry["kind"] for entry in shown].count("ping") == min(n_pings, 10)
    report(live, status=403)
    assert "because the site refuses it" in why(live)


@pytest.mark.dear
def test_a_page_that_has_never_had_content_is_not_said_to_change(live):
    lose_content(live, 1, had=False)
    assert "its last crawl got no content" in why(live)
    assert "it has had no content yet" in why(live)
    assert "changes" not in why(live)


@pytest.mark.dear
def test_a_lease_comes_when_the_retry_is_due_and_not_before(live):
    lose_content(live, status=500)
    (due,) = {page(live)["schedule"]["next_crawl_at"]}
    items = live.client.post("/leases", json={"count": 10}).json()["items"]
    assert PAGE not in {item["url"] for item in items}
    live.clock.advance(hours=4)
    live.epoch()
    items = live.client.post("/leases", json={"count": 10}).json()["items"]
    assert PAGE in {item["url"] for item in items}, due


def test_freshness_asks_for_no_fetch_before_the_retry_is_due(live):
    lose_content(live, status=500)
    copies = [{"url": PAGE, "max_stale": 0.0}, {"url": OTHER, "max_stale": 0.0}]
    first, other = live.client.post("/freshness", json=copies).json()["verdicts"]
    assert (first["no_content"], first["fetch"]) == (True, False)
    assert (other["no_content"], other["fetch"]) == (False, True)
    live.clock.advance(days=40)
    first, _ = live.client.post("/freshness", json=copies).json()["verdicts"]
    assert (first["no_content"], first["fetch"]) == (True, True)


@pytest.mark.dear
def test_moved_pages_are_listed_with_their_targets(live):
    live.register(PAGE, OTHER)
    report(live, OTHER, digest="1")
    for _ in range(2):
        report(live, status=301, redirect_url=NEW)
    (moved,) = live.get("/pages", state="moved").json()["items"]
    assert (moved["url"], moved["state"], moved["redirect_url"]) == (PAGE, "gone", NEW)
    others = [item for item in live.get("/pages").json()["items"] if item["url"] != PAGE]
    assert {item["redirect_url"] for item in others} == {None}
    text = live.client.get("/pages", params={"state": "moved"}, headers={"Accept": "text/csv"}).text
    (row,) = csv.DictReader(text.splitlines())
    assert row["redirect_url"] == NEW
    lines = live.client.get(
        "/pages", params={"state": "moved"}, headers={"Accept": "application/x-ndjson"}
    ).text
    assert json.loads(lines)["redirect_url"] == NEW
    report(live, hours=48, digest="1")
    assert listed(live, state="moved") == []


def test_acts_on_many_pages_take_the_new_states(live):
    lose_content(live)
    answer = live.client.request("DELETE", "/pages", params={"state": "no_content"}).json()
    assert (answer["matched"], answer["changed"]) == (1, 1)
    assert listed(live) == [OTHER]


# -- robots.txt


def test_a_page_that_robots_txt_forbids_has_no_status_in_its_log(live):
    live.register(PAGE)
    report(live, robots_denied=True)
    (crawl,) = page(live)["last_crawls"]
    assert (crawl["status"], crawl["robots_denied"], crawl["changed"]) == (None, True, None)
    log = live.get(f"/pages/{page(live)['page_id']}/observations").json()["items"]
    assert [(entry["status"], entry["robots_denied"]) for entry in log] == [(None, True)]
    report(live, status=403)
    crawl, _ = page(live)["last_crawls"]
    assert (crawl["status"], crawl["robots_denied"]) == (403, False)


@pytest.mark.parametrize(
    "more",
    [
        {"digest": "2"},
        {"changed": True},
        {"status": 200, "digest": "2"},
        {"status": 503, "retry_after_s": 600},
        {"status": 404},
        {"redirect_url": NEW},
        {"status": 301, "redirect_url": NEW},
        {"etag": '"x"', "last_modified": "2026-05-01T00:00:00Z"},
    ],
)
def test_robots_denied_wins_over_what_else_the_item_says(live, more):
    live.register(PAGE)
    report(live, digest="1")
    report(live, robots_denied=True, **more)
    found = page(live)
    assert (found["gone"], found["n_failures"], found["redirects_to"]) == (False, 1, None)
    assert (found["etag"], found["last_crawls"][0]["robots_denied"]) == (None, True)
    assert live.get("/pages", url=NEW).status_code == 404
    assert live.get("/hosts/a.example").json()["host_queue"]["paused_until"] is None
    report(live, digest="1")
    assert page(live)["last_crawls"][0]["changed"] is False


def test_robots_denied_false_is_as_if_it_were_not_there(live):
    live.register(PAGE)
    report(live, robots_denied=False, digest="1")
    assert page(live)["n_failures"] == 0
    live.clock.advance(hours=1)
    item = {"url": PAGE, "observed_at": live.clock().isoformat(), "robots_denied": False}
    answer = live.post("/observations", [item])
    assert answer.json()["rejected"][0]["code"] == "no_evidence"
    assert "robots_denied" in answer.json()["rejected"][0]["detail"]


def test_a_denied_crawl_ends_its_lease_and_leaves_its_host_alone(live):
    live.register(PAGE)
    (crawl,) = live.client.post("/leases", json={"count": 1}).json()["items"]
    at = (live.clock() + timedelta(seconds=1)).isoformat()
    item = {"lease": crawl["lease"], "observed_at": at, "robots_denied": True}
    answer = live.post("/observations", [item]).json()
    assert (answer["accepted"], answer["leases_ended"]) == (1, 1)
    queue = live.get("/hosts/a.example").json()["host_queue"]
    assert (queue["n_failures"], queue["paused_until"]) == (0, None)


def test_robots_denied_travels_in_ndjson(live):
    live.register(PAGE)
    live.clock.advance(hours=1)
    line = {"url": PAGE, "observed_at": live.clock().isoformat(), "robots_denied": True}
    answer = live.client.post(
        "/observations",
        content=json.dumps(line) + "\n",
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert answer.json()["accepted"] == 1
    assert page(live)["last_crawls"][0]["robots_denied"] is True
