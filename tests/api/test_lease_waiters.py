"""Requests that wait for a crawl are woken by the end of a lease, in the order of their arrival."""

import asyncio
import threading

import pytest
from support.live_server import running, until

from service.api.routes import leases
from service.api.waiting import LeaseWaiters

LONGER_THAN_THE_TEST_S = 600.0


@pytest.fixture
def live(database_url, monkeypatch):
    """One lease at a time, without a delay, and no look at the database but for a reason."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setattr(leases, "POLL_S", LONGER_THAN_THE_TEST_S)
    with running(database_url) as live:
        live.register("https://a.example/1", "https://a.example/2")
        yield live


def lease(live, wait_s=0):
    return live.client.post("/leases", json={"wait_s": wait_s}).json()["items"]


def report(live, crawl):
    observation = {"lease": crawl["lease"], "observed_at": live.clock().isoformat()}
    live.post("/observations", [{**observation, "status": 200, "digest": "1"}])


def release(live, crawl):
    assert live.client.delete(f"/leases/{crawl['lease']}").status_code == 204


@pytest.mark.dear
@pytest.mark.parametrize("end", [report, release])
def test_the_end_of_a_lease_serves_a_request_that_waits_for_its_host(live, end):
    (crawl,) = lease(live)
    assert lease(live) == []
    items = []
    waiting = threading.Thread(target=lambda: items.extend(lease(live, wait_s=30)))
    waiting.start()
    until(lambda: live.service.lease_waiters._waiting, "it waits")
    end(live, crawl)
    waiting.join(25)
    assert len(items) == 1, "served before wait_s was over"
    waiting.join()
    assert not live.service.lease_waiters._waiting


def run(scenario):
    return asyncio.run(scenario(LeaseWaiters()))


def test_as_many_are_woken_as_leases_ended_and_those_that_waited_longest():
    async def scenario(waiters):
        with waiters.place() as a, waiters.place() as b, waiters.place() as c:
            waiters.wake(2)
            await asyncio.sleep(0)
            first = [a.is_set(), b.is_set(), c.is_set()]
            await waiters.wait(a, LONGER_THAN_THE_TEST_S)
            waiters.wake(1)
            await asyncio.sleep(0)
            second = [a.is_set(), b.is_set(), c.is_set()]
            waiters.wake(1)
            await asyncio.sleep(0)
            return first, second, a.is_set()

    first, second, again = run(scenario)
    assert first == [True, True, False]
    assert second == [False, True, True], "a request that was woken waits behind the others"
    assert again


def test_a_wake_during_a_look_is_not_lost_and_one_for_nobody_is_none():
    async def scenario(waiters):
        waiters.wake(1)
        with waiters.place() as place:
            waiters.wake(0)
            await asyncio.sleep(0)
            assert not place.is_set()
            waiters.wake(1)
            await waiters.wait(place, LONGER_THAN_THE_TEST_S)
            await waiters.wait(place, 0.001)
        waiters.wake(1)
        await asyncio.sleep(0)
        return place.is_set()

    assert run(scenario) is False
