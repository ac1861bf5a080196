"""A fleet of crawlers in simulated time, through the real epochs, queue, leases and reports."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import numpy as np

from service.batching.lease_requests import LeaseRequest, lease_all
from service.batching.reports import CrawlReport, Recorder
from service.epochs.plan import Plan
from service.epochs.run import Runner, run_epoch
from service.estimation.rules import InForce
from service.ingest.page_names import PageNames
from service.leases.dealt import WorkerRequest
from service.leases.host_settings import change_group, change_host
from service.leases.politeness import Politeness
from service.leases.settle import LeaseSettler
from service.model.arrays import instant, moment
from service.model.calendars import ALWAYS, Calendars
from service.storage.queue.columns import ALL_PAGES
from service.storage.queue.hours import follow_hours
from support.crawl_cases import RULES
from support.store_cases import crawl_columns, instants, page_columns

TTL = timedelta(minutes=10)
POLITE = Politeness(delay_s=1.0, concurrency=4)
FILL_EVERY = timedelta(days=1)


class PatientRunner(Runner):
    """A runner whose queue reaches three days ahead, so that a year has 365 fills."""

    @property
    def ahead(self):
        return 3 * FILL_EVERY


class Fleet:
    """Pages of some hosts, and the crawls that were made of them."""

    def __init__(self, store, pages, start, estimator, bandwidth, every=timedelta(hours=12)):
        """Register pages: by host the mean changes a day of each."""
        self.store, self.now, self.every = store, start, every
        store.clock = lambda: self.now
        store.calendars = Calendars()
        self.rng = np.random.default_rng(11)
        self.plan = Plan(estimator=estimator, bandwidth=bandwidth, host_delay_s=POLITE.delay_s)
        self.runner = PatientRunner(store, self.plan, every, store.clock, POLITE)
        settler = LeaseSettler(POLITE, self.runner.ahead, self.rng)
        self.recorder = Recorder(store, InForce(replace(RULES, estimator=estimator)), settler)
        self.rates, self.host, urls = {}, {}, {}
        with store.begin() as tx:
            for host, rates in pages.items():
                names = [f"https://{host}/{n}" for n in range(len(rates))]
                found = tx.register(page_columns(names), start)
                for page_id, url, rate in zip(found.page_id.tolist(), names, rates, strict=True):
                    self.rates[page_id], self.host[page_id], urls[page_id] = rate, host, url
        self.last = dict.fromkeys(self.rates, start)
        self.crawls = []
        """(host, page, instant, end of the lease) of each crawl."""
        self.promised = Counter()
        """Crawls that the schedule and the windows permit, by page."""

    def rule(self, of_all=ALWAYS, hosts=None, groups=None):
        """Set windows and blackouts of all hosts, of hosts, and of groups with their members."""
        self.store.calendars = Calendars(of_all)
        with self.store.begin() as tx:
            for host, settings in (hosts or {}).items():
                change_host(tx, host, settings, self.now, POLITE)
            for group, (settings, members) in (groups or {}).items():
                change_group(tx, group, settings, members, self.now, POLITE)
        self.follow()

    def follow(self):
        with self.store.begin(write=False) as tx:
            follow_hours(tx, tx.orders().hours)

    def run(self, until):
        """Crawl until an instant."""
        next_epoch = next_fill = self.now
        while self.now < until:
            if self.now >= next_epoch:
                self._promise(next_epoch - self.every if self.crawls else None)
                run_epoch(self.store, self.plan, self.store.clock)
                next_fill = self.now
                next_epoch += self.every
                self._schedule()
            if self.now >= next_fill:
                self.runner.fill_queue()
                next_fill += FILL_EVERY
            with self.store.begin(write=False) as tx:
                ready = tx.next_ready_at(ALL_PAGES)
            soon = min(next_epoch, next_fill, until)
            if ready is None or ready > self.now:
                self.now = min(ready or soon, soon)
            elif not self._crawl():
                self.now += timedelta(seconds=1)

    def _schedule(self):
        with self.store.begin(write=False) as tx:
            page_id = np.array(sorted(self.rates))
            pages = [tx.page(page) for page in page_id.tolist()]
        self.rate = {page.page_id: page.crawl_rate or 0.0 for page in pages}
        self.hours = {page.page_id: page.hours for page in pages}

    def _promise(self, since):
        """Count the crawls that rates and windows permitted since the last epoch."""
        if since is None or not hasattr(self, "rate"):
            return
        for page, rate in self.rate.items():
            days = (self.now - since) / timedelta(days=1)
            hours = self.hours[page]
            if hours is None:
                self.promised[page] += days * rate
                continue
            ends = np.array([instant(since), instant(self.now)])
            open_days = np.diff(hours.elapsed(ends))[0] / 86_400_000_000
            if rate > 0:
                self.promised[page] += open_days / hours.step(np.array([1.0 / rate]))[0]

    def _crawl(self):
        jobs = [LeaseRequest(WorkerRequest("w", 8, TTL), ALL_PAGES)]
        n = 0
        for dealt in lease_all(self.store, POLITE, self.rng, jobs):
            leased = dealt.leased
            if not len(leased.pages):
                continue
            pages, ends = leased.pages.page_id, leased.leases.expires_at
            began = self.now
            changed = []
            for page, end in zip(pages.tolist(), ends, strict=True):
                days = (began - self.last[page]) / timedelta(days=1)
                changed.append(self.rng.random() < -np.expm1(-self.rates[page] * days))
                self.last[page] = began
                self.crawls.append((self.host[page], page, began, moment(end)))
            self.now += timedelta(milliseconds=200)
            order = np.argsort(pages, kind="stable")
            page_id, token = pages[order], leased.leases.token[order]
            at = instants([began] * len(pages))
            crawled = crawl_columns(page_id, at, np.array(changed)[order])
            crawled = replace(crawled, token=token, leased_page_id=page_id)
            nowhere = PageNames(page_id, np.full(len(pages), -1), page_columns([]))
            self.recorder.flush_crawls([CrawlReport(crawled, nowhere, False, self.now)])
            n += len(pages)
        return n
