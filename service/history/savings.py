"""Gain of the fleet against crawling every page equally often, by its own log.

Both policies spend the same amount on the same pages in the same time. Both keep the delays,
windows and caps of hosts (`history.uniform`). The log shows in which stretches between crawls a
page changed; `core.savings` draws the changes within them, at times that the pages of a host or a
URL group share (`core.shared_times`). After a page's last crawl the forecast of `POST /freshness`
decides.

A page counts from its first crawl with content, or from the start of the window if that is later.
A page with past crawls (`model.past`) counts from its registration.
Pages that are gone now and pages without content are left out, and so are crawls that did not show
their page. The log is read from a third of the window before its start, so that uniform crawling
has a past too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from service.core.savings import (
    NO_PINGS,
    Announced,
    Ratio,
    StaleDays,
    Stretches,
    Watched,
    as_crawled,
    as_uniform,
    drawn_changes,
    ratio,
)
from service.core.shared_times import SharedTimes, shared_times
from service.estimation.estimates import rates_from_log
from service.estimation.freshness import read_freshness
from service.estimation.predictions import Forecast
from service.estimation.rules import InForce
from service.history.gauges import TOGETHER
from service.history.uniform import NO_MEANS, Means, Pages, Uniform, uniform
from service.model.amounts import CRAWLS
from service.model.arrays import NO_TIME, Floats, Ints, days, instant
from service.model.columns import LogColumns
from service.model.domain import Kind
from service.model.freshness import MeasuredPages
from service.model.log_stretches import logged_stretches
from service.model.outcomes import lacks_content
from service.model.words import counted, span
from service.storage import Store, Transaction

WINDOW = timedelta(days=90)
"""Window without `since`."""
LEAD = 3
"""Divisor of the window that is the time before it in which the log is read."""
MOST_PAGES = 20_000
"""Maximum number of page_ids that are all read; of more a sample of as many is read.

They take two seconds of a processor with 16 crawls each."""
SAMPLED_TOGETHER = 100
"""Number of consecutive page_ids in a block of a sample: few, as they are often of one host."""
MOST_ENTRIES = 300_000
"""Number of stretches after which no further block of pages is read."""
GOLDEN = 0.6180339887498949
"""Step through the blocks of a sample, as a share of their number."""
MIN_CRAWLS_PER_PAGE = 3.0
"""Minimum crawls of a page on average: with fewer, most of the window is before or after them."""
LEAST_WAIT_S = 600.0
"""Minimum wait for more log that is shown, seconds: a step of the history."""
LONGEST_WAIT_S = 365.0 * 86_400.0
"""Maximum wait for more log that is shown, seconds."""
MIN_CRAWLS, MIN_CHANGES = 200, 100
"""Minimum numbers for a comparison, as of a replay."""
DRAWN = 60_000
"""Least number of stretches with a change that are drawn; a small log is drawn several times."""
MOST_DRAWS = 24


class Compared(NamedTuple):
    """A mean over time and pages, of the fleet and of uniform crawling."""

    fleet: float
    uniform: float
    ratio: Ratio
    """The fleet's over that of uniform crawling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """The gain of a fleet in a window."""

    at: datetime
    since: datetime
    begun_at: datetime
    """Instant from which the log has a page that counts; `since` at the earliest."""
    n_pages: int
    """Number of pages that count; of a sample those in it."""
    n_crawls: int
    """Number of their crawls that showed content in the window, without first crawls."""
    n_changes: int
    """Number of these crawls that found a change."""
    crawl_interval: float | None
    """Mean days between two crawls of a page under uniform crawling; None without a crawl."""
    unit: str = CRAWLS
    """Unit of the budget."""
    spent: float = 0.0
    """Amount that the crawls took, of both sides."""
    n_uniform: int = 0
    """Number of crawls of uniform crawling."""
    n_cut: int = 0
    """Number of pages that uniform crawling visits less often, by the limits of their hosts."""
    equal_importance: bool
    sampled_share: float
    """Share of the page_ids that were read."""
    harmonic: Compared | None
    """Harmonic staleness; None where the log is too short."""
    stale: Compared | None
    """Share of the time in which a copy is stale."""
    missing: str | None
    """Lack of the log that makes a comparison impossible; None: there is none."""


class Block(NamedTuple):
    """Pages with their stretches between crawls."""

    stretches: Stretches
    pings: Announced
    watched: Watched
    rate: Floats
    """(N,) change rate of each page, 1/day."""
    host: Ints
    group: Ints
    """(N,) host and URL group of each page."""
    importance: Floats
    page_id: Ints
    n_of_pages: Ints
    """(N,) crawls of each page that count."""
    n_changes: int

    @property
    def n_crawls(self) -> int:
        """Number of crawls that count."""
        return int(self.n_of_pages.sum())


class Times(NamedTuple):
    """The window, as instants."""

    begin: datetime
    """Instant from which the log is read; day 0."""
    since: datetime
    now: datetime

    @classmethod
    def of(cls, since: datetime, now: datetime) -> "Times":
        """Return the times of a window."""
        return cls(since - (now - since) / LEAD, since, now)

    def day(self, at: datetime) -> float:
        """Return an instant as days since the beginning."""
        return (at - self.begin) / timedelta(days=1)


def read_savings(
    store: Store,
    rules: InForce,
    since: datetime,
    now: datetime,
    rng: np.random.Generator,
    most_pages: int = MOST_PAGES,
    means: Means = NO_MEANS,
) -> Savings:
    """Return the gain since an instant; by default, with as many crawls and without delays."""
    times = Times.of(since, now)
    blocks, share = _read_blocks(store, rules, times, most_pages)
    n_pages = sum(len(block.importance) for block in blocks)
    n_crawls = sum(block.n_crawls for block in blocks)
    n_changes = sum(block.n_changes for block in blocks)
    watched = sum(float((b.watched.until - b.watched.since).sum()) for b in blocks)
    begun = min((float(b.watched.since.min()) for b in blocks), default=times.day(since))
    other = _uniform(store, means, blocks, share, now) if n_crawls else None
    crawled_before = begun <= times.day(since)
    passed = times.day(now) - max(begun, times.day(since))
    missing = _missing(n_pages, n_crawls, n_changes, watched, passed, crawled_before=crawled_before)
    harmonic = stale = None
    if missing is None and other is not None:
        harmonic, stale = _compared(blocks, other.interval, n_changes, rng)
    importance = np.concatenate([b.importance for b in blocks]) if blocks else np.zeros(0)
    return Savings(
        at=now,
        since=since,
        begun_at=times.begin + timedelta(days=begun),
        n_pages=n_pages,
        n_crawls=n_crawls,
        n_changes=n_changes,
        crawl_interval=None if other is None else watched / other.n_crawls,
        unit=means.unit,
        spent=0.0 if other is None else other.spent,
        n_uniform=0 if other is None else round(other.n_crawls),
        n_cut=0 if other is None else other.n_cut,
        equal_importance=bool((importance == importance[:1]).all()),
        sampled_share=share,
        harmonic=harmonic,
        stale=stale,
        missing=missing,
    )


def _missing(
    n_pages: int,
    n_crawls: int,
    n_changes: int,
    watched: float,
    passed: float,
    *,
    crawled_before: bool,
) -> str | None:
    """Return what a log lacks for a comparison, and how long `passed` days have to go on for it.

    An earlier window has more only if pages were `crawled_before` this one.
    """
    if not n_pages:
        return (
            "no page has a copy in this window; report crawls, and keep the log "
            "(RECRAWL_RETENTION_DAYS)"
        )
    if n_crawls < MIN_CRAWLS_PER_PAGE * n_pages:
        has = f"the log has {n_crawls / n_pages:.1f} crawls a page in this window"
        needs = f"{MIN_CRAWLS_PER_PAGE:.0f} are needed"
        if not n_crawls:
            return (
                "no page has been crawled again since its registration in this window, and "
                f"{MIN_CRAWLS_PER_PAGE:.0f} crawls a page are needed"
            )
        more = MIN_CRAWLS_PER_PAGE * watched / n_crawls - watched / n_pages
        times = 1.0 + more / passed if passed > 0 else 0.0
        return f"{has}, and {needs}" + _go_on(passed, times, crawled_before=crawled_before)
    if n_crawls < MIN_CRAWLS:
        has = f"the log has {counted(n_crawls, 'crawl')}, and {MIN_CRAWLS} are needed"
        return has + _go_on(passed, MIN_CRAWLS / n_crawls, crawled_before=crawled_before)
    if n_changes < MIN_CHANGES:
        has = (
            f"crawls found {counted(n_changes, 'change')}, and {MIN_CHANGES} are needed to compare"
        )
        times = MIN_CHANGES / n_changes if n_changes else 0.0
        return has + _go_on(passed, times, crawled_before=crawled_before)
    return None


def _go_on(passed: float, times: float, *, crawled_before: bool) -> str:
    """Return how long a window has to go on until it is so many times as long; 0: not known."""
    earlier = "begin earlier" if crawled_before else ""
    if not times or passed <= 0:
        return f": {earlier}" if earlier else ""
    seconds = max(86_400.0 * passed * (times - 1.0), LEAST_WAIT_S)
    if seconds > LONGEST_WAIT_S:
        return ": at this rate it takes more than a year" + f"; {earlier}" * crawled_before
    wait = span(seconds)
    return f": wait for {wait} more{', or ' * crawled_before}{earlier}"


# -- reading


def _read_blocks(
    store: Store, rules: InForce, times: Times, most_pages: int
) -> tuple[list[Block], float]:
    """Return the pages, and the share of all page_ids that they are."""
    with store.begin(write=False) as tx:
        space = tx.page_ranges()
    blocks: list[Block] = []
    n_ids = n_entries = 0
    for start, end in spread(space.size, most_pages):
        for after, last in space.spans(start, end):
            with store.begin(write=False) as tx:
                block = _block(tx, rules, times, after, last)
            if block is not None:
                blocks.append(block)
                n_entries += len(block.stretches.page)
        n_ids += end - start
        if n_ids >= most_pages or n_entries >= MOST_ENTRIES:
            break
    return blocks, n_ids / space.size if space.size else 1.0


def spread(size: int, most: int = MOST_PAGES) -> Iterator[tuple[int, int]]:
    """Yield ranges of offsets that cover all; the first ones of many are spread evenly.

    >>> list(spread(3, 5)), [start for start, _ in spread(1_000, 400)]
    ([(0, 3)], [0, 700, 400, 100, 800, 500, 200, 900, 600, 300])
    """
    length = TOGETHER if size <= most else SAMPLED_TOGETHER
    n = -(-size // length)
    step = 1 if size <= most else _coprime(round(GOLDEN * n), n)
    for turn in range(n):
        start = turn * step % n * length
        yield start, min(start + length, size)


def _coprime(step: int, n: int) -> int:
    while np.gcd(step, n) != 1:
        step += 1
    return step


def _block(tx: Transaction, rules: InForce, times: Times, after: int, last: int) -> Block | None:
    pages = tx.measured_pages(after, last)
    copies = ~lacks_content(pages.gone, pages.n_failures)
    copies &= pages.last_observed_at <= instant(times.now)
    pages = pages.where(copies)
    if not len(pages):
        return None
    log, group = tx.log_since(after, last, times.begin), pages.url_group.astype(np.int64)
    in_force = rules.of(tx)
    estimator, pages = in_force.of_pages(tx, pages)
    at, newest = instant(times.now), np.full(len(pages), NO_TIME)
    verdicts = read_freshness(tx, pages, newest, estimator, at, feeds=in_force.feeds)
    from_log = None
    if estimator.needs_history:
        from_log = rates_from_log(tx, pages.page_id, estimator)
    estimates = Forecast.of(pages, estimator, at, in_force.feeds, from_log).estimates
    running = _running(pages, times, verdicts.stale, np.maximum(verdicts.expected_changes, 0.0))
    row = np.searchsorted(pages.page_id, log.page_id)
    there = row < len(pages)
    there[there] = pages.page_id[row[there]] == log.page_id[there]
    log, row = log.take(there), row[there]
    ended = _ended(log, row, times, estimates.change_rate)
    stretches = _in_order(ended, running)
    since, now = times.day(times.since), times.day(times.now)
    first = np.flatnonzero(np.diff(stretches.page, prepend=-1))
    begin = np.full(len(pages), now)
    begin[stretches.page[first]] = stretches.begin[first]
    # what another crawler had achieved before the registration is no gain of this fleet
    registered = days(tx.registered_at(pages.page_id) - instant(times.begin))
    begin = np.where(begin < registered - 1.0, registered, begin)
    watched = Watched(np.maximum(begin, since), np.full(len(pages), now))
    counts = ended.end > watched.since[ended.page]
    precision = np.where(estimates.recall > 0, estimates.precision, 0.0)
    return Block(
        stretches,
        _announced(log, row, times, stretches, precision),
        watched,
        estimates.change_rate,
        pages.host_id,
        group,
        pages.importance,
        pages.page_id,
        np.bincount(ended.page[counts], minlength=len(pages)),
        int((counts & (ended.probability > 0)).sum()),
    )


def _running(pages: MeasuredPages, times: Times, stale: Floats, expected: Floats) -> Stretches:
    """Return the stretch since the last crawl of each page."""
    begin = days(pages.last_observed_at - instant(times.begin))
    end = np.full(len(pages), times.day(times.now))
    return Stretches(np.arange(len(pages)), begin, end, stale, expected)


def _ended(log: LogColumns, row: Ints, times: Times, rate: Floats) -> Stretches:
    """Return the stretches that crawls ended; those at whose ends a page was gone do not count."""
    shown = logged_stretches(log)
    counts = ~shown.gone & ~shown.was_gone & (shown.end <= instant(times.now))
    begin, end = (days(at[counts] - instant(times.begin)) for at in (shown.begin, shown.end))
    page, changed = row[shown.entry[counts]], shown.changed[counts].astype(np.float64)
    return Stretches(page, begin, end, changed, rate[page] * (end - begin))


def _in_order(*parts: Stretches) -> Stretches:
    whole = Stretches(*map(np.concatenate, zip(*parts, strict=True)))
    order = np.lexsort((whole.end, whole.page))
    columns: Iterator[Any] = (column[order] for column in whole)
    return Stretches(*columns)


def _announced(
    log: LogColumns, row: Ints, times: Times, stretches: Stretches, precision: Floats
) -> Announced:
    """Return the pings that are used, in stretches whose crawl found a change."""
    used = (log.kind == Kind.ping) & (precision[row] > 0)
    if not used.any():
        return NO_PINGS
    page, at = row[used], days(log.observed_at[used] - instant(times.begin))
    # one number for a page and a time, so that one search finds the stretches of all pages
    span = times.day(times.now) + 1.0
    place = np.searchsorted(stretches.page * span + stretches.end, page * span + at)
    place = np.minimum(place, len(stretches.page) - 1)
    inside = (stretches.page[place] == page) & (at > stretches.begin[place])
    inside &= (at <= stretches.end[place]) & (stretches.probability[place] == 1.0)
    place, at, page = place[inside], at[inside], page[inside]
    order = np.lexsort((at, place))
    return Announced(place[order], at[order], precision[page[order]])


# -- comparing


def _uniform(
    store: Store, means: Means, blocks: list[Block], share: float, now: datetime
) -> Uniform:
    """Return uniform crawling of the pages of blocks."""
    page_id = np.concatenate([block.page_id for block in blocks])
    host = np.concatenate([block.host for block in blocks])
    lived = np.concatenate([block.watched.until - block.watched.since for block in blocks])
    n_crawls = np.concatenate([block.n_of_pages for block in blocks])
    order = np.argsort(page_id)  # blocks of a sample are in another order
    pages = Pages(page_id[order], host[order], lived[order], n_crawls[order], share)
    other = uniform(store, means, pages, now)
    interval = np.empty(len(order))
    interval[order] = other.interval
    return other._replace(interval=interval)


def _compared(
    blocks: list[Block], interval: Floats, n_changes: int, rng: np.random.Generator
) -> tuple[Compared, Compared]:
    """Return harmonic staleness and share of stale time, means of draws of the changes."""
    n_draws = min(-(-DRAWN // n_changes), MOST_DRAWS)
    above, below, lived = [], [], 0.0
    ends = np.cumsum([len(block.importance) for block in blocks])
    for block, every in zip(blocks, np.split(interval, ends[:-1]), strict=True):
        fleet = uniform = np.zeros((2, len(block.importance)))
        times = _times(block)
        for _ in range(n_draws):
            changes = drawn_changes(block.stretches, rng, block.pings, times)
            phase = rng.random(len(block.importance))
            own: StaleDays = as_crawled(block.stretches, changes, block.watched)
            other = as_uniform(block.stretches, changes, block.watched, every, phase)
            fleet, uniform = fleet + own, uniform + other
        above.append(block.importance * fleet / n_draws)
        below.append(block.importance * uniform / n_draws)
        lived += float(block.importance @ (block.watched.until - block.watched.since))
    sums = np.hstack(above), np.hstack(below)
    harmonic, stale = (
        Compared(float(own.sum()) / lived, float(other.sum()) / lived, ratio(own, other))
        for own, other in zip(*sums, strict=True)
    )
    return harmonic, stale


def _times(block: Block) -> SharedTimes:
    """Return the times at which pages changed together, by the stretches that crawls ended."""
    stretches, now = block.stretches, float(block.watched.until[0])
    ended = np.diff(stretches.page, append=-1) == 0  # the last one of a page still runs
    page, begin, end, changed, _ = (column[ended] for column in stretches)
    first = max(float(begin.min(initial=0.0)), -now)
    columns = block.rate, block.host, block.group
    return shared_times(page, begin, end, changed > 0, *columns, (first, now))
