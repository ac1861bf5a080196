"""`recrawl changes`: print the feed, go on where the last run ended, follow."""

import json
from datetime import timedelta

import pytest
from support.live_server import START, Live, running, until
from support.processes import started

from recrawl_client import Client
from recrawl_client.base import LONGEST_WAIT_S
from service.cli.changes import _parts
from service.cli.remedies import Notice

URLS = [f"https://a.example/{i}" for i in range(3)]


@pytest.fixture
def api(sqlite_url) -> Live:
    with running(sqlite_url) as live:
        yield live


def report(api: Live, *urls, hours=0, digest="one") -> None:
    at = (START - timedelta(hours=9 - hours)).isoformat()
    items = [{"url": url, "observed_at": at, "digest": digest} for url in urls]
    assert api.post("/observations", items).json()["accepted"] == len(urls)


def printed(out: str) -> list[tuple[str, str]]:
    return sorted((c["kind"], c["url"]) for c in map(json.loads, out.splitlines()))


def test_changes_are_printed_and_the_next_run_goes_on(recrawl, api, tmp_path):
    file = tmp_path / "place"
    arguments = ("changes", "--to", api.url, "--cursor-file", str(file))
    report(api, *URLS)
    assert printed(recrawl(*arguments).out) == [("new", url) for url in URLS]
    assert recrawl(*arguments).out == ""
    report(api, URLS[1], hours=1, digest="two")
    assert printed(recrawl(*arguments).out) == [("changed", URLS[1])]
    everything = recrawl("changes", "--to", api.url, "--kind", "changed", "--kind", "gone")
    assert printed(everything.out) == [("changed", URLS[1])]
    ended = recrawl("changes", "--to", api.url, "--since", "2200-01-01T00:00:00Z")
    assert (ended.status, ended.out) == (0, "")


def test_a_run_with_a_limit_ends_there_and_the_next_one_goes_on(recrawl, api, tmp_path):
    arguments = ("changes", "--to", api.url, "--cursor-file", str(tmp_path / "place"))
    report(api, *URLS)
    first = printed(recrawl(*arguments, "--limit", "1", "--follow").out)
    assert len(first) == 1
    assert sorted(first + printed(recrawl(*arguments, "--limit", "100").out)) == [
        ("new", url) for url in URLS
    ]


def test_a_wrong_filter_is_refused_with_the_sentence_of_the_service(recrawl, api):
    ended = recrawl("changes", "--to", api.url, "--kind", "lost")
    assert ended.status == 2
    assert "kind" in ended.err


def test_a_follower_waits_for_the_feed_only_after_it_has_read_it(api):
    """So a service that is away is missed at once, and a quiet one is not."""
    report(api, URLS[0])
    asked, shown = [], []
    notice = Notice("waiting", shown.append)
    with Client(api.url) as client, notice.watching(client.http):
        begun = client.http.event_hooks["request"][0]

        def note(request):
            begun(request)
            asked.append((request.url.params.get("wait_s"), notice.timer.interval))

        client.http.event_hooks = {**client.http.event_hooks, "request": [note]}
        parts = _parts(client, None, {}, follow=True)
        assert [change.url for change in next(parts).items] == [URLS[0]]
        report(api, URLS[1])
        assert [change.url for change in next(parts).items] == [URLS[1]]
    (first, soon), (second, late) = asked
    assert float(first) == 0.0
    assert late - soon == float(second) == LONGEST_WAIT_S


@pytest.mark.slow
def test_a_follower_prints_changes_as_they_come(api, tmp_path):
    report(api, URLS[0])
    with started(tmp_path, "changes", "--follow", "--to", api.url) as follower:
        until(lambda: follower.log.read_text().count("\n") == 1, "the first change is printed")
        report(api, URLS[1])
        until(lambda: follower.log.read_text().count("\n") == 2, "the next change is printed")
    assert printed(follower.log.read_text()) == [("new", url) for url in URLS[:2]]
