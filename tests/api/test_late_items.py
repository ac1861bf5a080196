"""Items out of the order of time are late: the answer has their exact number, and what to do."""

import json
from datetime import timedelta

import pytest
from msgspec import convert
from support.live_server import START, running

from recrawl_client import Client, Observation

N = 40


@pytest.fixture
def live(database_url):
    with running(database_url, max_items=10) as live:
        live.clock.advance(days=N)
        yield live


def crawls(order):
    at = [(START + timedelta(days=day)).isoformat() for day in range(N)]
    return [{"url": "https://a.example/", "observed_at": at[n], "digest": str(n)} for n in order]


def sent(live, items):
    content = "\n".join(map(json.dumps, items))
    headers = {"Content-Type": "application/x-ndjson"}
    return live.client.post("/observations", content=content, headers=headers).json()


def test_a_stream_in_the_order_of_time_has_no_hint(live):
    answer = sent(live, crawls(range(N)))
    assert (answer["accepted"], answer["late"]) == (N, 0)
    assert "hint" not in answer


def test_a_stream_against_the_order_of_time_states_how_many_items_were_late(live):
    answer = sent(live, crawls(reversed(range(N))))
    n_late = answer["late"]
    assert n_late == N - answer["accepted"] == 30, "a block of ten is sorted by itself"
    assert answer["hint"].startswith(f"{n_late} items are older than the newest evidence")
    assert answer["hint"].endswith("such as a log sorted by time")


def test_pings_and_single_items_have_the_hint_too(live):
    assert sent(live, crawls([5]))["late"] == 0
    assert live.post("/observations", crawls([3])).json()["hint"].startswith("1 item is older")
    pings = [[{"url": each["url"], "changed_at": each["observed_at"]}] for each in crawls([8, 7])]
    answers = [live.post("/pings", each).json() for each in pings]
    assert ["hint" in each for each in answers] == [False, True]


def test_the_client_sums_up_the_items_of_all_its_requests(live):
    items = [convert(each, Observation) for each in crawls(reversed(range(N)))]
    with Client(live.url) as client:
        total = client.report_many(items)
    assert total.late == 30
    assert total.hint.startswith("30 items are")
