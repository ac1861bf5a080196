"""Keys that stand twice in an object: harmless where they agree, refused where they do not."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.live_server import Live

from recrawl_client.wire.evidence import Observation, Ping
from recrawl_client.wire.freshness import Copy
from recrawl_client.wire.pages import Page
from service.api.requests.bodies import JSON, NDJSON, Body
from service.api.requests.items import decode_batch, may_repeat_keys
from service.model import lenient_json
from service.model.lenient_json import Contradiction

AT = '"observed_at": "2026-05-01T12:00:00Z"'
CONTRADICTIONS = {
    "url": '{"url": "https://a.example/", "url": "https://b.example/", ' + AT + ', "status": 304}',
    "status": '{"url": "https://a.example/", "status": 200, ' + AT + ', "status": 304}',
    "changed": '{"url": "https://a.example/", ' + AT + ', "changed": 1, "changed": true}',
    "page_id": r'{"page\u005fid": 2, "page_id": 3, ' + AT + ', "status": 304}',
    "digest": r'{"url":"https://a.example/","digest":"\u0022","digest" : "x",' + AT + "}",
}
HARMLESS = '{"url":"https://a.example/","url" :"https:\\/\\/a.example\\/","status":304,' + AT + "}"
GOOD = '{"url":"https://good.example/","status":304,' + AT + "}"


def batch(kind: str, *items: str) -> bytes:
    return (f"[{','.join(items)}]" if kind == JSON else "\n".join(items)).encode()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", CONTRADICTIONS)
@pytest.mark.parametrize("kind", [JSON, NDJSON])
def test_an_item_that_contradicts_itself_is_rejected_by_the_name_of_its_key(
    sqlite_api: Live, kind: str, key: str
):
    content = batch(kind, GOOD, CONTRADICTIONS[key], GOOD, HARMLESS)
    response = sqlite_api.client.post(
        "/observations", content=content, headers={"Content-Type": kind}
    )
    (rejection,) = response.json()["rejected"]
    assert (rejection["index"], rejection["code"]) == (1, "contradiction")
    assert rejection["field"] == key
    assert rejection["detail"].startswith(f"{key} stands twice, with different values")


@pytest.mark.parametrize(
    ("method", "path", "content", "field"),
    [
        ("POST", "/leases", '{"count": 1, "count": 2}', "count"),
        ("POST", "/leases", '{"hosts": ["a.example"], "hosts": ["b.example"]}', "hosts"),
        ("PUT", "/hosts/a.example", '{"min_delay_s": 1, "min_delay_s": 2}', "min_delay_s"),
        ("PATCH", "/pages/1", '{"importance": 1, "importance": 2}', "importance"),
        ("PATCH", "/pages/1", '{"importance": {"a": 1, "a": 2}}', "a"),
        ("POST", "/leases", '{"\\ud800": 1, "\\ud800": 2}', "\\ud800"),
    ],
)
def test_an_object_that_contradicts_itself_is_refused(
    sqlite_api: Live, method: str, path: str, content: str, field: str
):
    sqlite_api.register("https://a.example/")
    response = sqlite_api.client.request(method, path, content=content)
    assert (response.status_code, response.json()["field"]) == (422, field)
    assert "with different values; keep one of them" in response.json()["detail"]


def test_values_that_agree_are_taken(sqlite_api: Live):
    assert sqlite_api.client.post("/leases", content='{"count": 1, "count" : 1}').is_success
    assert sqlite_api.client.post("/observations", content=f"[{HARMLESS}]").is_success


STRINGS = st.text(st.sampled_from('":\\, {}[]é\u2028a'), min_size=1, max_size=8)
MEMBERS = st.one_of(
    st.tuples(st.just("url"), STRINGS),
    st.tuples(st.just("digest"), STRINGS),
    st.tuples(st.just("status"), st.integers(0, 3)),
    st.tuples(st.just("changed"), st.booleans()),
    st.tuples(st.just("last_modified"), st.just("2026-05-01T12:00:00+00:00")),
)
ITEMS = st.lists(st.lists(MEMBERS, max_size=5), min_size=1, max_size=3)


def spelt(text: str, *, as_code_points: bool) -> str:
    """Write a string of JSON in one of its spellings."""
    if not as_code_points:
        return json.dumps(text, ensure_ascii=False)
    return '"' + "".join(f"\\u{ord(letter):04x}" for letter in text) + '"'


def written(members: list[tuple[str, Any]], space: str, *, escape: bool) -> str:
    at = ("observed_at", "2026-05-01T12:00:00Z")
    texts = [
        json.dumps(key)
        + space
        + ":"
        + (spelt(value, as_code_points=escape) if isinstance(value, str) else json.dumps(value))
        for key, value in [*members, at]
    ]
    return f"{{{','.join(texts)}}}"


@given(items=ITEMS, space=st.sampled_from(["", " "]), escape=st.booleans(), lines=st.booleans())
@example(items=[[("digest", '"')] * 2], space="", escape=True, lines=False)
@example(items=[[("digest", '""'), ("url", "a"), ("url", "b")]], space="", escape=True, lines=True)
def test_no_contradiction_passes_and_no_agreement_is_refused(items, space, escape, lines):
    """However the strings are spelt and the members are spaced."""
    texts = [written(members, space, escape=escape) for members in items]
    kind = NDJSON if lines else JSON
    decoded = decode_batch(Body(batch(kind, *texts), kind), Observation, 10)
    rejected = {refusal.rejection.index for refusal in decoded.refusals}
    for index, members in enumerate(items):
        values = [{repr(value) for name, value in members if name == key} for key, _ in members]
        assert (index in rejected) == any(len(different) > 1 for different in values)


def test_many_repetitions_cost_no_more_than_their_size():
    content = "{" + ",".join(['"a": ' + "9" * 30] * 100_000) + "}"
    began = time.process_time()
    assert lenient_json.parse(content) == {"a": int("9" * 30)}
    assert lenient_json.parse(content[:-2] + "8}") == Contradiction("a")
    assert time.process_time() - began < 5


def test_a_submission_by_indexnow_that_contradicts_itself_is_refused(sqlite_api: Live):
    content = (
        b'{"host": "a.example", "key": "0123abcd-4567", "host": "b.example",'
        b' "urlList": ["https://b.example/"]}'
    )
    headers = {"Content-Type": "application/json"}
    response = sqlite_api.client.post("/indexnow", content=content, headers=headers)
    assert response.status_code == 400
    assert "host stands twice" in response.json()["detail"]


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (Page, '{"url":"https://a.example/"}'),
        (Page, '{"url":"https://a.example/","note":{"a":1},"note_if_new":true,"kind":"feed"}'),
        (Observation, GOOD),
        (Ping, '{"url":"https://a.example/","changed_at":"2026-05-01T12:00:00Z"}'),
        (Copy, '{"url":"https://a.example/","fetched_at":"2026-05-01T12:00:00Z"}'),
    ],
)
def test_items_without_repeated_keys_are_decoded_together(kind, item):
    """A field that is encoded though it was not sent would make each batch slow."""
    content = batch(JSON, item, item)
    decoded = msgspec.json.decode(content, type=list[kind])
    assert not may_repeat_keys(content, decoded)
