"""Redirects over HTTP: sites that redirect without end make a bounded number of pages."""

from collections import Counter
from collections.abc import Callable
from itertools import count, pairwise

import pytest
from support.live_server import running

pytestmark = pytest.mark.dear

SITE = "https://a.example"
Answers = Callable[[str], dict]


@pytest.fixture
def live(database_url, monkeypatch):
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "48")
    with running(database_url) as live:
        yield live


def crawl(live, answer: Answers, most=1_000):
    """Crawl what is due now, until nothing is; return the URLs in their order."""
    crawled = []
    while len(crawled) < most:
        leased = live.client.post("/leases", json={"count": 100}).json()["items"]
        if not leased:
            return crawled
        now = live.clock().isoformat()
        reports = [
            {"lease": each["lease"], "observed_at": now, **answer(each["url"])} for each in leased
        ]
        assert live.post("/observations", reports).json()["accepted"] == len(leased)
        crawled += [each["url"] for each in leased]
    pytest.fail(f"more than {most} crawls without a pause")


def run(live, answer: Answers, days: int, hours: int = 6):
    """Crawl for some days, with an epoch a day; return the URLs in their order."""
    crawled = []
    for hour in range(0, 24 * days, hours):
        if hour % 24 == 0:
            live.epoch()
        crawled += crawl(live, answer)
        live.clock.advance(hours=hours)
    return crawled


def to(target, status=302):
    return {"status": status, "redirect_url": target}


def content(digest="1"):
    return {"status": 200, "digest": digest}


def page(live, url):
    return live.get("/pages", url=url).json()


def pages(live, **filters):
    return {
        each["url"]: each for each in live.get("/pages", limit=1_000, **filters).json()["items"]
    }


def next_of(url):
    """The site's chain: /0 leads to /1, and so on without end."""
    return to(f"{SITE}/{int(url.rpartition('/')[2]) + 1}")


def test_a_chain_is_followed_for_five_redirects_from_a_page_that_was_asked_for(live):
    live.register(f"{SITE}/0")
    assert crawl(live, next_of) == [f"{SITE}/{n}" for n in range(6)]
    shown = [page(live, f"{SITE}/{n}") for n in range(6)]
    assert [each["hops"] for each in shown] == [0, 1, 2, 3, 4, 5]
    targets = [each["redirects_to"] and each["redirects_to"]["url"] for each in shown]
    assert targets == [*(f"{SITE}/{n}" for n in range(1, 6)), None]
    assert not any(each["gone"] for each in shown)
    live.epoch()
    why = page(live, f"{SITE}/5")["why"]["sentence"]
    assert "5 redirects away from a page that was asked for, which is the maximum" in why


@pytest.mark.dear
@pytest.mark.parametrize("status", [301, 302, 308])
def test_the_last_redirect_of_a_long_chain_is_elsewhere_and_never_moved(live, status):
    live.register(f"{SITE}/0")

    def answer(url):
        return next_of(url) | {"status": status}

    run(live, answer, 3)
    assert page(live, f"{SITE}/5")["gone"] is False
    assert page(live, f"{SITE}/4")["gone"] is (status != 302)
    assert len(pages(live)) == 6


@pytest.mark.dear
def test_a_page_that_is_asked_for_later_begins_a_chain_of_its_own(live):
    live.register(f"{SITE}/0")
    crawl(live, next_of)
    live.clock.advance(minutes=1)
    live.register(f"{SITE}/4")
    assert page(live, f"{SITE}/4")["hops"] == 0
    assert crawl(live, next_of) == [f"{SITE}/4"], "registered, so that it is crawled again"
    live.clock.advance(days=1)
    live.epoch()
    crawl(live, next_of)
    assert [page(live, f"{SITE}/{n}")["hops"] for n in (4, 5, 6, 7, 8, 9)] == [0, 1, 2, 3, 4, 5]
    assert len(pages(live)) == 10


def test_a_ping_asks_for_a_page_too(live):
    live.register(f"{SITE}/0")
    crawl(live, next_of)
    live.clock.advance(minutes=5)
    ping = {"url": f"{SITE}/3", "changed_at": live.clock().isoformat()}
    assert live.post("/pings", [ping]).status_code == 200
    assert page(live, f"{SITE}/3")["hops"] == 0


@pytest.mark.dear
@pytest.mark.parametrize("status", [301, 302])
def test_a_loop_costs_its_own_pages_alone_and_none_of_them_moves(live, status):
    live.register(f"{SITE}/a")
    loop = {f"{SITE}/a": f"{SITE}/b", f"{SITE}/b": f"{SITE}/c", f"{SITE}/c": f"{SITE}/a"}
    crawled = run(live, lambda url: to(loop[url], status), 20, hours=24)
    assert set(pages(live)) == set(loop)
    assert len(crawled) < 30
    assert not any(page(live, url)["gone"] for url in loop)
    assert live.get("/changes").json()["items"] == []


@pytest.mark.slow
def test_a_redirect_that_turns_around_is_followed_again(live):
    old, new = f"{SITE}/old", f"{SITE}/new"
    live.register(old)

    def moved(url):
        return to(new, 301) if url == old else content()

    run(live, moved, 36, hours=24)
    assert (page(live, old)["retired"], page(live, new)["gone"]) == (True, False)

    def back(url):
        return to(old, 301) if url == new else content()

    live.client.post("/pages/recrawl", json={"page_ids": [page(live, new)["page_id"]]})
    run(live, back, 10, hours=24)
    assert (page(live, old)["gone"], page(live, new)["gone"]) == (False, True)


def session(live, answer_of_target: Callable[[str, Callable[[], str]], dict]) -> Answers:
    """A site that sends /account to another target each time."""
    numbers = count()

    def another():
        return f"{SITE}/login?sid={next(numbers):x}"

    def answer(url):
        return to(another()) if url.endswith("/account") else answer_of_target(url, another)

    return answer


@pytest.mark.slow
def test_a_session_id_in_each_redirect_makes_few_pages_and_few_crawls(live):
    live.register(f"{SITE}/account", *(f"{SITE}/ok{n}" for n in range(5)))

    def trap(url, another):
        return content(url) if "/ok" in url else to(another())

    answer = session(live, trap)
    assert len(crawl(live, answer)) == 11, "the five pages, the trap and five redirects"
    crawled = run(live, answer, 30, hours=12)
    traps = [url for url in crawled if "/ok" not in url]
    made = [url for url in pages(live) if "sid=" in url]
    assert len(made) <= 10, "five for each of two targets"
    assert len(traps) < 60
    live.epoch()
    rates = {url: each["crawl_rate"] for url, each in pages(live).items() if "sid=" in url}
    assert set(rates.values()) == {0.0}, "targets without content have no share of the budget"
    alive = [url for url, each in pages(live).items() if "sid=" in url and each["next_crawl_at"]]
    assert len(alive) <= 5


@pytest.mark.dear
def test_targets_of_one_page_are_bounded_even_if_they_have_content(live):
    (account,) = live.register(f"{SITE}/account")
    answer = session(live, lambda url, _: content(url))
    for _ in range(30):
        crawl(live, answer)
        live.clock.advance(minutes=10)
        live.client.post("/pages/recrawl", json={"page_ids": [account]})
    assert len(pages(live)) == 11
    live.epoch()
    shown = live.get(f"/pages/{account}").json()
    assert "after 10 other targets, which is the maximum" in shown["why"]["sentence"]
    live.register(f"{SITE}/account")
    crawl(live, answer)
    assert len(pages(live)) == 12, "asked for again, it may register again"


def test_a_page_whose_targets_have_no_content_registers_two_until_one_of_them_has(live):
    (account,) = live.register(f"{SITE}/account")
    ok: set[str] = set()
    answer = session(live, lambda url, _: content(url) if url in ok else {"status": 403})

    def visited(n):
        for _ in range(n):
            crawl(live, answer)
            live.clock.advance(minutes=10)
            live.client.post("/pages/recrawl", json={"page_ids": [account]})

    visited(5)
    last = sorted(url for url in pages(live) if "sid=" in url)
    assert len(last) == 2
    live.epoch()
    sentence = live.get(f"/pages/{account}").json()["why"]["sentence"]
    assert "after other targets, the last of which had no content" in sentence
    live.register(f"{SITE}/account")
    ok.update(f"{SITE}/login?sid={n}" for n in range(100))
    visited(5)
    assert len(pages(live)) == 1 + 2 + 5, "asked for again, and its targets have content"


def test_a_page_that_led_to_a_long_chain_without_content_begins_no_second_one(live):
    (first,) = live.register(f"{SITE}/0")
    numbers = count()

    def answer(url):
        return to(f"{SITE}/{next(numbers)}x")

    def asked_again():
        live.clock.advance(days=1)
        live.client.post("/pages/recrawl", json={"page_ids": [first]})
        return crawl(live, answer)

    assert len(crawl(live, answer)) == 6
    assert [f"{SITE}/0" in asked_again() for _ in range(4)] == [True] * 4
    assert len(pages(live)) == 6
    live.epoch()
    sentence = live.get(f"/pages/{first}").json()["why"]["sentence"]
    assert "after other targets, the last of which had no content" in sentence
    live.register(f"{SITE}/0")
    asked_again()
    assert len(pages(live)) == 11, "asked for again, it may begin another one"


def test_a_page_whose_long_chain_ended_in_content_begins_another_one(live):
    (first,) = live.register(f"{SITE}/0")
    crawl(live, lambda url: content() if url.endswith("/4") else next_of(url))
    live.clock.advance(days=1)
    live.client.post("/pages/recrawl", json={"page_ids": [first]})
    assert f"{SITE}/new" in crawl(
        live, lambda url: to(f"{SITE}/new") if url.endswith("/0") else content()
    )


def test_one_batch_of_reports_registers_no_more_targets_than_many(live):
    live.register(f"{SITE}/account")
    start = live.clock()
    reports = [
        {"url": f"{SITE}/account", "observed_at": at, **to(f"{SITE}/login?sid={n}")}
        for n in range(40)
        if (at := live.clock.advance(seconds=1).isoformat())
    ]
    assert live.clock() > start
    assert live.post("/observations", reports).json()["accepted"] == 40
    assert len(pages(live)) == 3


@pytest.mark.dear
def test_a_target_without_content_is_tried_for_a_week_and_then_retired(live):
    live.register(f"{SITE}/0")

    def answer(url):
        return to(f"{SITE}/login") if url == f"{SITE}/0" else {"status": 403}

    begun = live.clock()
    times: dict[str, list[int]] = {f"{SITE}/0": [], f"{SITE}/login": []}

    def noted(url):
        times[url].append((live.clock() - begun).days)
        return answer(url)

    run(live, noted, 30, hours=24)
    tried = times[f"{SITE}/login"]
    assert tried[:4] == [0, 1, 3, 7]
    assert set(tried[4:]) <= set(times[f"{SITE}/0"]), "again only when its page leads to it again"
    assert all(after - before >= 7 for before, after in pairwise(tried[3:]))
    login = page(live, f"{SITE}/login")
    assert (login["retired"], login["gone"]) == (True, False)
    live.epoch()
    assert set(pages(live, state="retired")) == {login["url"]}
    assert set(pages(live, state="no_content")) == {f"{SITE}/0"}
    sentence = page(live, login["url"])["why"]["sentence"]
    because = "only redirects led to it, and it has had no content, so it is crawled no more"
    assert sentence.startswith(f"Nothing to do: {because}; ")
    live.register(login["url"])
    assert crawl(live, lambda _: content()) == [login["url"]]
    shown = page(live, login["url"])
    assert (shown["retired"], shown["hops"], shown["n_failures"]) == (False, 0, 0)


@pytest.mark.dear
def test_a_login_page_that_many_pages_share_is_one_page(live):
    asked = [f"{SITE}/{n}" for n in range(50)]
    live.register(*asked)
    crawled = run(live, lambda url: content() if "login" in url else to(f"{SITE}/login"), 5)
    assert len(pages(live)) == 51
    assert crawled.count(f"{SITE}/login") >= 1
    assert page(live, f"{SITE}/login")["retired"] is False


def test_a_target_with_content_stays_when_its_page_leads_elsewhere(live):
    (first,) = live.register(f"{SITE}/0")
    crawl(live, lambda url: content() if "one" in url else to(f"{SITE}/one"))
    live.clock.advance(days=2)
    live.client.post("/pages/recrawl", json={"page_ids": [first]})
    crawl(live, lambda url: content() if url != f"{SITE}/0" else to(f"{SITE}/two"))
    assert (page(live, f"{SITE}/one")["retired"], page(live, f"{SITE}/one")["hops"]) == (False, 1)


@pytest.mark.dear
def test_a_target_that_is_left_is_retired_at_once_and_comes_back_with_a_redirect(live):
    first, second = live.register(f"{SITE}/0", f"{SITE}/1")
    targets = {f"{SITE}/0": "one", f"{SITE}/1": "two"}

    def answer(url):
        return to(f"{SITE}/{targets[url]}") if url in targets else {"status": 503}

    crawl(live, answer)
    live.clock.advance(minutes=10)
    targets[f"{SITE}/0"] = "two"
    live.client.post("/pages/recrawl", json={"page_ids": [first]})
    crawl(live, answer)
    one = page(live, f"{SITE}/one")
    assert (one["retired"], one["hops"]) == (True, -1)
    live.epoch()
    sentence = page(live, f"{SITE}/one")["why"]["sentence"]
    assert "no page redirects to it any more" in sentence
    assert page(live, f"{SITE}/two")["retired"] is False
    live.clock.advance(minutes=10)
    targets[f"{SITE}/1"] = "one"
    live.client.post("/pages/recrawl", json={"page_ids": [second]})
    crawl(live, answer)
    one = page(live, f"{SITE}/one")
    assert (one["retired"], one["hops"]) == (False, 1)


def test_without_registering_a_redirect_registers_nothing_at_any_length(live):
    live.register(f"{SITE}/0")
    report = {"url": f"{SITE}/0", "observed_at": live.clock().isoformat(), **to(f"{SITE}/1")}
    assert live.post("/observations", [report], register=False).json()["accepted"] == 1
    assert set(pages(live)) == {f"{SITE}/0"}


def test_a_page_reported_by_its_url_is_asked_for(live):
    at = live.clock().isoformat()
    reports = [
        {"url": f"{SITE}/seen", "observed_at": at, **content()},
        {"url": f"{SITE}/0", "observed_at": at, **to(f"{SITE}/seen")},
    ]
    assert live.post("/observations", reports).json()["accepted"] == 2
    assert page(live, f"{SITE}/seen")["hops"] == 0


@pytest.fixture
def choosy(database_url, monkeypatch):
    """A service that admits new pages by what those of their URL group have brought."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(database_url, admission="learned") as live:
        yield live


def first_crawls(live):
    """Return the first crawls that hosts have counted, and those that were new."""
    return tuple(sum(each[name] for each in hosts(live)) for name in ("n_first", "n_new"))


def hosts(live):
    groups = live.get("/url-groups", limit=1_000).json()["items"]
    return [each for each in groups if "/" not in each["group"]]


def test_redirects_without_end_end_the_first_crawls_of_their_url_group(choosy):
    numbers = count()
    choosy.register(*(f"{SITE}/p{n}" for n in range(60)))
    crawled = crawl(choosy, lambda url: to(f"{url}/{next(numbers)}"))
    by_depth = [sum(url.count("/") == 3 + n for url in crawled) for n in range(6)]
    assert by_depth == [9] * 4 + [0] * 2, "nine chains at once, each of four pages"
    assert first_crawls(choosy) == (36, 0), "one for each request"
    (host,) = hosts(choosy)
    assert (host["n_waiting"], host["n_in_flight"]) == (51 + 9, 0), "the last targets wait too"


def test_a_trap_in_new_directories_opens_no_group_with_each_redirect(choosy):
    numbers = count()
    choosy.register(*(f"{SITE}/p{n}" for n in range(60)))
    crawled = crawl(choosy, lambda _: to(f"{SITE}/d{next(numbers)}/x"))
    assert len(crawled) == 36


@pytest.mark.parametrize("n_redirects", [0, 1, 2, 3])
def test_a_group_counts_each_request_once_when_its_pages_redirect(choosy, n_redirects):
    choosy.register(*(f"{SITE}/p{n}" for n in range(40)))

    def answer(url):
        return to(f"{url}x") if url.count("x") < 1 + n_redirects else content(url)

    crawled = crawl(choosy, answer)
    assert len(crawled) == 40 * (1 + n_redirects)
    assert first_crawls(choosy) == (len(crawled), 40)


def test_a_chain_counts_each_request_at_its_answer(choosy):
    choosy.register(f"{SITE}/p0")
    counted = []
    for depth in range(4):
        (leased,) = choosy.client.post("/leases", json={"count": 9}).json()["items"]
        found = to(f"{SITE}/p{depth + 1}") if depth < 3 else content()
        at = choosy.clock().isoformat()
        report = {"lease": leased["lease"], "observed_at": at, **found}
        assert choosy.post("/observations", [report]).json()["accepted"] == 1
        counted.append(first_crawls(choosy))
    assert counted == [(1, 0), (2, 0), (3, 0), (4, 1)]


def test_a_target_of_a_page_that_was_crawled_before_counts_its_own_request_alone(choosy):
    page_ids = choosy.register(*(f"{SITE}/old/p{n}" for n in range(40)))
    crawl(choosy, content)
    choosy.clock.advance(days=2)
    choosy.client.post("/pages/recrawl", json={"page_ids": page_ids})
    crawl(choosy, lambda url: to(moved(url, 1)) if "/old/" in url else content(url))
    assert first_crawls(choosy) == (80, 80)


def test_a_report_without_a_lease_counts_its_page_and_the_target_once_each(choosy):
    choosy.register("https://b.example/")
    at = choosy.clock().isoformat()
    reports = [{"url": f"{SITE}/p{n}", "observed_at": at, **to(f"{SITE}/q{n}")} for n in range(20)]
    assert choosy.post("/observations", reports).json()["accepted"] == 20
    assert first_crawls(choosy)[0] == 20
    n = len([url for url in crawl(choosy, content) if "/q" in url])
    assert first_crawls(choosy)[0] == 20 + n + 1


def moved(url, n_redirects):
    """A site that has moved from /old by some redirects."""
    first = {1: "new", 2: "mid"}[n_redirects]
    return url.replace("/old/", f"/{first}/") if "/old/" in url else url.replace("mid", "new")


@pytest.mark.parametrize("status", [301, 302])
@pytest.mark.parametrize("n_redirects", [1, 2])
def test_a_site_that_has_moved_is_followed_to_its_end(choosy, n_redirects, status):
    choosy.register(*(f"{SITE}/old/p{n}" for n in range(60)))

    def answer(url):
        return content(url) if "/new/" in url else to(moved(url, n_redirects), status)

    crawled = crawl(choosy, answer)
    assert Counter(url.split("/")[3] for url in crawled)["new"] == 60
    assert len(crawled) == 60 * (1 + n_redirects)


@pytest.mark.parametrize("status", [301, 302])
@pytest.mark.parametrize("n_redirects", [1, 2])
def test_a_known_site_that_moves_is_followed_to_its_end(choosy, n_redirects, status):
    page_ids = choosy.register(*(f"{SITE}/old/p{n}" for n in range(60)))
    crawl(choosy, content)
    choosy.clock.advance(days=2)
    choosy.client.post("/pages/recrawl", json={"page_ids": page_ids})

    def answer(url):
        if "/new/" in url:
            return content(url.replace("/new/", "/old/"))
        return to(moved(url, n_redirects), status)

    # permanent redirects of many pages at once are doubted, and tried again a day later
    crawled = {*run(choosy, answer, 2, hours=12)}
    assert sum("/new/" in url for url in crawled) == 60


def test_good_redirects_are_all_followed_by_a_crawler_of_one_page_at_a_time(choosy):
    choosy.register(*(f"{SITE}/go/p{n}" for n in range(100)))
    crawled = set()
    while leased := choosy.client.post("/leases", json={"count": 1}).json()["items"]:
        (one,) = leased
        url = one["url"]
        found = to(url.replace("/go/", "/page/")) if "/go/" in url else content(url)
        report = {"lease": one["lease"], "observed_at": choosy.clock().isoformat(), **found}
        assert choosy.post("/observations", [report]).json()["accepted"] == 1
        crawled.add(url)
    assert len(crawled) == 200


def test_a_site_that_moves_by_two_redirects_is_followed_to_its_end(choosy):
    choosy.register(*(f"{SITE}/old/p{n}" for n in range(60)))

    def answer(url):
        if "/new/" in url:
            return content(url)
        return to(url.replace("/old/", "/mid/") if "/old/" in url else url.replace("mid", "new"))

    crawled = crawl(choosy, answer)
    assert sum("/new/" in url for url in crawled) == 60


def test_a_target_that_is_left_before_its_first_crawl_gives_its_place_back(choosy):
    (page_id,) = choosy.register(f"{SITE}/go/list?id=1")
    choosy.register("https://b.example/")

    def places():
        groups = choosy.get("/url-groups").json()["items"]
        return [each["n_in_flight"] for each in groups if "a.example/go" in each["group"]]

    for target, left in ((f"{SITE}/one/a", 1), ("https://b.example/", 0)):
        at = choosy.clock().isoformat()
        report = {"page_id": page_id, "observed_at": at, **to(target)}
        assert choosy.post("/observations", [report]).json()["accepted"] == 1
        assert max(places()) == left
        choosy.clock.advance(minutes=1)
