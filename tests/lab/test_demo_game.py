"""The demo: the fleet follows the schedule over HTTP, and its figures are those of its crawls."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

import httpx
import numpy as np
import pytest
from rich.console import Console
from support.sim_cases import crawls_of, world_of

from recrawl_lab.demo import fleet
from recrawl_lab.demo.fleet import Fleet
from recrawl_lab.demo.game import GameOutcome, GameResult, draw, explain, play, run
from recrawl_lab.replay import playing
from recrawl_lab.replay.playing import CARRIED_DAYS, Due, announcements, choose, crawl
from recrawl_lab.replay.staleness import Crawls, staleness
from recrawl_lab.worlds.scenario import Scenario, scenario, stages
from recrawl_lab.worlds.simulated_time import START, Clock, day_of, instant_of
from recrawl_lab.worlds.world import synthetic_world
from service.api.assembly import open_service
from service.api.server import running
from service.model.errors import UnexpectedAnswer
from service.runtime.settings import read_settings


def due_of(*rows):
    page, at, rate = zip(*rows, strict=True) if rows else ((), (), ())
    return Due(np.array(page, np.int64), np.array(at, float), np.array(rate, float))


def chosen(due, allowance, start=10.0, end=11.0):
    crawls = choose(due, start, end, allowance)
    return sorted(zip(crawls.page.tolist(), crawls.at.tolist(), strict=True))


def test_what_is_due_is_crawled_at_its_instant_and_what_is_overdue_at_once():
    due = due_of((0, 10.25, 0.5), (1, 7.0, 0.5), (2, 10.75, 0.1))
    assert chosen(due, allowance=9) == [(0, 10.25), (1, 10.0), (2, 10.75)]


def test_a_page_due_several_times_within_a_step_is_crawled_several_times():
    assert chosen(due_of((4, 10.125, 4.0)), allowance=9) == [
        (4, 10.125),
        (4, 10.375),
        (4, 10.625),
        (4, 10.875),
    ]


def test_short_of_budget_the_most_overdue_is_crawled_first():
    due = due_of((0, 9.0, 0.1), (1, 9.5, 2.0), (2, 10.9, 5.0))
    assert chosen(due, allowance=1) == [(1, 10.0)]
    assert chosen(due, allowance=2.9) == [(1, 10.0), (1, 10.5)]


def test_what_a_ping_asked_for_comes_before_everything_and_once():
    due = due_of((0, 5.0, 9.0), (1, 9.9, 0.0))
    assert chosen(due, allowance=1) == [(1, 10.0)]


@pytest.mark.parametrize("allowance", [0, -3, 0.99])
def test_without_budget_nothing_is_crawled(allowance):
    assert chosen(due_of((0, 5.0, 9.0)), allowance) == []
    assert chosen(due_of(), 5) == []


def test_simulated_time_only_moves_forward():
    clock = Clock()
    assert clock() == START
    clock.advance(2.0)
    clock.advance(1.0)
    assert clock() == START + timedelta(days=2)
    assert day_of(instant_of(3.25)) == 3.25


@pytest.fixture
def served(sqlite_url):
    """Serve a scenario's budget on simulated time; gives client, clock and what was asked."""

    def serve(bandwidth):
        clock = Clock()
        settings = read_settings(
            database_url=sqlite_url, bandwidth=bandwidth, epoch_interval_s=31_536_000
        )
        service = open_service(settings, now=clock, rng=np.random.default_rng(1))
        opened.append(running(service))
        base_url = opened[-1].__enter__()
        asked = []
        client = httpx.Client(base_url=base_url, event_hooks={"request": [asked.append]})
        opened.append(client)
        return client.__enter__(), clock, asked

    opened = []
    yield serve
    for context in reversed(opened):
        context.__exit__(None, None, None)


@pytest.mark.slow
def test_recrawl_beats_uniform_by_far_more_than_30_percent_over_http(served):
    small = scenario(n_pages=400, days=30)
    client, clock, asked = served(small.bandwidth)
    days = []
    result = play(client, small.world, clock, bandwidth=small.bandwidth, progress=days.append)
    assert result.gain > 0.3
    assert result.gap_closed > 0.7
    assert len(result.recrawl.crawls.at) <= small.bandwidth * 30
    for other in result.outcomes:
        assert len(other.crawls.at) == pytest.approx(len(result.recrawl.crawls.at), rel=0.005)
    assert days == pytest.approx(range(1, 31))
    assert {request.url.path for request in asked} >= {"/pages", "/observations", "/pings"}


@pytest.mark.dear
def test_the_service_was_told_every_crawl_and_ping_at_its_instant(served):
    small = scenario(n_pages=60, days=4)
    client, clock, asked = served(small.bandwidth)
    result = play(client, small.world, clock, bandwidth=small.bandwidth)

    def told(path, field):
        items = [i for r in asked if r.url.path == path for i in json.loads(r.content)]
        return sorted((i["page_id"], datetime.fromisoformat(i[field])) for i in items)

    def played(page, at):
        ids = [client.get("/pages", params={"url": url}).json()["page_id"] for url in world.url]
        return sorted((ids[p], instant_of(t)) for p, t in zip(page, at, strict=True))

    world, crawls = small.world, result.recrawl.crawls
    discovered = np.arange(60), world.created
    everything = [np.concatenate(pair) for pair in zip(discovered, crawls, strict=True)]
    assert told("/observations", "observed_at") == played(*everything)
    announced = world.announced[world.changed_page]
    pinged = played(world.changed_page[announced], world.changed_at[announced])
    assert told("/pings", "changed_at") == pinged


@pytest.mark.dear
def test_at_no_time_has_the_fleet_spent_more_than_a_week_ahead(served):
    small = scenario(n_pages=150, days=12)
    client, clock, _ = served(small.bandwidth)
    result = play(client, small.world, clock, bandwidth=small.bandwidth)
    per_day = np.histogram(result.recrawl.crawls.at, 12, (0, 12))[0]
    assert (np.cumsum(per_day) <= small.bandwidth * (np.arange(1, 13) + CARRIED_DAYS)).all()
    assert per_day.sum() == pytest.approx(small.bandwidth * 12, rel=0.05)


class IdleThenBusy:
    """A fleet for which nothing is due until day 5, then everything; pings ask for crawls."""

    def __init__(self, pings=()):
        changes = [list(pings), *([[]] * 99)]
        self.world = replace(world_of(changes), announced=np.arange(100) == 0)

    def discover(self, pages): ...

    def new_epoch(self): ...

    def step(self, usual):
        return usual

    def due(self, before):
        late = [(page, 5.0, 0.01) for page in range(1, 100)]
        return due_of(*(late if before > 5 else []))

    def announce(self, changes):
        return changes

    def crawl(self, crawls):
        return crawls


def per_day(fleet, bandwidth):
    played = crawl(fleet, Clock(), announcements(fleet.world), bandwidth, step=1.0)
    return [len(crawls.at) for _, crawls in played]


def test_bandwidth_left_over_is_kept_and_bandwidth_to_come_is_lent_for_as_long_as_said(monkeypatch):
    assert per_day(IdleThenBusy(), bandwidth=2.0) == [0, 0, 0, 0, 0, 26, 2, 2, 2, 2]
    monkeypatch.setattr(playing, "CARRIED_DAYS", 1.0)
    assert per_day(IdleThenBusy(), bandwidth=10.0) == [0, 0, 0, 0, 0, 30, 10, 10, 10, 10]
    monkeypatch.setattr(playing, "CARRIED_DAYS", 0.0)
    assert per_day(IdleThenBusy(), bandwidth=10.0) == [0, 0, 0, 0, 0, 10, 10, 10, 10, 10]


def test_crawls_on_pings_are_paid_from_the_same_budget(monkeypatch):
    monkeypatch.setattr(playing, "CARRIED_DAYS", 1.0)
    pings = [4.1, 4.2, 4.3, 4.4, 6.5, 6.6]
    assert per_day(IdleThenBusy(pings), bandwidth=2.0) == [0, 0, 0, 0, 4, 4, 2, 2, 2, 2]
    flood = [0.01 * k for k in range(1, 8)]
    assert per_day(IdleThenBusy(flood), bandwidth=1.0) == [7, 0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_a_last_step_that_is_cut_short_brings_its_part_of_the_budget(monkeypatch):
    monkeypatch.setattr(playing, "CARRIED_DAYS", 0.0)
    played = crawl(IdleThenBusy(), Clock(), Crawls.none(), 10.0, step=4.0)
    days, crawls = zip(*played, strict=True)
    assert days == (4.0, 8.0, 10.0)
    assert [len(c.at) for c in crawls] == [0, 40, 20]


@pytest.mark.dear
def test_pages_come_and_go_and_the_service_knows(served):
    changes = [[k + 0.5 for k in range(20)], [12.5], [3.5], []]
    world = world_of(changes, days=20.0, created=[0, 4.3, 0, 0], ended=[20.0, 20.0, 8.7, 20.0])
    client, clock, _ = served(4.0)
    result = play(client, world, clock, bandwidth=4.0)
    found = [client.get("/pages", params={"url": url}).status_code for url in world.url]
    assert found == [200, 200, 404, 200]
    lost = result.recrawl.crawls.at[result.recrawl.crawls.page == 2]
    assert (lost >= 8.7).sum() == 1
    young = result.recrawl.crawls.at[result.recrawl.crawls.page == 1]
    assert len(young) > 0
    assert young.min() > 4.3
    first = client.get("/pages", params={"url": world.url[0]}).json()
    assert first["estimate"]["n_changes"] > 3


def test_two_pages_that_are_one_to_the_service_are_refused_by_name(served):
    client, _, _ = served(4.0)
    world = replace(world_of([[], []]), url=("https://a.example/x", "https://A.example/b/../x"))
    with pytest.raises(UnexpectedAnswer, match=r"a\.example/x and https://A\.example/b/\.\./x"):
        Fleet(client, world).discover(np.arange(2))


@pytest.mark.dear
def test_a_reader_sees_bar_table_notes_and_plot(served, tmp_path):
    client, clock, _ = served(8.0)
    world = replace(synthetic_world(40, 6.0, rng=np.random.default_rng(2)), notes=("look here",))
    console = Console(record=True, width=150)
    plot, drawing = tmp_path / "staleness.png", tmp_path / "staleness.svg"
    result = run(client, Scenario(world, 8.0, 1.0), clock, console=console)
    explain(console)
    draw([result], plot)
    draw([result, result], drawing)
    shown = console.export_text()
    for outcome in result.outcomes:
        row = next(line for line in shown.splitlines() if f"│ {outcome.policy} " in line)
        assert f"{outcome.staleness.harmonic:.4f}" in row
        assert f"{len(outcome.crawls.at):,}" in row
    assert f"{result.gap_closed:.0%}" in shown
    assert "look here" in shown
    assert "40 pages over HTTP" in shown
    assert "1 + 1/2 + … + 1/n (staleness)" in shown
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert drawing.read_text().count(f"{result.stormcrawler.staleness.harmonic:.3f}") == 2


def outcome(name, harmonic):
    measured = staleness(world_of([[1.0]]), Crawls.none())
    return GameOutcome(name, crawls_of(), replace(measured, harmonic=harmonic))


def result_of(recrawl, uniform, hindsight):
    pairs = zip("rsuh", (recrawl, uniform, uniform, hindsight), strict=True)
    return GameResult(world_of([[1.0]]), 1.0, *(outcome(name, value) for name, value in pairs))


def test_the_share_of_the_gap_is_told_only_where_there_is_a_gap():
    assert result_of(0.6, 1.0, 0.5).gap_closed == pytest.approx(0.8)
    assert result_of(1.1, 1.0, 0.5).gap_closed == pytest.approx(-0.2)
    assert result_of(0.9, 1.0, 0.995).gap_closed is None
    assert result_of(0.0, 0.0, 0.0).gap_closed is None
    assert result_of(0.0, 0.0, 0.0).gain == 0.0
    assert result_of(0.6, 1.0, 0.5).gain == pytest.approx(0.4)


def test_the_stages_are_the_same_changes_with_pings_and_importance_added():
    base = scenario(n_pages=200, days=10)
    alike, pinged, weighted = (stage.world for stage in stages(base))
    for world in (alike, pinged, weighted):
        assert np.array_equal(world.changed_at, base.world.changed_at)
    assert not alike.announced.any()
    assert (alike.importance == 1).all()
    assert (pinged.importance == 1).all()
    assert pinged.announced.sum() == 8
    assert np.array_equal(weighted.importance, base.world.importance)
    assert pinged.name.startswith("4% of pages")


UNIX_ZERO = {"epoch": 3, "status": "requested", "reason": None}


FAILED = {**UNIX_ZERO, "status": "failed", "reason": "BandwidthInfeasible: too little"}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"/epochs": (503, {"detail": "no room"})}, "POST /epochs answered 503 .*no room"),
        (
            {"/epochs": (202, UNIX_ZERO), "/epochs/3": (200, FAILED)},
            "epoch 3 failed: BandwidthInfeasible: too little",
        ),
    ],
)
def test_an_epoch_that_fails_ends_the_demo_with_its_reason(answers, said):
    def answer(request):
        status, body = answers[request.url.path]
        return httpx.Response(status, json=body)

    client = httpx.Client(base_url="http://test", transport=httpx.MockTransport(answer))
    with pytest.raises(UnexpectedAnswer, match=said):
        Fleet(client, world_of([[]])).new_epoch()


def test_the_service_s_decisions_find_their_pings_across_batches(monkeypatch):
    monkeypatch.setattr(fleet, "MAX_ITEMS", 2)

    def answer(request):
        n_items = len(json.loads(request.content))
        decisions = [{"index": i, "crawl": i == n_items - 1} for i in range(n_items)]
        return httpx.Response(200, json={"rejected": [], "decisions": decisions})

    client = httpx.Client(base_url="http://test", transport=httpx.MockTransport(answer))
    pings = crawls_of((0, 1.0), (1, 2.0), (0, 3.0), (1, 4.0), (1, 5.0))
    asked = Fleet(client, world_of([[], []])).announce(pings)
    assert asked.at.tolist() == [2.0, 4.0, 5.0]
    assert asked.page.tolist() == [1, 1, 1]


COUNTS = {"accepted": 0, "duplicate": 0, "late": 0, "rejected": []}


@pytest.mark.parametrize(
    "body",
    [{**COUNTS, "rejected": [{"index": 0, "code": "invalid_url"}]}, {**COUNTS, "late": 1}],
)
def test_a_crawl_that_is_not_taken_ends_the_demo(body):
    def answer(request):
        return httpx.Response(200, json=body)

    client = httpx.Client(base_url="http://test", transport=httpx.MockTransport(answer))
    with pytest.raises(UnexpectedAnswer, match="POST /observations"):
        Fleet(client, world_of([[]])).crawl(crawls_of((0, 1.0)))
