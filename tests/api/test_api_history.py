"""The history over HTTP: what a service did, in steps of ten minutes."""

from collections import Counter
from datetime import timedelta

import pytest
from support.live_server import START, Live, running

DAY_S = 86_400


def observe(api: Live, page_id, digest=None, **fields):
    """Report one crawl at the present instant."""
    content = {} if digest is None else {"digest": digest}
    observe_together(api, [page_id], **content, **fields)


def observe_together(api: Live, page_ids, **fields):
    """Report one crawl of each page at the present instant, all in one batch."""
    at = api.clock.now.isoformat()
    items = [{"page_id": page_id, "observed_at": at, **fields} for page_id in page_ids]
    answer = api.post("/observations", items)
    assert answer.json()["accepted"] == len(items), answer.text
    api.service.store.counter.write()


def rows(api: Live, **query):
    answer = api.get("/history", **{"since": START.isoformat(), **query})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def counts(row):
    names = ("leased", "reported", "failed", "changed", "wasted", "pings", "true_pings")
    names = (*names, "false_pings", "missed", "taught_nothing")
    return {name: row[f"n_{name}"] for name in names if row[f"n_{name}"]}


def counts_of_all(api: Live):
    return sum((Counter(counts(row)) for row in rows(api)), Counter())


@pytest.mark.dear
def test_each_outcome_is_counted_as_the_documentation_has_it(api: Live):
    """The table of docs/concepts/history.md; an outage with 404 is overhead from its first look."""
    (page,) = api.register("https://a.example/1")
    other = "https://a.example/2"
    crawls = (
        ({"digest": "v1"}, {}),
        ({"status": 404}, {"taught_nothing": 1}),
        ({"status": 404}, {"taught_nothing": 1}),  # too early to confirm it
        ({"digest": "v1"}, {"wasted": 1}),
        ({"status": 410}, {"taught_nothing": 1}),
        ({"status": 503}, {"failed": 1, "taught_nothing": 1}),
        ({"status": 410, "later": 2.0}, {"changed": 1}),
        ({"status": 404}, {"taught_nothing": 1, "wasted": 1}),
        ({"digest": "v2"}, {"changed": 1}),
        ({"status": 301, "redirect_url": other}, {"taught_nothing": 1}),
        ({"status": 301, "redirect_url": other, "later": 2.0}, {"changed": 1}),
        ({"status": 301, "redirect_url": other}, {"taught_nothing": 1, "wasted": 1}),
        ({"status": 302, "redirect_url": other}, {"taught_nothing": 1}),
        ({"status": 403}, {"failed": 1, "taught_nothing": 1}),
    )
    total = Counter()
    for fields, expected in crawls:
        result = dict(fields)
        api.clock.advance(hours=result.pop("later", 0.01))
        observe(api, page, **result)
        total.update({"reported": 1, **expected})
        assert counts_of_all(api) == total, fields


@pytest.mark.dear
def test_doubtful_crawls_are_failures_that_taught_nothing(api: Live):
    pages = api.register(*(f"https://a.example/{i}" for i in range(9)))
    for page in pages:
        observe(api, page, f"v{page}")
    api.clock.advance(days=2)
    before = counts_of_all(api)
    observe_together(api, pages, digest="maintenance")
    assert counts_of_all(api) - before == Counter(reported=9, failed=9, taught_nothing=9)


@pytest.mark.dear
def test_a_step_has_the_sums_of_its_commits_and_the_gauges_of_its_end(api: Live):
    one, two, _ = api.register(*(f"https://a.example/{i}" for i in range(3)))
    observe(api, one, "v1")
    observe(api, two, "v1")
    api.epoch()
    api.clock.advance(minutes=3)
    observe(api, one, "v2")
    observe(api, two, "v1")
    api.clock.advance(seconds=1)
    observe(api, two, status=503)
    (running_row,) = rows(api)
    assert running_row["complete"] is False
    assert running_row["measured_at"] is running_row["fresh_share"] is None
    expected = {"reported": 5, "failed": 1, "changed": 1, "wasted": 1, "taught_nothing": 1}
    assert counts(running_row) == expected
    api.clock.advance(minutes=7)
    api.service.runner.run_once()
    row, *later = rows(api)
    assert later == []
    assert row["complete"] is True
    assert counts(row) == expected
    assert row["at"] == START.isoformat().replace("+00:00", "Z")
    assert (row["n_pages"], row["n_never_crawled"], row["sampled_share"]) == (3, 1, 1.0)
    assert 0 < row["fresh_share"] < 2 / 3
    assert row["bandwidth"] == pytest.approx(0.4)  # a fifth of the pages with a copy
    assert row["n_asked"] == pytest.approx(0.4 * 600 / DAY_S)
    (compared,) = row["calibration"]
    assert (compared["estimator"], compared["n"], compared["n_changed"]) == ("bursty", 2, 1)
    assert sum(each["n"] for each in compared["bins"]) == 2
    (epoch,) = {row["epoch"]}
    assert api.get(f"/epochs/{epoch}").json()["calibration"] == row["calibration"]


@pytest.mark.dear
def test_a_coarser_row_has_the_sums_of_its_steps(api: Live):
    (page,) = api.register("https://a.example/")
    for step in range(6):
        observe(api, page, f"v{step}")
        api.clock.advance(minutes=10)
        api.service.runner.run_once()
    fine, (coarse,) = rows(api), rows(api, step_s=3600)
    assert [row["n_reported"] for row in fine] == [1] * 6
    assert coarse["n_reported"] == 6
    assert coarse["n_changed"] == sum(row["n_changed"] for row in fine) == 5
    assert coarse["measured_at"] == fine[-1]["measured_at"]
    assert coarse["n_asked"] == pytest.approx(sum(row["n_asked"] or 0 for row in fine))
    assert coarse["calibration"][0]["n"] == sum(row["calibration"][0]["n"] for row in fine[1:])


@pytest.mark.dear
def test_parts_of_the_history_follow_each_other(api: Live):
    (page,) = api.register("https://a.example/")
    for step in range(7):
        observe(api, page, f"v{step}")
        api.clock.advance(minutes=10)
        api.service.runner.run_once()
    whole, cursor, parts = rows(api), None, []
    while cursor is not None or not parts:
        query = {"since": START.isoformat(), "limit": 3} | ({"cursor": cursor} if cursor else {})
        answer = api.get("/history", **query)
        parts.append(answer.json()["items"])
        cursor = answer.json()["next_cursor"]
    assert [len(part) for part in parts] == [3, 3, 1]
    assert [row for part in parts for row in part] == whole


@pytest.mark.dear
def test_a_host_has_rows_of_its_own(api: Live):
    (one,) = api.register("https://a.example/")
    (other,) = api.register("https://b.example/")
    for page in (one, other, other):
        api.clock.advance(seconds=1)
        observe(api, page, "v1")
    assert rows(api, host="b.example")[0]["n_reported"] == 2
    api.clock.advance(minutes=10)
    api.service.runner.run_once()
    (row,) = rows(api, host="B.example")
    assert (row["n_reported"], row["n_pages"], row["bandwidth"]) == (2, 1, None)
    assert row["calibration"] == []
    assert rows(api)[0]["n_reported"] == 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"step_s": 700}, "step_s"),
        ({"since": "2026-05-02T00:00:00"}, "since"),
        ({"host": "a b"}, "host"),
        ({"cursor": "kqZwYWdlczER"}, "cursor"),
    ],
)
def test_a_bad_question_is_refused_with_its_field(sqlite_api: Live, query, field):
    answer = sqlite_api.get("/history", **query)
    assert answer.status_code == 422
    assert field in answer.text


def test_the_history_of_an_unknown_host_is_not_found(sqlite_api: Live):
    assert sqlite_api.get("/history", host="a.example").status_code == 404


def test_ranges_of_any_size_are_answered(sqlite_api: Live):
    for since in ("0001-01-01T00:00:00Z", "1960-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z"):
        answer = sqlite_api.get("/history", since=since, until="9999-12-31T23:59:59Z")
        assert answer.status_code in (200, 422), answer.text
    for until in ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "1970-01-01T12:00:00Z"):
        answer = sqlite_api.get("/history", until=until)
        assert answer.json()["items"] == [], answer.text


@pytest.mark.dear
def test_replicas_add_to_the_same_step(postgres_url):
    with running(postgres_url) as one, running(postgres_url, clock=one.clock) as other:
        (page,) = one.register("https://a.example/")
        for api in (one, other, one):
            one.clock.advance(seconds=1)
            observe(api, page, "v1")
        one.clock.now = START + timedelta(minutes=10)
        other.service.runner.run_once()
        assert rows(one)[0]["n_reported"] == rows(other)[0]["n_reported"] == 3
