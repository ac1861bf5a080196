"""Limits of a key: items a second, and requests in work."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.access.limits import WAITING_FACTOR, WINDOW_S, Slots, TokenBucket
from service.model.errors import RateLimited


@given(
    per_s=st.floats(0.01, 1_000),
    requests=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 500)), max_size=60),
)
def test_a_key_sends_no_more_than_its_rate_a_burst_and_one_batch(per_s, requests):
    now, bucket = 0.0, TokenBucket.full(per_s, 0.0)
    n_sent = largest = 0
    for pause, n_items in requests:
        now += pause
        try:
            bucket.admit(now)
        except RateLimited:
            continue
        bucket.charge(n_items - 1)
        n_sent, largest = n_sent + n_items, max(largest, n_items)
    assert n_sent <= per_s * now + bucket.capacity + largest + 1e-6


@given(per_s=st.floats(0.01, 1_000), debt=st.integers(0, 100_000))
def test_a_key_is_admitted_again_after_the_stated_wait_and_not_a_second_before(per_s, debt):
    bucket = TokenBucket.full(per_s, 0.0)
    bucket.charge(debt)
    wait_s = bucket.wait_s(0.0)
    bucket.admit(float(wait_s) + 1e-6 * wait_s)
    if wait_s > 1:
        early = TokenBucket.full(per_s, 0.0)
        early.charge(debt)
        with pytest.raises(RateLimited):
            early.admit(wait_s - 1.001)


def test_the_headers_state_the_quota_what_is_left_and_when_it_is_full():
    bucket = TokenBucket.full(0.5, 0.0)
    bucket.charge(2)
    assert bucket.headers(0.0) == {
        "RateLimit-Policy": f'"items";q=5;qu="items";w={WINDOW_S}',
        "RateLimit": '"items";r=3;t=4',
    }
    bucket.charge(10)
    assert bucket.headers(0.0)["RateLimit"] == '"items";r=0;t=24'


def test_a_refusal_states_the_rate_and_the_wait():
    bucket = TokenBucket.full(2.0, 0.0)
    bucket.charge(40)
    with pytest.raises(RateLimited, match="2 items a second and has used them up; wait 11 s") as e:
        bucket.admit(0.0)
    assert e.value.extra == {"retry_after_s": 11.0}


def test_requests_wait_for_their_place_in_order():
    async def run():
        slots, order = Slots(2), []

        async def request(i):
            await slots.take()
            order.append(i)
            await asyncio.sleep(0)
            slots.leave()

        await asyncio.gather(*(request(i) for i in range(10)))
        return order, slots.free

    assert asyncio.run(run()) == (list(range(10)), 2)


def test_too_many_waiting_requests_are_refused():
    async def run():
        slots = Slots(1)
        await slots.take()
        waiting = [asyncio.create_task(slots.take()) for _ in range(WAITING_FACTOR)]
        await asyncio.sleep(0)
        with pytest.raises(RateLimited, match="1 request in work and 16 that wait"):
            await slots.take()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        slots.leave()
        return slots.free

    assert asyncio.run(run()) == 1


def test_a_request_that_is_cancelled_as_its_turn_comes_hands_the_place_on():
    async def run():
        slots = Slots(1)
        await slots.take()
        first, second = (asyncio.create_task(slots.take()) for _ in range(2))
        await asyncio.sleep(0)
        slots.leave()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.wait_for(second, 30)
        slots.leave()
        return slots.free

    assert asyncio.run(run()) == 1


def test_a_request_that_waits_on_purpose_leaves_its_place_to_others():
    async def run():
        slots = Slots(1)
        await slots.take()
        slots.leave()  # it waits
        await slots.take()  # another works
        slots.retake()  # it goes on, beside the other
        blocked = asyncio.create_task(slots.take())
        await asyncio.sleep(0)
        slots.leave()
        await asyncio.sleep(0)
        still_blocked = not blocked.done()
        slots.leave()
        await asyncio.wait_for(blocked, 30)
        return still_blocked

    assert asyncio.run(run())
