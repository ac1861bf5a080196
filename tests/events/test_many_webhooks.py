"""Many webhooks: those without a match and those with slow addresses delay no other."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from support.live_server import Clock, running, until
from support.odd_answers import answering, drips, silent
from support.receiver import SECRET, receiving

from service.events import courier as courier_module
from service.events import places, reading, scans
from service.events.places import PlaceKind, Places

URL = "https://a.example/1"


@pytest.fixture
def live(database_url):
    clock = Clock()
    clock.now = datetime.now(UTC)
    with running(database_url, clock=clock, webhooks_private=True) as live:
        live.register(URL)
        yield live


@pytest.fixture
def receiver():
    with receiving() as receiver:
        yield receiver
        assert receiver.faults == []


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def report(live, digest: str) -> None:
    at = datetime.now(UTC).isoformat()
    item = {"url": URL, "observed_at": at, "digest": digest}
    assert live.post("/observations", [item]).json()["accepted"] == 1


def hook(live, url: str, **fields) -> str:
    response = live.client.post("/webhooks", json={"url": url, "secret": SECRET, **fields})
    assert response.status_code == 200, response.text
    return response.json()["id"]


def look(live, n: int = 1) -> None:
    """Look for due webhooks some times, and wait for those that began."""
    courier = live.service.courier
    for _ in range(n):
        courier.look()
        while courier._threads:
            courier._threads.pop().join()


@pytest.mark.parametrize("at_once", [False, True])
def test_a_webhook_behind_many_without_a_match_has_its_turn(live, receiver, monkeypatch, at_once):
    """Each look visits one webhook, or three, of those that wait longest."""
    monkeypatch.setattr(courier_module, "MOST_DUE", 3)
    monkeypatch.setattr(courier_module, "LOOK_S", 60.0 if at_once else 0.0)
    for n in range(7):
        hook(live, receiver.url, host=f"none{n}.example")
    live.clock.advance(seconds=1)
    hook(live, receiver.url)
    for n in range(3):
        report(live, str(n))
        live.clock.advance(seconds=1)
        look(live, 1 if at_once else 9)
        assert len(receiver.accepted) == n + 1


@pytest.mark.dear
def test_each_webhook_has_one_turn_a_round_however_many_join_meanwhile(live, monkeypatch):
    monkeypatch.setattr(courier_module, "MOST_DUE", 2)
    monkeypatch.setattr(courier_module, "LOOK_S", 0.0)
    visited = []
    courier = live.service.courier

    def visit(_tx, webhook, _newest):
        visited.append(webhook.id)
        live.clock.advance(seconds=1)
        hook(live, "https://a.example/", host="later.example")

    monkeypatch.setattr(courier._scans, "kind", visit)
    first = {hook(live, "https://a.example/", host="none.example") for _ in range(5)}
    report(live, "one")
    look(live, 5)
    assert set(visited) == first


@pytest.fixture
def long_looks(monkeypatch):
    monkeypatch.setattr(courier_module, "LOOK_S", 60.0)


def places_of(live, *ids) -> list[str]:
    return [live.get(f"/webhooks/{one}").json()["cursor"] for one in ids]


@pytest.mark.usefixtures("long_looks")
def test_places_without_a_match_are_saved_together_and_wait_behind_others(live, receiver):
    courier, clock = live.service.courier, Seconds()
    courier._scans = scans.Scans(clock)
    idle = [hook(live, receiver.url, host=f"none{n}.example") for n in range(4)]
    before = places_of(live, *idle)
    report(live, "one")
    look(live)
    clock.now = scans.SAVE_EVERY_S - 0.1
    assert courier._scans.save(live.service.store) == 0
    patched = live.client.patch(f"/webhooks/{idle[1]}", json={"host": "a.example"})
    assert patched.status_code == 200
    live.client.patch(f"/webhooks/{idle[2]}", json={"paused": True})
    assert live.client.delete(f"/webhooks/{idle[3]}").status_code == 204
    live.clock.advance(seconds=9)
    clock.now = scans.SAVE_EVERY_S
    assert courier._scans.save(live.service.store) == 4
    after = places_of(live, *idle[:3])
    assert [old == new for old, new in zip(before, after, strict=False)] == [False, True, True]
    shown = live.get(f"/webhooks/{idle[0]}").json()
    assert (shown["lag_s"], datetime.fromisoformat(shown["next_at"])) == (0, live.clock.now)
    look(live)
    assert len(receiver.accepted) == 1  # by the filter that changed meanwhile
    clock.now *= 3
    assert courier._scans.save(live.service.store) == 0  # nothing new was read


@pytest.mark.usefixtures("long_looks")
def test_a_place_that_is_claimed_or_set_back_meanwhile_is_not_saved(live, receiver):
    courier, clock = live.service.courier, Seconds()
    courier._scans = scans.Scans(clock)
    claimed, back = (hook(live, receiver.url, host="none.example") for _ in range(2))
    first = places_of(live, back)[0]
    report(live, "one")
    look(live)
    clock.now = 6
    courier._scans.save(live.service.store)
    report(live, "two")
    look(live)
    response = live.client.post(f"/webhooks/{back}/redeliver", json={"cursor": first})
    assert response.status_code == 200
    with live.service.store.begin() as tx:
        now = tx.now()
        assert tx.claim_webhook(claimed, now, now + timedelta(seconds=4))
    before = places_of(live, claimed, back)
    clock.now = 12
    courier._scans.save(live.service.store)
    assert places_of(live, claimed, back) == before


@pytest.mark.dear
def test_long_searches_take_few_places(live, receiver, monkeypatch):
    monkeypatch.setattr(reading, "MOST_SCANNED", 2)
    monkeypatch.setattr(reading, "CHUNK", 1)
    monkeypatch.setattr(courier_module, "LOOK_S", 60.0)
    monkeypatch.setitem(places.MOST_OF_KIND, PlaceKind.behind, 1)
    cursor = live.get("/changes", limit=1).json()["next_cursor"]
    for n in range(9):
        report(live, str(n))
    behind = [hook(live, receiver.url, host=f"none{n}.example", cursor=cursor) for n in range(5)]
    hook(live, receiver.url, cursor=cursor)
    started = []
    deliver = live.service.courier.deliver
    monkeypatch.setattr(
        live.service.courier, "deliver", lambda name: (started.append(name), deliver(name))
    )
    look(live)
    assert len(started) == 2
    live.service.courier.run_once()
    assert set(started) >= set(behind)
    assert all(live.get(f"/webhooks/{one}").json()["lag_s"] == 0 for one in behind)


def test_places_of_an_address_and_of_a_kind_are_limited():
    held = Places(Seconds())
    sound, slow = PlaceKind.sound, PlaceKind.slow
    taken = [held.take(f"a{n}", slow, "a") for n in range(20)]
    assert sum(taken) == places.MOST_OF_ADDRESS[slow]
    for n in range(200):
        held.take(f"b{n}", slow, f"b{n}")
    assert not held.take("more", slow, "c")
    assert held.take("good", sound, "a")
    assert [f"a{n}" in held for n in (0, 19)] == [True, False]
    held.release("a0")
    assert held.take("more", slow, "a")


def test_slow_requests_leave_room_for_quick_ones():
    clock = Seconds()
    held = Places(clock)
    for n in range(places.MOST_AT_ONCE):
        if n % places.MOST_QUICK == 0:
            clock.now += 1
            assert not held.are_full
        assert held.take(str(n), PlaceKind.sound, str(n))
        assert held.are_full == (n % places.MOST_QUICK == places.MOST_QUICK - 1)
    clock.now += 1
    assert held.are_full
    held.release("0")
    assert not held.are_full
    for n in range(1, 1 + places.MOST_QUICK):
        held.restart(str(n))
    assert held.are_full


def test_an_address_that_failed_or_was_slow_takes_other_places(live, receiver, monkeypatch):
    courier, kinds = live.service.courier, []
    take = courier.places.take
    monkeypatch.setattr(
        courier.places,
        "take",
        lambda name, kind, at: (kinds.append(str(kind)), take(name, kind, at))[1],
    )
    post = courier.poster.post
    seconds = iter([9.0, 1.0, 1.0])
    monkeypatch.setattr(
        courier.poster, "post", lambda *args: post(*args)._replace(latency_s=next(seconds))
    )
    answers = iter([503, 204, 204])
    receiver.answer = lambda _: next(answers)
    hook(live, receiver.url)
    report(live, "one")
    for _ in range(3):
        live.clock.advance(seconds=20)
        courier.run_once()
    report(live, "two")
    courier.run_once()
    assert kinds == ["sound", "slow", "sound"]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["one address", "many addresses"])
def test_a_good_address_is_served_beside_idle_and_slow_ones(database_url, where):
    drip = drips(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x", every_s=0.5)
    slow = [silent] * 20 + [drip] * 20
    with (
        running(database_url, clock=lambda: datetime.now(UTC), webhooks_private=True) as live,
        receiving() as receiver,
        answering({str(n): answer for n, answer in enumerate(slow)}) as (port, requests),
    ):
        live.register(URL)
        for n in range(400):
            hook(live, receiver.url, host=f"none{n}.example")
        for n in range(len(slow)):
            host = f"127.0.0.{n + 1}" if where == "many addresses" else "127.0.0.1"
            hook(live, f"http://{host}:{port}/{n}")
        hook(live, receiver.url)
        courier = live.service.courier
        thread = threading.Thread(target=courier.run_every, daemon=True)
        thread.start()
        sent: dict[str, float] = {}
        try:
            for n in range(100):
                sent[str(n)] = time.time()
                report(live, str(n))
                time.sleep(0.2)
            until(lambda: len(receiver.accepted) == 100, "all have arrived", 60)
        finally:
            courier.stop()
            thread.join()
        assert receiver.faults == []
        arrived = [one.at for one in receiver.requests for _ in one.events]
        lags = [at - begun for at, begun in zip(arrived, sent.values(), strict=True)]
        assert max(lags) < 5
        assert len(set(requests)) == len(slow)


def test_a_courier_looks_often_while_a_webhook_is_due_and_rarely_without_one(live, receiver):
    courier = live.service.courier
    until_due = courier._until_due

    def wait_s(**fields) -> float:
        with live.service.store.begin() as tx:
            if fields:
                tx.change_webhook(name, **fields)
            return until_due(tx)

    courier.look()
    assert [courier._needs_look(courier._rings) for _ in range(3)] == [False] * 3
    assert courier._needs_look(courier._rings + 1)
    assert wait_s() == courier_module.SILENT_S
    name, now = hook(live, receiver.url), live.clock.now
    assert wait_s() == 0.0, "the feed does not ring"
    report(live, "a")
    assert wait_s() == 0.0
    assert wait_s(next_at=now + timedelta(seconds=2)) == 2.0
    claimed = {"next_at": now, "leased_until": now + timedelta(seconds=3)}
    assert wait_s(**claimed) == 3.0
    assert wait_s(next_at=now + timedelta(hours=1)) == courier_module.SILENT_S
    assert wait_s(status="disabled", next_at=now) == courier_module.SILENT_S
