"""`recrawl status`, `why` and `epochs`, and what commands say of a service that is away."""

import json
import re
import socket
import threading
import time

import pytest
from structlog.testing import capture_logs
from support.live_server import Live, running, until

from service.cli import options, remedies
from service.model.errors import StoreUnavailable

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


def test_a_service_without_pages_says_so(recrawl, api: Live):
    ended = recrawl("status", "--to", api.url)
    assert ended.status == 0
    shown = dict(line.split(None, 1) for line in ended.out.splitlines())
    assert shown["health"].endswith(f"at {api.url}")
    assert shown["epoch"].startswith("none yet")
    assert shown["queue"] == "no crawl is queued, 0 reports wait to be written"


def test_the_state_of_a_service_is_shown(recrawl, learnt: Live):
    learnt.clock.advance(minutes=5)
    ended = recrawl("status", url=learnt.url)
    assert ended.status == 0
    shown = dict(line.split(None, 1) for line in ended.out.splitlines())
    assert shown["pages"] == "2"
    assert shown["budget"] == "0.2 crawls a day, 0.2 scheduled"
    assert re.fullmatch("1, published .* ago|1, published in .*", shown["epoch"])
    assert shown["queue"].startswith("a crawl has been ready for ")
    state = json.loads(recrawl("status", "--json", url=learnt.url).out)
    assert (state["health"], state["epoch"]["n_pages"], state["waiting_items"]) == ("ok", 2, 0)
    assert state["epoch"] == learnt.get("/epochs/1").json()
    assert state["newest_epoch"] == {**state["epoch"], "calibration": None}


def test_the_last_step_of_the_history_is_shown(recrawl, learnt: Live):
    learnt.clock.advance(minutes=10)
    learnt.service.runner.run_once()
    row = learnt.get("/history").json()["items"][-1]
    shown = dict(line.split(None, 1) for line in recrawl("status", url=learnt.url).out.splitlines())
    assert shown["fresh"].startswith(f"{row['fresh_share']:.1%} of copies, by importance, ")
    figures, measured = shown["fresh"].rsplit(", ", 1)
    assert figures.endswith(f"{row['n_overdue']} overdue")
    assert re.fullmatch(r"measured [\d.,]+ days ago", measured)
    assert shown["crawls"] == (
        f"{row['n_reported']} in ten minutes, {row['n_changed']} found changes, {measured}"
    )


@pytest.mark.dear
def test_without_a_worker_status_and_console_ask_for_one(recrawl, postgres_url):
    with running(postgres_url) as live:

        def shown():
            return recrawl("status", url=live.url).out, live.get("/console/epochs").text

        told, page = shown()
        assert "the first one runs once pages are registered" in told
        assert "The first one runs a second after the first page." in page
        live.register(URL)
        told, page = shown()
        assert "epoch    none yet: is `recrawl worker` running?" in told
        assert "None yet: is <code>recrawl worker</code> running?" in page
        live.client.post("/epochs")  # waits for a worker too
        assert "none yet: is `recrawl worker` running?" in shown()[0]


def test_where_the_server_runs_epochs_the_first_one_is_awaited(recrawl, api: Live):
    api.register(URL)
    assert "none yet; the first one runs" in recrawl("status", url=api.url).out


def test_a_failed_epoch_is_shown_beside_the_one_in_force(recrawl, learnt: Live):
    too_often(learnt)
    with capture_logs():
        assert learnt.epoch()["status"] == "failed"
    out = recrawl("status", url=learnt.url).out
    assert "epoch    1, published" in out
    assert "warning  epoch 2 failed: BandwidthInfeasible" in out


def test_a_service_that_is_not_ready_ends_with_status_1(recrawl, api: Live, monkeypatch):
    def unavailable(**_):
        raise StoreUnavailable("the disk has gone", check="connection")

    monkeypatch.setattr(api.service.store, "check_ready", unavailable)
    ended = recrawl("status", url=api.url)
    last = ended.out.splitlines()[-1]
    assert (ended.status, last) == (1, f"health   not ready, at {api.url}: the disk has gone")
    with capture_logs():
        state = json.loads(recrawl("status", "--json", url=api.url).out)
    assert state == {"address": api.url, "health": "not ready", "reason": "the disk has gone"}


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
    assert lines[1].startswith("Start a crawler: no crawler has asked for leases")
    assert "last crawl  never" in lines


def test_a_page_that_is_not_known_is_refused(recrawl, learnt: Live):
    assert f"no page has the url {URL}/x" in recrawl("why", f"{URL}/x", url=learnt.url).refusal()
    assert "absolute http" in recrawl("why", "nonsense", url=learnt.url).refusal()


def test_epochs_are_listed_newest_first(recrawl, learnt: Live):
    too_often(learnt)
    with capture_logs():
        learnt.epoch()
    out = " ".join(recrawl("epochs", url=learnt.url).out.split())
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
    [("192.0.2.1", "this machine has no such address"), ("no.such.invalid", "choose another")],
)
def test_an_address_that_is_not_of_this_machine_is_refused(recrawl, sqlite_url, host, says):
    settings = {"database_url": sqlite_url, "open": "true"}
    sentence = recrawl("serve", "--host", host, "--port", 0, **settings).refusal()
    assert says in sentence
