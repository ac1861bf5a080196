"""Refused items keep the lease and the page that they name, on both roads of a report."""

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recrawl_client.wire.evidence import Observation
from recrawl_client.wire.leases import LeaseBody
from service.access.boundary import Boundary
from service.access.callers import Caller
from service.api.requests.bodies import JSON, NDJSON, Body
from service.api.requests.decode import decode_crawls
from service.api.requests.items import Batch, decode_batch, decode_with_items
from service.api.requests.key_limits import admitted
from service.api.requests.posts import GatheredPosts, Post
from service.api.requests.refusals import RefusedItem
from service.model.access import Role

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
AT = NOW.isoformat()
ABSENT = object()
MOST = 100

LEASES = [
    (ABSENT, (0, 0)),
    ("7-ff", (7, 255)),
    ("999999999999999999-7fffffffffffffff", (10**18 - 1, 2**63 - 1)),
    ("7-FF", (0, 0)),
    ("0-1", (0, 0)),
    ("7-ff\n", (0, 0)),
    ("7-\ud800", (0, 0)),
    (7, (0, 0)),
    (["7-ff"], (0, 0)),
]
PAGE_IDS = [
    (ABSENT, 0),
    (7, 7),
    (8, 8),
    (2**63 - 1, 2**63 - 1),
    (2**63, 0),
    (0, 0),
    (-7, 0),
    ("7", 0),
    (True, 0),
    (None, 0),
    (7.5, 0),
]
URLS = [
    (ABSENT, None),
    ("https://A.example", "https://a.example/"),
    ("http://a.example/x?b#c", "http://a.example/x?b"),
    ("ftp://a.example/", None),
    ("a.example", None),
    ("", None),
    ("https://a.example/\ud800", None),
    (f"https://a.example/{'x' * 3_000}", None),
    (5, None),
    ({}, None),
]
OTHERS = {
    "observed_at": [AT, AT, AT, ABSENT, "yesterday", "1970-01-01T00:00:00Z", 1],
    "status": [200, 404, ABSENT, 0, 99, 600, "200", None],
    "changed": [True, ABSENT, "yes", 1],
    "digest": [ABSENT, "x", "", "\ud800"],
    "note": [ABSENT, None, {"lease": "9-9", "page_id": 9}, "n" * 2_000],
    "redirect_url": [ABSENT, ABSENT, "https://b.example/", "b"],
    "lease_id": [ABSENT, ABSENT, ABSENT, "7-ff"],
}
JUNK = [None, 5, "7-ff", [], ["7-ff"], {}]

Named = tuple[tuple[int, int], int, str | None]


@st.composite
def items(draw: st.DrawFn) -> tuple[Any, Named]:
    """An item of a report, and the lease and page that can be read from it."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(JUNK)), ((0, 0), 0, None)
    lease, page_id, url = (draw(st.sampled_from(each)) for each in (LEASES, PAGE_IDS, URLS))
    fields = {"lease": lease[0], "page_id": page_id[0], "url": url[0]}
    fields |= {name: draw(st.sampled_from(values)) for name, values in OTHERS.items()}
    item = {name: value for name, value in fields.items() if value is not ABSENT}
    return item, (lease[1], page_id[1], url[1])


def named(refusal: RefusedItem) -> Named:
    url = refusal.url.url if refusal.url else None
    return (refusal.leased_page_id, refusal.token), refusal.page_id, url


def by_index(refusals: list[RefusedItem]) -> dict[int, RefusedItem]:
    return {refusal.rejection.index: refusal for refusal in refusals}


def read(items: list[Any], kind: str = JSON, first: int = 0) -> Batch[Observation]:
    texts = [json.dumps(item) for item in items]
    content = "\n".join(texts) if kind == NDJSON else f"[{','.join(texts)}]"
    return decode_batch(Body(content.encode(), kind, first), Observation, MOST)


def through_posts(posts: list[list[Any]]) -> tuple[dict[int, RefusedItem], int]:
    """Refusals of posts that are decoded together, by the position in all of them."""
    decoded = GatheredPosts.of([Post(read(post), True) for post in posts], NOW).decoded
    return by_index(decoded.refusals), decoded.n_items


def through_blocks(blocks: list[list[Any]]) -> tuple[dict[int, RefusedItem], int]:
    """Refusals of the blocks of a stream, by the position in the stream."""
    refusals, n_items = [], 0
    for block in blocks:
        decoded = decode_crawls(read(block, NDJSON, first=n_items), NOW)
        refusals += decoded.refusals
        n_items += decoded.n_items
    return by_index(refusals), n_items


def through_leases(posts: list[list[Any]]) -> tuple[dict[int, RefusedItem], int]:
    """Refusals of the reports of lease requests, by the position in all of them."""
    each = []
    for post in posts:
        body = Body(json.dumps({"worker": "w", "report": post}).encode(), JSON)
        _, batch = decode_with_items(body, LeaseBody, "report", Observation, MOST)
        if batch is not None:
            each.append(Post(batch, True))
    decoded = GatheredPosts.of(each, NOW).decoded
    return by_index(decoded.refusals), decoded.n_items


@pytest.mark.dear
@given(st.lists(st.lists(items(), max_size=4), min_size=1, max_size=4))
@example([[({"lease": "7-ff", "status": "200"}, ((7, 255), 0, None))]])
@example([[], [({"url": "https://a.example/"}, ((0, 0), 0, "https://a.example/"))]])
def test_a_refusal_keeps_the_lease_and_the_page_that_can_be_read(requests):
    """Both roads refuse the same items, for the same reasons."""
    expected = dict(zip(count(), (each for request in requests for _, each in request)))
    sent = [[item for item, _ in request] for request in requests]
    roads = [through_posts(sent), through_blocks(sent)]
    if any(sent):
        roads.append(through_leases(sent))
    for refusals, n_items in roads:
        assert n_items == len(expected)
        assert {i: named(refusal) for i, refusal in refusals.items()} == {
            i: expected[i] for i in refusals
        }
        assert refusals == roads[0][0]
    bad = {i for i, item in enumerate(item for request in sent for item in request) if wrong(item)}
    assert bad <= set(roads[0][0])


def wrong(item: Any) -> bool:
    """True if an item is wrong beyond doubt."""
    return (
        not isinstance(item, dict)
        or item.get("observed_at", AT) in ("yesterday", 1)
        or item.get("status") == "200"
        or "lease_id" in item
    )


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (
            '"lease":"7-ff","page_id":7,"url":"https://a.example/","url":"https://b.example/"',
            ((7, 255), 7, None),
        ),
        ('"lease":"7-ff","lease":"7-fe","page_id":7,"page_id":8', ((0, 0), 0, None)),
        ('"lease":"7-ff","note":{"lease":"9-9","page_id":1,"page_id":2}', ((7, 255), 0, None)),
        ('"lease":"7-ff","lease":"7-ff","status":200,"status":404', ((7, 255), 0, None)),
    ],
)
@pytest.mark.parametrize("kind", [JSON, NDJSON])
def test_of_an_item_that_contradicts_itself_the_clear_fields_are_kept(kind, members, expected):
    text = f'{{"observed_at":"{AT}",{members}}}'
    content = text if kind == NDJSON else f"[{text}]"
    batch = decode_batch(Body(content.encode(), kind), Observation, MOST)
    assert [(named(each), each.rejection.code) for each in batch.refusals] == [
        (expected, "contradiction")
    ]


def test_a_line_that_is_no_json_names_nothing():
    batch = decode_batch(Body(b'{"lease":"7-ff"', NDJSON), Observation, MOST)
    assert [named(each) for each in batch.refusals] == [((0, 0), 0, None)]


def test_a_key_that_may_not_name_the_page_keeps_it_too():
    """The code of the refusal shows that the key has no right to the page."""
    boundary = Boundary(frozenset({"a.example"}), ())
    caller = Caller("limited", Role.report, boundary=boundary)
    item = {"lease": "7-ff", "url": "https://b.example/x", "observed_at": AT, "changed": True}
    (refusal,) = admitted(read([item]), caller, None).refusals
    assert refusal.rejection.code == "not_allowed"
    assert named(refusal) == ((7, 255), 0, "https://b.example/x")
