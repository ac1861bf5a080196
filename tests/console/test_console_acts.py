"""Acts of the console: the same effects and the same audit as through the API."""

import re

import httpx
import pytest
from support.access_cases import ADMIN, bearer
from support.browsing import Browser
from support.live_server import running


def last_act(live):
    entry = live.client.get("/audit").json()["items"][0]
    return entry["key"], entry["act"], entry["object"]


@pytest.mark.dear
def test_crawl_now_requests_a_crawl_once(live, admin):
    path = "/console/pages/3"
    live.clock.advance(minutes=1)
    assert "requested" in admin.send(path, f"{path}/recrawl").text
    assert last_act(live)[:2] == ("environment-1", "pages.recrawl")
    assert "waits for a requested crawl" in admin.send(path, f"{path}/recrawl").text
    answer = admin.open("/console/pages/3")
    assert "Next crawl now" in answer.text or "ago" in answer.text


def test_all_selected_pages_are_crawled_and_the_page_shows_how_many(sqlite_url, monkeypatch):
    with running(sqlite_url) as live:
        live.register(*(f"https://a.example/{i}" for i in range(30)), tags=["some"])
        live.register("https://b.example/")
        browser = Browser(live.url)
        monkeypatch.setattr("service.console.views.pages.STEP_S", 0.0)
        monkeypatch.setattr("service.ingest.bulk.BLOCK", 12)
        page = browser.send("/console/pages?tag=some", "/console/pages/recrawl")
        shown = []
        while "Done" not in page.text:  # without a script, the visitor presses the button
            shown.append(re.search(r"(\d+) crawls requested so far", page.text)[1])
            form = page.form("/console/pages/recrawl")
            page_text = browser.client.post("/console/pages/recrawl", data=form).text
            page = type(page)(page_text)
        assert shown == ["12", "24"]
        assert "Done: 30 crawls requested" in page.text
        form = browser.open("/console/pages").form("/console/pages/recrawl")
        form.pop("all_pages")
        refused = browser.client.post("/console/pages/recrawl", data=form)
        assert refused.status_code == 422
        assert "all_pages=true" in refused.text


def test_a_host_is_paused_and_crawled_again(live, admin):
    path = "/console/hosts/shop.example"
    assert "paused" in admin.send(path, f"{path}/pause", length="1d").text
    assert last_act(live) == ("environment-1", "host.pause", "shop.example")
    until = live.client.get("/hosts/shop.example").json()["host_queue"]["blocked_until"]
    assert until is not None
    assert "shop.example" in admin.open("/console/hosts?blocked=true").text
    assert live.client.get("/hosts/shop.example").json()["min_delay_s"] == 2
    admin.send(path, f"{path}/pause")
    assert live.client.get("/hosts/shop.example").json()["host_queue"]["blocked_until"] is None
    assert last_act(live) == ("environment-1", "host.resume", "shop.example")
    admin.send(path, f"{path}/pause", 422, length="for ever")


def test_the_pause_of_a_site_ends_only_by_its_own_tick(live, admin):
    at = live.clock.advance(minutes=1).isoformat()
    busy = {"url": "https://news.example/0", "status": 429, "retry_after_s": 600}
    live.post("/observations", [{**busy, "observed_at": at}])
    path = "/console/hosts/news.example"
    assert "paused by its site" in admin.open(path).text
    form = admin.open(path).form(f"{path}/pause")
    assert form.pop("site") == "true"
    admin.client.post(f"{path}/pause", data=form)
    assert "paused by its site" in admin.open(path).text
    admin.send(path, f"{path}/pause")
    assert live.client.get("/hosts/news.example").json()["host_queue"]["paused_until"] is None


def test_an_incident_is_ended_by_a_button_that_asks_first(live, admin):
    path = "/console/hosts/shop.example"
    assert "End the incident" not in admin.open(path).text
    at = live.clock.advance(minutes=1).isoformat()
    urls = [f"https://shop.example/{n}" for n in range(6)]
    crawls = [{"url": url, "observed_at": at, "status": 403} for url in urls]
    assert live.post("/observations", crawls).status_code == 200
    assert "End the incident" in admin.open(path).text
    assert "has no incident" in admin.send(path, f"{path}/end-incident").text
    assert last_act(live) == ("environment-1", "host.end_incident", "shop.example")


def test_a_need_is_accepted_for_some_days_by_a_button_that_asks_first(live, admin):
    at = live.clock.advance(minutes=1).isoformat()
    busy = {"url": "https://news.example/0", "status": 429, "retry_after_s": 7_200}
    live.post("/observations", [{**busy, "observed_at": at}])
    path = "/console/needs"
    assert "Accept news.example" in admin.open("/console").text
    shown = admin.send("/console", f"{path}/accept", days="7", reason="by contract").text
    assert "1 accepted need" in shown
    assert "by contract" in shown
    assert "Accept news.example" not in shown
    assert last_act(live) == ("environment-1", "need.accept", "host_paused news.example")
    assert "Accept news.example" in admin.send("/console", f"{path}/withdraw").text
    assert last_act(live) == ("environment-1", "need.withdraw", "host_paused news.example")
    admin.send("/console", f"{path}/accept", 422, days="many")


def test_all_hosts_are_paused_and_every_page_says_so(live, admin):
    shown = admin.send("/console/hosts", "/console/pause", length="1h")
    assert "All hosts are paused" in shown.text
    page = admin.open("/console/pages")
    assert "All hosts are paused" in page.text
    assert live.client.post("/leases", json={}).json()["paused_until"]
    over = admin.send("/console/pages", "/console/pause").text
    assert "The pause of all hosts is over" in over
    assert "No crawl is leased" not in over


def test_the_budget_is_set_and_unset(live, admin):
    page = admin.send("/console/epochs", "/console/budget", budget="5,000 crawls")
    assert "5,000 crawls a day, set by an operator" in page.text
    assert last_act(live) == ("environment-1", "budget.set", "budget")
    admin.send("/console/epochs", "/console/budget", 422, budget="many")
    page = admin.send("/console/epochs", "/console/budget/unset")
    assert "0.2 crawls a day for each page" in page.text


def test_another_unit_of_the_budget_is_asked_about_with_both_amounts(live, admin):
    admin.send("/console/epochs", "/console/budget", budget="5,000 crawls")
    asked = admin.send("/console/epochs", "/console/budget", 409, budget="50 GB")
    assert "The budget is 5,000 crawls a day. It would become 50 GB a day." in asked.text
    assert live.get("/budget").json()["unit"] == "crawls"
    form = asked.form("/console/budget")
    admin.client.post("/console/budget", data=form)
    assert live.get("/budget").json()["unit"] == "bytes"
    admin.send("/console/epochs", "/console/budget/unset")
    assert live.get("/budget").json()["set_by"] == "default"


def test_politeness_is_set_by_a_form_whose_empty_fields_are_defaults(live, admin):
    path = "/console/hosts/shop.example"
    new = {"min_delay_s": "0.5", "max_concurrency": "3", "max_crawl_rate": ""}
    admin.send(path, f"{path}/politeness", **new)
    host = live.client.get("/hosts/shop.example").json()
    assert [host[name] for name in new] == [0.5, 3, None]
    admin.send(path, f"{path}/politeness", 422, min_delay_s="fast")
    admin.send(path, f"{path}/politeness", min_delay_s="2", max_concurrency="")


def test_pages_are_deleted_by_their_filters_and_their_host_after_them(live, admin):
    live.register(*(f"https://old.example/{n}" for n in range(3)))
    path = "/console/hosts/old.example"
    assert "Delete them first" in admin.open(path).text
    one = "/console/pages?url_prefix=https://old.example/1"
    assert "Done: 1 page deleted" in admin.send(one, "/console/pages/delete").text
    deleted = admin.send("/console/pages?host=old.example", "/console/pages/delete")
    assert "Done: 2 pages deleted" in deleted.text
    assert last_act(live)[1:] == ("pages.delete", "host=old.example")
    assert "The host is deleted" in admin.send(path, f"{path}/delete").text
    assert live.client.get("/hosts/old.example").status_code == 404


def test_the_plan_without_a_budget_leads_to_its_form(live, admin):
    for path in ("/console/plan", "/console/plan?bandwidth="):
        assert admin.open(path).text.startswith("Epochs")


def test_one_page_is_deleted_and_its_siblings_stay(live, admin):
    deleted, sibling = live.register("https://old.example/1", "https://old.example/10")
    path = f"/console/pages/{deleted}"
    assert "The page is deleted" in admin.send(path, f"{path}/delete").text
    assert last_act(live)[1:] == ("page.delete", "https://old.example/1")
    assert live.client.get(f"/pages/{deleted}").status_code == 404
    assert live.client.get(f"/pages/{sibling}").status_code == 200
    admin.open(path, 404)


def test_an_epoch_is_requested_and_its_page_follows_it(live, admin):
    page = admin.send("/console/epochs", "/console/epochs")
    assert "waits to start" in page.text
    number = re.search(r"Epoch (\d+)", page.text)[1]
    part = admin.client.get(f"/console/epochs/{number}", headers={"HX-Request": "true"})
    assert 'hx-trigger="every 1s"' in part.text
    assert "<html" not in part.text
    live.service.runner.run_once()
    done = admin.client.get(f"/console/epochs/{number}", headers={"HX-Request": "true"})
    assert "every 1s" not in done.text
    assert "Certificate" in done.text


def test_a_key_is_created_shown_once_rotated_and_revoked(live, admin):
    page = admin.send(
        "/console/access", "/console/access/keys", name="fleet <1>", role="crawl", days="30"
    )
    key = re.search(r"rcr_[0-9a-f]{10}_[0-9a-f]+", page.text)[0]
    key_id = key.split("_")[1]
    assert httpx.get(f"{live.url}/pages", headers=bearer(key)).status_code == 200
    assert key not in admin.open("/console/access").raw
    stored = live.client.get(f"/keys/{key_id}").json()
    assert (stored["name"], stored["role"]) == ("fleet <1>", "crawl")
    assert stored["expires_at"] is not None
    rotated = admin.send("/console/access", f"/console/access/keys/{key_id}/rotate")
    assert re.search(r"rcr_[0-9a-f]{10}_[0-9a-f]+", rotated.text)[0] != key
    admin.send("/console/access", f"/console/access/keys/{key_id}/revoke")
    assert httpx.get(f"{live.url}/pages", headers=bearer(key)).status_code == 401
    assert last_act(live) == ("environment-1", "key.revoke", key_id)
    admin.send("/console/access", "/console/access/keys", 422, name="", role="crawl", days="30")


def test_a_webhook_is_paused_tested_and_resumed(live, admin):
    hook = live.client.get("/webhooks").json()["items"][0]["id"]
    path = f"/console/webhooks/{hook}"
    form = admin.open(path).form(path)
    assert form.pop("pause") == "true"
    admin.client.post(path, data=form | {"pause": "true"})
    assert live.client.get(f"/webhooks/{hook}").json()["status"] == "paused"
    admin.send(path, path)
    assert live.client.get(f"/webhooks/{hook}").json()["status"] == "active"


def test_a_script_whose_session_has_ended_is_sent_to_the_sign_in(live):
    answer = httpx.get(f"{live.url}/console/epochs/1", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["hx-redirect"]) == (
        401,
        "/console/sign-in?next=/console/epochs/1",
    )


def test_while_the_database_is_away_the_console_says_so(sqlite_url):
    with running(sqlite_url, api_keys=[ADMIN]) as live:
        browser = Browser(live.url)
        browser.sign_in()
        live.service.store.abort()
        answer = browser.client.get("/console/pages")
        assert answer.status_code == 503
        assert "Retry-After" in answer.headers
        assert "Service Unavailable" in answer.text


def test_a_url_group_is_stopped_and_its_rule_ended(sqlite_url):
    group, path = "a.example/calendar", "/console/url-groups"

    def rule(word):
        """Press a button of the group; return the group as the API shows it, and the answer."""
        form = next(f for f in browser.open(path).forms if f["fields"].get("group") == group)
        fields = form["fields"] | {"rule": word}
        done = browser.client.post(form["action"], data=fields, follow_redirects=True)
        (item,) = live.get("/url-groups", prefix=group, limit=1).json()["items"]
        return item["state"], item["n_waiting"], done.text

    with running(sqlite_url, admission="learned") as live:
        live.register(*(f"https://a.example/calendar/day?n={i}" for i in range(30)))
        browser = Browser(live.url)
        assert "a.example/calendar/day?n" in browser.open(path).text
        assert "No group is stopped" in browser.open(f"{path}?stopped=true").text
        state, n_waiting, text = rule("stop")
        assert (state, n_waiting) == ("held", 30)
        assert "The rule of the URL group is in force" in text
        assert "End the rule" in text
        assert rule("learn")[0] == "open"
