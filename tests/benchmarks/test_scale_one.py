"""The database of `benchmarks.scale.one`, which COPY fills."""

from contextlib import closing

import numpy as np
import psycopg

from benchmarks.scale import one
from service.epochs.run import run_epoch
from service.estimation.estimates import width
from service.model.domain import EpochStatus
from service.storage import open_store


def test_hosts_of_very_different_sizes_grow_side_by_side():
    host = one.host_of_pages(np.random.default_rng(1), 20_000)
    assert len(host) == 20_000
    n_pages = np.bincount(host)[1:]
    assert n_pages.min() == 1
    assert n_pages.max() > 1_000
    large = np.flatnonzero(host == 1 + np.argmax(n_pages))
    assert np.diff(large).max() > 1


def test_an_epoch_of_the_filled_database_is_published(postgres_url, monkeypatch):
    monkeypatch.setattr(one, "BLOCK", 300)
    with psycopg.connect(postgres_url) as connection:
        one.fill(connection, 700, np.datetime64("2026-05-31T12:00:00", "us"))
    with closing(open_store(postgres_url, width(one.PLAN.estimator))) as store:
        epoch = run_epoch(store, one.PLAN, store.clock)
        assert epoch.status is EpochStatus.published, epoch.reason
        assert epoch.certificate.n_pages == 700
        with store.read_whole() as tx:
            pages = tx.load_columns()
        assert (pages.n_observations == 10).all()
        assert len(np.unique(pages.host_id)) > 10
