"""Replay: Recrawl's own use cases play a world in this process, on the store in memory.

The use cases are those of the service (`run_epoch`, `record`, `ping`); only the web and the change
hours are simulated. The crawls of a step are recorded in one batch, each at its own instant.
After an outage, a page is tried again in the next step. No host is paused.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from recrawl_lab.memory.store import MemoryStore
from recrawl_lab.replay.idle import PARTS_THAT_LEARN, in_use
from recrawl_lab.replay.playing import Due, announcements, crawl
from recrawl_lab.replay.staleness import Crawls, merged
from recrawl_lab.worlds.simulated_time import START, Clock, instant_of
from recrawl_lab.worlds.versions import Versions
from recrawl_lab.worlds.world import World
from service.core.change_hours.best_hours import FAST_INTERVAL
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.epochs.shifts import FREQUENT_EVERY
from service.estimation.estimates import width
from service.estimation.rules import Rules, rules_in_force
from service.history.counting import compare
from service.ingest.record import ping, record
from service.leases.due import due_at
from service.model.arrays import (
    KEY,
    NO_TIME,
    UNSPECIFIED,
    Bools,
    Codes,
    Floats,
    Instants,
    Ints,
    days,
    instant,
)
from service.model.columns import CrawlColumns, PageColumns, PingColumns
from service.model.domain import Certificate, Observability, ScheduleFilter
from service.model.errors import UnexpectedAnswer
from service.model.history import HostEvents
from service.model.urls import key_of

EVERYTHING = 1 << 62
OFTEN = 0.5
"""Time between epochs once a host has change hours, as a share of the usual time."""
PAGE_BITS = 32
"""Bits of a digest below the number of its page."""
MICROSECONDS = 86_400e6
_START = instant(START)


class Predicted(NamedTuple):
    """(K,) crawls that were evidence, with their predictions."""

    page: Ints
    at: Floats
    """Instant, days since the start."""
    probability: Floats
    """Probability of a change since the last crawl, according to the epoch in force."""
    changed: Bools


NOTHING = Predicted(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0, np.bool_))


@dataclass(frozen=True, slots=True)
class Replayed:
    """Recrawl's crawls and predictions in a world."""

    crawls: Crawls
    """Crawls without the first crawl of each page, which discovers it; also those in outages."""
    predicted: Predicted
    """Predictions; empty for estimators that read the whole history again."""
    idle: frozenset[str] = frozenset()
    """Fields of the plan without which the game would be the same."""


def replay(
    world: World,
    bandwidth: float,
    plan: Plan,
    *,
    step: float = 1.0,
    notices: Crawls | None = None,
    seed: int = 1,
    even_epochs: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Replayed:
    """Crawl a world by Recrawl's schedule and return the crawls and predictions.

    A page is found at its creation. The crawl that finds it gone counts and deletes it.

    Parameters
    ----------
    bandwidth
        Bandwidth of crawls and of the epochs, crawls a day.
    step
        Time from one epoch to the next, days.
    notices
        Change notices, by page and instant of arrival; None: those of the announced pages, without
        delay.
    seed
        Seed of the jitter of due times.
    even_epochs
        True if change hours make epochs no more frequent, so that games compare at equal epochs.
    progress
        Function that receives each day reached.
    """
    clock = Clock()
    fleet = LocalFleet(world, clock, replace(plan, bandwidth=bandwidth), seed)
    fleet.even_epochs = even_epochs
    pings = announcements(world) if notices is None else notices
    done = [Crawls.none()]
    for day, crawls in crawl(fleet, clock, pings, bandwidth, step):
        done.append(crawls)
        if progress is not None:
            progress(day)
    return Replayed(merged(*done), fleet.predicted, fleet.idle)


class LocalFleet:
    """A fleet that calls the use cases; `fleet.Fleet` calls the API instead."""

    def __init__(self, world: World, clock: Clock, plan: Plan, seed: int) -> None:
        self.world = world
        self.clock = clock
        needs_log = plan.estimator.needs_history
        plan = replace(plan, audit_retention=None, first_share=0.0)
        self.plan = plan if needs_log else replace(plan, retention=timedelta(0))
        self.rules = Rules(plan.estimator, plan.timing, np.random.default_rng(seed))
        self.store = MemoryStore(width(plan.estimator))
        self._versions = Versions(world)
        self._page_id = np.zeros(len(world), np.int64)
        self._page = np.zeros(len(world) + 1, np.int64)
        self._budget_factor = 1.0
        self.certificate: Certificate | None = None
        """Certificate of the epoch in force."""
        self.even_epochs = False
        """True if all epochs are as far apart as usual."""
        self.idle = PARTS_THAT_LEARN
        """Fields of the plan without any effect so far."""
        self._has_hours, self._frequent = False, np.zeros(len(world), np.bool_)
        self._predicted = [NOTHING]

    @property
    def predicted(self) -> Predicted:
        """All predictions, in the order of the steps."""
        return Predicted(*map(np.concatenate, zip(*self._predicted, strict=True)))

    def discover(self, pages: Ints) -> None:
        """Register pages and record their first crawl, at the instant of their creation."""
        if len(pages):
            self.register(pages)
            self._record(Crawls(pages, self.world.created[pages]))

    def register(self, pages: Ints) -> None:
        """Register pages."""
        world, unsaid = self.world, np.full(len(pages), np.nan)
        urls = [world.url[page] for page in pages.tolist()]
        announced = world.announced[pages]
        columns = PageColumns(
            key=np.frombuffer(b"".join(map(key_of, urls)), KEY),
            url=np.array(urls, object),
            host=np.array([urlsplit(url).hostname for url in urls], object),
            importance=world.importance[pages],
            observability=np.where(announced, Observability.complete, Observability.auto),
            min_crawl_rate=unsaid,
            max_crawl_rate=unsaid,
        )
        with self.store.begin() as tx:
            page_id = tx.register(columns, self.clock()).page_id
        self._date_births(page_id, instants_of(world.created[pages]))
        self._page_id[pages], self._page[page_id] = page_id, pages

    def _date_births(self, page_id: Ints, created_at: Instants) -> None:
        with self.store.begin() as tx:
            tx.date_births(page_id, created_at)

    def new_epoch(self) -> None:
        """Run an epoch in this thread."""
        epoch = run_epoch(self.store, self.plan, self.clock)
        if epoch.reason:
            raise UnexpectedAnswer(f"epoch {epoch.epoch} failed: {epoch.reason}")
        self.certificate = epoch.certificate
        if epoch.certificate is not None:
            self._budget_factor = epoch.certificate.budget_factor
        self.idle -= in_use(self.store, epoch)
        self._look_at_hours()

    def _look_at_hours(self) -> None:
        """Find out whether a host has change hours, and which of its pages are crawled often."""
        with self.store.begin(write=False) as tx:
            groups = tx.group_profiles()
            groups = groups.where(groups.profile[:, 0] > 0)
            host_id = np.union1d(tx.host_hours().host_id, groups.host_id)
            schedule = self.store.schedules.get(tx.number_in_force())
        self._has_hours, self._frequent[:] = len(host_id) > 0, False
        if self._has_hours and schedule is not None:
            fast = schedule.page_id[schedule.crawl_rate * FAST_INTERVAL > 1.0]
            with_hours = np.isin(self.store.pages["host_id"][fast - 1], host_id)
            self._frequent[self._page[fast[with_hours]]] = True

    def step(self, usual: float) -> float:
        """Return the time to the next epoch, days."""
        if self.even_epochs:
            return usual
        often = OFTEN * usual if self._has_hours else usual
        return min(often, FREQUENT_EVERY) if self._frequent.any() else often

    def due(self, before: float) -> Due:
        """Read the schedule."""
        with self.store.begin(write=False) as tx:
            pages = tx.schedule(tx.number_in_force(), 0, EVERYTHING, ScheduleFilter()).pages
        at = due_at(pages)
        row = np.flatnonzero(at < instant(instant_of(before)))
        page, rate, due_rate = (
            self._page[pages.page_id[row]],
            pages.crawl_rate[row],
            pages.due_rate[row],
        )
        slow = np.where(due_rate == rate, rate, self._budget_factor * rate)
        failing, day = pages.n_failures[row] > 0, since_start(at[row])
        # a retry is as late as the crawl that failed
        nominal = since_start(self.store.states["last_observed_at"][pages.page_id[row] - 1])
        nominal += np.divide(
            pages.interval_factor[row], due_rate, out=np.zeros(len(row)), where=due_rate > 0
        )
        late_since = np.where(failing, np.fmin(nominal, day), day)
        return Due(page, day, np.where(self._frequent[page], due_rate, slow), late_since)

    def announce(self, changes: Crawls) -> Crawls:
        """Record change notices."""
        if not len(changes.page):
            return changes
        at = instants_of(changes.at)
        pings = PingColumns(page_id=self._page_id[changes.page], changed_at=at, changed_by=at)
        with self.store.begin() as tx:
            wanted = ping(tx, pings, rules_in_force(tx, self.rules)).requested
        return Crawls(changes.page[wanted], changes.at[wanted])

    def crawl(self, crawls: Crawls) -> Crawls:
        """Record the results of crawls; a page found gone is deleted and not crawled again."""
        order = np.lexsort((crawls.at, crawls.page))
        page, at = crawls.page[order], crawls.at[order]
        status = self.status(page, at)
        # in an outage the absence of a page does not show
        gone = self.world.gone(page, at) & (status == UNSPECIFIED)
        again = _after_first(page, gone)
        kept = ~gone & ~again
        self._record(Crawls(page[kept], at[kept]), status[kept])
        if len(lost := self._page_id[page[gone & ~again]]):
            with self.store.begin() as tx:
                # the crawl that finds a page gone is a request too
                tx.count(HostEvents("n_reported", self.store.pages["host_id"][lost - 1]))
                for page_id in lost.tolist():
                    tx.delete_page(page_id)
        return Crawls(page[~again], at[~again])

    def status(self, page: Ints, at: Floats) -> Codes:  # noqa: ARG002 - other worlds ask the page
        """Return the (K,) statuses of crawls without content; UNSPECIFIED: there is content."""
        return self.world.outages.status(at)

    def digests(self, page: Ints, version: Ints) -> Ints:
        """Return the (K,) digests of versions of pages; no two pages have the same content."""
        return 1 + version + (page.astype(np.int64) << PAGE_BITS)

    def _record(self, crawls: Crawls, status: Codes | None = None) -> None:
        """Record crawls with content, or with the status of an outage in place of content."""
        n = len(crawls.page)
        unsaid, version = np.full(n, UNSPECIFIED, np.int16), self._versions.at(*crawls)
        status = unsaid if status is None else status
        own = self.digests(crawls.page, version)
        columns = CrawlColumns(
            page_id=self._page_id[crawls.page],
            observed_at=instants_of(crawls.at),
            changed=unsaid,
            digest=np.where(status == UNSPECIFIED, own, 0),
            status=status,
            leased_page_id=np.zeros(n, np.int64),
            token=np.zeros(n, np.int64),
            retry_after_s=np.full(n, np.nan),
            redirects_to=np.zeros(n, np.int64),
            leads=np.zeros(n, np.int16),
            last_modified=np.full(n, NO_TIME),
        )
        with self.store.begin() as tx:
            rules = rules_in_force(tx, self.rules)
            outcome = record(tx, columns, rules)
            if outcome.events is None:
                return
            row, probability, changed = compare(tx, [outcome.events])
        crawl = outcome.accepted[row]
        predicted = Predicted(crawls.page[crawl], crawls.at[crawl], probability, changed)
        self._predicted.append(predicted)


def instants_of(at: Floats) -> Instants:
    """Return days since the start as instants."""
    return _START + np.rint(at * MICROSECONDS).astype("m8[us]")


def _after_first(page: Ints, marked: Bools) -> Bools:
    """Return which rows come after a marked row of the same page; the rows are in page order."""
    before: Ints = np.cumsum(marked) - marked
    first = np.flatnonzero(np.diff(page, prepend=-1))
    n_rows = np.diff(np.append(first, len(page)))
    after: Bools = before > np.repeat(before[first], n_rows)
    return after


def since_start(at: Instants) -> Floats:
    """Return instants as days since the start."""
    return days(at - _START)
