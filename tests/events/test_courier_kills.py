"""A process that dies at any step of a delivery: nothing is missed, at most one batch repeats."""

from datetime import UTC, datetime, timedelta

import pytest
from support.live_server import Clock, running
from support.receiver import SECRET, receiving

from service.events import courier as courier_module
from service.events.courier import CLAIM_S, Courier
from service.events.delivery import PostOutcome

URLS = [f"https://a.example/{i}" for i in range(6)]


class Killed(BaseException):
    """The end of a process."""


class Dying(Courier):
    """A courier whose process ends at one step of its first batch."""

    def __init__(self, courier: Courier, step: str) -> None:
        super().__init__(courier.store, courier.poster._new_client, courier._rng)
        self.step = step

    def _next(self, webhook, sent, *, go_on):
        if self.step == "claimed" or (self.step == "sent" and sent is not None):
            raise Killed
        batch = super()._next(webhook, sent, go_on=go_on)
        if self.step == "chosen" or (self.step == "confirmed" and sent is not None):
            raise Killed
        return batch


@pytest.fixture
def live(database_url):
    clock = Clock()
    clock.now = datetime.now(UTC)
    with running(database_url, clock=clock, webhooks_private=True) as live:
        for url in URLS:
            live.register(url)
        yield live


@pytest.mark.dear
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("step", "repeats"), [("claimed", 0), ("chosen", 0), ("sent", 1), ("confirmed", 0)]
)
def test_a_process_killed_at_a_step_repeats_at_most_its_batch(live, step, repeats):
    with receiving() as receiver:
        body = {"url": receiver.url, "secret": SECRET, "max_items": 2}
        webhook_id = live.client.post("/webhooks", json=body).json()["id"]
        at = (live.clock.now - timedelta(hours=1)).isoformat()
        items = [{"url": url, "observed_at": at, "digest": "one"} for url in URLS]
        assert live.post("/observations", items).json()["accepted"] == len(URLS)
        dying = Dying(live.service.courier, step)
        with pytest.raises(Killed):
            dying.deliver(webhook_id)
        dying.stop()
        live.service.courier.run_once()
        n_before = len(receiver.requests)
        assert n_before == (step in ("sent", "confirmed"))  # the claim still runs
        live.clock.advance(seconds=CLAIM_S + 1)
        live.service.courier.run_once()
        assert receiver.faults == []
    names = [request.delivery for request in receiver.requests]
    assert len(names) - len(set(names)) == repeats
    subjects = [[event["subject"] for event in one.events] for one in receiver.requests]
    assert subjects[repeats:] == [URLS[0:2], URLS[2:4], URLS[4:6]]
    assert subjects[:repeats] == [URLS[0:2]] * repeats


def test_two_processes_never_serve_one_webhook_at_once(live):
    with receiving() as receiver:
        body = {"url": receiver.url, "secret": SECRET}
        webhook_id = live.client.post("/webhooks", json=body).json()["id"]
        store, now = live.service.store, live.clock.now
        with store.begin() as tx:
            until = now + timedelta(seconds=60)
            first = tx.claim_webhook(webhook_id, now, until)
            assert tx.claim_webhook(webhook_id, now, until) is None
            assert tx.lock_webhook(webhook_id, first.token - 1) is None
        live.clock.advance(seconds=61)
        with store.begin() as tx:
            second = tx.claim_webhook(webhook_id, live.clock.now, until)
            assert second.token == first.token + 1
            assert tx.lock_webhook(webhook_id, first.token) is None
            assert tx.lock_webhook(webhook_id, second.token) == second


def test_a_request_that_outlasts_its_claim_keeps_the_webhook(live):
    """The process renews the claim while the receiver takes its time."""
    with receiving() as receiver:
        body = {"url": receiver.url, "secret": SECRET, "max_items": 10}
        live.client.post("/webhooks", json=body)
        at = (live.clock.now - timedelta(hours=1)).isoformat()
        courier = live.service.courier
        other = Courier(courier.store, courier.poster._new_client, courier._rng)
        post, others = courier.poster.post, []

        def take_long(*args) -> PostOutcome:
            for _ in range(3):
                live.clock.advance(seconds=CLAIM_S - 1)
                courier._renewed_at -= 2
                courier.renew()
                others.append(other.look())
            live.clock.advance(seconds=CLAIM_S + 1)  # renewed no more: the claim has ended
            others.append(other.run_once())
            return post(*args)

        courier.poster.post = take_long
        items = [{"url": url, "observed_at": at, "digest": "one"} for url in URLS]
        live.post("/observations", items)
        courier.run_once()
        other.stop()
        assert others == [0, 0, 0, 1]
        assert receiver.faults == []
        first, again = receiver.requests
        assert first.delivery == again.delivery
        assert courier._claims == {}


def test_an_answer_that_comes_after_a_redelivery_moves_no_place(live):
    """The owner sets the place back while a request runs."""
    with receiving() as receiver:
        body = {"url": receiver.url, "secret": SECRET, "max_items": 10}
        webhook_id = live.client.post("/webhooks", json=body).json()["id"]
        begin = live.get("/changes").json()["next_cursor"]
        at = (live.clock.now - timedelta(hours=1)).isoformat()
        items = [{"url": url, "observed_at": at, "digest": "one"} for url in URLS]
        live.post("/observations", items)
        cursor = live.get("/changes", limit=4).json()["next_cursor"]
        post = live.service.courier.poster.post
        cursors = [cursor, begin]

        def redeliver(*args) -> PostOutcome:
            outcome = post(*args)
            if cursors:
                path = f"/webhooks/{webhook_id}/redeliver"
                assert live.client.post(path, json={"cursor": cursors.pop(0)}).status_code == 200
            return outcome

        live.service.courier.poster.post = redeliver
        live.service.courier.run_once()
    n_events = [len(request.events) for request in receiver.requests]
    assert n_events == [6, 2, 6]


@pytest.mark.dear
def test_changes_beyond_the_retention_are_deleted_and_the_newest_stays(live):
    courier = live.service.courier
    for k in range(3):
        at = (live.clock.now - timedelta(hours=9 - k)).isoformat()
        live.post("/observations", [{"url": URLS[k], "observed_at": at, "digest": "one"}])
    assert len(live.get("/changes").json()["items"]) == 3
    courier.keep_feed()
    assert len(live.get("/changes").json()["items"]) == 3
    live.clock.advance(days=31)
    courier._kept_at -= 61
    courier.keep_feed()
    (item,) = live.get("/changes").json()["items"]
    assert item["url"] == URLS[2]


def test_a_long_deletion_of_old_changes_goes_on_at_the_next_call(live, monkeypatch):
    courier = live.service.courier
    monkeypatch.setattr(courier_module, "BLOCKS_AT_ONCE", 1)
    monkeypatch.setattr(courier_module, "KEEP_S", 0.0)
    for k in range(4):
        at = (live.clock.now - timedelta(hours=9 - k)).isoformat()
        live.post("/observations", [{"url": URLS[k], "observed_at": at, "digest": "one"}])
    live.clock.advance(days=31)
    left = []
    for _ in range(4):
        courier.keep_feed()
        left.append(len(live.get("/changes").json()["items"]))
    assert left == [3, 2, 1, 1]
