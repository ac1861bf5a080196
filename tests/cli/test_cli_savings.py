"""`recrawl savings`: a table on a terminal, JSON for programs, status 1 for a short log."""

import json
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from support.live_server import running
from support.savings_cases import play

from service.api.responses.savings import encode_savings
from service.cli.savings import show


@pytest.fixture
def live(sqlite_url):
    with running(sqlite_url) as live, capture_logs():
        play(live, 61)
        yield live


def test_the_command_prints_the_answer_of_the_service(recrawl, live):
    since = "2026-05-20"
    ended = recrawl("savings", "--since", since, "--json", url=live.url)
    assert ended.status == 0
    answer = live.get("/savings", since=f"{since}T00:00:00Z").json()
    assert json.loads(ended.out) == answer
    assert answer["harmonic"]["saved"] > 0


def test_a_short_log_ends_with_status_1(recrawl, sqlite_url):
    with running(sqlite_url) as live:
        ended = recrawl("savings", "--json", url=live.url)
    assert ended.status == 1
    assert json.loads(ended.out)["missing"].startswith("no page has a copy")


def test_a_terminal_gets_a_table(live, capsys):
    savings = live.service.savings.ask(live.clock.now - timedelta(days=50))
    show(encode_savings(savings))
    shown = capsys.readouterr().out
    assert "stale, share of the time" in shown
    assert "harmonic staleness" in shown
    assert "under uniform crawling" in shown


def test_a_window_below_an_hour_is_refused_in_the_words_of_the_command(recrawl, live):
    ended = recrawl("savings", "--since", "10min", "--json", url=live.url)
    assert ended.status == 2
    assert "an hour or more, such as 1h or 90d" in " ".join(ended.err.replace("│", " ").split())


def test_a_terminal_sees_when_savings_were_computed(live, capsys):
    savings = live.service.savings.ask(live.clock.now - timedelta(days=50))
    show(encode_savings(savings))
    shown = " ".join(capsys.readouterr().out.split())
    assert f"computed at {live.clock.now:%Y-%m-%d %H:%M} UTC" in shown
