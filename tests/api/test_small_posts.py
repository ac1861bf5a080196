"""Small posts that wait together: one commit, and each receives the counts of its own items."""

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import json
from support.faulty_store import PATIENCE_S, Faulty, recorder
from support.store_cases import T0, register

from recrawl_client.wire.evidence import Observation
from service.api.requests.bodies import JSON, Body
from service.api.requests.items import decode_batch
from service.api.requests.posts import Post, PostRecorder
from service.batching import reports
from service.batching.reports import batched
from service.model.errors import Overloaded, StoreUnavailable
from service.runtime.metrics import Telemetry


@pytest.fixture
def store():
    return Faulty()


def crawl(page_id, **rejections):
    return {"page_id": int(page_id), "observed_at": T0.isoformat(), "changed": True} | rejections


def answered(store, *requests, flushes=None):
    """Send requests that wait at the same moment; return answers and conditions."""
    now = T0 + timedelta(hours=1)
    telemetry = Telemetry(store, lambda: now, timedelta(minutes=10), "gamma")
    posts = PostRecorder(recorder(store), telemetry, lambda: now)
    line = batched("posts", posts.flush, watch=([] if flushes is None else flushes).append)
    futures = []
    for items, new in requests:
        batch = decode_batch(Body(json.encode(items), JSON), Observation, 100)
        futures.append(line.submit(Post(batch, new)))
    line.start()
    line.stop()
    return [future.exception(PATIENCE_S) or future.result() for future in futures]


def outcomes(answer):
    return [answer[name] for name in ("accepted", "duplicate", "late", "n_rejected")]


def test_those_that_wait_together_are_one_commit(store):
    page_id, flushes = register(store, 3), []
    answers = answered(store, *(([crawl(one)], True) for one in page_id), flushes=flushes)
    assert [outcomes(answer) for answer in answers] == [[1, 0, 0, 0]] * 3
    assert [(flush.n_jobs, flush.n_items) for flush in flushes] == [(3, 3)]


def test_each_is_told_of_its_own_items_by_its_own_index(store):
    one, other, _ = register(store, 3)
    requests = [
        [crawl(one)],
        [{"page_id": "x"}, crawl(999), crawl(other), crawl(other, digest="1" * 300), crawl(one)],
        [crawl(other, observed_at="2126-01-01T00:00:00Z")],
        [],
    ]
    first, mixed, bad, empty = answered(store, *((items, True) for items in requests))
    assert outcomes(first) == [1, 0, 0, 0]
    assert outcomes(mixed) == [1, 1, 0, 3]
    rejections = [(r.index, r.code, r.field) for r in mixed["rejected"]]
    assert rejections == [
        (0, "invalid", "page_id"),
        (1, "page_not_found", "page_id"),
        (3, "invalid", "digest"),
    ]
    assert outcomes(bad) == [0, 0, 0, 1]
    assert [(r.index, r.code) for r in bad["rejected"]] == [(0, "future")]
    assert outcomes(empty) == [0, 0, 0, 0]


def test_what_one_may_not_register_another_may(store):
    flushes, url = [], "https://new.example/"
    new = {"url": url, "observed_at": T0.isoformat(), "changed": True}
    refused, taken = answered(store, ([new], False), ([new], True), flushes=flushes)
    assert [outcomes(refused), outcomes(taken)] == [[0, 0, 0, 1], [1, 0, 0, 0]]
    assert len(flushes) == 2


def test_one_at_fault_fails_alone(store):
    page_id = register(store, 3)
    store.poisonous = int(page_id[1])
    first, poisoned, last = answered(store, *(([crawl(one)], True) for one in page_id))
    assert [outcomes(first), outcomes(last)] == [[1, 0, 0, 0]] * 2
    assert isinstance(poisoned, ZeroDivisionError)


def test_while_the_database_is_away_all_are_told(store):
    page_id = register(store, 2)
    store.at_begin = [StoreUnavailable()]
    answers = answered(store, *(([crawl(one)], True) for one in page_id))
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2


def test_a_full_line_refuses(store, monkeypatch):
    monkeypatch.setattr(reports, "LIMITS", replace(reports.LIMITS, max_waiting=1))
    page_id = register(store, 2)
    with pytest.raises(Overloaded):
        answered(store, *(([crawl(one)], True) for one in page_id))


def test_a_commit_of_very_many_is_bounded(store, monkeypatch):
    monkeypatch.setattr(reports, "LIMITS", replace(reports.LIMITS, max_batch=2))
    page_id, flushes = register(store, 5), []
    requests = (([crawl(one)], True) for one in page_id)
    answers = answered(store, *requests, flushes=flushes)
    assert [outcomes(answer) for answer in answers] == [[1, 0, 0, 0]] * 5
    assert [flush.n_jobs for flush in flushes] == [2, 2, 1]
