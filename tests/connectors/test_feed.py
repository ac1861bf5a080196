"""Feeds as hubs send them: which pages they tell of, and since when."""

import gzip
from datetime import UTC, datetime

import pytest

from service.connectors.feed import read_feed

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
TOPIC = "https://example.com/blog/feed"
SELF = [(TOPIC, NOW.isoformat())]


def told(content: str | bytes) -> list[tuple[str, str | None]]:
    given = content.encode() if isinstance(content, str) else content
    entries = list(read_feed(given, TOPIC, NOW))
    assert [entry.position for entry in entries] == list(range(len(entries)))
    return [(entry.loc, entry.lastmod) for entry in entries]


def test_rss_2_gives_its_links_and_mail_dates():
    rss = """<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>
      <link>https://example.com/</link><atom:link rel="hub" href="https://hub.example/"/>
      <item><title>1</title><link> https://example.com/1 </link>
        <pubDate>Thu, 30 Apr 2026 14:00:00 +0200</pubDate></item>
      <item><link>2?a&amp;b</link><pubDate>Fri, 01 May 2026 11:00:00 GMT</pubDate></item>
    </channel></rss>"""
    assert told(rss) == [
        ("https://example.com/1", "2026-04-30T12:00:00+00:00"),
        ("https://example.com/blog/2?a&b", "2026-05-01T11:00:00+00:00"),
    ]


def test_rss_1_gives_its_links_and_dublin_core_dates():
    rdf = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
        xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/">
      <channel><link>https://example.com/</link></channel>
      <item><link>https://example.com/1</link><dc:date>2026-04-30</dc:date></item></rdf:RDF>"""
    assert told(rdf) == [("https://example.com/1", "2026-04-30T00:00:00+00:00")]


def test_rss_1_names_its_entries_by_any_prefix_of_rdf():
    rdf = """<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
        xmlns:rss="http://purl.org/rss/1.0/"><rss:item r:about="/1"/><rss:item about="/2"/>
      <rss:item r:about="urn:x"><rss:link>/3</rss:link></rss:item></r:RDF>"""
    assert [page for page, _ in told(rdf)] == [f"https://example.com/{n}" for n in (1, 2, 3)]


def test_a_json_feed_gives_its_urls_and_dates():
    feed = """{"version": "https://jsonfeed.org/version/1.1", "items": [
      {"id": "1", "url": "/1", "date_modified": "2026-04-30T14:00:00+02:00"},
      {"id": "2", "title": "without an address"}]}"""
    assert told(feed) == [
        ("https://example.com/1", "2026-04-30T12:00:00+00:00"),
        (TOPIC, NOW.isoformat()),
    ]


def test_a_feed_may_be_compressed():
    rss = b"<rss><channel><item><link>/1</link></item></channel></rss>"
    assert told(gzip.compress(rss)) == [("https://example.com/1", NOW.isoformat())]


@pytest.mark.parametrize(
    "content",
    [
        "https://example.com/1\nhttps://example.com/2",
        "<urlset><url><loc>https://example.com/1</loc></url></urlset>",
        '{"items": "none"}',
        b"\x1f\x8bbroken",
    ],
)
def test_what_is_no_feed_stands_for_its_topic(content):
    assert told(content) == SELF


def test_an_atom_entry_alone_is_a_feed():
    assert told("<entry><link href='/a'/><updated>2026-04-30T00:00:00Z</updated></entry>") == [
        ("https://example.com/a", "2026-04-30T00:00:00+00:00")
    ]


def test_links_of_other_relations_and_of_an_entrys_source_are_left_alone():
    atom = """<feed><entry><link rel="self" href="/self"/><link rel="replies" href="/replies"/>
      <source><link href="/source"/><updated>2020-01-01</updated></source>
      <link rel="alternate" href="/page"/><link href="/second"/></entry></feed>"""
    assert told(atom) == [("https://example.com/page", NOW.isoformat())]


@pytest.mark.parametrize(
    "rel", ["Alternate", " alternate ", "http://www.iana.org/assignments/relation/alternate"]
)
def test_a_relation_may_have_any_case_and_its_long_form(rel):
    atom = f"""<feed><entry><link rel="self" href="/self"/><link rel="{rel}" href="/page"/>
      </entry></feed>"""
    assert told(atom) == [("https://example.com/page", NOW.isoformat())]


def test_links_within_the_xhtml_of_an_entry_are_none_of_its_links():
    atom = """<feed xmlns="http://www.w3.org/2005/Atom"><entry>
      <content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>In stock
      <link itemprop="availability" href="https://schema.org/InStock"/></p></div></content>
      <link href="/page"/><updated>2026-04-30</updated></entry></feed>"""
    assert told(atom) == [("https://example.com/page", "2026-04-30T00:00:00+00:00")]


def test_links_are_relative_to_the_base_the_document_names():
    atom = """<feed xml:base="https://example.com/a/"><entry xml:base="b/"><link href="1"/></entry>
      <entry><link href="2"/></entry></feed>"""
    assert [url for url, _ in told(atom)] == [
        "https://example.com/a/b/1",
        "https://example.com/a/2",
    ]


@pytest.mark.parametrize(
    "date", ["", "soon", "2027-01-01", "1970-01-01", "Fri, 99 May 2026 11:00:00 GMT"]
)
def test_what_changed_at_no_time_or_in_the_future_has_changed_now(date):
    atom = f"<feed><entry><link href='/a'/><updated>{date}</updated></entry></feed>"
    assert told(atom) == [("https://example.com/a", NOW.isoformat())]


def test_the_published_date_stands_for_an_update_that_cannot_be_read():
    rest = "<published>2026-04-30</published></entry></feed>"
    (found,) = told("<feed><entry><updated>soon</updated>" + rest)
    assert found == (TOPIC, "2026-04-30T00:00:00+00:00")


def test_of_a_feed_that_breaks_off_the_entries_before_are_given():
    atom = "<feed><entry><link href='/a'/></entry><entry><link href='/b'/>"
    assert told(atom) == [("https://example.com/a", NOW.isoformat())]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"plain",
        b"<feed>",
        b"<feed></feed>",
        b"\xff\xfe",
        b"<html><body>",
        b"<?xml version='1.0' encoding='none'?><feed/>",
        b"<a>" * 1_000,
    ],
)
def test_what_is_no_feed_stands_for_the_topic(content):
    assert told(content) == SELF


def test_a_link_that_is_no_url_is_given_as_it_is():
    assert [url for url, _ in told("<feed><entry><link href='https://['/></entry></feed>")] == [
        "https://["
    ]


@pytest.mark.parametrize(
    ("guid", "page"),
    [
        ("<guid>https://example.com/1</guid>", "https://example.com/1"),
        ("<guid isPermaLink='true'>https://example.com/1</guid>", "https://example.com/1"),
        ("<guid isPermaLink='false'>https://example.com/1</guid>", TOPIC),
        ("<guid>post-1</guid>", TOPIC),
        (
            "<guid>https://example.com/1</guid><link>https://example.com/2</link>",
            "https://example.com/2",
        ),
    ],
)
def test_a_permanent_identity_is_a_link_where_there_is_no_other(guid, page):
    assert told(f"<rss><channel><item>{guid}</item></channel></rss>")[0][0] == page


def test_blanks_before_and_long_texts_within_lose_no_entry():
    text = f"<content>{'x' * 2_000_000}</content>"
    atom = f"\n<?xml version='1.0'?><feed><entry>{text}<link href='/a'/></entry></feed>"
    assert told(atom) == [("https://example.com/a", NOW.isoformat())]
