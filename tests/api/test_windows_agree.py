"""All answers about closed hosts agree: schedule, lists, pages, `why`, explained leases, leases."""

from datetime import datetime, timedelta

import numpy as np
import pytest
from support.live_server import lease_freely, running

from service.model.calendars import Calendars, HourRules

HOSTS = ("own", "grouped", "of-all", "lifted", "dark")


@pytest.fixture
def live(database_url):
    with running(database_url, host_delay_s=0.0, host_concurrency=0) as service:
        lease_freely(service)
        yield service


def window(live, begin_h, end_h):
    """Return a daily window by hours from now."""
    begin, end = (live.clock() + timedelta(hours=hours) for hours in (begin_h, end_h))
    return f"{begin:%H:%M}-{end:%H:%M} UTC"


def explained(live, **asked):
    return live.get("/leases", explain="true", **asked).json()["explanation"]


def closed(live, **asked):
    """Return the number of pages and of hosts that windows hold, and the first opening."""
    holds = {held["hold"]: held for held in explained(live, **asked)["holds"]}
    if (held := holds.get("window_closed")) is None:
        return 0, 0, None
    return held["n_pages"], held["n_hosts"], datetime.fromisoformat(held["until"])


def free(live):
    """Return the number of pages that the next request gets, by the explanation."""
    holds = explained(live)["holds"]
    return sum(held["n_pages"] for held in holds if held["hold"] in ("ready", "no_crawler"))


def test_pages_of_a_group_are_explained_by_the_windows_of_their_own_hosts(live):
    live.register(*[f"https://{host}.example/{n}" for host in ("a", "b", "c") for n in range(4)])
    members = [f"{host}.example" for host in ("a", "b", "c")]
    live.client.put("/groups/g", json={"windows": [window(live, 2, 4)], "members": members})
    live.client.patch("/hosts/a.example", json={"windows": [window(live, 1, 3)]})
    opens = live.clock() + timedelta(hours=1)
    assert closed(live) == (12, 2, opens)
    assert free(live) == 0
    assert closed(live, hosts="b.example") == (4, 1, opens + timedelta(hours=1))
    live.client.patch("/hosts/c.example", json={"windows": []})
    assert closed(live) == (8, 2, opens)
    assert free(live) == 4
    assert {item["host"] for item in live.post("/leases", {"count": 9}).json()["items"]} == {
        "c.example"
    }


def test_a_host_that_never_opens_is_explained_as_its_pages_are(live):
    live.register("https://a.example/")
    never = HourRules(None, ("2020-01-01/2090-01-01 UTC",))
    live.service.store.calendars = Calendars(never)
    (held,) = explained(live)["holds"]
    page = live.get("/pages/1").json()["why"]
    assert "no window of a.example opens within a year" in page["sentence"]
    assert "no window of a.example opens within a year" in held["sentence"]
    assert held["until"] is None


def times_of(live, page_id, listed, scheduled):
    """Return all times that are shown as the next crawl of a page."""
    page = live.get(f"/pages/{page_id}").json()
    why = page["why"]
    shown = [listed[page_id], scheduled.get(page_id)]
    shown += [page["schedule"]["next_crawl_at"]] if page["schedule"] else []
    shown += [why["until"]] if why["hold"] == "window_closed" else []
    return why["hold"], {datetime.fromisoformat(at) for at in shown if at}


@pytest.mark.dear
def test_every_answer_shows_the_same_opening(live):
    rng = np.random.default_rng(4)
    live.service.store.calendars.of_all = HourRules((window(live, 3, 9),))
    urls = [f"https://{host}.example/{n}" for host in HOSTS for n in range(2)]
    ids = live.register(*urls)
    group = {"windows": [window(live, 2, 4)], "members": ["grouped.example", "own.example"]}
    live.client.put("/groups/g", json=group)
    for host, fields in {
        "own": {"windows": [window(live, 1, 2), window(live, 5, 6)]},
        "lifted": {"windows": []},
        "dark": {"blackouts": [f"{live.clock():%Y-%m-%d} UTC"]},
    }.items():
        live.client.patch(f"/hosts/{host}.example", json=fields)
    holds = set()
    for step in range(8):
        live.epoch()
        items = live.get("/pages", limit=100).json()["items"]
        listed = {item["page_id"]: item["next_crawl_at"] for item in items}
        scheduled = {item["page_id"]: item["next_crawl_at"] for item in live.schedule()}
        for page_id in ids:
            hold, times = times_of(live, page_id, listed, scheduled)
            holds.add(hold)
            assert max(times) - min(times) < timedelta(seconds=1), (page_id, hold, times)
        n_free = free(live)
        leased = live.post("/leases", {"count": 100}).json()["items"]
        assert len(leased) == n_free
        reports = [
            {
                "lease": item["lease"],
                "observed_at": live.clock().isoformat(),
                **({"digest": "1"} if rng.random() < 0.6 else {"status": 503}),
            }
            for item in leased
        ]
        assert live.post("/observations", reports).json()["accepted"] == len(reports)
        some = rng.choice(urls, 3).tolist()
        if step % 2:
            live.client.post("/pages/recrawl", json={"urls": some})
        else:
            at = live.clock().isoformat()
            live.post("/pings", [{"url": url, "changed_at": at} for url in some])
        live.clock.advance(minutes=int(rng.integers(20, 120)))
    assert {"window_closed", "ready", "not_due"} <= holds
