"""Sitemap documents as sites really serve them: everything readable is read, nothing expands."""

import gzip
import random
import time
import tracemalloc
import zlib
from contextlib import suppress
from datetime import UTC

import pytest

from service.connectors.dates import read_date
from service.connectors.entries import SitemapEntry
from service.connectors.sitemap import Sitemap
from service.model.errors import BodyTooLarge, MalformedBody

LIMIT = 32_000_000
SPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
URLS = [f"https://a.example/{i}" for i in range(3)]


def urlset(*entries: str, space: str = f' xmlns="{SPACE}"') -> bytes:
    return f'<?xml version="1.0"?>\n<urlset{space}>{"".join(entries)}</urlset>'.encode()


def url(loc: str, more: str = "") -> str:
    return f"<url>\n  <loc> {loc}\n</loc>{more}</url>\n"


def read(content: bytes, max_bytes: int = LIMIT) -> tuple[list[SitemapEntry], Sitemap]:
    sitemap = Sitemap(content, max_bytes)
    return list(sitemap), sitemap


def locs(content: bytes) -> list[str]:
    entries, sitemap = read(content)
    assert sitemap.warnings == []
    return [entry.loc for entry in entries]


XML = urlset(*map(url, URLS))
TEXT = "\n".join(URLS).encode()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (XML, "urlset"),
        (b"\n \n" + XML, "urlset"),
        (b"\xef\xbb\xbf" + XML, "urlset"),
        (b"\xef\xbb\xbf\n" + XML, "urlset"),
        (b" " * 300_000 + XML, "urlset"),
        (XML.replace(b' version="1.0"', b' version="1.0" encoding="ISO-8859-1"'), "urlset"),
        (XML.decode().encode("utf-16"), "urlset"),
        (urlset(*map(url, URLS), space=""), "urlset"),
        (urlset(*map(url, URLS), space=' xmlns="http://www.google.com/schemas/0.84"'), "urlset"),
        (urlset(*map(url, URLS), space=' xmlns="https://wrong.example/ns"'), "urlset"),
        (urlset(*(f"<url><loc><![CDATA[{u}]]></loc></url>" for u in URLS)), "urlset"),
        (b"\xef\xbb\xbf\n\xef\xbb\xbf" + XML, "urlset"),
        (XML.decode().encode("utf-16-le"), "urlset"),
        (XML.replace(b' version="1.0"', b' version="1.0" encoding="GB2312"'), "urlset"),
        (XML.replace(b' version="1.0"', b' version="1.0" encoding="klingon"'), "urlset"),
        (b"<!DOCTYPE urlset>" + urlset(*map(url, URLS)).partition(b"\n")[2], "urlset"),
        (gzip.compress(XML, mtime=0), "urlset"),
        (gzip.compress(gzip.compress(XML, mtime=0), mtime=0), "urlset"),
        (gzip.compress(gzip.compress(gzip.compress(XML, mtime=0), mtime=0), mtime=0), "urlset"),
        (gzip.compress(XML[:100], mtime=0) + gzip.compress(XML[100:], mtime=0), "urlset"),
        (gzip.compress(XML, mtime=0) + b"\0" * 512, "urlset"),
        (TEXT, "text"),
        (b"\xef\xbb\xbf" + TEXT, "text"),
        (TEXT.replace(b"\n", b"\r\n\r\n"), "text"),
        (TEXT.replace(b"\n", b"\r"), "text"),
        (TEXT.decode().encode("utf-16"), "text"),
        (gzip.compress(TEXT, mtime=0), "text"),
    ],
)
def test_all_forms_of_one_sitemap_give_the_same_entries(content, kind):
    assert locs(content) == URLS
    assert read(content)[1].kind == kind


def test_an_index_gives_its_children_with_their_lastmod_or_without_loc():
    entries, sitemap = read(
        f'<sitemapindex xmlns="{SPACE}"><sitemap><loc>{URLS[0]}</loc><lastmod>2026</lastmod>'
        "</sitemap><sitemap><lastmod>2026</lastmod></sitemap></sitemapindex>".encode()
    )
    assert sitemap.kind == "index"
    assert entries == [SitemapEntry(0, URLS[0], "2026", True), SitemapEntry(1, "", "2026", True)]


@pytest.mark.parametrize(
    ("root", "tag", "kind"), [("sitemapindex", "url", "urlset"), ("urlset", "sitemap", "index")]
)
def test_a_document_under_the_wrong_root_is_taken_by_its_entries(root, tag, kind):
    body = "".join(f"<{tag}><loc>{u}</loc></{tag}>" for u in URLS)
    entries, sitemap = read(f"<{root}>{body}</{root}>".encode())
    assert [entry.loc for entry in entries] == URLS
    assert {entry.is_child for entry in entries} == {kind == "index"}
    assert sitemap.kind == kind
    (warning,) = sitemap.warnings
    assert f"the root is {root}, but entries are <{tag}>" in warning


def test_extensions_for_news_images_and_videos_add_no_loc_and_no_lastmod():
    more = (
        "<image:image><image:loc>https://img.example/</image:loc></image:image>"
        "<image:loc>https://img.example/stray</image:loc><image:lastmod>1999</image:lastmod>"
        "<news:news><news:publication_date>2001-01-01</news:publication_date></news:news>"
        "<video:video><video:content_loc>https://v.example/</video:content_loc></video:video>"
        '<xhtml:link rel="alternate" hreflang="de" href="https://a.example/de"/>'
        "<loc>https://a.example/second</loc>"
    )
    names = ("image", "news", "video", "xhtml")
    space = "".join(f' xmlns:{name}="https://{name}.example/"' for name in names)
    entry = f"<url>{more}<lastmod>2002</lastmod></url>"
    entries, _ = read(urlset(entry, url(URLS[0], more), space=f' xmlns="{SPACE}"{space}'))
    assert entries[0] == SitemapEntry(0, "https://a.example/second", "2002", False)
    assert entries[1] == SitemapEntry(1, URLS[0], None, False)


def test_of_a_document_that_breaks_off_the_entries_before_are_given():
    for content, n_entries, says in (
        (XML[:-20], 2, "after 2 entries: <urlset> has no end, line 10"),
        (XML[:-9], 3, "after 3 entries: <urlset> has no end, line 11"),
        (b"<urlset>", 0, "after 0 entries"),
        (
            XML.replace(b"</urlset>", b"<x>" * 101),
            3,
            "after 3 entries: nested more than 100 levels",
        ),
    ):
        entries, sitemap = read(content)
        assert [entry.loc for entry in entries] == URLS[:n_entries]
        assert sitemap.warnings == [sitemap.broke_off]
        assert says in sitemap.broke_off


def test_a_fault_is_repaired_and_told():
    content = XML.replace(b"/1\n", b"/1?a=1&b=2\n").replace(b"/2\n", b"/\xe9\n")
    entries, sitemap = read(content)
    assert [entry.loc for entry in entries] == [
        URLS[0],
        f"{URLS[1]}?a=1&b=2",
        "https://a.example/\xe9",
    ]
    assert (sitemap.broke_off, sitemap.n_entries, sitemap.line) == ("", 3, 11)
    assert sitemap.warnings == [
        "faults repaired: 2, the first at entry 0: bytes that are not utf-8 (1), a raw & (1)"
    ]


@pytest.mark.parametrize("kept", [0.5, 0.95])
@pytest.mark.parametrize("layers", [1, 2])
def test_of_a_broken_gzip_what_can_be_inflated_is_read(kept, layers):
    rng = random.Random(1)
    words = [f"https://a.example/{rng.getrandbits(80):x}" for _ in range(5000)]
    content = urlset(*map(url, words))
    for _ in range(layers):
        content = gzip.compress(content, mtime=0)
    entries, sitemap = read(content[: int(kept * len(content))])
    assert 500 < len(entries) < 5000
    assert [entry.loc for entry in entries] == words[: len(entries)]
    assert "the gzip was cut short" in sitemap.warnings[0]
    assert "the document was cut short" in sitemap.warnings[1]


def test_of_a_gzip_with_a_wrong_checksum_all_is_read():
    content = gzip.compress(urlset(*map(url, URLS)), mtime=0)
    entries, sitemap = read(content[:-8] + b"\1\2\3\4\5\6\7\0")
    assert [entry.loc for entry in entries] == URLS
    assert "the gzip is broken (Error -3 " in sitemap.broke_off


def test_of_a_gzip_with_a_fault_in_its_midst_what_is_before_the_fault_is_read():
    words = [f"https://a.example/{i}" for i in range(2_000)]
    packer = zlib.compressobj(wbits=31)
    content = packer.compress(urlset(*map(url, words))) + packer.flush(zlib.Z_FULL_FLUSH)
    entries, sitemap = read(content + b"\xff" * 10)
    assert [entry.loc for entry in entries] == words
    assert "the gzip is broken (Error -3 " in sitemap.broke_off


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf \n", "empty"),
        (b"\xff\xfe\n\x00", "empty"),
        (gzip.compress(b"", mtime=0), "empty"),
        (gzip.compress(XML, mtime=0)[:12], "the gzip was cut short"),
        (b"\x1f\x8bnot gzip at all", "the gzip is broken"),
        (b"<html><body>Not found</body></html>", "root is <html>"),
        (b"<", "not well-formed"),
        (b"<a>" * 1_000_000, "root is <a>"),
    ],
)
def test_what_is_no_sitemap_is_refused(content, says):
    with pytest.raises(MalformedBody, match=says):
        read(content)


LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))


@pytest.mark.parametrize(
    "subset",
    [
        f'<!ENTITY l0 "ha">{LAUGHS}',
        '<!ENTITY % p SYSTEM "http://127.0.0.1/x"> %p;<!ENTITY l9 "<url><loc>x</loc></url>">',
        '<!ENTITY l9 SYSTEM "file:///etc/passwd">',
    ],
)
def test_entities_are_never_expanded_and_their_addresses_are_unknown(subset):
    body = urlset(url(URLS[0]), url("https://a.example/&l9;")).partition(b"\n")[2]
    entries, sitemap = read(f"<!DOCTYPE urlset [{subset}]>".encode() + body)
    assert [entry.loc for entry in entries] == [URLS[0], "https://a.example/\ufffd"]
    assert "an entity of its own, which is never expanded (1)" in sitemap.warnings[0]


@pytest.mark.parametrize("opened", [b'<urlset x="', b"<!--", b"<?", b"<urlset><"])
def test_what_goes_on_and_on_is_given_up(opened):
    """The reader would look at an unfinished tag again with every piece."""
    with suppress(MalformedBody):
        _, sitemap = read(opened + b"y" * 20_000_000)
        assert "without an element" in sitemap.warnings[-1]


@pytest.mark.parametrize(
    "content", [b"<urlset>" + b"<!--" * 250_000, b"<urlset><url " + b'"<a' * 300_000 + b"</url>"]
)
def test_what_ends_nowhere_takes_no_time(content):
    begun = time.process_time()
    read(content)
    assert time.process_time() - begun < 5


def test_a_gzip_of_nothing_over_and_over_is_given_up():
    with pytest.raises(BodyTooLarge):
        read(gzip.compress(b"") * 100_000)


def bomb(layers: int) -> bytes:
    """Give a small gzip that claims 200 MB behind a good first entry."""
    content = XML.replace(b"</urlset>", b" " * 200_000_000)
    for _ in range(layers):
        content = gzip.compress(content, mtime=0)
    return content


@pytest.mark.dear
@pytest.mark.sampled(1)
@pytest.mark.parametrize("layers", [1, 2])
def test_a_claim_of_200_mb_is_refused_in_little_memory(layers):
    content = bomb(layers)
    assert len(content) < 300_000
    tracemalloc.start()
    try:
        with pytest.raises(
            BodyTooLarge, match=r"over 32000000 bytes; split .*RECRAWL_MAX_BODY_BYTES"
        ):
            Sitemap(content, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        urlset(*(url(f"https://a.example/{i}", "<lastmod>2026</lastmod>") for i in range(50_000))),
        urlset("<url>" + "<x><y>z</y></x>" * 50_000 + "</url>"),
        b"https://a.example/\n" * 50_000,
        b"<urlset>" + b"<x>" * 300_000,
    ],
    ids=["50,000 entries", "one entry of many parts", "text", "deeply nested"],
)
def test_memory_does_not_grow_with_the_document(content):
    tracemalloc.start()
    try:
        n_entries = sum(1 for _ in Sitemap(content, LIMIT))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert n_entries in (50_000, 1, 0)


def test_another_reader_of_sitemaps_reads_the_same():
    tree = pytest.importorskip("usp.tree", reason="comes with the extra dev")
    entries = [
        url(URLS[0], "<lastmod>2004-12-23T18:00:15+02:00</lastmod>"),
        url(f"{URLS[1]}?a=1&amp;b=2", "<lastmod>2005-03-09</lastmod><priority>0.3</priority>"),
        url(URLS[2], "<lastmod>2005-03-09T18:00:15.25Z</lastmod>"),
        *(url(f"https://a.example/{i}", "<lastmod>2005-03-09</lastmod>") for i in range(9, 500)),
    ]
    theirs = list(tree.sitemap_from_str(urlset(*entries).decode()).all_pages())
    ours, _ = read(urlset(*entries))
    assert [entry.loc for entry in ours] == [page.url for page in theirs]
    for entry, page in zip(ours, theirs, strict=True):
        moment = page.last_modified
        assert read_date(entry.lastmod).begins == moment.replace(tzinfo=moment.tzinfo or UTC)
