"""Counts of crawls, pings and leases for the history, and predictions against the crawls.

A transaction counts references to its arrays. After the commit the counter of the process holds
them, and writes their sums every `EVERY_S` seconds in a transaction of its own.

**Guarantee.** An event counts at most once, and only if its commit succeeded. A crash loses at most
the events of the last `EVERY_S` seconds. An orderly end writes them. Sums whose transaction fails
are written by the next one, except after an error of the commit itself, because it may have
succeeded.
"""

import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray
from typing_extensions import override

from service.core.calibration import CalibrationSums
from service.estimation.predictions import predicted_changes
from service.estimation.rules import Rules
from service.model.amounts import fine_units
from service.model.arrays import (
    DAY,
    INSTANT,
    Bools,
    Codes,
    Floats,
    Instants,
    Ints,
    Numbers,
    datetime_at,
    distinct,
    instant,
    positions,
)
from service.model.columns import PageStates
from service.model.errors import OUTAGES
from service.model.freshness import FreshnessColumns
from service.model.history import (
    STEP,
    Calibrations,
    HostEvents,
    StepSums,
    Tally,
    merged_parts,
)
from service.storage import Store, Transaction
from service.storage.history.contract import Counted, Counter

EVERY_S = 2.0
"""Time from the first event to the transaction that writes its sums, seconds."""
MOST_HELD = 20_000
"""Maximum number of crawls that wait for their predictions; more are counted, not compared."""
MOST_COMPARED = 100
"""Number of crawls of one write that are all compared with their predictions.

Above, only pages whose page_id is a multiple of a number are compared: about as many crawls.
"""
BY_CRAWL = (
    *("page", "at", "interval", "changed", "failing", "taught_nothing", "is_evidence"),
    "n_pings",
)
"""Columns of `CrawlEvents` with a value for each crawl."""
BEFORE = FreshnessColumns.__dataclass_fields__.keys() & PageStates.__dataclass_fields__.keys()
"""Columns of a prediction as of before the crawl; the others are the same after it."""

STEP_LENGTH = np.timedelta64(STEP)

log = structlog.get_logger()


def compared_every(n_crawls: int) -> int:
    """Return the number whose multiples are the page_ids to compare.

    >>> [compared_every(n) for n in (1, 100, 101, 20_000)]
    [1, 1, 2, 200]
    """
    return -(-max(n_crawls, 1) // MOST_COMPARED)


class CrawlEvents(NamedTuple):
    """(N,) accepted crawls of (P,) pages, ordered by page and time within a commit."""

    states: PageStates
    """States of the pages before the crawls."""
    page: Ints
    """Row of each crawl's page in the states."""
    at: Instants
    interval: Floats
    """Days since the last answer."""
    changed: Codes
    failing: Bools
    taught_nothing: Bools
    is_evidence: Bools
    n_pings: Ints
    """Pings within the interval."""
    rules: Rules
    cost: Numbers = None
    """Costs in the unit of the rules; NaN: none, also for a price that was only asked."""
    counted: Bools | None = None
    """True if the page has changed, of changes with a weight a sample; None: as `changed`."""

    def where(self, mask: Bools) -> "CrawlEvents":
        """Return the crawls that a mask selects, of the same pages."""
        names = (*BY_CRAWL, *(n for n in ("cost", "counted") if getattr(self, n) is not None))
        return self._replace(**{name: getattr(self, name)[mask] for name in names})

    @property
    def result(self) -> Codes:
        """(N,) 1 for a change that counts, else 0, as estimates predict it."""
        if self.counted is None:
            return self.changed
        return np.where(self.changed == 1, self.counted, self.changed).astype(np.int16)


def counted_at(at: Instants, reported_at: datetime) -> Instants:
    """Return the steps in which (N,) crawls count that were reported in a step.

    It is the step of the report. A crawl of an earlier UTC day counts in the last step of its day,
    whose budget it took.

    >>> from datetime import UTC
    >>> at = np.array(["2026-05-03T23:50", "2026-05-03T09:00", "2026-05-04T00:10"], "M8[us]")
    >>> counted_at(at, datetime(2026, 5, 4, 7, 20, tzinfo=UTC)).astype("M8[m]").tolist()[1:]
    [datetime.datetime(2026, 5, 3, 23, 50), datetime.datetime(2026, 5, 4, 7, 20)]
    """
    here = instant(reported_at)
    midnight = at.astype("M8[D]").astype(INSTANT) + DAY
    steps: Instants = np.where(midnight <= here.astype("M8[D]"), midnight - STEP_LENGTH, here)
    return steps


def tallies_of(commits: Sequence[CrawlEvents], reported_at: datetime) -> dict[datetime, Tally]:
    """Return the sums of crawls without predictions, by the step in which they count.

    `reported_at` is the step of their reports, which always has a tally. Crawls that count in
    another one are `n_late` in it, and are taken from the `n_late` of theirs.
    """
    host_id, columns = _counts(commits)
    step = counted_at(np.concatenate([each.at for each in commits]), reported_at)
    late = step < instant(reported_at)
    if not late.any():
        return {reported_at: Tally.of(host_id, columns)}
    of_step = {name: np.where(late, 0, column) for name, column in columns.items()}
    tallies = {reported_at: Tally.of(host_id, of_step | {"n_late": late})}
    for each in np.unique(step[late]):
        row = positions(step == each)
        own = {name: column[row] for name, column in columns.items()}
        own["n_late"] = np.full(len(row), -1)
        tallies[datetime_at(int(each.astype(np.int64)))] = Tally.of(host_id[row], own)
    return tallies


def _counts(commits: Sequence[CrawlEvents]) -> tuple[Ints, dict[str, NDArray[Any]]]:
    """Return the host of each crawl, and by the names of counts what each crawl adds.

    A ping is true if the next crawl of its page found a change, else false. A change that no ping
    announced is missed if the page has had pings.
    """
    host_id = np.concatenate([each.states.host_id[each.page] for each in commits])
    changed = np.concatenate([each.changed for each in commits])
    has_changed, same = changed == 1, changed == 0
    columns: dict[str, NDArray[Any]] = {
        "n_reported": np.ones(len(host_id), np.bool_),
        "n_failed": np.concatenate([each.failing for each in commits]),
        "n_changed": has_changed,
        "n_wasted": same,
        "n_taught_nothing": np.concatenate([each.taught_nothing for each in commits]),
    }
    spent = [_spent(each) for each in commits]
    if any(each.any() for each in spent):
        columns |= {"spent": np.concatenate(spent)}
    had_pings = np.concatenate([each.states.n_pings[each.page] for each in commits]) > 0
    if had_pings.any():
        n_pings = np.concatenate([each.n_pings for each in commits])
        columns |= {
            "n_true_pings": n_pings * has_changed,
            "n_false_pings": n_pings * same,
            "n_missed": has_changed & (n_pings == 0) & had_pings,
        }
    return host_id, columns


def _spent(events: CrawlEvents) -> Floats:
    """Return (N,) costs of crawls in fine units."""
    if events.cost is None:
        return np.zeros(len(events.page))
    return np.nan_to_num(events.cost) * fine_units(events.rules.unit)


class ComparedCrawls(NamedTuple):
    """(K,) crawls that were compared with their predictions."""

    crawl: Ints
    """Row of the crawl in its commit."""
    probability: Floats
    """P(changed) before the crawl."""
    changed: Bools


NOT_COMPARED = ComparedCrawls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.bool_))


def compare(tx: Transaction, commits: Sequence[CrawlEvents], every: int = 1) -> ComparedCrawls:
    """Return crawls of one epoch that are evidence, with their predictions.

    Pages whose id is a multiple of `every` are compared, unless they were deleted since. After
    another epoch nothing is compared, because urgencies of the crawls' epoch are gone. An estimator
    that reads the log predicts nothing.
    """
    rules = commits[-1].rules
    if rules.estimator.needs_history or rules.epoch.number != tx.number_in_force():
        return NOT_COMPARED
    page_id = np.concatenate([each.states.page_id[each.page] for each in commits])
    is_evidence = np.concatenate([each.is_evidence for each in commits])
    crawl = np.flatnonzero(is_evidence & (page_id % every == 0))
    if not len(crawl):
        return NOT_COMPARED
    before, (at, interval, n_pings, changed) = _columns_of(commits, crawl)
    pages = tx.freshness_columns(distinct(before["page_id"]))
    there = np.flatnonzero(np.isin(before["page_id"], pages.page_id))
    if not len(there):
        return NOT_COMPARED
    before = {name: column[there] for name, column in before.items()}
    pages = replace(pages.take(pages.page_id.searchsorted(before["page_id"])), **before)
    estimator, pages = rules.of_pages(tx, pages)
    probability = predicted_changes(
        pages, estimator, rules.epoch, at[there], interval[there], n_pings[there], rules.feeds
    )
    return ComparedCrawls(crawl[there], probability, changed[there] == 1)


def _columns_of(
    commits: Sequence[CrawlEvents], crawl: Ints
) -> tuple[dict[str, NDArray[Any]], list[NDArray[Any]]]:
    """Return the states before (K,) crawls by name, and their `at, interval, n_pings, result`.

    The columns of commits that have any of the crawls are joined before rows are taken. Because
    most commits have one crawl, rows taken from each commit would cost more.
    """
    n_crawls = np.array([len(each.page) for each in commits])
    of = np.cumsum(n_crawls).searchsorted(crawl, "right")
    kept = distinct(of)
    chosen, n_kept = [commits[i] for i in kept], n_crawls[kept]
    n_pages = np.array([len(each.states) for each in chosen])
    first_crawl = np.cumsum(n_kept) - n_kept
    first_page = np.cumsum(n_pages) - n_pages
    within = crawl - (np.cumsum(n_crawls) - n_crawls)[of]
    position = kept.searchsorted(of)
    row = within + first_crawl[position]
    page = np.concatenate([each.page for each in chosen])[row] + first_page[position]
    states = [each.states for each in chosen]
    before = {
        name: np.concatenate([getattr(each, name) for each in states])[page] for name in BEFORE
    }
    names = "at", "interval", "n_pings", "result"
    return before, [np.concatenate([getattr(each, n) for each in chosen])[row] for n in names]


class HistoryCounter(Counter):
    """The counter of a process. A timer runs while something is held, in a thread of its own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.n_not_compared = 0  # because of `MOST_HELD` or outages
        self._held: list[Counted] = []
        self._n_crawls = 0
        """Number of crawls that wait for their predictions."""
        self._parts: list[StepSums] = []
        """Sums that are not written yet."""
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        """Lock of what is held."""
        self._writing = threading.Lock()

    @override
    def add(self, counted: list[Counted]) -> None:
        if not counted:
            return
        with self._lock:
            for each in counted:
                self._held += self._bounded(each)
            if self._timer is None:
                self._start_timer()

    def _bounded(self, counted: Counted) -> list[Counted]:
        """Return sums instead of crawls that nothing will be compared with."""
        if not isinstance(counted.events, CrawlEvents):
            return [counted]
        n = len(counted.events.page)
        if not n:
            return []
        if self._n_crawls + n > MOST_HELD:
            self.n_not_compared += n
            return list(starmap(Counted, tallies_of([counted.events], counted.at).items()))
        self._n_crawls += n
        return [counted]

    def _start_timer(self) -> None:
        self._timer = threading.Timer(EVERY_S, self._write_later)
        self._timer.daemon = True
        self._timer.start()

    def _write_later(self) -> None:
        with suppress(*OUTAGES):
            self.write()
        with self._lock:
            if self._parts and self._timer is None:
                self._start_timer()

    @override
    def write(self) -> None:
        with self._writing:
            with self._lock:
                if self._timer is not None:
                    self._timer.cancel()
                # the lock covers only the exchange: commits do not wait for the database
                held, self._held, self._n_crawls, self._timer = self._held, [], 0, None
            self._parts = merged_parts([*self._parts, *self._sums(held)])
            if not self._parts:
                return
            with self.store.begin() as tx:
                for part in self._parts:
                    tx.add_part(part)
                self._parts = []  # a commit that fails may have succeeded

    def _sums(self, held: list[Counted]) -> list[StepSums]:
        """Return the sums of events; leases and pings count under the latest epoch of crawls."""
        crawls: dict[tuple[datetime, int], list[CrawlEvents]] = defaultdict(list)
        hosts: dict[tuple[datetime, str], list[Ints]] = defaultdict(list)
        sums: list[tuple[datetime, Tally]] = []
        for at, events in held:
            if isinstance(events, CrawlEvents):
                crawls[at, events.rules.epoch.number].append(events)
            elif isinstance(events, HostEvents):
                hosts[at, events.name].append(events.host_id)
            else:
                sums.append((at, events))
        for (at, name), host_id in hosts.items():
            sums.append((at, HostEvents(name, np.concatenate(host_id)).tally()))
        epoch = max((number for _, number in crawls), default=0)
        parts = [StepSums(at, epoch, tally) for at, tally in sums]
        for (at, number), each in crawls.items():
            tallies = tallies_of(each, at)
            calibrations = self._compared(each)
            tallies[at] = replace(tallies[at], calibrations=calibrations)
            # a late crawl shows no epoch of its step
            parts += [
                StepSums(step, number if step == at else 0, tally)
                for step, tally in tallies.items()
            ]
        return parts

    def _compared(self, commits: list[CrawlEvents]) -> Calibrations:
        """Return the sums of the predictions of crawls, while the database answers."""
        n = sum(len(each.page) for each in commits)
        try:
            with self.store.begin(write=False) as tx:
                compared = compare(tx, commits, compared_every(n))
        except OUTAGES:
            self.n_not_compared += n
            return {}
        if not len(compared.crawl):
            return {}
        sums = CalibrationSums.of(compared.probability, compared.changed)
        return {commits[-1].rules.estimator.name: sums}

    @override
    def close(self) -> None:
        try:
            self.write()
        except OUTAGES:
            log.warning("the last seconds' counts are lost for the history: no database answers")
