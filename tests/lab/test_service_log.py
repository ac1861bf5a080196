"""The log of a service as a recording: its pages, its changes, what it assumes, its replay."""

import csv

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.archive_cases import Log
from support.live_server import START, running
from support.savings_cases import FAST, URLS, play

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.service_log import read_service_log

pytestmark = pytest.mark.dear

ZERO = START.timestamp()


def rng():
    return np.random.default_rng(1)


@pytest.fixture
def live(database_url):
    with running(database_url) as live, capture_logs():
        yield live


def test_a_page_lives_from_its_first_crawl_to_its_last_and_changes_between_two(live):
    play(live, 31)
    recording = read_service_log(live.service.store, rng=rng())
    assert sorted(recording.url) == sorted(URLS)
    assert recording.started.tolist() == [ZERO] * len(URLS)
    days = (recording.ended - ZERO) / 86_400
    assert days.tolist() == [30] * len(URLS)
    n_changes = np.bincount(recording.changed_page, minlength=len(URLS))
    of_page = dict(zip(recording.url, n_changes.tolist(), strict=True))
    assert [of_page[url] for url in URLS] == [30] * FAST + [0] * 15
    at = (recording.changed_at - ZERO) / 86_400
    first = np.sort(at[recording.changed_page == recording.url.index(URLS[0])])
    assert (np.ceil(first) == np.arange(1, 31)).all()
    assert len(np.unique(first % 1)) == 30
    world = recorded_world(recording, rng=rng())
    assert world.days == 30
    assert any("between" in note for note in world.notes)
    assert "crawls of 20 pages, 3.1 days apart on average" in " ".join(world.notes)


def test_a_page_found_gone_ends_between_the_last_two_crawls(live):
    play(live, 11)
    for hours in (12, 12, 24):
        at = live.clock.advance(hours=hours).isoformat()
        live.post("/observations", [{"url": URLS[0], "observed_at": at, "status": 404}])
    recording = read_service_log(live.service.store, rng=rng())
    lost, other = map(recording.url.index, URLS[:2])
    assert 10 < (recording.ended[lost] - ZERO) / 86_400 <= 12
    assert (recording.ended[other] - ZERO) / 86_400 == 10
    assert (recording.changed_at <= recording.ended[recording.changed_page]).all()
    assert (recording.changed_page == lost).sum() == 10


def test_a_log_without_two_crawls_of_a_page_is_refused(live):
    live.register(*URLS)
    with pytest.raises(InvalidTrace, match="RECRAWL_RETENTION_DAYS"):
        read_service_log(live.service.store, rng=rng())


@pytest.mark.dear
def test_an_archived_log_is_read_too(database_url, tmp_path):
    log = Log(database_url, f"file://{tmp_path / 'archive'}")
    try:
        before = read_service_log(log.store, rng=rng())
        log.run()
        after = read_service_log(log.store, rng=rng())
    finally:
        log.store.close()
    assert before.url == after.url
    for name in ("started", "ended", "changed_page", "changed_at", "importance"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


def test_the_command_replays_the_log_of_a_database(recrawl, sqlite_url):
    with running(sqlite_url) as live, capture_logs():
        play(live, 61)
    options = ("--policies", "uniform,recrawl", "--bandwidth", "6", "--processes", "1")
    ended = recrawl("replay", "--database", sqlite_url, *options)
    assert ended.status == 0, ended.err
    assert "the service's own log: 20 pages, 60 days" in ended.out
    assert "less staleness than uniform crawling" in ended.out
    assert "as logged" in ended.out
    both = recrawl("replay", "--database", sqlite_url, "--trace", "x")
    assert both.status == 2
    assert "exclude" in both.err
    absent = recrawl("replay", "--database", "sqlite:///absent.db")
    assert absent.status == 2


def test_the_crawls_of_the_log_are_a_policy_beside_others_with_as_many(
    recrawl, sqlite_url, tmp_path
):
    with running(sqlite_url) as live, capture_logs():
        play(live, 61)
        recording = read_service_log(live.service.store, rng=rng())
    options = ("--policies", "uniform", "--processes", "1", "--out", str(tmp_path))
    assert recrawl("replay", "--database", sqlite_url, *options).status == 0
    with (tmp_path / "policies.csv").open() as file:
        rows = {row["policy"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["as logged", "uniform"]
    n_crawls = {name: int(row["n_crawls"]) for name, row in rows.items()}
    assert n_crawls["as logged"] == len(recording.crawled_at)
    assert n_crawls["uniform"] == pytest.approx(n_crawls["as logged"], rel=0.01)
    refused = recrawl("replay", "--pages", "9", "--policies", "as logged")
    assert refused.status == 2
    assert "--database" in refused.err
