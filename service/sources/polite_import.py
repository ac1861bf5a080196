"""Import the PoliteCrawling data set: first the pages, then what their crawls teach.

Days of the data set are counted from `began`. A page's history becomes its state as if its
crawls had been reported one by one, but the log stays empty. A page with complete observations
gets as many pings as its change rate makes since `began`, rounded; its crawls are no evidence.
In memory are a few numbers a page: importances, change rates, and the page_id of each URL_ID.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from service.core import timing
from service.core.estimators import Estimator
from service.domain import (
    DAY,
    INSTANT,
    NEVER,
    UNSAID,
    Bools,
    Floats,
    Instants,
    Ints,
    PageStates,
    Timing,
    instant,
)
from service.errors import NotExportable
from service.estimates import learn, width
from service.sources.importing import FUTURE_ALLOWED, Skipped, Step, newer_states
from service.sources.lines import PageLine, parse
from service.sources.polite import (
    CHANGE_RATES,
    HISTORIES,
    IMPORTANCES,
    URLS,
    ById,
    Histories,
    Rows,
    by_id,
    find_table,
    join_histories,
    read_histories,
    read_numbers,
    read_urls,
)
from service.storage import Store

LEAST_IMPORTANCE = 1e-9


class Learning(NamedTuple):
    """How histories become states."""

    estimator: Estimator[Any]
    timing: Timing
    rng: np.random.Generator
    began: np.datetime64
    now: datetime


def import_polite(
    folder: Path, store: Store, learning: Learning, standing: dict[str, Any]
) -> Iterator[Step]:
    """Import the whole folder; `standing` is that of the last step of an interrupted import.

    Raises
    ------
    UnreadableFile
        A file is not there, or says two things of one URL_ID.
    NotExportable
        The estimator needs the log of all crawls, which is not written.
    """
    if learning.estimator.needs_history:
        raise NotExportable(
            f"estimator {learning.estimator.name} reads the observation log again, which this "
            "import leaves empty; choose another RECRAWL_ESTIMATOR"
        )
    paths = {name: find_table(folder, name) for name in (IMPORTANCES, CHANGE_RATES)}
    rates, skipped = read_numbers(paths[CHANGE_RATES])
    importances, more = read_numbers(paths[IMPORTANCES])
    bad = [Skipped(paths[CHANGE_RATES], *line) for line in skipped]
    bad += [Skipped(paths[IMPORTANCES], *line) for line in more]
    done = sum(path.stat().st_size for path in paths.values())
    told: dict[str, Any] = {"began": str(learning.began), "urls": 0, "histories": 0} | standing
    yield Step(0, 0, 0, bad, done, told)
    urls = find_table(folder, URLS)
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for rows in read_urls(urls):
        known = rows.last_line <= told["urls"]
        created, found, refused = _add_pages(rows, store, learning, importances, rates, known=known)
        parts.append(found)
        told["urls"] = max(told["urls"], rows.last_line)
        yield _step(urls, rows, done, told, refused, created=created)
    del importances
    done += urls.stat().st_size
    url_id, page_id = (np.concatenate(column) for column in zip(*parts, strict=True))
    page_ids = by_id(urls, url_id, page_id)
    histories = find_table(folder, HISTORIES)
    for rows in read_histories(histories, told["histories"]):
        restored, refused = _add_states(rows, store, learning, page_ids, rates)
        told["histories"] = rows.last_line
        yield _step(histories, rows, done, told, refused, restored=restored)


def _step(
    path: Path, rows: Rows, done: int, told: dict[str, Any], refused: list[tuple[int, str]],
    *, created: int = 0, restored: int = 0,
) -> Step:  # fmt: skip
    skipped = [Skipped(path, *line) for line in sorted([*rows.skipped, *refused])]
    n_rows = len(rows.rows) + len(rows.skipped)
    return Step(n_rows, created, restored, skipped, done + rows.bytes_read, told.copy())


def _add_pages(
    rows: Rows, store: Store, learning: Learning, importances: ById, rates: ById, *, known: bool
) -> tuple[int, tuple[Ints, Ints], list[tuple[int, str]]]:
    """Register a block of URLs; gives the new pages, each row's ids, and the rows refused.

    Those that are `known`, because an interrupted import came that far, are only looked up.
    """
    url_id = np.array([url_id for url_id, _ in rows.rows], np.int64)
    importance = importances.get(url_id, np.nan)
    usable = np.flatnonzero(~np.isnan(importance))
    refused = [
        (rows.lines[i], f"URL_ID {url_id[i]} has no importance")
        for i in np.flatnonzero(np.isnan(importance))
    ]
    complete = rates.get(url_id, -1.0) >= 0
    parsed = parse([
        {"url": rows.rows[i][1], "importance": max(float(importance[i]), LEAST_IMPORTANCE),
         "observability": "complete" if complete[i] else "incomplete"}
        for i in usable
    ], PageLine)  # fmt: skip
    refused += [(rows.lines[usable[at]], reason) for at, reason in parsed.rejected]
    created = np.zeros(0, np.bool_)
    with store.begin(write=not known) as tx:
        if known or not parsed.lines:
            page_id = tx.page_ids(parsed.pages.key)
        else:
            page_id, created = tx.register(parsed.pages, learning.now)
    return int(created.sum()), (url_id[usable[parsed.position]], page_id), refused


def _add_states(
    rows: Rows, store: Store, learning: Learning, page_ids: ById, rates: ById
) -> tuple[int, list[tuple[int, str]]]:
    """Take over what a block of histories teaches; gives the states taken over, rows refused."""
    histories = join_histories(rows.rows)
    page_id = page_ids.get(histories.url_id, 0)
    crawled = crawl_times(histories, learning.began)
    ahead = crawled.last > instant(learning.now + FUTURE_ALLOWED)
    refused = [
        (rows.lines[i], f"URL_ID {histories.url_id[i]} has no page")
        for i in np.flatnonzero(page_id == 0)
    ] + [
        (rows.lines[i], "the history runs beyond now; import with an earlier --began")
        for i in np.flatnonzero(ahead & (page_id > 0))
    ]
    rate = rates.get(histories.url_id, np.nan)
    states = replace(states_after(histories, crawled, rate, learning), page_id=page_id)
    states = states.take(np.flatnonzero((page_id > 0) & ~ahead))
    states = states.take(np.unique(states.page_id, return_index=True)[1])
    if not len(states):
        return 0, refused
    with store.begin() as tx:
        stored = tx.lock_states(states.page_id, scheduled=False)
        states = states.take(np.isin(states.page_id, stored.page_id))
        newer = newer_states(states, stored)
        tx.restore_states(states.take(newer), np.full(int(newer.sum()), NEVER, INSTANT))
    return int(newer.sum()), refused


class Crawled(NamedTuple):
    """(N,) when the pages of some histories were crawled."""

    first: Instants
    last: Instants


def crawl_times(histories: Histories, began: np.datetime64) -> Crawled:
    """Count a history's days from where the collection is to have begun."""
    page = np.repeat(np.arange(len(histories.first)), histories.n_crawls)
    span = np.bincount(page, histories.interval, len(histories.first))

    def at(offset: Floats) -> Instants:
        return began + np.rint(offset * DAY.astype(np.float64)).astype("m8[us]")

    return Crawled(at(histories.first), at(histories.first + span))


def states_after(
    histories: Histories, crawled: Crawled, complete_rate: Floats, learning: Learning
) -> PageStates:
    """Give the states after all crawls; `complete_rate` is NaN where changes are not announced."""
    n = len(histories.first)
    complete = ~np.isnan(complete_rate)
    page = np.repeat(np.arange(n), histories.n_crawls)
    evidence = (histories.interval > 0) & ~complete[page]
    page, changed = page[evidence], histories.changed[evidence]
    watched = (instant(learning.now) - learning.began) / DAY
    n_pings = np.where(complete, np.rint(complete_rate * watched), 0).astype(np.int64)
    zero, uniform = np.zeros(n), learning.rng.random(n)
    poisson = learning.timing is Timing.poisson
    never = np.full(n, NEVER, INSTANT)
    return PageStates(
        page_id=np.zeros(n, np.int64),
        last_crawl_at=crawled.last,
        last_observed_at=crawled.last,
        digest=np.zeros(n, np.int64),
        gone=np.zeros(n, np.bool_),
        n_failures=np.zeros(n, np.int64),
        redirects_to=np.zeros(n, np.int64),
        n_observations=np.bincount(page, minlength=n),
        n_changes=np.bincount(page[changed], minlength=n),
        n_pings=n_pings,
        last_ping_at=np.where(n_pings > 0, crawled.last, never),
        pings_since=np.full(n, learning.began, INSTANT),
        ping_credit=zero,
        recent_pings=np.zeros(n, np.int64),
        real_pings=zero,
        false_pings=zero,
        trust=zero,
        wanted_at=never,
        gap=timing.poisson_gap(1.0, uniform) if poisson else timing.first_due_in(1.0, uniform),
        estimate=learnt(learning.estimator, n, page, histories.interval[evidence], changed),
        observability=np.full(n, UNSAID, np.int16),
        crawl_rate=np.full(n, np.nan),
        crawl_probability=np.full(n, np.nan),
    )


def learnt(
    estimator: Estimator[Any], n: int, page: Ints, interval: Floats, changed: Bools
) -> Floats:
    """Give (n, W) estimates after the intervals of each page, which stand in order of page.

    The k-th intervals of all pages are learnt at once. An estimator that needs the crawl rate
    in force is told one crawl per mean interval of the page.
    """
    n_intervals = np.bincount(page, minlength=n)
    start = np.cumsum(n_intervals) - n_intervals
    with np.errstate(invalid="ignore", divide="ignore"):
        crawl_rate = n_intervals / np.bincount(page, interval, n)
    estimate = np.zeros((n, width(estimator)))
    longest_first = np.argsort(-n_intervals, kind="stable")
    left = np.searchsorted(-n_intervals[longest_first], -np.arange(n_intervals.max(initial=0)))
    for turn, n_left in enumerate(left):
        some = longest_first[:n_left]
        at = start[some] + turn
        estimate[some] = learn(
            estimator, estimate[some], interval[at], changed[at], crawl_rate[some]
        )
    return estimate
