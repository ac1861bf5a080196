"""Acts by the command line: budget, pauses, deletion, and what they ask."""

import json
import os
import pty
import re
import subprocess
import sys
from datetime import timedelta

import pytest
import typer
from support.live_server import START, Live, running
from support.processes import ROOT

from service.cli import confirming, output
from service.cli.durations import read_duration, read_moment

A = "https://a.example/"


@pytest.fixture
def api(sqlite_url) -> Live:
    with running(sqlite_url, bandwidth=30.0) as live:
        live.register(f"{A}1", f"{A}2", "https://b.example/")
        yield live


@pytest.fixture
def terminal(monkeypatch):
    """Let commands print for people."""
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def answers(monkeypatch):
    """Return a function that lets a person at a terminal answer every question so."""

    def answer(text):
        asked = []
        monkeypatch.setattr(confirming, "can_ask", lambda: True)

        def confirm(sentence, **_):
            asked.append(sentence)
            if text != "y":
                raise typer.Abort

        monkeypatch.setattr(confirming.typer, "confirm", confirm)
        return asked

    return answer


def test_a_budget_is_set_shown_and_unset(api: Live, recrawl, terminal):
    told = recrawl("budget", "set", "10000 crawls", url=api.url).out
    assert "10,000 crawls a day, set by an operator at 2026-05-01 12:00:00Z" in told
    assert "without this order: 30 crawls" in told
    shown = json.loads(recrawl("budget", "show", "--json", url=api.url).out)
    assert (shown["amount"], shown["set_by"]) == (10_000.0, "operator")
    assert "30 crawls a day, by the settings" in recrawl("budget", "unset", url=api.url).out
    refused = recrawl("budget", "set", "much", url=api.url)
    assert "10000 crawls, 50 GB" in refused.refusal()


def test_a_budget_in_another_unit_is_asked_about_with_both_amounts(api: Live, recrawl, answers):
    command = ("budget", "set", "50 GB")
    refused = recrawl(*command, url=api.url).refusal()
    assert "the budget changes from 30 crawls a day to 50 GB a day, in another unit" in refused
    assert "add --yes" in refused
    asked = answers("n")
    recrawl(*command, url=api.url)
    assert (len(asked), api.get("/budget").json()["budget"]) == (1, "30 crawls")
    answers("y")
    assert json.loads(recrawl(*command, "--json", url=api.url).out)["unit"] == "bytes"
    told = recrawl("budget", "unset", "--yes", url=api.url).out
    assert told.startswith("30 crawls a day, by the settings")


def test_hosts_and_all_of_them_are_paused_for_a_time(api: Live, recrawl):
    paused = recrawl("hosts", "pause", "a.example", "2h", url=api.url)
    assert paused.out == "a.example is paused until 2026-05-01 14:00:00Z\n"
    early = recrawl("hosts", "pause", "new.example", "2h", url=api.url).out
    assert early == "new.example is paused until 2026-05-01 14:00:00Z; no page has this host yet\n"
    recrawl("hosts", "resume", "new.example", url=api.url)
    (listed,) = recrawl("hosts", "list", "--paused", url=api.url).out.splitlines()
    assert json.loads(listed)["host"] == "a.example"
    assert recrawl("hosts", "resume", "a.example", url=api.url).out.endswith("crawled again\n")
    assert "no page has the host" in recrawl("hosts", "resume", "z.example", url=api.url).refusal()
    paused = recrawl("pause", "2026-05-01T13:30:00Z", url=api.url)
    assert paused.out == "all hosts are paused until 2026-05-01 13:30:00Z\n"
    assert api.client.post("/leases", json={}).json()["items"] == []
    assert recrawl("resume", url=api.url).out == "crawls are leased again\n"
    assert recrawl("resume", url=api.url).out == "no pause of all hosts was in force\n"


def test_a_pause_that_has_ended_is_not_listed_on_a_terminal(api: Live, recrawl, terminal):
    api.clock.advance(days=36_500)  # the command compares with the time of its own computer
    recrawl("hosts", "pause", "a.example", "2h", url=api.url)
    assert "blocked until" in recrawl("hosts", "list", url=api.url).out
    ended = {"blocked_until": "2026-05-01T13:00:00Z"}
    assert api.client.patch("/hosts/a.example", json=ended).is_success
    assert "blocked until" not in recrawl("hosts", "list", url=api.url).out
    (listed, *_) = recrawl("hosts", "list", "--json", url=api.url).out.splitlines()
    assert json.loads(listed)["host_queue"]["blocked_until"] == "2026-05-01T13:00:00Z"


def test_a_host_that_its_site_pauses_says_so_when_it_is_resumed(api: Live, recrawl):
    # the command compares with the time of its own computer
    crawl = {"url": f"{A}1", "status": 429, "retry_after_s": 86_400}
    api.clock.advance(days=36_500)
    api.post("/observations", [{**crawl, "observed_at": api.clock().isoformat()}])
    told = recrawl("hosts", "resume", "a.example", url=api.url).out
    assert "a.example is paused by its site until" in told
    assert "--site" in told
    told = recrawl("hosts", "resume", "a.example", "--site", url=api.url).out
    assert told == "a.example is crawled again\n"


def test_an_incident_is_ended_by_hand_once(api: Live, recrawl):
    urls = [f"https://b.example/{n}" for n in range(6)]
    for shown in ({"status": 200, "digest": "a"}, {"status": 403}):
        at = api.clock.advance(hours=2).isoformat()
        crawls = [{"url": url, "observed_at": at, **shown} for url in urls]
        assert api.post("/observations", crawls).is_success
    ended = recrawl("hosts", "end-incident", "b.example", url=api.url).out
    assert ended.startswith("the incident of b.example is ended; it began at 2026-05-01 ")
    assert ended.endswith(", with 6 pages\n")
    again = recrawl("hosts", "end-incident", "b.example", "--json", url=api.url).out
    assert json.loads(again) == {"host": "b.example", "ended": False}


def test_politeness_is_set_by_options(api: Live, recrawl):
    options = ("--delay", "500ms"), ("--delay", "0.5s", "--at-a-time", 3, "--a-day", 900)
    assert "no duration" in recrawl("hosts", "set", "a.example", *options[0], url=api.url).err
    told = json.loads(recrawl("hosts", "set", "a.example", *options[1], "--json", url=api.url).out)
    assert (told["min_delay_s"], told["max_concurrency"], told["max_crawl_rate"]) == (0.5, 3, 900)
    told = recrawl("hosts", "set", "a.example", "--delay", "0", "--a-day", 1200, url=api.url).out
    assert told == "a.example is set: min_delay_s 0, max_crawl_rate 1,200\n"
    assert "nothing to set" in recrawl("hosts", "set", "a.example", url=api.url).err


def test_a_deletion_shows_its_count_and_asks(api: Live, recrawl, answers):
    command = ("pages", "delete", "host=a.example")
    refused = recrawl(*command, url=api.url).refusal()
    assert "this deletes 2 pages" in refused
    assert "add --yes" in refused
    asked = answers("n")
    assert recrawl(*command, url=api.url).status == 1
    assert asked == ["this deletes 2 pages with their states and logs. Go on?"]
    assert api.get("/pages", host="a.example").json()["items"]
    answers("y")
    assert recrawl(*command, url=api.url).out == "2 pages of 2 deleted\n"


def test_a_host_is_deleted_with_its_pages_and_its_pause_comes_back(api: Live, recrawl):
    recrawl("hosts", "pause", "a.example", "1d", url=api.url)
    assert "its 2 pages" in recrawl("hosts", "delete", "a.example", url=api.url).refusal()
    dry = recrawl("hosts", "delete", "a.example", "--dry-run", "--json", url=api.url)
    assert json.loads(dry.out) == {"host": "a.example", "dry_run": True, "n_pages": 2}
    assert api.get("/hosts/a.example").json()["n_pages"] == 2
    done = recrawl("hosts", "delete", "a.example", "--yes", url=api.url)
    assert done.out == "deleted: a.example, 2 pages\n"
    assert "this deletes a.example and its 2 pages" in done.err
    assert api.get("/hosts/a.example").status_code == 404
    api.register(f"{A}new")
    queue = api.get("/hosts/a.example").json()["host_queue"]
    assert queue["blocked_until"] == "2026-05-02T12:00:00Z"


def test_the_revocation_of_a_key_names_it_and_asks(recrawl, sqlite_url, answers):
    key = recrawl("keys", "create", "fleet", "--role", "crawl", database_url=sqlite_url).out
    key_id = key.split("_")[1]
    refused = recrawl("keys", "revoke", key_id, database_url=sqlite_url).refusal()
    assert f"this revokes the key {key_id} of 'fleet', role crawl, never used" in refused
    answers("y")
    assert recrawl("keys", "revoke", key_id, database_url=sqlite_url).out.endswith("revoked\n")


def test_lists_are_tables_on_a_terminal_and_json_where_it_is_asked_for(
    api: Live, recrawl, terminal
):
    table = recrawl("hosts", "list", url=api.url).out
    assert "a.example" in table
    assert re.search(r"host +delay, s +failures", table)
    assert json.loads(recrawl("hosts", "list", "--json", url=api.url).out.splitlines()[0])["host"]
    shown = recrawl("hosts", "show", "a.example", url=api.url).out
    assert re.search(r"host queue delay, s +1", shown)
    assert recrawl("pages", "list", url=api.url).out.count("https://") == 3
    crawl = {"url": f"{A}1", "observed_at": START.isoformat(), "digest": "1"}
    api.post("/observations", [crawl])
    line = f"2026-05-01 12:00:00Z  new      {A}1\n"
    assert recrawl("changes", url=api.url).out == line


def test_acts_and_history_are_listed_since_a_time(api: Live, recrawl):
    recrawl("hosts", "pause", "a.example", "2h", url=api.url)
    recrawl("pause", "1h", url=api.url)
    since = (START - timedelta(days=1)).isoformat()
    lines = recrawl("audit", "--since", since, url=api.url).out.splitlines()
    assert [json.loads(line)["act"] for line in lines] == ["service.pause", "host.pause"]
    only = recrawl("audit", "--act", "host.pause", "--object", "a.example", url=api.url).out
    assert len(only.splitlines()) == 1
    assert recrawl("audit", "--since", "1min", url=api.url).out == ""
    assert recrawl("history", "--since", "3d", url=api.url).status == 0
    crawl = {"url": f"{A}1", "observed_at": START.isoformat(), "digest": "1"}
    api.post("/observations", [crawl])
    assert recrawl("pages", "log", f"{A}1", "--since", since, url=api.url).out.count("\n") == 1
    assert recrawl("pages", "log", f"{A}1", "--since", "1d", url=api.url).out == ""
    assert recrawl("pages", "list", "changed_since=1d", url=api.url).out == ""
    assert recrawl("changes", "--since", "1d", url=api.url).status == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [("last week", "such as 30min, 2h or 1d"), ("2026-05-01T12:00", "has no zone")],
)
def test_a_wrong_time_is_refused_with_right_ones(api: Live, recrawl, text, words):
    refused = recrawl("changes", "--since", text, url=api.url)
    assert refused.status == 2
    assert words in " ".join(refused.err.replace("│", " ").split())


@pytest.mark.parametrize("text", ["2 hours ago", "h", "1.5", "0h", "1y", "99999d", "-1h"])
def test_a_wrong_duration_is_refused(text):
    with pytest.raises(typer.BadParameter, match="is no duration"):
        read_duration(text)


def test_a_moment_is_a_day_or_an_instant_or_a_duration_ago():
    assert read_moment("2026-05-01").isoformat() == "2026-05-01T00:00:00+00:00"
    assert read_moment("2026-05-01T12:00:00+02:00").utcoffset() == timedelta(hours=2)
    assert read_moment("1d") < read_moment("1h")


def test_the_help_has_commands_in_groups(recrawl):
    told = recrawl("--help").out
    acts = told.partition("Act without a restart")[2]
    assert all(name in acts for name in ("budget", "pause", "resume", "hosts", "pages"))


@pytest.mark.dear
@pytest.mark.parametrize(("answer", "status", "n_left"), [(b"n\n", 1, 1), (b"y\n", 0, 0)])
def test_a_person_at_a_terminal_is_asked(api: Live, tmp_path, answer, status, n_left):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "service", "pages", "delete", "host=b.example"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RECRAWL_URL": api.url}
    ends = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, **ends)
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 4_096)
    os.write(ours, answer)
    assert process.wait() == status
    os.close(ours)
    assert b"this deletes 1 page with their states and logs" in shown
    assert len(api.get("/pages", host="b.example").json()["items"]) == n_left
