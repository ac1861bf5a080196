"""XML from strangers: what is read is right, and a small document stays small."""

import tracemalloc
from datetime import UTC, datetime
from itertools import islice

import pytest

from service.connectors.feed import read_feed
from service.connectors.markup import MAX_NAMES, MAX_TEXT, PIECE, Declared, elements
from service.connectors.sitemap import Sitemap


def read(content: str | bytes, piece: int = PIECE):
    whole = content.encode() if isinstance(content, str) else content
    return list(elements(whole[start : start + piece] for start in range(0, len(whole), piece)))


@pytest.mark.parametrize("piece", [1, 7, PIECE])
def test_elements_start_and_end_in_the_order_of_the_document(piece):
    events = read("<a x='1'> one <b>t&amp;wo</b> three </a>", piece)
    assert [(event, element.name) for event, element in events] == [
        ("start", "a"),
        ("start", "b"),
        ("end", "b"),
        ("end", "a"),
    ]
    a, b = events[0][1], events[1][1]
    assert (a.text, b.text) == ("one", "t&wo")
    assert (a.attributes, a.depth, b.depth, b.parent) == ({"x": "1"}, 1, 2, a)


def test_a_prefix_stands_for_what_the_nearest_element_around_declares():
    inner = "<p:c/><c xmlns='v'><p:d xmlns:p='w'/></c><q:e/>"
    events = read(f"<a xmlns='s' xmlns:p='t'><b>{inner}</b></a>")
    ends = [element for event, element in events if event == "end"]
    assert {of.name: (of.local, of.namespace) for of in ends} == {
        "p:c": ("c", "t"),
        "c": ("c", "v"),
        "p:d": ("d", "w"),
        "q:e": ("e", None),
        "b": ("b", "s"),
        "a": ("a", "s"),
    }


@pytest.mark.parametrize(
    "subset", ["<!ENTITY a 'ha'>", "<!ATTLIST a b CDATA 'default'>", "<!ENTITY % p SYSTEM 'x'>"]
)
def test_what_a_document_declares_is_refused(subset):
    with pytest.raises(Declared):
        read(f"<!DOCTYPE a [{subset}]><a/>")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("<a><b></a>", "mismatched tag: line 1"),
        ("<a>", "no element found"),
        ("<a>" * 101, "more than 100 levels"),
        (f"<a>{''.join(f'<b{i}/>' for i in range(MAX_NAMES))}</a>", "over 10,000 different names"),
        (f"<a>{' ' * 10}<b {'x' * 1_100_000}", "1,000,000 bytes without an element"),
        (b"<?xml version='1.0' encoding='GB2312'?><a/>", "multi-byte.*send it in UTF-8"),
        (b"<?xml version='1.0' encoding='none'?><a/>", "unknown encoding: none"),
    ],
)
def test_what_is_not_read_to_its_end_says_why(content, says):
    with pytest.raises(ValueError, match=says):
        read(content)


def test_what_comes_before_a_break_is_given():
    events = elements([b"<a><b/><c></a>"])
    found = [(event, element.name) for event, element in islice(events, 4)]
    assert found == [("start", "a"), ("start", "b"), ("end", "b"), ("start", "c")]
    with pytest.raises(ValueError, match="mismatched"):
        next(events)


def test_of_a_long_text_the_beginning_is_kept_however_long_it_is():
    text = "x" * 3_000_000
    (_, (_, element)) = read(f"<a>{text}</a>")
    assert element.text == text[:MAX_TEXT]


LONG = "http://x/" + "y" * 300_000
GROWING = {
    "attributes of a long namespace": (
        f"<urlset xmlns:p='{LONG}'><a " + " ".join(f"p:a{i}=''" for i in range(999)) + "/></urlset>"
    ),
    "elements of a long namespace": (
        f"<urlset xmlns='{LONG}'>" + "".join(f"<a{i}/>" for i in range(2_000)) + "</urlset>"
    ),
    "entries of a long base": (
        f"<feed xml:base='{LONG}'>" + "<entry><link href='/a/b'/></entry>" * 2_000 + "</feed>"
    ),
}


@pytest.mark.parametrize("content", GROWING.values(), ids=GROWING)
def test_a_small_document_takes_little_memory(content):
    now = datetime(2026, 5, 1, tzinfo=UTC)
    tracemalloc.start()
    try:
        if content.startswith("<urlset"):
            entries = list(Sitemap(content.encode(), 32_000_000))
        else:
            entries = list(read_feed(content.encode(), "https://a.example/", now))
            assert {entry.loc for entry in entries} == {"https://a.example/a/b"}
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert len(entries) in (0, 2_000)
