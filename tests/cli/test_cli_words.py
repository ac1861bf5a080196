"""Words of the command line: empty lists, heads, and the same words for the same thing."""

import json
import sys
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from support.live_server import START, Live, running

from recrawl_client import BudgetAnswer
from service.cli import output
from service.cli.acts import sentence
from service.model.amounts import DEFAULT

PAGE = "https://a.example/1"
EMPTY = [
    (("pages", "list"), "no pages yet; register them by `recrawl import urls.txt`"),
    (("pages", "list", "tag=news"), "no page matches the filters"),
    (("hosts", "list"), "no hosts yet"),
    (("hosts", "list", "--paused"), "no host is paused"),
    (("leases", "list"), "no lease runs; `recrawl leases explain` shows why"),
    (("leases", "workers"), "no worker holds leases"),
    (("url-groups", "list"), "no groups"),
    (("url-groups", "list", "--stopped"), "no group is stopped"),
    (("websub", "list"), "no subscriptions; `recrawl websub subscribe` makes one"),
    (("audit",), "no acts yet"),
    (("audit", "--act", "host.pause"), "no act matches the options"),
    (("changes",), "no changes"),
    (("epochs",), "no epochs yet"),
]


@pytest.fixture
def terminal(monkeypatch):
    on_terminal(monkeypatch)


def on_terminal(monkeypatch):
    """Let commands print for people."""
    for module in (output, sys.modules["service.cli.status"]):
        monkeypatch.setattr(module, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Live:
    file = tmp_path_factory.mktemp("empty") / "empty.db"
    with running(f"sqlite:///{file}") as live:
        yield live


@pytest.fixture
def api(sqlite_url) -> Live:
    with running(sqlite_url) as live:
        live.register(PAGE)
        yield live


@pytest.mark.parametrize(("command", "sentence"), EMPTY)
def test_an_empty_list_is_a_sentence_on_a_terminal_and_nothing_in_a_pipe(
    empty: Live, recrawl, monkeypatch, command, sentence
):
    assert recrawl(*command, url=empty.url).out == ""
    on_terminal(monkeypatch)
    (line,) = recrawl(*command, url=empty.url).out.splitlines()
    assert line.startswith(sentence)


def test_epochs_are_lines_of_json_in_a_pipe(api: Live, recrawl):
    with capture_logs():
        api.epoch()
    (line,) = recrawl("epochs", url=api.url).out.splitlines()
    assert json.loads(line)["epoch"] == 1


def test_the_budget_in_force_is_one_row_of_the_plan(api: Live, recrawl):
    crawl = {"url": PAGE, "observed_at": (START - timedelta(days=1)).isoformat(), "digest": "1"}
    api.post("/observations", [crawl])
    with capture_logs():
        api.epoch()
    lines = recrawl("plan", url=api.url).out.splitlines()
    assert lines[0] == "1 page of 1 host, by epoch 1"
    amounts = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert amounts[1:] == ["0.2 now", "0.1", "0.3", "0.4", "0.8"]


def test_all_views_have_one_sentence_for_a_budget_that_nobody_has_set(api: Live, recrawl, terminal):
    assert recrawl("budget", "show", url=api.url).out == f"{DEFAULT}\n"
    assert f"budget     {DEFAULT}" in recrawl("status", url=api.url).out
    assert DEFAULT.capitalize() in api.client.get("/console/epochs").text


def test_the_state_names_a_pause_of_all_hosts(api: Live, recrawl, terminal):
    assert api.get("/status").json()["paused_until"] is None
    assert "paused" not in recrawl("status", url=api.url).out
    recrawl("pause", "2h", url=api.url)
    assert api.get("/status").json()["paused_until"] == "2026-05-01T14:00:00Z"
    (line,) = (each for each in recrawl("status", url=api.url).out.splitlines() if "paused" in each)
    assert "all hosts, by an operator" in line
    assert "`recrawl resume`" in line


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("pause", "2h"), {"paused_until": "2026-05-01T14:00:00Z"}),
        (("resume",), {"paused_until": None}),
        (
            ("hosts", "pause", "a.example", "1d"),
            {"host": "a.example", "blocked_until": "2026-05-02T12:00:00Z"},
        ),
        (("hosts", "resume", "a.example"), {"host": "a.example", "paused_until": None}),
        (
            ("hosts", "delete", "a.example", "--yes"),
            {"host": "a.example", "dry_run": False, "n_pages": 1},
        ),
    ],
)
def test_each_act_has_an_answer_in_json(api: Live, recrawl, command, answer):
    assert json.loads(recrawl(*command, "--json", url=api.url).out) == answer


@pytest.mark.parametrize("text", ["0", "0s", "0 min"])
def test_a_host_may_have_no_delay(api: Live, recrawl, text):
    assert recrawl("hosts", "set", "a.example", "--delay", text, url=api.url).status == 0
    assert api.get("/hosts/a.example").json()["min_delay_s"] == 0


@pytest.mark.parametrize("since", ["yesterday", "today", "Today"])
def test_days_have_names(empty: Live, recrawl, since):
    assert recrawl("audit", "--since", since, url=empty.url).status == 0


def test_the_audit_shows_what_is_so_since_an_act(api: Live, recrawl, terminal):
    recrawl("hosts", "pause", "a.example", "1d", url=api.url)
    (line,) = (each for each in recrawl("audit", url=api.url).out.splitlines() if "pause" in each)
    assert "blocked until: 2026-05-02" in line
    assert line.split()[-1] == "none"


def test_a_page_alone_is_not_compared_and_its_rate_comes_after_its_first_crawl(api: Live, recrawl):
    with capture_logs():
        api.epoch()
    sentence = recrawl("why", PAGE, url=api.url).out
    assert "lower crawl rates" not in sentence
    assert ". Then crawled every 5 days:" in sentence


def test_a_page_that_is_not_there_is_registered_by_a_command(empty: Live, recrawl):
    assert "register it by `recrawl import`" in recrawl("why", PAGE, url=empty.url).refusal()


def test_what_a_budget_keeps_for_windows_is_named():
    answer = BudgetAnswer(
        budget="100 crawls",
        amount=100.0,
        unit="crawls",
        set_by="operator",
        set_at=None,
        by_settings=None,
        spent_today=20.0,
        held_today=0.0,
        left_today=80.0,
        left_now=30.0,
        left_in_windows=50.0,
    )
    assert "left today: 80 crawls, 30 of them at once, 50 kept for hosts with windows" in sentence(
        answer
    )
