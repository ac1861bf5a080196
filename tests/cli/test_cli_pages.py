"""`recrawl pages` and `recrawl fresh` on a running service."""

import io
import json
from datetime import timedelta
from typing import get_args

import pytest
from support.live_server import START, Live, running

from recrawl_client import Verdict
from recrawl_client.wire.freshness import CopyState
from service.cli.pages import verdict_words

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
    dry = json.loads(recrawl(*change, "--dry-run", "--json", url=api.url).out)
    assert (dry["matched"], dry["changed"]) == (2, 0)
    assert recrawl(*change, url=api.url).out == "2 pages of 2 changed\n"
    assert api.get("/pages", url=f"{A}1").json()["tags"] == ["deep", "news"]
    refused = recrawl("pages", "delete", url=api.url)
    assert (refused.status, "nothing is selected" in refused.err) == (2, True)
    dry = recrawl("pages", "delete", "tag=deep", "--dry-run", url=api.url)
    assert dry.out == "2 pages would be deleted\n"
    assert recrawl("pages", "delete", "tag=deep", "--yes", url=api.url).out.startswith("2 pages")
    assert len(lines(recrawl("pages", "list", url=api.url))) == 1


def test_one_page_is_deleted_by_its_url_or_its_id_and_its_siblings_stay(api: Live, recrawl):
    api.register(f"{A}11", f"{A}1?a=b")
    page_id = api.get("/pages", url=f"{A}2").json()["page_id"]
    unasked = recrawl("pages", "delete", f"{A}1", url=api.url)
    assert unasked.status != 0
    assert f"this deletes 1 page, {A}1, with its state and log; nothing was done" in " ".join(
        unasked.err.replace("│", " ").split()
    )
    dry = recrawl("pages", "delete", f"{A}1", "--dry-run", url=api.url)
    assert dry.out == f"{A}1 would be deleted\n"
    assert len(lines(recrawl("pages", "list", url=api.url))) == 5
    for name in (f"{A}1", f"{A}1?a=b", page_id):
        deleted = recrawl("pages", "delete", name, "--yes", "--json", url=api.url)
        assert json.loads(deleted.out) == {"matched": 1, "changed": 1}
    left = {page["url"] for page in lines(recrawl("pages", "list", url=api.url))}
    assert left == {f"{A}11", "https://b.example/"}
    again = recrawl("pages", "delete", f"{A}1", "--yes", url=api.url)
    assert (again.status != 0, "no page has the url" in again.err) == (True, True)
    mixed = recrawl("pages", "delete", f"{A}11", "tag=news", "--yes", url=api.url)
    words = " ".join(mixed.err.replace("│", " ").split())
    assert (mixed.status, f"`recrawl pages delete {A}11` deletes it" in words) == (2, True)


def test_wrong_filters_are_refused_with_the_remedy(api: Live, recrawl):
    assert "NAME=VALUE" in recrawl("pages", "list", "news", url=api.url).err
    refused = recrawl("pages", "list", "colour=red", url=api.url)
    assert (refused.status, "colour" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("list", ["host=a.example", "host=b.example"]),
        ("count", ["host=a.example", "host=a.example"]),
        ("delete", ["host=nowhere.example", "host=a.example", "--yes"]),
        ("recrawl", ["tag=news", "host=a.example", "tag=shop"]),
        ("set", ["--set", "importance=2", "--set", "importance=3", "host=a.example"]),
    ],
)
def test_a_name_that_stands_twice_is_refused_because_one_value_would_be_lost(
    api, recrawl, command, options
):
    ended = recrawl("pages", command, *options, url=api.url)
    assert (ended.status, "stands more than once" in ended.err) == (2, True)
    assert len(lines(recrawl("pages", "list", url=api.url))) == 3


@pytest.mark.parametrize("command", ["list", "count", "set", "delete", "recrawl"])
def test_url_is_no_filter_and_the_refusal_says_how_one_page_is_shown(api, recrawl, command):
    ended = recrawl("pages", command, f"url={A}1", url=api.url)
    sentence = " ".join(ended.err.replace("│", " ").split())
    assert (ended.status, f"`recrawl why {A}1` shows it" in sentence) == (2, True)
    assert "url_prefix= selects all URLs that begin with it" in sentence
    assert len(lines(recrawl("pages", "list", url=api.url))) == 3


@pytest.mark.parametrize("url", [f"{A}1", f"{A}1?a=b"])
def test_a_url_in_the_place_of_a_filter_names_the_option_for_it(api: Live, recrawl, url):
    ended = recrawl("pages", "recrawl", url, url=api.url)
    words = " ".join(ended.err.replace("│", " ").split())
    assert (ended.status, f"--url {url} crawls it" in words) == (2, True)


def test_pages_are_crawled_again_and_their_log_is_read(api: Live, recrawl):
    done = recrawl("pages", "recrawl", "--url", f"{A}1", "--url", f"{A}none", url=api.url)
    assert done.out == "1 page of 1 due\n"
    assert len(done.err.splitlines()) == 1
    again = recrawl("pages", "recrawl", "--url", f"{A}1", url=api.url)
    assert again.out == "0 pages of 1 due; 1 was already due by a request\n"
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
    monkeypatch.setattr("sys.stdin", io.StringIO(f"# mine\n\n{A}1\n"))
    commented = recrawl("fresh", "-", url=api.url)
    assert (commented.status, commented.err) == (0, "")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{A}1\n\n{A}2\n"))
    old = (START - timedelta(days=900)).strftime("%Y-%m-%dT%H:%M:%SZ")
    verdicts = lines(recrawl("fresh", "-", "--fetched-at", old, "--json", url=api.url))
    assert [verdict["fetch"] for verdict in verdicts] == [True, True]
    strict = recrawl("fresh", f"{A}1", "--max-stale", "0", url=api.url)
    assert strict.status == 1


@pytest.mark.parametrize("fetch", [False, True])
@pytest.mark.parametrize("stale", [None, 0.1, 0.9])
@pytest.mark.parametrize("state", get_args(CopyState))
def test_the_text_of_a_verdict_follows_the_verdict(state, stale, fetch):
    verdict = Verdict(
        page_id=1,
        fetch=fetch,
        stale=stale,
        expected_changes=stale,
        fetched_at=None,
        last_crawl_at=START,
        next_crawl_at=START + timedelta(hours=1),
        gone=state in ("gone", "moved", "retired"),
        no_content=state == "no_content",
        state=state,
    )
    useless = verdict.gone or state == "refused"
    if not fetch and (stale is not None or useless or verdict.no_content):
        assert not verdict_words(verdict).startswith("fetch")
    elif fetch and not useless:
        assert verdict_words(verdict).startswith("fetch")


def test_a_refused_page_is_kept_only_where_there_is_a_copy(api: Live, recrawl):
    crawled_at = api.clock.advance(hours=1).isoformat()
    refused = [
        {"url": f"{A}1", "observed_at": crawled_at, "status": 403},
        {"url": f"{A}3", "observed_at": crawled_at, "robots_denied": True},
    ]
    assert api.post("/observations", refused).json()["accepted"] == 2
    listed = lines(recrawl("pages", "list", "state=refused", url=api.url))
    assert [page["url"] for page in listed] == [f"{A}1", f"{A}3"]
    n_listed = recrawl("pages", "count", "state=refused", "--exact", url=api.url).out
    assert n_listed == "2 (exact)\n"
    reason = "the site or its robots.txt refuses the page"
    for url in (f"{A}1", f"{A}3"):
        ended = recrawl("fresh", url, url=api.url)
        assert (ended.out, ended.status) == (f"wait   no copy, and {reason}  {url}\n", 0)
    held = recrawl("fresh", f"{A}3", "--fetched-at", START.isoformat(), url=api.url)
    assert (held.out, held.status) == (f"keep   {reason}  {A}3\n", 0)


def test_a_page_without_content_is_fetched_when_it_is_due(api: Live, recrawl):
    for hours in range(3):
        at = START + timedelta(hours=hours)
        api.post("/observations", [{"url": f"{A}2", "observed_at": at.isoformat(), "status": 500}])
        api.clock.advance(hours=1)
    ended = recrawl("fresh", f"{A}2", url=api.url)
    assert ended.out.startswith("wait   no content, next crawl 2026-05-")
    assert ended.status == 0
    api.clock.advance(days=40)
    assert recrawl("fresh", f"{A}2", url=api.url).out == f"fetch  no content yet  {A}2\n"


def test_a_recrawl_takes_the_consent_that_other_acts_need(api: Live, recrawl):
    api.register("https://a.example/")
    done = recrawl("pages", "recrawl", "--url", "https://a.example/", "--yes", url=api.url)
    assert done.out == "1 page of 1 due\n"
