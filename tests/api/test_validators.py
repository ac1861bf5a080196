"""Validators and notes over HTTP: reported with a crawl, returned with the next lease."""

import pytest
from support.live_server import START, running

ETAG, DATE = 'W/"5f3a"', "2026-04-01T08:00:00Z"


@pytest.fixture
def live(database_url, monkeypatch):
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "48")
    with running(database_url) as live:
        yield live


def report(live, url, status=200, **fields):
    item = {"url": url, "observed_at": live.clock().isoformat(), "status": status, "digest": "1"}
    item |= fields
    response = live.post("/observations", [item])
    assert response.status_code == 200, response.text
    return response.json()


def page(live, page_id):
    shown = live.get(f"/pages/{page_id}").json()
    return {name: shown[name] for name in ("etag", "last_modified", "note")}


@pytest.mark.dear
def test_a_lease_returns_what_the_last_crawl_reported(live):
    urls = "https://a.example/1", "https://a.example/2"
    page_id, _ = live.register(*urls)
    note = {"path": "s3://b/k", "n": [1, None]}
    report(live, urls[0], etag=ETAG, last_modified=DATE, note=note)
    live.epoch()
    live.clock.advance(days=3)
    live.epoch()
    crawls = {c["page_id"]: c for c in live.client.post("/leases", json={}).json()["items"]}
    expected = {"etag": ETAG, "last_modified": DATE, "note": note}
    assert expected.items() <= crawls.pop(page_id).items()
    (plain,) = crawls.values()
    assert not expected.keys() & plain.keys()
    assert page(live, page_id) == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("stated", "returned"),
    [
        ("0001-01-01T00:00:00+01:00", None),
        ("9999-12-31T23:59:59-05:00", None),
        ("9999-12-31T23:59:59.999999Z", None),
        ("1899-12-31T23:59:59Z", None),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
    ],
)
def test_a_date_beyond_all_plausible_years_is_left_out(live, stated, returned):
    ids = live.register("https://a.example/1", "https://b.example/1")
    report(live, "https://a.example/1", etag=ETAG, last_modified=stated)
    assert page(live, ids[0])["last_modified"] == returned
    live.clock.advance(minutes=1)
    assert live.client.post("/pages/recrawl", json={"page_ids": ids}).is_success
    crawls = live.client.post("/leases", json={"count": 9}).json()["items"]
    assert {crawl["page_id"]: crawl.get("last_modified") for crawl in crawls} == {
        ids[0]: returned,
        ids[1]: None,
    }


def test_the_schedule_returns_validators_on_request(live):
    urls = "https://a.example/1", "https://a.example/2"
    with_etag, _ = live.register(*urls)
    report(live, urls[0], etag=ETAG, note=7)
    live.epoch()
    for row in live.schedule():
        assert not {"etag", "last_modified", "note"} & row.keys()
    first, second = live.schedule(validators=True)
    assert (first["page_id"], first["etag"], first["note"]) == (with_etag, ETAG, 7)
    assert "etag" not in second
    headers = {"Accept": "application/x-ndjson"}
    lines = live.client.get("/schedule", params={"validators": True}, headers=headers).text
    assert lines.count("5f3a") == 1
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    refused = live.client.get("/schedule", params={"validators": True}, headers=arrow)
    assert (refused.status_code, refused.json()["field"]) == (422, "validators")


def test_late_and_repeated_reports_do_not_bring_an_old_etag_back(live):
    url = "https://a.example/1"
    (page_id,) = live.register(url)
    early = live.clock().isoformat()
    live.clock.advance(hours=1)
    report(live, url, etag='"new"', note=2)
    for _ in range(2):
        late = [{"url": url, "observed_at": early, "digest": "0", "etag": '"old"', "note": 1}]
        assert live.post("/observations", late).json()["late"] == 1
    assert (page(live, page_id)["etag"], page(live, page_id)["note"]) == ('"new"', 2)


def test_new_content_without_an_etag_has_none_and_a_304_keeps_it(live):
    url = "https://a.example/1"
    (page_id,) = live.register(url)
    report(live, url, etag=ETAG, note=1)
    for status, etag in ((304, ETAG), (503, ETAG), (200, None)):
        live.clock.advance(hours=1)
        report(live, url, status)
        assert page(live, page_id) == {"etag": etag, "last_modified": None, "note": 1}
    live.clock.advance(hours=1)
    report(live, url, 304, note=None)
    assert page(live, page_id)["note"] is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("note", "x" * 1_023),
        ("note", {"deep": ["ü" * 600]}),
    ],
)
def test_a_value_that_cannot_be_stored_is_named(live, field, value):
    item = {"url": "https://a.example/", "observed_at": START.isoformat(), "digest": "1"}
    refused = live.post("/observations", [item | {field: value}])
    assert refused.status_code == 422
    assert refused.json()["field"] == field


@pytest.mark.parametrize("etag", ["", "a" * 513, '"line\nbreak"', '"ü"', '"\x7f"'])
def test_an_etag_that_cannot_be_repeated_is_dropped_and_the_crawl_counts(live, etag):
    url = "https://a.example/odd"
    (page_id,) = live.register(url)
    report(live, url, etag=etag)
    assert page(live, page_id)["etag"] is None
    assert live.get("/pages", url=url).json()["last_crawl_at"] is not None


def test_a_note_has_up_to_a_kilobyte(live):
    url = "https://a.example/1"
    (page_id,) = live.register(url)
    report(live, url, note="x" * 1_022)
    assert page(live, page_id)["note"] == "x" * 1_022


def test_a_registration_states_a_note_that_reports_and_registrations_keep_or_replace(live):
    url, note = "https://a.example/1", {"scrapy": {"callback": "parse_item"}}
    first = [{"url": url, "note": 1}, {"url": "https://a.example/2"}, {"url": url, "note": note}]
    page_id, other, _ = live.post("/pages", first).json()["page_ids"]
    assert (page(live, page_id)["note"], page(live, other)["note"]) == (note, None)
    leased = live.client.post("/leases", json={"count": 9}).json()["items"]
    assert {crawl["page_id"]: crawl.get("note") for crawl in leased} == {page_id: note, other: None}
    report(live, url, etag=ETAG)
    live.register(url, importance=2)
    assert page(live, page_id) == {"etag": ETAG, "last_modified": None, "note": note}
    live.register(url, note=[7])
    live.register("https://a.example/2", note="two")
    assert (page(live, page_id)["note"], page(live, other)["note"]) == ([7], "two")
    live.register(url, note=None)
    live.register("https://a.example/3", note=None)
    assert page(live, page_id) == {"etag": ETAG, "last_modified": None, "note": None}


def test_a_note_for_new_pages_alone_replaces_none_and_comes_to_no_other_page(live):
    known, bare, new = (f"https://a.example/{n}" for n in range(3))
    live.register(known, note=1)
    live.register(bare)
    batch = [{"url": url, "note": 2, "note_if_new": True} for url in (known, bare, new)]
    ids = live.post("/pages", [*batch, batch[2] | {"note": 3}]).json()["page_ids"]
    assert [page(live, page_id)["note"] for page_id in ids] == [1, None, 2, 2]
    live.post("/pages", [{"url": new, "note": 4}, batch[2]])
    assert page(live, ids[2])["note"] == 4
    (refused,) = live.post("/pages", [{"url": new, "note_if_new": 1}]).json()["rejected"]
    assert refused["field"] == "note_if_new"


def test_a_note_of_a_registration_that_is_too_long_is_refused(live):
    items = [{"url": "https://a.example/1", "note": "x" * n} for n in (1_023, 1_022)]
    answer = live.post("/pages", items).json()
    (refused,) = answer["rejected"]
    assert (refused["index"], refused["field"]) == (0, "note")
    assert refused["detail"] == "the note has 1,025 bytes of JSON; send at most 1,024"
    assert answer["accepted"] == 1


def test_a_new_target_has_the_note_of_the_page_that_redirects_to_it(live):
    old, new = "https://a.example/old", "https://b.example/new"
    known, plain = "https://a.example/known", "https://a.example/plain"
    live.register(old, note={"callback": "parse_item"})
    live.register(known, note="own")
    live.register(plain)
    for start, target in ((old, new), (plain, "https://a.example/bare"), (old, known)):
        report(live, start, status=301, redirect_url=target)
        live.clock.advance(minutes=1)
    notes = {
        url: live.get("/pages", url=url).json()["note"]
        for url in (new, "https://a.example/bare", known)
    }
    assert notes == {new: {"callback": "parse_item"}, "https://a.example/bare": None, known: "own"}
