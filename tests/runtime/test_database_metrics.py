"""Metrics from the database: counted apart and rarely, and kept while the database is away."""

from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta

import pytest
from support.store_cases import T0

from service.model.errors import StoreUnavailable
from service.runtime.database_metrics import COUNT_EVERY_S, COUNT_SHARE, SumsCollector
from service.runtime.metrics import Monitor
from service.status.needs import KINDS, Need
from service.storage.queue.columns import QueueCensus

NEED = Need("host_paused", "a.example", T0, "See a.example.", "recrawl status")


class Queue:
    """A store whose queue takes a while to count, or does not answer."""

    has_queue = True
    n_counts = 0
    takes_s = 0.0
    away = False
    seconds = 0.0

    @contextmanager
    def begin(self, *, write=True):
        assert not write
        yield self

    def count_subscriptions(self, now):
        return {}

    def calibrations(self, _since, _until):
        return []

    def queue_census(self, _now):
        self.seconds += self.takes_s
        if self.away:
            raise StoreUnavailable
        self.n_counts += 1
        return QueueCensus(self.n_counts, *[0] * (len(fields(QueueCensus)) - 1))


@pytest.mark.parametrize("takes_s", [0.0, 3.0])
def test_counting_takes_at_most_a_hundredth_of_the_time(takes_s):
    queue = Queue()
    collector = SumsCollector(queue, lambda: T0, lambda: queue.seconds)
    collector.next_at = 0.0
    queue.takes_s = takes_s
    for _ in range(2_000):
        collector.count()
        queue.seconds += 0.5
    possible = queue.seconds / max(COUNT_EVERY_S, takes_s / COUNT_SHARE)
    assert possible - 1 <= queue.n_counts <= possible + 1


def values(collector):
    return {sample.name: sample.value for one in collector.collect() for sample in one.samples}


def test_the_last_count_stays_with_its_age_while_the_database_is_away():
    queue, now = Queue(), [T0]
    collector = SumsCollector(queue, lambda: now[0], lambda: queue.seconds)
    assert values(collector) == {}
    collector.count()
    queue.away, queue.seconds, now[0] = True, 1_000.0, T0 + timedelta(seconds=90)
    collector.count()
    assert queue.n_counts == 1
    assert values(collector)["recrawl_count_age_seconds"] == 90
    assert values(collector)["recrawl_queue_pages"] == 1


def test_a_scrape_reads_no_row_of_a_page(sql_store, monkeypatch):
    with sql_store.begin(write=False) as tx:
        kind = type(tx)
    for name in ("load_columns", "list_pages", "due_block", "queue_census"):
        monkeypatch.setattr(kind, name, None)
    monitor = Monitor(sql_store, lambda: T0, timedelta(minutes=10), "gamma")
    assert b"recrawl_up 1.0" in monitor.scrape()


def test_each_kind_of_needs_has_a_series_and_the_last_one_stays_during_an_outage(sql_store):
    monitor = Monitor(sql_store, lambda: T0, timedelta(minutes=10), "gamma")
    answers = [[], [NEED, NEED._replace(n=4)], StoreUnavailable()]

    def read():
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers.pop(0)

    monitor.watch_needs(read)
    assert NEED.kind not in values(monitor.needs), "no zero before the first count"
    seen = []
    for _ in range(3):
        monitor.needs.next_at = 0.0
        monitor.count()
        (family,) = monitor.needs.collect()
        seen.append({sample.labels["kind"]: sample.value for sample in family.samples})
    assert seen[0] == dict.fromkeys((kind.name for kind in KINDS), 0.0)
    assert seen[1] == seen[2] == seen[0] | {NEED.kind: 5.0}
