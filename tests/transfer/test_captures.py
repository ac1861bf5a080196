"""Indexes of archives' captures: what is read of each format, and what is said of odd lines."""

import gzip
import json
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from service.model.errors import UnreadableFile
from service.model.urls import key_of
from service.transfer.captures import (
    PARSERS,
    digest_number,
    parsed,
    read_captures,
    shown,
    times,
)
from service.transfer.files import format_of, read_items
from service.transfer.text import LONGEST, line_blocks

NOW = datetime(2026, 5, 1, tzinfo=UTC)
URL = "https://example.com/a"
KEY = "com,example)/a"
CDX = " CDX N b a m s k r M S V g\n"
CDX_LINE = f"{KEY} 20200101000000 {URL} text/html 200 AAAA - - 1043 333 a.warc.gz\n"
WAYBACK = ["urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length"]
ROW = [KEY, "20200101000000", URL, "text/html", "200", "AAAA", "1043"]
CRAWL = {"urlkey": KEY, "timestamp": "20200101000000", "url": URL, "status": "200", "digest": "A"}


def item(**fields):
    """Return a line of CDXJ with some fields."""
    given = {"url": URL, "mime": "text/html", "status": "200", "digest": "AAAA"} | fields
    return f"{KEY} 20200101000000 {json.dumps(given)}\n"


def read(path, content):
    """Return format, captures with content, others and unreadable lines of a file."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    kind = format_of(path)
    blocks = list(read_captures(path, kind, NOW))
    told = [line for block in blocks for line in block.unreadable]
    return kind, np.concatenate([b.records for b in blocks]), sum(b.n_other for b in blocks), told


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("cdx", CDX + CDX_LINE),
        ("cdx", CDX[1:] + CDX_LINE),
        ("cdx", f" CDX a b s k m\n{URL} 20200101000000 200 AAAA -\n"),
        ("cdx", f"\ufeff CDX a b s k m\n{URL} 20200101000000 200 AAAA -\n"),
        ("cdx", CDX_LINE),
        ("cdx", " ".join(ROW)),
        ("cdxj", item()),
        ("cdxj", '!meta {"format": "cdxj"}\n\n# mine\n' + item(status=200, extra=[1])),
        ("cdxj", item(digest="sha1:AAAA", url="HTTPS://EXAMPLE.com:443/a#top")),
        ("index", json.dumps(CRAWL | {"digest": "AAAA", "filename": "a.warc.gz"}) + "\n"),
        ("index", json.dumps(dict(zip(WAYBACK, ROW, strict=True)))),
        ("index", f"[{json.dumps(WAYBACK)},\n{json.dumps(ROW)}]\n"),
        ("index", f"\ufeff[{json.dumps(WAYBACK)},\n{json.dumps(ROW)}]\n"),
        ("index", f"[{json.dumps(WAYBACK)},\n{json.dumps(ROW)},\n[],\n"),
        ("cdxj", gzip.compress(item().encode(), mtime=0)),
    ],
)
def test_each_format_is_known_by_its_content_and_read(tmp_path, kind, content):
    found, records, other, told = read(tmp_path / "captures", content)
    assert (found, other, told) == (kind, 0, [])
    assert records["key"].tolist() == [key_of(URL)]
    assert records["at"].tolist() == [datetime(2020, 1, 1)]  # noqa: DTZ001 - numpy has no zones
    assert records["digest"].tolist() == [digest_number("AAAA")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (item() + "broken\n", "is not `key time {JSON}`; remove it"),
        (item() + f"{KEY} 20200101000000 {{\n", "has no JSON of a capture"),
        (item() + item(status=[200]), "has no JSON of a capture"),
        (item() + item(url="http://"), "cannot be parsed; send an absolute http or https URL"),
        (item() + item(url="example.com/a"), "has the URL 'example.com/a'"),
        (item() + item().replace("20200101000000", "2020"), "'2020'; write YYYYMMDDhhmmss"),
        (item() + item().replace("20200101000000", "20200231000000"), "is no date or in the"),
        (item() + item().replace("20200101000000", "20200101240000"), "is no date or in the"),
        (item() + item().replace("20200101000000", "20990101000000"), "or in the future; mend it"),
        (CDX + f"{KEY} 20200101000000\n", "has 2 columns where the header names 11; remove it"),
        (CDX + CDX_LINE.replace("/a t", "/\udcff t"), "is not UTF-8"),
        (f"[{json.dumps(WAYBACK)},\n" + '["a", "b"],\n', "has 2 cells where the first has 7"),
        (f"[{json.dumps(WAYBACK)},\n" + '["a", 1.5],\n', "is no row of an index"),
        (f"[{json.dumps(WAYBACK)},\n{json.dumps([ROW, ROW])}\n", "write one a line, as by jq"),
        (json.dumps(CRAWL) + "\n{\n", "has no JSON of a capture"),
        (json.dumps(CRAWL) + '\n{"message": "No Captures"}\n', "the answer 'No Captures' of an"),
        (item() + "[" * LONGEST + "\n", "is not `key time {JSON}`"),
    ],
)
def test_an_odd_line_is_told_with_its_remedy_and_the_others_are_read(tmp_path, content, reason):
    content = content.encode(errors="surrogateescape")
    _, _, other, [(line, said)] = read(tmp_path / "captures", content)
    assert (line, other) == (2, 0)
    assert reason in said


@pytest.mark.parametrize(
    ("status", "mime", "digest", "content"),
    [
        ("200", "text/html", "A", "A"),
        (200, None, "sha1:A", "A"),
        ("200", "text/html", "-", None),
        ("200", "text/html", None, None),
        ("-", "warc/revisit", "A", "A"),
        ("200", "warc/revisit", "A", "A"),
        ("-", "warc/revisit", "-", 0),
        ("304", "text/html", "3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ", 0),
        ("304", "warc/revisit", "A", "A"),
        ("301", "warc/revisit", "A", None),
        ("301", "text/html", "A", None),
        ("404", "text/html", "A", None),
        ("-", "text/html", "A", None),
        (None, None, None, None),
    ],
)
def test_content_and_repetitions_teach_and_nothing_else_does(status, mime, digest, content):
    assert shown(status, mime, digest) == (digest_number(content) if content else content)


@pytest.mark.parametrize("url", ["dns:example.com", "urn:X-wpull:log", ""])
def test_what_is_no_page_is_no_fault(tmp_path, url):
    assert read(tmp_path / "captures", item(url=url) + item(method="POST"))[2:] == (2, [])


def test_a_header_without_a_needed_column_and_a_broken_gzip_are_refused(tmp_path):
    for name in ("statuscode", "digest", "original", "timestamp"):
        row = json.dumps([each for each in WAYBACK if each != name])
        with pytest.raises(UnreadableFile, match=f"lacks the name {name}; ask the index"):
            read(tmp_path / "captures", f"[{row},\n{row}]\n")
    with pytest.raises(UnreadableFile, match="lacks the letter k"):
        read(tmp_path / "captures", " CDX N b a m s\n")
    broken = gzip.compress(item().encode() * 1_000, mtime=0)[:-9]
    with pytest.raises(UnreadableFile, match="broken or cut off"):
        read(tmp_path / "captures", broken)


def test_times_are_dates_until_now():
    texts = ["19991231235959", "20240229000000", "20230229000000", "20200001000000"]
    at, good = times([text.encode() for text in [*texts, "20260501000001", "00000101000000"]], NOW)
    assert good.tolist() == [True, True, False, False, False, False]
    assert str(at[0]) == "1999-12-31T23:59:59.000000"


@settings(max_examples=examples(quick=12, thorough=2_000))
@given(kind=st.sampled_from(sorted(PARSERS)), data=st.data())
def test_no_line_is_beyond_the_readers(kind, data):
    """Lines are mutations of good ones, or anything."""
    good = {"cdx": CDX_LINE, "cdxj": item(), "index": json.dumps(CRAWL)}[kind].encode()
    cut = st.tuples(st.integers(0, len(good)), st.integers(0, len(good)), st.binary(max_size=8))
    mutated = cut.map(lambda at: good[: at[0]] + at[2] + good[at[1] :])
    nested = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    ).map(lambda value: json.dumps(value).encode())
    lines = data.draw(st.lists(mutated | st.binary(max_size=40) | nested, max_size=8))
    lines = [line.replace(b"\n", b" ").rstrip() for line in lines]
    try:
        block = parsed(lines, 1, PARSERS[kind](), NOW)
    except UnreadableFile:
        assert kind in ("cdx", "index")  # a header without a needed name
        return
    n = len(block.records) + block.n_other + len(block.unreadable)
    assert n <= len(lines)
    assert {key.tobytes() for key in block.records["key"]} <= block.pages.keys()


def test_lines_come_in_blocks_of_bounded_size(tmp_path, monkeypatch):
    path = tmp_path / "lines"
    monkeypatch.setattr("service.transfer.text.TOGETHER", 1 << 17)
    path.write_bytes(b"a\r\n\nb" + b"x" * (1 << 19) + b"\nc")
    blocks = list(line_blocks(path))
    lines = [(first + i, line) for first, some, _ in blocks for i, line in enumerate(some)]
    assert [(number, line[:1]) for number, line in lines] == [
        (1, b"a"),
        (2, b""),
        (3, b"b"),
        (4, b"c"),
    ]
    assert max(len(line) for _, line in lines) <= (1 << 17) + LONGEST


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("urls.txt", "# mine\n\nhttps://example.com/\n", "urls"),
        ("urls", "\ufeffhttps://example.com/?a,b\n", "urls"),
        ("empty.txt", "", "urls"),
        ("pages.txt", "url,importance\n", "csv"),
        ("pages.txt", "importance\turl\n", "tsv"),
        ("pages.txt", '{"url": "https://example.com/"}\n', "ndjson"),
        ("pages.csv", "https://example.com/\n", "csv"),
        ("pages.csv", item(), "cdxj"),
        ("answer.json", "[]\n", "index"),
        ("answer.json", '{"message": "No Captures found for: example.org"}\n', "index"),
    ],
)
def test_the_format_of_other_files_is_known(tmp_path, name, content, kind):
    path = tmp_path / name
    path.write_text(content, "utf-8")
    assert format_of(path) == kind


def test_a_list_of_urls_has_comments_and_blank_lines(tmp_path):
    path = tmp_path / "urls.txt"
    path.write_text("# mine\nhttps://example.com/#top\n\n  https://example.com/b \n#\n")
    (block,) = read_items(path)
    assert block.items == [{"url": "https://example.com/#top"}, {"url": "https://example.com/b"}]
    assert block.lines == [2, 4]
