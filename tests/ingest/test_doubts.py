"""What wrong 304 answers have taught is unlearnt: by the log, as if they had not been."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ingest_cases import HOUR, announce, crawl, log, rules
from support.store_cases import T0, page_of, publish, register, schedule_columns, states_of

from recrawl_lab.memory.store import MemoryStore
from service.core.estimators.stochastic import SA
from service.ingest.rebuild import rebuild

ETAG = np.array(['"v"'], object)


def plain(store, page, hour, digest, by=None):
    crawl(store, page, T0 + hour * HOUR, by, status=200, digest=digest, etag=ETAG)


def unchanged(store, page, hour, by=None):
    crawl(store, page, T0 + hour * HOUR, by, status=304, etag=ETAG)


def learnt(store, page):
    states = states_of(store, [page])
    return states.estimate.tolist(), states.n_observations.tolist(), states.n_changes.tolist()


@pytest.mark.parametrize("estimator", [None, SA()])
def test_a_page_has_learnt_what_it_would_have_without_its_wrong_304s(sql_store, estimator):
    lied_to, other = sorted(register(sql_store, 2).tolist())
    publish(sql_store, schedule_columns([lied_to, other], crawl_rate=2.0))
    by = rules(estimator)
    for page in (lied_to, other):
        plain(sql_store, page, 0, 1, by)
        unchanged(sql_store, page, 5, by)
        crawl(sql_store, page, T0 + 9 * HOUR, by, status=200, digest=2, etag=np.array(['"u"']))
        plain(sql_store, page, 10, 3, by)
    for hour in range(20, 30):
        unchanged(sql_store, lied_to, hour, by)
    for page in (lied_to, other):
        plain(sql_store, page, 40, 4, by)
    assert learnt(sql_store, lied_to) == learnt(sql_store, other)
    assert log(sql_store, lied_to)[0].interval == pytest.approx(30 / 24)
    before = states_of(sql_store, [lied_to])
    list(rebuild(sql_store, by))
    after = states_of(sql_store, [lied_to])
    np.testing.assert_allclose(after.estimate, before.estimate, rtol=1e-9)


def test_pings_of_the_whole_interval_are_weighed_again(sql_store):
    lied_to, other = sorted(register(sql_store, 2).tolist())
    for page in (lied_to, other):
        plain(sql_store, page, 0, 1)
        announce(sql_store, page, T0 + 2 * HOUR)
    unchanged(sql_store, lied_to, 3)
    for page in (lied_to, other):
        announce(sql_store, page, T0 + 4 * HOUR)
        plain(sql_store, page, 6, 2)
    found, expected = (states_of(sql_store, [page]) for page in (lied_to, other))
    for name in ("estimate", "real_pings", "false_pings", "trust"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
    assert page_of(sql_store, lied_to).n_observations == 1


def test_a_page_whose_log_is_gone_keeps_what_it_has_learnt(sql_store):
    (page,) = register(sql_store, 1).tolist()
    plain(sql_store, page, 0, 1)
    for hour in range(1, 9):
        unchanged(sql_store, page, hour)
    with sql_store.begin() as tx:
        tx.run("DELETE FROM observations")
    before = page_of(sql_store, page)
    plain(sql_store, page, 10, 2)
    after = page_of(sql_store, page)
    assert (after.n_observations, after.n_changes) == (before.n_observations + 1, 1)
    assert log(sql_store, page)[0].interval == pytest.approx(2 / 24)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "304", "503"]),
        st.integers(1, 3),
        st.integers(1, 30),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.dear
@settings(max_examples=60)
@given(STEPS)
def test_a_rebuild_of_a_log_without_overlaps_leaves_nothing_out(steps):
    """Without validators nothing is disproved, whatever the intervals."""
    store, by = MemoryStore(2), rules()
    (page,) = register(store, 1).tolist()
    hour = 0
    for what, digest, wait in steps:
        hour += wait
        status = {"plain": 200, "304": 304, "503": 503}[what]
        crawl(store, page, T0 + hour * HOUR, by, status=status, digest=digest)
    before = states_of(store, [page])
    list(rebuild(store, by))
    after = states_of(store, [page])
    np.testing.assert_allclose(after.estimate, before.estimate, rtol=1e-9)
