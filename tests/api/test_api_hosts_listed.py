"""Lists of hosts and groups over HTTP: blocked hosts, orders, and the end of hosts and groups."""

from datetime import timedelta

import numpy as np
import pytest
from support.live_server import START, Live

from service.history.gauges import measure
from service.history.steps import LOADS_KEPT

HOSTS = ("b.example", "c.example", "a.example")


@pytest.fixture
def hosts(api: Live) -> Live:
    """Three hosts with a page each; two of them share a server."""
    for host in HOSTS:
        api.register(f"https://{host}/")
    group = {"members": ["a.example", "b.example"], "max_crawl_rate": 5.0}
    assert api.client.put("/groups/shared", json=group).is_success
    return api


def names(api: Live, **query):
    found, cursor = [], {}
    while True:
        part = api.get("/hosts", limit=1, **query, **cursor).json()
        found += [item["host"] for item in part["items"]]
        if part["next_cursor"] is None:
            return found
        cursor = {"cursor": part["next_cursor"]}


def test_hosts_are_listed_in_four_orders(hosts: Live):
    assert names(hosts) == list(HOSTS)
    assert names(hosts, sort="-host_id") == list(reversed(HOSTS))
    assert names(hosts, sort="host") == sorted(HOSTS)
    assert names(hosts, sort="-host") == sorted(HOSTS, reverse=True)


def test_a_cursor_of_another_order_is_refused(hosts: Live):
    cursor = hosts.get("/hosts", limit=1, sort="host").json()["next_cursor"]
    for sort in ("host_id", "-host"):
        refused = hosts.get("/hosts", sort=sort, cursor=cursor)
        assert (refused.status_code, refused.json()["field"]) == (422, "cursor")


def measure_loads(live: Live):
    store, estimator = live.service.store, live.service.plan.estimator
    loads = measure(store, estimator, np.zeros(0, np.int64), live.clock).loads
    with store.begin() as tx:
        tx.save_host_loads(loads, live.clock() - LOADS_KEPT)


@pytest.mark.dear
def test_hosts_are_listed_by_load(hosts: Live):
    for n in range(3):
        hosts.register(f"https://a.example/{n}")
    hosts.register("https://b.example/1")
    assert names(hosts, sort="-n_pages") == list(HOSTS)  # nothing is measured yet
    measure_loads(hosts)
    assert names(hosts, sort="-n_pages") == ["a.example", "b.example", "c.example"]
    assert names(hosts, sort="n_pages") == ["c.example", "b.example", "a.example"]
    assert names(hosts, sort="-asked_rate") == list(HOSTS)  # no epoch has scheduled a page
    hosts.register("https://d.example/")
    items = hosts.get("/hosts", sort="-n_pages").json()["items"]
    assert [item["load"] and item["load"]["n_pages"] for item in items] == [4, 2, 1, None]
    assert items[0]["load"]["sampled_share"] == 1.0
    by_name = hosts.get("/hosts", sort="host").json()["items"]
    assert [item["load"] and item["load"]["n_pages"] for item in by_name] == [4, 2, 1, None]


def test_blocked_hosts_are_listed_by_load(hosts: Live):
    hosts.register("https://c.example/1")
    measure_loads(hosts)
    until = (START + timedelta(hours=1)).isoformat()
    for path in ("/hosts/c.example", "/groups/shared"):
        hosts.client.patch(path, json={"blocked_until": until})
    hosts.client.patch("/hosts/a.example", json={"group": None})
    # the member of the group, and the host that left it with its block
    blocked = ["c.example", "b.example", "a.example"]
    assert names(hosts, blocked=True, sort="-n_pages") == blocked


@pytest.mark.dear
def test_a_cursor_of_a_load_outlives_later_measurements_for_an_hour(hosts: Live):
    measure_loads(hosts)
    cursor = hosts.get("/hosts", limit=1, sort="-n_pages").json()["next_cursor"]
    hosts.clock.advance(minutes=50)
    measure_loads(hosts)
    assert len(hosts.get("/hosts", sort="-n_pages", cursor=cursor).json()["items"]) == 2
    for sort in ("n_pages", "host_id"):
        assert hosts.get("/hosts", sort=sort, cursor=cursor).status_code == 422
    hosts.clock.advance(minutes=20)
    measure_loads(hosts)
    refused = hosts.get("/hosts", sort="-n_pages", cursor=cursor)
    assert (refused.status_code, refused.json()["field"]) == (422, "cursor")
    assert "more than an hour ago" in refused.json()["detail"]


@pytest.mark.dear
def test_blocked_hosts_alone_are_listed_until_their_pause_ends(hosts: Live):
    assert names(hosts, blocked=True) == []
    until = (START + timedelta(hours=1)).isoformat()
    hosts.client.patch("/hosts/c.example", json={"blocked_until": until})
    assert names(hosts, blocked=True) == ["c.example"]
    hosts.client.put("/groups/shared", json={"blocked_until": until})  # blocks its members
    assert names(hosts, blocked=True, sort="host") == sorted(HOSTS)
    hosts.clock.advance(hours=2)
    assert names(hosts, blocked=True) == []


@pytest.mark.dear
def test_groups_are_listed_with_the_politeness_in_force(hosts: Live):
    hosts.client.put("/groups/other", json={"min_delay_s": 3.0})
    shared, other = hosts.get("/groups").json()["items"]
    assert (shared["group"], shared["n_members"], shared["max_crawl_rate"]) == ("shared", 2, 5.0)
    assert (other["group"], other["n_members"], other["host_queue"]["delay_s"]) == ("other", 0, 3.0)
    assert "members" not in shared


def test_the_hosts_of_a_deleted_group_stay_and_go_by_their_own_settings(hosts: Live):
    assert hosts.client.delete("/groups/shared").status_code == 204
    assert hosts.get("/groups").json()["items"] == []
    assert hosts.get("/groups/shared").status_code == 404
    assert hosts.get("/hosts/a.example").json()["group"] is None
    leased = hosts.post("/leases", {"count": 9}).json()["items"]
    assert sorted(item["host"] for item in leased) == sorted(HOSTS)
    assert hosts.client.delete("/groups/shared").status_code == 404


def test_a_host_is_deleted_once_its_pages_are(hosts: Live):
    refused = hosts.client.delete("/hosts/a.example")
    assert refused.status_code == 409
    assert refused.json()["type"].endswith("#host-has-pages")
    assert "DELETE /pages?host=a.example" in refused.json()["detail"]
    assert hosts.client.delete("/pages?host=a.example").json()["changed"] == 1
    assert hosts.client.delete("/hosts/A.example").status_code == 204
    assert names(hosts) == ["b.example", "c.example"]
    assert hosts.get("/groups/shared").json()["members"] == ["b.example"]
    assert hosts.client.delete("/hosts/a.example").status_code == 404
    hosts.register("https://a.example/again")
    assert names(hosts)[-1] == "a.example"
