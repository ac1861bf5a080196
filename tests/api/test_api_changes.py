"""GET /changes: parts, long polls, streams and cursors."""

import json
import threading
import time
from collections import Counter
from datetime import timedelta
from hashlib import blake2b

import pytest
from support.live_server import START, Live

from service.api.cursors import FeedCursor, encode_cursor
from service.api.routes.changes import ChangesReader
from service.storage.stores import newest

URLS = [f"https://a.example/{i}" for i in range(5)] + ["https://b.example/0"]


def report(api: Live, *items, hours=0, **fields) -> None:
    at = (START - timedelta(hours=20 - hours)).isoformat()
    response = api.post("/observations", [{"url": u, "observed_at": at, **fields} for u in items])
    assert response.json()["accepted"] == len(items), response.text


def part(api: Live, **query) -> dict:
    response = api.get("/changes", **query)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture
def fed(api: Live) -> Live:
    """A service whose feed has new pages, changes, and one page that is gone."""
    report(api, *URLS, digest="one")
    report(api, *URLS[:3], digest="two", hours=1, status=200)
    for hours in (2, 3):
        report(api, URLS[0], status=404, hours=hours)
    return api


def test_a_change_shows_its_page_its_interval_and_its_digest(fed):
    items = part(fed)["items"]
    assert [item["kind"] for item in items] == ["new"] * 6 + ["changed"] * 3 + ["gone"]
    assert [item["url"] for item in items[6:9]] == URLS[:3]
    change, gone = items[6], items[9]
    assert change["digest"] == blake2b(b"two", digest_size=8).hexdigest()
    assert change["changed_after"] == items[0]["observed_at"]
    assert change["observed_at"] == gone["changed_after"]
    assert "changed_after" not in items[0]
    assert "digest" not in gone
    assert not any("weight" in item for item in items)
    assert change["page_id"] == items[0]["page_id"]


@pytest.mark.dear
def test_parts_of_any_size_are_one_feed_whose_order_never_moves(fed):
    whole = part(fed)["items"]
    for limit in (1, 4, 10):
        items, answer = [], part(fed, limit=limit)
        while answer["items"] or answer["more"]:
            items += answer["items"]
            answer = part(fed, limit=limit, cursor=answer["next_cursor"])
        assert items == whole
    cursor = answer["next_cursor"]
    assert part(fed, cursor=cursor)["items"] == []
    report(fed, URLS[5], digest="three", hours=3)
    (item,) = part(fed, cursor=cursor)["items"]
    assert item["url"] == URLS[5]
    assert part(fed)["items"] == [*whole, item]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("query", "n"),
    [
        ({"kind": "changed"}, 3),
        ({"kind": "gone,new"}, 7),
        ({"host": "B.example"}, 1),
        ({"host": "unknown.example"}, 0),
        ({"prefix": "https://a.example/"}, 9),
        ({"prefix": "https://a.example/0", "kind": "changed"}, 1),
    ],
)
def test_filters_choose_changes_and_parts_of_them_miss_none(fed, query, n):
    assert len(part(fed, **query)["items"]) == n
    seen, answer = 0, part(fed, limit=2, **query)
    for _ in range(10):
        seen += len(answer["items"])
        answer = part(fed, limit=2, cursor=answer["next_cursor"], **query)
    assert seen == n


def test_changes_carry_the_tags_that_their_pages_have_now(fed):
    for url, tags in ((URLS[0], ["news", "docs"]), (URLS[5], ["docs"])):
        response = fed.post("/pages", [{"url": url, "tags": tags}])
        assert response.json()["n_rejected"] == 0, response.text
    items = part(fed)["items"]
    for item in items:
        tags = {URLS[0]: ["docs", "news"], URLS[5]: ["docs"]}.get(item["url"])
        assert item.get("tags") == tags
    query = {"tag": "docs", "limit": 1}
    seen, answer = [], part(fed, **query)
    while answer["items"] or answer["more"]:
        seen += answer["items"]
        answer = part(fed, cursor=answer["next_cursor"], **query)
    assert seen == [item for item in items if item["url"] in (URLS[0], URLS[5])]
    headers = {"Accept": "application/x-ndjson"}
    stream = fed.client.get("/changes", params={"tag": "news"}, headers=headers)
    *lines, _ = [json.loads(line) for line in stream.text.splitlines()]
    assert lines == [item for item in items if item["url"] == URLS[0]]
    fed.post("/pages", [{"url": URLS[0], "tags": []}])
    assert part(fed, tag="news")["items"] == []
    assert "tags" not in part(fed)["items"][0]


def test_a_reader_waits_for_the_next_change(fed):
    cursor = part(fed)["next_cursor"]
    answers = []
    reader = threading.Thread(
        target=lambda: answers.append(part(fed, cursor=cursor, wait_s=30, kind="changed"))
    )
    reader.start()
    report(fed, "https://c.example/new", digest="one", hours=4)  # of another kind
    report(fed, URLS[4], digest="five", hours=5)
    reader.join(60)
    assert [item["url"] for item in answers[0]["items"]] == [URLS[4]]


def test_a_wait_in_vain_ends_with_a_cursor(fed):
    cursor = part(fed)["next_cursor"]
    answer = part(fed, cursor=cursor, wait_s=0.2)
    assert (answer["items"], answer["more"]) == ([], False)
    assert part(fed, cursor=answer["next_cursor"])["items"] == []


@pytest.mark.dear
@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
def test_a_reader_of_an_empty_feed_waits_for_the_first_change(api: Live, monkeypatch, media_type):
    answers, n_read = [], Counter()
    read = ChangesReader.next

    def counted(reader):
        n_read["parts"] += 1
        return read(reader)

    monkeypatch.setattr(ChangesReader, "next", counted)
    headers, query = {"Accept": media_type}, {"wait_s": 0.5}
    assert api.client.get("/changes", params=query, headers=headers).is_success
    assert n_read["parts"] == 1
    reader = threading.Thread(target=lambda: answers.append(part(api, wait_s=30)))
    reader.start()
    report(api, URLS[0], digest="one")
    reader.join(60)
    assert [item["url"] for item in answers[0]["items"]] == [URLS[0]]


def test_one_reader_too_many_is_answered_at_once_and_does_not_poll(fed, monkeypatch):
    monkeypatch.setattr(newest, "MOST_WAITING", 0)
    cursor, started = part(fed)["next_cursor"], time.monotonic()
    assert part(fed, cursor=cursor, wait_s=30)["items"] == []
    assert time.monotonic() - started < 20


def test_a_stream_has_every_change_and_the_place_after_it(fed):
    response = fed.client.get("/changes", headers={"Accept": "application/x-ndjson"})
    *items, place = [json.loads(line) for line in response.text.splitlines()]
    assert items == part(fed)["items"]
    assert part(fed, cursor=place["next_cursor"])["items"] == []


def test_a_stream_that_waits_shows_what_comes(fed):
    cursor = part(fed)["next_cursor"]
    lines = []
    headers, query = {"Accept": "application/x-ndjson"}, {"cursor": cursor, "wait_s": 30}
    with fed.client.stream("GET", "/changes", params=query, headers=headers) as response:
        for line in response.iter_lines():
            lines.append(json.loads(line))
            if "url" in lines[-1]:
                break
            report(fed, URLS[3], digest="new", hours=6)
    assert [line.get("url") for line in lines] == [None, URLS[3]]


def test_a_reader_may_start_at_an_instant(fed):
    items = part(fed)["items"]
    since = items[6]["recorded_at"]
    assert part(fed, since=since)["items"] == items[6:]
    assert part(fed, since="2000-01-01T00:00:00Z")["items"] == items
    later = part(fed, since="2200-01-01T00:00:00Z")
    assert later["items"] == []
    report(fed, URLS[2], digest="later", hours=9)
    assert len(part(fed, cursor=later["next_cursor"])["items"]) == 1


def test_the_deletion_of_a_page_replaces_its_other_changes(fed):
    fed.post("/pages", [{"url": URLS[0], "tags": ["docs"]}])
    page_id = part(fed)["items"][0]["page_id"]
    assert fed.client.delete(f"/pages/{page_id}").status_code == 204
    *items, last = part(fed)["items"]
    assert len(items) == 7
    assert page_id not in {item["page_id"] for item in items}
    assert (last["kind"], last["page_id"], last["url"]) == ("deleted", page_id, URLS[0])
    assert (last["tags"], "changed_after" in last) == (["docs"], False)
    assert part(fed, kind="deleted", tag="docs")["items"] == [last]
    assert fed.client.delete("/pages", params={"host": "b.example"}).json()["changed"] == 1
    assert part(fed)["items"][-1]["url"] == URLS[5]


def test_a_copy_of_a_deleted_page_is_one_of_an_unknown_page(fed):
    page_id = part(fed)["items"][0]["page_id"]
    fed.client.delete(f"/pages/{page_id}")
    answer = fed.post("/freshness", [{"page_id": page_id}, {"url": URLS[0]}]).json()
    assert [each["code"] for each in answer["rejected"]] == ["page_not_found"]
    assert answer["verdicts"][0] is None
    verdict = answer["verdicts"][1]
    assert (verdict["page_id"], verdict["state"]) == (None, None)


def test_a_move_names_its_target(api):
    report(api, URLS[0], digest="one")
    for hours in (1, 2):
        report(api, URLS[0], status=301, redirect_url=URLS[1], hours=hours)
    moved = part(api, kind="moved")["items"]
    assert [(item["url"], item["moved_to"]) for item in moved] == [(URLS[0], URLS[1])]


def test_a_cursor_whose_changes_were_deleted_says_so(fed):
    first = part(fed, limit=6)
    end = part(fed)["next_cursor"]
    with fed.service.store.begin() as tx:
        tx.cut_feed(tx.newest_change(), 100)
    refused = fed.get("/changes", cursor=first["next_cursor"])
    assert refused.status_code == 410
    assert "deleted" in refused.json()["detail"]
    assert "take a new cursor by since and the present instant" in refused.json()["detail"]
    assert len(part(fed)["items"]) == 1
    assert part(fed, cursor=end)["items"] == []


@pytest.mark.dear
def test_a_cursor_from_before_a_restore_that_lost_its_place_says_so(fed):
    """The restored database is behind the cursor, by its changes and by its clock."""
    with fed.service.store.begin(write=False) as tx:
        feed_id, latest = tx.feed_id() or fed.service.feed.feed_id, tx.feed_bounds().latest
    ahead = cursor_of(feed_id, latest + 10**12)
    refused = fed.get("/changes", cursor=ahead)
    assert (refused.status_code, "restored" in refused.json()["detail"]) == (410, True)
    assert len(part(fed)["items"]) == 10


@pytest.mark.dear
def test_a_cursor_of_another_database_says_so(fed):
    refused = fed.get("/changes", cursor=cursor_of("another", 5))
    assert (refused.status_code, "another database" in refused.json()["detail"]) == (410, True)


def cursor_of(feed: str, seq: int) -> str:
    return encode_cursor(FeedCursor(feed, seq, 0))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("query", "field", "word"),
    [
        ({"cursor": "nonsense"}, "cursor", "no cursor"),
        ({"kind": "changed,lost"}, "kind", "new"),
        ({"limit": 0}, "limit", "1"),
        ({"wait_s": 31}, "wait_s", "30"),
        ({"since": "2026-05-01T12:00:00"}, "since", "zone"),
        ({"host": "not a host"}, "host", "host"),
        ({"prefix": ""}, "prefix", "prefix"),
        ({"tag": "Not a tag"}, "tag", "tag"),
        ({"label": "x"}, "label", "no such parameter"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_remedy(fed, query, field, word):
    response = fed.get("/changes", **query)
    assert response.status_code == 422, response.text
    problem = response.json()
    assert problem["field"] == field
    assert word in problem["detail"]


def test_a_cursor_and_an_instant_exclude_each_other(fed):
    cursor = part(fed)["next_cursor"]
    response = fed.get("/changes", cursor=cursor, since="2026-05-01T12:00:00Z")
    assert (response.status_code, response.json()["field"]) == (422, "since")


@pytest.mark.parametrize("prefix", ["", "\x00", "https://a.example/\n", "x" * 2_049])
def test_a_prefix_that_no_url_can_have_is_refused(api: Live, prefix):
    response = api.get("/changes", prefix=prefix)
    assert (response.status_code, response.json()["field"]) == (422, "prefix")
