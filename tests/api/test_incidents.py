"""Incidents over HTTP: what is told of the host, its pages and the service."""

from datetime import timedelta

import pytest
from support.live_server import Live

N = 12
HOST = "broken.example"
URLS = [f"https://{HOST}/{i}" for i in range(N)]


def report(api: Live, days_ago: float, urls=URLS, **shown):
    """Report crawls that show the same, or else each page's own content."""
    at = (api.clock() - timedelta(days=days_ago)).isoformat()
    items = [
        {"url": url, "observed_at": at, **(shown or {"status": 200, "digest": url})} for url in urls
    ]
    answer = api.post("/observations", items)
    assert answer.status_code == 200, answer.text
    assert answer.json()["accepted"] == len(urls)


def quiet(api: Live):
    api.register(*URLS)
    api.clock.advance(days=6)
    for day in (5, 4, 3):
        report(api, day)
    api.epoch()


def why(api: Live, url: str) -> str:
    return api.get("/pages", url=url).json()["why"]["sentence"]


@pytest.mark.parametrize(
    ("shown", "kind", "verb"),
    [
        ({"status": 404}, "absent", "are absent"),
        (
            {"status": 301, "redirect_url": f"https://{HOST}/new"},
            "moved",
            "have moved to other addresses",
        ),
        ({"status": 403}, "refused", "are refused"),
        ({"status": 200, "digest": "maintenance"}, "alike", "have the same new content"),
    ],
)
def test_an_incident_is_shown_while_it_lasts(api: Live, shown, kind, verb):
    quiet(api)
    report(api, 0.01, **shown)
    incident = api.get(f"/hosts/{HOST}").json()["incident"]
    assert (incident["kind"], incident["n_pages"]) == (kind, N)
    assert incident["since"] < incident["until"]
    assert [host["incident"] for host in api.get("/hosts").json()["items"]] == [incident]
    sentence = why(api, URLS[-1])
    assert f"the host {HOST} has an incident: {N} of its pages {verb} since" in sentence
    assert "its last crawl is in doubt, because other pages of its host showed the same" in sentence
    report(api, 0.005, URLS[:1])
    assert api.get(f"/hosts/{HOST}").json()["incident"] is None
    assert "incident" not in why(api, URLS[0])
    assert api.get("/changes", kind="gone,changed,back").json()["items"] == []


def test_an_incident_of_yesterday_is_over(sqlite_api: Live):
    quiet(sqlite_api)
    report(sqlite_api, 1.5, status=404)
    assert sqlite_api.get(f"/hosts/{HOST}").json()["incident"] is None
    assert "incident" not in why(sqlite_api, URLS[0])


def test_an_operator_ends_an_incident_and_does_not_wait(api: Live):
    quiet(api)
    report(api, 0.01, status=403)
    host = api.client.delete(f"/hosts/{HOST}/incident").json()
    assert (host["incident"], host["host_queue"]["paused_until"]) == (None, None)
    assert "an incident" not in why(api, URLS[0])
    (act, *_) = api.get("/audit").json()["items"]
    assert (act["act"], act["object"]) == ("host.end_incident", HOST)
    before = act["before"]["incident"]
    assert (before["kind"], before["n_pages"]) == ("refused", N)
    waiting = api.post("/pages/recrawl", {}, host=HOST, state="failing").json()
    assert waiting["changed"] == N
    report(api, 0.001, URLS[:1], digest="new")
    changes = api.get("/changes", kind="gone,changed,back").json()["items"]
    assert [(each["kind"], each["url"]) for each in changes] == [("changed", URLS[0])]


def test_an_incident_that_is_over_is_not_ended_again(sqlite_api: Live):
    quiet(sqlite_api)
    report(sqlite_api, 1.5, status=404)
    ended = sqlite_api.client.delete(f"/hosts/{HOST}/incident")
    assert ended.json()["incident"] is None
    assert sqlite_api.get("/audit", act="host.end_incident").json()["items"] == []
    assert sqlite_api.client.delete("/hosts/none.example/incident").status_code == 404
