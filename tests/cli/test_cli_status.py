"""`recrawl status`, `why` and `epochs`, and what commands say of a service that is away."""

import json
import re
import socket
import sys
import threading
import time

import httpx
import pytest
from structlog.testing import capture_logs
from support.live_server import Live, running, until

from recrawl_client import Unavailable
from service.cli import options, remedies
from service.model.errors import SchemaBehind, StoreUnavailable

URL = "https://a.example/news"
ONE_SHOT = [
    ("status",),
    ("why", URL),
    ("epochs",),
    ("hosts", "list"),
    ("hosts", "set", "a.example", "min_delay_s=1"),
    ("websub", "list"),
]


@pytest.fixture
def api(sqlite_url) -> Live:
    with running(sqlite_url) as live:
        yield live


@pytest.fixture
def learnt(api: Live) -> Live:
    """A service with an epoch in force and a page that was crawled."""
    api.register(URL, "https://a.example/about")
    api.post("/observations", [{"url": URL, "observed_at": "2026-05-01T11:00:00Z", "digest": "1"}])
    with capture_logs():
        api.epoch()
    return api


def too_often(learnt: Live) -> None:
    """Give the pages minima that exceed any bandwidth."""
    for page_id in (1, 2):
        learnt.client.patch(f"/pages/{page_id}", json={"min_crawl_rate": 1e6})


@pytest.fixture
def terminal(monkeypatch):
    """Make standard output a terminal."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.modules["service.cli.status"], "on_terminal", lambda: True)


def shown(ended):
    """Return the table of a status by name."""
    rows = (line.split(None, 1) for line in ended.out.replace("needs you", "needs").splitlines())
    return {row[0]: row[1].strip() for row in rows if len(row) == 2}


def test_a_service_without_pages_says_so(recrawl, terminal, api: Live):
    ended = recrawl("status", "--to", api.url)
    assert ended.status == 0
    table = shown(ended)
    assert table["health"].endswith(f"at {api.url}")
    assert table["needs"] == "nothing"
    assert table["pages"] == "0, 0 never crawled, 0 overdue"
    assert table["epoch"].startswith("none yet")
    assert table["crawlers"] == "0 leases run, no crawl is ready"


def test_a_terminal_gets_a_table_of_live_numbers(recrawl, terminal, learnt: Live):
    learnt.clock.advance(minutes=5)
    ended = recrawl("status", url=learnt.url)
    assert ended.status == 0
    table = shown(ended)
    assert table["pages"] == "2, 1 never crawled, 1 overdue"
    assert table["fresh"] == "not known before a page is crawled a second time"
    assert table["today"].startswith("1 crawl, 0 changes found, 0 failed or refused, 0 leased")
    assert table["budget"].startswith("none is set")
    assert table["epoch"] == "1, published 5 minutes ago"
    assert table["crawlers"] == "0 leases run, a crawl ready 5 minutes ago"


@pytest.mark.parametrize("budget", ["60 crawls", "5 MB"])
def test_the_crawls_of_today_stand_once_whatever_the_budget_counts(
    recrawl, terminal, learnt: Live, budget
):
    assert learnt.client.put("/budget", json={"budget": budget}).status_code == 200
    today = shown(recrawl("status", url=learnt.url))["today"]
    assert today.count("1 crawl") == 1
    assert ("bytes" in today) == (budget == "5 MB")


def test_a_pipe_gets_the_answer_of_the_service_and_status_1_where_something_needs_you(
    recrawl, learnt: Live
):
    ended = recrawl("status", url=learnt.url)
    answer = learnt.get("/status").json()
    assert json.loads(ended.out) == {"address": learnt.url, "health": "ok", **answer}
    assert (ended.status, answer["needs_you"]) == (0, [])
    too_often(learnt)
    with capture_logs():
        learnt.epoch()
    ended = recrawl("status", "--json", url=learnt.url)
    assert ended.status == 1
    (need,) = json.loads(ended.out)["needs_you"]
    assert need == learnt.get("/status").json()["needs_you"][0]
    assert need["kind"] == "epoch_failing"


def test_a_terminal_names_what_needs_you_first_with_the_remedy_on_its_own_line(
    recrawl, terminal, learnt: Live
):
    too_often(learnt)
    with capture_logs():
        learnt.epoch()
    ended = recrawl("status", url=learnt.url)
    assert ended.status == 1
    kind, sentence, remedy = ended.out.splitlines()[:3]
    assert kind == "epoch_failing: epochs since now"
    assert sentence.startswith("  Mend the cause, because the last epoch failed: Bandwidth")
    assert remedy == "  recrawl epochs --limit 5"
    assert shown(ended)["epoch"].startswith("1, published now; 2 failed: Bandwidth")


@pytest.mark.dear
def test_without_a_worker_status_and_console_ask_for_one(recrawl, terminal, postgres_url):
    with running(postgres_url) as live:

        def told():
            return recrawl("status", url=live.url).out, live.get("/console/epochs").text

        out, page = told()
        assert "the first one runs once pages are registered" in out
        assert "The first one runs a second after the first page" in page
        live.register(URL)
        out, page = told()
        assert "none yet: is `recrawl worker` running?" in out
        assert '<code class="line">recrawl worker</code>' in page
        live.client.post("/epochs")  # waits for a worker too
        assert "none yet: is `recrawl worker` running?" in told()[0]


def test_where_the_server_runs_epochs_the_first_one_is_awaited(recrawl, terminal, api: Live):
    api.register(URL)
    assert "none yet; the first one runs" in recrawl("status", url=api.url).out


def test_a_service_that_is_not_ready_ends_with_status_1(recrawl, terminal, api, monkeypatch):
    def unavailable(**_):
        raise StoreUnavailable("the disk has gone", check="connection")

    monkeypatch.setattr(api.service.store, "check_ready", unavailable)
    ended = recrawl("status", url=api.url)
    last = ended.out.splitlines()[-1]
    assert ended.status == 1
    assert last.split() == f"health not ready, at {api.url}: the disk has gone".split()
    with capture_logs():
        answer = json.loads(recrawl("status", "--json", url=api.url).out)
    assert answer == {"address": api.url, "health": "not ready", "reason": "the disk has gone"}


def test_why_a_page_is_crawled_is_explained(recrawl, learnt: Live):
    page = learnt.get("/pages", url=URL).json()
    for name in (URL, page["page_id"]):
        ended = recrawl("why", name, url=learnt.url)
        assert ended.status == 0
        lines = ended.out.splitlines()
        assert lines[:2] == [URL, page["why"]["sentence"]]
        assert lines[2].startswith(f"next crawl  {page['schedule']['next_crawl_at'][:10]} ")
        assert lines[3].startswith("last crawl  2026-05-01 11:00:00Z, ")
        none = "its change rate is assumed"
        assert lines[4] == f"evidence    0 intervals, 0 changes, 0 pings; {none}"
    assert json.loads(recrawl("why", URL, "--json", url=learnt.url).out) == page


def test_a_page_that_no_epoch_has_seen_has_a_reason_too(recrawl, api: Live):
    api.register(URL)
    lines = recrawl("why", URL, url=api.url).out.splitlines()
    assert lines[1].startswith("Start a crawler: no crawler has ever asked")
    assert "last crawl  never" in lines


def test_a_page_that_is_not_known_is_refused(recrawl, learnt: Live):
    assert f"no page has the url {URL}/x" in recrawl("why", f"{URL}/x", url=learnt.url).refusal()
    assert "absolute http" in recrawl("why", "nonsense", url=learnt.url).refusal()


def test_epochs_are_listed_newest_first(recrawl, terminal, learnt: Live):
    too_often(learnt)
    with capture_logs():
        learnt.epoch()
    out = " ".join(recrawl("epochs", url=learnt.url).out.split())
    assert " crawls │" in out
    assert re.search("2 │ failed │.*1 │ published │ 2026-05-01", out)
    assert "Bandwidth" in out
    listed = [
        json.loads(line) for line in recrawl("epochs", "--json", url=learnt.url).out.splitlines()
    ]
    assert listed == learnt.get("/epochs").json()["items"]
    (newest,) = recrawl("epochs", "--json", "--limit", 1, url=learnt.url).out.splitlines()
    assert json.loads(newest)["epoch"] == 2


def test_a_missing_key_is_asked_for_by_the_names_of_option_and_variable(recrawl, sqlite_url):
    with running(sqlite_url, api_keys=("secret",)) as api:
        for command in ONE_SHOT:
            sentence = recrawl(*command, url=api.url).refusal()
            assert "valid API key" in sentence
            assert "by --api-key or RECRAWL_API_KEY" in sentence
        assert recrawl("status", url=api.url, api_key="secret").status == 0


# -- a service that is away


@pytest.mark.dear
@pytest.mark.parametrize("command", ONE_SHOT)
def test_a_service_that_is_down_is_told_soon_with_what_to_do(recrawl, command):
    started = time.monotonic()
    sentence = recrawl(*command, url="http://127.0.0.1:1").refusal()
    assert time.monotonic() - started < options.PATIENCE_S / 2, "it did not wait for the service"
    assert "http://127.0.0.1:1/" in sentence
    assert "Start it by `recrawl serve`, or name its address by --to or RECRAWL_URL" in sentence


def test_a_service_whose_database_is_away_is_not_taken_for_one_that_is_down(
    recrawl, api: Live, monkeypatch
):
    def unavailable(**_):
        raise StoreUnavailable

    monkeypatch.setattr(api.service.store, "begin", unavailable)
    with capture_logs():
        sentence = recrawl("epochs", url=api.url).refusal()
    assert "503" in sentence
    assert "its database is away: try again" in sentence


def test_a_command_shows_the_remedy_of_a_schema_that_is_behind(recrawl, api: Live, monkeypatch):
    def behind(**_):
        raise SchemaBehind

    monkeypatch.setattr(api.service.store, "begin", behind)
    with capture_logs():
        sentence = recrawl("why", URL, url=api.url).refusal()
    assert "answered 503: The database is not at the revision" in sentence
    assert "run `recrawl migrate`" in sentence
    assert "try again" not in sentence


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"detail": null}', b"\xff"],
)
def test_a_problem_without_a_detail_leaves_the_usual_remedy(content):
    answer = httpx.Response(
        503, headers={"Content-Type": "application/problem+json"}, content=content
    )
    notice = remedies.Notice("", print)
    notice._answered(answer)
    error = remedies.explained(Unavailable("GET /: it answered 503"), notice)
    assert str(error) == f"GET /: it answered 503{remedies.LATER}"


@pytest.mark.dear
def test_a_command_that_waits_says_so(recrawl, tmp_path, monkeypatch):
    (tmp_path / "pages.csv").write_text(f"url\n{URL}\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setattr(options, "PATIENCE_S", 5.0)
    ended = recrawl("import", "pages.csv", url=url)
    assert ended.status == 2
    assert f"waiting for {url}, which has not answered yet" in ended.err
    assert "is it running?" in ended.err


@pytest.mark.dear
def test_a_service_that_takes_its_time_is_waited_for_with_a_notice(recrawl, api: Live, monkeypatch):
    begin, notice = api.service.store.begin, threading.Event()

    def slow(**options):
        assert notice.wait(60)
        return begin(**options)

    monkeypatch.setattr(api.service.store, "begin", slow)
    monkeypatch.setattr(options.console, "print", lambda *_, **__: notice.set())
    assert recrawl("epochs", "--json", url=api.url).status == 0
    assert notice.is_set()


def test_no_timer_is_left_behind(recrawl, api: Live):
    def timers():
        threads = [t for t in threading.enumerate() if isinstance(t, threading.Timer)]
        return [t for t in threads if t.function.__module__ == remedies.__name__]

    assert recrawl("epochs", url=api.url).status == 0
    until(lambda: not timers(), "the timer has ended")


@pytest.mark.dear
def test_a_missing_package_of_the_plot_is_named(recrawl, monkeypatch, tmp_path):
    monkeypatch.setattr("recrawl_lab.cli.demo.find_spec", lambda _: None)
    arguments = ("--pages", 20, "--days", 2, "--plot", tmp_path / "plot.png")
    ended = recrawl("demo", *arguments)
    assert ended.status == 0, ended.err
    assert "pip install matplotlib" in ended.err


def test_a_port_in_use_is_refused_in_our_words(recrawl, sqlite_url):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = recrawl("serve", "--port", port, database_url=sqlite_url).refusal()
    assert f"127.0.0.1:{port}" in sentence
    assert "the port is in use; end the program that listens there, or choose another" in sentence


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("192.0.2.1", "this machine has no such address"),
        ("no.such.invalid", "no address has this name"),
    ],
)
def test_an_address_that_is_not_of_this_machine_is_refused(recrawl, sqlite_url, host, says):
    settings = {"database_url": sqlite_url, "open": "true"}
    sentence = recrawl("serve", "--host", host, "--port", 0, **settings).refusal()
    assert says in sentence
