"""Crawl results over HTTP: evidence, replays, digests, statuses."""

import json
from datetime import timedelta

import pytest
from support.live_server import START, Live

from service.core.estimators.bursty import Bursty, BurstyState

NEWS = "https://example.com/news"
ABOUT = "https://example.com/about"


def at(hours: float) -> str:
    """Give an instant so many hours after the service's first."""
    return (START + timedelta(hours=hours)).isoformat()


def crawl(hours: float, **said) -> dict:
    """Describe a crawl of the news page."""
    return {"url": NEWS, "observed_at": at(hours), **said}


def observe(api: Live, *crawls, **query):
    """Send crawls from a time when all of them have happened."""
    api.clock.now = START + timedelta(hours=1000)
    return api.post("/observations", list(crawls), **query)


def counts(response) -> tuple[int, int, int, int]:
    answer = response.json()
    return (answer["accepted"], answer["duplicate"], answer["late"], len(answer["rejected"]))


def evidence(api: Live, url: str = NEWS) -> tuple[int, int]:
    estimate = api.get("/pages", url=url).json()["estimate"]
    return estimate["n_observations"], estimate["n_changes"]


def test_the_first_crawl_opens_an_interval_and_is_no_evidence(api: Live):
    assert counts(observe(api, crawl(1, changed=True))) == (1, 0, 0, 0)
    assert evidence(api) == (0, 0)
    observe(api, crawl(25, changed=True))
    observe(api, crawl(73, changed=False))
    assert evidence(api) == (2, 1)
    newest, middle, first = api.get("/pages", url=NEWS).json()["last_crawls"]
    assert [newest["interval"], middle["interval"], first["interval"]] == [2.0, 1.0, None]
    assert [newest["changed"], middle["changed"], first["changed"]] == [False, True, None]


def test_changes_raise_the_estimate_and_their_absence_lowers_it(api: Live):
    for url, changed in ((NEWS, True), (ABOUT, False)):
        items = [{"url": url, "observed_at": at(h), "changed": changed} for h in range(0, 240, 24)]
        observe(api, *items)
    often = api.get("/pages", url=NEWS).json()["estimate"]["change_rate"]
    seldom = api.get("/pages", url=ABOUT).json()["estimate"]["change_rate"]
    assert seldom < 1 / 30 < 10 / 30 < often


def test_the_date_of_a_change_says_how_long_the_page_has_been_quiet_since(api: Live):
    for url, date in ((NEWS, {"last_modified": at(950)}), (ABOUT, {"last_modified": at(100)})):
        observe(api, {"url": url, "observed_at": at(0), "changed": False, **date})
        observe(api, {"url": url, "observed_at": at(960), "changed": True, **date})
    late, early = (api.get("/pages", url=url).json()["estimate"] for url in (NEWS, ABOUT))
    estimator, prior = Bursty(), 0.5 / 15.0
    for estimate, quiet_days in ((late, 10 / 24), (early, 860 / 24)):
        state = BurstyState(1.0, quiet_days, 2 ** (-quiet_days / estimator.memory_days))
        assert estimate["change_rate"] == pytest.approx(estimator.change_rate(state), rel=1e-9)
    assert early["change_rate"] < prior < late["change_rate"]


def test_a_batch_sent_again_changes_nothing_and_says_so(api: Live):
    batch = [crawl(1, digest="a"), crawl(5, digest="b"), crawl(9, digest="b")]
    assert counts(observe(api, *batch)) == (3, 0, 0, 0)
    before = api.get("/pages", url=NEWS).json()
    assert counts(observe(api, *batch)) == (0, 1, 2, 0)
    assert api.get("/pages", url=NEWS).json() == before


def test_batches_in_the_wrong_order_leave_the_newer_in_force(api: Live):
    newer, older = [crawl(9, digest="b"), crawl(8, digest="a")], [crawl(2, digest="x")]
    assert counts(observe(api, *newer)) == (2, 0, 0, 0)
    before = api.get("/pages", url=NEWS).json()
    assert counts(observe(api, *older)) == (0, 0, 1, 0)
    assert api.get("/pages", url=NEWS).json() == before
    assert evidence(api) == (1, 1)


def test_the_order_within_a_batch_does_not_matter(api: Live):
    ordered = [crawl(h, digest=d) for h, d in ((1, "a"), (2, "a"), (4, "b"), (8, "c"), (9, "c"))]
    shuffled = [{**c, "url": ABOUT} for c in (ordered[i] for i in (3, 0, 4, 2, 1))]
    assert counts(observe(api, *ordered, *shuffled)) == (10, 0, 0, 0)
    assert evidence(api) == evidence(api, ABOUT) == (4, 2)
    news, about = (api.get("/pages", url=url).json() for url in (NEWS, ABOUT))
    assert news["estimate"] == about["estimate"]
    assert news["last_crawls"] == about["last_crawls"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"digest": "a"}, {"digest": "a"}, (1, 0)),
        ({"digest": "a"}, {"digest": "b"}, (1, 1)),
        ({"digest": "a"}, {"digest": "b", "changed": False}, (1, 0)),
        ({"digest": "a"}, {"changed": True}, (1, 1)),
        ({"changed": True}, {"digest": "a"}, (0, 0)),
        ({"digest": "a", "status": 200}, {"status": 304}, (1, 0)),
        ({"digest": "a", "status": 200}, {"status": 304, "digest": "b"}, (1, 0)),
        ({"digest": "a", "status": 200}, {"status": 304, "changed": True}, (1, 0)),
        ({"digest": "a"}, {"robots_denied": True, "status": 200, "digest": "b"}, (0, 0)),
        ({"digest": "a"}, {"status": 404, "changed": True, "digest": "b"}, (0, 0)),
        ({"digest": "a"}, {"status": -1, "digest": "b"}, (0, 0)),
        ({"digest": "a", "status": 200}, {"status": 404}, (0, 0)),
        ({"digest": "a", "status": 200}, {"status": 410}, (0, 0)),
        ({"status": 404}, {"status": 404}, (0, 0)),
        ({"status": 404}, {"status": 200, "digest": "a"}, (0, 0)),
        ({"digest": "a"}, {"status": 0}, (0, 0)),
        ({"digest": "a"}, {"status": 500}, (0, 0)),
        ({"digest": "a"}, {"status": 503, "digest": "error page"}, (0, 0)),
        ({"digest": "a"}, {"status": 429}, (0, 0)),
        ({"digest": "a"}, {"status": 302}, (0, 0)),
        ({"digest": "a"}, {"status": 301, "digest": "b"}, (0, 0)),
    ],
)
def test_what_a_crawl_says_of_a_change(sqlite_api: Live, first, second, expected):
    assert counts(observe(sqlite_api, crawl(1, **first))) == (1, 0, 0, 0)
    assert counts(observe(sqlite_api, crawl(2, **second))) == (1, 0, 0, 0)
    assert evidence(sqlite_api) == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([{"digest": "a"}, {"status": 404}, {"status": 404}], (1, 1)),
        ([{"digest": "a"}, {"status": 410}, {"status": 404}, {"status": 404}], (2, 1)),
        ([{"digest": "a"}, {"status": 404}, {"digest": "a"}], (1, 0)),
        ([{"digest": "a"}, {"status": 404}, {"status": 404}, {"digest": "a"}], (2, 1)),
        ([{"digest": "a"}, {"status": 404}, {"status": 404}, {"digest": "b"}], (2, 2)),
        ([{"status": 404}, {"status": 404}, {"digest": "a"}], (1, 1)),
    ],
)
def test_a_second_look_makes_a_page_that_is_away_gone(sqlite_api: Live, results, expected):
    for hour, result in enumerate(results):
        assert counts(observe(sqlite_api, crawl(hour, **result))) == (1, 0, 0, 0)
    assert evidence(sqlite_api) == expected


def test_a_failed_crawl_keeps_the_interval_and_the_digest_of_the_last_good_one(api: Live):
    observe(api, crawl(0, digest="a"), crawl(24, status=503), crawl(48, status=0))
    assert evidence(api) == (0, 0)
    observe(api, crawl(72, digest="b"))
    assert evidence(api) == (1, 1)
    page = api.get("/pages", url=NEWS).json()
    assert page["last_crawls"][0]["interval"] == 3.0
    assert [entry["status"] for entry in page["last_crawls"]] == [None, 0, 503, None]


def test_a_gone_page_says_so_until_it_answers_again(api: Live):
    observe(api, crawl(0, digest="a"), crawl(1, status=410))
    assert api.get("/pages", url=NEWS).json()["gone"] is False
    observe(api, crawl(2, status=410))
    assert api.get("/pages", url=NEWS).json()["gone"] is True
    observe(api, crawl(3, status=200, digest="a"))
    assert api.get("/pages", url=NEWS).json()["gone"] is False


def test_crawls_of_a_page_whose_changes_are_announced_are_no_evidence(api: Live):
    api.register(NEWS, observability="complete")
    observe(api, crawl(1, digest="a"), crawl(2, digest="b"))
    assert evidence(api) == (0, 0)


def test_a_page_may_be_named_by_its_number(api: Live):
    (page_id,) = api.register(NEWS)
    named = {"page_id": page_id, "observed_at": at(1), "changed": True}
    assert counts(observe(api, named, crawl(2, changed=True))) == (2, 0, 0, 0)
    assert evidence(api) == (1, 1)


def test_unknown_pages_are_registered_unless_the_caller_forbids_it(api: Live):
    unknown = {"page_id": 99, "observed_at": at(1), "changed": True}
    refused = observe(api, crawl(1, changed=True), register=False)
    assert refused.status_code == 422
    assert refused.json()["rejected"][0]["code"] == "page_not_found"
    assert api.get("/pages", url=NEWS).status_code == 404
    taken = observe(api, unknown, crawl(1, changed=True))
    assert counts(taken) == (1, 0, 0, 1)
    (rejection,) = taken.json()["rejected"]
    assert (rejection["index"], rejection["field"]) == (0, "page_id")
    assert api.get("/pages", url=NEWS).status_code == 200


def test_lines_and_arrays_say_the_same(api: Live):
    items = [crawl(1, digest="a"), {"url": NEWS}, crawl(2, digest="b")]
    as_array = observe(api, *items).json()
    lines = "\n".join(json.dumps({**item, "url": ABOUT}) for item in items)
    as_lines = api.client.post(
        "/observations", content=lines, headers={"Content-Type": "application/x-ndjson"}
    ).json()
    assert as_array == as_lines
    assert evidence(api) == evidence(api, ABOUT) == (1, 1)


def test_five_minutes_ahead_is_now_and_more_is_the_future(sqlite_api: Live):
    ahead = [{"url": NEWS, "observed_at": at(minutes / 60), "changed": True} for minutes in (5, 6)]
    response = sqlite_api.post("/observations", ahead)
    assert counts(response) == (1, 0, 0, 1)
    assert response.json()["rejected"][0]["code"] == "future"


@pytest.mark.dear
def test_a_whole_batch_of_ten_thousand_is_taken(api: Live):
    items = [
        {"url": f"https://example.com/{i % 5000}", "observed_at": at(1 + i // 5000), "digest": "a"}
        for i in range(10_000)
    ]
    assert counts(observe(api, *items)) == (10_000, 0, 0, 0)
    assert evidence(api, "https://example.com/4999") == (1, 0)
