"""The PoliteCrawling data set becomes pages and states, as if its crawls had been reported."""

from datetime import timedelta

import numpy as np
import pytest
from support.polite_cases import Fleet
from support.store_cases import T0, crawl_columns, page_columns, same

from recrawl_lab.datasets.polite_import import import_polite
from recrawl_lab.datasets.polite_learning import Learning
from recrawl_lab.memory.store import MemoryStore
from service.core.estimators.gamma import Gamma
from service.core.estimators.lln import LLN
from service.core.estimators.mle import MLE
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.estimation.estimates import width
from service.estimation.rules import Rules
from service.ingest.record import record
from service.model.arrays import instant
from service.model.domain import Observability, Timing
from service.model.errors import NotExportable, UnreadableFile
from service.model.urls import normalise

GAMMA = Gamma()
WEEKS = timedelta(weeks=15)


def learning(estimator=GAMMA, timing=Timing.periodic, began=T0 - WEEKS):
    return Learning(estimator, timing, np.random.default_rng(1), instant(began), T0)


def imported(folder, store, how=None, standing=None):
    return list(import_polite(folder, store, how or learning(), standing or {}))


def contents(store):
    with store.begin(write=False) as tx:
        return tx.read_pages(0, 200_000)


def by_url(store):
    pages, states = contents(store)
    return {url: i for i, url in enumerate(pages.url)}, pages, states


def test_pages_importances_and_observabilities(sql_store, tmp_path):
    fleet = Fleet(300)
    steps = imported(fleet.write(tmp_path), sql_store)
    assert sum(step.created for step in steps) == 300
    assert sum(step.restored for step in steps) == 300
    assert [step.skipped for step in steps if step.skipped] == []
    row, pages, states = by_url(sql_store)
    for i in range(300):
        at = row[fleet.url(i)]
        assert pages.importance[at] == max(fleet.importance[i], 1e-9)
        watched = Observability.complete if fleet.complete[i] else Observability.incomplete
        assert states.observability[at] == watched


def test_states_are_those_that_reports_of_the_same_crawls_leave(tmp_path):
    fleet = Fleet(40, n_crawls=12)
    store = MemoryStore(2)
    imported(fleet.write(tmp_path), store)
    reported = MemoryStore(2)
    rules = Rules(Gamma(), Timing.periodic, np.random.default_rng(1))
    with reported.begin() as tx:
        watched = np.where(fleet.complete, Observability.complete, Observability.incomplete)
        pages = page_columns([fleet.url(i) for i in range(40)], observability=watched)
        page_id = tx.register(pages, T0 - WEEKS).page_id
        for i in range(40):
            offset, changed = fleet.histories[i]
            days = fleet.first[i] + np.concatenate([[0], np.cumsum(offset)])
            at = instant(T0 - WEEKS) + np.rint(days * 86_400e6).astype("m8[us]")
            record(
                tx,
                crawl_columns(
                    np.full(len(at), page_id[i]), at, changed=np.concatenate([[0], changed])
                ),
                rules,
            )
    row, _, states = by_url(store)
    other_row, _, others = by_url(reported)
    order = [row[url] for url in other_row]
    states = states.take(np.array(order))
    np.testing.assert_allclose(states.estimate, others.estimate, rtol=1e-9, atol=1e-12)
    for name in ("n_observations", "n_changes", "digest", "gone"):
        np.testing.assert_array_equal(getattr(states, name), getattr(others, name))
    for name in ("last_crawl_at", "last_observed_at"):
        apart = getattr(states, name) - getattr(others, name)
        assert (abs(apart) <= np.timedelta64(1, "us")).all()


def test_a_page_with_complete_observations_has_its_change_rate_in_pings(tmp_path):
    fleet = Fleet(400, complete_share=0.5)
    store = MemoryStore(2)
    imported(fleet.write(tmp_path), store)
    row, _, states = by_url(store)
    at = np.array([row[fleet.url(i)] for i in np.flatnonzero(fleet.complete)])
    rate = fleet.rate[fleet.complete]
    np.testing.assert_allclose(states.n_pings[at] / WEEKS.days, rate, atol=0.5 / WEEKS.days)
    assert not states.n_observations[at].any()
    rest = np.setdiff1d(np.arange(400), at)
    assert not states.n_pings[rest].any()


def test_an_epoch_runs_on_the_imported_pages(sql_store, tmp_path):
    imported(Fleet(300).write(tmp_path), sql_store)
    epoch = run_epoch(sql_store, Plan(Gamma()), lambda: T0)
    assert epoch.certificate is not None, epoch.reason
    assert epoch.certificate.n_pages == 300


def test_importing_twice_changes_nothing(sql_store, tmp_path):
    folder = Fleet(200).write(tmp_path)
    imported(folder, sql_store)
    before = contents(sql_store)
    steps = imported(folder, sql_store)
    assert sum(step.created + step.restored for step in steps) == 0
    for old, new in zip(before, contents(sql_store), strict=True):
        same(old, new)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("cut", range(1, 11))
def test_an_interrupted_import_goes_on_where_it_stopped(tmp_path, monkeypatch, cut):
    """Cut after every step; blocks are made small so that there are several of each kind."""
    monkeypatch.setattr("recrawl_lab.datasets.polite.read_urls.__defaults__", (60,))
    monkeypatch.setattr("recrawl_lab.datasets.polite.read_histories.__defaults__", (60,))
    folder = Fleet(200).write(tmp_path)
    whole, parts = MemoryStore(2), MemoryStore(2)
    imported(folder, whole)
    steps = import_polite(folder, parts, learning(), {})
    done = [next(steps) for _ in range(cut)]
    steps.close()
    rest = imported(folder, parts, standing=done[-1].standing)
    assert sum(step.created for step in [*done, *rest]) == 200
    assert sum(step.restored for step in [*done, *rest]) == 200
    for ours, theirs in zip(contents(whole), contents(parts), strict=True):
        for name in ("url", "estimate", "last_crawl_at", "n_pings"):
            if hasattr(ours, name):
                np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_what_does_not_fit_together_is_named_by_file_and_line(tmp_path):
    folder = Fleet(50).write(tmp_path)
    for name, row in (
        ("url_urlid_hostid", "https://a.example/none\t1001\t1"),
        ("url_urlid_hostid", "ftp://a.example/\t1002\t1"),
        ("urlid_imp", "1002\t7"),
        ("urlid_offset_history", "1003\t1\t[[1, 0]]"),
        ("urlid_offset_history", "1004\t1\t[[1, 0"),
        ("urlid_chrate_compl_obs_hist", "1001\tfast"),
    ):
        path = folder / f"{name}.txt"
        path.write_text(f"{path.read_text()}{row}\n")
    history = folder / "urlid_offset_history.txt"
    first = history.read_text().splitlines()
    beyond = first[0].split("\t")
    first[0] = f"{beyond[0]}\t400\t{beyond[2]}"
    history.write_text("\n".join(first) + "\n")
    steps = imported(folder, MemoryStore(2))
    told = {
        (skipped.path.stem, skipped.line): skipped.reason
        for step in steps
        for skipped in step.skipped
    }
    n_rates = len((folder / "urlid_chrate_compl_obs_hist.txt").read_text().splitlines())
    for where, says in {
        ("url_urlid_hostid", 51): "URL_ID 1001 has no importance",
        ("url_urlid_hostid", 52): "send http or https",
        ("urlid_offset_history", 51): "URL_ID 1003 has no page",
        ("urlid_offset_history", 52): "truncated",
        ("urlid_offset_history", 1): "beyond now; import with an earlier --began",
        ("urlid_chrate_compl_obs_hist", n_rates): "not a number",
    }.items():
        assert says in told.pop(where)
    assert told == {}
    assert sum(step.restored for step in steps) == 49


def test_two_urls_of_one_id_are_refused_before_any_state_is_written(tmp_path):
    folder = Fleet(50).write(tmp_path)
    path = folder / "url_urlid_hostid.txt"
    first = path.read_text().splitlines()[0].split("\t")
    path.write_text(f"{path.read_text()}https://a.example/twice\t{first[1]}\t1\n")
    store = MemoryStore(2)
    with pytest.raises(UnreadableFile, match=f"URL_ID {first[1]} appears more than once"):
        imported(folder, store)
    assert not contents(store)[1].n_observations.any()


def test_an_estimator_that_needs_the_crawl_rate_is_told_the_pages_own(tmp_path):
    fleet = Fleet(100)
    store = MemoryStore(width(LLN()))
    imported(fleet.write(tmp_path), store, learning(LLN(), Timing.poisson))
    row, _, states = by_url(store)
    assert normalise(fleet.url(0)).url in row
    learnt = states.estimate[states.observability == Observability.incomplete]
    assert (learnt != 0).any(axis=1).all()


def test_an_estimator_that_needs_the_log_is_refused(tmp_path):
    with pytest.raises(NotExportable, match="mle needs the observation log"):
        imported(tmp_path, MemoryStore(1), learning(MLE()))
