"""A fleet that registers new pages and crawls all that it is given; and the answers of sites."""

from dataclasses import replace
from datetime import timedelta

import numpy as np

from service.batching.registrations import Registrar, Registration
from service.batching.reports import CrawlReport, Recorder
from service.budget.admission import admit_waiting, sample
from service.estimation.rules import InForce
from service.ingest.page_names import PageNames
from service.leases.queue import fill_queue
from service.leases.settle import LeaseSettler
from service.model.columns import PageColumns
from support.crawl_cases import RUDE, RULES, UNTIL, rng, take
from support.store_cases import DAY, T0, crawl_columns, instants, page_columns

HOUR = timedelta(hours=1)
JUNK = 777
"""Digest of all pages of a trap."""


def of_one_digest(urls):
    """Return the answers of a trap: status 200, and the same digest for each URL."""
    return {"digest": np.full(len(urls), JUNK), "status": 200}


def all_different(urls):
    """Return the answers of a site whose pages all differ."""
    return {"digest": np.array([1 + hash(url) % (1 << 60) for url in urls]), "status": 200}


def absent(urls):
    """Return the answers of a site that has none of the URLs."""
    return {"digest": np.zeros(len(urls), np.int64), "status": 404}


class Fleet:
    """Workers that ask every hour and crawl all that is due; the store's clock is theirs."""

    def __init__(self, store, budget=200.0):
        self.store = store
        self.store.holds_new = True
        self.now, self.budget = T0, budget
        self.crawled: list[str] = []
        self.day = 0
        self.settler = LeaseSettler(RUDE, UNTIL, rng())
        self.recorder = Recorder(store, InForce(RULES), self.settler)
        self._at(T0)

    def _at(self, now):
        self.now = now
        self.store.clock = lambda: now

    def register(self, urls):
        """Register URLs as one request."""
        job = Registration(page_columns(urls), self.now)
        (registered,) = Registrar(self.store, self.settler).flush([job])
        return registered.page_id

    def crawl(self, answers):
        """Crawl what is leased now, until nothing is; return the URLs."""
        urls = []
        while leased := take(self.store, self.now, count=1000):
            some = [crawl.url for crawl in leased]
            page_id = np.array([crawl.page_id for crawl in leased], np.int64)
            self._at(self.now + timedelta(seconds=1))
            columns = crawl_columns(page_id, instants([self.now] * len(page_id)), **answers(some))
            columns = replace(
                columns,
                leased_page_id=page_id,
                token=np.array([crawl.token for crawl in leased], np.int64),
            )
            names = PageNames(page_id, np.full(len(page_id), -1), PageColumns.empty())
            self.recorder.flush_crawls([CrawlReport(columns, names, False, self.now)])
            urls += some
        self.crawled += urls
        return urls

    def round(self):
        """Do the work of the runner of epochs on the queue."""
        for part in self.store.parts:
            admit_waiting(part, self.now)
            sample(part, self.budget / len(self.store.parts), self.now)
            fill_queue(part, self.now + UNTIL)

    def play(self, answers, days, hours=24):
        """Crawl in the first hours of some days, each time after a round of the runner.

        Return the URLs of each day that were not crawled before.
        """
        each = []
        for _ in range(days):
            start, before = T0 + self.day * DAY, len(self.crawled)
            for hour in range(hours):
                self._at(max(self.now, start + hour * HOUR))
                self.round()
                self.crawl(answers)
            each.append(sorted({*self.crawled[before:]} - {*self.crawled[:before]}))
            self.day += 1
        return each
