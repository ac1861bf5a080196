"""Answers to lease requests: stored once for each key, dropped when they expire."""

from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import T0

from service.model.arrays import INSTANT, instant
from service.model.errors import AnswerTaken
from service.storage import open_store
from service.storage.queue.answers import LeaseAnswers


def answers(*keys, expires_at=T0, text="{}"):
    n = len(keys)
    return LeaseAnswers(
        key=np.array(keys, np.int64),
        body=np.array(keys, np.int64) + 1,
        expires_at=np.full(n, instant(expires_at), INSTANT),
        answer=np.array([text] * n, object),
    )


def stored(store, *keys):
    with store.begin(write=False) as tx:
        return sorted(tx.lease_answers(np.array(keys, np.int64)))


def test_an_answer_is_read_by_its_key(queue_store):
    with queue_store.begin() as tx:
        tx.add_lease_answers(answers(7, -9, text='{"url":"https://a.example/ü"}'))
        tx.add_lease_answers(answers())
    assert stored(queue_store, 1, -9) == [(-9, -8, '{"url":"https://a.example/ü"}')]


def test_expired_answers_are_dropped_and_the_others_stay(queue_store):
    with queue_store.begin() as tx:
        tx.add_lease_answers(answers(1, 2))
        tx.add_lease_answers(answers(3, expires_at=T0 + timedelta(microseconds=1)))
    with queue_store.begin() as tx:
        tx.drop_lease_answers(T0)
    assert [key for key, *_ in stored(queue_store, 1, 2, 3)] == [3]


def insert_twice(store):
    with store.begin() as late:
        assert list(late.lease_answers(np.array([7]))) == []
        with store.begin() as early:
            early.add_lease_answers(answers(7))
        late.add_lease_answers(answers(7))


def test_of_two_transactions_with_one_key_one_commits(postgres_url):
    store = open_store(postgres_url, 2)
    with pytest.raises(AnswerTaken):
        insert_twice(store)
    store.close()
