"""Pages over HTTP: registered, looked up, changed, forgotten."""

import json

import pytest
from support.live_server import Live

from service.api.responses.problems import TYPES
from service.api.routes import pages
from service.estimation.page_estimate import of_page

NEWS = "https://example.com/news"
ABOUT = "https://example.com/about"


def test_pages_are_registered_and_known_again(api: Live):
    first = api.post("/pages", [{"url": NEWS}, {"url": ABOUT}])
    again = api.post("/pages", [{"url": ABOUT}, {"url": NEWS}])
    assert first.status_code == again.status_code == 200
    assert first.json()["created"] == 2
    assert again.json()["created"] == 0
    assert again.json()["page_ids"] == first.json()["page_ids"][::-1]
    assert first.json() | {"page_ids": None} == {
        "accepted": 2,
        "duplicate": 0,
        "late": 0,
        "n_rejected": 0,
        "rejected": [],
        "created": 2,
        "page_ids": None,
    }


def test_a_new_page_is_auto_unbounded_and_of_importance_one(api: Live):
    (page_id,) = api.register(NEWS)
    page = api.get(f"/pages/{page_id}").json()
    assert page["importance"] == 1.0
    assert page["observability"] == "auto"
    assert page["min_crawl_rate"] is page["max_crawl_rate"] is None
    assert page["created_at"] == "2026-05-01T12:00:00Z"
    assert page["host"] == "example.com"
    assert page["schedule"] is page["last_crawl_at"] is None
    assert page["why"]["hold"] == "no_crawler"
    assert page["estimate"]["url_group_change_rate"] is None
    assert page["last_crawls"] == []
    assert page["gone"] is False


def test_a_page_that_is_deleted_while_it_is_read_is_no_fault(api: Live, monkeypatch):
    (page_id,) = api.register(NEWS)

    def of_deleted_page(*arguments):
        assert api.client.delete(f"/pages/{page_id}").status_code == 204
        return of_page(*arguments)

    monkeypatch.setattr(pages, "of_page", of_deleted_page)
    answer = api.get(f"/pages/{page_id}")
    assert answer.status_code in (200, 404)  # SQLite reads a snapshot
    monkeypatch.undo()
    assert api.get(f"/pages/{page_id}").status_code == 404


@pytest.mark.dear
def test_an_upsert_changes_what_is_said_and_keeps_the_rest(api: Live):
    said = {"importance": 7.5, "observability": "auto", "min_crawl_rate": 0.5, "max_crawl_rate": 9}
    (page_id,) = api.register(NEWS, **said)
    api.register(NEWS, importance=8.0)
    api.register(NEWS)
    page = api.get(f"/pages/{page_id}").json()
    assert {name: page[name] for name in said} == said | {"importance": 8.0}


def test_of_one_url_twice_in_a_batch_each_field_counts_as_it_was_said_last(api: Live):
    url, other = "https://a.example/", "https://a.example/other"
    items = [
        {"url": url, "importance": 2, "min_crawl_rate": 0.5, "observability": "complete"},
        {"url": other, "importance": 7},
        {"url": f"{url}#again", "importance": 3},
        {"url": url, "max_crawl_rate": 4},
    ]
    answer = api.post("/pages", items).json()
    assert (answer["accepted"], answer["duplicate"]) == (2, 2)
    page = api.get("/pages", url=url).json()
    assert (page["importance"], page["observability"]) == (3, "complete")
    assert (page["min_crawl_rate"], page["max_crawl_rate"]) == (0.5, 4)
    assert api.get("/pages", url=other).json()["importance"] == 7


@pytest.mark.parametrize("stored", ["min_crawl_rate", "max_crawl_rate"])
def test_bounds_that_cross_those_of_another_request_are_rejected(api: Live, stored):
    bounds = {"min_crawl_rate": 0.5, "max_crawl_rate": 0.1}
    (page_id,) = api.register(NEWS, **{stored: bounds.pop(stored)})
    item = {"url": NEWS, "importance": 9, "tags": ["new"], **bounds}
    answer = api.post("/pages", [item, {"url": "https://other.example/"}]).json()
    assert (answer["accepted"], answer["created"], answer["page_ids"][0]) == (1, 1, None)
    (rejection,) = answer["rejected"]
    assert (rejection["index"], rejection["code"]) == (0, "conflict")
    assert "both bounds" in rejection["detail"]
    page = api.get(f"/pages/{page_id}").json()
    assert (page["importance"], page["tags"], page[next(iter(bounds))]) == (1.0, [], None)
    api.register(NEWS, min_crawl_rate=0.1, max_crawl_rate=0.5)
    both = api.get(f"/pages/{page_id}").json()
    assert (both["min_crawl_rate"], both["max_crawl_rate"]) == (0.1, 0.5)


def test_bounds_of_one_url_that_cross_within_a_batch_are_rejected(api: Live):
    items = [{"url": NEWS, "max_crawl_rate": 0.1}, {"url": NEWS, "min_crawl_rate": 0.5}]
    answer = api.post("/pages", [*items, {"url": "https://other.example/"}]).json()
    assert [rejection["code"] for rejection in answer["rejected"]] == ["conflict", "conflict"]
    assert api.get("/pages", url=NEWS).status_code == 404


def test_of_one_url_twice_in_a_batch_the_last_counts(api: Live):
    batch = [
        {"url": NEWS, "importance": 2.0},
        {"url": "HTTPS://EXAMPLE.com:443/news#top", "importance": 3.0},
    ]
    answer = api.post("/pages", batch).json()
    assert (answer["accepted"], answer["duplicate"], answer["created"]) == (1, 1, 1)
    assert answer["page_ids"][0] == answer["page_ids"][1]
    assert api.get(f"/pages/{answer['page_ids'][0]}").json()["importance"] == 3.0


def test_each_item_of_a_batch_succeeds_or_fails_alone(api: Live):
    response = api.post(
        "/pages",
        [
            {"url": "ftp://example.com/"},
            {"url": NEWS},
            {"url": "https://example.com/x", "importance": -1},
            {"url": ABOUT, "weight": 3},
            {"url": "https://example.com/y", "min_crawl_rate": 2, "max_crawl_rate": 1},
        ],
    )
    answer = response.json()
    assert response.status_code == 200
    assert (answer["accepted"], answer["created"]) == (1, 1)
    assert [page_id is None for page_id in answer["page_ids"]] == [True, False, True, True, True]
    told = [(r["index"], r["code"], r["field"]) for r in answer["rejected"]]
    assert told == [
        (0, "invalid_url", "url"),
        (2, "invalid", "importance"),
        (3, "unknown_field", "weight"),
        (4, "invalid", "min_crawl_rate"),
    ]
    assert "send http or https" in answer["rejected"][0]["detail"]
    assert "known fields are url" in answer["rejected"][2]["detail"]


def test_a_batch_of_which_nothing_can_be_taken_is_a_problem_that_lists_every_item(api: Live):
    response = api.post("/pages", [{"url": "nowhere"}, {"importance": 1}])
    problem = response.json()
    assert response.status_code == problem["status"] == 422
    assert response.headers["Content-Type"] == "application/problem+json"
    assert problem["type"] == f"{TYPES}batch-rejected"
    assert problem["accepted"] == 0
    assert [(r["index"], r["field"]) for r in problem["rejected"]] == [(0, "url"), (1, "url")]


def test_an_empty_batch_changes_nothing(api: Live):
    assert api.post("/pages", []).json() == {
        "accepted": 0,
        "duplicate": 0,
        "late": 0,
        "n_rejected": 0,
        "rejected": [],
        "created": 0,
        "page_ids": [],
    }


@pytest.mark.dear
def test_lines_and_arrays_say_the_same(api: Live):
    items = [{"url": NEWS, "importance": 2.0}, {"url": "ftp://x/"}, {"url": ABOUT}]
    lines = "\n\n".join(json.dumps(item) for item in items) + "\n"
    as_lines = api.client.post(
        "/pages", content=lines, headers={"Content-Type": "application/x-ndjson"}
    ).json()
    as_array = api.post("/pages", items).json()
    assert as_lines["created"] == 2
    assert as_lines | {"created": 0} == as_array


def test_a_broken_line_does_not_touch_the_others(api: Live):
    lines = f'{{"url": "{NEWS}"}}\n{{"url": \n{{"url": "{ABOUT}"}}\n'
    answer = api.client.post(
        "/pages", content=lines, headers={"Content-Type": "application/x-ndjson"}
    ).json()
    assert answer["accepted"] == 2
    (rejection,) = answer["rejected"]
    assert (rejection["index"], rejection["code"]) == (1, "malformed")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("https://Bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"),
        ("http://example.com", "http://example.com/"),
        ("https://example.com/a/./b/../c?q=1#f", "https://example.com/a/c?q=1"),
        ("https://[2001:DB8::1]/", "https://[2001:db8::1]/"),
        ("https://example.com/%zz", "https://example.com/%zz"),
    ],
)
def test_a_page_is_found_by_any_spelling_of_its_url(sqlite_api: Live, sent, kept):
    (page_id,) = sqlite_api.register(sent)
    by_id = sqlite_api.get(f"/pages/{page_id}").json()
    assert by_id["url"] == kept
    assert sqlite_api.get("/pages", url=sent).json() == by_id
    assert sqlite_api.get("/pages", url=kept).json() == by_id


@pytest.mark.dear
def test_a_page_says_why_it_is_crawled_as_often_as_it_is(api: Live):
    often, seldom = api.register(NEWS, ABOUT)
    api.client.patch(f"/pages/{often}", json={"importance": 50})
    api.clock.advance(days=1)
    epoch = api.epoch()
    page, other = (api.get(f"/pages/{page_id}").json() for page_id in (often, seldom))
    assert page["schedule"]["epoch"] == epoch["epoch"]
    assert page["schedule"]["crawl_rate"] > other["schedule"]["crawl_rate"] >= 0
    assert page["why"]["multiplier"] == epoch["multiplier"]
    assert page["why"]["crawled_more_often_than"] > other["why"]["crawled_more_often_than"]
    assert "its importance is 50" in page["why"]["sentence"]
    assert page["estimate"]["url_group_change_rate"] == pytest.approx(1 / 30)  # nothing is known
    assert ", pages of its URL group every 30 days, and" in page["why"]["sentence"]
    interval = page["estimate"]["credible_interval"]
    assert 0 < interval["low"] < page["estimate"]["change_rate"] < interval["high"]


@pytest.mark.dear
def test_a_page_says_what_its_siblings_have_shown_since_its_last_crawl(api: Live):
    pages = api.register(*(f"https://news.example/2026/{i}" for i in range(12)))

    def crawl(some: list[int], *, changed: bool, days: float) -> None:
        at = api.clock.advance(days=days).isoformat()
        told = [{"page_id": page, "observed_at": at, "changed": changed} for page in some]
        assert api.post("/observations", told).status_code == 200

    for changed in (False, False, False, True) * 4:  # so that they are known to change together
        crawl(pages, changed=changed, days=5)
        api.epoch()
    for _ in range(4):
        crawl(pages, changed=False, days=5)
    crawl(pages[6:], changed=True, days=5)
    api.clock.advance(hours=1)
    epoch = api.epoch()
    waiting, crawled = (api.get(f"/pages/{page_id}").json() for page_id in (pages[0], pages[-1]))
    urgency = waiting["schedule"]["urgency"]
    assert urgency > 1.3 * epoch["budget_factor"] > 0
    assert crawled["schedule"]["urgency"] == pytest.approx(epoch["budget_factor"], rel=0.05)
    assert "its URL group or its site has changed more than expected" in waiting["why"]["sentence"]
    sooner = f"so it is crawled {urgency / epoch['budget_factor']:.1f} times as soon"
    assert waiting["why"]["sentence"].endswith(f"{sooner}.")
    assert "than expected" not in crawled["why"]["sentence"]
    for _ in range(3):
        crawl(pages[1:], changed=False, days=4)
    api.epoch()
    calm = api.get(f"/pages/{pages[0]}").json()
    assert calm["schedule"]["urgency"] < urgency
    assert "changed less than expected, so it can wait 1." in calm["why"]["sentence"]


def test_a_page_that_is_worth_next_to_nothing_says_so_in_a_number_that_can_be_read(sqlite_api):
    often, never = sqlite_api.register(NEWS, ABOUT)
    sqlite_api.client.patch(f"/pages/{often}", json={"importance": 1e9})
    sqlite_api.client.patch(f"/pages/{never}", json={"importance": 1e-9})
    sqlite_api.epoch()
    why = sqlite_api.get(f"/pages/{never}").json()["why"]
    assert "Then crawled less than once in 1,000 years: " in why["sentence"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n_pages", [1, 2, 3, 7, 60])
def test_a_page_s_rank_is_the_share_of_the_pages_that_are_crawled_less_often(sqlite_api, n_pages):
    items = [{"url": f"https://a.example/{i}", "importance": 1.0 + i} for i in range(n_pages)]
    page_ids = sqlite_api.post("/pages", items).json()["page_ids"]
    sqlite_api.epoch()
    pages = [sqlite_api.get(f"/pages/{page_id}").json() for page_id in page_ids]
    rates = [page["schedule"]["crawl_rate"] for page in pages]
    assert sorted(rates) == rates
    assert [page["why"]["crawled_more_often_than"] for page in pages] == pytest.approx(
        [sum(other < rate for other in rates) / n_pages for rate in rates]
    )


def test_a_patch_changes_the_fields_it_names(api: Live):
    (page_id,) = api.register(NEWS, importance=3.0, min_crawl_rate=1.0, max_crawl_rate=5.0)
    patched = api.client.patch(f"/pages/{page_id}", json={"importance": 4, "max_crawl_rate": 6})
    assert patched.status_code == 200
    assert patched.json() == api.get(f"/pages/{page_id}").json()
    told = [patched.json()[n] for n in ("importance", "min_crawl_rate", "max_crawl_rate")]
    assert told == [4.0, 1.0, 6.0]


@pytest.mark.dear
def test_null_clears_a_bound(api: Live):
    (page_id,) = api.register(NEWS, min_crawl_rate=1.0, max_crawl_rate=5.0)
    patched = api.client.patch(f"/pages/{page_id}", json={"min_crawl_rate": None}).json()
    assert (patched["min_crawl_rate"], patched["max_crawl_rate"]) == (None, 5.0)


@pytest.mark.parametrize("patch", [{"min_crawl_rate": 5.5}, {"max_crawl_rate": 0.5}])
def test_a_patch_that_contradicts_the_other_bound_changes_nothing(api: Live, patch):
    (page_id,) = api.register(NEWS, min_crawl_rate=1.0, max_crawl_rate=5.0)
    refused = api.client.patch(f"/pages/{page_id}", json=patch | {"importance": 9.0})
    assert refused.status_code == 422
    assert "lies above max_crawl_rate" in refused.json()["detail"]
    page = api.get(f"/pages/{page_id}").json()
    assert (page["min_crawl_rate"], page["max_crawl_rate"], page["importance"]) == (1.0, 5.0, 1.0)


def test_a_page_that_becomes_complete_counts_its_pings_anew(api: Live):
    (page_id,) = api.register(NEWS)
    api.post("/pings", [{"page_id": page_id, "changed_at": api.clock().isoformat()}])
    assert api.get(f"/pages/{page_id}").json()["estimate"]["n_pings"] == 1
    patched = api.client.patch(f"/pages/{page_id}", json={"observability": "complete"}).json()
    assert patched["observability"] == "complete"
    assert patched["estimate"]["n_pings"] == 0
    assert patched["estimate"]["estimator"] == "complete"


def test_a_deleted_page_is_forgotten(api: Live):
    gone, kept = api.register(NEWS, ABOUT)
    api.epoch()
    assert api.client.delete(f"/pages/{gone}").status_code == 204
    for response in (
        api.get(f"/pages/{gone}"),
        api.get("/pages", url=NEWS),
        api.client.delete(f"/pages/{gone}"),
        api.client.patch(f"/pages/{gone}", json={"importance": 2}),
    ):
        assert response.status_code == 404
        assert response.json()["type"] == f"{TYPES}page-not-found"
    assert [row["page_id"] for row in api.schedule()] == [kept]
    assert api.register(NEWS) not in ([gone], [kept])
