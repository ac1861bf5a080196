"""What every store promises of epochs, the schedule and its own upkeep."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import (
    CERTIFICATE,
    DAY,
    MICROSECOND,
    T0,
    log_columns,
    page_columns,
    publish,
    read_schedule,
    register,
    same,
    save,
    schedule_columns,
    urls,
)

from service.core.ping_feeds import PingFeeds
from service.core.shared_changes import ShareEvidence
from service.core.wide_revisions import WideRevisions
from service.model.arrays import instant
from service.model.columns import NOT_SHIFTED
from service.model.domain import Epoch, EpochStatus
from service.model.errors import EpochNotFound, EpochRunning
from service.model.urls import URL_GROUPS, url_groups
from service.storage.dialect import EPOCHS_KEPT
from service.storage.epochs.contract import GroupTables, Learnt
from service.storage.pages.contract import Brought

HOUR = timedelta(hours=1)


def test_the_first_epoch_starts_of_its_own(store):
    with store.begin() as tx:
        epoch = tx.start_epoch(T0)
        assert epoch == Epoch(epoch.epoch, EpochStatus.running, T0, T0)
        assert tx.epoch(epoch.epoch) == tx.newest_epoch() == epoch
        assert tx.epoch_in_force() is None


def test_a_request_waits_until_it_is_started(store):
    with store.begin() as tx:
        asked = tx.request_epoch(T0)
        assert asked == Epoch(asked.epoch, EpochStatus.requested, T0)
        assert tx.newest_epoch() == asked
    with store.begin() as tx:
        started = tx.start_epoch(T0 + HOUR)
    assert started == replace(asked, status=EpochStatus.running, started_at=T0 + HOUR)


def test_one_request_waits_at_a_time(store):
    with store.begin() as tx:
        first = tx.request_epoch(T0)
        assert tx.request_epoch(T0 + HOUR) == first
    with store.begin() as tx:
        assert tx.request_epoch(T0 + 2 * HOUR) == first
        tx.start_epoch(T0 + 2 * HOUR)
        second = tx.request_epoch(T0 + 3 * HOUR)
        assert second.epoch > first.epoch
        assert [e.epoch for e in tx.epochs(None, 9)] == [second.epoch, first.epoch]


def test_starting_an_epoch_fails_the_runs_that_died(store):
    with store.begin() as tx:
        died = tx.start_epoch(T0)
    with store.begin() as tx:
        started = tx.start_epoch(T0 + HOUR)
        found = tx.epoch(died.epoch)
    assert started.epoch > died.epoch
    assert (found.status, found.finished_at) == (EpochStatus.failed, T0 + HOUR)
    assert found.reason == "its process ended before it published"


def test_a_run_that_died_fails_when_a_request_is_started(store):
    with store.begin() as tx:
        died = tx.start_epoch(T0)
        asked = tx.request_epoch(T0 + HOUR)
    with store.begin() as tx:
        assert tx.start_epoch(T0 + 2 * HOUR).epoch == asked.epoch
        assert tx.epoch(died.epoch).status is EpochStatus.failed


def test_a_failed_epoch_keeps_its_reason_and_the_schedule_in_force(store):
    ids = register(store)
    published = publish(store, schedule_columns(np.sort(ids)))
    rows = read_schedule(store, published)
    with store.begin() as tx:
        failed = tx.start_epoch(T0 + HOUR)
        tx.fail_epoch(failed.epoch, "ValueError: 'ünlucky'", T0 + 2 * HOUR)
    with store.begin(write=False) as tx:
        found = tx.epoch(failed.epoch)
        assert found == replace(
            failed,
            status=EpochStatus.failed,
            reason="ValueError: 'ünlucky'",
            finished_at=T0 + 2 * HOUR,
        )
        assert tx.epoch_in_force().epoch == published
        assert tx.newest_epoch() == found
    assert read_schedule(store, published) == rows


def test_a_published_epoch_keeps_its_certificate_to_the_last_bit(store):
    epoch = publish(store, schedule_columns(np.sort(register(store))), now=T0 + MICROSECOND)
    with store.begin(write=False) as tx:
        found = tx.epoch(epoch)
        assert found == Epoch(
            epoch,
            EpochStatus.published,
            T0 + MICROSECOND,
            T0 + MICROSECOND,
            T0 + MICROSECOND,
            None,
            CERTIFICATE,
        )
        assert tx.epoch_in_force() == found


def test_a_page_s_url_group_follows_from_its_url_however_it_came_in(store):
    some = ["https://a.example/x/1", "https://a.example/x/2", "https://b.example/2024/05/y"]
    others = ["https://c.example/z/1/", "https://a.example/x/3"]
    with store.begin() as tx:
        ids = tx.register(page_columns(some), T0).page_id
        never = np.full(2, np.datetime64("NaT", "us"))
        brought = Brought(tx.lock_states(np.sort(ids)[:2]), never, never)
    with store.begin() as tx:
        more = tx.register(page_columns(others), T0, brought).page_id
    with store.begin(write=False) as tx:
        loaded = tx.load_columns()
        expected = dict(
            zip([*ids.tolist(), *more.tolist()], url_groups(some + others).tolist(), strict=True)
        )
        assert (
            dict(zip(loaded.page_id.tolist(), loaded.url_group.tolist(), strict=True)) == expected
        )
        assert loaded.url_group.dtype == np.int32
        assert {page_id: tx.page(page_id).url_group for page_id in expected} == expected


def test_what_evidence_is_saved_leaves_the_url_group_alone(store):
    ids = np.sort(register(store))
    with store.begin(write=False) as tx:
        before = tx.load_columns().url_group.tolist()
    save(store, ids, n_observations=3, n_failures=2)
    with store.begin(write=False) as tx:
        assert tx.load_columns().url_group.tolist() == before != [0, 0, 0]


def test_the_rates_of_url_groups_come_and_go_with_their_epoch(store):
    schedule = schedule_columns(np.sort(register(store)))
    rng = np.random.default_rng(1)
    told = [
        np.full(URL_GROUPS, 0.03, np.float32),
        rng.gamma(0.5, 0.1, URL_GROUPS).astype(np.float32),
    ]
    numbers = [publish(store, schedule, url_group_rate=rate) for rate in told]
    with store.begin(write=False) as tx:
        for number, rate in zip(numbers, told, strict=True):
            np.testing.assert_array_equal(tx.url_group_rate(number), rate)
            assert tx.url_group_rate(number).dtype == np.float32
        assert tx.url_group_rate(max(numbers) + 1) is None
    for _ in range(EPOCHS_KEPT - 1):
        publish(store, schedule)
    with store.begin(write=False) as tx:
        assert tx.url_group_rate(numbers[0]) is None
        np.testing.assert_array_equal(tx.url_group_rate(numbers[1]), told[1])
    publish(store, schedule)
    with store.begin(write=False) as tx:
        assert tx.url_group_rate(numbers[1]) is None


def test_the_evidence_of_shares_comes_and_goes_with_its_epoch(store):
    schedule = schedule_columns(np.sort(register(store)))
    score = np.arange(28.0).reshape(4, 7) * [0, 1, 1, 1, 1, 1, 1]
    evidence = ShareEvidence(16, np.array([1, 2, 5, 15]), score, np.ones(7), 2.0)
    number = publish(store, schedule, share_evidence=evidence)
    with store.begin(write=False) as tx:
        for ours, theirs in zip(evidence, tx.share_evidence(number), strict=True):
            np.testing.assert_array_equal(theirs, ours)
        assert tx.share_evidence(number + 1) is None
    for _ in range(EPOCHS_KEPT):
        publish(store, schedule)
    with store.begin(write=False) as tx:
        assert tx.share_evidence(number) is None


def test_wide_revisions_come_and_go_with_their_epoch(store):
    schedule = schedule_columns(np.sort(register(store)))
    at = np.array(["2026-04-01T01:02:03.456789", "2026-05-01"], "M8[us]")
    known = WideRevisions(np.array([1, 1 << 53]), at, np.array([0.25, 0.95]))
    number = publish(store, schedule, wide_revisions=known)
    with store.begin(write=False) as tx:
        for ours, theirs in zip(known, tx.wide_revisions(number), strict=True):
            np.testing.assert_array_equal(theirs, ours)
        assert tx.wide_revisions(number + 1) is None
    without = publish(store, schedule)
    with store.begin(write=False) as tx:
        assert tx.wide_revisions(without) is None


def test_pings_of_hosts_come_and_go_with_their_epoch(store):
    schedule = schedule_columns(np.sort(register(store)))
    at = np.array(["2026-04-01T01:02:03.456789", "2026-05-01"], "M8[us]")
    known = PingFeeds(np.array([1, 1 << 53]), np.array([1 / 3, 1e-9]), at)
    number = publish(store, schedule, ping_feeds=known)
    with store.begin(write=False) as tx:
        for ours, theirs in zip(known, tx.ping_feeds(number), strict=True):
            np.testing.assert_array_equal(theirs, ours)
        assert not tx.ping_feeds(number + 1).host_id.size
    without = publish(store, schedule)
    with store.begin(write=False) as tx:
        assert not tx.ping_feeds(without).host_id.size


@pytest.mark.parametrize("shift", [NOT_SHIFTED, 30])
def test_ratios_that_urgencies_hide_are_read_with_the_evidence(store, shift):
    ids = np.sort(register(store))
    ratio = np.zeros(len(ids))
    ratio[0] = 1.7
    for hidden in (None, ratio):
        publish(store, schedule_columns(ids, shift=shift, observed_ratio=hidden))
        with store.begin(write=False) as tx:
            few, all_pages = tx.freshness_columns(ids), tx.measured_pages(0, int(ids[-1]))
        expected = np.zeros(len(ids)) if hidden is None else hidden
        for pages in (few, all_pages):
            np.testing.assert_allclose(pages.observed_ratio, expected, rtol=1e-6)


def test_only_so_many_epochs_are_told_of(sql_store, monkeypatch):
    monkeypatch.setattr("service.storage.epochs.contract.MOST_EPOCHS", 4)
    schedule = schedule_columns(np.sort(register(sql_store)))
    numbers = [publish(sql_store, schedule)]
    for _ in range(6):
        with sql_store.begin() as tx:
            numbers.append(tx.request_epoch(T0).epoch)
            tx.fail_epoch(tx.start_epoch(T0).epoch, "no", T0)
    with sql_store.begin(write=False) as tx:
        assert [epoch.epoch for epoch in tx.epochs(None, 99)] == numbers[::-1], "none is in force"
    numbers.append(publish(sql_store, schedule))
    with sql_store.begin(write=False) as tx:
        assert [epoch.epoch for epoch in tx.epochs(None, 99)] == numbers[:-5:-1]
        assert tx.epoch_in_force().epoch == numbers[-1]
        with pytest.raises(EpochNotFound):
            tx.epoch(numbers[0])
    assert read_schedule(sql_store, numbers[-1])


def test_few_url_groups_take_few_bytes(sql_store):
    rate = np.full(URL_GROUPS, 0.03, np.float32)
    rate[::4_000] = 0.5
    publish(sql_store, schedule_columns(np.sort(register(sql_store))), url_group_rate=rate)
    with sql_store.begin(write=False) as tx:
        n_bytes = tx.scalar("SELECT length(rate) FROM url_groups")
    assert n_bytes < 5_000


def test_whole_numbers_of_a_certificate_stay_floats(store):
    certificate = replace(
        CERTIFICATE,
        multiplier=np.inf,
        prior={"a": 1.0, "b": 1e22},
        seconds={"load": 2.0},
        crawl_rate_quantiles=(0.0, 1.0, 1e30),
        observed_ratios=(1.0, 0.5, 2e22),
    )
    epoch = publish(store, schedule_columns(np.sort(register(store))), certificate=certificate)
    with store.begin(write=False) as tx:
        found = tx.epoch(epoch).certificate
    assert found == certificate
    numbers = [*found.prior.values(), *found.seconds.values(), *found.crawl_rate_quantiles]
    numbers += found.observed_ratios
    assert {type(number) for number in numbers} == {float}


def test_epochs_come_newest_first_below_a_number(store):
    with store.begin() as tx:
        numbers = [tx.start_epoch(T0 + i * HOUR).epoch for i in range(5)]
        assert [e.epoch for e in tx.epochs(None, 10)] == numbers[::-1]
        assert [e.epoch for e in tx.epochs(None, 2)] == numbers[:2:-1]
        assert [e.epoch for e in tx.epochs(numbers[3], 2)] == [numbers[2], numbers[1]]
        assert tx.epochs(numbers[0], 5) == []
        assert tx.epochs(None, 0) == []


@pytest.mark.parametrize("number", [0, -1, 4711, 2**62])
def test_an_epoch_that_never_was_is_not_found(store, number):
    with store.begin() as tx:
        tx.start_epoch(T0)
        with pytest.raises(EpochNotFound):
            tx.epoch(number)


def test_failed_epochs_do_not_push_out_published_ones(store):
    ids = np.sort(register(store))
    published = publish(store, schedule_columns(ids))
    with store.begin() as tx:
        for _ in range(EPOCHS_KEPT + 2):
            tx.fail_epoch(tx.start_epoch(T0).epoch, "no", T0)
        tx.housekeep(None, T0)
    assert len(read_schedule(store, published)) == 3


def test_only_one_leads(store):
    with store.lead() as lead:
        with pytest.raises(EpochRunning), store.lead():
            pass
        with lead.begin() as tx:
            tx.start_epoch(T0)
    with store.lead() as lead, lead.begin() as tx:
        tx.start_epoch(T0)


def test_the_lead_is_given_back_when_its_holder_fails(store):
    with pytest.raises(ZeroDivisionError), store.lead():
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), store.lead() as lead, lead.begin():
        raise ZeroDivisionError
    with store.lead() as lead, lead.begin() as tx:
        tx.start_epoch(T0)


def test_a_transaction_of_the_lead_rolls_back_like_any_other(store):
    with store.lead() as lead:
        with pytest.raises(EpochNotFound), lead.begin() as tx:
            tx.epoch(tx.start_epoch(T0).epoch + 1)
        with lead.begin() as tx:
            assert tx.newest_epoch() is None


def test_housekeeping_drops_what_is_older_than_the_retention(store):
    ids = np.sort(register(store, 2))
    one = ids[0]
    with store.begin() as tx:
        tx.housekeep(None, T0)
    ages = [800, 400, 100, 61, 0]
    with store.begin() as tx:
        for age in ages:
            tx.append_log(log_columns(ids, T0 - age * DAY))
    with store.begin() as tx:
        tx.housekeep(None, T0)
        assert len(tx.log_of(ids)) == 2 * len(ages)
    with store.begin() as tx:
        tx.housekeep(T0 - 200 * DAY, T0)
    with store.begin() as tx:
        kept = tx.log_of(np.array([one])).observed_at
        assert kept.tolist() == [instant(T0 - age * DAY).item() for age in (100, 61, 0)]
        tx.append_log(log_columns(ids, T0 + MICROSECOND))
        assert len(tx.log_of(ids)) == 8


@pytest.mark.parametrize("late", [False, True])
def test_housekeeping_that_is_rolled_back_drops_nothing_whatever_came_after_it(store, late):
    ids = np.sort(register(store, 3))
    ages = [300, 250, 200, 40, 280, 1] if late else [300, 280, 250, 200, 40, 1]
    with store.begin() as tx:
        tx.housekeep(None, T0)
    for age in ages:
        with store.begin() as tx:
            tx.append_log(log_columns(ids, T0 - age * DAY))
    with store.begin() as tx:
        before = tx.log_of(ids)

    def undone():
        with store.begin() as tx:
            tx.housekeep(T0 - 100 * DAY, T0)
            tx.append_log(log_columns(ids, T0))
            assert len(tx.log_of(ids)) == 3 * 3
            raise RuntimeError("undone")

    with pytest.raises(RuntimeError, match="undone"):
        undone()
    with store.begin() as tx:
        same(tx.log_of(ids), before)
        tx.housekeep(T0 - 100 * DAY, T0)
        tx.append_log(log_columns(ids, T0))
    with store.begin() as tx:
        kept = tx.log_of(ids[:1]).observed_at.tolist()
        assert kept == [instant(T0 - age * DAY).item() for age in (40, 1, 0)]
        assert len(tx.log_of(ids)) == 3 * 3


def test_housekeeping_month_after_month_keeps_the_log_in_one_piece(store):
    (page_id,) = register(store, 1)
    times = [T0 + i * 15 * DAY for i in range(30)]
    for at in times:
        with store.begin() as tx:
            tx.append_log(log_columns([page_id], at))
            tx.housekeep(None, at)
    with store.begin() as tx:
        assert tx.log_of(np.array([page_id])).observed_at.tolist() == [
            instant(at).item() for at in times
        ]
        tx.housekeep(times[-1] - 60 * DAY, times[-1])
    with store.begin() as tx:
        kept = tx.log_of(np.array([page_id])).observed_at
        assert kept.max() == instant(times[-1])
        # at least what is asked for, and not more than the month it begins in
        since = instant(times[-1] - 60 * DAY)
        assert {instant(t).item() for t in times if instant(t) >= since} <= set(kept.tolist())
        assert kept.min() >= since - np.timedelta64(31, "D")


def test_what_was_logged_before_the_first_housekeeping_is_kept(store):
    (page_id,) = register(store, 1)
    with store.begin() as tx:
        tx.append_log(log_columns([page_id], T0))
    for _ in range(2):
        with store.begin() as tx:
            tx.housekeep(T0 - DAY, T0)
    with store.begin() as tx:
        tx.append_log(log_columns([page_id], T0 + DAY))
        assert len(tx.log_of(np.array([page_id]))) == 2


def test_housekeeping_at_the_turn_of_a_year(store):
    (page_id,) = register(store, 1)
    december = T0.replace(month=12, day=31)
    with store.begin() as tx:
        tx.housekeep(None, december)
    times = [december, december + DAY, december + 31 * DAY, december + 60 * DAY]
    with store.begin() as tx:
        tx.append_log(log_columns([page_id] * 4, times))
        tx.housekeep(december, december + 60 * DAY)
    with store.begin() as tx:
        assert len(tx.log_of(np.array([page_id]))) == 4


def test_an_open_store_is_in_order(store):
    store.check()


def test_pages_registered_by_an_epochs_transaction_are_seen_by_the_next(store):
    with store.lead() as lead:
        with lead.begin() as tx:
            tx.register(page_columns(urls(2)), T0)
        with lead.begin() as tx:
            assert len(tx.load_columns()) == 2


def test_an_attempt_is_withdrawn_and_tables_of_logical_shards_are_kept(store):
    ids = np.sort(register(store, 3))
    first, second = (np.full(4, rate, np.float32) for rate in (0.5, 0.25))
    with store.lead() as lead:
        with lead.begin() as tx:
            epoch = tx.start_epoch(T0).epoch
        for rate, pages in ((first, ids[:2]), (second, ids)):
            with lead.begin() as tx:
                tx.withdraw(epoch)
                tx.write_schedule(epoch, schedule_columns(pages))
                tx.save_learnt(epoch, Learnt({7: GroupTables(rate)}))
        with lead.begin() as tx:
            tx.publish(epoch, CERTIFICATE, T0)
    with store.begin(write=False) as tx:
        np.testing.assert_array_equal(tx.url_group_rate(epoch, 7), second)
        assert tx.url_group_rate(epoch) is None
        assert tx.share_evidence(epoch, 7) is None
    assert [row.page_id for row in read_schedule(store, epoch)] == ids.tolist()
