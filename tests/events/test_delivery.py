"""The state of a webhook after each answer."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.events.delivery import PostOutcome, RetryRules, chosen, settled
from service.model.changes import FeedPlace
from service.model.webhooks import Webhook, WebhookStatus

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PATIENCE = RetryRules()
WEBHOOK = Webhook(
    id="w", url="https://a.example/", secret="", max_items=8, most=8, created_at=NOW, next_at=NOW
)
END = FeedPlace(20, 3)


def after(*statuses, n_items=8, webhook=WEBHOOK, retry_after_s=None, every=timedelta(0)):
    """Return a webhook after these answers to one batch, or to its halves."""
    now, parks = NOW, False
    for status in statuses:
        batch = chosen(webhook, END, min(n_items, webhook.most), "msg")
        outcome = PostOutcome(status, None if status else "no answer", 0.1, retry_after_s)
        webhook, parks = settled(batch, outcome, now, 0.5, PATIENCE)
        now += every
    return webhook, parks


def wait_s(webhook) -> float:
    return (webhook.next_at - NOW).total_seconds()


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_a_success_confirms_the_batch_and_forgets_failures(status):
    failed = replace(WEBHOOK, n_attempts=3, failing_since=NOW, most=2)
    webhook, _ = after(status, webhook=failed)
    assert (webhook.place, webhook.delivery) == (END, None)
    assert (webhook.n_attempts, webhook.failing_since, webhook.most) == (0, None, 4)


def test_few_changes_make_the_next_ones_wait_and_a_full_batch_does_not():
    assert wait_s(after(200, n_items=7)[0]) == PATIENCE.gather_s
    assert wait_s(after(200, n_items=8)[0]) == 0
    single = replace(WEBHOOK, most=1, max_items=1)
    assert wait_s(after(200, n_items=7, webhook=single)[0]) == 0


def test_waits_grow_from_seconds_to_half_a_day():
    waits = [wait_s(after(*[503] * n)[0]) for n in range(1, 10)]
    assert waits[0] == 5
    assert waits == sorted(waits)
    assert waits[-1] == waits[-2] == 43_200


@given(st.integers(1, 20), st.floats(0, 1, exclude_max=True))
def test_a_wait_deviates_by_a_fifth_at_most(n, uniform):
    batch = chosen(replace(WEBHOOK, n_attempts=n - 1), END, 1, "msg")
    webhook, _ = settled(batch, PostOutcome(500), NOW, uniform, PATIENCE)
    base = PATIENCE.waits_s[min(n, len(PATIENCE.waits_s)) - 1]
    assert abs(wait_s(webhook) / base - 1) <= 0.2 + 1e-9


def test_a_wait_is_no_shorter_than_the_address_asks_and_no_longer_than_half_a_day():
    assert wait_s(after(429, retry_after_s=60)[0]) == 60
    assert wait_s(after(429, retry_after_s=1)[0]) == 5
    assert wait_s(after(503, retry_after_s=1e9)[0]) == 43_200


@pytest.mark.parametrize("status", [None, 301, 401, 404, 408, 429, 500, 503])
def test_a_failure_keeps_the_batch(status):
    webhook, parks = after(status)
    assert (webhook.place, webhook.delivery, webhook.end) == (FeedPlace(0), "msg", END)
    assert (webhook.status, parks) == (WebhookStatus.active, False)


def test_failures_of_three_days_disable_and_a_success_in_between_counts_again():
    step = timedelta(hours=24)
    assert after(*[500] * 3, every=step)[0].status is WebhookStatus.active
    disabled, _ = after(*[500] * 4, every=step)
    assert disabled.status is WebhookStatus.disabled
    assert disabled.place == FeedPlace(0)
    assert "2026-05-01" in disabled.reason
    assert after(500, 500, 200, 500, 500, every=step)[0].status is WebhookStatus.active


def test_an_address_without_an_answer_is_disabled_with_its_reason():
    disabled, _ = after(*[None] * 5, every=timedelta(days=1))
    assert "no answer" in disabled.reason


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_batch_is_halved_down_to_one_change_which_is_parked(status):
    halves = [after(*[status] * n)[0].most for n in range(1, 4)]
    assert halves == [4, 2, 1]
    assert after(status)[0].next_at == NOW
    webhook, parks = after(*[status] * 6)
    assert (webhook.place, parks) == (FeedPlace(0), False)
    webhook, parks = after(*[status] * 7)
    assert (webhook.place, webhook.delivery, parks) == (END, None, True)


def test_an_address_that_is_gone_is_disabled_at_once():
    webhook, _ = after(410)
    assert webhook.status is WebhookStatus.disabled
    assert "410" in webhook.reason
