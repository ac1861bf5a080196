"""Pages as a collection over HTTP: listed, counted, tagged, changed, deleted, crawled again."""

import csv
import io
import json
from datetime import timedelta

import pyarrow as pa
import pytest
from support.live_server import START, Live

from service.api.routes import bulk, listing

A, B = "https://a.example/", "https://b.example/"


@pytest.fixture
def world(api: Live) -> Live:
    """Four pages of one host and two of another; those with odd numbers are tagged."""
    for i in range(1, 5):  # one after the other, so that page_ids have this order
        api.register(f"{A}news/{i}", importance=2.0)
    for i in (1, 2):
        api.register(f"{B}{i}", tags=["odd", "b"])
    api.register(f"{A}news/1", f"{A}news/3", tags=["odd"])
    return api


def urls(api: Live, **query):
    """Return the URLs of all parts."""
    found, cursor = [], None
    while True:
        part = api.get("/pages", **query, **({"cursor": cursor} if cursor else {}))
        assert part.status_code == 200, part.text
        found += [item["url"] for item in part.json()["items"]]
        cursor = part.json()["next_cursor"]
        assert ("next" in part.links) is (cursor is not None)
        if cursor is None:
            return found


def act(api: Live, method: str, path: str = "/pages", body=None, **query):
    response = api.client.request(method, path, json=body, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def refused(response, field, *words):
    assert response.status_code == 422, response.text
    problem = response.json()
    assert problem["field"] == field, problem
    for word in words:
        assert word in problem["detail"], problem


def test_pages_are_listed_in_parts_with_a_link_to_the_next(world: Live):
    first = world.get("/pages", limit=4)
    assert [item["url"] for item in first.json()["items"]] == [f"{A}news/{i}" for i in range(1, 5)]
    following = world.client.get(first.links["next"]["url"])
    assert [item["url"] for item in following.json()["items"]] == [f"{B}1", f"{B}2"]
    assert len(urls(world, limit=1)) == 6


def test_an_item_has_the_outcome_of_the_last_crawl_in_every_format(world: Live):
    seen = {"news/1": {"digest": "1"}, "news/2": {"status": 403}, "news/3": {"status": 503}}
    crawls = [
        {"url": f"{A}{path}", "observed_at": START.isoformat(), **each}
        for path, each in seen.items()
    ]
    assert world.post("/observations", crawls).json()["accepted"] == 3
    expected = ["content", "refused", "failed", None]
    items = world.get("/pages", host="a.example").json()["items"]
    assert [item["outcome"] for item in items] == expected
    text = world.client.get(
        "/pages", params={"host": "a.example"}, headers={"Accept": "text/csv"}
    ).text
    rows = csv.DictReader(io.StringIO(text))
    assert [row["outcome"] or None for row in rows] == expected
    failing = world.get("/pages", state="failing").json()["items"]
    assert {item["outcome"] for item in failing} == {"refused", "failed"}


def test_an_item_has_the_state_the_settings_and_the_rates(world: Live):
    world.epoch()
    item = world.get("/pages", limit=1).json()["items"][0]
    schedule = {row["url"]: row for row in world.schedule()}[f"{A}news/1"]
    assert item == {
        "page_id": item["page_id"],
        "url": f"{A}news/1",
        "state": "never_crawled",
        "tags": ["odd"],
        "importance": 2.0,
        "observability": "auto",
        "min_crawl_rate": None,
        "max_crawl_rate": None,
        "change_rate": schedule["change_rate"],
        "crawl_rate": schedule["crawl_rate"],
        "n_observations": 0,
        "n_changes": 0,
        "created_at": "2026-05-01T12:00:00Z",
        "last_crawl_at": None,
        "next_crawl_at": schedule["next_crawl_at"],
        "redirect_url": None,
        "n_unfinished": 0,
        "outcome": None,
    }


@pytest.mark.dear
def test_filters_select_pages(world: Live):
    assert urls(world, tag="odd") == [f"{A}news/1", f"{A}news/3", f"{B}1", f"{B}2"]
    assert urls(world, tag="odd", host="B.example", limit=1) == [f"{B}1", f"{B}2"]
    assert urls(world, url_prefix="https://A.example/news/2") == [f"{A}news/2"]
    assert urls(world, url_prefix=f"{A}?q=/.") == []
    assert urls(world, url_prefix="https://a.example") == urls(world, host="a.example")
    assert urls(world, host="unknown.example") == []
    assert urls(world, state="never_crawled") == urls(world)
    at = START.isoformat()
    world.clock.advance(hours=1)
    world.post(
        "/observations",
        [
            {"url": f"{B}1", "observed_at": at, "status": 404},
            {
                "url": f"{B}1",
                "observed_at": (START + timedelta(hours=1)).isoformat(),
                "status": 404,
            },
            {"url": f"{B}2", "observed_at": at, "status": 500},
            {"url": f"{A}news/1", "observed_at": at, "digest": "1"},
        ],
    )
    assert urls(world, state="gone") == [f"{B}1"]
    assert urls(world, state="failing") == [f"{B}2"]
    assert urls(world, state="active") == [f"{A}news/1"]
    assert urls(world, observability="complete") == []
    later = (START + timedelta(minutes=30)).isoformat()
    world.post("/observations", [{"url": f"{A}news/1", "observed_at": later, "digest": "2"}])
    assert urls(world, changed_since=later) == [f"{A}news/1"]
    assert urls(world, changed_since=world.clock.now.isoformat()) == []
    world.epoch()
    rate = world.get("/pages", limit=1).json()["items"][0]["change_rate"]
    assert f"{A}news/1" in urls(world, change_rate_from=rate, change_rate_to=rate)
    assert urls(world, crawl_rate_from=1e9) == []
    assert set(urls(world, state="overdue")) >= {f"{A}news/2", f"{A}news/3", f"{A}news/4"}


def test_one_page_is_shown_by_its_url(world: Live):
    page = world.get("/pages", url=f"{A}news/1").json()
    assert (page["url"], page["tags"]) == (f"{A}news/1", ["odd"])
    refused(world.get("/pages", url=f"{A}news/1", tag="odd"), "url", "one page")
    assert world.get("/pages", url=f"{A}none").status_code == 404


def test_the_list_streams_as_ndjson_csv_and_arrow(world: Live, monkeypatch):
    monkeypatch.setattr(listing, "BLOCK", 4)
    items = world.get("/pages").json()["items"]

    def stream(media):
        response = world.client.get("/pages", headers={"Accept": media})
        assert response.headers["content-type"].startswith(media)
        return response

    ndjson = stream("application/x-ndjson").text.splitlines()
    assert [json.loads(line) for line in ndjson] == items
    rows = list(csv.DictReader(io.StringIO(stream("text/csv").text)))
    assert list(rows[0]) == list(items[0])
    assert [row["url"] for row in rows] == [item["url"] for item in items]
    assert rows[0] | {"created_at": ""} == {
        name: " ".join(value) if name == "tags" else "" if value is None else str(value)
        for name, value in items[0].items()
    } | {"created_at": "", "next_crawl_at": rows[0]["next_crawl_at"]}
    assert rows[0]["created_at"] == "2026-05-01T12:00:00.000000Z"
    arrow = pa.ipc.open_stream(stream("application/vnd.apache.arrow.stream").content)
    table = arrow.read_all().to_pylist()
    assert [row["tags"] for row in table] == [item["tags"] for item in items]
    assert [row["importance"] for row in table] == [item["importance"] for item in items]
    assert table[0]["change_rate"] is None
    assert world.client.get("/pages", headers={"Accept": "image/png"}).status_code == 406


def test_a_stream_without_pages_is_whole(sqlite_api: Live):
    header = sqlite_api.client.get("/pages", headers={"Accept": "text/csv"}).text
    assert header.startswith("page_id,url,state,tags,")
    assert header.count("\n") == 1
    arrow = sqlite_api.client.get(
        "/pages", headers={"Accept": "application/vnd.apache.arrow.stream"}
    )
    assert pa.ipc.open_stream(arrow.content).read_all().num_rows == 0


@pytest.mark.dear
def test_the_count_says_what_it_is(world: Live, monkeypatch):
    assert "count" not in world.get("/pages").json()
    part = world.get("/pages", count="exact", limit=1).json()
    assert (part["count"], part["count_is"]) == (6, "exact")
    assert world.get("/pages", count="estimate", tag="odd").json()["count"] == 4
    monkeypatch.setattr("service.leases.listing.MOST_COUNTED", 3)
    part = world.get("/pages", count="exact").json()
    assert (part["count"], part["count_is"]) == (6, "estimate")
    following = world.client.get(world.get("/pages", count="exact", limit=1).links["next"]["url"])
    assert "count" not in following.json()


@pytest.mark.dear
def test_tags_are_set_added_and_removed(world: Live):
    (page_id,) = world.register(f"{B}1")  # left out, tags stay
    path = f"/pages/{page_id}"
    assert world.get(path).json()["tags"] == ["b", "odd"]
    patched = world.client.patch(path, json={"add_tags": ["new"], "remove_tags": ["odd"]})
    assert patched.json()["tags"] == ["b", "new"]
    assert world.client.patch(path, json={"tags": []}).json()["tags"] == []
    world.register(f"{B}1", tags=["x", "y", "x"])
    assert world.get(path).json()["tags"] == ["x", "y"]
    full = [f"t{i}" for i in range(16)]
    world.register(f"{B}1", tags=full)
    refused(world.client.patch(path, json={"add_tags": ["more"]}), "add_tags", "16")
    assert sorted(world.get(path).json()["tags"]) == sorted(full)


@pytest.mark.dear
def test_of_one_url_twice_the_last_tags_count(api: Live):
    items = [{"url": A, "tags": ["a"]}, {"url": B}, {"url": A, "tags": ["b"]}, {"url": A}]
    assert api.post("/pages", items).status_code == 200
    assert api.get("/pages", url=A).json()["tags"] == ["b"]
    assert api.get("/pages", url=B).json()["tags"] == []


@pytest.mark.parametrize("tag", ["", "Big", "two words", "a" * 51, "-a", "ä", "a\n"])
def test_a_wrong_tag_is_refused_with_the_remedy(sqlite_api: Live, tag):
    response = sqlite_api.post("/pages", [{"url": A, "tags": ["ok", tag]}, {"url": B}])
    assert response.json()["accepted"] == 1
    (rejection,) = response.json()["rejected"]
    assert rejection["field"] == "tags"
    assert "lower-case" in rejection["detail"]
    refused(sqlite_api.get("/pages", tag=tag), "tag")


def test_a_change_by_filter_counts_first_then_changes_and_changes_nothing_again(world: Live):
    patch = {"importance": 7.0, "add_tags": ["deep"]}
    dry = act(world, "PATCH", body=patch, host="a.example", dry_run=True)
    assert (dry["dry_run"], dry["matched"], dry["changed"]) == (True, 4, 0)
    assert urls(world, tag="deep") == []
    done = act(world, "PATCH", body=patch, host="a.example")
    assert (done["matched"], done["changed"], done["n_rejected"]) == (4, 4, 0)
    assert done["next_cursor"] is None
    assert urls(world, tag="deep") == urls(world, host="a.example")
    assert {i["importance"] for i in world.get("/pages", tag="deep").json()["items"]} == {7.0}
    assert act(world, "PATCH", body=patch, host="a.example")["changed"] == 0


@pytest.mark.dear
def test_pages_whose_bounds_would_cross_are_rejected_and_stay(world: Live):
    world.register(f"{A}news/2", max_crawl_rate=1.0)
    patch = {"min_crawl_rate": 2.0, "add_tags": ["fast"]}
    for dry_run in (True, False):
        done = act(world, "PATCH", body=patch, host="a.example", dry_run=dry_run)
        assert (done["matched"], done["n_rejected"]) == (4, 1)
        (rejection,) = done["rejected"]
        assert (rejection["index"], rejection["code"]) == (1, "conflict")
        assert "both bounds" in rejection["detail"]
    assert urls(world, tag="fast") == [f"{A}news/{i}" for i in (1, 3, 4)]
    page = world.get("/pages", url=f"{A}news/2").json()
    assert (page["min_crawl_rate"], page["max_crawl_rate"], page["tags"]) == (None, 1.0, [])


@pytest.mark.dear
def test_a_change_of_a_complete_page_counts_too(world: Live):
    world.register(f"{A}news/3", observability="complete")
    for digest in ("1", "2"):
        world.clock.advance(minutes=1)
        crawl = {"url": f"{A}news/3", "observed_at": world.clock.now.isoformat(), "digest": digest}
        assert world.post("/observations", [crawl]).json()["accepted"] == 1
    assert urls(world, changed_since=world.clock.now.isoformat()) == [f"{A}news/3"]
    later = (world.clock.now + timedelta(seconds=1)).isoformat()
    assert urls(world, changed_since=later) == []


def test_a_dry_run_rejects_what_the_change_rejects(world: Live):
    world.register(f"{A}news/2", tags=[f"t{i}" for i in range(16)])
    for dry_run in (True, False):
        patch = {"importance": 3.0, "add_tags": ["more"]}
        done = act(world, "PATCH", body=patch, host="a.example", dry_run=dry_run)
        assert (done["matched"], done["n_rejected"], done["changed"]) == (4, 1, 0 if dry_run else 3)
        (rejection,) = done["rejected"]
        assert (rejection["index"], rejection["field"]) == (1, "add_tags")
    assert world.get("/pages", url=f"{A}news/2").json()["importance"] == 2.0


@pytest.mark.dear
def test_a_delete_by_filter_takes_the_selected_pages_only(world: Live):
    assert act(world, "DELETE", tag="odd", dry_run=True)["matched"] == 4
    assert len(urls(world)) == 6
    assert act(world, "DELETE", tag="odd")["changed"] == 4
    assert urls(world) == [f"{A}news/2", f"{A}news/4"]
    assert act(world, "DELETE", tag="odd")["matched"] == 0
    assert act(world, "DELETE", all_pages=True)["changed"] == 2


@pytest.mark.dear
def test_an_act_that_takes_long_answers_with_a_cursor_and_goes_on(world: Live, monkeypatch):
    monkeypatch.setattr("service.ingest.bulk.BLOCK", 2)
    monkeypatch.setattr(bulk, "BULK_S", 0.0)
    answers, cursor = [], {}
    while True:
        done = act(world, "PATCH", body={"tags": ["t"]}, all_pages=True, **cursor)
        answers.append((done["matched"], done["changed"]))
        if done["next_cursor"] is None:
            break
        cursor = {"cursor": done["next_cursor"]}
    assert len(answers) > 1
    assert sum(matched for matched, _ in answers) == 6
    assert sum(changed for _, changed in answers) == 6
    assert len(urls(world, tag="t")) == 6


def test_without_a_filter_no_act_runs(world: Live):
    for method, body in (("PATCH", {"importance": 2}), ("DELETE", None)):
        response = world.client.request(method, "/pages", json=body)
        refused(response, "all_pages", "nothing is selected", "url_prefix")
    refused(world.post("/pages/recrawl", {}), "all_pages", "page_ids")
    refused(world.client.delete("/pages?all_pages=true&tag=odd"), "all_pages", "excludes")
    assert len(urls(world)) == 6


def test_pages_crawled_again_come_before_all_others_of_their_host(world: Live):
    at = START.isoformat()
    every = urls(world)
    world.post("/observations", [{"url": u, "observed_at": at, "digest": "1"} for u in every])
    world.epoch()
    world.clock.advance(seconds=10)
    assert world.post("/leases", {"count": 9}).json()["items"] == []
    ids = {item["url"]: item["page_id"] for item in world.get("/pages").json()["items"]}
    named = {"page_ids": [ids[f"{A}news/3"], 999], "urls": [f"{B}2", f"{B}none", "ftp://x/"]}
    done = act(world, "POST", "/pages/recrawl", named)
    assert (done["matched"], done["changed"], done["n_rejected"]) == (2, 2, 3)
    assert [(r["index"], r["code"], r["field"]) for r in done["rejected"]] == [
        (1, "page_not_found", "page_ids"),
        (3, "page_not_found", "urls"),
        (4, "invalid_url", "urls"),
    ]
    assert act(world, "POST", "/pages/recrawl", named)["changed"] == 0
    world.clock.advance(days=400)  # all are due, the requested ones come first
    leased = world.post("/leases", {"count": 2}).json()["items"]
    assert [(item["url"], item["reason"]) for item in leased] == [
        (f"{A}news/3", "request"),
        (f"{B}2", "request"),
    ]


@pytest.mark.dear
def test_pages_are_crawled_again_by_filter(world: Live):
    dry = act(world, "POST", "/pages/recrawl", {}, tag="b", dry_run=True)
    assert (dry["matched"], dry["changed"]) == (2, 0)
    assert act(world, "POST", "/pages/recrawl", {}, tag="b")["changed"] == 2
    refused(world.post("/pages/recrawl", {"urls": [A]}, tag="b"), "page_ids", "leave filters")


@pytest.mark.dear
def test_a_log_is_read_whole_in_parts(api: Live):
    (page_id,) = api.register(A)
    at = [(START + timedelta(minutes=i)).isoformat() for i in range(5)]
    api.clock.advance(hours=1)
    for i, moment in enumerate(at):
        api.post("/observations", [{"url": A, "observed_at": moment, "digest": str(i // 2)}])
    path, found, query = f"/pages/{page_id}/observations", [], {"limit": 2}
    while True:
        part = api.get(path, **query)
        found += part.json()["items"]
        if part.json()["next_cursor"] is None:
            break
        query["cursor"] = part.json()["next_cursor"]
    assert [entry["observed_at"][14:16] for entry in found] == ["04", "03", "02", "01", "00"]
    assert [entry["changed"] for entry in found] == [True, False, True, False, None]
    assert api.get("/pages/999/observations").status_code == 404
    refused(api.get(path, cursor="nonsense"), "cursor", "/observations")


def test_running_leases_are_listed_without_their_tokens(world: Live):
    leased = world.post("/leases", {"count": 2, "worker": "w1"}).json()["items"]
    listed = world.get("/leases").json()
    assert [(i["page_id"], i["worker"]) for i in listed["items"]] == sorted(
        (item["page_id"], "w1") for item in leased
    )
    assert not any(item["lease"] in json.dumps(listed) for item in leased)
    part = world.get("/leases", limit=1)
    following = world.client.get(part.links["next"]["url"]).json()["items"]
    assert part.json()["items"] + following == listed["items"]
    world.clock.advance(days=1)
    assert world.get("/leases").json()["items"] == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("query", "field", "word"),
    [
        ({"changed_since": "2026-05-01T12:00:00"}, "changed_since", "zone"),
        ({"change_rate_from": 2, "change_rate_to": 1}, "change_rate_from", "above"),
        ({"crawl_rate_to": -1}, "crawl_rate_to", "0"),
        ({"url_prefix": "example.com/"}, "url_prefix", "scheme"),
        ({"url_prefix": f"{A}news/."}, "url_prefix", "leave it out"),
        ({"url_prefix": f"{A}news/%2E."}, "url_prefix", "leave it out"),
        ({"url_prefix": f"{A}news#part"}, "url_prefix", "leave it out"),
        ({"url_prefix": A, "host": "b.example"}, "url_prefix", "leave host out"),
        ({"state": "asleep"}, "state", "overdue"),
        ({"host": "a b"}, "host", "host name"),
        ({"limit": 0}, "limit", "1"),
        ({"cursor": "kqZob3N0czER"}, "cursor", "/pages"),
    ],
)
def test_a_wrong_filter_is_refused_with_its_name_and_the_remedy(
    sqlite_api: Live, query, field, word
):
    refused(sqlite_api.get("/pages", **query), field, word)
