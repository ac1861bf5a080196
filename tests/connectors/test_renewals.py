"""Subscriptions are asked for and renewed by the worker, at a real hub with faults."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import numpy as np
import pytest
from support.hubs import open_hub
from support.live_server import START, Live, running

from service.connectors.guarded import Outgoing
from service.connectors.renewals import FORGET_AFTER, Renewer
from service.connectors.websub import hub_client
from service.model.subscriptions import WAITS_S

pytestmark = pytest.mark.dear

DAY = timedelta(days=1)
NEWS = b"<feed><entry><link href='/news'/></entry></feed>"


@pytest.fixture
def hub():
    with open_hub() as hub:
        yield hub


@pytest.fixture
def api(database_url):
    with running(database_url, websub_private=True) as live:
        live.service.renewer.stop()  # the tests renew
        yield live


def renewer(api: Live, *, private: bool = True) -> Renewer:
    store = api.service.store
    return Renewer(
        store,
        lambda: hub_client(private=private, outgoing=Outgoing("tests/1")),
        np.random.default_rng(1),
    )


def register(api: Live, hub, **fields) -> str:
    body = {
        "topic": f"{hub.url}/feed",
        "hub": f"{hub.url}/hub",
        "secret": "a-secret",
        "public_url": f"{api.url}/",
        **fields,
    }
    response = api.post("/websub", body)
    assert response.status_code == 200, response.text
    return response.json()["id"]


def shown(api: Live, name: str) -> dict:
    return api.get(f"/websub/{name}/state").json()


def needs(api: Live) -> list[dict]:
    listed = api.get("/status").json()["needs_you"]
    return [need for need in listed if need["kind"] == "subscription_ending"]


def instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def test_the_worker_asks_for_a_subscription_and_renews_it_for_good(api: Live, hub):
    name = register(api, hub)
    assert renewer(api).run_once() == 0, "the client has a minute to ask"
    api.clock.advance(seconds=61)
    assert renewer(api).run_once() == 1
    (_, form), one = hub.asked[0], shown(api, name)
    assert form == {
        "hub.mode": "subscribe",
        "hub.topic": f"{hub.url}/feed",
        "hub.callback": f"{api.url}/websub/{name}",
        "hub.lease_seconds": "864000",
        "hub.secret": "a-secret",
    }
    assert (one["state"], one["n_asked"], one["reason"]) == ("active", 0, None)
    for n in range(1, 4):
        api.clock.advance(days=6)
        assert renewer(api).run_once() == 0
        api.clock.advance(hours=17)
        assert renewer(api).run_once() == 1
        again = shown(api, name)
        assert instant(again["expires_at"]) == api.clock() + 10 * DAY
        assert [form["hub.callback"] for _, form in hub.asked] == [f"{api.url}/websub/{name}"] * (
            n + 1
        )
    assert [sent.status_code for sent in hub.distribute(NEWS)] == [202]
    assert shown(api, name)["n_taken"] == 1


def test_a_client_that_asks_in_time_leaves_the_worker_nothing(api: Live, hub):
    name = register(api, hub)
    hub.take({"hub.mode": "subscribe", "hub.topic": f"{hub.url}/feed"} | callback(api, name))
    api.clock.advance(hours=1)
    assert renewer(api).run_once() == 0
    assert shown(api, name)["state"] == "active"


def callback(api: Live, name: str) -> dict[str, str]:
    return {"hub.callback": f"{api.url}/websub/{name}", "hub.secret": "a-secret"}


def test_without_a_public_address_nobody_is_asked(api: Live, hub):
    response = api.post("/websub", {"topic": f"{hub.url}/feed", "hub": f"{hub.url}/hub"})
    api.clock.advance(days=400)
    assert renewer(api).run_once() == 0
    assert shown(api, response.json()["id"])["ask_at"] is None


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (None, "has not called back yet"),
        (503, "answered 503 a hub's reason"),
        (403, "answered 403 a hub's reason"),
    ],
)
def test_waits_for_a_hub_that_fails_grow_and_its_answer_is_shown(api: Live, hub, refusal, words):
    name = register(api, hub)
    hub.is_silent, hub.refusal = True, refusal
    api.clock.advance(seconds=61)
    for n, wait_s in enumerate(WAITS_S, 1):
        assert renewer(api).run_once() == 1
        one = shown(api, name)
        wait = (instant(one["ask_at"]) - api.clock()).total_seconds()
        assert 0.8 * wait_s <= wait <= 1.2 * wait_s
        assert one["n_asked"] == n
        assert words in one["reason"]
        api.clock.advance(seconds=wait)
    hub.is_silent, hub.refusal = False, None
    assert renewer(api).run_once() == 1
    assert shown(api, name)["reason"] is None


def test_near_the_end_of_a_lease_waits_are_short_and_somebody_is_needed(api: Live, hub):
    name = register(api, hub)
    api.clock.advance(seconds=61)
    renewer(api).run_once()
    hub.is_silent, hub.refusal = True, 500
    ends_at, n_asked = instant(shown(api, name)["expires_at"]), 0
    while (ask_at := instant(shown(api, name)["ask_at"])) < ends_at:
        api.clock.advance(seconds=max((ask_at - api.clock()).total_seconds(), 0.0))
        n_asked += renewer(api).run_once()
        left = ends_at - api.clock()
        assert bool(needs(api)) == (left <= 10 * DAY / 6)
    assert n_asked >= 10
    assert shown(api, name)["state"] == "active"
    api.clock.advance(days=1)
    assert shown(api, name)["state"] == "ended"
    hub.is_silent, hub.refusal = False, None
    assert renewer(api).run_once() == 1, "the worker goes on after the end"
    assert shown(api, name)["state"] == "active"
    assert needs(api) == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_hub_that_has_moved_gets_the_same_request(api: Live, hub, status):
    name = register(api, hub)
    hub.redirects = {"/hub": (status, "/next"), "/next": (status, f"{hub.url}/last")}
    api.clock.advance(seconds=61)
    assert renewer(api).run_once() == 1
    assert [path for path, _ in hub.asked] == ["/hub", "/next", "/last"]
    assert hub.asked[0][1] == hub.asked[2][1]
    assert shown(api, name)["state"] == "active"


@pytest.mark.parametrize(
    ("redirect", "words"),
    [
        ((303, "/next"), "answered 303, a redirect to /next"),
        ((307, ""), "answered 307, a redirect to no address"),
        ((307, "/hub"), "over 5 redirects in a row"),
        ((307, "ftp://hub.example/"), "cannot be reached"),
        ((307, "http://[/"), "cannot be reached"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_shown(api: Live, hub, redirect, words):
    name = register(api, hub)
    hub.redirects = {"/hub": redirect}
    api.clock.advance(seconds=61)
    assert renewer(api).run_once() == 1
    assert words in shown(api, name)["reason"]
    assert shown(api, name)["state"] == "pending"


def test_the_worker_asks_public_addresses_only_unless_it_may(api: Live, hub):
    name = register(api, hub)
    api.clock.advance(seconds=61)
    assert renewer(api, private=False).run_once() == 1
    assert "RECRAWL_WEBSUB_PRIVATE=true" in shown(api, name)["reason"]
    assert hub.asked == []


def test_one_that_is_deleted_is_ended_at_its_hub_first(api: Live, hub):
    name = register(api, hub)
    api.clock.advance(seconds=61)
    renewer(api).run_once()
    assert api.client.delete(f"/websub/{name}").status_code == 204
    assert shown(api, name)["state"] == "ending"
    assert [sent.status_code for sent in hub.distribute(NEWS)] == [410]
    (subscriber,) = hub.subscribers
    assert hub.verify(subscriber).status_code == 404, "it is not verified again"
    assert renewer(api).run_once() == 1
    assert hub.asked[-1][1]["hub.mode"] == "unsubscribe"
    assert hub.subscribers == []
    assert api.get(f"/websub/{name}/state").status_code == 404


def test_a_hub_that_never_confirms_the_end_is_forgotten(api: Live, hub):
    name = register(api, hub)
    api.clock.advance(seconds=61)
    renewer(api).run_once()
    hub.is_silent, hub.refusal = True, 503
    api.client.delete(f"/websub/{name}")
    for _ in range(FORGET_AFTER):
        assert api.get(f"/websub/{name}/state").status_code == 200
        assert renewer(api).run_once() == 1
        api.clock.advance(days=2)
    assert api.get(f"/websub/{name}/state").status_code == 404


def test_a_second_deletion_does_not_wait_for_the_hub(api: Live, hub):
    name = register(api, hub)
    api.clock.advance(seconds=61)
    renewer(api).run_once()
    assert [api.client.delete(f"/websub/{name}").status_code for _ in range(3)] == [204, 204, 404]


def test_a_denial_ends_what_was_deleted(api: Live, hub):
    name = register(api, hub)
    api.clock.advance(seconds=61)
    renewer(api).run_once()
    (subscriber,) = hub.subscribers
    assert api.client.delete(f"/websub/{name}").status_code == 204
    assert shown(api, name)["state"] == "ending"
    assert hub.deny(subscriber, "no such subscription").status_code == 200
    assert api.get(f"/websub/{name}/state").status_code == 404
    assert needs(api) == []


def test_a_hub_may_not_end_what_nobody_has_ended(api: Live, hub):
    name = register(api, hub)
    api.clock.advance(seconds=61)
    renewer(api).run_once()
    (subscriber,) = hub.subscribers
    ended = hub.verify(subscriber, mode="unsubscribe", lease_seconds=None)
    assert ended.status_code == 404
    one = shown(api, name)
    assert (one["state"], "nobody asked to end" in one["reason"]) == ("active", True)


def test_a_denial_is_shown_with_its_reason_and_needs_somebody(api: Live, hub):
    name = register(api, hub)
    api.clock.advance(seconds=61)
    renewer(api).run_once()
    (subscriber,) = hub.subscribers
    assert hub.deny(subscriber, "no robots\x00, please ").status_code == 200
    one = shown(api, name)
    assert (one["state"], one["reason"]) == ("denied", "no robots\ufffd, please")
    (need,) = needs(api)
    assert need["subject"] == "127.0.0.1"
    assert need["since"] == api.clock().isoformat().replace("+00:00", "Z")
    api.clock.advance(days=30)
    assert renewer(api).run_once() == 0, "a denial is no failure"
    assert hub.verify(subscriber).status_code == 200, "the hub may change its mind"
    assert shown(api, name)["state"] == "active"


def test_several_workers_ask_once(api: Live, hub):
    names = [register(api, hub, topic=f"{hub.url}/{i}") for i in range(8)]
    api.clock.advance(seconds=61)
    together = threading.Barrier(4)

    def work(_):
        own = renewer(api)
        together.wait(60)
        return own.run_once()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 8
    assert len(hub.asked) == 8
    assert {shown(api, name)["state"] for name in names} == {"active"}


def test_a_hub_that_fails_is_asked_once_a_look_and_delays_no_other(api: Live, hub):
    for i in range(5):
        register(api, hub, topic=f"{hub.url}/{i}")
    with open_hub() as other:
        well = register(api, other)
        hub.is_silent, hub.refusal = True, 503
        api.clock.advance(seconds=61)
        assert renewer(api).run_once() == 2
        assert (len(hub.asked), shown(api, well)["state"]) == (1, "active")
        assert renewer(api).run_once() == 1, "the next of the same hub"


def test_a_subscription_of_before_has_no_address_and_is_shown_when_it_ends(api: Live, hub):
    body = {"topic": f"{hub.url}/feed", "hub": f"{hub.url}/hub"}
    name = api.post("/websub", body).json()["id"]
    hub.lease_s = 3_600
    hub.take({"hub.mode": "subscribe", "hub.topic": f"{hub.url}/feed"} | callback(api, name))
    assert instant(shown(api, name)["expires_at"]) == START + timedelta(hours=1)
    api.clock.advance(minutes=49)
    assert needs(api) == []
    api.clock.advance(minutes=1)
    (need,) = needs(api)
    assert need["sentence"] == (
        "Renew the subscription to 127.0.0.1 at the hub 127.0.0.1: its lease ends in 10 minutes, "
        "and no renewal has succeeded."
    )
    api.clock.advance(hours=2)
    (need,) = needs(api)
    assert "its lease ended" in need["sentence"]
