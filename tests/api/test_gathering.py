"""Small batches that come together: one job, and each request is told of its own items."""

import asyncio
from datetime import timedelta

import pytest
from msgspec import json
from store_cases import T0, register
from test_commits import Faulty, writing

from service.api.bodies import JSON, Body, decode_batch
from service.api.gathering import Gathering
from service.api.schemas import ObservationItem
from service.commits import Commits
from service.errors import Overloaded, StoreUnavailable
from service.telemetry import Telemetry


@pytest.fixture
def store():
    return Faulty()


def crawl(page_id, **told):
    return {"page_id": int(page_id), "observed_at": T0.isoformat(), "changed": True} | told


def answered(store, *requests, folds=None):
    """Send requests that are read in one turn of an event loop; gives answers and conditions."""
    now = T0 + timedelta(hours=1)

    async def send(line):
        gathering = Gathering(line, Telemetry(store, lambda: now), lambda: now)
        batches = [
            (decode_batch(Body(json.encode(items), JSON), ObservationItem, 100), new)
            for items, new in requests
        ]
        writes = [gathering.write(batch, register=new) for batch, new in batches]
        return await asyncio.gather(*writes, return_exceptions=True)

    with writing(store, watch=([] if folds is None else folds).append) as line:
        return asyncio.run(send(line))


def outcomes(answer):
    return [answer[name] for name in ("accepted", "duplicate", "late", "n_rejected")]


def test_those_that_come_together_are_one_job(store):
    page_id, folds = register(store, 3), []
    answers = answered(store, *(([crawl(one)], True) for one in page_id), folds=folds)
    assert [outcomes(answer) for answer in answers] == [[1, 0, 0, 0]] * 3
    assert [(fold.n_requests, fold.n_items) for fold in folds] == [(3, 3)]


def test_each_is_told_of_its_own_items_by_its_own_index(store):
    one, other, _ = register(store, 3)
    requests = [
        [crawl(one)],
        [{"page_id": "x"}, crawl(999), crawl(other), crawl(other, status=99), crawl(one)],
        [crawl(other, observed_at="2126-01-01T00:00:00Z")],
        [],
    ]
    first, mixed, bad, empty = answered(store, *((items, True) for items in requests))
    assert outcomes(first) == [1, 0, 0, 0]
    assert outcomes(mixed) == [1, 1, 0, 3]
    told = [(r.index, r.code, r.field) for r in mixed["rejected"]]
    assert told == [(0, "invalid", "page_id"), (1, "page_not_found", "page_id"),
                    (3, "invalid", "status")]  # fmt: skip
    assert outcomes(bad) == [0, 0, 0, 1]
    assert [(r.index, r.code) for r in bad["rejected"]] == [(0, "future")]
    assert outcomes(empty) == [0, 0, 0, 0]


def test_what_one_may_not_register_another_may(store):
    folds, url = [], "https://new.example/"
    new = {"url": url, "observed_at": T0.isoformat(), "changed": True}
    refused, taken = answered(store, ([new], False), ([new], True), folds=folds)
    assert [outcomes(refused), outcomes(taken)] == [[0, 0, 0, 1], [1, 0, 0, 0]]
    assert len(folds) == 2


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


def test_a_full_line_refuses_all_and_nobody_waits(store, monkeypatch):
    page_id = register(store, 2)
    monkeypatch.setattr("service.commits.Commits.submit", refuse)
    answers = answered(store, *(([crawl(one)], True) for one in page_id))
    assert [type(answer) for answer in answers] == [Overloaded] * 2


def refuse(*_):
    raise Overloaded


def test_of_very_many_some_share_a_job(store, monkeypatch):
    monkeypatch.setattr("service.api.gathering.MOST", 2)
    page_id, given = register(store, 5), []
    submit = Commits.submit
    monkeypatch.setattr(
        Commits, "submit", lambda line, job: given.append(job.n_requests) or submit(line, job)
    )
    answers = answered(store, *(([crawl(one)], True) for one in page_id))
    assert [outcomes(answer) for answer in answers] == [[1, 0, 0, 0]] * 5
    assert given == [2, 2, 1]
