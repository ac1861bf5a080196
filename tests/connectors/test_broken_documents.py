"""Documents broken by rules: the reader finds what their authors meant, and nothing else."""

import json
import logging
from statistics import fmean

import pytest

from benchmarks.documents.__main__ import main
from benchmarks.documents.fuzz import fuzz
from benchmarks.documents.rules import RULES
from benchmarks.documents.score import cases, ours, score
from service.connectors.entries import SitemapEntry
from service.connectors.links import resolved
from service.connectors.sitemap import Sitemap
from service.model.errors import InvalidUrl
from service.model.urls import normalise

BASE = "https://a.example/sitemap.xml"


def test_of_broken_documents_the_right_entries_are_read():
    scores = {case[:2]: score(case.entries, ours(case.content)) for case in cases(1)}
    assert len(scores) >= 200
    assert {rules[0] for _, rules in scores} == RULES.keys()
    assert fmean(scores.values()) >= 0.99, {name for name, each in scores.items() if each < 1}


@pytest.mark.parametrize(
    "loc",
    [
        "https://a.example/b",
        "\u200bhttps://a.example/b\ufeff",
        "https://a.example/b\u200e",
        "https://a.example/b&#8203;",
        '"https://a.example/b"',
        "'https://a.example/b '",
        "&lt;https://a.example/b&gt;",
        "/b",
        "\u200b/b",
    ],
)
def test_of_an_address_what_stands_around_it_is_dropped(loc):
    content = f"<urlset><url><loc>{loc}</loc></url></urlset>".encode()
    assert [each.loc for each in Sitemap(content, 1_000, BASE)] == ["https://a.example/b"]


@pytest.mark.parametrize(
    "loc",
    ["http//a.example/b", "://a.example/b", "(https://a.example/b)", "https\u200b://a.example/b"],
)
def test_a_spoilt_address_is_no_relative_one(loc):
    assert resolved(BASE, loc) == loc
    with pytest.raises(InvalidUrl):
        normalise(loc)


@pytest.mark.parametrize("loc", ["web/https://b.example/c", "c?of=http://b.example/", "https.html"])
def test_a_relative_address_may_have_another_in_it(loc):
    assert resolved(BASE, loc) == f"https://a.example/{loc}"


def test_feeds_and_sitemaps_are_told_by_their_root():
    rss = b"<rss><channel><item><link>/1</link><pubDate>2026-05-01</pubDate></item></channel></rss>"
    atom = b"<feed><entry><link href='2'/><updated>soon</updated></entry><entry/></feed>"
    base = "https://a.example/feeds/"
    assert list(Sitemap(rss, 1_000, base)) == [
        SitemapEntry(0, "https://a.example/1", "2026-05-01", is_child=False)
    ]
    sitemap = Sitemap(atom, 1_000, base)
    assert list(sitemap) == [
        SitemapEntry(0, "https://a.example/feeds/2", "soon", is_child=False),
        SitemapEntry(1, "", None, is_child=False),
    ]
    assert sitemap.kind == "atom"


def test_the_program_reads_mutated_documents(capsys):
    assert main(["fuzz", "--documents", "300", "--seed", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] > 1_000


@pytest.mark.slow
def test_mutated_documents_do_no_harm():
    ends = fuzz(20_000, measured=500)
    assert ends["read"] + ends["broke off"] > 15_000
    assert ends["read"] > 4_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_other_reader_reads_more():
    pytest.importorskip("feedparser", reason="comes with the extra dev")
    pytest.importorskip("usp.tree", reason="comes with the extra dev")
    pytest.importorskip("scrapy", reason="comes with the extra test")
    from benchmarks.documents.readers import compared

    logging.disable(logging.ERROR)
    try:
        every = [(case, scores) for case, scores in compared(2)]
    finally:
        logging.disable(logging.NOTSET)
    assert {name for _, scores in every for name in scores} > {"ours", "feedparser", "scrapy"}
    worse = [case[:2] for case, scores in every if scores["ours"] < max(scores.values())]
    assert len(worse) <= 0.01 * len(every), worse
