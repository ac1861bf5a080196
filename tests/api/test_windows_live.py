"""Windows through the running service: settings, leases, holds, plans, and what is refused."""

from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from support.live_server import lease_freely, running

from service.api.responses.encode import ARROW
from service.model import windows
from service.model.windows import zone_of

HOST = "night.example"
URLS = [f"https://{HOST}/{n}" for n in range(3)]


@pytest.fixture
def live(database_url):
    with running(database_url, host_delay_s=0.0, host_concurrency=0) as service:
        lease_freely(service)
        yield service


def window(live, begin_h, end_h):
    """Return a daily window by hours from now."""
    begin, end = (live.clock() + timedelta(hours=hours) for hours in (begin_h, end_h))
    return f"{begin:%H:%M}-{end:%H:%M} UTC"


def leased(live, **body):
    return live.post("/leases", {"count": 10, **body}).json()


def set_host(live, status=200, host=HOST, **fields):
    answer = live.client.patch(f"/hosts/{host}", json=fields)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_host_is_leased_inside_of_its_windows_only(live):
    live.register(*URLS)
    opens = (live.clock() + timedelta(hours=2)).replace(second=0, microsecond=0)
    shown = set_host(live, windows=[window(live, 2, 4)])
    assert shown["windows"] == [window(live, 2, 4)]
    assert not shown["open_hours"]["is_open"]
    assert datetime.fromisoformat(shown["open_hours"]["opens_at"]) == opens
    assert leased(live)["items"] == []
    page = live.get("/pages/1").json()
    assert page["why"]["hold"] == "window_closed"
    assert "window closed until" in page["why"]["sentence"]
    assert datetime.fromisoformat(page["why"]["until"]) == opens
    (listed, *_) = live.get("/pages").json()["items"]
    assert datetime.fromisoformat(listed["next_crawl_at"]) == opens
    explained = live.get("/leases", explain="true").json()["explanation"]
    assert datetime.fromisoformat(explained["next_at"]) == opens
    assert [held["hold"] for held in explained["holds"]] == ["window_closed"]
    assert "window closed until" in explained["sentence"]
    live.clock.advance(hours=2, minutes=1)
    items = leased(live)["items"]
    assert len(items) == 3
    closes = opens + timedelta(hours=2)
    live.clock.advance(hours=1, minutes=50)
    answer = live.client.patch(f"/leases/{items[0]['lease']}", json={"ttl_s": 3_600})
    if answer.status_code == 200:  # the lease may have ended by itself
        assert datetime.fromisoformat(answer.json()["expires_at"]) <= closes


def test_a_lease_is_extended_up_to_the_closing(live):
    live.register(*URLS)
    set_host(live, windows=[window(live, -1, 1)])
    (item, *_) = leased(live, ttl_s=600)["items"]
    answer = live.client.patch(f"/leases/{item['lease']}", json={"ttl_s": 7_200}).json()
    closes = (live.clock() + timedelta(hours=1)).replace(second=0, microsecond=0)
    assert datetime.fromisoformat(answer["expires_at"]) == closes


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"windows": ["Mon-Fri 22:00-06:00 Europe/Berlin", "Mon 9-5"]}, "windows[1]"),
        ({"blackouts": ["Christmas"]}, "blackouts[0]"),
        ({"windows": "Mon 09:00-17:00 UTC"}, "windows"),
        (
            {"windows": [f"Mon {h:02}:00-{h:02}:30 UTC" for h in range(24)] * 3},
            "windows is a list of 72 items; send a list of at most 50 windows",
        ),
        (
            {"windows": ["Sun 02:00-03:00 UTC"], "blackouts": ["2020-01-01/2035-01-01 UTC"]},
            "windows",
        ),
    ],
)
def test_wrong_ones_are_refused_and_change_nothing(live, fields, field):
    live.register(*URLS)
    problem = set_host(live, 422, **fields)
    assert field in str(problem)
    assert live.get(f"/hosts/{HOST}").json()["open_hours"] is None
    assert len(leased(live)["items"]) == 3


def test_null_restores_the_wider_level_and_an_empty_list_lifts_it(live):
    live.register(*URLS)
    group = {"windows": [window(live, 2, 4)], "members": [HOST]}
    shown = live.client.put("/groups/g", json=group).json()
    assert shown["windows"] == group["windows"]
    assert not shown["open_hours"]["is_open"]
    assert leased(live)["items"] == []
    assert set_host(live, windows=[])["open_hours"] is None
    assert set_host(live, windows=None)["open_hours"]["windows"] == group["windows"]
    assert leased(live)["items"] == []
    assert live.client.put("/groups/g", json={"windows": None}).json()["open_hours"] is None
    assert len(leased(live)["items"]) == 3


def test_open_hours_are_known_of_hosts_without_pages(live):
    shown = live.get("/hosts/nobody.example/open-hours").json()
    assert (shown["is_open"], shown["share"], shown["week"]) == (True, 1.0, [])
    set_host(live, host="new.example", blackouts=[f"{live.clock():%Y-%m-%d} UTC"])
    shown = live.get("/hosts/new.example/open-hours").json()
    assert not shown["is_open"]
    assert shown["windows"] is None


def test_the_schedule_and_the_plan_know_windows(live):
    live.register(*URLS)
    set_host(live, windows=[window(live, 2, 3)], min_delay_s=3_600)
    live.epoch()
    assert {row["next_crawl_at"] for row in live.schedule()} == {
        live.get(f"/hosts/{HOST}").json()["open_hours"]["opens_at"]
    }
    (plan,) = live.get("/plan", bandwidth=1_000).json()["items"]
    (loss,) = plan["window_losses"]
    assert loss["host"] == HOST
    assert loss["by_delay"] > 0.9 * loss["wanted"]


def test_a_page_that_was_missed_before_the_closing_waits_for_the_opening(live):
    live.register(*URLS)
    opens = (live.clock() + timedelta(hours=24)).replace(second=0, microsecond=0).isoformat()
    set_host(live, windows=[window(live, 0, 1)])
    items = leased(live)["items"]
    reports = [
        {"lease": item["lease"], "observed_at": live.clock().isoformat(), "digest": "1"}
        for item in items[1:]
    ]
    assert live.post("/observations", reports).json()["accepted"] == 2
    live.epoch()
    live.client.post("/pages/recrawl", json={"urls": [items[1]["url"]]})
    missed, unfinished = items[1]["page_id"], items[0]["page_id"]
    due = [row["page_id"] for row in live.schedule(due_before=live.clock().isoformat())]
    assert due == [], "due from now on"
    live.clock.advance(minutes=50)
    due = [row["page_id"] for row in live.schedule(due_before=live.clock().isoformat())]
    assert missed in due
    live.clock.advance(minutes=12)  # closed since two minutes
    assert live.schedule(due_before=live.clock().isoformat()) == []
    shown = {row["page_id"]: row["next_crawl_at"] for row in live.schedule()}
    listed = {row["page_id"]: row["next_crawl_at"] for row in live.get("/pages").json()["items"]}
    page = live.get(f"/pages/{missed}").json()["schedule"]
    times = [shown[missed], listed[missed], page["next_crawl_at"]]
    assert {datetime.fromisoformat(at) for at in times} == {datetime.fromisoformat(opens)}
    assert listed[unfinished] == shown[missed], "its lease has expired"
    arrow = live.client.get("/schedule", headers={"Accept": ARROW}).content
    rows = pa.ipc.open_stream(arrow).read_all().to_pylist()
    assert {r["next_crawl_at"].isoformat() for r in rows if r["page_id"] == missed} == {opens}


def test_a_host_that_never_closes_again_has_no_closing(live):
    live.register(URLS[0])
    past = f"{live.clock() - timedelta(days=3):%Y-%m-%d} UTC"
    for fields in ({"windows": ["00:00-24:00 UTC"]}, {"windows": None, "blackouts": [past]}):
        shown = set_host(live, **fields)["open_hours"]
        assert (shown["is_open"], shown["opens_at"], shown["closes_at"]) == (True, None, None)
        assert "Open now.</p>" in live.get(f"/console/hosts/{HOST}").text


def test_a_ping_in_a_closure_is_answered_from_the_opening_on(live):
    live.register(*URLS, observability="complete")
    set_host(live, windows=[window(live, -1, 1)])
    reports = [
        {"lease": item["lease"], "observed_at": live.clock().isoformat(), "digest": "1"}
        for item in leased(live)["items"]
    ]
    assert live.post("/observations", reports).json()["accepted"] == 3
    live.clock.advance(hours=2)
    pings = [{"url": url, "changed_at": live.clock().isoformat()} for url in URLS]
    new = [{"url": f"https://{HOST}/new", "changed_at": live.clock().isoformat()}]
    decisions = live.post("/pings", [*pings, *new]).json()["decisions"]
    assert [(each["crawl"], each["reason"]) for each in decisions] == [(False, "window_closed")] * 4
    assert leased(live)["items"] == []
    assert live.get("/pages/1").json()["why"]["hold"] == "window_closed"
    elsewhere = [{"url": "https://other.example/", "changed_at": live.clock().isoformat()}]
    (decision,) = live.post("/pings", elsewhere).json()["decisions"]
    assert (decision["crawl"], decision["reason"]) == (True, "never_crawled")
    live.clock.advance(hours=21, minutes=5)
    live.epoch()
    by_reason = {item["url"]: item["reason"] for item in leased(live)["items"]}
    assert {by_reason.get(url) for url in URLS} == {"ping"}
    assert len(by_reason) == 5


def test_a_refused_or_repeated_ping_in_a_closure_asks_for_nothing(live):
    live.register(URLS[0], observability="complete")
    set_host(live, windows=[window(live, 2, 4)])
    ping = {"url": URLS[0], "changed_at": live.clock().isoformat()}
    unknown = {**ping, "url": f"https://{HOST}/unknown"}
    for reason in ("window_closed", "not_newer"):
        answer = live.client.post("/pings?register=false", json=[unknown, ping]).json()
        assert answer["n_rejected"] == 1
        (decision,) = answer["decisions"]
        assert (decision["crawl"], decision["reason"]) == (False, reason)


def test_a_zone_that_vanishes_closes_its_host_and_nothing_else(live, monkeypatch):
    live.register(*URLS, "https://other.example/")
    set_host(live, windows=["00:00-24:00 Europe/Berlin"])
    zone_of.cache_clear()
    monkeypatch.setattr(windows, "NOT_EVERYWHERE", frozenset({"Europe/Berlin"}))
    live.clock.advance(days=1)
    assert [item["host"] for item in leased(live)["items"]] == ["other.example"]
    for path in (f"/hosts/{HOST}", "/hosts", "/pages/1", "/status", f"/hosts/{HOST}/open-hours"):
        assert live.client.get(path).status_code == 200, path
    kinds = {need["kind"] for need in live.get("/status").json()["needs_you"]}
    assert "window_never_opens" in kinds
    assert set_host(live, windows=None)["windows"] is None
    assert len(leased(live)["items"]) == 3


@pytest.mark.parametrize("path", ["/hosts/a.example", "/groups/g"])
@pytest.mark.parametrize("field", ["windows", "blackouts"])
def test_there_are_at_most_fifty_of_each(live, path, field):
    one = "Sun 00:00-24:00 UTC" if field == "windows" else "2030-01-01 UTC"
    assert live.client.put(path, json={field: [one] * 50}).status_code == 200
    refused = live.client.put(path, json={field: [one] * 51})
    assert refused.status_code == 422
    problem = refused.json()
    assert problem["field"] == field
    assert f"{field} is a list of 51 items; send a list of at most 50" in problem["detail"]


def test_the_maximum_of_windows_is_in_the_document_of_the_interface(live):
    schemas = live.get("/openapi.json").json()["components"]["schemas"]
    for body in ("HostBody", "GroupBody"):
        for field in ("windows", "blackouts"):
            assert schemas[body]["properties"][field]["maxItems"] == 50
