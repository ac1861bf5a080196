"""The schedule over HTTP: whole, in pages, in lines, filtered, conditional."""

import json
from datetime import datetime, timedelta

import pyarrow.ipc
import pytest
from support.live_server import Live

from service.api.responses.problems import TYPES

NDJSON = {"Accept": "application/x-ndjson"}


@pytest.fixture
def corpus(api: Live) -> list[int]:
    """Twenty-five scheduled pages on two hosts, some of them complete."""
    page_ids = api.register(
        *(f"https://a.example/{i}" for i in range(15)), importance=2.0, observability="incomplete"
    )
    page_ids += api.register(
        *(f"https://b.example/{i}" for i in range(10)), observability="complete"
    )
    assert api.epoch()["status"] == "published"
    return page_ids


def lines(api: Live, **query) -> list[dict]:
    """Read the stream of the schedule."""
    with api.client.stream("GET", "/schedule", params=query, headers=NDJSON) as response:
        assert response.status_code == 200
        assert response.headers["Content-Type"] == "application/x-ndjson"
        return [json.loads(line) for line in response.iter_lines()]


def test_before_the_first_epoch_there_is_nothing_to_crawl_by(api: Live):
    api.register("https://a.example/")
    nothing = {
        "epoch": None,
        "published_at": None,
        "bandwidth": None,
        "items": [],
        "next_cursor": None,
    }
    assert api.get("/schedule").json() == nothing


def test_before_the_first_epoch_nothing_comes_in_the_form_asked_for(api: Live):
    lines = api.client.get("/schedule", headers={"Accept": "application/x-ndjson"})
    assert (lines.status_code, lines.content) == (200, b"")
    assert lines.headers["Content-Type"].startswith("application/x-ndjson")
    arrow = api.client.get("/schedule", headers={"Accept": "application/vnd.apache.arrow.stream"})
    table = pyarrow.ipc.open_stream(arrow.content).read_all()
    assert (table.num_rows, table.schema.names[0]) == (0, "page_id")
    assert api.get("/schedule", host="a/b").status_code == 422


@pytest.mark.parametrize("since", [2**31, 2**63 - 1])
def test_an_epoch_too_large_for_the_database_is_not_kept(api: Live, corpus, since):
    answer = api.get("/schedule", since_epoch=since)
    assert (answer.status_code, answer.json()["type"]) == (
        410,
        f"{TYPES}epoch-not-kept",
    )


@pytest.mark.dear
def test_the_schedule_spends_the_bandwidth_on_every_page_by_ascending_id(api: Live, corpus):
    page = api.get("/schedule").json()
    epoch = api.get("/epochs/latest").json()
    assert [row["page_id"] for row in page["items"]] == sorted(corpus)
    assert page["epoch"] == epoch["epoch"]
    assert page["published_at"] == epoch["finished_at"]
    assert page["bandwidth"] == epoch["bandwidth"] == 0.2 * 25
    pinged = sum(r["crawl_probability"] * r["change_rate"] for r in page["items"])
    crawled = sum(row["crawl_rate"] for row in page["items"])
    assert crawled + pinged == pytest.approx(epoch["bandwidth_used"], rel=5e-7)
    assert epoch["bandwidth_used"] <= epoch["bandwidth"] * (1 + 1e-9)
    assert page["next_cursor"] is None


@pytest.mark.dear
@pytest.mark.sampled(2)
@pytest.mark.parametrize("limit", [1, 4, 5, 24, 25, 26])
def test_the_pages_of_a_chain_of_cursors_make_the_whole(api: Live, corpus, limit):
    assert api.schedule(limit=limit) == api.get("/schedule").json()["items"]


@pytest.mark.dear
def test_lines_make_the_same_whole(api: Live, corpus):
    assert lines(api) == api.get("/schedule").json()["items"]
    assert lines(api, host="b.example") == api.schedule(host="b.example")


@pytest.mark.dear
def test_a_reader_half_way_through_an_epoch_finishes_it_while_the_next_is_published(
    api: Live, corpus
):
    first = api.get("/schedule", limit=10).json()
    api.register("https://c.example/", importance=1000)
    api.epoch()
    rest = api.get("/schedule", limit=20, cursor=first["next_cursor"]).json()
    assert rest["epoch"] == first["epoch"]
    assert rest["next_cursor"] is None
    read = first["items"] + rest["items"]
    assert [row["page_id"] for row in read] == sorted(corpus)
    assert sum(row["crawl_rate"] for row in read) > 0
    assert len(api.schedule()) == 26


@pytest.mark.dear
def test_a_cursor_of_an_epoch_no_longer_kept_has_expired(api: Live, corpus):
    cursor = api.get("/schedule", limit=10).json()["next_cursor"]
    for _ in range(2):
        api.epoch()
    for accept in ({}, NDJSON):
        response = api.client.get("/schedule", params={"cursor": cursor}, headers=accept)
        assert response.status_code == 410
        assert response.json()["type"] == f"{TYPES}cursor-expired"
        assert "start again without a cursor" in response.json()["detail"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cursor", ["", "x", "NTox", "OTk5OTow", "LTE6MA", "é", "A" * 5000])
def test_a_cursor_that_was_not_handed_out_is_refused(api: Live, corpus, cursor):
    for accept in ({}, NDJSON):
        response = api.client.get("/schedule", params={"cursor": cursor}, headers=accept)
        assert response.status_code == 422
        assert response.json()["type"] == f"{TYPES}bad-cursor"


@pytest.mark.dear
def test_a_cursor_of_an_epoch_that_was_never_published_is_refused(api: Live, corpus):
    waiting = api.client.post("/epochs").json()["epoch"]
    from service.api.cursors import SchedulePlace, encode_cursor

    response = api.get("/schedule", cursor=encode_cursor(SchedulePlace(waiting, 0)))
    assert response.status_code == 422


def test_filters_choose_by_host_url_and_observability(api: Live, corpus):
    assert len(api.schedule(host="a.example")) == 15
    assert len(api.schedule(host="A.Example", limit=7)) == 15
    assert len(api.schedule(observability="complete")) == 10
    assert api.schedule(observability="auto") == []
    assert api.schedule(host="a.example", observability="complete") == []
    (row,) = api.schedule(url="https://b.example:443/3#x")
    assert row["url"] == "https://b.example/3"
    assert api.schedule(url="https://b.example/unknown") == []
    assert api.schedule(host="unknown.example") == []
    refused = api.get("/schedule", host="http://a.example")
    assert (refused.status_code, refused.json()["field"]) == (422, "host")


def test_an_international_host_is_found_in_either_spelling(api: Live):
    api.register("https://bücher.example/")
    api.epoch()
    assert len(api.schedule(host="bücher.example")) == 1
    assert len(api.schedule(host="xn--bcher-kva.example")) == 1


def test_due_before_chooses_by_the_time_of_the_next_crawl(api: Live, corpus):
    crawled = [
        {"page_id": page_id, "observed_at": api.clock().isoformat(), "changed": True}
        for page_id in corpus[:6]
    ]
    api.post("/observations", crawled)
    never_crawled = api.schedule(due_before=(api.clock() + timedelta(seconds=1)).isoformat())
    assert [row["page_id"] for row in never_crawled] == sorted(corpus[6:])
    assert api.schedule(due_before=api.clock().isoformat()) == []
    far = (api.clock() + timedelta(days=40_000)).isoformat()
    due = [row for row in api.schedule() if row["next_crawl_at"] is not None]
    assert api.schedule(due_before=far) == due


@pytest.mark.dear
def test_a_reported_crawl_moves_the_next_one(api: Live, corpus):
    api.clock.advance(days=3)
    reported = {"page_id": corpus[0], "observed_at": api.clock().isoformat(), "changed": False}
    api.post("/observations", [reported])
    row = api.get("/schedule").json()["items"][0]
    waits = datetime.fromisoformat(row["next_crawl_at"]) - api.clock()
    assert timedelta(0) <= waits <= timedelta(days=1.05 / row["crawl_rate"])
    again = {**reported, "observed_at": api.clock.advance(days=9).isoformat()}
    api.post("/observations", [again])
    row = api.get("/schedule").json()["items"][0]
    waits = (datetime.fromisoformat(row["next_crawl_at"]) - api.clock()) / timedelta(days=1)
    assert 0.95 <= waits * row["crawl_rate"] <= 1.05


def test_an_epoch_that_the_caller_knows_is_not_sent_again(api: Live, corpus):
    etag = api.get("/schedule").headers["ETag"]
    for known in (etag, etag.removeprefix("W/"), f'"other", {etag}', "*"):
        response = api.client.get("/schedule", headers={"If-None-Match": known})
        assert (response.status_code, response.content) == (304, b"")
        assert response.headers["ETag"] == etag
    lines = [("If-None-Match", '"other"'), ("If-None-Match", etag)]
    assert api.client.get("/schedule", headers=lines).status_code == 304
    api.epoch()
    response = api.client.get("/schedule", headers={"If-None-Match": etag})
    assert response.status_code == 200
    assert response.headers["ETag"] != etag


def test_a_header_in_several_lines_is_one(api: Live, corpus):
    lines = [("Accept", "text/html"), ("Accept", "application/json")]
    lines += [("Accept-Encoding", "br"), ("Accept-Encoding", "gzip")]
    response = api.client.get("/schedule", headers=lines)
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("application/json")


@pytest.mark.dear
def test_what_is_due_by_now_is_never_answered_from_memory(api: Live, corpus):
    etag = api.get("/schedule").headers["ETag"]
    response = api.client.get(
        "/schedule",
        params={"due_before": api.clock().isoformat()},
        headers={"If-None-Match": etag},
    )
    assert response.status_code == 200


@pytest.mark.dear
def test_a_page_registered_after_the_epoch_waits_for_the_next(api: Live, corpus):
    api.register("https://c.example/")
    assert len(api.schedule()) == 25
    api.epoch()
    assert len(api.schedule()) == 26
