"""Effects of crawls on their pages: evidence, next state, log. Pure.

Arrays are (N,) for crawls, ordered by page and time, and (P,) for their pages.
"""

from dataclasses import dataclass, replace

import numpy as np

from service.core import waits
from service.estimation.estimates import EvidenceState, OrderedCrawls, Rules, learn_crawls
from service.model.arrays import (
    NO_TIME,
    UNIX_ZERO,
    UNSPECIFIED,
    Bools,
    Codes,
    Floats,
    Groups,
    Instants,
    Ints,
    days,
    instant,
)
from service.model.columns import CrawlColumns, LogColumns, PageStates
from service.model.domain import MOST_COUNTED, MOST_FAILURES, Kind, Observability, Timing

NOT_MODIFIED = 304
GONE = (404, 410)
MOVED = (301, 308)
SUCCESS = range(200, 400)
FIRST_FAILED = instant(UNIX_ZERO)
"""Request of a page that has never answered."""
GENERATED_WITHIN = np.timedelta64(1, "m")
"""Age up to which a Last-Modified is ignored."""


def answers(crawls: CrawlColumns) -> tuple[Bools, Bools]:
    """Return which crawls show the state of the page, and which of them show that it is gone.

    The content after a redirect belongs to another page.
    """
    status, away = crawls.status, crawls.redirects_to != 0
    gone: Bools = (status == GONE[0]) | (status == GONE[1])
    gone |= moved_permanently(crawls)
    answer = (status == UNSPECIFIED) | gone | (status == NOT_MODIFIED)
    content = ((crawls.changed != UNSPECIFIED) | (crawls.digest != 0)) & ~away
    return answer | (content & (status >= SUCCESS.start) & (status < SUCCESS.stop)), gone


def moved_permanently(crawls: CrawlColumns) -> Bools:
    """Return which crawls were redirected for good to another page."""
    status = crawls.status
    moved: Bools = (crawls.redirects_to != 0) & ((status == MOVED[0]) | (status == MOVED[1]))
    return moved


def failing(status: Codes, answer: Bools) -> Bools:
    """Return which crawls failed; a redirect, or a success without content, did not fail."""
    failing: Bools = ~answer & ((status < SUCCESS.start) | (status >= SUCCESS.stop))
    return failing


def failures(
    states: PageStates, groups: Groups, answer: Bools, gone: Bools, failing: Bools, was_gone: Bools
) -> Ints:
    """Return (P,) failures in a row of present pages, and confirmations of pages that are gone.

    A crawl without an answer does not reset the count of a page that is gone.
    """
    if not (states.n_failures.any() or gone.any() or failing.any()):
        return states.n_failures
    counts = gone | (failing & ~was_gone)
    resets = (answer & ~gone) | (~was_gone & ~failing)
    so_far: Ints = np.cumsum(counts)
    others: Ints = so_far - counts
    initial = states.n_failures - others[groups.start]
    n_failures = so_far[groups.end] + groups.after(initial, resets, -others)
    return np.minimum(n_failures, MOST_FAILURES)


def redirects(states: PageStates, groups: Groups, crawls: CrawlColumns, failing: Bools) -> Ints:
    """Return the page to which each page's last answer redirected; 0: none."""
    if not (states.redirects_to.any() or crawls.redirects_to.any()):
        return states.redirects_to
    # a target that is not registered, UNSPECIFIED, is stored as none
    return groups.after(states.redirects_to, ~failing, np.maximum(crawls.redirects_to, 0))


def redirect_before(
    states: PageStates, groups: Groups, crawls: CrawlColumns, failing: Bools
) -> Ints:
    """Return (N,) the page to which the answer before each crawl redirected; 0: none."""
    return groups.before(states.redirects_to, ~failing, np.maximum(crawls.redirects_to, 0))


def last_answer(
    states: PageStates, groups: Groups, crawls: CrawlColumns, answer: Bools
) -> Instants:
    """Return (N,) the time of the last answer before each crawl; NaT: none."""
    return groups.before(states.last_observed_at, answer, crawls.observed_at)


def reported_change(
    crawls: CrawlColumns, last_observed_at: Instants, was_gone: Bools, gone: Bools
) -> Codes:
    """Return whether each page has changed since its last answer; UNSPECIFIED: compare digests."""
    changed = np.where(crawls.status == NOT_MODIFIED, 0, crawls.changed)
    changed = np.where(gone | was_gone, gone != was_gone, changed)
    return np.where(np.isnat(last_observed_at), UNSPECIFIED, changed).astype(np.int16)


def age(crawls: CrawlColumns) -> Floats:
    """Return the days since each page was last modified, as its site reports; NaN: no report."""
    since = crawls.observed_at - crawls.last_modified
    # the request itself generated a younger date
    return np.where(since > GENERATED_WITHIN, days(since), np.nan)


def add_counts(so_far: Ints, more: Ints) -> Ints:
    """Return (P,) counts with more added, at most `MOST_COUNTED`."""
    counts: Ints = np.minimum(so_far + more, MOST_COUNTED)
    return counts


@dataclass(frozen=True, slots=True)
class CrawlComparison:
    """(N,) crawls compared with the previous crawl."""

    answer: Bools
    """True if the crawl shows the state of the page."""
    gone: Bools
    was_gone: Bools
    failing: Bools
    sets_digest: Bools
    changed: Codes
    interval: Floats
    """Days since the last answer."""
    is_evidence: Bools
    """True if the interval is evidence of the page's change rate."""
    n_pings: Ints
    """Pings within the interval."""
    n_pings_after: Ints
    """Pings of the next interval that arrived before the crawl."""


def observe(
    states: PageStates, groups: Groups, crawls: CrawlColumns, rules: Rules
) -> tuple[PageStates, LogColumns, CrawlComparison]:
    """Return the states of (P,) pages after (N,) crawls, the log's entries, and the comparison."""
    comparison = compare(states, groups, crawls)
    evidence = OrderedCrawls(
        page=groups.page,
        observed_at=crawls.observed_at,
        interval=comparison.interval,
        changed=comparison.changed == 1,
        n_pings=comparison.n_pings,
        total_pings=states.n_pings[groups.page],
        crawl_rate=states.crawl_rate[groups.page],
        age=age(crawls),
    )
    learnt = learn_crawls(rules.estimator, states, evidence.where(comparison.is_evidence))
    after = _next_states(states, groups, crawls, comparison, evidence.age, learnt, rules)
    return after, _log_crawls(crawls, comparison, evidence.crawl_rate), comparison


def compare(states: PageStates, groups: Groups, crawls: CrawlColumns) -> CrawlComparison:
    """Return the comparison of each crawl with the previous crawl.

    A crawl with an answer ends the running interval and starts the next. The interval is evidence
    of the change rate if both ends can be compared. The intervals of `complete` pages are no
    evidence, because their crawls follow changes. A page has changed if it disappeared, moved
    permanently or came back.
    """
    page, at = groups.page, crawls.observed_at
    answer, gone = answers(crawls)
    last_observed_at = last_answer(states, groups, crawls, answer)
    was_gone = groups.before(states.gone, answer, gone)
    reported = reported_change(crawls, last_observed_at, was_gone, gone)
    reported = np.where(answer, reported, UNSPECIFIED)
    # a reported change without a digest clears the old one, which no longer fits the page
    sets_digest = answer & ((crawls.digest != 0) | (reported == 1))
    digest = groups.before(states.digest, sets_digest, crawls.digest)
    comparable = answer & (reported == UNSPECIFIED) & (crawls.digest != 0) & (digest != 0)
    changed = np.where(comparable, crawls.digest != digest, reported).astype(np.int16)
    interval = days(at - last_observed_at)
    is_evidence = (changed != UNSPECIFIED) & (interval > 0)
    is_evidence &= (states.observability != Observability.complete)[page]
    n_pings, n_pings_after = _count_pings(states, groups, answer, at)
    return CrawlComparison(
        answer=answer,
        gone=gone,
        was_gone=was_gone,
        failing=failing(crawls.status, answer),
        sets_digest=sets_digest,
        changed=changed,
        interval=interval,
        is_evidence=is_evidence,
        n_pings=n_pings,
        n_pings_after=n_pings_after,
    )


def _count_pings(
    states: PageStates, groups: Groups, answer: Bools, at: Instants
) -> tuple[Ints, Ints]:
    """Return the number of pings in each crawl's interval, and in the next interval so far.

    A ping that is dated after the crawl but arrived before belongs to the next interval.
    """
    ahead = (states.last_ping_at[groups.page] > at).astype(np.int64)
    after = np.minimum(states.pings_since_crawl[groups.page], ahead)
    before = groups.before(states.pings_since_crawl, answer, after)
    return np.maximum(before - ahead, 0), after


def _next_states(
    states: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    comparison: CrawlComparison,
    age: Floats,
    learnt: EvidenceState,
    rules: Rules,
) -> PageStates:
    at, answer, gone = crawls.observed_at, comparison.answer, comparison.gone
    failing, is_evidence = comparison.failing, comparison.is_evidence
    changed = comparison.changed == 1
    # the sign of `last_interval` is the result of its crawl
    signed = np.where(changed, comparison.interval, -comparison.interval)
    newest = np.fmax.reduceat(np.where(answer, at, NO_TIME), groups.start)
    # a crawl that failed answers no request
    reached = np.fmax.reduceat(np.where(failing, NO_TIME, at), groups.start)
    requested_at = np.where(states.requested_at <= reached, NO_TIME, states.requested_at)
    no_copy = np.isnat(states.last_observed_at) & np.isnat(newest) & failing[groups.end]
    n_failures = failures(states, groups, answer, gone, failing, comparison.was_gone)
    return replace(
        states,
        last_crawl_at=at[groups.end],
        last_observed_at=np.where(np.isnat(newest), states.last_observed_at, newest),
        digest=groups.after(states.digest, comparison.sets_digest, crawls.digest),
        gone=groups.after(states.gone, answer, gone),
        n_observations=add_counts(states.n_observations, groups.count(is_evidence)),
        n_changes=add_counts(states.n_changes, groups.count(is_evidence & changed)),
        # a page that has never answered is tried again at a crawl rate of 0 too
        requested_at=np.where(no_copy & np.isnat(requested_at), FIRST_FAILED, requested_at),
        interval_factor=_interval_factor(states, groups, newest, rules),
        last_interval=groups.after(
            states.last_interval, answer, np.where(is_evidence, signed, 0.0)
        ),
        last_age=groups.after(states.last_age, answer, age),
        n_failures=n_failures,
        redirects_to=redirects(states, groups, crawls, failing),
        pings_since_crawl=groups.after(states.pings_since_crawl, answer, comparison.n_pings_after),
        **learnt._asdict(),
    )


def _interval_factor(states: PageStates, groups: Groups, newest: Instants, rules: Rules) -> Floats:
    """Return random times to the next crawl, in mean intervals of the page.

    After the first answer the time is a random part of an interval, so that pages that were
    registered together drift apart.
    """
    uniform = rules.rng.random(len(states))
    if rules.timing is Timing.poisson:
        return waits.exponential(uniform)
    factor = waits.jittered(waits.JITTER, uniform)
    # of several crawls in a batch the newest one is not the first
    first = np.isnat(states.last_observed_at) & ~np.isnat(newest) & (groups.start == groups.end)
    return np.where(first, uniform, factor) if first.any() else factor


def _log_crawls(
    crawls: CrawlColumns, comparison: CrawlComparison, crawl_rate: Floats
) -> LogColumns:
    return LogColumns(
        page_id=crawls.page_id,
        observed_at=crawls.observed_at,
        kind=np.full(len(crawls), Kind.crawl, np.int16),
        changed=comparison.changed,
        interval=np.where(comparison.is_evidence, comparison.interval, np.nan),
        crawl_rate=crawl_rate,
        status=crawls.status,
    )
