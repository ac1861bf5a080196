"""Keys and the audit over HTTP, keys that are limited to hosts, and limits of items."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from support.access_cases import ADMIN, bearer, new_key
from support.live_server import Live, running

from service.model.access import Role

OURS, BLOG, THEIRS = "https://a.example/", "https://b.example/blog/", "https://c.example/"


@pytest.fixture
def api(database_url):
    """A new service with a key of the environment."""
    with running(database_url, api_keys=(ADMIN,)) as live:
        yield live


@pytest.fixture
def sqlite_api(sqlite_url):
    with running(sqlite_url, api_keys=(ADMIN,)) as live:
        yield live


@pytest.fixture(scope="module")
def open_api(tmp_path_factory):
    """A service without keys that lists the origin of one site."""
    url = f"sqlite:///{tmp_path_factory.mktemp('open') / 'recrawl.db'}"
    with running(url, cors_origins="https://console.example") as live:
        yield live


def created(api: Live, role="crawl", **fields):
    response = api.post("/keys", {"name": "test", "role": role, **fields})
    assert response.status_code == 201, response.text
    return response.json()


def limited(api: Live, role="report", **fields):
    """Create a key limited to one host and one URL; return its header."""
    limits = {"hosts": ["A.example"], "url_prefixes": [BLOG]}
    return bearer(created(api, role, **limits, **fields)["key"])


def audited(api: Live, **filters):
    items = api.get("/audit", **filters).json()["items"]
    return [(item["key"], item["act"], item["object"]) for item in items]


@pytest.mark.dear
def test_a_key_is_shown_once_and_opens_at_once(api: Live):
    body = created(api, "read", expires_at="2027-01-01T00:00:00Z")
    assert api.client.get("/epochs", headers=bearer(body["key"])).status_code == 200
    shown = api.get(f"/keys/{body['key_id']}").json()
    hidden_or_moving = ("key", "last_used_at")
    assert shown.keys() == body.keys() - {"key"}
    assert all(shown[name] == body[name] for name in body if name not in hidden_or_moving)
    assert body["key"] not in api.get("/keys").text
    assert body["key"].split("_")[2] not in api.get("/audit").text


@pytest.mark.dear
def test_a_revoked_key_is_refused_at_once_by_the_server_that_revoked_it(api: Live):
    body = created(api)
    for _ in range(2):
        assert api.client.delete(f"/keys/{body['key_id']}").status_code == 204
    assert api.client.get("/epochs", headers=bearer(body["key"])).status_code == 401
    assert api.get(f"/keys/{body['key_id']}").json()["revoked_at"]
    assert len(audited(api, act="key.revoke")) == 1


def test_a_rotated_key_works_for_its_grace(api: Live):
    old = created(api, hosts=["a.example"], items_per_s=7)
    new = api.post(f"/keys/{old['key_id']}/rotation", {"grace_s": 60}).json()
    same = ("name", "role", "hosts", "items_per_s")
    assert {name: new[name] for name in same} == {name: old[name] for name in same}
    page = f"/pages?url={OURS}"
    for key in (old["key"], new["key"]):
        assert api.client.get(page, headers=bearer(key)).status_code == 404
    api.clock.advance(seconds=60)
    assert api.client.get(page, headers=bearer(old["key"])).status_code == 401
    assert api.client.get(page, headers=bearer(new["key"])).status_code == 404
    ended = api.post(f"/keys/{old['key_id']}/rotation", {"grace_s": 60})
    assert (ended.status_code, ended.json()["title"]) == (409, "Key ended")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"name": "x", "role": "root"}, "role", "read"),
        ({"name": "", "role": "read"}, "name", "1 to 100 characters"),
        ({"name": "a\nb", "role": "read"}, "name", "control characters"),
        ({"role": "read"}, "name", "missing"),
        ({"name": "x", "role": "admin", "hosts": ["a.example"]}, "hosts", "cannot be limited"),
        ({"name": "x", "role": "read", "hosts": ["a/b"]}, "hosts", "not a host name"),
        ({"name": "x", "role": "read", "url_prefixes": ["/a"]}, "url_prefixes", "absolute"),
        ({"name": "x", "role": "read", "items_per_s": 0}, "items_per_s", "0.001"),
        ({"name": "x", "role": "read", "expires_at": "2020-01-01T00:00:00Z"}, "expires_at", "past"),
        (
            {"name": "x", "role": "read", "expires_at": "9999-12-31T23:59:59-05:00"},
            "expires_at",
            "leave it out",
        ),
        ({"name": "x", "role": "read", "key": "mine"}, "key", "key"),
    ],
)
def test_a_key_that_cannot_be_is_refused_with_its_field(sqlite_api: Live, body, field, says):
    refused = sqlite_api.post("/keys", body)
    assert (refused.status_code, refused.json()["field"]) == (422, field)
    assert says in refused.json()["detail"] or "has passed" in refused.json()["detail"]
    assert sqlite_api.get("/keys").json()["items"] == []


@pytest.mark.dear
def test_keys_and_audit_are_listed_in_parts(api: Live):
    ids = sorted(created(api)["key_id"] for _ in range(5))
    for path, expected in (("/keys", ids), ("/audit", [5, 4, 3, 2, 1])):
        found, cursor = [], {}
        while True:
            part = api.get(path, limit=2, **cursor)
            found += [item.get("key_id") or item["entry"] for item in part.json()["items"]]
            if part.json()["next_cursor"] is None:
                break
            assert 'rel="next"' in part.headers["Link"]
            cursor = {"cursor": part.json()["next_cursor"]}
        assert found == expected
        assert api.get(path, cursor="x").status_code == 422


def test_an_open_service_makes_no_key_over_http(sqlite_url):
    with running(sqlite_url) as live:
        refused = live.post("/keys", {"name": "mine", "role": "admin"})
        assert refused.status_code == 403
        assert "create the first key by `recrawl keys create`" in refused.json()["detail"]
        assert live.get("/epochs").status_code == 200


def test_every_administrative_act_leaves_an_entry_with_its_author(api: Live):
    key = created(api, "admin")
    headers = {**bearer(key["key"]), "X-Request-ID": "job 7"}

    def act(method, path, body=None):
        response = api.client.request(method, path, json=body, headers=headers)
        assert response.is_success, response.text
        return response

    (page_id,) = api.register(OURS, importance=3.0)
    act("PUT", "/hosts/a.example", {"min_delay_s": 2})
    act("PATCH", "/hosts/a.example", {"min_delay_s": 3, "max_concurrency": 2})
    act("PUT", "/groups/shared", {"members": ["a.example"], "min_delay_s": 1})
    act("POST", "/epochs")
    hub = {"topic": OURS, "hub": "https://hub.example/", "secret": "a-secret-of-the-hub"}
    subscription = act("POST", "/websub", hub).json()
    act("DELETE", f"/websub/{subscription['id']}")
    act("DELETE", f"/pages/{page_id}")
    acts = [(name, obj) for author, name, obj in audited(api) if author == key["key_id"]]
    assert acts == [
        ("page.delete", OURS),
        ("subscription.delete", OURS),
        ("subscription.create", OURS),
        ("epoch.request", "1"),
        ("group.change", "shared"),
        ("host.change", "a.example"),
        ("host.change", "a.example"),
    ]
    items = api.get("/audit", key=key["key_id"]).json()["items"]
    assert {item["request_id"] for item in items} == {"job 7"}
    changes = [(item["before"], item["after"]) for item in items]
    assert changes[0][0]["importance"] == 3.0
    assert changes[4] == (
        None,
        {
            "min_delay_s": 1.0,
            "robots_delay_s": None,
            "max_concurrency": None,
            "latency_factor": None,
            "max_delay_s": None,
            "windows": None,
            "blackouts": None,
            "max_crawl_rate": None,
            "blocked_until": None,
            "paused_until": None,
            "members": ["a.example"],
        },
    )
    assert changes[5] == (
        {"min_delay_s": 2.0, "max_concurrency": None},
        {"min_delay_s": 3.0, "max_concurrency": 2},
    )
    text = json.dumps(items)
    assert "a-secret-of-the-hub" not in text
    assert subscription["id"] not in text


def test_the_audit_names_the_pages_of_each_act_on_many(api: Live):
    ids = [api.register(f"{OURS}{n}")[0] for n in range(5)]
    api.post("/pages/recrawl", {"urls": [f"{OURS}0"]})
    api.post("/pages/recrawl", {"page_ids": ids[1:3], "urls": [f"{OURS}3", f"{OURS}4"]})
    api.client.patch("/pages", params={"host": "a.example"}, json={"importance": 2})
    api.client.delete("/pages", params={"all_pages": True})
    assert [name for _, act, name in reversed(audited(api)) if act.startswith("pages.")] == [
        f"{OURS}0",
        f"page {ids[1]}, page {ids[2]}, {OURS}3 and 1 more",
        "host=a.example",
        "all pages",
    ]


@pytest.mark.dear
@pytest.mark.parametrize("path", ["/hosts/a.example", "/groups/shared"])
def test_entries_of_changes_at_the_same_time_form_one_chain(api: Live, path):
    """The value before a change is the one that the change replaces."""
    with ThreadPoolExecutor(8) as pool:
        delays = range(1, 25)
        answers = pool.map(lambda n: api.client.put(path, json={"min_delay_s": n}), delays)
        assert {answer.status_code for answer in answers} == {200}
    items = api.get("/audit", limit=100).json()["items"][::-1]
    after = [item["after"]["min_delay_s"] for item in items]
    assert sorted(after) == list(delays)
    assert [item["before"]["min_delay_s"] for item in items[1:]] == after[:-1]


def test_an_act_that_fails_leaves_no_entry(api: Live):
    assert api.client.delete("/pages/99").status_code == 404
    assert api.client.put("/hosts/a.example", json={"min_delay_s": -1}).status_code == 422
    assert audited(api) == []


@pytest.mark.dear
def test_the_audit_is_filtered_by_its_parameters(api: Live):
    created(api)
    api.clock.advance(hours=1)
    api.client.put("/hosts/a.example", json={"min_delay_s": 2})
    noon = (api.clock() - timedelta(minutes=30)).isoformat()
    assert [act for _, act, _ in audited(api, since=noon)] == ["host.change"]
    assert [act for _, act, _ in audited(api, until=noon)] == ["key.create"]
    assert [act for _, act, _ in audited(api, object="a.example")] == ["host.change"]
    assert audited(api, act="page.delete") == []
    assert audited(api, key="environment-1", act="host.change")
    assert api.get("/audit", since="2026-05-01T12:00:00").status_code == 422


# -- keys that are limited to hosts and URLs


def send(api: Live, headers, path, items, **query):
    return api.client.post(path, json=items, params=query, headers=headers)


@pytest.mark.parametrize("url", [f"{OURS}x", "http://a.example/", f"{BLOG}1"])
def test_a_limited_key_sends_pings_and_pages_of_its_own(api: Live, url):
    headers, now = limited(api), api.clock().isoformat()
    assert send(api, headers, "/pages", [{"url": url}]).status_code == 200
    assert send(api, headers, "/pings", [{"url": url, "changed_at": now}]).status_code == 200
    assert api.client.get("/pages", params={"url": url}, headers=headers).status_code == 200


def test_what_no_limited_key_may_ask_is_refused_in_a_clear_sentence(api: Live):
    refused = api.client.get("/status", headers=limited(api))
    assert refused.status_code == 403
    assert refused.json()["detail"] == (
        "GET /status accepts no key that is limited to hosts or URLs; use a key without limits"
    )


@pytest.mark.parametrize("url", [THEIRS, "https://a.example.net/", "https://b.example/shop"])
def test_a_limited_key_names_no_other_page(api: Live, url):
    headers, now = limited(api), api.clock().isoformat()
    (page_id,) = api.register(url)
    ping = send(api, headers, "/pings", [{"url": url, "changed_at": now}])
    assert ping.status_code == 422
    (rejected,) = ping.json()["rejected"]
    assert (rejected["code"], rejected["field"]) == ("not_allowed", "url")
    assert "is outside of the limits of this key, a.example, https://b.ex" in rejected["detail"]
    assert send(api, headers, "/pages", [{"url": f"{url}new"}]).status_code == 422
    assert api.client.get("/pages", params={"url": url}, headers=headers).status_code == 403
    assert api.client.get(f"/pages/{page_id}", headers=headers).status_code == 404
    by_id = send(api, headers, "/pings", [{"page_id": page_id, "changed_at": now}])
    assert by_id.json()["rejected"][0]["code"] == "not_allowed"
    assert api.get("/hosts/" + url.split("/")[2]).json()["feed"] is None


def test_items_outside_fail_alone_and_keep_their_positions(api: Live):
    headers, now = limited(api), api.clock().isoformat()
    items = [{"url": url, "changed_at": now} for url in (THEIRS, OURS, "no url", BLOG, THEIRS)]
    answer = send(api, headers, "/pings", items).json()
    assert answer["accepted"] == 2
    assert [(each["index"], each["code"]) for each in answer["rejected"]] == [
        (0, "not_allowed"),
        (2, "invalid_url"),
        (4, "not_allowed"),
    ]
    assert [decision["index"] for decision in answer["decisions"]] == [1, 3]


@pytest.mark.parametrize("field", ["importance", "min_crawl_rate", "max_crawl_rate"])
def test_a_limited_key_cannot_take_more_of_the_budget(api: Live, field):
    answer = send(api, limited(api), "/pages", [{"url": OURS, field: 1.0}])
    assert answer.status_code == 422
    assert f"cannot set {field}; leave it out" in answer.text


def test_a_limited_key_of_role_report_sends_no_crawls_and_one_of_role_crawl_does(api: Live):
    now = api.clock().isoformat()
    items = [
        {"url": OURS, "observed_at": now, "changed": True},
        {"url": THEIRS, "observed_at": now, "changed": True},
        {"url": f"{OURS}moved", "observed_at": now, "status": 301, "redirect_url": THEIRS},
    ]
    assert send(api, limited(api), "/observations", items).status_code == 403
    for kind in ("json", "ndjson"):
        headers = limited(api, "crawl")
        if kind == "json":
            answer = send(api, headers, "/observations", items)
        else:
            content = "\n".join(map(json.dumps, items))
            headers["Content-Type"] = "application/x-ndjson"
            answer = api.client.post("/observations", content=content, headers=headers)
        fields = [(each["index"], each["field"]) for each in answer.json()["rejected"]]
        assert fields == [(1, "url")]
    assert api.get("/pages", url=THEIRS).status_code == 404
    moved = api.get("/pages", url=f"{OURS}moved").json()
    assert (moved["last_crawl_at"], moved["redirects_to"]) == (now.replace("+00:00", "Z"), None)


def test_a_limited_key_takes_no_place_of_its_group_for_a_day(api: Live):
    """A lease counts for the concurrency of all hosts of a group."""
    api.register(OURS)
    headers = limited(api, "crawl")
    most_s = api.service.lease_ttl.total_seconds()
    wish = {"count": 1, "hosts": ["a.example"]}
    refused = send(api, headers, "/leases", {**wish, "ttl_s": most_s + 1})
    assert (refused.status_code, refused.json()["field"]) == (422, "ttl_s")
    assert f"at most {most_s:g} s" in refused.json()["detail"]
    (crawl,) = send(api, headers, "/leases", {**wish, "ttl_s": most_s}).json()["items"]
    place = f"/leases/{crawl['lease']}"
    longer = api.client.patch(place, json={"ttl_s": most_s + 1}, headers=headers)
    assert (longer.status_code, longer.json()["field"]) == (422, "ttl_s")
    assert api.client.patch(place, json={"ttl_s": most_s}, headers=headers).status_code == 200
    assert api.client.patch(place, json={"ttl_s": 86_400}).status_code == 200, "an unlimited key"


def test_a_limited_key_leases_crawls_of_its_hosts_only(api: Live):
    api.register(OURS, THEIRS)
    headers = limited(api, "crawl")
    assert send(api, headers, "/leases", {"count": 9}).status_code == 403
    assert send(api, headers, "/leases", {"hosts": ["c.example"]}).status_code == 403
    assert send(api, headers, "/leases", {"hosts": ["b.example"]}).status_code == 403
    leased = send(api, headers, "/leases", {"hosts": ["a.example"], "count": 9}).json()["items"]
    assert [item["url"] for item in leased] == [OURS]


@pytest.mark.parametrize("way", ["json", "ndjson", "lease"])
def test_a_limited_key_reports_its_leases_and_no_others(api: Live, way):
    mine, theirs = api.register(OURS, THEIRS)
    headers = limited(api, "crawl")
    (crawl,) = send(api, headers, "/leases", {"hosts": ["a.example"]}).json()["items"]
    (other,) = api.post("/leases", {"hosts": ["c.example"]}).json()["items"]
    leases = [crawl["lease"], other["lease"], f"{theirs}-1", f"{theirs + 99}-1"]
    at = api.clock().isoformat()
    items = [{"lease": lease, "observed_at": at, "digest": "1"} for lease in leases]
    items.append({"lease": crawl["lease"], "page_id": mine, "observed_at": at, "digest": "1"})
    if way == "lease":
        body = {"hosts": ["a.example"], "report": items}
        reported = send(api, headers, "/leases", body).json()["reported"]
    elif way == "json":
        reported = send(api, headers, "/observations", items).json()
    else:
        content = "\n".join(map(json.dumps, items))
        lines = {**headers, "Content-Type": "application/x-ndjson"}
        reported = api.client.post("/observations", content=content, headers=lines).json()
    assert (reported["accepted"], reported["leases_ended"]) == (1, 1)
    refused = [(one["index"], one["code"], one["field"]) for one in reported["rejected"]]
    assert refused == [
        (1, "not_allowed", "lease"),
        (2, "not_allowed", "lease"),
        (3, "page_not_found", "page_id"),
        (4, "not_allowed", "url"),
    ]
    assert THEIRS not in json.dumps(reported["rejected"])
    assert api.get(f"/pages/{theirs}").json()["last_crawl_at"] is None


def test_a_limited_key_sends_sitemaps_and_indexnow_of_its_hosts_only(api: Live):
    headers = {**limited(api), "Content-Type": "text/plain"}

    def sitemap(url, **query):
        return api.client.post(
            "/sitemaps", content=f"{url}page", params={"url": url, **query}, headers=headers
        ).status_code

    assert sitemap(OURS) == 200
    assert sitemap(THEIRS) == sitemap(OURS, cross_host=True) == 403
    key = "0123abcd"
    for url, status in ((OURS, 200), (THEIRS, 403)):
        parameters = {"url": url, "key": key}
        answer = api.client.get("/indexnow", params=parameters, headers=headers)
        assert answer.status_code == status


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "path", ["/schedule", "/changes", "/webhooks", "/hosts", "/hosts/c.example", "/groups/g"]
)
@pytest.mark.parametrize("role", ["read", "crawl"])
def test_a_limited_key_reads_no_list_with_urls_of_other_hosts(sqlite_api: Live, path, role):
    assert sqlite_api.client.get(path, headers=limited(sqlite_api, role)).status_code == 403


# -- items a second


def test_a_key_that_used_up_its_items_waits_and_others_do_not(sqlite_api: Live):
    slow = bearer(created(sqlite_api, "report", items_per_s=0.001)["key"])
    pages = [{"url": f"{OURS}{i}"} for i in range(50)]
    first = send(sqlite_api, slow, "/pages", pages)
    assert first.status_code == 200
    assert first.headers["RateLimit-Policy"] == '"items";q=1;qu="items";w=1000'
    assert first.headers["RateLimit"] == '"items";r=0;t=50000'
    second = send(sqlite_api, slow, "/pages", pages)
    assert (second.status_code, second.json()["title"]) == (429, "Rate limited")
    assert second.headers["RateLimit"].startswith('"items";r=0;t=')
    assert 49_000 < int(second.headers["Retry-After"]) <= 50_000
    assert second.json()["retry_after_s"] == int(second.headers["Retry-After"])
    assert send(sqlite_api, None, "/pages", pages).status_code == 200
    assert "RateLimit" not in sqlite_api.get("/epochs").headers


def test_every_kind_of_item_counts(sqlite_api: Live):
    now = sqlite_api.clock().isoformat()
    urls = [f"{OURS}{i}" for i in range(9)]
    calls = [
        ("/pages", [{"url": url} for url in urls]),
        ("/pings", [{"url": url, "changed_at": now} for url in urls]),
        ("/observations", [{"url": url, "observed_at": now, "changed": True} for url in urls]),
    ]
    for path, items in calls:
        key = bearer(created(sqlite_api, "report", items_per_s=1)["key"])
        answer = send(sqlite_api, key, path, items)
        assert answer.headers["RateLimit"].startswith('"items";r=1;'), path


def test_a_stream_is_slowed_down_to_the_rate_of_its_key(sqlite_url):
    now_items = 25
    with running(sqlite_url, api_keys=(ADMIN,), max_items=5) as live:
        key = created(live, "report", items_per_s=50)["key"]
        now = live.clock().isoformat()
        lines = [
            json.dumps({"url": f"{OURS}{i}", "observed_at": now, "changed": True})
            for i in range(now_items)
        ]
        headers = {**bearer(key), "Content-Type": "application/x-ndjson"}
        answer = live.client.post("/observations", content="\n".join(lines), headers=headers)
        assert answer.json()["accepted"] == now_items
        slow = created(live, "report", items_per_s=0.001)["key"]
        headers = {**headers, **bearer(slow)}
        cut = live.client.post("/observations", content="\n".join(lines), headers=headers)
        assert cut.status_code == 429
        assert 0 < cut.json()["lines_taken"] < now_items


@pytest.mark.dear
def test_a_fleet_of_one_key_works_in_turns_and_long_polls_take_no_place(sqlite_url):
    import concurrent.futures

    with running(sqlite_url, api_keys=(ADMIN,), max_requests_per_key=2) as live:
        text, _ = new_key(live.service.store, Role.crawl)
        live.service.gate.ring.refresh()

        def work(i):
            body = {"worker": f"w{i}", "wait_s": 1}
            return live.client.post("/leases", json=body, headers=bearer(text)).status_code

        with concurrent.futures.ThreadPoolExecutor(20) as fleet:
            assert set(fleet.map(work, range(20))) == {200}
        slots = live.service.gate.caller(text).slots
        assert (slots.free, len(slots.waiting)) == (2, 0)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "recrawl.localhost:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "api"}, 200),
        ({"Host": "rebound.evil.example"}, 403),
        ({"Host": "rebound.evil.example", "Origin": "http://rebound.evil.example"}, 403),
        ({"Host": "10.0.0.1.evil.example"}, 403),
        ({"Host": "localhost", "Origin": "http://localhost"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://console.example"}, 200),
    ],
)
def test_pages_of_other_sites_cannot_use_a_service_without_keys(open_api, headers, status):
    body = [{"url": OURS}]
    assert open_api.client.post("/pages", json=body, headers=headers).status_code == status
    assert open_api.client.get("/epochs", headers=headers).status_code == status


def test_a_service_with_keys_has_any_name(sqlite_api: Live):
    for headers in ({"Host": "recrawl.example"}, {"Origin": "https://evil.example"}):
        assert sqlite_api.client.get("/epochs", headers=headers).status_code == 200


def test_a_key_of_role_crawl_reports_the_delay_of_robots_txt_and_nothing_else(sqlite_url):
    with running(sqlite_url, api_keys=(ADMIN,)) as live:
        key, _ = new_key(live.service.store, Role.crawl)
        limited, _ = new_key(live.service.store, Role.crawl, hosts=("a.example",))
        live.service.gate.ring.refresh()

        def patch(text, **settings):
            return live.client.patch("/hosts/a.example", json=settings, headers=bearer(text))

        for _ in range(3):
            assert patch(key, robots_delay_s=5).json()["robots_delay_s"] == 5
        acts = [each["act"] for each in live.get("/audit").json()["items"]]
        assert acts.count("host.change") == 1, "a delay that stays is no change"
        for other in ({"min_delay_s": 0}, {"robots_delay_s": 1, "group": "g"}):
            refused = patch(key, **other)
            assert refused.status_code == 403
            assert "role admin" in refused.json()["detail"]
        assert patch(limited, robots_delay_s=86_400).status_code == 403
        assert patch(key, robots_delay_s=None).json()["robots_delay_s"] is None
        assert patch(ADMIN, min_delay_s=0).status_code == 200


# -- what belongs to operators


def test_a_limited_key_sets_no_tags(api: Live):
    items = [{"url": OURS, "tags": ["vip"]}, {"url": f"{OURS}1", "tags": []}, {"url": f"{OURS}2"}]
    for role in ("report", "crawl"):
        answer = send(api, limited(api, role), "/pages", items).json()
        rejected = [(each["index"], each["code"], each["field"]) for each in answer["rejected"]]
        assert rejected == [(0, "not_allowed", "tags"), (1, "not_allowed", "tags")]
    assert api.get("/pages", tag="vip").json()["items"] == []
    assert send(api, bearer(created(api, "report")["key"]), "/pages", items[:1]).status_code == 200
    assert len(api.get("/pages", tag="vip").json()["items"]) == 1


def blocked(api: Live, group="shared"):
    return api.get(f"/groups/{group}").json()["host_queue"]["paused_until"]


@pytest.mark.parametrize("way", ["json", "ndjson", "lease", "url"])
@pytest.mark.parametrize("status", [429, 0])
def test_a_limited_key_pauses_no_other_host_of_its_group(api: Live, way, status):
    api.client.put("/groups/shared", json={"members": ["a.example", "c.example"]})
    api.register(*(f"{OURS}{n}" for n in range(4)), THEIRS)
    headers, at = limited(api, "crawl"), api.clock().isoformat()
    trouble = {"observed_at": at, "status": status, "retry_after_s": 86_400}
    leased = send(api, headers, "/leases", {"hosts": ["a.example"]}).json()["items"]
    items = [{"url": f"{OURS}{n}", **trouble} for n in range(4)]
    if way != "url":
        items = [{"lease": leased[0]["lease"], **trouble}, *items[1:]]
    if way == "ndjson":
        lines = {**headers, "Content-Type": "application/x-ndjson"}
        content = "\n".join(map(json.dumps, items))
        done = api.client.post("/observations", content=content, headers=lines).json()
    elif way == "lease":
        body = {"hosts": ["a.example"], "report": items}
        done = send(api, headers, "/leases", body).json()["reported"]
    else:
        done = send(api, headers, "/observations", items).json()
    assert (done["accepted"], done["leases_ended"]) == (4, int(way != "url"))
    assert blocked(api) is None
    api.clock.advance(minutes=6)
    (other,) = api.post("/leases", {"hosts": ["c.example"]}).json()["items"]
    assert other["url"] == THEIRS
    report = {"lease": other["lease"], **trouble, "observed_at": api.clock().isoformat()}
    assert send(api, bearer(ADMIN), "/observations", [report] * 3).status_code == 200
    if status == 429:
        assert blocked(api) is not None


@pytest.mark.dear
def test_a_limited_key_ends_no_row_of_failures_of_its_group(api: Live):
    api.client.put("/groups/shared", json={"members": ["a.example", "c.example"]})
    api.register(OURS, THEIRS)
    headers = limited(api, "crawl")
    for n in range(3):
        at = api.clock.advance(seconds=10).isoformat()
        send(api, bearer(ADMIN), "/observations", [{"url": THEIRS, "observed_at": at, "status": 0}])
        good = [{"url": OURS, "observed_at": at, "digest": str(n)}]
        assert send(api, headers, "/observations", good).json()["accepted"] == 1
    assert blocked(api) is not None


@pytest.mark.parametrize("members", [[], ["a.example"], ["a.example", "d.example"]])
def test_a_limited_key_pauses_its_own_hosts(api: Live, members):
    if members:
        api.client.put("/groups/shared", json={"members": members})
    api.register(OURS)
    headers = bearer(created(api, "crawl", hosts=["a.example", "d.example"])["key"])
    at = api.clock().isoformat()
    item = {"url": OURS, "observed_at": at, "status": 429, "retry_after_s": 600}
    assert send(api, headers, "/observations", [item]).json()["accepted"] == 1
    place = "/groups/shared" if members else "/hosts/a.example"
    assert api.get(place).json()["host_queue"]["paused_until"] is not None


def test_a_key_of_some_urls_pauses_no_host(api: Live):
    """Other pages of the host are not those of the key."""
    api.register(f"{BLOG}1")
    headers, at = limited(api, "crawl"), api.clock().isoformat()
    item = {"url": f"{BLOG}1", "observed_at": at, "status": 429, "retry_after_s": 600}
    assert send(api, headers, "/observations", [item]).json()["accepted"] == 1
    assert api.get("/hosts/b.example").json()["host_queue"]["paused_until"] is None
