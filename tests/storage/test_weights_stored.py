"""Weights of changes in the log, the feed and their archive, beside what has none."""

from dataclasses import replace

import numpy as np
import pytest
from support.archive_cases import realistic
from support.feed_cases import change_columns, feed_of
from support.ingest_cases import rules
from support.store_cases import DAY, T0, crawl_columns, instants, register, save, states_of

from service.archive import feed_parquet, parquet
from service.archive.log_archive import LogArchive
from service.ingest.rebuild import rebuild
from service.ingest.record import record
from service.model.columns import LogColumns
from service.storage.feed.blocks import LAYOUT, WEIGHED, packed, unpacked

NAN = float("nan")


def crawled(store, ids, weights, day):
    """Record a crawl of each page that finds other content, some days after the first."""
    at = instants([T0 + day * DAY] * len(ids))
    given = crawl_columns(ids, at, digest=10 * ids + day, status=200)
    with store.begin() as tx:
        record(tx, replace(given, weight=weights), rules())


@pytest.mark.parametrize("n", [3, 150])
def test_the_log_keeps_weights_and_a_rebuild_learns_from_them(store, n):
    ids = np.sort(register(store, n))
    weights = np.resize([0.01, NAN, 0.5], n)
    crawled(store, ids, None, 1)
    crawled(store, ids, weights, 2)
    crawled(store, ids, None, 3)
    with store.begin(write=False) as tx:
        log, evidence = tx.log_of(ids), tx.evidence_of(ids)
        entries = tx.page_log(int(ids[0]), 5)
    of_second = log.observed_at == instants([T0 + 2 * DAY])[0]
    np.testing.assert_array_equal(log.weight[of_second], weights)
    assert np.isnan(log.weight[~of_second]).all()
    np.testing.assert_array_equal(
        np.sort(evidence.weight[~np.isnan(evidence.weight)]), np.sort(weights[~np.isnan(weights)])
    )
    assert [entry.weight for entry in entries] == [None, 0.01, None]
    before = states_of(store, ids)
    changes = before.estimate[:, 0]
    assert changes[0] < changes[2] < changes[1]
    save(store, ids, estimate=99.0)
    assert sum(rebuild(store, rules())) == n
    np.testing.assert_allclose(states_of(store, ids).estimate, before.estimate, rtol=1e-12)


def test_blocks_with_and_without_weights_are_read_together(sql_store):
    ids = np.sort(register(sql_store, 3))
    at = instants([T0] * 3)
    plain = change_columns(ids, at)
    weighed = change_columns(ids, at, weight=np.array([0.25, NAN, 0.000001]))
    blocks = [packed(each) for each in (plain, weighed, plain)]
    assert [block[0] for block in blocks] == [LAYOUT, WEIGHED, LAYOUT]
    assert len(blocks[1]) == len(blocks[0]) + 1 + 3 * 3
    assert unpacked(blocks[::2]).weight is None
    none = [NAN] * 3
    expected = [*none, 0.25, NAN, 0.000001, *none]
    np.testing.assert_array_equal(unpacked(blocks).weight, expected)
    np.testing.assert_array_equal(unpacked(blocks[1:2]).weight, expected[3:6])
    np.testing.assert_array_equal(unpacked(blocks).page_id, np.tile(ids, 3))
    for changes in (plain, weighed, plain):
        with sql_store.begin() as tx:
            tx.append_changes(changes)
    np.testing.assert_array_equal(feed_of(sql_store).weight, expected)


def test_files_of_parquet_keep_weights(tmp_path):
    archive = LogArchive(str(tmp_path))
    log = realistic(5_000)
    weight = np.where(log.changed == 1, np.resize([0.01, NAN], len(log)), NAN)
    for own in (weight, None):
        given = LogColumns(**{**log.arrays(), "weight": own})
        files = []
        assert sum(archive.write([given], files)) == len(given)
        archive.check(files[0])
        again = archive.log_of(files, np.unique(log.page_id))
        if own is None:
            assert again.weight is None
        else:
            np.testing.assert_array_equal(again.weight, weight)


def test_a_file_of_before_there_were_weights_has_the_same_checksum():
    log = realistic(100)
    table = parquet.encode(log)
    old, new = parquet.Checksum(), parquet.Checksum()
    old.add(parquet.decode(table.drop_columns(["weight"])))
    new.add(LogColumns(**{**log.arrays(), "weight": np.full(len(log), NAN)}))
    assert old.text == new.text
    weighed = parquet.Checksum()
    weighed.add(LogColumns(**{**log.arrays(), "weight": np.full(len(log), 0.5)}))
    assert weighed.text != new.text


def test_the_feed_in_parquet_keeps_weights(sql_store):
    ids = np.sort(register(sql_store, 3))
    with sql_store.begin() as tx:
        tx.append_changes(change_columns(ids, instants([T0] * 3), weight=[0.25, NAN, 0.5]))
    changes = feed_of(sql_store)
    table = feed_parquet.encode(changes)
    np.testing.assert_array_equal(feed_parquet.decode(table).weight, [0.25, NAN, 0.5])
    assert feed_parquet.decode(table.drop_columns(["weight"])).weight is None
