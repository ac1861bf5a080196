"""Hosts and groups over HTTP: their politeness, their caps, and what is told of them."""

import json

import pytest
from support.live_server import START, Live, running

A, B = "/hosts/a.example", "/hosts/b.example"
SETTINGS = {"min_delay_s": 2.5, "robots_delay_s": 7.0, "max_concurrency": 3, "max_crawl_rate": 9.0}
UNSET = dict.fromkeys(SETTINGS)


def put(api: Live, path: str, **settings):
    response = api.client.put(path, json=settings)
    assert response.status_code == 200, response.text
    return response.json()


def patch(api: Live, path: str, **settings):
    response = api.client.patch(path, json=settings)
    assert response.status_code == 200, response.text
    return response.json()


def settings_of(host):
    return {name: host[name] for name in SETTINGS}


def test_a_host_that_nobody_has_named_is_unknown(api: Live):
    for path, kind in ((A, "host-not-found"), ("/groups/shared", "group-not-found")):
        response = api.get(path)
        assert response.status_code == 404
        assert response.json()["type"].endswith(kind)
        assert "PUT" in response.json()["detail"]


def test_politeness_can_be_set_before_the_first_page(api: Live):
    told = put(api, A, **SETTINGS)
    assert settings_of(told) == SETTINGS
    assert (told["n_pages"], told["crawl_rate"], told["feed"]) == (0, 0, None)
    assert (told["host_queue"]["delay_s"], told["host_queue"]["concurrency"]) == (7.0, 3)
    api.register("https://a.example/")
    assert settings_of(found := api.get(A).json()) == SETTINGS
    assert found["n_pages"] == 1


def test_a_host_of_which_nothing_was_said_is_held_to_the_settings_of_the_service(sqlite_url):
    with running(sqlite_url, host_delay_s=3.5, host_concurrency=0) as api:
        api.register("https://a.example/")
        host = api.get(A).json()
    assert settings_of(host) == UNSET
    assert (host["host_queue"]["delay_s"], host["host_queue"]["concurrency"]) == (3.5, None)


def test_put_sets_back_what_it_leaves_out_and_patch_keeps_it(api: Live):
    put(api, A, **SETTINGS, group="shared", blocked_until="2026-06-01T00:00:00+02:00")
    patched = patch(api, A, max_concurrency=None, min_delay_s=0)
    assert settings_of(patched) == {**SETTINGS, "max_concurrency": None, "min_delay_s": 0}
    assert patched["group"] == "shared"
    replaced = put(api, A, robots_delay_s=1.0)
    assert settings_of(replaced) == {**UNSET, "robots_delay_s": 1.0}
    assert replaced["group"] is None
    assert settings_of(patch(api, B, min_delay_s=4)) == {**UNSET, "min_delay_s": 4}


def test_a_patch_of_a_group_keeps_what_it_leaves_out_and_null_is_the_default(api: Live):
    group, hosts = "/groups/shared", ["a.example", "b.example"]
    put(api, group, min_delay_s=2.0, max_concurrency=3, members=hosts)
    patched = api.client.patch(group, json={"max_concurrency": None}).json()
    assert (patched["min_delay_s"], patched["max_concurrency"]) == (2.0, None)
    assert patched["members"] == hosts
    patched = api.client.patch(group, json={"members": hosts[:1]}).json()
    assert (patched["min_delay_s"], patched["members"]) == (2.0, hosts[:1])
    refused = api.client.patch(group, json={})
    assert (refused.status_code, refused.json()["field"]) == (422, "min_delay_s")
    assert api.client.patch("/groups/new", json={"max_concurrency": 1}).json()["n_members"] == 0


def test_a_block_stays_until_it_is_lifted(api: Live):
    until = "2026-05-31T22:00:00Z"
    assert (
        put(api, A, blocked_until="2026-06-01T00:00:00+02:00")["host_queue"]["blocked_until"]
        == until
    )
    assert put(api, A, min_delay_s=1)["host_queue"]["blocked_until"] == until
    assert patch(api, A, blocked_until=None)["host_queue"]["blocked_until"] is None


def test_hosts_are_listed_in_parts(api: Live):
    names = [f"{i}.example" for i in range(5)]
    for name in names:
        put(api, f"/hosts/{name}", min_delay_s=1)
    listed, cursor = [], None
    while True:
        part = api.get("/hosts", limit=2, **({"cursor": cursor} if cursor else {})).json()
        listed += part["items"]
        cursor = part["next_cursor"]
        if cursor is None:
            break
    assert [host["host"] for host in listed] == names
    whole = api.get("/hosts/3.example").json()
    assert listed[3].pop("load") is None
    assert listed[3] == {name: whole[name] for name in listed[3]}


def test_names_are_those_of_normal_urls(api: Live):
    api.register("https://bücher.example/", "http://[2001:db8::1]/")
    for name in ("bücher.example", "XN--BCHER-KVA.example", "B%C3%9CCHER.example"):
        assert api.get(f"/hosts/{name}").json()["host"] == "xn--bcher-kva.example"
    assert api.get("/hosts/[2001:DB8:0::1]").json()["n_pages"] == 1


@pytest.mark.parametrize(
    "name", ["a b", "a@b", "a:8080", "a%23b", "a%3Fb", "[::", "a%00b", "%2E%5Cx"]
)
def test_what_is_no_host_name_is_refused(sqlite_api: Live, name):
    for method in ("GET", "PUT", "PATCH"):
        response = sqlite_api.client.request(method, f"/hosts/{name}", json={"min_delay_s": 1})
        assert response.status_code == 422, response.text
        assert response.json()["field"] == "host"
        assert "example.com" in response.json()["detail"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("min_delay_s", -1, "0 to 86,400"),
        ("min_delay_s", "1", "0 to 86,400"),
        ("min_delay_s", 1e9, "0 to 86,400"),
        ("robots_delay_s", -1, "0 or more"),
        ("robots_delay_s", "5", "0 or more"),
        ("max_concurrency", 0, "1 to 10,000"),
        ("max_concurrency", 1.5, "1 to 10,000"),
        ("max_crawl_rate", 0, "blocked_until"),
        ("group", "a/b", "letters"),
        ("group", "", "letters"),
        ("blocked_until", "2026-05-01T12:00:00", "zone"),
        ("blocked_until", "9999-12-31T23:59:59-12:00", "9000"),
        ("min_delay", 1, "known fields"),
    ],
)
def test_a_bad_setting_is_named_with_its_remedy(sqlite_api: Live, field, value, remedy):
    response = sqlite_api.client.put(A, json={field: value})
    assert response.status_code == 422
    assert response.json()["field"] == field
    assert remedy in response.json()["detail"]
    assert sqlite_api.get(A).status_code == 404


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("delay_s", [86_400, 86_401, 1e9, 1e308])
def test_a_delay_of_robots_txt_is_cut_at_a_day(sqlite_api: Live, method, delay_s):
    response = sqlite_api.client.request(method, A, json={"robots_delay_s": delay_s})
    assert response.json()["robots_delay_s"] == 86_400, response.text
    assert response.json()["host_queue"]["delay_s"] == 86_400


@pytest.mark.parametrize("delay_s", ["1e999", "NaN", "Infinity", "-0.1", "-1e999"])
def test_a_delay_that_is_no_finite_time_is_refused(sqlite_api: Live, delay_s):
    content = '{"robots_delay_s": ' + delay_s + "}"
    headers = {"Content-Type": "application/json"}
    for method in ("PUT", "PATCH"):
        answer = sqlite_api.client.request(method, A, content=content, headers=headers)
        assert answer.status_code == 422, answer.text
    assert sqlite_api.get(A).status_code == 404


def test_a_patch_of_nothing_is_refused(sqlite_api: Live):
    response = sqlite_api.client.patch(A, json={})
    assert response.status_code == 422
    assert "robots_delay_s" in response.json()["detail"]


def test_hosts_that_share_a_server_share_a_host_queue(api: Live):
    api.register("https://a.example/", "https://b.example/")
    put(api, A, robots_delay_s=7.0, min_delay_s=0.5)
    group = put(
        api,
        "/groups/shared",
        min_delay_s=3.0,
        max_concurrency=2,
        max_crawl_rate=5.0,
        members=["B.example", "a.example"],
    )
    assert (group["members"], group["n_members"]) == (["a.example", "b.example"], 2)
    assert (group["host_queue"]["delay_s"], group["robots_delay_s"], group["min_delay_s"]) == (
        7,
        7,
        3,
    )
    assert api.get("/groups/shared").json() == group
    host = api.get(B).json()
    assert (host["group"], host["host_queue"]) == ("shared", group["host_queue"])
    patch(api, A, group=None)
    group = put(api, "/groups/shared")
    assert (group["members"], group["min_delay_s"], group["max_crawl_rate"]) == (
        ["b.example"],
        None,
        None,
    )
    assert api.get(A).json()["host_queue"]["delay_s"] == 7
    refused = api.client.put("/groups/shared", json={"members": ["a b"]})
    assert (refused.status_code, refused.json()["field"]) == (422, "members")


def test_the_rate_of_a_host_is_held_against_its_cap(api: Live):
    api.register(*(f"https://a.example/{i}" for i in range(10)))
    api.register(*(f"https://b.example/{i}" for i in range(10)))
    put(api, A, max_crawl_rate=0.5)
    assert api.get(A).json()["crawl_rate"] == 0
    pages = [{"page_id": n, "observed_at": START.isoformat(), "digest": "a"} for n in range(1, 21)]
    assert api.post("/observations", pages).json()["accepted"] == 20
    api.clock.advance(minutes=1)
    assert api.epoch()["bandwidth_used"] == pytest.approx(4)
    assert api.get(A).json()["crawl_rate"] == pytest.approx(0.5, rel=1e-7)
    assert api.get(B).json()["crawl_rate"] == pytest.approx(3.5, rel=1e-7)


def test_a_cap_that_no_epoch_would_keep_is_refused(sqlite_url):
    with running(sqlite_url, objective="uniform") as api:
        for path in (A, "/groups/shared"):
            response = api.client.put(path, json={"max_crawl_rate": 5})
            assert response.status_code == 422
            assert response.json()["field"] == "max_crawl_rate"
            assert "RECRAWL_OBJECTIVE=harmonic" in response.json()["detail"]
        put(api, A, max_crawl_rate=None, min_delay_s=1)


def test_a_feed_is_told_to_be_dead_when_its_silence_is_too_long(api: Live):
    urls = [f"https://a.example/{i}" for i in range(3)]
    api.register(*urls)
    api.post(
        "/observations",
        [{"url": url, "observed_at": api.clock.now.isoformat(), "changed": True} for url in urls],
    )
    for _ in range(10):
        at = api.clock.advance(hours=6).isoformat()
        api.post("/pings", [{"url": url, "changed_at": at} for url in urls])
    feed = api.get(A).json()["feed"]
    assert (feed["n_pages"], feed["n_pings"], feed["silent_days"], feed["silent"]) == (
        3,
        30,
        0,
        False,
    )
    assert feed["ping_rate"] == pytest.approx(30 / 3.5)
    assert feed["real"] == 1 - feed["false"] == 0.75
    assert feed["last_ping_at"] == at.replace("+00:00", "Z")
    api.epoch()
    assert "do not count" not in api.get("/pages", url=urls[0]).json()["why"]["sentence"]
    api.clock.advance(days=4)
    feed = api.get(A).json()["feed"]
    assert (feed["silent_days"], feed["silent"]) == (4, True)
    assert "do not count now" in api.get("/pages", url=urls[0]).json()["why"]["sentence"]


def test_leases_keep_the_politeness_that_was_set(api: Live):
    api.register(*(f"https://a.example/{i}" for i in range(3)))
    put(api, A, min_delay_s=0, max_concurrency=2)
    first = api.client.post("/leases", json={"worker": "w", "count": 10}).json()["items"]
    assert len(first) == 2
    host = api.get(A).json()
    assert (host["n_leased"], host["n_queued"]) == (2, 1)
    patch(api, A, blocked_until="2026-05-02T00:00:00Z", max_concurrency=5)
    assert api.client.post("/leases", json={"worker": "w", "count": 10}).json()["items"] == []
    patch(api, A, blocked_until=None)
    assert len(api.client.post("/leases", json={"worker": "w", "count": 9}).json()["items"]) == 1


def test_bodies_are_one_json_object(sqlite_api: Live):
    for content, status in ((b"[]", 422), (b"{", 400), (json.dumps("x").encode(), 422)):
        headers = {"Content-Type": "application/json"}
        response = sqlite_api.client.put(A, content=content, headers=headers)
        assert response.status_code == status
