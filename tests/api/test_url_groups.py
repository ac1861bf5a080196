"""URL groups over HTTP: what is held, why, and the rules of operators."""

import pytest
from support.live_server import running


@pytest.fixture
def learned(database_url):
    with running(database_url, admission="learned", host_delay_s=0, host_concurrency=0) as live:
        yield live


def junk(n, path="search/list?id="):
    return [{"url": f"https://example.com/{path}{i}"} for i in range(n)]


def register(live, n):
    return live.register(*(page["url"] for page in junk(n)))


def crawl(live, digest=lambda url: "same"):
    """Crawl all that is leased now; return the URLs."""
    urls = []
    while leased := live.post("/leases", {"worker": "w", "count": 1000}).json()["items"]:
        urls += [crawl["url"] for crawl in leased]
        live.clock.advance(seconds=1)
        at = live.clock().isoformat()
        reports = [
            {
                "page_id": crawl["page_id"],
                "lease": crawl["lease"],
                "observed_at": at,
                "status": 200,
                "digest": digest(crawl["url"]),
            }
            for crawl in leased
        ]
        assert live.post("/observations", reports).json()["accepted"] == len(reports)
    return urls


def groups(live, **query):
    return {item["group"]: item for item in live.get("/url-groups", **query).json()["items"]}


def test_a_stopped_group_is_listed_with_what_its_first_crawls_brought(learned):
    learned.post("/pages", junk(100))
    assert len(crawl(learned)) == 19  # the first is new, and then q = 1.975 / 20
    stopped = groups(learned, stopped=True)
    last = stopped["example.com/search/list?id"]
    assert last["state"] == "stopped"
    assert last["n_new"] == 1
    assert last["n_first"] + last["n_waiting"] == 100
    assert last["share_new"] < 0.1
    assert groups(learned)["example.com"]["state"] == "open"
    assert groups(learned, prefix="example.com/search")["example.com/search"]["n_waiting"] >= 70


def test_a_list_of_groups_comes_in_parts(learned):
    learned.post("/pages", junk(3))
    names, query = [], {}
    while True:
        answer = learned.get("/url-groups", limit=1, **query).json()
        names += [item["group"] for item in answer["items"]]
        if answer["next_cursor"] is None:
            break
        query = {"cursor": answer["next_cursor"]}
    search = "example.com/search"
    assert names == ["example.com", search, f"{search}/list", f"{search}/list?id"]


def test_a_held_page_says_why_and_a_ping_does_not_change_it(learned):
    pages = register(learned, 100)
    crawl(learned)
    last = pages[-1]
    page = learned.get(f"/pages/{last}").json()
    assert "have brought too little that is new" in page["why"]["sentence"]
    at = learned.clock().isoformat()
    (decision,) = learned.post("/pings", [{"page_id": last, "changed_at": at}]).json()["decisions"]
    assert (decision["crawl"], decision["reason"]) == (False, "held")
    assert crawl(learned) == []


@pytest.mark.dear
def test_an_operator_has_a_held_page_crawled(learned):
    pages = register(learned, 100)
    crawl(learned)
    why = learned.get(f"/pages/{pages[-1]}").json()["why"]
    assert why["hold"] == "stopped"
    learned.post("/pages/recrawl", {"page_ids": [pages[-1]]})
    why = learned.get(f"/pages/{pages[-1]}").json()["why"]
    assert (why["hold"], "URL group" in why["sentence"]) == ("ready", False)
    assert crawl(learned) == [junk(100)[-1]["url"]]


def test_a_page_of_a_group_with_a_rule_is_crawled_on_request(learned):
    group = "https://example.com/search/"
    learned.client.put("/url-groups", json={"group": group, "rule": "stop"})
    (page_id,) = register(learned, 1)
    why = learned.get(f"/pages/{page_id}").json()["why"]
    assert (why["hold"], why["by"]) == ("stopped", "example.com/search")
    learned.post("/pages/recrawl", {"page_ids": [page_id]})
    why = learned.get(f"/pages/{page_id}").json()["why"]
    assert (why["hold"], why["by"]) == ("no_crawler", None)
    assert crawl(learned) == [junk(1)[0]["url"]]


def test_a_rule_stops_a_directory_and_its_end_lets_it_go_on(learned):
    group = "https://example.com/calendar/"
    ruled = learned.client.put("/url-groups", json={"group": group, "rule": "stop"}).json()
    assert (ruled["group"], ruled["state"]) == ("example.com/calendar", "held")
    learned.post("/pages", junk(50, "calendar/day?n="))
    assert crawl(learned) == []
    assert groups(learned)["example.com/calendar"]["n_waiting"] == 50
    learned.client.put("/url-groups", json={"group": "example.com/calendar", "rule": None})
    assert len(crawl(learned, digest=lambda url: url)) == 50


def test_a_rule_holds_pages_that_were_admitted_and_not_crawled(learned):
    learned.post("/pages", junk(50))
    learned.client.put("/url-groups", json={"group": "https://example.com/search/", "rule": "stop"})
    assert crawl(learned) == []
    assert groups(learned)["example.com/search/list?id"]["n_in_flight"] == 0


def test_a_rule_admits_all_pages_of_a_stopped_group_and_is_in_the_audit(learned):
    learned.post("/pages", junk(100))
    n = len(crawl(learned))
    group = "example.com/search/list?id"
    assert (
        learned.client.put("/url-groups", json={"group": group, "rule": "admit"}).status_code == 200
    )
    assert len(crawl(learned)) == 100 - n
    (entry,) = learned.get("/audit", act="url_group.change").json()["items"]
    assert (entry["object"], entry["after"]) == (group, {"rule": "admit"})


@pytest.mark.parametrize("group", ["example.com/none", "ftp://example.com/"])
def test_an_unknown_group_is_refused_with_what_to_send(learned, group):
    answer = learned.client.put("/url-groups", json={"group": group, "rule": "stop"})
    assert answer.status_code == 422
    assert "send" in answer.json()["detail"]


def test_a_deleted_page_gives_its_place_back(learned):
    pages = register(learned, 30)
    before = groups(learned)["example.com/search/list?id"]
    assert (before["n_in_flight"], before["n_waiting"]) == (9, 21)
    learned.client.delete(f"/pages/{min(pages)}")
    assert groups(learned)["example.com/search/list?id"]["n_in_flight"] == 8
    learned.post("/pages", junk(31)[30:])
    after = groups(learned)["example.com/search/list?id"]
    assert (after["n_in_flight"], after["n_waiting"]) == (9, 21)


def test_the_count_of_a_group_has_those_of_the_groups_below_it(learned):
    """A group with an answer leans no more on those above, but is a part of them."""
    learned.register(*(f"https://a.example/{part}/{n}" for part in "xy" for n in range(40)))
    leased = learned.post("/leases", {"worker": "w", "count": 3}).json()["items"]
    reports = [{"lease": each["lease"], "status": 200, "digest": each["url"]} for each in leased]
    assert learned.post("/observations", reports).json()["accepted"] == 3
    listed = groups(learned)
    assert any(each["n_first"] for name, each in listed.items() if "?" in name)
    n = {name: each["n_in_flight"] for name, each in listed.items()}
    assert n["a.example"] == n["a.example/x"] + n["a.example/y"] > 0
    for part in "xy":
        assert n[f"a.example/{part}"] == n[f"a.example/{part}/#?"]


def test_a_group_that_an_operator_stops_is_among_the_stopped_ones(learned):
    register(learned, 3)
    rule = {"group": "https://example.com/search/", "rule": "stop"}
    assert learned.client.put("/url-groups", json=rule).json()["state"] == "held"
    assert groups(learned, stopped=True)["example.com/search"]["state"] == "held"
    learned.client.put("/url-groups", json=rule | {"rule": "admit"})
    assert groups(learned, stopped=True) == {}
