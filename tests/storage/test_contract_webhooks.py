"""Webhooks on each database: how far their deliveries are."""

from dataclasses import replace
from datetime import timedelta

from support.feed_cases import change_columns
from support.store_cases import T0

from service.model.changes import FeedPlace
from service.model.webhooks import DuePlace, Webhook, WebhookProgress, WebhookStatus

WEBHOOK = Webhook(
    id="a", url="https://a.example/", secret="", max_items=1, most=1, created_at=T0, next_at=T0
)


def progress(store, limit=10):
    with store.begin(write=False) as tx:
        return tx.webhook_progress(limit)


def test_progress_names_the_oldest_block_that_each_webhook_has_not_confirmed(sql_store):
    for _ in range(3):
        with sql_store.begin() as tx:
            tx.append_changes(change_columns([1, 2], T0))
    with sql_store.begin() as tx:
        blocks = sorted(set(tx.changes(FeedPlace(0), 10).changes.seq.tolist()))
        for name, seq in zip("dcba", [0, blocks[1], blocks[1] + 1, blocks[2] + 1], strict=True):
            tx.add_webhook(replace(WEBHOOK, id=name, seq=seq))
    assert [(one.id, one.oldest) for one in progress(sql_store)] == [
        ("a", None),
        ("b", blocks[2]),
        ("c", blocks[1]),
        ("d", blocks[0]),
    ]
    assert [one.id for one in progress(sql_store, limit=2)] == ["a", "b"]


def test_progress_has_the_status_and_the_counts_of_requests(sql_store):
    counts = {"n_confirmed": 2**40, "n_refused": 2, "n_failed": 3}
    with sql_store.begin() as tx:
        tx.add_webhook(replace(WEBHOOK, status=WebhookStatus.disabled, **counts))
    assert progress(sql_store) == [
        WebhookProgress("a", WebhookStatus.disabled, None, 2**40, 2, 3),
    ]


def test_times_after_a_clock_that_was_set_back_become_now(sql_store):
    now, later, before = T0, T0 + timedelta(days=1), T0 - timedelta(days=1)
    ahead = replace(WEBHOOK, id="ahead", next_at=later, leased_until=later, failing_since=later)
    fine = replace(WEBHOOK, id="fine", next_at=before, leased_until=None, failing_since=before)
    with sql_store.begin() as tx:
        tx.add_webhook(ahead)
        tx.add_webhook(fine)
        tx.redate_webhooks(now)
        right = replace(ahead, next_at=now, leased_until=now, failing_since=now)
        assert tx.webhooks("", 9) == [right, fine]
        assert tx.claim_webhook("ahead", now, later) is not None


def test_claims_are_renewed_by_their_holders_alone(sql_store):
    now, soon, later = T0, T0 + timedelta(seconds=4), T0 + timedelta(seconds=8)
    with sql_store.begin() as tx:
        for name in ("held", "lost", "given-up"):
            tx.add_webhook(replace(WEBHOOK, id=name))
            tx.claim_webhook(name, now, soon)
        tx.change_webhook("lost", token=2)
        tx.change_webhook("given-up", leased_until=None)
        tx.renew_claims({"held": 1, "lost": 1, "given-up": 1, "absent": 1}, later)
        ends = {one.id: one.leased_until for one in tx.webhooks("", 9)}
    assert ends == {"held": later, "lost": soon, "given-up": None}


def test_due_webhooks_are_read_in_parts_those_that_wait_longest_first(sql_store):
    second = timedelta(seconds=1)
    waits = {"d": 3, "a": 2, "b": 2, "c": 2, "e": 0, "later": -1, "claimed": 9, "paused": 9}
    with sql_store.begin() as tx:
        for name, wait in waits.items():
            tx.add_webhook(replace(WEBHOOK, id=name, next_at=T0 - wait * second))
        tx.change_webhook("claimed", leased_until=T0 + second)
        tx.change_webhook("paused", status=WebhookStatus.paused)
        tx.add_webhook(replace(WEBHOOK, id="no change", seq=8, next_at=T0 - 9 * second))
        tx.add_webhook(replace(WEBHOOK, id="batch", seq=8, delivery="m", next_at=T0))
        parts, after = [], DuePlace()
        while part := tx.due_webhooks(T0, 7, 2, after):
            parts.append([one.id for one in part])
            after = DuePlace(part[-1].next_at, part[-1].id)
        assert parts == [["d", "a"], ["b", "c"], ["batch", "e"]]
        assert "".join(one.id for one in tx.due_webhooks(T0, 7, 4)) == "dabc"
