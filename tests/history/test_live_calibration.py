"""The live calibration: a replay through a real store against `recrawl replay`."""

from dataclasses import replace

import numpy as np
import pytest
from support.sim_cases import world_of

from recrawl_lab.policies.lineup import DEFAULT_PLAN
from recrawl_lab.replay.calibration import calibration
from recrawl_lab.replay.playing import Due, crawl
from recrawl_lab.replay.replay import LocalFleet, replay
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.simulated_time import START, Clock
from service.core import calibration as core
from service.core.estimators import make_estimator
from service.estimation.estimates import width
from service.history.counting import HistoryCounter
from service.history.reading import read_rows
from service.history.steps import HistoryKeeper
from service.model.history import ALL_HOSTS, STEP, merged_calibrations
from service.model.urls import key_of
from service.storage import open_store

DAYS, PAGES, DIRECTORIES, BANDWIDTH = 90.0, 240, 12, 40.0
TOLERANCE = 0.005


def url_of(number):
    return f"https://site.example/d{number % DIRECTORIES}/{number}"


def site(rng):
    """A site whose directories change together now and then.

    Pages are in the order of their keys, so that every store gives them the same ids and jitter.
    """
    number = sorted(range(PAGES), key=lambda i: key_of(url_of(i)))
    rate = rng.gamma(0.8, 0.08, PAGES)
    changes = [rng.uniform(0, DAYS, rng.poisson(r * DAYS)).tolist() for r in rate]
    for directory in range(DIRECTORIES):
        for at in rng.uniform(0, DAYS, 4):
            for page in range(PAGES):
                if number[page] % DIRECTORIES == directory and rng.random() < 0.5:
                    changes[page].append(at + rng.uniform(0, 0.01))
    world = world_of(changes, DAYS)
    return replace(world, url=tuple(map(url_of, number)))


def pings(world, rng):
    """True pings of most changes of a third of the pages, and as many false ones."""
    page, at = world.changed_page, world.changed_at
    sent = (page % 3 == 0) & (rng.random(len(page)) < 0.8)
    false = rng.choice(np.arange(0, PAGES, 3), int(sent.sum()) // 2)
    pages = np.concatenate([page[sent], false])
    instants = np.concatenate([at[sent] + 1e-3, rng.uniform(0, DAYS, len(false))])
    order = np.argsort(instants, kind="stable")
    inside = order[instants[order] < DAYS]
    return Crawls(pages[inside], instants[inside])


class NotedFleet(LocalFleet):
    """A fleet that notes the crawls of each step."""

    def __init__(self, *of):
        super().__init__(*of)
        self.steps = []

    def crawl(self, crawls):
        self.steps.append(crawls)
        return super().crawl(crawls)


class StoredFleet(LocalFleet):
    """A fleet that reports the crawls of another one to a database, which keeps the history."""

    def __init__(self, world, clock, plan, seed, store, steps):
        super().__init__(world, clock, plan, seed)
        self.store, self.steps = store, iter(steps)
        self.store.clock = clock
        self.store.counter = HistoryCounter(store)
        self.keeper = HistoryKeeper(store, plan.estimator, None, clock)
        with store.begin() as tx:
            tx.set_estimator(plan.estimator.name)

    def due(self, _):
        none = np.zeros(0)
        return Due(none.astype(np.int64), none, none, none)

    def crawl(self, _):
        return super().crawl(next(self.steps))

    def _date_births(self, *_):
        """Leave the births to registrations, as the service does."""

    def _look_at_hours(self):
        """Keep the usual epochs: this site has no hours."""

    def new_epoch(self):
        self.store.counter.write()
        super().new_epoch()
        self.keeper.keep()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "estimator"), [("sqlite", "bursty"), ("postgres", "gamma")])
def test_a_replay_through_the_service_has_the_calibration_error_of_a_replay(
    request, kind, estimator
):
    rng = np.random.default_rng(5)
    world = site(rng)
    notices = pings(world, rng)
    plan = replace(
        DEFAULT_PLAN,
        estimator=make_estimator(estimator, half_life_days=180),
        bandwidth=BANDWIDTH,
        change_hours=False,
    )
    noted = NotedFleet(world, clock := Clock(), plan, 3)
    for _ in crawl(noted, clock, notices, BANDWIDTH, 1.0):
        pass
    expected = calibration(noted.predicted)
    same = calibration(replay(world, BANDWIDTH, plan, notices=notices, seed=3).predicted)
    assert expected.expected_error == same.expected_error
    store = open_store(request.getfixturevalue(f"{kind}_url"), width(plan.estimator))
    clock = Clock()
    fleet = StoredFleet(world, clock, plan, 3, store, noted.steps)
    for _ in crawl(fleet, clock, notices, BANDWIDTH, 1.0):
        pass
    store.counter.write()
    fleet.keeper.keep()
    with store.begin(write=False) as tx:
        end = clock() + STEP
        rows, following = read_rows(tx, ALL_HOSTS, START, end, STEP, 20_000)
    store.close()
    assert following is None
    sums = merged_calibrations(row.calibrations for row in rows)
    assert list(sums) == [estimator]
    live = core.calibration(sums[estimator])
    n = sums[estimator].n.sum()
    assert n > 2_000
    assert n == pytest.approx(expected.n_predictions.sum(), rel=0.02)
    assert live.expected_error == pytest.approx(expected.expected_error, abs=TOLERANCE)
    assert live.log_loss == pytest.approx(expected.log_loss, abs=TOLERANCE)
    assert live.log_loss_constant == pytest.approx(expected.log_loss_constant, abs=TOLERANCE)
