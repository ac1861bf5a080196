"""The statements that the state of a service is read by: signs of crawlers, and of troubles."""

from datetime import timedelta

import numpy as np
from support.store_cases import CERTIFICATE, DAY, T0, instants, publish, register, schedule_columns

from service.model.arrays import NO_TIME, instant
from service.model.history import ALL_HOSTS, Gauges, Tally
from service.model.ladder import ladder
from service.model.unfinished import Ending
from service.model.webhooks import Delivery, TroubledWebhook, Webhook, WebhookStatus
from service.storage.budget.worth import NewLevels
from service.storage.epochs.contract import EpochFailures
from service.storage.history.measured import MeasuredStep
from service.storage.queue.columns import Leases, QueueRows
from service.storage.queue.signs import LEASES, SCHEDULE, Asked, PausedQueue, ReturnedPages
from service.storage.queue.unfinished import UnfinishedRows

MINUTE = timedelta(minutes=1)


def read(store, name, *values):
    with store.begin(write=False) as tx:
        return getattr(tx, name)(*values)


def rows_of(ids):
    """Return rows of new pages."""
    n = len(ids)
    return QueueRows(
        page_id=ids,
        next_at=np.full(n, instant(T0)),
        last_crawl_at=np.full(n, NO_TIME),
        crawl_rate=np.full(n, np.nan),
        requested=np.zeros(n, np.bool_),
    )


def test_the_last_request_of_each_kind_is_that_of_any_server(queue_store):
    assert read(queue_store, "last_asked", LEASES) is None
    for minutes in (0, 1):
        asked = Asked(T0 + minutes * MINUTE, T0 + DAY)
        with queue_store.begin() as tx:
            tx.save_asked(LEASES, asked)
        assert read(queue_store, "last_asked", LEASES) == asked
    assert read(queue_store, "last_asked", SCHEDULE) is None


def test_pauses_after_trouble_are_read_worst_first_until_their_end(queue_store):
    hosts = ("a.example", "b.example", "c.example")
    for host in hosts:
        register(queue_store, 1, host=host)
    with queue_store.begin() as tx:
        group = -tx.group_id("shared", hosts[0])
        host_id = tx.host_ids(list(hosts))
        locked = tx.lock_host_queues(np.sort(np.append(host_id, group)))
        order = locked.queue_id.searchsorted(np.append(host_id, group))
        locked.paused_until[order] = instant(T0 + DAY)
        locked.paused_at[order] = instant(T0)
        locked.blocked_until[order[1]] = instant(T0 + DAY)  # an operator's
        locked.n_failures[order] = [4, 9, 6, 5]
        tx.save_host_queues(locked)
        tx.save_blocks(locked)
    pauses = [
        PausedQueue("c.example", False, T0, T0 + DAY, 6),
        PausedQueue("shared", True, T0, T0 + DAY, 5),
        PausedQueue("a.example", False, T0, T0 + DAY, 4),
    ]
    assert read(queue_store, "pauses", T0, 9) == pauses
    assert read(queue_store, "pauses", T0, 2) == pauses[:2]
    assert read(queue_store, "pauses", T0 + DAY, 9) == []


def test_lost_leases_are_those_that_expired_or_ended_without_a_report(queue_store):
    ids = np.sort(register(queue_store, 4))
    workers = np.array(["w", "w", "w", "other"], object)
    ends = np.array([instant(T0 + m * MINUTE) for m in (2, 9, 9, 2)])
    with queue_store.begin() as tx:
        tx.lower_host_queues(tx.enqueue(rows_of(ids)))
        tx.lease(Leases(page_id=ids, token=ids, worker=workers, expires_at=ends), T0)
    with queue_store.begin() as tx:
        tx.save_unfinished(
            UnfinishedRows(
                page_id=ids[2:3],
                next_at=np.full(1, instant(T0 + DAY)),
                n_unfinished=np.ones(1, np.int64),
                ending=np.full(1, Ending.returned.value, np.int16),
                ended_at=np.full(1, instant(T0 + MINUTE)),
                requested=np.zeros(1, np.bool_),
                waits=np.ones(1, np.bool_),
            )
        )
    assert read(queue_store, "leases_end") == T0 + 9 * MINUTE
    lost = [T0 + 2 * MINUTE, T0 + MINUTE]
    for minutes, limit, expected in ((1, 9, lost[1:]), (5, 9, lost), (5, 1, lost[:1])):
        ends = read(queue_store, "lost_at", "w", T0 + minutes * MINUTE, limit)
        assert ends.tolist() == instants(expected).tolist()
    assert len(read(queue_store, "lost_at", "nobody", T0, 9)) == 0


def test_workers_that_return_pages_again_are_read_with_the_oldest_return(queue_store):
    ids = np.sort(register(queue_store, 5))
    workers = np.array(["a", "a", "b", "b", "b"], object)
    ends = instants([T0 + n * MINUTE for n in range(5)])
    returned, expired = Ending.returned.value, Ending.expired.value
    with queue_store.begin() as tx:
        tx.lower_host_queues(tx.enqueue(rows_of(ids)))
        tx.lease(Leases(page_id=ids, token=ids, worker=workers, expires_at=ends), T0)
        tx.save_unfinished(
            UnfinishedRows(
                page_id=ids,
                next_at=instants([T0 + DAY] * 5),
                n_unfinished=np.array([2, 1, 2, 4, 3]),
                ending=np.array([returned] * 4 + [expired], np.int16),
                ended_at=ends,
                requested=np.zeros(5, np.bool_),
                waits=np.ones(5, np.bool_),
            )
        )
    of = [ReturnedPages("b", 2, T0 + 2 * MINUTE), ReturnedPages("a", 1, T0)]
    assert read(queue_store, "returned_again", 9) == of
    assert read(queue_store, "returned_again", 1) == of[:1]


def test_webhooks_in_trouble_name_their_first_failure_or_their_last_request(queue_store):
    fields = {"url": "https://a.example/hook", "secret": "whsec_", "most": 1, "next_at": T0}
    states = {
        "well": {},
        "failing": {"failing_since": T0 + MINUTE, "n_confirmed": 3},
        "paused": {"failing_since": T0, "status": WebhookStatus.paused},
        "gone": {"status": WebhookStatus.disabled, "reason": "410"},
        "lost": {"status": WebhookStatus.disabled, "reason": "the feed was cut"},
    }
    sent = Delivery(
        webhook_id="gone",
        delivery="d",
        sent_at=T0 + 2 * MINUTE,
        n_items=1,
        first_id=None,
        status=410,
        error=None,
        latency_s=0.1,
    )
    with queue_store.begin() as tx:
        for name, own in states.items():
            tx.add_webhook(Webhook(id=name, created_at=T0, **fields, **own))
        tx.add_delivery(sent)
    url = fields["url"]
    assert read(queue_store, "troubled_webhooks", 9) == [
        TroubledWebhook("failing", url, None, T0 + MINUTE, has_confirmed=True),
        TroubledWebhook("gone", url, "410", T0 + 2 * MINUTE, has_confirmed=False),
        TroubledWebhook("lost", url, "the feed was cut", T0, has_confirmed=False),
    ]


def test_failures_count_from_the_epoch_in_force(queue_store):
    assert read(queue_store, "epoch_failures") == EpochFailures()
    for n, reason in enumerate(("first", "last")):
        with queue_store.lead() as lead, lead.begin() as tx:
            tx.fail_epoch(tx.start_epoch(T0).epoch, reason, T0 + n * MINUTE)
    assert read(queue_store, "epoch_failures") == EpochFailures(2, T0, "last")
    publish(queue_store, schedule_columns(register(queue_store, 1)))
    assert read(queue_store, "epoch_failures") == EpochFailures()


def test_steps_have_the_budget_of_their_epoch(queue_store):
    epoch = publish(queue_store, schedule_columns(register(queue_store, 1)))
    values = {
        "measured_at": T0,
        "n_pages": 9,
        "n_overdue": 3,
        "n_no_content": 2,
        "n_never_crawled": 4,
    }
    gauges = Gauges(**dict.fromkeys(Gauges.__dataclass_fields__, 0) | values)
    tally = Tally.of(np.array([1, 1]), {"n_leased": np.array([2, 3])})
    with queue_store.begin() as tx:
        tx.add_to_step(ALL_HOSTS, T0 - DAY, None, tally, None)
        tx.add_to_step(ALL_HOSTS, T0, epoch, tally, gauges)
        tx.add_to_step(7, T0, epoch, tally, None)
    no_budget = MeasuredStep(T0 - DAY, 5, 0, 0, 0, None, None, None, None, None, None)
    step = MeasuredStep(T0, 5, 0, 0, 0, T0, 9, 3, 2, CERTIFICATE.bandwidth, "crawls", 4)
    assert read(queue_store, "measured_steps", T0 - DAY) == [no_budget, step]
    assert read(queue_store, "measured_steps", T0) == [step]


def test_stopped_levels_are_read_those_first_that_cost_most(queue_store):
    names = ("https://a.example/x/1?a=1", "https://b.example/y/2?b=2")
    for part, url in zip(queue_store.parts * 2, names, strict=False):
        of = ladder(url)
        order = np.argsort(of.levels)
        levels = NewLevels(
            level=np.array(of.levels)[order],
            parent=np.array((0, *of.levels[:-1]))[order],
            name=np.array(of.names, object)[order],
        )
        with part.begin() as tx:
            tx.add_levels(levels, T0)
            locked = tx.lock_levels(np.array([of.levels[-1]]))
            locked.n_first[:], locked.stopped[:] = len(url), locked.last
            locked.n_new[:] = 20 if url == names[0] else 1
            tx.save_levels(locked, T0 + DAY)
    stopped = read(queue_store, "stopped_levels", 9)
    last = [ladder(url).names[-1] for url in reversed(names)]
    assert [each.name for each in stopped] == last
    assert {(each.since, each.stopped) for each in stopped} == {(T0 + DAY, True)}
    assert read(queue_store, "stopped_levels", 1) == stopped[:1]
