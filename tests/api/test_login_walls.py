"""A section redirects to a login: its page is no content, in the feed, in lists and in `why`."""

import pytest
from support.live_server import running

SITE = "https://a.example"
LOGIN = f"{SITE}/login"


@pytest.fixture
def live(database_url, monkeypatch):
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(database_url, bandwidth=None, admission="all") as live:
        yield live


def crawl(live, answer, count=100):
    """Crawl what is due now, so many pages at a time; return the URLs in their order."""
    crawled = []
    while leased := live.client.post("/leases", json={"count": count}).json()["items"]:
        at = live.clock().isoformat()
        reports = [
            {"lease": each["lease"], "observed_at": at, **answer(each["url"])} for each in leased
        ]
        assert live.post("/observations", reports).json()["accepted"] == len(leased)
        crawled += [each["url"] for each in leased]
        live.clock.advance(seconds=1)
    return crawled


def days(live, answer, n):
    """Crawl for some days, four times a day, with an epoch each time."""
    crawled = []
    for _ in range(4 * n):
        live.epoch()
        crawled += crawl(live, answer)
        live.clock.advance(hours=6)
    return crawled


def content(url):
    return {"status": 200, "digest": url}


def login(url):
    return content(url) if url == LOGIN else {"status": 302, "redirect_url": LOGIN}


def section(n):
    return [f"{SITE}/docs/{i}" for i in range(n)]


def kinds(live, url):
    """Return the kinds of the changes of a page."""
    items = live.get("/changes", since="2020-01-01T00:00:00Z").json()["items"]
    return [each["kind"] for each in items if each["url"] == url]


def page(live, url):
    return live.get("/pages", url=url).json()


def asked_again(live):
    """Crawl a section of eight pages, and ask for it again a day later."""
    live.register(*section(8))
    crawl(live, content)
    live.clock.advance(days=1)
    live.client.post(
        "/pages/recrawl", json={"page_ids": [page(live, u)["page_id"] for u in section(8)]}
    )


def test_a_login_behind_a_section_is_never_in_the_feed(live):
    asked_again(live)
    assert LOGIN in crawl(live, login)
    assert kinds(live, LOGIN) == []
    days(live, login, 3)
    assert "new" not in kinds(live, LOGIN)
    assert page(live, LOGIN)["gone"] is True


def test_a_login_that_came_first_leaves_the_feed_again(live):
    live.register(*section(1))
    crawl(live, login)
    assert kinds(live, LOGIN) == ["new"], "crawled after the first redirect"
    live.register(*section(8))
    assert LOGIN in crawl(live, login), "crawled again after the fifth"
    live.clock.advance(hours=2)
    live.epoch()
    assert LOGIN in crawl(live, login)
    assert kinds(live, LOGIN) == ["new", "gone"]
    days(live, login, 3)
    assert kinds(live, LOGIN) == ["new", "gone"]


@pytest.mark.parametrize("n", [1, 4])
def test_the_target_of_few_redirects_is_content(live, n):
    live.register(*section(n))
    crawl(live, login)
    assert kinds(live, LOGIN) == ["new"]
    days(live, login, 2)
    assert kinds(live, LOGIN) == ["new"]


def test_a_target_that_is_asked_for_is_content(live):
    live.register(LOGIN, *section(8))
    crawl(live, login)
    days(live, login, 2)
    assert kinds(live, LOGIN) == ["new"]


def test_permanent_redirects_to_one_page_are_a_move(live):
    live.register(*section(8))
    crawl(live, lambda url: login(url) | ({"status": 301} if url != LOGIN else {}))
    assert kinds(live, LOGIN) == ["new"]


def test_why_names_the_wall_and_what_to_do(live):
    live.register(*section(8))
    days(live, login, 6)
    live.epoch()
    sentence = page(live, section(8)[0])["why"]["sentence"]
    assert sentence.startswith("Have your crawler log in or accept what the site asks for at ")
    assert LOGIN in sentence
    assert "it is a wall, such as a login" in page(live, LOGIN)["why"]["sentence"]


def test_why_names_the_target_of_a_redirect_that_is_no_wall(live):
    (own,) = live.register(f"{SITE}/old")
    for _ in range(3):
        live.client.post("/pages/recrawl", json={"page_ids": [own]})
        crawl(live, login)
        live.clock.advance(hours=6)
    live.epoch()
    sentence = live.get(f"/pages/{own}").json()["why"]["sentence"]
    assert f"it redirects to {LOGIN}; " in sentence
    assert f"Delete the page if you do not need it: {LOGIN} is crawled in its place" in sentence


def test_why_of_a_page_that_has_moved_names_its_target(live):
    (own,) = live.register(f"{SITE}/old")
    for _ in range(2):
        crawl(live, lambda url: login(url) | ({"status": 301} if "old" in url else {}))
        live.clock.advance(hours=2)
        live.epoch()
    why = live.get(f"/pages/{own}").json()["why"]
    assert why["moved_to"] == LOGIN
    assert f"it has moved to {LOGIN}, as its last" in why["sentence"]
    assert page(live, LOGIN)["why"]["moved_to"] is None
    shown = live.client.get(f"/console/pages/{own}").text
    assert f"it has moved to {LOGIN}" in shown
    assert "Has moved to <a" in shown


def test_a_section_that_opens_again_has_its_content_back(live):
    live.register(*section(8))
    crawl(live, content)
    live.clock.advance(days=1)
    days(live, login, 2)
    live.client.post(
        "/pages/recrawl", json={"page_ids": [page(live, u)["page_id"] for u in section(8)]}
    )
    crawl(live, lambda url: {"status": 200, "digest": f"{url} anew"})
    assert kinds(live, section(8)[0]) == ["new", "changed"]


def own_login(url):
    """Return the answer of a site whose login takes the address of the page behind it."""
    if url.startswith(f"{LOGIN}?"):
        return {"status": 200, "digest": "the login"}
    return {"status": 302, "redirect_url": f"{LOGIN}?next={url.removeprefix(SITE)}"}


@pytest.fixture
def judging(database_url, monkeypatch):
    """A service that judges new pages, with a budget for all."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(database_url, bandwidth=60.0, admission="learned") as live:
        yield live


@pytest.mark.parametrize("together", [100, 1])
def test_logins_with_an_address_for_each_page_are_walls(judging, together):
    """The first of them is seen before it is known to be one."""
    live = judging
    asked_again(live)
    crawl(live, own_login, together)
    days(live, own_login, 4)
    logins = [f"{LOGIN}?next=/docs/{i}" for i in range(8)]
    new = [url for url in logins if "new" in kinds(live, url)]
    assert len(new) == 1
    others = [url for url in logins if url not in new and live.get("/pages", url=url).is_success]
    seen = [url for url in others if page(live, url)["last_crawl_at"]]
    assert seen
    listed = live.get("/pages", host="a.example", limit=100).json()["items"]
    assert {each["outcome"] for each in listed if each["url"] in seen} == {"absent"}
    source = page(live, SITE + seen[0].removeprefix(f"{LOGIN}?next="))
    assert "have your crawler log in" in source["why"]["sentence"].lower()


def test_pages_that_move_for_a_time_keep_their_content(judging):
    """A section redirects to another one for now, whose pages have the same content."""
    live = judging
    asked_again(live)

    def moved(url):
        if "/guide/" in url:
            return content(url.replace("/guide/", "/docs/"))
        return {"status": 302, "redirect_url": url.replace("/docs/", "/guide/")}

    crawl(live, moved, 3)
    for url in section(8):
        assert kinds(live, url.replace("/docs/", "/guide/")) == ["new"]
