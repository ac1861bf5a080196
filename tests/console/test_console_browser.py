"""The console in Chromium: no error, nothing outside, WCAG AA in light and dark, the scripts."""

import re
from datetime import timedelta

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from support.access_cases import ADMIN, new_key
from support.chromium import Watched, chromium
from support.live_server import running

from service.model.access import Role

pytestmark = [pytest.mark.slow, pytest.mark.external]

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


def sign_in(window, key=ADMIN):
    window.open("/console")
    window.page.get_by_label("API key").fill(key)
    window.page.get_by_role("button", name="Sign in").press("Enter")
    window.page.wait_for_url(lambda url: "/sign-in?" not in url)
    assert window.page.url.endswith("/console"), window.page.locator("main").inner_text()


def views(live):
    hook = live.client.get("/webhooks").json()["items"][0]["id"]
    return (
        "",
        "?range=7d",
        "/pages",
        "/pages?state=failing",
        "/pages/2",
        "/pages/12",
        "/hosts",
        "/hosts?sort=-n_overdue",
        "/hosts/shop.example",
        "/url-groups",
        "/savings",
        "/epochs",
        "/epochs/2",
        "/plan?bandwidth=5",
        "/plan?bandwidth=0.000001",
        "/leases",
        "/changes",
        f"/webhooks/{hook}",
        "/access",
    )


UNFOLD = "document.querySelectorAll('main details').forEach((each) => { each.open = true; })"
NARROW = 390
"""Width of a telephone, CSS pixels."""


EMPTY = (
    *("", "/pages", "/hosts", "/url-groups", "/savings", "/epochs", "/leases", "/changes"),
    "/access",
)
"""Views of a service in which nothing has been registered."""
REFUSED = ("/nowhere", "/pages/999999", "/hosts/absent.example", "/plan?bandwidth=much")
"""Addresses that show an error."""
IN_EACH_LOOK = [(scheme, width) for scheme in ("light", "dark") for width in (NARROW, 1_280)]


def window_of(browser, url, scheme, width):
    window = Watched(browser, url, color_scheme=scheme)
    window.page.set_viewport_size({"width": width, "height": 900})
    return window


def violations(window, path):
    """Return what axe finds in the view that is shown, with all details unfolded."""
    window.page.evaluate(UNFOLD)
    found = Axe().run(window.page, options=RULES).response["violations"]
    return [
        (path, each["id"], [node["html"][:160] for node in each["nodes"]][:3]) for each in found
    ]


@pytest.mark.parametrize(("scheme", "width"), IN_EACH_LOOK)
def test_each_view_is_clean_and_accessible(live, browser, scheme, width):
    window = window_of(browser, live.url, scheme, width)
    window.open("/console/sign-in")
    found = violations(window, "sign-in")
    sign_in(window)
    for path in views(live):
        window.open(f"/console{path}")
        found += violations(window, path)
    assert (found, window.faults) == ([], [])
    for path in REFUSED:
        window.open(f"/console{path}")
        found += violations(window, path)
    assert found == []
    assert all(re.search("404|422", fault) for fault in window.faults), window.faults


@pytest.mark.parametrize(("scheme", "width"), IN_EACH_LOOK)
def test_each_view_of_an_empty_service_is_clean_and_accessible(sqlite_url, browser, scheme, width):
    with running(sqlite_url, api_keys=[ADMIN]) as live:
        window, found = window_of(browser, live.url, scheme, width), []
        sign_in(window)
        for path in EMPTY:
            window.open(f"/console{path}")
            found += violations(window, path)
            assert window.page.evaluate(WIDER) == 0, path
    assert (found, window.faults) == ([], [])


@pytest.mark.parametrize(("scheme", "width"), IN_EACH_LOOK)
def test_what_follows_an_act_is_accessible(live, browser, scheme, width):
    window = window_of(browser, live.url, scheme, width)
    page = window.page
    sign_in(window)
    window.open("/console/access")
    page.get_by_label("Name").fill(f"dashboards {scheme} {width}")
    page.get_by_role("button", name="Create").click()
    page.wait_for_load_state("networkidle")
    found = violations(window, "a new key")
    window.open("/console/pages?tag=all")
    page.get_by_text(re.compile("^Crawl .* now …")).click()
    page.get_by_role("button", name="Request crawls").click()
    page.get_by_text("Done:").wait_for()
    found += violations(window, "requested crawls")
    assert (found, window.faults) == ([], [])


LONG = "a-section-with-a-long-name/an-article-whose-title-is-as-long-as-those-of-newspapers"
LONG_HOST = "an-edition-with-a-long-name.archive.newspapers-of-the-region.example"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
OUTSIDE = """
() => [...document.querySelectorAll("main table")].filter((table) => {
  const box = table.closest(".scroll") ?? table;
  return box.getBoundingClientRect().right > box.parentElement.getBoundingClientRect().right + 1;
}).length
"""
"""Script that returns the number of tables that stand out of their cards."""


@pytest.fixture
def lengthy(sqlite_url):
    """A service whose hosts, pages, workers, tags and webhooks have names of real length."""
    with running(sqlite_url, api_keys=[ADMIN]) as live:
        urls = [f"https://{LONG_HOST}/{LONG}/{n}?utm_source=newsletter" for n in range(3)]
        live.register(*urls, tags=["a-tag-of-which-the-name-is-long"])
        for digest in "ab":
            at = live.clock.advance(days=1).isoformat()
            live.post(
                "/observations",
                [{"url": url, "observed_at": at, "digest": digest} for url in urls[1:]],
            )
            live.epoch()
        worker = "crawler-of-the-first-data-centre-7d9f8b6c5d-x2x9z"
        assert live.post("/leases", {"worker": worker, "count": 1}).json()["items"]
        live.client.post("/webhooks", json={"url": f"https://93.184.216.34/{LONG}"})
        until = live.clock.now + timedelta(hours=1)
        blocked = live.client.put(f"/hosts/{LONG_HOST}", json={"blocked_until": until.isoformat()})
        assert blocked.status_code == 200, blocked.text
        yield live


@pytest.mark.parametrize("width", [NARROW, 1_280])
def test_long_names_stay_within_their_cards(lengthy, browser, width):
    window = Watched(browser, lengthy.url)
    window.page.set_viewport_size({"width": width, "height": 900})
    sign_in(window)
    paths = [""]
    paths += ["/pages", "/pages/1", "/hosts", f"/hosts/{LONG_HOST}", "/epochs", "/epochs/2"]
    paths += ["/plan?bandwidth=5", "/leases", "/changes", "/access"]
    found = []
    for path in paths:
        window.open(f"/console{path}")
        window.page.evaluate(UNFOLD)
        found.append((path, window.page.evaluate(WIDER), window.page.evaluate(OUTSIDE)))
    assert [each for each in found if each[1:] != (0, 0)] == []
    assert window.faults == []


def test_the_keyboard_alone_suffices(live, browser):
    window = Watched(browser, live.url)
    sign_in(window)
    page = window.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    window.open("/console/pages")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.href || ''").endswith("/console/pages/1"):
            break
    shown = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert shown == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/console/pages/1$"))
    assert window.faults == []


def test_charts_have_a_cursor_with_the_numbers_of_the_history(live, browser):
    window = Watched(browser, live.url)
    sign_in(window)
    window.open("/console?range=7d")
    assert window.page.locator(".uplot canvas").count() >= 1
    assert window.page.locator("[data-series] > svg").count() == 0
    before = window.page.evaluate("window.stays = document.querySelectorAll('.uplot').length")
    window.page.emulate_media(color_scheme="dark")  # redraws, and does not load the page again
    window.page.wait_for_function(f"document.querySelectorAll('.uplot').length === {before}")
    assert window.page.evaluate("window.stays") == before
    still = Watched(browser, live.url, java_script_enabled=False)
    sign_in(still)
    still.open("/console?range=7d")
    assert still.page.locator("[data-series] > svg").count() >= 1
    assert window.faults == still.faults == []


def test_another_budget_is_computed_within_the_page(live, browser):
    window = Watched(browser, live.url)
    sign_in(window)
    window.open("/console/epochs")
    window.page.get_by_label("Budget a day, slider").focus()
    window.page.keyboard.press("End")
    window.page.get_by_text("Nothing is published").last.wait_for()
    field = float(window.page.locator("#bandwidth").input_value())
    plan = live.client.get("/plan", params={"bandwidth": field}).json()["items"][0]
    fresh = f"{plan['fresh_share']:.1%}"
    assert fresh in window.page.locator("#plan strong").first.inner_text()
    assert window.page.url.endswith("/console/epochs")
    assert window.faults == []


def test_a_wrong_budget_is_refused_within_the_page_and_a_right_one_follows(live, browser):
    window = Watched(browser, live.url)
    sign_in(window)
    window.open("/console/epochs")
    window.page.locator("#bandwidth").fill("much")
    window.page.get_by_role("button", name="Compute").click()
    window.page.get_by_role("alert").get_by_text("bandwidth").wait_for()
    window.page.locator("#bandwidth").fill("7")
    window.page.get_by_role("button", name="Compute").click()
    window.page.get_by_text("Nothing is published").last.wait_for()
    assert all("422" in fault for fault in window.faults)


def test_an_epoch_shows_when_it_is_published(live, browser):
    window = Watched(browser, live.url)
    sign_in(window)
    window.open("/console/epochs")
    window.page.get_by_role("button", name="Run an epoch now").click()
    window.page.get_by_text("waits to start").wait_for()
    live.service.runner.run_once()
    window.page.get_by_role("heading", name="Certificate").wait_for(timeout=10_000)
    assert window.faults == []


def test_all_pages_are_crawled_step_by_step_before_the_eyes(live, browser, monkeypatch):
    monkeypatch.setattr("service.console.views.pages.STEP_S", 0.0)
    monkeypatch.setattr("service.ingest.bulk.BLOCK", 5)
    live.clock.advance(days=1)
    window = Watched(browser, live.url)
    sign_in(window)
    window.open("/console/pages?tag=all")
    with live.service.store.begin() as tx:
        states = tx.lock_states(
            np.sort([page["page_id"] for page in live.get("/pages", tag="all").json()["items"]])
        )
    # pages that wait for what tests before this one have asked for do not count
    n = int(np.count_nonzero(~(states.requested_at > states.last_crawl_at)))
    window.page.get_by_text("Crawl 12 pages now").click()
    window.page.get_by_role("button", name="Request crawls").click()
    window.page.get_by_text("Done:").wait_for()
    assert f"Done: {n} " in window.page.locator("#progress").inner_text()
    assert window.faults == []


def test_the_choice_of_colours_wins_over_the_system(live, browser):
    window = Watched(browser, live.url, color_scheme="dark")
    sign_in(window)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = window.page.evaluate(ground)
    window.page.get_by_role("button", name="theme").click()  # from the system's to dark
    assert window.page.evaluate(ground) == dark
    window.page.get_by_role("button", name="theme").click()
    assert window.page.evaluate(ground) != dark
    assert window.faults == []


def test_a_reader_sees_no_button_that_acts(live, browser):
    key, _ = new_key(live.service.store, Role.read)
    live.service.gate.ring.refresh()
    window = Watched(browser, live.url)
    sign_in(window, key)
    for path in ("", "/pages", "/pages/2", "/hosts/shop.example", "/epochs", "/changes"):
        window.open(f"/console{path}")
        names = window.page.get_by_role("button").all_inner_texts()
        assert set(names) <= {"Auto theme", "Sign out", "Show", "Compute"}, path
    assert window.page.get_by_role("link", name="Access").count() == 0
    assert window.faults == []


def test_no_page_can_be_framed_and_another_site_cannot_use_the_session(live, browser):
    window = Watched(browser, live.url)
    sign_in(window)
    other = window.context.new_page()
    other.route(
        "https://evil.example/",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f"<form method=post action='{live.url}/console/epochs'><button>x</button></form>",
        ),
    )
    before = live.client.get("/epochs").json()["items"][0]["epoch"]
    other.goto("https://evil.example/")
    other.get_by_role("button").click()
    other.wait_for_load_state()
    assert "sign in" in other.content().lower() or "session" in other.content()
    assert live.client.get("/epochs").json()["items"][0]["epoch"] == before


SMALLEST = """
() => {
  const high = (node) => node.getBoundingClientRect().height;
  const scale = (node) => node.getBBox ? high(node) / node.getBBox().height : 1;
  const isText = (child) => child.nodeType === 3 && child.textContent.trim();
  return Math.min(...[...document.querySelectorAll("main *:not(title)")]
    .filter((node) => [...node.childNodes].some(isText) && node.checkVisibility())
    .filter((node) => node.getBoundingClientRect().width > 1)
    .map((node) => parseFloat(getComputedStyle(node).fontSize) * scale(node)));
}
"""
"""Script that returns the size of the smallest text as it is drawn, CSS pixels."""


def test_each_text_of_a_narrow_window_is_large_enough_to_read(live, browser):
    window = Watched(browser, live.url)
    window.page.set_viewport_size({"width": NARROW, "height": 844})
    sign_in(window)
    for path in views(live):
        window.open(f"/console{path}")
        assert window.page.evaluate(SMALLEST) >= 11, path
    assert window.faults == []


def test_charts_fit_each_new_width(live, browser):
    window = Watched(browser, live.url)
    sign_in(window)
    window.open("/console?range=7d")
    fits = """() => [...document.querySelectorAll("figure.series")].every((figure) =>
        Math.abs(figure.querySelector("canvas").clientWidth - figure.clientWidth) <= 1)"""
    for width in (1_280, NARROW, 900):
        window.page.set_viewport_size({"width": width, "height": 900})
        window.page.wait_for_function(fits)
        assert window.page.evaluate(WIDER) == 0, width
    assert window.faults == []


def test_the_menu_of_a_narrow_window_unfolds_and_folds_by_the_keyboard(live, browser):
    window = Watched(browser, live.url)
    page = window.page
    sign_in(window)
    assert page.get_by_role("button", name="Menu").count() == 0
    page.set_viewport_size({"width": NARROW, "height": 844})
    button, link = page.get_by_role("button", name="Menu"), page.get_by_role("link", name="Pages")
    assert link.count() == 0
    reached(page, "innerText === 'Menu'")
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    reached(page, "innerText === 'Hosts'", most=4)
    page.keyboard.press("Escape")
    assert button.get_attribute("aria-expanded") == "false"
    assert page.evaluate("document.activeElement.innerText") == "Menu"
    assert page.get_by_role("link", name="Hosts").count() == 0
    page.keyboard.press("Enter")
    reached(page, "innerText === 'Hosts'", most=4)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/hosts$"))
    assert window.faults == []


def test_without_scripts_the_menu_stays_open_and_lists_scroll(live, browser):
    window = Watched(browser, live.url, java_script_enabled=False)
    window.page.set_viewport_size({"width": NARROW, "height": 844})
    sign_in(window)
    assert window.page.get_by_role("link", name="Hosts").is_visible()
    assert not window.page.get_by_text("Menu", exact=True).is_visible()


def test_rows_of_a_narrow_window_are_cards_and_stay_a_table(live, browser):
    window = Watched(browser, live.url)
    window.page.set_viewport_size({"width": NARROW, "height": 844})
    sign_in(window)
    window.open("/console/access")
    table = window.page.get_by_role("table").first
    assert table.get_by_role("columnheader").count() >= 7
    code = table.locator("td code").first
    assert code.bounding_box()["height"] < 30, "a key id is one line"
    label = "getComputedStyle(node, '::before').content"
    shown = table.get_by_role("cell").nth(2).evaluate(f"(node) => {label}")
    assert "Role" in shown
    assert window.faults == []


def reached(page, wanted, most=120):
    """Press Tab until an element that a script describes has the focus, and it is outlined."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(f"(document.activeElement.{wanted})"):
            style = "getComputedStyle(document.activeElement).outlineStyle"
            assert page.evaluate(style) == "solid"
            return
    raise AssertionError(f"no Tab reaches {wanted}")


def test_a_newcomer_walks_through_all_views_and_acts_by_the_keyboard(live, browser):
    window = Watched(browser, live.url)
    window.open("/console")
    page = window.page
    page.keyboard.type(ADMIN)  # the field of the key has the focus
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/sign-in?" not in url)
    for name in ("Pages", "Hosts", "Epochs", "Leases", "Changes", "Access", "Overview"):
        reached(page, f"innerText === '{name}'")
        page.keyboard.press("Enter")
        page.get_by_role("link", name=name).and_(page.locator("[aria-current]")).wait_for()
    reached(page, "innerText === 'Hosts'")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/hosts$"))
    reached(page, "innerText === 'news.example'")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/hosts/news.example$"))
    reached(page, "innerText === 'Pause'")
    page.keyboard.press("Enter")
    page.get_by_text("The host is paused.").wait_for()
    reached(page, "innerText === 'End the pause'")
    page.keyboard.press("Space")
    page.get_by_text("The host is crawled again").wait_for()
    reached(page, "innerText === 'Sign out'")
    page.keyboard.press("Enter")
    page.get_by_label("API key").wait_for()
    assert window.faults == []


def test_a_newcomer_walks_through_all_views_and_acts_without_scripts(live, browser):
    window = Watched(browser, live.url, java_script_enabled=False)
    sign_in(window)
    page = window.page
    for path in views(live):
        window.open(f"/console{path}")
        assert page.get_by_role("heading", level=1).is_visible(), path
        texts = page.locator("main").inner_text()
        assert "computing" not in texts, path
    window.open("/console?range=7d")
    for figure in page.locator("figure.chart > svg").all():
        box = figure.bounding_box()
        assert box["width"] > 200
        assert box["height"] > 60
    page.get_by_role("link", name="Epochs").click()
    page.locator("#bandwidth").fill("7")
    page.get_by_role("button", name="Compute").click()
    page.get_by_role("heading", name="7 crawls a day").wait_for()
    page.get_by_role("link", name="Pages").click()
    page.get_by_label("Tag").fill("all")
    page.get_by_role("button", name="Show").click()
    page.get_by_text(re.compile("^Crawl .* now …")).click()
    page.get_by_role("button", name="Request crawls").click()
    page.get_by_text("Done:").wait_for()
    page.get_by_role("link", name="Back to the pages").click()
    page.locator("td.url a").first.click()
    page.get_by_role("button", name="Crawl now").click()
    page.get_by_text(re.compile("crawl is requested|waits for a requested crawl")).wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("API key").wait_for()
    assert window.faults == []
