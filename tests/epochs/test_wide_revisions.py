"""Wide revisions in an epoch: found, made urgent, hardly learnt; no effect without evidence."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.ingest_cases import crawl, estimate, rules
from support.plain_revisions import plainly_revised
from support.store_cases import T0, page_of, register
from support.urgency_cases import DAY, HOUR, NO_CAPS, NOW, corpus, known, urgency

from recrawl_lab.memory.store import MemoryStore
from service.core.estimators.gamma import Gamma
from service.core.estimators.mle import MLE
from service.core.prior import Prior
from service.core.quiet_intervals import find
from service.core.wide_revisions import WideRevisions
from service.epochs import wide_revisions as module
from service.epochs.wide_revisions import ENOUGH, revised
from service.estimation.estimates import width
from service.model.arrays import instant
from service.model.domain import Observability

QUIETLY = Gamma(Prior(a=0.3, b=300.0))
LAST = NOW - 6 * HOUR


def site(n=400, share=0.9, ago=2.0, seed=1, **given):
    """Return pages that are crawled every 30 days; a share of them changed `ago` days before now.

    None has changed else.
    """
    pages, _ = corpus(n, seed)
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 30, n)
    hit = rng.random(n) < share
    interval = np.where((age < ago) & hit, 30.0, -30.0)
    changes = np.where(interval > 0, 1.0, 0.0)
    observed = NOW - (age * 86_400e6).astype("m8[us]")
    values = {
        "last_observed_at": observed,
        "last_interval": interval,
        "estimate": np.column_stack((changes, np.full(n, 400.0))),
        "host_id": np.ones(n, np.int64),
    }
    return replace(pages, **(values | given)), age, hit


def test_most_pages_are_due_after_a_revision_was_seen():
    pages, age, hit = site(n=2_000)
    found = revised(pages, QUIETLY, None, LAST, NOW)
    assert found.revisions.host_id.tolist() == [1]
    first = age[(age < 2.0) & hit].max()
    assert float((NOW - found.revisions.at[0]) / DAY) == pytest.approx(first, abs=1e-9)
    assert found.revisions.share[0] == pytest.approx(0.9, abs=0.15)
    assert (found.hazard > 0).tolist() == (age > first).tolist()
    rates = np.full(2_000, 1 / 30)
    plain = urgency(pages, known(2_000, 0.001), rates, NO_CAPS, NOW)
    more = urgency(pages, known(2_000, 0.001), rates, NO_CAPS, NOW, hazard=found.hazard)
    wanted = plain.of_pages + found.hazard / (0.001 * np.maximum(age, 1e-3))
    np.testing.assert_allclose(more.of_pages, np.minimum(wanted, 1000.0), rtol=1e-9)


def test_a_known_revision_is_not_found_again_and_goes_on_until_all_pages_are_crawled():
    pages, *_ = site()
    before = revised(pages, QUIETLY, None, LAST, NOW)
    again = revised(pages, QUIETLY, before.revisions, LAST, NOW)
    assert again.revisions.at.tolist() == before.revisions.at.tolist()
    np.testing.assert_array_equal(again.hazard, before.hazard)
    since = replace(
        pages, last_observed_at=np.maximum(pages.last_observed_at, before.revisions.at[0])
    )
    assert revised(since, QUIETLY, before.revisions, NOW, NOW).hazard is None
    later = revised(pages, QUIETLY, before.revisions, LAST, NOW + 300 * DAY)
    assert (later.revisions, later.hazard) == (None, None)


def test_pages_that_change_at_one_hour_of_each_day_prove_no_revision():
    pages, *_ = site(share=0.0)
    live = np.arange(400) < 12
    pages = replace(
        pages,
        last_observed_at=np.where(live, NOW - HOUR, pages.last_observed_at),
        last_interval=np.where(live, 1 / 48, pages.last_interval),
        estimate=np.where(live[:, None], [[400.0, 100.0]], pages.estimate),
    )
    assert revised(pages, QUIETLY, None, LAST, NOW) == (None, None)
    # a page that never changed before is a witness, however short its interval was
    pages.estimate[live] = [1.0, 400.0]
    assert revised(pages, QUIETLY, None, LAST, NOW).revisions.host_id.tolist() == [1]


def hosts(seed, n=4_000, n_hosts=90):
    """Return pages of hosts of all sizes; two thirds of the hosts have a revision of their own."""
    rng = np.random.default_rng(seed)
    host = 1 + np.floor(n_hosts * rng.random(n) ** 2).astype(int)
    age, length = rng.uniform(0, 30, n), rng.uniform(5, 40, n)
    at, share = rng.uniform(0, 8, n_hosts + 1)[host], rng.choice([0, 0.3, 0.9], n_hosts + 1)[host]
    hit = (age < at) & (age + length > at) & (rng.random(n) < share)
    changed = hit | (rng.random(n) < 0.03)
    pages, _ = corpus(n, seed)
    return replace(
        pages,
        host_id=host,
        url_group=host * 3 + rng.integers(0, 3, n),
        importance=1.0 * (rng.random(n) > 0.02),
        n_pings=(rng.random(n) < 0.02).astype(np.int64),
        last_observed_at=NOW - (age * 86_400e6).astype("m8[us]"),
        last_interval=np.where(changed, length, -length) * (rng.random(n) > 0.02),
        estimate=np.column_stack((1.0 * changed, rng.uniform(100, 700, n))),
    )


def assert_as_plain(pages, known, since, now):
    found = revised(pages, QUIETLY, known, since, now)
    revisions, hazard = plainly_revised(pages, QUIETLY, known, since, now)
    if revisions is None:
        assert found == (None, None)
        return None
    assert found.revisions.host_id.tolist() == revisions.host_id.tolist()
    assert found.revisions.at.tolist() == revisions.at.tolist()
    np.testing.assert_allclose(found.revisions.share, revisions.share, rtol=1e-12)
    own = np.zeros(len(pages)) if found.hazard is None else found.hazard
    np.testing.assert_allclose(own, hazard, rtol=1e-12)
    return found.revisions


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.dear)])
@pytest.mark.parametrize("block", [97, 1 << 14])
def test_screens_and_blocks_change_no_digit(seed, block, monkeypatch):
    """Against whole columns, host by host and instant by instant, in two epochs."""
    monkeypatch.setattr(module, "BLOCK", block)
    pages = hosts(seed)
    known = assert_as_plain(pages, None, NOW - DAY, NOW)
    assert len(known.at) >= 5
    assert_as_plain(pages, known.where(slice(0, None, 2)), NOW - 3 * HOUR, NOW + 3 * HOUR)
    far_apart = replace(pages, host_id=pages.host_id * 1_000_003)
    assert len(assert_as_plain(far_apart, None, NOW - DAY, NOW).at) == len(known.at)


def test_hosts_without_enough_changes_are_not_looked_at(monkeypatch):
    pages = hosts(3)
    few = pages.take(np.flatnonzero(pages.host_id > 80))
    looked = []
    monkeypatch.setattr(module, "find", lambda quiet: looked.append(quiet) or find(quiet))
    changed = few.last_interval > 0
    scarce = replace(few, host_id=np.where(changed, np.arange(len(few)) // 3, few.host_id))
    assert revised(scarce, QUIETLY, None, NOW - 30 * DAY, NOW) == (None, None)
    assert looked == []


def test_unchanged_intervals_are_read_only_of_hosts_whose_changes_alone_are_a_proof(monkeypatch):
    """Every host has new changes, at instants of their own; one host has a revision."""
    rng, n = np.random.default_rng(4), 6_000
    pages, _ = corpus(n, 4)
    host, age, length = np.arange(n) % 60, rng.uniform(0, 30, n), rng.uniform(5, 40, n)
    changed = rng.random(n) < 0.1
    looked, among = [], module.Quiet.among
    monkeypatch.setattr(
        module.Quiet, "among", lambda quiet, row: looked.append(len(row)) or among(quiet, row)
    )
    values = {
        "host_id": 1 + host,
        "last_observed_at": NOW - (age * 86_400e6).astype("m8[us]"),
        "last_interval": np.where(changed, length, -length),
        "estimate": np.tile([2.0, 400.0], (n, 1)),
    }
    assert assert_as_plain(replace(pages, **values), None, NOW - DAY, NOW) is None
    assert sum(looked) < 0.5 * n
    hit = (host == 7) & (age < 3) & (rng.random(n) < 0.9)
    values["last_interval"] = np.where(hit | changed, length, -length)
    found = assert_as_plain(replace(pages, **values), None, NOW - DAY, NOW)
    assert found.host_id.tolist() == [8]


def test_a_sample_of_a_large_host_is_enough():
    pages, *_ = site(n=3 * ENOUGH)
    found = revised(pages, QUIETLY, None, LAST, NOW)
    assert float((NOW - found.revisions.at[0]) / DAY) == pytest.approx(2.0, abs=0.02)


def test_each_host_has_its_own():
    pages, age, _ = site(n=1_200, share=1.0)
    host_id = 1 + np.arange(1_200) % 3
    spared = (host_id == 2) & (age < 2.0)
    interval = np.where(spared, -30.0, pages.last_interval)
    pages = replace(pages, host_id=host_id, last_interval=interval)
    found = revised(pages, QUIETLY, None, LAST, NOW)
    assert found.revisions.host_id.tolist() == [1, 3]
    assert set(host_id[found.hazard > 0]) == {1, 3}


@pytest.mark.parametrize(
    "given",
    [
        {"share": 0.0},
        {"n": 40, "share": 1.0},
        {"n_pings": np.ones(400, np.int64)},
        {"importance": np.zeros(400)},
        {"observability": np.full(400, int(Observability.complete), np.int16)},
    ],
    ids=["nothing changed", "few pages", "pings", "no importance", "announced"],
)
def test_without_evidence_nothing_is_known(given):
    pages, *_ = site(**given)
    assert revised(pages, QUIETLY, None, LAST, NOW) == (None, None)


def test_an_estimator_without_a_prior_and_a_first_epoch_know_nothing():
    pages, *_ = site()
    assert revised(pages, MLE(), None, LAST, NOW) == (None, None)
    assert revised(pages, QUIETLY, None, np.datetime64("NaT", "us"), NOW) == (None, None)


def test_without_a_hazard_the_urgency_is_that_of_siblings_bit_by_bit():
    pages, _ = corpus()
    rates = np.full(1_000, 0.1)
    plain = urgency(pages, known(1_000), rates, NO_CAPS, NOW)
    none = urgency(pages, known(1_000), rates, NO_CAPS, NOW, hazard=np.zeros(1_000))
    assert plain.of_pages.tobytes() == none.of_pages.tobytes()


def test_the_change_of_a_revision_hardly_teaches_a_page():
    """Pages of two hosts with a quiet history change; one of them by a revision of its host."""
    store = MemoryStore(width(Gamma()))
    own, by_revision = (register(store, 1, host=host)[0] for host in ("own.org", "wide.org"))
    host_id, at = np.array([page_of(store, by_revision).host_id]), np.array([instant(T0)])
    by = replace(rules(), revisions=WideRevisions(host_id, at + 95 * DAY, np.array([0.95])))
    for page_id in (own, by_revision):
        for day, changed in ((0, 0), (90, 0), (100, 1)):
            crawl(store, page_id, T0 + timedelta(days=day), by, changed=changed)
    more, less = estimate(store, own), estimate(store, by_revision)
    assert more[0] > 5 * less[0] > 0
    assert more[1] < less[1] < 100
