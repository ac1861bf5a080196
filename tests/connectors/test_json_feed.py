"""JSON Feed as strangers write it."""

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connectors.json_feed import MAX_VALUE
from service.connectors.sitemap import Sitemap
from service.model.errors import MalformedBody

BASE = "https://example.com/feed.json"


def read(text: str | bytes) -> tuple[list[tuple[str, str | None]], Sitemap]:
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    feed = Sitemap(content, 100_000_000, BASE)
    return [(entry.loc, entry.lastmod) for entry in feed], feed


def test_the_example_of_the_specification_is_read():
    found, feed = read(
        json.dumps(
            {
                "version": "https://jsonfeed.org/version/1.1",
                "title": "My Example Feed",
                "home_page_url": "https://example.org/",
                "feed_url": "https://example.org/feed.json",
                "hubs": [
                    {"type": "rssCloud", "url": "https://no.example/"},
                    {"type": "WebSub", "url": "https://hub.example/"},
                ],
                "items": [
                    {"id": "2", "content_text": "Second.", "url": "https://example.org/second"},
                    {
                        "id": "https://example.org/first",
                        "external_url": "https://other.example/",
                        "date_published": "2026-04-30T12:00:00-04:00",
                        "date_modified": "2026-05-01T12:00:00-04:00",
                    },
                ],
            },
            indent=1,
        )
    )
    assert found == [
        ("https://example.org/second", None),
        ("https://example.org/first", "2026-05-01T12:00:00-04:00"),
    ]
    assert (feed.kind, feed.broke_off, feed.faults.n) == ("json", "", 0)
    assert [(each.rel, each.value) for each in feed.head] == [
        ("self", "https://example.org/feed.json"),
        ("hub", "https://hub.example/"),
    ]


@pytest.mark.parametrize(
    ("text", "locs", "n_faults"),
    [
        ('\ufeff {"items": [{"id": 7, "url": "/a"},],}', ["/a"], 0),
        ('{"items": [{"id": "https://example.com/a"}]}', ["/a"], 0),
        ('{"items": [{"id": "1", "external_url": "/a"}]}', ["/a"], 0),
        ('{"items": [{"id": "1"}]}', [""], 0),
        ('{"items": [7, null, {}, {"url": "/a"}]}', ["/a"], 3),
        ('{"items": [{"id": "1", "url": "/a\x01"}, {"id": "2", "url": "/b"}]}', None, 0),
        ('{"items": [{"id": "1", url: "/a"}, {"id": "2", "url": "/b"}]}', ["/b"], 1),
        ('{"items": [{"id": "1", "x": "\\q"}, {"id": "2", "url": "/b"}]}', ["/b"], 1),
        (
            '{"items": [{"id" "1", "a": [{"url": "/"}, {"url": "/"}]}, {"id": "2", "url": "/b"}]}',
            ["/b"],
            2,
        ),
        ('{"items": [{"id": "1", "url": ["/a"]}], "hubs": 7, "feed_url": []}', [""], 0),
        ('{"a": ' + "9" * 10_000 + ', "items": [{"url": "/a"}]}', ["/a"], 0),
    ],
)
def test_a_fault_costs_at_most_its_own_item(text, locs, n_faults):
    found, feed = read(text)
    if locs is not None:
        assert [loc.removeprefix("https://example.com") for loc, _ in found] == locs
    assert (feed.broke_off, feed.faults.n) == ("", n_faults)


@pytest.mark.parametrize(
    "tail",
    ["", '{"id": "2"', '{"id": "2", "url": "/b"}', '{"id": "2", "url": "/b'],
)
def test_a_feed_that_breaks_off_gives_the_items_before(tail):
    found, feed = read('{"items": [{"id": "1", "url": "/a"}, ' + tail)
    assert found[0] == ("https://example.com/a", None)
    assert "is broken after" in feed.broke_off


@pytest.mark.parametrize("text", ["{}", '{"items": {}}', '{"item": []}', "{", '{"items" 7}'])
def test_what_has_no_items_is_no_feed(text):
    with pytest.raises(MalformedBody, match="list of items"):
        read(text)


def test_an_empty_feed_is_a_feed():
    assert read('{"items": []}')[0] == []


def test_items_beyond_a_window_of_the_reader_are_read():
    items = [{"id": str(n), "url": f"/{n}", "content_text": "x" * 3_000} for n in range(1_000)]
    found, feed = read(json.dumps({"items": items}))
    assert [loc for loc, _ in found] == [f"https://example.com/{n}" for n in range(1_000)]
    assert feed.faults.n == 0


def test_an_item_beyond_the_limit_costs_itself_alone():
    large = {"id": "1", "url": "/a", "content_text": "x" * MAX_VALUE}
    found, feed = read(json.dumps({"items": [large, {"id": "2", "url": "/b"}]}))
    assert ([loc for loc, _ in found], feed.faults.n) == (["https://example.com/b"], 1)


@pytest.mark.parametrize(
    "text",
    [
        '{"items": [' + '{"id": "' * 200_000,
        '{"items": [' + '{"a" },' * 200_000,
        '{"items": ' + "[" * 1_000_000,
        '{"items": [' + "[" * 1_000_000,
        '{"items": [' + '{"id":' * 300_000,
        "{" + '"a":{' * 300_000,
        '{"items": [' + "{}," * 300_000 + "]}",
    ],
)
def test_a_hostile_feed_takes_little_time(text):
    begin = time.process_time()
    with suppress(MalformedBody):
        read(text)
    assert time.process_time() - begin < 5.0


@given(st.text(st.sampled_from('{}[]":,\\ab1 \n\u2028'), max_size=60))
def test_no_text_makes_the_reader_fail(text):
    try:
        _, feed = read('{"items": [' + text)
    except MalformedBody:
        return
    assert feed.n_entries >= 0
