"""`recrawl pages` and `recrawl fresh` on a running service."""

import io
import json
from datetime import timedelta

import pytest
from support.live_server import START, Live, running

A = "https://a.example/"


@pytest.fixture
def api(sqlite_url) -> Live:
    with running(sqlite_url) as live:
        live.register(f"{A}1", tags=["news"])
        live.register(f"{A}2", "https://b.example/")
        yield live


def lines(output):
    return [json.loads(line) for line in output.out.splitlines()]


def test_pages_are_listed_and_counted_by_filters(api: Live, recrawl):
    listed = recrawl("pages", "list", "host=a.example", url=api.url)
    assert sorted(page["url"] for page in lines(listed)) == [f"{A}1", f"{A}2"]
    assert len(lines(recrawl("pages", "list", "--limit", "1", url=api.url))) == 1
    count = recrawl("pages", "count", "--exact", "tag=news", "state=never_crawled", url=api.url)
    assert count.out == "1 (exact)\n"


def test_pages_are_changed_and_deleted_by_filters(api: Live, recrawl):
    change = ("pages", "set", "host=a.example", "--set", "importance=4")
    change += ("--set", 'add_tags=["deep"]')
    dry = json.loads(recrawl(*change, "--dry-run", url=api.url).out)
    assert (dry["matched"], dry["changed"]) == (2, 0)
    assert json.loads(recrawl(*change, url=api.url).out)["changed"] == 2
    assert api.get("/pages", url=f"{A}1").json()["tags"] == ["deep", "news"]
    refused = recrawl("pages", "delete", url=api.url)
    assert (refused.status, "nothing is selected" in refused.err) == (2, True)
    assert (
        json.loads(recrawl("pages", "delete", "tag=deep", "--yes", url=api.url).out)["changed"] == 2
    )
    assert len(lines(recrawl("pages", "list", url=api.url))) == 1


def test_wrong_filters_are_refused_with_the_remedy(api: Live, recrawl):
    assert "NAME=VALUE" in recrawl("pages", "list", "news", url=api.url).err
    refused = recrawl("pages", "list", "colour=red", url=api.url)
    assert (refused.status, "colour" in refused.err) == (2, True)


@pytest.mark.parametrize("command", ["list", "count", "set", "delete", "recrawl"])
def test_url_is_no_filter_and_the_refusal_says_how_one_page_is_shown(api, recrawl, command):
    ended = recrawl("pages", command, f"url={A}1", url=api.url)
    sentence = " ".join(ended.err.replace("│", " ").split())
    assert (ended.status, f"`recrawl why {A}1` shows it" in sentence) == (2, True)
    assert "url_prefix= selects it" in sentence
    assert len(lines(recrawl("pages", "list", url=api.url))) == 3


def test_pages_are_crawled_again_and_their_log_is_read(api: Live, recrawl):
    done = recrawl("pages", "recrawl", "--url", f"{A}1", "--url", f"{A}none", url=api.url)
    assert json.loads(done.out)["changed"] == 1
    assert json.loads(done.out)["n_rejected"] == 1
    api.post("/observations", [{"url": f"{A}1", "observed_at": START.isoformat(), "digest": "1"}])
    (entry,) = lines(recrawl("pages", "log", f"{A}1", url=api.url))
    assert (entry["kind"], entry["observed_at"]) == ("crawl", "2026-05-01T12:00:00Z")


def test_fresh_copies_are_kept_and_others_fetched(api: Live, recrawl, monkeypatch):
    api.post("/observations", [{"url": f"{A}1", "observed_at": START.isoformat(), "digest": "1"}])
    api.clock.advance(hours=1)
    kept = recrawl("fresh", f"{A}1", url=api.url)
    assert kept.status == 0
    assert kept.out.startswith("keep   stale with")
    both = recrawl("fresh", f"{A}1", f"{A}2", "ftp://x/", url=api.url)
    assert both.status == 1
    assert both.out.splitlines()[1] == f"fetch  never fetched  {A}2"
    assert "ftp://x/: " in both.err
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{A}1\n\n{A}2\n"))
    old = (START - timedelta(days=900)).strftime("%Y-%m-%dT%H:%M:%SZ")
    verdicts = lines(recrawl("fresh", "-", "--fetched-at", old, "--json", url=api.url))
    assert [verdict["fetch"] for verdict in verdicts] == [True, True]
    strict = recrawl("fresh", f"{A}1", "--max-stale", "0", url=api.url)
    assert strict.status == 1
