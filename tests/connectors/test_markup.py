"""XML from strangers: what is read is right, and a small document stays small."""

import re
import tracemalloc
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webencodings.labels import LABELS

from service.connectors.decoding import decoded
from service.connectors.feed import read_feed
from service.connectors.markup import MAX_NAMES, MAX_TEXT, Grammar, Markup
from service.connectors.references import Faults
from service.connectors.sitemap import PIECE, Sitemap

GRAMMARS = {"a": Grammar(entries=frozenset("b"), fields=frozenset("cd"), plain=frozenset("e"))}


def read(content: str, piece: int = PIECE) -> tuple[list[dict[str, str]], Faults]:
    """Return the fields of each entry, and the faults."""
    faults = Faults()
    markup = Markup(GRAMMARS, faults)
    pieces = (content[start : start + piece] for start in range(0, len(content), piece))
    entries = [
        {field.name.text: markup.references.text(field.raw) for field in entry.fields}
        for entry in markup.entries(pieces)
    ]
    return entries, faults


@pytest.mark.parametrize("piece", [1, 2, 7, PIECE])
def test_entries_are_read_in_any_pieces(piece):
    content = (
        "<?xml version='1.0'?><!-- <b> --><a><b x='>'><c> t&amp;w&#111; </c><d/></b>\n"
        "<b><![CDATA[<c>]]><c><![CDATA[3 & <4]]>5</c><e>x</e><p:d>6</p:d></b><c>7</c></a>"
    )
    entries, faults = read(content, piece)
    assert entries == [{"c": "t&wo", "d": ""}, {"c": "3 & <45", "p:d": "6"}]
    assert faults == {}


@pytest.mark.parametrize("piece", [1, 7, PIECE])
@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("<b><c>1</x><d>2</d></b>", "</x> without a start"),
        ("<b><c>1<d>2</d></b>", "<c> without an end"),
        ("<b><x><c>1</c><d>2</d></b>", "<x> without an end"),
        ("<b><c>1</c><d>2</d>", "<b> without an end"),
        ("<B><C>1</c><D>2</d></b>", None),
        ("<b><c>1</c<d>2</d></b>", None),
        ("<b><e>x < y, <3, <z</e><c>1</c><d>2</d></b>", "a raw <"),
        ('<b y="1><c>1</c><d>2</d></b>', "a tag with odd quotes"),
        ('<b y="<i>"><c>1</c><d>2</d></b>', "a raw <"),
        ("<b><![CDATA[ <c>1</c><d>2</d></b>", "<![CDATA[ without an end"),
        ("<!-- <b><c>1</c><d>2</d></b>", "<!-- without an end"),
        ("</a><b><c>1</c><d>2</d></b>", None),
        ("<b>" + "<x>" * 200 + "<c>1</c><d>2</d></b>", "more than 100 levels"),
    ],
)
def test_a_fault_costs_nothing_that_can_be_told(entry, fault, piece):
    entries, faults = read(f"<a>{entry}<b><c>3</c></b></a>", piece)
    assert entries == [{"c": "1", "d": "2"}, {"c": "3"}]
    assert fault is None or fault in faults


def test_a_prefix_stands_for_what_the_nearest_element_around_declares():
    markup = Markup(GRAMMARS, Faults())
    inner = "<p:c/><c xmlns='v'/><p:d xmlns:p='w'/><q:d/>"
    (entry,) = markup.entries([f"<a xmlns='s' xmlns:p='t'><b>{inner}</b></a>"])
    spaces = [(field.name.text, field.namespace) for field in entry.fields]
    assert spaces == [("p:c", "t"), ("c", "v"), ("p:d", "w"), ("q:d", None)]
    assert entry.namespace == "s"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("<a>" + "<x>" * 101, "more than 100 levels"),
        (f"<a>{''.join(f'<b{i}/>' for i in range(MAX_NAMES))}</a>", "over 10,000 different names"),
        (f"<a>{' ' * 10}<b {'x' * 1_100_000}", "1,000,000 bytes without an element"),
        ("<x/>" * 300_000, "no root"),
        ("<x>", "no end of <x>"),
        ("text", "no element found"),
    ],
)
def test_what_is_not_read_to_its_end_says_why(content, says):
    with pytest.raises(ValueError, match=says):
        read(content)


def test_of_a_long_text_the_beginning_is_kept_however_long_it_is():
    ((entry,), _) = read(f"<a><b><c>{'x' * 3_000_000}</c></b></a>")
    assert entry == {"c": "x" * MAX_TEXT}


def test_kinds_of_faults_are_bounded():
    _, faults = read(f"<a>{''.join(f'</b{i}>' for i in range(1_000))}</a>")
    assert (len(faults), sum(faults.values())) == (21, 1_000)


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), max_size=20)
WRITTEN = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


@given(st.lists(st.tuples(TEXT, TEXT), max_size=4), st.integers(1, 9))
def test_well_formed_documents_are_read_as_by_expat(pairs, piece):
    pairs = [[re.sub('[&<>"]', lambda c: WRITTEN[c[0]], text) for text in pair] for pair in pairs]
    entry = '<b><c>{0}</c><d x="{1}">{1}</d></b>'.format
    content = f"<a>{''.join(entry(*pair) for pair in pairs)}</a>"
    theirs = [
        {field.tag: (field.text or "").strip() for field in entry}
        for entry in ET.fromstring(content)
    ]
    assert read(content, piece) == (theirs, {})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<?xml encoding='Shift_JIS'?>日本".encode("shift_jis"), "日本"),
        ("<?xml version='1.0' encoding=\"gb2312\"?>中文".encode("gbk"), "中文"),
        ("\ufeffcafé".encode("utf-16"), "café"),
        ("<é".encode("utf-16-be"), "<é"),
        (b"\n\xef\xbb\xbf<?xml encoding='latin1'?>\xc3\xa9", "é"),
        (b"<?xml encoding='rot13'?>\xc3\xa9 \xe9", "é é"),
        (b"<?xml encoding='utf-16'?>\xc3\xa9", "é"),
        (b"caf\xe9 \x80 \xc3\xa9", "café € é"),
        (b"\xc3", "Ã"),
    ],
)
@pytest.mark.parametrize("piece", [1, PIECE])
def test_labels_are_those_of_the_web(content, text, piece):
    pieces = (content[start : start + piece] for start in range(0, len(content), piece))
    assert "".join(decoded(pieces, Faults())).endswith(text)


def test_every_label_of_the_standard_is_read():
    for label in LABELS:
        content = f"<?xml version='1.0' encoding='{label}'?><é>".encode() + bytes(range(256))
        assert "<?xml" in "".join(decoded(iter([content]), Faults())), label


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
