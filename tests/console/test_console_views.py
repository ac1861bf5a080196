"""What the views show: the numbers of the API and of SQL, by role, and no stranger's script."""

import html
import json
import re
import shlex
import sqlite3
from datetime import timedelta
from itertools import pairwise

import httpx
import numpy as np
import pytest
from support.access_cases import ADMIN, bearer, new_key
from support.browsing import Browser, Page
from support.live_server import START, running

from service.access.roles import right_of
from service.console.app import POLICY, VIEWS
from service.console.render import static_files
from service.estimation.freshness import stale_between_crawls
from service.estimation.posterior import rate_densities
from service.events.reading import newest, read
from service.model.access import Role
from service.model.arrays import instant
from service.model.changes import ChangeFilter, ChangeKind, FeedPlace
from service.model.words import every, short_every


def places(live):
    """Return values for the parts of the paths of views."""
    hook = live.client.get("/webhooks").json()["items"][0]["id"]
    _, key_id = new_key(live.service.store, Role.read)
    return {"page_id": 1, "host": "news.example", "epoch": 2, "webhook_id": hook, "key_id": key_id}


def paths(live, method="GET"):
    """Return each view with its path."""
    query = {"get_plan": "?bandwidth=5"}
    values = places(live)
    views = [view for view in VIEWS if view.method == method]
    return [(view, view.path.format(**values) + query.get(view.operation, "")) for view in views]


@pytest.mark.dear
def test_each_view_answers_within_the_policy(live, admin):
    for view, path in paths(live):
        response = admin.client.get(path)
        assert response.status_code == 200, (path, response.text[-500:])
        assert response.headers["content-security-policy"] == POLICY.decode()
        assert response.headers["cache-control"] == "no-store"
        assert Page(response.text).faults == []
        assert "<h1" in response.text, view
        assert admin.client.head(path).status_code == 200


@pytest.mark.dear
def test_a_role_sees_and_does_what_the_api_allows_it(live):
    for role in Role:
        key, _ = new_key(live.service.store, role)
        live.service.gate.ring.refresh()
        browser = Browser(live.url)
        browser.sign_in(key)
        for view, path in paths(live):
            allowed = role >= right_of(view.operation).role
            response = browser.client.get(path)
            assert response.status_code == (200 if allowed else 403), (role, path)
            if role < Role.admin and allowed:
                assert Page(response.text).acts == [], path
        token = browser.open("/console").form("/console/theme")["token"]
        for view, path in paths(live, "POST"):
            if role < right_of(view.operation).role:
                assert browser.client.post(path, data={"token": token}).status_code == 403, path
        links = [link["href"] for link in browser.open().links]
        assert ("/console/access" in links) == (role is Role.admin)


def test_unknown_pages_and_bad_parameters_have_a_page_with_the_sentence_of_the_api(admin, reader):
    for path, status, word in (
        ("/console/pages/999", 404, "no page has the id 999; GET /pages lists the pages"),
        ("/console/pages/x", 422, "page_id is"),
        ("/console/pages?state=odd", 422, "state is"),
        ("/console/pages?cursor=odd", 422, "cursor"),
        ("/console/pages?change_rate_from=2&change_rate_to=1", 422, "swap them"),
        ("/console/hosts/none.example", 404, "none.example"),
        ("/console/epochs/999", 404, "999"),
        ("/console?range=century", 422, "range is none of"),
        ("/console/nothing", 404, "no such page"),
    ):
        page = admin.open(path, status)
        assert word in page.text, path
        assert page.faults == []
    assert reader.client.get("/console/access").status_code == 403


def test_the_list_of_pages_has_the_rows_of_the_api(live, admin):
    for query in ("", "?tag=all&limit=3", "?state=never_crawled", "?host=shop.example"):
        expected = live.client.get(f"/pages{query}").json()
        shown = [link["href"] for link in admin.open(f"/console/pages{query}").links]
        rows = [f"/console/pages/{page['page_id']}" for page in expected["items"]]
        assert [href for href in shown if href in rows] == rows
        following = [href for href in shown if "cursor=" in href]
        assert bool(following) == (expected["next_cursor"] is not None)
    page = admin.open("/console/pages?url=https://shop.example/5")
    assert "https://shop.example/5" in page.text
    assert "never crawled" in page.text


def test_the_numbers_are_those_of_sql(live, admin):
    path = live.service.store.path if hasattr(live.service.store, "path") else None
    url = str(live.service.store.engine.url) if path is None else f"sqlite:///{path}"
    with sqlite3.connect(url.removeprefix("sqlite:///").split("?")[0]) as db:
        n_pages = db.execute("SELECT count(*) FROM pages").fetchone()[0]
        n_news = db.execute(
            "SELECT count(*) FROM pages JOIN hosts USING (host_id) WHERE host = 'news.example'"
        ).fetchone()[0]
        changes, crawls = db.execute(
            "SELECT n_changes, n_observations FROM page_states WHERE page_id = 2"
        ).fetchone()
        n_leased = db.execute("SELECT count(*) FROM due_pages WHERE token IS NOT NULL").fetchone()[
            0
        ]
    assert f"{n_pages} selected" in admin.open("/console/pages").text
    assert f"Pages {n_news} " in admin.open("/console/hosts/news.example").text
    page = admin.open("/console/pages/2").text
    assert f"Changes found {changes} " in page
    assert f"Crawls as evidence {crawls} " in page
    assert f"Leases that run {n_leased} " in admin.open("/console/leases").text


def test_a_host_shows_the_proof_that_its_304_was_wrong(live, admin):
    path = "/console/hosts/news.example"
    assert "A 304 proved wrong never" in admin.open(path).text
    for days, rest in ((10, "end in 20 d"), (40, "one in 20, as a check")):
        proved_at = (live.clock() - timedelta(days=days)).isoformat()
        body = {"false_304_at": proved_at}
        assert live.client.patch("/hosts/news.example", json=body).is_success
        text = admin.open(path).text
        assert f"A 304 proved wrong {days} d ago" in text
        assert f"Requests without ETag and date {rest}" in text
    assert live.client.patch("/hosts/news.example", json={"false_304_at": None}).is_success


def test_a_page_shows_the_sentence_and_the_probability_of_the_api(live, admin):
    answer = live.client.get("/pages/2").json()
    verdict = live.post("/freshness", [{"page_id": 2}]).json()["verdicts"][0]
    page = admin.open("/console/pages/2")
    sentence = answer["why"]["sentence"]
    assert sentence in page.text
    assert f"Stale now {verdict['stale']:.1%}" in page.raw.replace("</span><strong>", " ")


@pytest.mark.dear
def test_nasty_words_stay_words(sqlite_url):
    nasty = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"
    with running(sqlite_url, api_keys=[ADMIN]) as live:
        url = "https://a.example/?q=%3Cscript%3E'onmouseover='alert(1)&x=javascript:alert(1)"
        page_id, other = live.register(url, "https://a.example/b'\"><b>")
        live.post(
            "/observations",
            [
                {
                    "page_id": page_id,
                    "observed_at": live.clock.advance(days=1).isoformat(),
                    "etag": f'"{nasty[:60]}"'.replace('"', "")[:60],
                    "note": {nasty: nasty},
                    "digest": nasty,
                }
            ],
        )
        live.epoch()
        live.post("/leases", {"worker": nasty[:60], "count": 2})
        new_key(live.service.store, Role.read, name=nasty)
        live.client.put("/hosts/a.example", json={"group": "g"})
        live.service.gate.ring.refresh()
        browser = Browser(live.url)
        browser.sign_in()
        for path in (
            "/console",
            "/console/pages",
            f"/console/pages/{page_id}",
            f"/console/pages/{other}",
            "/console/leases",
            "/console/changes",
            "/console/access",
            "/console/hosts/a.example",
            f"/console/pages?tag={nasty}",
            f"/console/pages?url_prefix=https://a.example/{nasty}",
            f"/console/changes?prefix=https://a.example/{nasty.replace(' ', '')}",
            f"/console/access?object={nasty}",
            f"/console/hosts/{nasty.replace('/', '')}",
            f"/console?range={nasty}",
            f"/console/sign-in?next={nasty}",
            f"/console/{nasty}",
        ):
            response = browser.client.get(path, follow_redirects=True)
            assert response.status_code < 500, path
            page = Page(response.text)
            assert page.faults == [], path
            assert "<img src=x" not in response.text
            assert "{{7*7}}" in response.text or "49" not in page.words
        assert nasty in browser.open("/console/access").text


def test_files_are_ours_and_cached(live):
    for name, content in static_files().items():
        answer = httpx.get(f"{live.url}/console/static/{name}")
        assert answer.content == content
        assert "immutable" in answer.headers["cache-control"]
    for name in ("..%2Fapp.py", "console.py", "%2Fetc%2Fpasswd"):
        assert httpx.get(f"{live.url}/console/static/{name}").status_code in {303, 404}


def test_the_last_changes_are_the_end_of_the_feed(live):
    with live.service.store.begin(write=False) as tx:
        every = read(tx, FeedPlace(0), 10_000, ChangeFilter()).changes
        for limit in (1, 3, 10_000):
            last = newest(tx, limit, ChangeFilter())
            assert last.page_id.tolist() == every.page_id[::-1][:limit].tolist()
        only = ChangeFilter(kinds=frozenset({ChangeKind.new}))
        assert set(newest(tx, 50, only).kind.tolist()) == {ChangeKind.new}
    assert len(every) > 10


def test_the_forecast_rises_and_passes_through_the_present(live):
    with live.service.store.begin(write=False) as tx:
        page = tx.freshness_columns(np.array([2]))
        estimator = live.service.rules.of(tx).estimator
        now = instant(live.clock())
        at = page.last_observed_at[0] + np.arange(20) * np.timedelta64(6, "h")
        stale = stale_between_crawls(tx, page, estimator, now, at)
    assert stale[0] == pytest.approx(0)
    assert all(low < high for low, high in pairwise(stale))
    assert stale[-1] < 1


def test_the_densities_are_those_of_the_interval(live):
    listed = live.client.get("/pages").json()["items"]
    page_id = next(page["page_id"] for page in listed if page["n_changes"] > 2)
    interval = live.client.get(f"/pages/{page_id}").json()["estimate"]["credible_interval"]
    with live.service.store.begin(write=False) as tx:
        page = tx.freshness_columns(np.array([page_id]))
        densities = rate_densities(page, live.service.rules.of(tx).estimator, instant(live.clock()))
    log_rate = np.log(densities.rate)
    steps = np.diff(log_rate) * (densities.page[1:] + densities.page[:-1]) / 2
    inside = (densities.rate[1:] > interval["low"]) & (densities.rate[1:] < interval["high"])
    assert 0.9 < steps.sum() < 1.001
    assert steps[inside].sum() == pytest.approx(0.9, abs=0.03)
    assert densities.url_group is not None


def test_the_metrics_count_a_view_by_its_path(live, admin):
    admin.open("/console/pages/1")
    metrics = httpx.get(f"{live.url}/metrics", headers=bearer(ADMIN)).text
    assert 'route="/console/pages/{page_id}"' in metrics


def test_the_console_stays_out_of_the_openapi_document(live):
    document = json.dumps(live.client.get("/openapi.json").json())
    assert "console" not in document


@pytest.mark.dear
def test_the_errors_of_forecasts_are_those_of_the_api(sqlite_url):
    """Forecasts all over the fine bins, of which the rows of the API have the sums of five."""
    with running(sqlite_url, api_keys=[ADMIN]) as live:
        urls = [f"https://a.example/{n}" for n in range(200)]
        live.register(*urls)
        rng = np.random.default_rng(1)
        for _ in range(4):
            live.clock.advance(days=1)
            seen = [
                {
                    "url": url,
                    "observed_at": (live.clock() - back).isoformat(),
                    "digest": str(digest),
                }
                for url, back, digest in zip(
                    urls,
                    rng.uniform(0, 0.9, len(urls)) * timedelta(days=1),
                    rng.integers(2, size=len(urls)),
                    strict=True,
                )
            ]
            assert live.post("/observations", seen).json()["accepted"] == len(urls)
            live.epoch()
        since = START.isoformat()
        (month,) = live.get("/history", since=since, step_s=30 * 86_400).json()["items"]
        epoch = live.get("/epochs/3").json()
        browser = Browser(live.url)
        browser.sign_in()
        for path, answer in (("/epochs", month), ("/epochs/3", epoch)):
            (compared,) = answer["calibration"]
            shown = browser.open(f"/console{path}").text.replace("\N{NO-BREAK SPACE}", " ")
            assert f"{compared['n']} crawls against the forecasts" in shown
            assert f"mean error {compared['calibration_error']:.1%}" in shown, path


def test_the_overview_begins_with_what_needs_you_and_has_live_numbers(sqlite_url):
    with running(sqlite_url) as live:
        browser = Browser(live.url)
        assert "Nothing needs you." in browser.open().text
        live.register("https://a.example/<b>", "https://a.example/2")
        page = browser.open().text
        assert "Pages 2 2 never crawled" in page, "before any epoch, and before any step"
        assert "Begin Register pages done The first epoch It plans" in page
        live.epoch()
        live.clock.advance(minutes=11)
        live.service.runner.run_once()
        page = browser.open()
        (need,) = live.get("/status").json()["needs_you"]
        shown = page.text[page.text.index("Overview Needs") :]
        assert shown.index("Needs you no crawler Start a crawler") < shown.index("Fresh by")
        assert f"{need['sentence']} Since 11 min ago" in shown
        assert need["remedy"] in shown
        assert page.faults == []
        live.post("/leases", {"worker": "w"})
        assert "Nothing needs you." in browser.open().text


def test_the_root_sends_a_browser_to_the_console_and_no_other_client(live):
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    sent = httpx.get(f"{live.url}/", headers=browser)
    assert (sent.status_code, sent.headers["location"]) == (307, "/console")
    for accept in ("*/*", "application/json"):
        answer = httpx.get(f"{live.url}/", headers={"Accept": accept})
        assert answer.status_code == 404
        assert answer.json()["detail"] == "no such path; /docs lists them"
    assert httpx.post(f"{live.url}/", headers=browser).status_code == 404


def test_an_empty_service_shows_the_next_step_in_each_view(sqlite_url):
    with running(sqlite_url) as live:
        browser = Browser(live.url)
        page = browser.open()
        assert "Begin Register pages" in page.text
        assert f"{live.url}/pages" in page.text
        for dead in ("Fresh by", "Epoch in force", "Over time", "Paused hosts", "Ping quality"):
            assert dead not in page.text
        assert page.raw.count("<svg") == 0, "no chart before there is a number"
        for path, title, step in (
            ("/pages", "No page yet.", f"{live.url}/pages"),
            ("/hosts", "No host yet.", f"{live.url}/pages"),
            ("/url-groups", "No group yet.", "first new page"),
            ("/epochs", "No epoch yet.", "a second after the first page"),
            ("/leases", "No lease runs.", f"{live.url}/leases"),
            ("/changes", "No webhook yet.", f"{live.url}/webhooks"),
            ("/changes", "No change yet.", "second crawl"),
            ("/access", "No key yet.", "recrawl keys create"),
        ):
            text = browser.open(f"/console{path}").text
            assert title in text, path
            assert step in text[text.index(title) :], path


def test_the_lines_of_the_beginning_do_what_they_say(sqlite_url):
    """Run the words of each line as curl would; the beginning is over after the last one."""
    with running(sqlite_url) as live:
        browser = Browser(live.url)
        for _ in range(3):
            raw = re.search(r'<code class="line">(.*?)</code>', browser.open().raw)[1]
            program, option, body, url = shlex.split(html.unescape(raw))
            assert (program, option) == ("curl", "--json")
            sent = httpx.post(url, content=body, headers={"Content-Type": "application/json"})
            assert sent.is_success, sent.text
            if url.endswith("/pages"):
                live.epoch()
        assert "Begin" not in browser.open().text
        live.service.store.counter.write()
        assert live.get("/history").json()["items"][-1]["n_reported"] == 1


def test_a_service_with_keys_shows_lines_that_send_one(sqlite_url):
    with running(sqlite_url, api_keys=[ADMIN]) as live:
        browser = Browser(live.url)
        browser.sign_in()
        assert '--oauth2-bearer "$RECRAWL_API_KEY" --json' in browser.open("/console/pages").text
        assert ADMIN not in browser.open("/console/pages").raw


def test_a_host_without_news_has_one_card_that_names_what_is_missing(sqlite_url):
    with running(sqlite_url) as live:
        live.register("https://a.example/")
        text = Browser(live.url).open("/console/hosts/a.example").text
        for word in ("Crawls: none in the last week", "Hours of change:", "Pings:"):
            assert word in text
        assert text.count("Not known yet") == 1


def report_one(live, at):
    report = {"url": "https://a.example/", "observed_at": at, "digest": "a"}
    assert live.post("/observations", [report]).json()["accepted"] == 1


def series_with(page, line):
    """Return the first series of a page that has a line, and the values of the line."""
    for text in re.findall(r'data-series="(.*?)"', page.raw):
        series = json.loads(html.unescape(text))
        for each in series["lines"]:
            if each["name"] == line:
                return series, each["values"]
    raise AssertionError(f"no series has the line {line}")


def test_the_week_of_a_host_has_a_bar_for_each_quarter_of_a_day(sqlite_url):
    with running(sqlite_url) as live:
        live.register("https://a.example/")
        for _ in range(2):
            at = live.clock.advance(days=1).isoformat()
            report_one(live, at)
            live.service.store.counter.write()
        page = Browser(live.url).open("/console/hosts/a.example")
        series, reported = series_with(page, "reported")
        assert series["step_s"] == 21_600
        assert len(series["at"]) == 28
        assert sorted(reported)[-3:] == [0, 1, 1]


def test_the_overview_chooses_a_range_that_has_points(sqlite_url):
    """A fleet that reports once a day has a chart of a month, not two points of a day."""
    with running(sqlite_url) as live:
        live.register("https://a.example/")
        browser = Browser(live.url)
        for _ in range(14):
            at = live.clock.advance(days=1).isoformat()
            report_one(live, at)
            live.service.store.counter.write()
            live.epoch()
        assert [link["href"] for link in browser.open().links if "aria-current" in link] == [
            "/console",
            "/console?range=30d",
        ]
        _, reported = series_with(browser.open("/console?range=30d"), "reported")
        assert 0 not in reported, "the running day is no fall to zero"


def test_hosts_are_sorted_by_their_columns_and_the_order_is_that_of_the_api(live, admin):
    live.register(*(f"https://large.example/{n}" for n in range(9)))
    live.epoch()
    page = admin.open("/console/hosts")
    links = {link["href"] for link in page.links if "sort=" in link["href"]}
    assert links == {
        f"/console/hosts?sort={word}" for word in ("host", "-n_pages", "-n_overdue", "-asked_rate")
    }
    for word in ("-n_pages", "n_pages", "-host", "-n_overdue"):
        expected = [item["host"] for item in live.get("/hosts", sort=word).json()["items"]]
        page = admin.open(f"/console/hosts?sort={word}")
        rows = [
            link["href"].rsplit("/", 1)[1]
            for link in page.links
            if link["href"].startswith("/console/hosts/")
        ]
        assert rows == expected, word
        assert "aria-sort=" in page.raw
    assert "sort=n_pages" in "".join(
        link["href"] for link in admin.open("/console/hosts?sort=-n_pages").links
    )


def test_an_act_in_a_list_leads_back_to_the_list(live, admin):
    live.register("https://acts.example/1")
    listed = "/console/hosts?sort=host"
    done = admin.send(listed, "/console/hosts/acts.example/pause", length="1h")
    assert "The host is paused." in done.text
    assert "Hosts Pause all" in done.text
    done = admin.send(listed, "/console/hosts/acts.example/pause")
    assert "The host is crawled again" in done.text
    (page,) = live.get("/pages", host="acts.example").json()["items"]
    path = f"/console/pages/{page['page_id']}/recrawl"
    done = admin.send("/console/pages?host=acts.example", path)
    assert "crawl is requested" in done.text or "waits for a requested crawl" in done.text
    assert "1 selected" in done.text
    away = admin.send("/console/pages?host=acts.example", path, back="//evil.example/")
    assert "Overview" in away.text


def test_acts_on_selected_pages_show_the_count_first_in_each_part_of_the_list(live, admin):
    first = admin.open("/console/pages?tag=all&limit=5")
    assert "Crawl 12 pages now" in first.text
    following = next(link["href"] for link in first.links if "cursor=" in link["href"])
    assert "Delete 12 pages" in admin.open(following).text


def test_one_rate_has_one_number_in_the_view_of_a_page(live, admin):
    for page_id in range(1, 7):
        page = live.get(f"/pages/{page_id}").json()
        text = admin.open(f"/console/pages/{page_id}").text.replace("\N{NO-BREAK SPACE}", " ")
        if page["schedule"] is None or not page["schedule"]["crawl_rate"]:
            continue
        shown = short_every(page["schedule"]["crawl_rate"]).replace("\N{NO-BREAK SPACE}", " ")
        assert f"Crawled every {shown}" in text
        if "crawled every" in page["why"]["sentence"]:
            assert every(page["schedule"]["crawl_rate"]) in page["why"]["sentence"]
        assert " a day" not in text.split("Change rate")[1].split("Settings and evidence")[0]
